"""Signed links to uploaded objects. Pure.

    BASE/attachments/content/BUCKET/PATH?expires=SECONDS&signature=HEX

The signature is an HMAC over everything before it: the base URL, the bucket, the path, which begins with the owner's
folder, and the expiry.
Source: the run service's specification, A.7; shared rules, 28.
"""

import hashlib
import hmac
import re
from typing import NamedTuple

from dragoman.core.uploads import BUCKET, PATH_PATTERN

LIFETIME_S = 3600
CONTENT_PATH = "attachments/content"

_URL = re.compile(
    rf"(?P<signed>https?://[!-~]+?/{CONTENT_PATH}/{re.escape(BUCKET)}/(?P<path>{PATH_PATTERN})\?expires=(?P<expires>[0-9]{{1,12}}))"
    r"&signature=(?P<signature>[0-9a-f]{64})"
)


class Link(NamedTuple):
    """A link to the object at `path`, valid until `expires`, in seconds since 1970."""

    path: str
    expires: int


class Links:
    """Makes and verifies links with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def make(self, base: str, path: str, expires: int) -> str:
        """Make a link to an object.

        Args:
            base: the URL of the run service, without a slash at its end.
            path: the object's path in the bucket.
            expires: the expiry, in whole seconds since 1970.
        """
        signed = f"{base}/{CONTENT_PATH}/{BUCKET}/{path}?expires={expires}"
        return f"{signed}&signature={self._signature(signed)}"

    def read(self, url: str) -> Link | None:
        """Read a link, also an expired one; None if any byte differs from a link made with this key."""
        match = _URL.fullmatch(url)
        if match is None or not hmac.compare_digest(self._signature(match["signed"]), match["signature"]):
            return None
        return Link(match["path"], int(match["expires"]))

    def _signature(self, signed: str) -> str:
        return hmac.new(self._key, signed.encode(), hashlib.sha256).hexdigest()
