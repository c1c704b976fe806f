"""JSON of a server, which may have sent anything. Pure."""

from typing import TypeVar

import msgspec

from dragoman.client.errors import InvalidResponse
from dragoman.core.content import Json, JsonObject

T = TypeVar("T")

_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoder raises; the last two stand for bad UTF-8 and for deep nesting."""
_EXCERPT_BYTES = 80
_MAX_MESSAGE_BYTES = 500


def decode_json(body: bytes, kind: type[T], description: str) -> T:
    """Decode a body; `expected` says in words what it should be. Raises Unreadable."""
    try:
        return msgspec.json.decode(body, type=kind)
    except _DECODE_ERRORS as error:
        shown = body[:_EXCERPT_BYTES].decode("utf-8", "replace")
        raise InvalidResponse(f"{description} was expected, got {shown!r}: {error}") from error


def decode_error_body(body: bytes, message_member: str) -> JsonObject:
    """The body of an answer that says no; one that is no object of JSON counts as its member `words`."""
    try:
        return msgspec.json.decode(body, type=dict[str, Json])
    except _DECODE_ERRORS:
        return {message_member: body[:_MAX_MESSAGE_BYTES].decode("utf-8", "replace").strip()}


def parse_arguments(value: Json) -> JsonObject:
    """A call's arguments: an object, or its text. What is neither is kept as it came, under `arguments`."""
    if isinstance(value, dict):
        return value
    try:
        found = msgspec.json.decode(str(value or "{}"))
    except _DECODE_ERRORS:
        found = None
    return found if isinstance(found, dict) else {"arguments": value}
