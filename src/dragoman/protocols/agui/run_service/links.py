"""Signed links to uploaded objects: made, and read again only if every byte is as it was. Pure.

    BASE/attachments/content/BUCKET/PATH?expires=SECONDS&signature=HEX

The signature is an HMAC over all that stands before it: the address it was made for, the bucket, the path, which
begins with the owner's folder, and the time until which it holds.
Source: the run service's specification, A.7; rulings, 28.
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
    """A link that we made: to the object at `path`, until `expires`, in seconds since 1970."""

    path: str
    expires: int


class Links:
    """Makes and reads links with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def make(self, base: str, path: str, expires: int) -> str:
        """A link to an object.

        Args:
            base: where the run service is reached, without a slash at its end.
            path: the object's path in our bucket.
            expires: until when it holds, in whole seconds since 1970.
        """
        signed = f"{base}/{CONTENT_PATH}/{BUCKET}/{path}?expires={expires}"
        return f"{signed}&signature={self._signature(signed)}"

    def read(self, url: str) -> Link | None:
        """What a link is for, be it expired or not; None when it is not one that we made, to the last byte."""
        found = _URL.fullmatch(url)
        if found is None or not hmac.compare_digest(self._signature(found["signed"]), found["signature"]):
            return None
        return Link(found["path"], int(found["expires"]))

    def _signature(self, signed: str) -> str:
        return hmac.new(self._key, signed.encode(), hashlib.sha256).hexdigest()
