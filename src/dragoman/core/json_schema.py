"""Whether a JSON value fits a JSON Schema, as far as answers of agents need it. Pure.

The assertions of draft 2020-12, but for those that take a pattern or look at other branches: a regular expression of a
client's could keep the whole server busy. A schema that uses one of those is refused, never half obeyed. For the same
reason all looking has a bound: the schema is a client's, the value a model's.
"""

import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec

from dragoman.core.content import DEPTH_LIMIT, Json, JsonObject, is_too_deep
from dragoman.core.refusals import Invalid

TYPES: Mapping[str, Callable[[Json], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
UNSUPPORTED = frozenset(
    {
        "$dynamicRef",
        "contains",
        "dependentSchemas",
        "pattern",
        "patternProperties",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
WORK = 100_000
"""Looks that one value may take: a schema that refers to itself twice could take for ever."""

Inner = Callable[[Json, Json, str], str | None]
"""Looks further: what about a value at a path does not fit a schema inside of the one at hand."""


def _is_count(value: Json) -> bool:
    return TYPES["integer"](value) and value >= 0


def _are_types(value: Json) -> bool:
    named = value if isinstance(value, list) else [value]
    return all(isinstance(each, str) and each in TYPES for each in named)


def _are_names(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


_WORDS: Mapping[str, tuple[Callable[[Json], bool], str]] = {
    "type": (_are_types, f"one of {', '.join(TYPES)}, or a list of them"),
    "enum": (TYPES["array"], "a list"),
    "required": (_are_names, "a list of names"),
    **dict.fromkeys(
        ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"), (_is_count, "a count")
    ),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), (TYPES["number"], "a number")),
    "multipleOf": (lambda value: TYPES["number"](value) and value > 0, "a number greater than 0"),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), (TYPES["array"], "a list of schemas")),
    **dict.fromkeys(("properties", "$defs", "definitions"), (TYPES["object"], "an object of schemas")),
}
"""What stands under a word of a schema."""
_SCHEMAS = ("additionalProperties", "items", "propertyNames", "not", "if", "then", "else")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "$defs", "definitions")


def check(schema: Json, path: str = "output_schema") -> None:
    """Check that something is a schema that can be held.

    Raises:
        Invalid: it is not, or it asks for what is not supported.
    """
    if not isinstance(schema, dict):
        raise Invalid("a JSON Schema is an object", path=path)
    if is_too_deep(schema):
        raise Invalid(f"at most {DEPTH_LIMIT} levels were expected", path=path)
    left: deque[tuple[str, Json]] = deque([(path, schema)])
    seen: set[int] = set()
    while left:  # step by step: references may lead on for longer than there is stack
        place, each = left.popleft()
        if id(each) not in seen:
            seen.add(id(each))
            left.extend(_checked(each, schema, place))


def _checked(schema: Json, root: JsonObject, path: str) -> Iterator[tuple[str, Json]]:
    """Check one schema by itself; those in it, and the one it refers to, with their places. Raises Invalid."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise Invalid("a schema is an object or a boolean", path=path)
    if unsupported := UNSUPPORTED & schema.keys():
        raise Invalid(f"{', '.join(sorted(unsupported))} is not supported", path=path)
    for name, (holds, what) in _WORDS.items():
        if name in schema and not holds(schema[name]):
            raise Invalid(f"{name} is {what}", path=path)
    if "$ref" in schema:
        target = _target(schema["$ref"], root)
        if target is None:
            raise Invalid("a $ref points into the schema itself", path=path)
        yield schema["$ref"][:80], target
    yield from ((f"{path}.{below}", each) for below, each in _inside(schema))


def _inside(schema: JsonObject) -> Iterator[tuple[str, Json]]:
    """The schemas in a schema, with their places."""
    yield from ((name, schema[name]) for name in _SCHEMAS if name in schema)
    for name in _LISTS:
        yield from ((f"{name}[{place}]", each) for place, each in enumerate(schema.get(name, ())))
    for name in _MAPS:
        yield from ((f"{name}.{key[:40]}", each) for key, each in schema.get(name, {}).items())


def _target(ref: Json, root: JsonObject) -> Json:
    """What a `$ref` points to; None when there is nothing."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    found: Json = root
    for part in ref[2:].split("/") if ref != "#" else ():
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found if isinstance(found, dict | bool) else None


def fault(schema: JsonObject, value: Json) -> str | None:
    """What about a value does not fit a checked schema, in words that a model can act on; None when it fits."""
    if is_too_deep(value):
        return "$: nested too deeply"
    return _Looking(schema).fault(schema, value, "$", 0)


