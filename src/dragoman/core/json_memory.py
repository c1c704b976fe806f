"""JSON of any size: raises MemoryError where msgspec would end the process. Pure.

msgspec 0.22 does not notice that an allocation failed for the growing result of `encode`, or for a long string in
`decode`. Writing into a `bytearray` is checked. That takes 0.7 µs more, so pieces of text are encoded without.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

LARGE_BYTES = 64 * 1024
"""Smaller values do not ask the system for memory of their own."""
SMALL_TEXT_CHARS = 8 * 1024
"""A text whose JSON, with six bytes for each character, is no large value."""
DECODED_SIZE = 8
"""How many times its size a value may take while it is decoded: four bytes for each character, twice."""


class JsonEncoder:
    """Encodes values of any size. The arguments are those of `msgspec.json.Encoder`."""

    __slots__ = ("_encode_into", "_encode_small")

    def __init__(
        self, *, enc_hook: Callable[[Any], Any] | None = None, order: Literal["deterministic", "sorted"] | None = None
    ) -> None:
        encoder = msgspec.json.Encoder(enc_hook=enc_hook, order=order)
        self._encode_into, self._encode_small = encoder.encode_into, encoder.encode

    def encode(self, value: object, text: object = None) -> bytes:
        """Encode a value.

        Args:
            value: the value.
            text: the only text in it that may be long, if there is just one. If it is short, encoding is faster.

        Raises:
            MemoryError: there is no memory for it.
        """
        if type(text) is str and len(text) <= SMALL_TEXT_CHARS:
            return self._encode_small(value)
        buffer = bytearray()
        self._encode_into(value, buffer)
        return bytes(buffer)


def require_memory_to_decode(size_bytes: int) -> None:
    """Check that a value of that size can be decoded. Raises MemoryError."""
    if size_bytes > LARGE_BYTES:
        bytes(DECODED_SIZE * size_bytes)  # released at once
