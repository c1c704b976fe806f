"""What an OpenID Connect issuer publishes: its endpoints and its signing keys, fetched when needed and cached.

Keys are fetched again every `REFRESH_INTERVAL_S`, and as soon as a token names a key that is not known, which is how
providers rotate keys, or has a signature that does not fit, because some replace a key under its id. Requests that wait
for keys share one fetch. While the issuer cannot be reached, the last keys stay in use for `MAX_AGE_S`.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec
import structlog

from dragoman.core.refusals import IssuerUnavailable

FETCH_TIMEOUT_S = 10.0
"""For one document, from the connection to its last byte."""
MAX_DOCUMENT_BYTES = 512 * 1024
REFRESH_INTERVAL_S = 3600.0
MAX_AGE_S = 24 * 3600.0
RETRY_DELAY_S = 5.0
"""Shortest time between two fetches, so that tokens with invented key ids cannot cause many."""

Document = TypeVar("Document")

log = structlog.get_logger(__name__)

SigningKeys = Mapping[str | None, Mapping[str, Any]]
"""JSON Web Keys by their ids."""


class IssuerMetadata(msgspec.Struct, frozen=True):
    """The members of an issuer's discovery document that are used here (OpenID Connect Discovery 1.0, section 3)."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    end_session_endpoint: str = ""


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


class _FetchFailed(Exception):
    """A document cannot be fetched, or is not what it should be."""


