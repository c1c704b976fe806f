"""Decoding JSON bodies into typed structs, with the errors that every protocol answers. Pure."""

from typing import Any, TypeVar

import msgspec

from dragoman.protocols.kit.errors import InvalidBody, InvalidJson, parse_validation_error

T = TypeVar("T")


def decode_body(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode a body with a typed decoder.

    Raises:
        InvalidJson: the body is not JSON, wherever the fault is.
        InvalidBody: it is JSON of another shape; `path` names the field at fault.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        decode_json(body)  # the typed decoder stops at the first wrong value; what follows may not even be JSON
        raise InvalidBody(*parse_validation_error(str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJson("the body is not JSON in UTF-8") from error


def decode_json(body: bytes) -> Any:  # noqa: ANN401  # any JSON value
    """Decode a body into plain values. Raises InvalidJson."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # bad UTF-8 and depth raise the last two
        raise InvalidJson("the body is not JSON in UTF-8") from error


def convert_value(value: object, kind: type[T], path: str = "") -> T:
    """Convert a decoded value to a struct.

    Args:
        value: plain JSON values.
        kind: the struct.
        path: where the value stands in the body.

    Raises:
        InvalidBody: it has another shape.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidBody(*parse_validation_error(str(error), path)) from error
