"""Which keys and values an agent can keep with a session. Pure."""

import re
from collections.abc import Mapping

MAX_KEY_CHARS = 512
_BAD_CHARACTER = re.compile("[\0\ud800-\udfff\U0010ffff]")


def check_kept(writes: Mapping[str, bytes | None], max_bytes: int) -> int:
    """Check values to be kept, by key: keys have 1 to 512 characters, none of them NUL, a surrogate or the last one.

    Args:
        writes: the values; None removes one.
        max_bytes: the largest value.

    Returns:
        The size of the values in bytes.

    Raises:
        ValueError: a key or a value is not valid.
    """
    size = 0
    for key, value in writes.items():
        if not 1 <= len(key) <= MAX_KEY_CHARS or _BAD_CHARACTER.search(key):
            raise ValueError(f"a key must have 1 to {MAX_KEY_CHARS} characters of Unicode, not NUL: {key[:80]!r}")
        if value is None:
            continue
        if len(value) > max_bytes:
            raise ValueError(f"the value of {key[:80]!r} has {len(value)} bytes, and may have {max_bytes}")
        size += len(value)
    return size