class Issuer:
    """An issuer's metadata and signing keys.

    Nothing is fetched before the first use.

    Args:
        url: the issuer, exactly as it stands in its tokens.
        client: fetches the documents. Redirects are not followed.
        jwks_url: where its keys are; None if its discovery document says it.
        monotonic: a clock in seconds that is never set back.
    """

    def __init__(
        self,
        url: str,
        client: httpx2.AsyncClient,
        *,
        jwks_url: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url
        self._jwks_url = jwks_url
        self._client = client
        self._monotonic = monotonic
        self._metadata: IssuerMetadata | None = None
        self._keys: SigningKeys = {}
        self._fetched_at: float | None = None
        """When the keys were fetched; None if they never were."""
        self._attempted_at = -RETRY_DELAY_S
        self._is_failing = False
        self._fetch: asyncio.Task[None] | None = None

    @property
    def metadata(self) -> IssuerMetadata | None:
        """The discovery document, if it has been fetched."""
        return self._metadata

    async def close(self) -> None:
        """Stop fetching."""
        if self._fetch is not None:
            self._fetch.cancel()
            await asyncio.wait([self._fetch])

    async def load_metadata(self) -> IssuerMetadata:
        """The discovery document. Raises IssuerUnavailable."""
        if self._metadata is None:
            await self._refresh()
        if self._metadata is None:
            raise IssuerUnavailable(f"the identity provider {self.url} has no discovery document; the log says why")
        return self._metadata

    async def signing_key(self, key_id: str | None) -> Mapping[str, Any] | None:
        """The key with this id; without an id, the only key. Returns None if there is none.

        Raises:
            IssuerUnavailable: the keys cannot be fetched, and those in the cache are missing, too old, or do not
                contain this one.
        """
        age_s = None if self._fetched_at is None else self._monotonic() - self._fetched_at
        found = self._find(key_id)
        if age_s is None or age_s > MAX_AGE_S or found is None:
            await self._refresh()
            return self._find(key_id)
        if age_s > REFRESH_INTERVAL_S:
            self._begin_fetch()
        return found

    async def replacement(self, key_id: str | None, key: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The key that the issuer publishes now in place of `key`; None if it is the same, or unknown at the moment."""
        with suppress(IssuerUnavailable):
            await self._refresh()
        found = self._find(key_id)
        return None if found == key else found

    def start(self) -> None:
        """Fetch everything in the background, so that the first token need not wait."""
        self._begin_fetch()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _find(self, key_id: str | None) -> Mapping[str, Any] | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _begin_fetch(self) -> asyncio.Task[None] | None:
        """Start a fetch unless one is running; None if the last one was only just made."""
        if self._fetch is None or self._fetch.done():
            if self._monotonic() - self._attempted_at < RETRY_DELAY_S:
                return None
            self._attempted_at = self._monotonic()
            self._fetch = asyncio.create_task(self._fetch_all(), name="identity provider")
        return self._fetch

    async def _refresh(self) -> None:
        """Wait for a fetch. Raises IssuerUnavailable if it fails, or if the last one did and was only just made."""
        fetch = self._begin_fetch()
        if fetch is not None:
            await asyncio.shield(fetch)
        if self._is_failing:
            raise IssuerUnavailable(
                "tokens cannot be verified now, because the identity provider's keys cannot be fetched: try again"
                " later, or use an API key"
            )

    async def _fetch_all(self) -> None:
        url = self._jwks_url
        try:
            if url is None or self._metadata is None:
                url = await self._fetch_metadata(url)
            keys = await self._fetch_document(url, _KeySet)
        except _FetchFailed as error:
            self._is_failing = True
            log.warning("the identity provider cannot be reached", issuer=self.url, error=str(error))
            return
        usable = [key for key in keys.keys if key.get("use", "sig") == "sig" and key.get("kty") != "oct"]
        self._keys = {key.get("kid"): key for key in usable if isinstance(key.get("kid"), str | None)}
        self._fetched_at = self._monotonic()
        self._is_failing = False
        log.info("identity provider's keys fetched", issuer=self.url, keys=len(self._keys))

    async def _fetch_metadata(self, jwks_url: str | None) -> str:
        """Fetch the discovery document, and return where the keys are. With `jwks_url` it is optional."""
        try:
            metadata = await self._fetch_document(
                f"{self.url.rstrip('/')}/.well-known/openid-configuration", IssuerMetadata
            )
            if metadata.issuer != self.url:
                raise _FetchFailed(f"the document is of the issuer {metadata.issuer[:200]!r}, not of {self.url!r}")
            if jwks_url is None and not may_be_fetched(metadata.jwks_uri, self.url):
                raise _FetchFailed(f"jwks_uri {metadata.jwks_uri[:200]!r} is not an address on the issuer's network")
        except _FetchFailed:
            if jwks_url is None:
                raise
            return jwks_url
        self._metadata = metadata
        return jwks_url or metadata.jwks_uri

    async def _fetch_document(self, url: str, kind: type[Document]) -> Document:
        try:
            async with (
                asyncio.timeout(FETCH_TIMEOUT_S),
                self._client.stream(
                    "GET", url, headers={"accept": "application/json"}, follow_redirects=False
                ) as response,
            ):
                if response.status_code != 200:
                    raise _FetchFailed(f"{url} answered {response.status_code}")
                content = b""
                async for piece in response.aiter_bytes():
                    content += piece
                    if len(content) > MAX_DOCUMENT_BYTES:
                        raise _FetchFailed(f"{url} is larger than {MAX_DOCUMENT_BYTES} bytes")
            return msgspec.json.decode(content, type=kind)
        except TimeoutError as error:
            raise _FetchFailed(f"{url} did not answer within {FETCH_TIMEOUT_S:g} s") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _FetchFailed(f"{url}: {str(error) or type(error).__name__}") from error
        except msgspec.MsgspecError as error:
            raise _FetchFailed(f"{url} has unexpected content: {error}") from error


def may_be_fetched(url: str, issuer: str) -> bool:
    """Whether an address that the issuer names may be fetched: on the issuer's own host, or over HTTPS on a named one.

    A document from outside must not make this server call its own network, so numbers are refused in every spelling:
    resolvers accept 127.1 and 0x7f.1, and some networks lead from 64:ff9b::7f00:1 to 127.0.0.1.
    """
    try:
        target, own = urlsplit(url), urlsplit(issuer)
        host = (target.hostname or "").rstrip(".")
    except ValueError:
        return False
    if target.scheme == own.scheme and host == own.hostname:
        return True
    domain, _, last_label = host.rpartition(".")
    is_name = domain != "" and host.isascii() and ":" not in host and not last_label[:1].isdigit()
    return target.scheme == "https" and is_name and last_label != "localhost"
