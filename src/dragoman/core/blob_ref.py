"""Contents that are kept beside the log: what a stored message holds in place of a large `data:` URI. Pure.

    attachment:SHA-256;MEDIA/TYPE;BYTES

The name says what a reader wants to show without the content: what it is, and how large.
"""

import hashlib
import re
from typing import NamedTuple

_NAME = re.compile(r"attachment:([0-9a-f]{64});([a-z0-9.+-]+/[a-z0-9.+-]+)?;([0-9]{1,15})")
_MEDIA_TYPE = re.compile(r"data:([a-z0-9.+-]+/[a-z0-9.+-]+)[;,]", re.IGNORECASE)


class BlobRef(NamedTuple):
    """What a name says. `size_bytes` is that of the decoded content."""

    digest: str
    media_type: str | None
    size_bytes: int

    def __str__(self) -> str:
        return f"attachment:{self.digest};{self.media_type or ''};{self.size_bytes}"


def blob_ref_for(uri: str) -> BlobRef:
    """What a `data:` URI is kept as."""
    found = _MEDIA_TYPE.match(uri)
    head, _, body = uri.partition(",")
    size = len(body) * 3 // 4 - body[-2:].count("=") if head.endswith(";base64") else len(body)
    return BlobRef(hashlib.sha256(uri.encode()).hexdigest(), found[1].lower() if found else None, size)


def parse_blob_ref(url: str) -> BlobRef | None:
    """What a block's URL stands for, if it is a name as we make them. What only begins like one means nothing."""
    found = _NAME.fullmatch(url)
    return BlobRef(found[1], found[2], int(found[3])) if found else None
