"""UI schema 2.0: what comes out holds to the schema, or is None."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.core.ui_schema import MAX_LEVELS, MAX_NODES, TRUNCATION_CAPTION, check_card, compile_card

Json = Any
CAPTION = {"type": "text", "content": TRUNCATION_CAPTION, "role": "caption"}


def schema(root: Json, **fields: Json) -> Json:
    return {"version": "2.0", "locale": "en", "status": "info", "theme": "default", **fields, "root": root}


def texts(count: int) -> list[Json]:
    return [{"type": "text", "content": str(place)} for place in range(count)]


NODES_OF_ALL_KINDS: list[Json] = [
    {"type": "stack", "direction": "horizontal", "gap": "lg", "align": "center", "appearance": "card", "children": []},
    {"type": "grid", "columns": 12, "gap": "none", "appearance": "plain", "children": [{"type": "divider"}]},
    {"type": "text", "content": "a", "format": "markdown", "role": "code", "id": "n-1", "status": "error"},
    {"type": "icon", "source": "icon", "value": "calendar"},
    {"type": "icon", "source": "emoji", "value": "🧑‍🚀", "label": "astronaut"},
    {"type": "icon", "source": "url", "value": "https://example.org/i.svg"},
    {"type": "badge", "label": "new", "status": "success"},
    {"type": "image", "url": "https://example.org/x.png", "alt": "", "width": 10, "height": 1},
    {"type": "image", "url": "data:image/png;base64,aGk=", "alt": "a"},
    {"type": "kv", "items": [{"label": "a", "value": "b", "copyable": True}, {"label": "c", "value": "d"}]},
    {"type": "divider"},
    *(
        {"type": "button", "label": "go", "action": action}
        for action in (
            {"type": "navigation", "path": "/x", "params": {"a": 1}},
            {"type": "url", "url": "https://example.org"},
            {"type": "event", "name": "e", "payload": None},
            {"type": "event", "name": "e"},
            {"type": "tool", "tool": "add", "args": {}},
            {"type": "copy", "text": ""},
            {"type": "payload", "payload": [1]},
        )
    ),
    {"type": "button", "label": "go", "style": "danger", "disabled": True, "action": {"type": "copy", "text": "x"}},
]


@pytest.mark.parametrize("place", range(len(NODES_OF_ALL_KINDS)))
def test_a_valid_tree_is_returned_unchanged(place: int) -> None:
    root = {"type": "stack", "children": [NODES_OF_ALL_KINDS[place]]}
    card = schema(root, status="warning", theme="dark", meta={"requestId": "r", "userId": "u"})
    assert compile_card(card) == card


BAD_NODES: list[Json] = [
    {"type": "stack"},
    {"type": "stack", "children": {}},
    {"type": "stack", "children": [1]},
    {"type": "stack", "children": [{"type": "badge"}]},
    {"type": "text"},
    {"type": "icon", "source": "url", "value": "http://example.org/i.svg"},
    {"type": "icon", "source": "file", "value": "x"},
    {"type": "image", "url": "javascript:x", "alt": ""},
    {"type": "kv", "items": [{"label": "a"}]},
    {"type": "kv", "items": {}},
    {"type": ["text"]},
    {"type": "mystery"},
    {},
    None,
    1,
    [],
    "text",
]


@pytest.mark.parametrize("place", range(len(BAD_NODES)))
def test_a_tree_of_which_nothing_is_valid_is_dropped_with_the_reason(place: int) -> None:
    tree, faults = check_card(schema(BAD_NODES[place]))
    assert tree is None
    assert faults


@pytest.mark.parametrize(
    ("node", "kept", "fault"),
    [
        (
            {"type": "image", "url": "https://example.org/x.png"},
            {"type": "image", "url": "https://example.org/x.png", "alt": ""},
            "alt: missing",
        ),
        (
            {"type": "image", "url": "https://example.org/x.png", "alt": "", "width": 0},
            {"type": "image", "url": "https://example.org/x.png", "alt": ""},
            "width: expected int >= 1",
        ),
        (
            {"type": "kv", "items": [{"label": "a", "value": 3}, {"label": "b"}, 5, {"label": 1.5, "value": True}]},
            {"type": "kv", "items": [{"label": "a", "value": "3"}, {"label": "1.5", "value": "true"}]},
            "items[0].value: expected a string",
        ),
        ({"type": "text", "content": 1}, {"type": "text", "content": "1"}, "content: expected a string"),
        (
            {"type": "text", "content": "a", "role": "huge"},
            {"type": "text", "content": "a"},
            "role: invalid enum value",
        ),
        ({"type": "badge", "label": "a", "status": "fine"}, {"type": "badge", "label": "a"}, "status: invalid enum"),
        ({"type": "button", "label": "a"}, {"type": "text", "content": "a"}, "action: object missing required field"),
        (
            {"type": "button", "label": "a", "action": {"type": "url", "url": "http://example.org"}},
            {"type": "text", "content": "a"},
            "action: expected str matching regex",
        ),
        (
            {"type": "button", "label": "a", "action": {"type": "run", "tool": "x"}},
            {"type": "text", "content": "a"},
            "action: invalid value",
        ),
        (
            {"type": "grid", "columns": 13, "gap": None, "children": [{"type": "divider"}]},
            {"type": "grid", "children": [{"type": "divider"}]},
            "columns: expected int <= 12",
        ),
    ],
)
def test_one_wrong_member_leaves_the_rest_of_the_card(node: Json, kept: Json, fault: str) -> None:
    title = {"type": "text", "content": "title", "role": "title"}
    tree, faults = check_card(schema({"type": "stack", "children": [title, node]}))
    assert tree == schema({"type": "stack", "children": [title, kept]})
    assert faults[0].startswith(f"root.children[1].{fault}")


def test_a_wrong_member_of_the_frame_is_removed_but_another_version_is_not_read() -> None:
    root = {"type": "stack", "children": [{"type": "divider"}]}
    for fields in ({"status": "fine"}, {"theme": "pink"}, {"meta": {"requestId": 1}}, {"locale": 5}):
        tree, faults = check_card({**schema(root), **fields})
        assert tree == schema(root)
        assert faults[0].startswith(next(iter(fields)))
    assert check_card(schema(root, version="1.0")) == (None, ["version: invalid enum value '1.0'"])
    assert compile_card(schema(root, version=2)) is None


def test_the_root_is_a_layout_node() -> None:
    assert compile_card({"type": "divider"}) == schema({"type": "stack", "children": [{"type": "divider"}]})


def test_what_the_agent_leaves_out_is_filled_in() -> None:
    root = {"type": "stack", "children": [{"type": "divider"}]}
    assert compile_card(root, "de") == schema(root, locale="de")
    assert compile_card({"root": root}) == schema(root)
    assert compile_card({"locale": "fr", "root": root}, "de") == schema(root, locale="fr")


def test_unknown_members_and_unknown_nodes_are_left_out() -> None:
    root = {
        "type": "stack",
        "colour": "red",
        "children": [
            {"type": "chart", "label": "Sales"},
            {"type": "video", "content": "a film", "label": "x"},
            {"type": "gap"},
            {"type": "badge", "label": "b", "shape": "round"},
        ],
    }
    assert compile_card(schema(root, extra=1)) == schema(
        {
            "type": "stack",
            "children": [
                {"type": "text", "content": "Sales"},
                {"type": "text", "content": "a film"},
                {"type": "badge", "label": "b"},
            ],
        }
    )


def nested(levels: int) -> Json:
    node: Json = {"type": "text", "content": "leaf"}
    for _ in range(levels - 1):
        node = {"type": "stack", "children": [node]}
    return node


def test_eight_levels_fit_and_the_ninth_is_a_caption() -> None:
    assert compile_card(nested(MAX_LEVELS)) == schema(nested(MAX_LEVELS))
    deep = json.dumps(compile_card(nested(MAX_LEVELS + 1)))
    assert deep == json.dumps(schema(nested(MAX_LEVELS))).replace(
        json.dumps({"type": "text", "content": "leaf"}), json.dumps(CAPTION)
    )
    assert json.dumps(compile_card(nested(90))) == deep


def test_two_hundred_nodes_fit_and_more_are_cut_with_one_caption() -> None:
    fits = {"type": "stack", "children": texts(MAX_NODES - 1)}
    assert compile_card(fits) == schema(fits)
    much = {"type": "stack", "children": texts(MAX_NODES)}
    assert compile_card(much) == schema({"type": "stack", "children": [*texts(MAX_NODES - 2), CAPTION]})
    inner = {"type": "stack", "children": texts(150)}
    cut = compile_card({"type": "grid", "children": [inner, inner, inner]})
    assert cut is not None
    assert json.dumps(cut).count(TRUNCATION_CAPTION) == 1
    assert json.dumps(cut).count('"type"') == MAX_NODES


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3) | st.sampled_from(NODES_OF_ALL_KINDS + BAD_NODES),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["type", "children", "content", "root", "action"]), inner, max_size=4)
            | st.builds(lambda children: {"type": "stack", "children": children}, st.lists(inner, max_size=4))
        ),
        max_leaves=30,
    )
)
@settings(max_examples=400, deadline=None)
def test_anything_gives_a_tree_that_compiles_to_itself_or_nothing(card: Json) -> None:
    made = compile_card(card)
    if made is not None:
        assert compile_card(made) == made
        assert json.dumps(made).count('"type"') <= 2 * MAX_NODES  # actions have types too
