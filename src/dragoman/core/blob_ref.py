"""References to content outside the log: a stored message has one in place of a large `data:` URI. Pure.

    attachment:SHA-256;MEDIA/TYPE;BYTES

A reader can show the type and the size without loading the content.
"""

import hashlib
import re
from typing import NamedTuple

_NAME = re.compile(r"attachment:([0-9a-f]{64});([a-z0-9.+-]+/[a-z0-9.+-]+)?;([0-9]{1,15})")
_MEDIA_TYPE = re.compile(r"data:([a-z0-9.+-]+/[a-z0-9.+-]+)[;,]", re.IGNORECASE)


class BlobRef(NamedTuple):
    """The parts of a reference. `size_bytes` is the size of the decoded content."""

    digest: str
    media_type: str | None
    size_bytes: int

    def __str__(self) -> str:
        return f"attachment:{self.digest};{self.media_type or ''};{self.size_bytes}"


def blob_ref_for(uri: str) -> BlobRef:
    """The reference for a `data:` URI."""
    match = _MEDIA_TYPE.match(uri)
    head, _, body = uri.partition(",")
    size = len(body) * 3 // 4 - body[-2:].count("=") if head.endswith(";base64") else len(body)
    return BlobRef(hashlib.sha256(uri.encode()).hexdigest(), match[1].lower() if match else None, size)


def parse_blob_ref(url: str) -> BlobRef | None:
    """The reference in a block's URL; None if the URL does not match the form completely."""
    match = _NAME.fullmatch(url)
    return BlobRef(match[1], match[2], int(match[3])) if match else None
