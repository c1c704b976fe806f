"""Which member of a body has the wrong shape, what was expected there, and what came. Pure.

msgspec's messages do not name the key of a mapping (`env[...]`), the choices of a `Literal`, or the value that breaks a
limit. Only a body that was rejected is looked at again.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

from dragoman.protocols.kit.errors import FOR_EACH_KEY, parse_validation_error, path_steps

ANY_KEY = "[...]"
MAX_VALUE_CHARS = 80
MAX_CHOICES = 20
MAX_KEYS = 256
"""Of a mapping whose wrong key is looked for: the body is converted once for each halving."""
Json = Any


def describe_wrong_member(
    error: msgspec.ValidationError, value: Json, kind: object, prefix: str = ""
) -> tuple[str, str]:
    """What is wrong with a value, and the path of the member at fault.

    Args:
        error: what the decoder raised.
        value: the value as plain JSON.
        kind: the type that was expected.
        prefix: the path of the value within the body.
    """
    sentence, path = parse_validation_error(str(error))
    path = _with_keys(path, value, kind)
    found = _find(value, path_steps(path))
    if sentence.startswith("Invalid ") and (choices := _choices(kind, path_steps(path))):
        sentence += f"; expected {', '.join(choices[:-1])}{' or ' if len(choices) > 1 else ''}{choices[-1]}"
    elif sentence.endswith(FOR_EACH_KEY):
        pass  # the value at the path is the whole mapping
    elif " of length " in sentence and isinstance(found, str | list | dict):
        sentence += f", got {len(found)}"
    elif ", got " not in sentence and isinstance(found, str | int | float | None):
        shown = repr(found) if isinstance(found, str) else msgspec.json.encode(found).decode()
        sentence += f", got {shown if len(shown) <= MAX_VALUE_CHARS else shown[:MAX_VALUE_CHARS] + '…'}"
    return sentence, ".".join(filter(None, (prefix, path)))


def _with_keys(path: str, value: Json, kind: object) -> str:
    """The path with the key of each mapping in place of `[...]`."""
    while ANY_KEY in path:
        before, _, after = path.partition(ANY_KEY)
        steps = path_steps(before)
        mapping = _find(value, steps)
        if not isinstance(mapping, dict) or not _has_plain_keys(mapping):
            return path
        keys = list(mapping)
        while len(keys) > 1:  # the decoder stops at the first one that is wrong
            half = keys[: len(keys) // 2]
            smaller = _replace(value, steps, {key: mapping[key] for key in half})
            keys = half if _fails_at(smaller, kind, before + ANY_KEY) else keys[len(half) :]
        if not keys:
            return path
        path = f"{before}.{keys[0][:MAX_VALUE_CHARS]}{after}"
    return path


def _has_plain_keys(mapping: dict[str, Json]) -> bool:
    """Whether the mapping is small, and its keys cannot be mistaken for paths."""
    return len(mapping) <= MAX_KEYS and not any(set(key) & set(".[]") for key in mapping)


def _fails_at(value: Json, kind: object, path: str) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return parse_validation_error(str(error))[1].startswith(path)
    return False


def _find(value: Json, steps: Iterable[str | int]) -> Json:
    """The value at a path; UNSET if there is none."""
    for step in steps:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return msgspec.UNSET
    return value


def _replace(value: Json, steps: list[str | int], new: Json) -> Json:
    """The value with another one at a path, which exists."""
    if not steps:
        return new
    step, rest = steps[0], steps[1:]
    if isinstance(value, list):
        return [_replace(each, rest, new) if index == step else each for index, each in enumerate(value)]
    return {key: _replace(each, rest, new) if key == step else each for key, each in value.items()}


def _choices(kind: object, steps: list[str | int]) -> list[str]:
    """The values that a `Literal`, an enum or the tag of a union accepts at a path; none if there are too many."""
    types = list(_alternatives(inspect.type_info(kind)))
    parents: list[inspect.Type] = []
    for step in steps:
        parents, children = types, [child for each in types for child in _children(each, step)]
        types = [found for child in children for found in _alternatives(child)]
    found: list[object] = [value for each in types if isinstance(each, inspect.LiteralType) for value in each.values]
    found += [member.value for each in types if isinstance(each, inspect.EnumType) for member in each.cls]
    if steps:
        found += [each.tag for each in parents if isinstance(each, inspect.StructType) and each.tag_field == steps[-1]]
    named = [each for each in found if each != ""] or found  # an empty text means none
    return [repr(each) for each in named] if len(named) <= MAX_CHOICES else []


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _alternatives(each)
    else:
        yield kind


def _children(kind: inspect.Type, step: str | int) -> Iterator[inspect.Type]:
    match kind:
        case inspect.StructType(fields=fields):
            yield from (field.type for field in fields if field.encode_name == step)
        case inspect.DictType(value_type=value_type) if isinstance(step, str):
            yield value_type
        case inspect.ListType() | inspect.VarTupleType() if isinstance(step, int):
            yield kind.item_type
        case _:
            pass
