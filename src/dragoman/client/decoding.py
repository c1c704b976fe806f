"""JSON of a server, which may have sent anything. Pure."""

from typing import TypeVar

import msgspec

from dragoman.client.errors import Unreadable
from dragoman.core.content import Json, JsonObject

T = TypeVar("T")

_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoder raises; the last two stand for bad UTF-8 and for deep nesting."""
_SHOWN_BYTES = 80
_LONGEST_WORDS = 500


def decoded(body: bytes, kind: type[T], expected: str) -> T:
    """Decode a body; `expected` says in words what it should be. Raises Unreadable."""
    try:
        return msgspec.json.decode(body, type=kind)
    except _NO_JSON as error:
        shown = body[:_SHOWN_BYTES].decode("utf-8", "replace")
        raise Unreadable(f"{expected} was expected, got {shown!r}: {error}") from error


def refusal_in(body: bytes, words: str) -> JsonObject:
    """The body of an answer that says no; one that is no object of JSON counts as its member `words`."""
    try:
        return msgspec.json.decode(body, type=dict[str, Json])
    except _NO_JSON:
        return {words: body[:_LONGEST_WORDS].decode("utf-8", "replace").strip()}


def arguments_of(given: Json) -> JsonObject:
    """A call's arguments: an object, or its text. What is neither is kept as it came, under `arguments`."""
    if isinstance(given, dict):
        return given
    try:
        found = msgspec.json.decode(str(given or "{}"))
    except _NO_JSON:
        found = None
    return found if isinstance(found, dict) else {"arguments": given}
