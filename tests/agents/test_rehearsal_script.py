"""Parsing and validation of the scripts of the rehearsal agent."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.rehearsal.script import MAX_BURST_DELTAS, is_script, parse_fork_script, parse_script
from dragoman.agents.rehearsal.steps import BlockStep, End, Fail, Recall, RequestedCall, Script, Segment
from dragoman.core.agent import AgentError
from dragoman.core.content import Usage

Json = Any


def script(*steps: Json) -> str:
    return json.dumps({"script": steps})


def complaint(text: str) -> str:
    with pytest.raises(AgentError) as raised:
        parse_script(text)
    assert raised.value.code == "bad_script"
    return raised.value.message


def echo(text: str) -> Script:
    return (Segment((BlockStep("text", f"You said: {text}"),)),)


def shown_call(name: str, **arguments: Json) -> End:
    return End((RequestedCall(name, arguments),))


WHICH = {
    "question": "Which environment?",
    "header": "Deploy",
    "options": [{"label": "staging"}, {"label": "production"}],
}


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("hello", [{"say": "Hello! I am the rehearsal agent."}]),
        ("  HeLLo\n", [{"say": "Hello! I am the rehearsal agent."}]),
        ("add 1 and 2", [{"call": {"name": "add", "input": {"a": 1, "b": 2}}}, {"say": "The sum is {result}."}]),
        (" ADD -1 And +20 ", [{"call": {"name": "add", "input": {"a": -1, "b": 20}}}, {"say": "The sum is {result}."}]),
        ("ask me", [{"ask": {"questions": [WHICH]}}, {"say": "You chose {answer}."}]),
        ("Think", [{"think": "Let me think."}, {"say": "Done thinking."}]),
        ("recall", [{"recall": "user"}]),
    ],
)
def test_some_texts_are_built_in_scripts(text: str, steps: list[Json]) -> None:
    assert parse_script(text) == parse_script(script(*steps))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " Grüße, 🧑‍🚀 \n",
        "hello there",
        "add 1 and two",
        "add 1.5 and 2",
        "{",
        "{}",
        '{"a": 1}',
        '{"steps": []}',
        '{"a": 1, "script": 5}',
        '[{"script": []}]',
        '"script"',
        "{result}",
        "\ud800",
        '{"a": "\ud800"}',
    ],
)
def test_any_other_text_is_echoed(text: str) -> None:
    assert parse_script(text) == echo(text)
    assert not is_script(text)


@given(st.text())
def test_any_text_can_be_parsed(text: str) -> None:
    assert parse_script(f"~{text}") == echo(f"~{text}")


@pytest.mark.parametrize(
    "text", ['{"script": []}', '{"a": {"b": 1}, "script": [{"say": "x"}]}', ' \n{"script":[{"say":"x"}],"to":2} ']
)
def test_a_json_object_with_an_array_script_is_a_script_even_with_other_members(text: str) -> None:
    assert is_script(text)
    assert parse_script(text) in ((Segment(()),), (Segment((BlockStep("text", "x"),)),))


def test_a_script_is_divided_into_model_steps_and_ends_at_a_stop() -> None:
    text = script(
        {"think": ["a", "b"]},
        {"calls": [{"name": "x", "input": {"n": 1}}, {"name": "y", "input": {}}]},
        {"step": True},
        {"recall": "system"},
        {"stop": "refusal"},
        {"say": "never"},
        {"call": {"name": "never", "input": {}}},
    )
    assert parse_script(text) == (
        Segment(
            (BlockStep("thinking", ("a", "b")),),
            End((RequestedCall("x", {"n": 1}), RequestedCall("y", {})), is_many=True),
        ),
        Segment((), End()),
        Segment((Recall("system"),), stop="refusal"),
    )
    failing = script({"call": {"name": "x", "input": {}}}, {"fail": {"code": "c", "message": "m"}}, {"step": True})
    assert parse_script(failing) == (Segment((), shown_call("x")), Segment((Fail("c", "m"),)))


@pytest.mark.parametrize(
    ("step", "end"),
    [
        ({"call": {"name": "x", "input": {"a": [None]}}}, shown_call("x", a=[None])),
        (
            {"tool": {"name": "x", "input": {"a": 1}, "output": {"b": 2}}},
            End((RequestedCall("x", {"a": 1}, {"b": 2}),)),
        ),
        ({"tool": {"name": "x", "input": {}, "output": None}}, End((RequestedCall("x", {}, None),))),
        (
            {"mcp": {"server": "maps", "name": "x", "input": {}, "output": "o"}},
            End((RequestedCall("x", {}, "o", "maps"),)),
        ),
        ({"ask": {"questions": [WHICH]}}, shown_call("AskUserQuestion", questions=[WHICH])),
        (
            {"fork": {"description": "d", "script": [{"say": "x", "every_ms": 5}]}},
            shown_call("Agent", description="d", script=[{"say": "x", "every_ms": 5}]),
        ),
        ({"step": True}, End()),
    ],
)
def test_steps_that_end_a_model_step(step: Json, end: End) -> None:
    assert parse_script(script(step)) == (Segment((), end), Segment(()))


def test_a_usage_may_have_only_one_count() -> None:
    assert parse_script(script({"usage": {"output_tokens": 3}})) == (Segment((Usage(0, 3),)),)


BAD = [
    ({"dance": 1}, "there is no step `dance`"),
    ({}, "one effect"),
    ({"size": 3}, "one effect"),
    ({"say": "a", "think": "b"}, "`say` and `think`"),
    ({"say": "a", "colour": "b"}, "`say` has no field `colour`"),
    ({"emit": {"count": 1, "text": ""}, "every_ms": 2}, "`emit` has no field `every_ms`"),
    ({"wait_ms": 1, "size": 2}, "`wait_ms` has no field `size`"),
    ({"say": 1}, "say"),
    ({"say": ["a", 1]}, "say"),
    ({"say": None}, "say"),
    ({"say": "a", "size": 0}, "size"),
    ({"say": "a", "size": 1.5}, "size"),
    ({"say": "a", "every_ms": -1}, "every_ms"),
    ({"think": {}}, "think"),
    ({"emit": {"count": -1, "text": "x"}}, "emit.count"),
    ({"emit": {"text": "x"}}, "count"),
    ({"emit": {"count": 1, "text": "x", "size": 1}}, "size"),
    ({"burst": -1}, "burst"),
    ({"burst": MAX_BURST_DELTAS + 1}, "burst"),
    ({"burst": True}, "burst"),
    ({"image": {}}, "image"),
    ({"data": "x"}, "data"),
    ({"call": "add"}, "call"),
    ({"call": {"input": {}}}, "name"),
    ({"call": {"name": "x", "input": []}}, "call.input"),
    ({"call": {"name": "x", "inputs": {}}}, "inputs"),
    ({"calls": {"name": "x", "input": {}}}, "calls"),
    ({"tool": {"input": {}}}, "name"),
    ({"mcp": {"name": "x", "input": {}, "output": 1}}, "server"),
    ({"ask": "x"}, "ask"),
    ({"ask": {}}, "questions"),
    ({"ask": {"questions": [{"options": []}]}}, "question"),
    ({"ask": {"questions": [{"question": "x", "options": ["a"]}]}}, "options"),
    ({"fork": {"script": []}}, "description"),
    ({"fork": {"description": "d", "script": {}}}, "fork.script"),
    ({"fork": {"description": "d", "script": [{"step": True}, {"dance": 1}]}}, "`fork`: step 2: there is no step"),
    ({"plan": {"status": "great", "steps": []}}, "plan.status"),
    ({"plan": {"status": "done", "steps": [{"title": "t"}]}}, "status"),
    ({"card": "x"}, "card"),
    ({"usage": {"input_tokens": -1}}, "usage.input_tokens"),
    ({"usage": {"tokens": 1}}, "tokens"),
    ({"recall": "everything"}, "recall"),
    ({"option": 1}, "option"),
    ({"props": "password"}, "props"),
    ({"starts": 1}, "starts"),
    ({"wait_ms": "1"}, "wait_ms"),
    ({"step": False}, "step"),
    ({"stop": "end_turn"}, "stop"),
    ({"fail": 1}, "fail"),
    ({"fail": {"code": "c"}}, "message"),
    ("hello", "object"),
    (None, "object"),
]


@pytest.mark.parametrize(("step", "problem"), BAD)
@pytest.mark.parametrize("before", [(), ({"say": "x"}, {"step": True}), ({"stop": "refusal"}, {"say": "x"})])
def test_an_invalid_step_is_named(before: tuple[Json, ...], step: Json, problem: str) -> None:
    """Even after a step that ends the run."""
    text = script(*before, step, {"dance": 2})
    assert complaint(text).startswith(f"step {len(before) + 1}: ")
    assert problem in complaint(text)
    assert is_script(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"script"',
        '{"script": [',
        '{"script": 5}',
        '{"script": {}}',
        '{"script": [{"say": "x"}]} and more',
        '  {"script": nothing}',
        '{"script": [{"say": "\\ud800"}]}',
        '{"script": ' + "[" * 100_000,
    ],
)
def test_a_text_that_begins_as_a_script_must_be_valid(text: str) -> None:
    assert "the script is not" in complaint(text)
    assert is_script(text)


def forks(depth: int) -> str:
    return '{"script": ' + '[{"fork": {"description": "d", "script": ' * depth + "[]" + "}}]" * depth + "}"


def test_a_script_that_is_nested_too_deeply_is_refused() -> None:
    assert len(parse_script(forks(8))) == 2
    assert complaint(forks(5000))


@pytest.mark.parametrize("depth", [*range(50, 340, 10)])
def test_near_the_maximum_depth_a_script_is_accepted_or_refused(depth: int) -> None:
    assert is_script(forks(depth))


def test_a_sub_agents_script_is_taken_from_its_call() -> None:
    assert parse_fork_script({"description": "d", "script": [{"say": "x"}]}) == (Segment((BlockStep("text", "x"),)),)
    odd: list[Json] = [
        {},
        {"script": []},
        {"description": "d", "script": [{"say": 1}]},
        {"description": "d", "script": 1},
    ]
    assert [parse_fork_script(each) for each in odd] == [None] * 4


texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
steps = st.one_of(
    st.fixed_dictionaries({"say": st.one_of(texts, st.lists(texts)), "size": st.integers(1, 9)}),
    st.fixed_dictionaries({"call": st.fixed_dictionaries({"name": texts, "input": st.just({"a": 1})})}),
    st.sampled_from([{"step": True}, {"usage": {}}, {"wait_ms": 1.5}]),
)


@given(st.lists(steps))
def test_every_step_that_ends_a_model_step_starts_a_new_segment(written: list[Json]) -> None:
    ends = sum("call" in step or "step" in step for step in written)
    segments = parse_script(script(*written))
    assert [segment.end is None for segment in segments] == [False] * ends + [True]
