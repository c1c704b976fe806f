"""How Blade's REST bodies and queries are read. Pure: no server, no clock, no storage.

A breach is `Invalid` with the field at fault; the door says `FIELD: what is wrong` (specification, section 2).
Unknown fields are ignored, because clients of other releases send more.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from dragoman.core.refusals import Invalid

T = TypeVar("T")
_MESSAGE_AND_PATH = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_MISSING_FIELD = re.compile(r"Object missing required field `(\w+)`")


class RequestBody(msgspec.Struct, frozen=True, kw_only=True):
    """What clients send."""


def decode(kind: type[T], body: bytes) -> T:
    """Decode a JSON body.

    Raises:
        Invalid: it is no JSON, or not of that shape; `path` is the field at fault.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise to_invalid(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid("the body is not JSON") from error


def to_invalid(error: msgspec.ValidationError) -> Invalid:
    """A fault of a body's shape, with the place apart from the words."""
    found = _MESSAGE_AND_PATH.fullmatch(str(error))
    words, place = (found[1], found[2] or "") if found else (str(error), "")
    missing = _MISSING_FIELD.fullmatch(words)
    if missing:
        return Invalid("is required", path=f"{place}.{missing[1]}" if place else missing[1])
    return Invalid(words.replace("`", "").replace("Expected", "expected", 1), path=place)


def parse_int(query: Mapping[str, str], name: str, default: int, *, minimum: int, maximum: int) -> int:
    """A whole number of the query, such as `limit`. Raises Invalid when it is none, or out of bounds."""
    given = query.get(name, "")
    if not given:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 10 and minimum <= int(given) <= maximum):
        raise Invalid(f"must be a whole number from {minimum} to {maximum}", path=name)
    return int(given)


def check_text(value: str, name: str, max_length: int, *, min_length: int = 1) -> str:
    """A text of bounded length, in characters; one of which something is asked for must not be blank."""
    if not min_length <= len(value) <= max_length:
        raise Invalid(f"must have {min_length} to {max_length} characters", path=name)
    if min_length and not value.strip():
        raise Invalid("must not be blank", path=name)
    if any("\ud800" <= each <= "\udfff" for each in value):
        raise Invalid("must be whole Unicode characters", path=name)
    return value
