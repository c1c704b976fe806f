"""JSON of any size: raises MemoryError where msgspec would end the process. Pure.

msgspec 0.22 does not notice that an allocation failed for the growing result of `encode`, or for a long string in
`decode`. Writing into a `bytearray` is checked; it takes some more instructions, which is why frames of a few bytes are
encoded without.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

LARGE_BYTES = 64 * 1024
"""Smaller values do not ask the system for memory of their own."""
DECODED_SIZE = 8
"""How many times its size a value may take while it is decoded: four bytes for each character, twice."""


class JsonEncoder:
    """Encodes values of any size. The arguments are those of `msgspec.json.Encoder`."""

    __slots__ = ("_encode_into",)

    def __init__(
        self, *, enc_hook: Callable[[Any], Any] | None = None, order: Literal["deterministic", "sorted"] | None = None
    ) -> None:
        self._encode_into = msgspec.json.Encoder(enc_hook=enc_hook, order=order).encode_into

    def encode(self, value: object) -> bytes:
        """Encode a value. Raises MemoryError."""
        buffer = bytearray()
        self._encode_into(value, buffer)
        return bytes(buffer)


def require_memory_to_decode(size_bytes: int) -> None:
    """Check that a value of that size can be decoded. Raises MemoryError."""
    if size_bytes > LARGE_BYTES:
        bytes(DECODED_SIZE * size_bytes)  # released at once
