"""Decoding JSON bodies into typed structs, with the errors that every protocol answers. Pure.

Lone surrogates, which a JavaScript client sends when it cuts a string inside a character, are read as U+FFFD. A body
with such an escape fails to decode; only then is it repaired and decoded again.
"""

import math
import re
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import msgspec

from dragoman.core import surrogates
from dragoman.core.content import TOO_DEEP, Json, JsonObject, is_too_deep
from dragoman.core.refusals import Invalid, LimitExceeded
from dragoman.protocols.kit.errors import InvalidBody, InvalidJson
from dragoman.protocols.kit.wrong_members import describe_wrong_member

T = TypeVar("T")

MAX_VALUES = 250_000
"""The values that a body may have. 16 MB of `[]` decode to 5 million lists, in a second, and take 340 MB."""
MAX_QUOTES = 4 * MAX_VALUES
"""The quotes in that many members whose values are strings."""

_STRING_OR_NUMBER = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|-?[0-9][0-9.eE+-]*', re.DOTALL)
"""A string that does not end counts as one: each quote in it would be tried otherwise, in quadratic time."""
_MALFORMED = re.compile(r"JSON is malformed: (.*) \(byte ([0-9]+)\)")
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises; malformed UTF-8 and depth raise the last two."""


def decode_body(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode a body with a typed decoder.

    Raises:
        InvalidJson: the body is not JSON, wherever the fault is.
        InvalidBody: it is JSON of another shape; `path` names the field at fault.
        LimitExceeded: it has too many values.
    """
    check_number_of_values(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        value = decode_json(body)  # the typed decoder stops at the first wrong value; what follows may not be JSON
        raise InvalidBody(*describe_wrong_member(error, value, decoder.type)) from error
    except _DECODE_ERRORS as error:
        repaired = replace_lone_surrogates(body)
        if repaired == body:
            raise InvalidJson(_describe_fault(body, error)) from error
        return decode_body(decoder, repaired)


def decode_json(body: bytes) -> Any:  # noqa: ANN401  # any JSON value
    """Decode a body into plain values. Raises InvalidJson, and LimitExceeded for too many values."""
    check_number_of_values(body)
    try:
        return msgspec.json.decode(body)
    except _DECODE_ERRORS as error:
        repaired = replace_lone_surrogates(body)
        if repaired == body:
            raise InvalidJson(_describe_fault(body, error)) from error
        return decode_json(repaired)


def decode_json_object(body: bytes) -> JsonObject:
    """Decode a body that is a JSON object. Raises InvalidJson, InvalidBody or LimitExceeded."""
    value = decode_json(body)
    if not isinstance(value, dict):
        raise InvalidBody("expected a JSON object", "")
    return value


def check_number_of_values(body: bytes) -> None:
    """Check the number of values in a JSON text without decoding it. Raises LimitExceeded.

    What looks like a value inside a string does not count.
    """
    if len(body) <= 2 * MAX_VALUES or _count_separators(body) <= MAX_VALUES:
        return
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if body.count(b'"') > MAX_QUOTES or _count_separators(b"".join(body.split(b'"')[::2])) > MAX_VALUES:
        raise LimitExceeded("the number of values in the body", MAX_VALUES)


def _count_separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def check_depth(value: Json, path: str = "") -> None:
    """Check that a value of a body is not nested more deeply than `DEPTH_LIMIT`. Raises InvalidBody."""
    if is_too_deep(value):
        raise InvalidBody(TOO_DEEP, path)


def without_nulls(value: Json, *, opaque: Collection[str] = ()) -> Json:
    """A value without the members that are null, at any depth except in the members named `opaque`."""
    if isinstance(value, list):
        return [without_nulls(each, opaque=opaque) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: each if key in opaque else without_nulls(each, opaque=opaque)
        for key, each in value.items()
        if each is not None
    }


def replace_lone_surrogates(body: bytes) -> bytes:
    """Replace each escaped lone surrogate of a body by the escape of U+FFFD.

    Raises LimitExceeded: there are too many escapes; each takes a quarter of a microsecond.
    """
    if len(body) > 2 * MAX_VALUES and body.count(b"\\") > MAX_VALUES:
        raise LimitExceeded("the number of escapes in a body that is not JSON", MAX_VALUES)
    return surrogates.replace_lone_surrogates(body)


def _describe_fault(body: bytes, error: Exception) -> str:
    """Say what is wrong with a body that is not JSON, and where."""
    if isinstance(error, RecursionError):
        return "the body is nested too deeply"
    try:
        body.decode()
    except UnicodeDecodeError as invalid:
        return f"the body is not UTF-8 at byte {invalid.start}"
    if body.startswith(b"\xef\xbb\xbf"):
        return "the body starts with a byte order mark, which is not JSON"
    if isinstance(error, msgspec.ValidationError):
        for token in _STRING_OR_NUMBER.finditer(body):
            if token[0][:1] != b'"' and _is_out_of_range(token[0]):
                return f"the body has a number that is out of range at byte {token.start()}"
    if malformed := _MALFORMED.fullmatch(str(error)):
        return f"the body is not JSON: {malformed[1]} at byte {malformed[2]}"
    return "the body is empty" if not body.strip() else "the body is not JSON: it ends within a value"


def _is_out_of_range(number: bytes) -> bool:
    try:
        return math.isinf(float(number))
    except ValueError:
        return False


def parse_whole_number(text: str, lowest: int, highest: int) -> int | None:
    """Read a whole number of a query; None if it is not one, or is out of bounds."""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and lowest <= int(text) <= highest):
        return None
    return int(text)


def parse_query_number(query: Mapping[str, str], name: str, default: int, highest: int) -> int:
    """Read a parameter of a query that is a whole number from 1 on. Raises Invalid."""
    number = parse_whole_number(query.get(name, str(default)), 1, highest)
    if number is None:
        raise Invalid(f"{name} must be an integer from 1 to {highest}", path=name)
    return number


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
        raise InvalidBody(*describe_wrong_member(error, value, kind, path)) from error
