"""Parts of server-sent event frames that protocols share. Pure."""

import msgspec

from dragoman.core.json_memory import SMALL_TEXT_CHARS, JsonEncoder
from dragoman.core.refusals import ShuttingDown, StoreUnavailable

KEEP_ALIVE = b": keep-alive\n\n"
RESUMABLE = (ShuttingDown, StoreUnavailable)
"""The errors that end a stream although its run continues: the client may come back."""
_ENCODE = JsonEncoder().encode
_ENCODE_SMALL = msgspec.json.Encoder().encode


def escape_line_separators(data: bytes) -> bytes:
    r"""Escape U+0085, U+2028 and U+2029 in JSON: some clients take them for the end of a line, which breaks a frame."""
    if data.isascii():
        return data
    return (
        data.replace(b"\xc2\x85", b"\\u0085").replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    )


def encode_json(value: object, text: object = None) -> bytes:
    """Encode a value as JSON for a frame, in one line for every client.

    Args:
        value: the value.
        text: the only text in it that may be long, if there is just one. If it is short, encoding is faster.

    Raises:
        MemoryError: there is no memory for it.
    """
    if text is None:
        text = value
    is_small = type(text) is str and len(text) <= SMALL_TEXT_CHARS
    data = _ENCODE_SMALL(value) if is_small else _ENCODE(value)
    return data if data.isascii() else escape_line_separators(data)
