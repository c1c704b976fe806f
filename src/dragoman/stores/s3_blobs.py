"""Blobs in an S3 bucket: Amazon S3, MinIO, Ceph, R2 and other compatible services.

Credentials come from `AWS_ACCESS_KEY_ID` and related environment variables or from the machine's role, as is usual.
An address contains no secrets.
"""

import re
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import obstore
import structlog
from obstore.exceptions import BaseError
from obstore.store import S3Store

from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.folder_blobs import validate_blob_name

if TYPE_CHECKING:
    from obstore.store import S3Config

REQUEST_TIMEOUT_S = 15
"""Timeout of one request: the largest blob at one megabyte per second."""
RETRY_TIMEOUT_S = 5
"""How long requests are retried if the bucket is unavailable or fails."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"([A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*)?")

log = structlog.get_logger(__name__)


class BucketLocation(NamedTuple):
    """The address of a bucket. If `endpoint` or `region` is None, the library chooses it."""

    bucket: str
    prefix: str
    endpoint: str | None
    region: str | None


def parse_address(address: str) -> BucketLocation:
    """Parse `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`; all parts except the bucket are optional.

    Raises:
        ValueError: the address is invalid; the message says what was expected.
    """
    url = urlsplit(address)
    prefix = url.path.strip("/")
    if url.scheme != "s3" or _BUCKET.fullmatch(url.netloc) is None or _PREFIX.fullmatch(prefix) is None:
        raise ValueError("expected an address such as s3://bucket/folder?endpoint=https://s3.example.org")
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    endpoint, region = options.pop("endpoint", None), options.pop("region", None)
    if options or url.fragment:
        unknown = ", ".join(options) or f"#{url.fragment}"
        raise ValueError(f"an address of a bucket takes endpoint and region, and got {unknown}")
    if endpoint is not None and (urlsplit(endpoint).scheme not in ("http", "https") or "@" in endpoint):
        raise ValueError("expected an endpoint such as https://s3.example.org, with no secrets in it")
    return BucketLocation(url.netloc, prefix, endpoint, region)


class S3Blobs:
    """`BlobStore` in a bucket, under a prefix. Writes are atomic: each is one request.

    No request is made before the first use.
    """

    def __init__(self, location: BucketLocation) -> None:
        self._display_url = f"s3://{location.bucket}/{location.prefix}"
        config: S3Config = {}
        if location.endpoint is not None:
            config["endpoint"] = location.endpoint
        if location.region is not None:
            config["region"] = location.region
        self._store = S3Store(
            location.bucket,
            prefix=location.prefix or None,
            config=config,
            client_options={
                "allow_http": (location.endpoint or "").startswith("http:"),
                "connect_timeout": timedelta(seconds=RETRY_TIMEOUT_S),
                "timeout": timedelta(seconds=REQUEST_TIMEOUT_S),
            },
            retry_config={"retry_timeout": timedelta(seconds=RETRY_TIMEOUT_S)},
        )

    def check(self) -> None:
        """Check that the bucket can be read. Blocks; raises StoreUnavailable with the cause."""
        try:
            next(iter(obstore.list(self._store, chunk_size=1)), None)
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the bucket {self._display_url} cannot be used: {_error_summary(error)}") from error

    async def put(self, name: str, content: bytes) -> None:
        """Store a value durably, replacing any previous one."""
        try:  # one request: parts of an abandoned multipart upload would be stored, and charged, forever
            await obstore.put_async(self._store, validate_blob_name(name), content, use_multipart=False)
        except (BaseError, OSError) as error:
            raise self._unavailable(error) from error

    async def get(self, name: str) -> bytes | None:
        """Return a value, or None if there is none of that name."""
        try:
            found = await obstore.get_async(self._store, validate_blob_name(name))
            return bytes(await found.bytes_async())
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise self._unavailable(error) from error

    async def delete(self, name: str) -> None:
        """Remove a value and all values whose names start with this one and a `/`."""
        try:
            names = [each async for each in self._list(validate_blob_name(name))]
            await obstore.delete_async(self._store, [*names, name])  # a service over folders wants them empty first
        except FileNotFoundError:
            return  # some compatible services report that there was none
        except (BaseError, OSError) as error:
            raise self._unavailable(error) from error

    async def names(self, prefix: str | None = None) -> Sequence[str]:
        """List all names in order, or only those that start with a prefix and a `/`."""
        try:
            return sorted([each async for each in self._list(None if prefix is None else validate_blob_name(prefix))])
        except (BaseError, OSError) as error:
            raise self._unavailable(error) from error

    async def _list(self, folder: str | None) -> AsyncIterator[str]:
        async for page in obstore.list(self._store, prefix=folder):
            for found in page:
                yield found["path"]

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        log.warning("blobs cannot be used", bucket=self._display_url, cause=_error_summary(error))
        return StoreUnavailable("the store of attachments cannot be used now")


def open_bucket(address: str) -> S3Blobs:
    """Open the blobs at an address, after checking the bucket.

    Raises:
        ValueError: the address is invalid.
        StoreUnavailable: the bucket does not exist, access is denied, or it cannot be reached.
    """
    blobs = S3Blobs(parse_address(address))
    blobs.check()
    return blobs


def _error_summary(error: Exception) -> str:
    """The first line of an error. The library appends its internals and the whole response."""
    message = str(error)
    code = re.search(r"<Code>(\w+)</Code>", message)
    return code[1] if code else " ".join(message.partition("\n")[0].split())
