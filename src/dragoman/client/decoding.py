"""Decodes JSON from servers, which may send anything. Pure."""

from typing import TypeVar

import msgspec

from dragoman.client.errors import InvalidResponse
from dragoman.core.content import Json, JsonObject
from dragoman.core.surrogates import replace_lone_surrogates

T = TypeVar("T")

_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoder raises; the last two for malformed UTF-8 and deep nesting."""
_EXCERPT_BYTES = 80
_MAX_MESSAGE_BYTES = 500


def decode_json(body: bytes, kind: type[T], description: str) -> T:
    """Decode a body; `description` says what it should be, for the error. Lone surrogates are read as U+FFFD.

    Raises:
        InvalidResponse: it is something else.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except _DECODE_ERRORS as error:
        if (repaired := replace_lone_surrogates(body)) != body:
            return decode_json(repaired, kind, description)
        excerpt = body[:_EXCERPT_BYTES].decode("utf-8", "replace")
        raise InvalidResponse(f"expected {description}, got {excerpt!r}: {error}") from error


def decode_error_body(body: bytes, message_member: str) -> JsonObject:
    """Decode an error body. Anything but a JSON object or a page becomes the member `message_member`."""
    try:
        return msgspec.json.decode(body, type=dict[str, Json])
    except _DECODE_ERRORS:
        text = body[:_MAX_MESSAGE_BYTES].decode("utf-8", "replace").strip()
        return {} if text.startswith("<") else {message_member: text}


def error_message(*members: Json) -> str:
    """The first message among members of an error, which may be objects themselves; empty if there is none."""
    for member in members:
        match member:
            case {"message": found} | {"detail": found} | {"msg": found}:
                if text := error_message(found):
                    return text
            case str() | None:
                if member:
                    return member
            case _ if member:
                return msgspec.json.encode(member).decode()
    return ""


def decode_flag(body: bytes, name: str) -> bool:
    """Decode a boolean member of a response; True if the server does not send it."""
    try:
        return msgspec.json.decode(body, type=dict[str, Json]).get(name) is not False
    except _DECODE_ERRORS:
        return True


def parse_arguments(value: Json) -> JsonObject:
    """Decode a call's arguments, an object or its JSON text. Anything else goes unchanged under `arguments`."""
    if isinstance(value, dict):
        return value
    try:
        arguments = msgspec.json.decode(str(value or "{}"))
    except _DECODE_ERRORS:
        arguments = None
    return arguments if isinstance(arguments, dict) else {"arguments": value}


def parse_json(text: str) -> Json:
    """Decode JSON text. Anything else is returned as it is."""
    try:
        return msgspec.json.decode(text)
    except _DECODE_ERRORS:
        return text
