"""Applies a JSON Patch to a shared state. Pure.

Source: RFC 6902; a pointer is written as in RFC 6901.
"""

import re
from collections.abc import Iterable
from copy import deepcopy

import msgspec

from dragoman.client.errors import InvalidResponse
from dragoman.core.content import Json, JsonObject

_INDEX = re.compile(r"0|[1-9][0-9]*")
MAX_STATE_BYTES = 16 * 1024 * 1024
"""The size of a state, as JSON, beyond which nothing is copied: a short patch could double it again and again."""


def apply_patch(state: Json, operations: Iterable[JsonObject]) -> Json:
    """The state after all operations. Raises InvalidResponse if one of them does not fit, or a test fails."""
    try:
        holder: JsonObject = {"": deepcopy(state)}
    except RecursionError as error:
        raise InvalidResponse("expected a shared state that is nested less deeply") from error
    for operation in operations:
        try:
            _apply(holder, operation)
        except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise InvalidResponse(f"expected a JSON Patch that fits the state, got {operation!r:.200}") from error
    return holder[""]


def _apply(holder: JsonObject, operation: JsonObject) -> None:
    path = operation["path"]
    match operation["op"]:
        case "add":
            _add(holder, path, operation["value"])
        case "remove":
            _remove(holder, path)
        case "replace":
            _remove(holder, path)
            _add(holder, path, operation["value"])
        case "move":
            _add(holder, path, _remove(holder, operation["from"]))
        case "copy":
            _add(holder, path, deepcopy(_get(holder, operation["from"])))
            if len(msgspec.json.encode(holder[""])) > MAX_STATE_BYTES:
                raise ValueError("the state becomes too large")
        case "test":
            if _get(holder, path) != operation["value"]:
                raise ValueError("the test failed")
        case other:
            raise ValueError(f"no operation {other!r}")


def _parent(holder: Json, pointer: str) -> tuple[Json, str]:
    """The object or list that a pointer's last part is in, and that part."""
    *parts, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]
    for part in parts:
        holder = holder[_index(part, len(holder) - 1)] if isinstance(holder, list) else holder[part]
    return holder, last


def _get(holder: Json, pointer: str) -> Json:
    parent, name = _parent(holder, pointer)
    return parent[_index(name, len(parent) - 1)] if isinstance(parent, list) else parent[name]


def _add(holder: Json, pointer: str, value: Json) -> None:
    parent, name = _parent(holder, pointer)
    if isinstance(parent, list):
        parent.insert(len(parent) if name == "-" else _index(name, len(parent)), value)
    else:
        parent[name] = value


def _remove(holder: Json, pointer: str) -> Json:
    parent, name = _parent(holder, pointer)
    return parent.pop(_index(name, len(parent) - 1)) if isinstance(parent, list) else parent.pop(name)


def _index(name: str, highest: int) -> int:
    """The index that a part of a pointer names. Raises IndexError (RFC 6901, section 4)."""
    if not _INDEX.fullmatch(name) or len(name) > len(str(highest)) or int(name) > highest:
        raise IndexError(name)
    return int(name)
