"""What a client learns about a body of the wrong shape: the path with its key, what was expected, and what came."""

from typing import Annotated, Literal

import msgspec
import pytest

from dragoman.protocols.kit.decoding import convert_value, decode_body
from dragoman.protocols.kit.errors import InvalidBody


class Apple(msgspec.Struct, tag="apple", tag_field="type"):
    colour: Literal["red", "green"]


class Pear(msgspec.Struct, tag="pear", tag_field="type"):
    weight: int = 0


class Order(msgspec.Struct):
    fruit: list[Apple | Pear] = []
    env: dict[str, str] = {}
    deep: dict[str, dict[str, int]] = {}
    mode: Literal["planning", "executing"] | None = None
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    name: Annotated[str, msgspec.Meta(max_length=5)] = ""
    labels: dict[Annotated[str, msgspec.Meta(min_length=1)], str] = {}
    origin: Literal[""] | None = None


DECODER = msgspec.json.Decoder(Order)


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        ('{"env": {"a": "1", "b": 2, "c": "3"}}', "env.b", "Expected `str`, got `int`"),
        ('{"deep": {"x": {"y": 1}, "z": {"v": 1, "w": "no"}}}', "deep.z.w", "Expected `int`, got `str`"),
        ('{"mode": "plan"}', "mode", "Invalid enum value 'plan'; expected 'executing' or 'planning'"),
        (
            '{"fruit": [{"type": "apple", "colour": "blue"}]}',
            "fruit[0].colour",
            "Invalid enum value 'blue'; expected 'green' or 'red'",
        ),
        ('{"fruit": [{"type": "plum"}]}', "fruit[0].type", "Invalid value 'plum'; expected 'apple' or 'pear'"),
        ('{"count": 0}', "count", "Expected `int` >= 1, got 0"),
        ('{"name": "abcdefgh"}', "name", "Expected `str` of length <= 5, got 8"),
        ('{"env": []}', "env", "Expected `object`, got `array`"),
        ('{"labels": {"": "1"}}', "labels", "Expected `str` of length >= 1 for each key"),
        ('{"origin": "here"}', "origin", "Invalid enum value 'here'; expected ''"),
        ("[]", "", "Expected `object`, got `array`"),
        ('{"fruit": [{"colour": "red"}]}', "fruit[0].type", "this field is required"),
    ],
)
def test_the_message_names_the_member_what_was_expected_and_what_came(body: str, path: str, message: str) -> None:
    with pytest.raises(InvalidBody) as wrong:
        decode_body(DECODER, body.encode())
    assert (wrong.value.path, wrong.value.message) == (path, message)
    with pytest.raises(InvalidBody) as wrong:
        convert_value(msgspec.json.decode(body), Order, "order")
    assert wrong.value.path == f"order.{path}".removesuffix(".")


def test_a_key_that_could_be_mistaken_for_a_path_and_a_large_mapping_are_not_named() -> None:
    for env in ({"a.b": 1}, {f"name{number}": 1 for number in range(1000)}):
        with pytest.raises(InvalidBody) as wrong:
            decode_body(DECODER, msgspec.json.encode({"env": env}))
        assert wrong.value.path == "env[...]"