def json_in(text: str) -> Json:
    """The JSON that a model's answer holds, fenced or not. Raises ValueError when it is none."""
    head, _, rest = text.strip().partition("\n")
    body, _, foot = rest.rpartition("\n")
    is_fenced = head.rstrip() in ("```", "```json") and foot.strip() == "```"
    try:
        return msgspec.json.decode(body if is_fenced else text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


class _Looking:
    """Looks at one value. Equal values have equal texts, so that no list is gone through for each of its neighbours."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._left = WORK
        self._texts: dict[int, str] = {}
        """Of lists and objects that were written before."""
        self._listed: dict[int, frozenset[str]] = {}
        """The texts of an `enum`'s values."""

    def fault(self, schema: Json, value: Json, path: str, depth: int) -> str | None:
        self._left -= 1
        if self._left < 0:
            return f"{path}: too much to look at"
        if isinstance(schema, bool):
            return None if schema else f"{path}: nothing is allowed here"
        if depth > DEPTH_LIMIT:
            return f"{path}: nested too deeply"
        self._left -= len(schema.get("required", ()))
        inner = partial(self.fault, depth=depth + 1)
        for look in (_simple, self._same, _of_object, _of_array, _combined):
            found = look(schema, value, path, inner)
            if found is not None:
                return found
        return self._named(schema, value, path, depth)

    def _same(self, schema: JsonObject, value: Json, path: str, _: Inner) -> str | None:
        """What asks whether values are the same JSON: 1 is 1.0, but not true."""
        if "enum" in schema and self._text(value) not in self._values(schema["enum"]):
            return f"{path}: one of the listed values was expected"
        if "const" in schema and self._text(value) != self._text(schema["const"]):
            return f"{path}: one fixed value was expected"
        if schema.get("uniqueItems") is True and isinstance(value, list):
            self._left -= len(value)
            before: set[str] = set()
            for place, each in enumerate(value):
                if (text := self._text(each)) in before:
                    return f"{path}[{place}]: it stands there twice"
                before.add(text)
        return None

    def _values(self, values: list[Json]) -> frozenset[str]:
        if id(values) not in self._listed:
            self._listed[id(values)] = frozenset(map(self._text, values))
        return self._listed[id(values)]

    def _text(self, value: Json) -> str:
        """A value as a text that no other value has."""
        if not isinstance(value, dict | list):
            return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)
        if id(value) not in self._texts:
            self._texts[id(value)] = self._written(value)
        return self._texts[id(value)]

    def _written(self, value: JsonObject | list[Json]) -> str:
        if isinstance(value, list):
            return f"[{','.join(map(self._text, value))}]"
        members = sorted(f"{json.dumps(name)}:{self._text(each)}" for name, each in value.items())
        return f"{{{','.join(members)}}}"

    def _named(self, schema: JsonObject, value: Json, path: str, depth: int) -> str | None:
        if "$ref" not in schema:
            return None
        return self.fault(_target(schema["$ref"], self._root), value, path, depth + 1)


def _simple(schema: JsonObject, value: Json, path: str, _: Inner) -> str | None:
    types = schema.get("type")
    if types is not None:
        named = types if isinstance(types, list) else [types]
        if not any(TYPES[each](value) for each in named):
            return f"{path}: {' or '.join(named)} was expected"
    if TYPES["number"](value):
        return _of_number(schema, value, path)
    if isinstance(value, str):
        return _counted(schema, len(value), path, "Length", "characters")
    return None


def _of_number(schema: JsonObject, value: float, path: str) -> str | None:
    if value < schema.get("minimum", -math.inf) or value > schema.get("maximum", math.inf):
        return f"{path}: the number is out of bounds"
    if value <= schema.get("exclusiveMinimum", -math.inf) or value >= schema.get("exclusiveMaximum", math.inf):
        return f"{path}: the number is out of bounds"
    step = schema.get("multipleOf")
    if step is not None and not _is_multiple(value, step):
        return f"{path}: a multiple of {step} was expected"
    return None


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    try:
        return float(value / step).is_integer()
    except OverflowError:  # a whole number beyond every float
        return False


def _counted(schema: JsonObject, count: int, path: str, what: str, words: str) -> str | None:
    least, most = schema.get(f"min{what}", 0), schema.get(f"max{what}", math.inf)
    return None if least <= count <= most else f"{path}: the number of {words} is out of bounds"


def _of_object(schema: JsonObject, value: Json, path: str, inner: Inner) -> str | None:
    if not isinstance(value, dict):
        return None
    for name in schema.get("required", ()):
        if name not in value:
            return f"{path}: {name} is missing"
    if (found := _counted(schema, len(value), path, "Properties", "fields")) is not None:
        return found
    properties = schema.get("properties", {})
    rest = schema.get("additionalProperties", True)
    for name, each in value.items():
        below = f"{path}.{name[:80]}"
        if "propertyNames" in schema and (found := inner(schema["propertyNames"], name, below)) is not None:
            return found
        if (found := inner(properties.get(name, rest), each, below)) is not None:
            return found
    return None


def _of_array(schema: JsonObject, value: Json, path: str, inner: Inner) -> str | None:
    if not isinstance(value, list):
        return None
    if (found := _counted(schema, len(value), path, "Items", "items")) is not None:
        return found
    first = schema.get("prefixItems", [])
    for place, each in enumerate(value):
        below = first[place] if place < len(first) else schema.get("items", True)
        if (found := inner(below, each, f"{path}[{place}]")) is not None:
            return found
    return None


def _combined(schema: JsonObject, value: Json, path: str, inner: Inner) -> str | None:
    for each in schema.get("allOf", ()):
        if (found := inner(each, value, path)) is not None:
            return found
    faults = [inner(each, value, path) for each in schema.get("anyOf", ())]
    if faults and None not in faults:
        return f"{path}: it fits none of the alternatives ({faults[0]})"
    if "oneOf" in schema and [inner(each, value, path) for each in schema["oneOf"]].count(None) != 1:
        return f"{path}: it must fit exactly one of the alternatives"
    if "not" in schema and inner(schema["not"], value, path) is None:
        return f"{path}: it is what it must not be"
    if "if" in schema:
        branch = "then" if inner(schema["if"], value, path) is None else "else"
        return inner(schema.get(branch, True), value, path)
    return None
