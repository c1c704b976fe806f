"""Parts of server-sent event frames that protocols share. Pure."""

from dragoman.core.json_memory import JsonEncoder
from dragoman.core.refusals import ShuttingDown, StoreUnavailable, Unauthenticated

KEEP_ALIVE = b": keep-alive\n\n"
RESUMABLE = (ShuttingDown, StoreUnavailable, Unauthenticated)
"""The errors that end a stream although its run continues: the client may come back."""
_ENCODE = JsonEncoder().encode


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
    data = _ENCODE(value, value if text is None else text)
    return data if data.isascii() else escape_line_separators(data)
