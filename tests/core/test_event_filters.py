"""A set of event types beside the code that handles them names the same types as that code.

Where most events concern a function only in part, a lookup in a set comes first, which is cheaper than patterns that
do not match. A type that only one of the two names would be ignored without an error.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

import pytest

import dragoman
from dragoman.core.events import Event
from tests.event_names import named_events

SRC = Path(dragoman.__file__).parent
EVENTS = {each.__name__ for each in get_args(Event)}


class Filter(NamedTuple):
    """A set of event types that a function looks up before its `match`."""

    place: str
    names: frozenset[str]
    function: ast.FunctionDef


def filters() -> Iterator[Filter]:
    """All functions with `if type(event) not in NAME: return …`."""
    for path in sorted(SRC.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "if type(event) not in" not in source:  # parsing takes long
            continue
        tree = ast.parse(source)
        sets = {
            node.targets[0].id: frozenset(each.id for each in ast.walk(node.value) if isinstance(each, ast.Name))
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for function in (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)):
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.If)
                    and isinstance(node.test, ast.Compare)
                    and isinstance(node.test.ops[0], ast.NotIn)
                    and isinstance(node.test.comparators[0], ast.Name)
                    and (names := sets.get(node.test.comparators[0].id, frozenset()) & EVENTS)
                ):
                    yield Filter(f"{path.relative_to(SRC)}:{function.name}", names, function)


FILTERS = {each.place: each for each in filters()}


def test_the_filters_are_found() -> None:
    assert FILTERS.keys() >= {"protocols/aap/translate.py:_event", "core/history.py:feed", "core/flat_calls.py:feed"}


@pytest.mark.parametrize("place", FILTERS)
def test_a_filter_lets_through_what_the_patterns_after_it_name(place: str) -> None:
    found = FILTERS[place]
    matched = [each for each in ast.walk(found.function) if isinstance(each, ast.Match)]
    assert {name for each in matched for name in named_events(each)} & EVENTS == found.names
