"""Storage for large values."""

from collections.abc import Sequence
from typing import Protocol


class BlobStore(Protocol):
    """Large values by name. A name consists of `/`-separated parts of letters, digits, `_`, `.` and `-`."""

    async def put(self, name: str, content: bytes) -> None:
        """Store a value durably, replacing any previous one."""

    async def get(self, name: str) -> bytes | None:
        """Return a value, or None if there is none of that name."""

    async def delete(self, name: str) -> None:
        """Remove a value and all values whose names start with this one and a `/`. Does nothing if there are none."""

    async def names(self, prefix: str | None = None) -> Sequence[str]:
        """List all names in order, or only those that start with a prefix and a `/`."""
