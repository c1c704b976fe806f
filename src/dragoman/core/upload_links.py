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
    """Makes links with one key, and verifies them with it and with older ones."""

    def __init__(self, key: bytes, *older: bytes) -> None:
        self._keys = (key, *older)

    def make(self, base: str, path: str, expires: int) -> str:
        """Make a link to an object.

        Args:
            base: the URL of the run service, without a slash at its end.
            path: the object's path in the bucket.
            expires: the expiry, in whole seconds since 1970.
        """
        signed = f"{base}/{CONTENT_PATH}/{BUCKET}/{path}?expires={expires}"
        return f"{signed}&signature={_signature(self._keys[0], signed)}"

    def read(self, url: str) -> Link | None:
        """Read a link, also an expired one; None if any byte differs from a link made with one of the keys."""
        match = _URL.fullmatch(url)
        if match is None:
            return None
        signatures = [_signature(key, match["signed"]) for key in self._keys]
        if not any(hmac.compare_digest(each, match["signature"]) for each in signatures):
            return None
        return Link(match["path"], int(match["expires"]))


def _signature(key: bytes, signed: str) -> str:
    return hmac.new(key, signed.encode(), hashlib.sha256).hexdigest()
