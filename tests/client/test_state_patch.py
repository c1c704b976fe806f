"""JSON Patches: what our servers write is read back, and other servers' operations are those of RFC 6902."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client import InvalidResponse
from dragoman.client.state_patch import apply_patch
from dragoman.protocols.agui.state_patch import delta_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a~/0", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_what_a_server_says_has_changed_gives_the_new_state(old: Any, new: Any) -> None:
    delta = delta_of(old, new)
    if delta is not None:
        assert apply_patch(old, delta) == new


@pytest.mark.parametrize(
    ("state", "operation", "expected"),
    [
        ({"foo": ["bar", "baz"]}, {"op": "add", "path": "/foo/1", "value": "qux"}, {"foo": ["bar", "qux", "baz"]}),
        ({"foo": ["a", "b"]}, {"op": "remove", "path": "/foo/0"}, {"foo": ["b"]}),
        ({"a": 1, "b": {}}, {"op": "move", "from": "/a", "path": "/b/c"}, {"b": {"c": 1}}),
        ({"a": [1]}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": [1], "b": [1]}),
        ({"a/b": 1, "m~n": 2}, {"op": "replace", "path": "/m~0n", "value": 3}, {"a/b": 1, "m~n": 3}),
        ({"a/b": 1}, {"op": "test", "path": "/a~1b", "value": 1}, {"a/b": 1}),
        (1, {"op": "replace", "path": "", "value": [2]}, [2]),
    ],
)
def test_operations_do_what_the_standard_says(state: Any, operation: dict[str, Any], expected: Any) -> None:
    """RFC 6902, section 4 and appendix A."""
    assert apply_patch(state, [operation]) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/missing"},
        {"op": "add", "path": "/list/5", "value": 1},
        {"op": "test", "path": "/list", "value": 1},
        {"op": "add", "path": "/list/-1", "value": 1},
        {"op": "test", "path": "/list/-1", "value": 2},
        {"op": "copy", "from": "/list/-2", "path": "/copied"},
        {"op": "add", "path": "/list/-1/inner", "value": 1},
        {"op": "remove", "path": "/list/00"},
        {"op": "remove", "path": "/list/+1"},
        {"op": "burn", "path": "/list"},
        {"path": "/list"},
    ],
)
def test_an_operation_that_does_not_fit_is_refused_and_changes_nothing(operation: dict[str, Any]) -> None:
    state = {"list": [1]}
    with pytest.raises(InvalidResponse, match="expected a JSON Patch"):
        apply_patch(state, [{"op": "add", "path": "/list/-", "value": 2}, operation])
    assert state == {"list": [1]}


def test_copies_cannot_make_a_state_as_large_as_they_like() -> None:
    doubled = [{"op": "copy", "from": "", "path": f"/{index}"} for index in range(40)]
    with pytest.raises(InvalidResponse, match="expected a JSON Patch that fits the state"):
        apply_patch({"text": "x" * 100_000}, doubled)
