"""Validation of JSON values against the part of JSON Schema that agents' answers need. Pure.

Supports the assertions of draft 2020-12, except for those that take a pattern or depend on other branches: a client's
regular expression could block the server. A schema that uses one of those is refused, never applied in part. Checks are
limited in number for the same reason: the schema comes from a client, the value from a model.
"""

import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec

from dragoman.core.content import DEPTH_LIMIT, TOO_DEEP, Json, JsonObject, is_too_deep
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
MAX_CHECKS = 30_000
"""Maximum number of checks for one value: a schema that refers to itself twice could take forever. This many block the
event loop, and so every user, for less than a second."""

SubschemaCheck = Callable[[Json, Json, str], str | None]
"""Checks the value at a path against a subschema. Returns how it does not match; None if it does."""


def _is_count(value: Json) -> bool:
    return TYPES["integer"](value) and value >= 0


def _are_types(value: Json) -> bool:
    named = value if isinstance(value, list) else [value]
    return all(isinstance(each, str) and each in TYPES for each in named)


def _are_names(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


_KEYWORDS: Mapping[str, tuple[Callable[[Json], bool], str]] = {
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
"""The expected form of a keyword's value."""
_SCHEMA_KEYWORDS = ("additionalProperties", "items", "propertyNames", "not", "if", "then", "else")
_SCHEMA_LIST_KEYWORDS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMA_MAP_KEYWORDS = ("properties", "$defs", "definitions")


def check_schema(schema: Json, path: str = "output_schema", *, unsupported: frozenset[str] = UNSUPPORTED) -> None:
    """Check that a value is a supported schema.

    Args:
        schema: the value.
        path: its location, for messages.
        unsupported: the keywords to refuse; validation ignores the `UNSUPPORTED` ones that are not among them.

    Raises:
        Invalid: it is not a schema, or it uses an unsupported keyword.
    """
    if not isinstance(schema, dict):
        raise Invalid("expected a JSON Schema, which is an object", path=path)
    if is_too_deep(schema):
        raise Invalid(TOO_DEEP, path=path)
    left: deque[tuple[str, Json]] = deque([(path, schema)])
    seen: set[int] = set()
    while left:  # not recursive: a chain of references may exceed the stack
        place, each = left.popleft()
        if id(each) not in seen:
            seen.add(id(each))
            left.extend(_check_subschema(each, schema, place, unsupported))


def _check_subschema(
    schema: Json, root: JsonObject, path: str, unsupported: frozenset[str]
) -> Iterator[tuple[str, Json]]:
    """Check one schema. Returns its subschemas and the one it refers to, with their paths. Raises Invalid."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise Invalid("expected an object or a boolean", path=path)
    if refused := unsupported & schema.keys():
        raise Invalid(f"{', '.join(sorted(refused))} is not supported", path=path)
    for name, (holds, what) in _KEYWORDS.items():
        if name in schema and not holds(schema[name]):
            raise Invalid(f"{name} is {what}", path=path)
    if "$ref" in schema:
        target = _resolve_ref(schema["$ref"], root)
        if target is None:
            raise Invalid("a $ref points into the schema itself", path=path)
        yield schema["$ref"][:80], target
    yield from ((f"{path}.{below}", each) for below, each in _subschemas(schema))


def _subschemas(schema: JsonObject) -> Iterator[tuple[str, Json]]:
    """The subschemas of a schema, with their paths."""
    yield from ((name, schema[name]) for name in _SCHEMA_KEYWORDS if name in schema)
    for name in _SCHEMA_LIST_KEYWORDS:
        yield from ((f"{name}[{index}]", each) for index, each in enumerate(schema.get(name, ())))
    for name in _SCHEMA_MAP_KEYWORDS:
        yield from ((f"{name}.{key[:40]}", each) for key, each in schema.get(name, {}).items())


def _resolve_ref(ref: Json, root: JsonObject) -> Json:
    """The target of a `$ref`; None if there is none."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    found: Json = root
    for part in ref[2:].split("/") if ref != "#" else ():
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found if isinstance(found, dict | bool) else None


def validation_error(schema: JsonObject, value: Json) -> str | None:
    """How a value does not match a checked schema, as text that a model can act on; None if it matches."""
    if is_too_deep(value):
        return "$: nested too deeply"
    return _Validator(schema).error(schema, value, "$", 0)


def parse_json(text: str) -> Json:
    """The JSON in a model's answer, fenced or not. Raises ValueError if it is not JSON."""
    head, _, rest = text.strip().partition("\n")
    body, _, foot = rest.rpartition("\n")
    is_fenced = head.rstrip() in ("```", "```json") and foot.strip() == "```"
    try:
        return msgspec.json.decode(body if is_fenced else text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


class _Validator:
    """Validates one value. Equal values have equal serialized forms, so comparing lists takes linear time."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._remaining_checks = MAX_CHECKS
        self._serialized: dict[int, str] = {}
        """Serialized forms of lists and objects."""
        self._enum_values: dict[int, frozenset[str]] = {}
        """The serialized values of each `enum`."""

    def error(self, schema: Json, value: Json, path: str, depth: int) -> str | None:
        self._remaining_checks -= 1
        if self._remaining_checks < 0:
            return f"{path}: too much to look at"
        if isinstance(schema, bool):
            return None if schema else f"{path}: nothing is allowed here"
        if depth > DEPTH_LIMIT:
            return f"{path}: nested too deeply"
        self._remaining_checks -= len(schema.get("required", ()))
        inner = partial(self.error, depth=depth + 1)
        for look in (_type_error, self._equality_error, _object_error, _array_error, _combinator_error):
            found = look(schema, value, path, inner)
            if found is not None:
                return found
        return self._ref_error(schema, value, path, depth)

    def _equality_error(self, schema: JsonObject, value: Json, path: str, _: SubschemaCheck) -> str | None:
        """Check `const`, `enum` and `uniqueItems`, where 1 equals 1.0, but not true."""
        if "enum" in schema and self._serialize(value) not in self._serialized_values(schema["enum"]):
            return f"{path}: expected one of the listed values"
        if "const" in schema and self._serialize(value) != self._serialize(schema["const"]):
            return f"{path}: expected one fixed value"
        if schema.get("uniqueItems") is True and isinstance(value, list):
            self._remaining_checks -= len(value)
            before: set[str] = set()
            for index, each in enumerate(value):
                if (text := self._serialize(each)) in before:
                    return f"{path}[{index}]: duplicate item"
                before.add(text)
        return None

    def _serialized_values(self, values: list[Json]) -> frozenset[str]:
        if id(values) not in self._enum_values:
            self._enum_values[id(values)] = frozenset(map(self._serialize, values))
        return self._enum_values[id(values)]

    def _serialize(self, value: Json) -> str:
        """A serialized form that no different value has."""
        if not isinstance(value, dict | list):
            return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)
        if id(value) not in self._serialized:
            self._serialized[id(value)] = self._serialize_container(value)
        return self._serialized[id(value)]

    def _serialize_container(self, value: JsonObject | list[Json]) -> str:
        if isinstance(value, list):
            return f"[{','.join(map(self._serialize, value))}]"
        members = sorted(f"{json.dumps(name)}:{self._serialize(each)}" for name, each in value.items())
        return f"{{{','.join(members)}}}"

    def _ref_error(self, schema: JsonObject, value: Json, path: str, depth: int) -> str | None:
        if "$ref" not in schema:
            return None
        return self.error(_resolve_ref(schema["$ref"], self._root), value, path, depth + 1)


def _type_error(schema: JsonObject, value: Json, path: str, _: SubschemaCheck) -> str | None:
    types = schema.get("type")
    if types is not None:
        named = types if isinstance(types, list) else [types]
        if not any(TYPES[each](value) for each in named):
            return f"{path}: expected {' or '.join(named)}"
    if TYPES["number"](value):
        return _number_error(schema, value, path)
    if isinstance(value, str):
        return _count_error(schema, len(value), path, "Length", "characters")
    return None


def _number_error(schema: JsonObject, value: float, path: str) -> str | None:
    if value < schema.get("minimum", -math.inf) or value > schema.get("maximum", math.inf):
        return f"{path}: the number is out of bounds"
    if value <= schema.get("exclusiveMinimum", -math.inf) or value >= schema.get("exclusiveMaximum", math.inf):
        return f"{path}: the number is out of bounds"
    step = schema.get("multipleOf")
    if step is not None and not _is_multiple(value, step):
        return f"{path}: expected a multiple of {step}"
    return None


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    try:
        return float(value / step).is_integer()
    except OverflowError:  # an integer larger than every float
        return False


def _count_error(schema: JsonObject, count: int, path: str, what: str, unit: str) -> str | None:
    least, most = schema.get(f"min{what}", 0), schema.get(f"max{what}", math.inf)
    return None if least <= count <= most else f"{path}: the number of {unit} is out of bounds"


def _object_error(schema: JsonObject, value: Json, path: str, inner: SubschemaCheck) -> str | None:
    if not isinstance(value, dict):
        return None
    for name in schema.get("required", ()):
        if name not in value:
            return f"{path}: {name} is missing"
    if (found := _count_error(schema, len(value), path, "Properties", "fields")) is not None:
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


def _array_error(schema: JsonObject, value: Json, path: str, inner: SubschemaCheck) -> str | None:
    if not isinstance(value, list):
        return None
    if (found := _count_error(schema, len(value), path, "Items", "items")) is not None:
        return found
    first = schema.get("prefixItems", [])
    for index, each in enumerate(value):
        below = first[index] if index < len(first) else schema.get("items", True)
        if (found := inner(below, each, f"{path}[{index}]")) is not None:
            return found
    return None


def _combinator_error(schema: JsonObject, value: Json, path: str, inner: SubschemaCheck) -> str | None:
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
