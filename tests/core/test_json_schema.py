"""Whether values fit JSON Schemas."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.json_schema import check_schema, parse_json, validation_error
from dragoman.core.refusals import Invalid

CITY = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "people": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
LONG = {"if": {"type": "string"}, "then": {"minLength": 2}, "else": False}
CYCLE = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}
HUGE = 10**400
TREE = {
    "$defs": {
        "node": {"type": "object", "properties": {"below": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}
    },
    "$ref": "#/$defs/node",
}


@pytest.mark.parametrize(
    ("schema", "value", "wrong"),
    [
        (CITY, {"name": "Wien", "people": 2}, None),
        (CITY, {"name": "Wien", "people": 2.0}, None),
        (CITY, {"people": 2}, "$: name is missing"),
        (CITY, {"name": "", "people": 2}, "$.name: the number of characters is out of bounds"),
        (CITY, {"name": "Wien", "people": -1}, "$.people: the number is out of bounds"),
        (CITY, {"name": "Wien", "x": 1}, "$.x: nothing is allowed here"),
        (CITY, [], "$: expected object"),
        ({"type": ["null", "boolean"]}, 0, "$: expected null or boolean"),
        ({"enum": [1, "a"]}, True, "$: expected one of the listed values"),
        ({"const": {"a": [1]}}, {"a": [1.0]}, None),
        ({"multipleOf": 0.5}, 0.75, "$: expected a multiple of 0.5"),
        ({"exclusiveMaximum": 3}, 3, "$: the number is out of bounds"),
        ({"items": {"type": "string"}, "maxItems": 2}, ["a", 1], "$[1]: expected string"),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a", 1], "$[1]: nothing is allowed here"),
        ({"uniqueItems": True}, [1, 1.0], "$[1]: duplicate item"),
        ({"uniqueItems": True}, [1, True], None),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "$.ab: the number of characters is out of bounds"),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            1,
            "$: it fits none of the alternatives ($: expected string)",
        ),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, 1, "$: it must fit exactly one of the alternatives"),
        ({"not": {"type": "string"}}, "a", "$: it is what it must not be"),
        (
            {"if": {"type": "string"}, "then": {"minLength": 2}, "else": False},
            "a",
            "$: the number of characters is out of bounds",
        ),
        (LONG, 1, "$: nothing is allowed here"),
        (TREE, {"below": [{"below": []}]}, None),
        (TREE, {"below": [{"below": [1]}]}, "$.below[0].below[0]: expected object"),
        ({"$ref": "#"}, 1, "$: nested too deeply"),
        ({"multipleOf": 3}, HUGE, "$: expected a multiple of 3"),
        ({"multipleOf": 0.1}, HUGE, "$: expected a multiple of 0.1"),
        ({"multipleOf": 2, "enum": [HUGE]}, HUGE, None),
        ({"const": {"b": -0.0, "a": "é"}}, {"a": "é", "b": 0}, None),
        ({"enum": ["1", None]}, 1, "$: expected one of the listed values"),
        ({"uniqueItems": True}, [{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}], "$[1]: duplicate item"),
        ({"x-note": "what nobody knows is no assertion", "title": "t"}, 1, None),
    ],
)
def test_a_value_matches_or_the_mismatch_is_described(schema: dict[str, Any], value: Any, wrong: str | None) -> None:
    check_schema(schema)
    assert validation_error(schema, value) == wrong


@pytest.mark.parametrize(
    ("schema", "value", "wrong"),
    [
        (CYCLE, 1, "$: nested too deeply"),
        ({"allOf": [{"required": ["a"] * 1000}] * 300}, {"a": 1}, "$.a: too much to look at"),
        ({"allOf": [{"uniqueItems": True}] * 1000}, list(range(1000)), "]: too much to look at"),
        ({"allOf": [{}] * 1000}, list(range(1000)), "]: too much to look at"),
    ],
)
def test_validation_ends_for_every_schema(schema: dict[str, Any], value: Any, wrong: str) -> None:
    check_schema(schema)
    assert str(validation_error(schema, value)).rstrip(")").endswith(wrong)


def test_a_long_list_of_values_is_searched_once() -> None:
    """Item by item this would be two hundred million comparisons."""
    words = {"items": {"enum": list(range(20_000))}, "uniqueItems": True}
    assert validation_error(words, list(range(10_000, 20_000))) is None


@pytest.mark.parametrize(
    "schema",
    [
        True,
        [],
        {"type": "text"},
        {"type": [1]},
        {"minLength": -1},
        {"minimum": "1"},
        {"multipleOf": 0},
        {"enum": 1},
        {"required": "name"},
        {"properties": []},
        {"properties": {"a": 1}},
        {"anyOf": {}},
        {"items": [1]},
        {"$ref": "https://elsewhere.example/schema"},
        {"$ref": "#/$defs/none"},
        {"pattern": "(a+)+$"},
        {"const": {"type": [1]}, "items": {"$ref": "#/const"}},
    ],
)
def test_an_invalid_or_unsupported_schema_is_refused(schema: Any) -> None:
    with pytest.raises(Invalid):
        check_schema(schema)


@pytest.mark.parametrize("text", ['{"a": 1}', '```json\n{"a": 1}\n```', '\n```\n{"a": 1}\n```\n'])
def test_the_json_of_an_answer_may_be_in_a_code_fence(text: str) -> None:
    assert parse_json(text) == {"a": 1}


@pytest.mark.parametrize("text", ["", "so: {}", "[" * 100_000, "```" + "\n" * 100_000 + "x"])
def test_an_answer_without_json_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_json(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(values, values)
def test_any_value_as_a_schema_is_refused_or_answers_for_any_other(schema: Any, value: Any) -> None:
    try:
        check_schema(schema)
    except Invalid:
        return
    assert isinstance(validation_error(schema, value), str | None)


@given(values)
def test_a_value_fits_the_schema_that_wants_exactly_it(value: Any) -> None:
    assert validation_error({"const": value, "enum": [value]}, json.loads(json.dumps(value))) is None
