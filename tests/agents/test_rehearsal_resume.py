"""A script that is cut off anywhere and gone on with, by another server, comes to the same as one that is not."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.agents.rehearsal.agent import rehearsal
from dragoman.core.agent import AgentError
from dragoman.core.content import AssistantMessage
from tests.agents.in_memory_run import InMemoryStarts, Killed, Session

Json = Any

plain_texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
texts = st.sampled_from(["{result}", "{results}; {answer}", "{result}{results}{result}"])
spoken = st.builds(
    lambda kind, said, size: {kind: said, "size": size},
    st.sampled_from(["say", "think"]),
    st.one_of(plain_texts, texts, st.lists(st.one_of(plain_texts, texts), max_size=3)),
    st.integers(1, 5),
)
one_call = st.sampled_from(
    [
        {"name": "add", "input": {"a": 1, "b": 2}},
        {"name": "lookup", "input": {"q": "ö"}},
        {"name": "boom", "input": {}},
        {"name": "card", "input": {"title": "T"}},
        {"name": "paint", "input": {"colour": None}},
        {"name": "nothing", "input": {}},
    ]
)
plain_steps = st.one_of(
    spoken,
    spoken,
    st.builds(lambda each: {"call": each}, one_call),
    st.builds(lambda each: {"calls": each}, st.lists(one_call, max_size=3)),
    st.builds(
        lambda output: {"tool": {"name": "inner", "input": {}, "output": output}}, st.one_of(plain_texts, st.none())
    ),
    st.sampled_from(
        [
            {"step": True},
            {"usage": {"input_tokens": 3, "output_tokens": 4}},
            {"emit": {"count": 3, "text": "<{i}>"}},
            {"ask": {"questions": [{"question": "Which?", "options": [{"label": "this"}]}]}},
            {"image": "https://images.example/a.png"},
            {"recall": "user"},
        ]
    ),
)


def forks(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.builds(lambda steps: {"fork": {"description": "d", "script": steps}}, st.lists(inner, max_size=3))


steps = st.lists(st.one_of(plain_steps, plain_steps, forks(st.one_of(plain_steps, forks(spoken)))), max_size=6)
finals = st.sampled_from(
    [(), ({"stop": "refusal"},), ({"fail": "x"},), ({"fail": {"code": "c", "message": "A reason."}},)]
)

Outcome = tuple[str, list[Json], int]


async def outcome(play: str, **dies: Any) -> Outcome:
    """How a script ends, its messages, and how many model steps ended without a pause.

    Questions are answered, and a crashed server is replaced.
    """
    playing = Session(rehearsal(InMemoryStarts()), client_tools=["paint"], **dies)
    try:
        try:
            reason: str = await playing.send(play)
        except Killed:
            reason = "killed"
        while reason in ("tool_use", "killed"):
            playing.agent = rehearsal(InMemoryStarts())
            if reason == "tool_use":
                raw = {"answers": [{"question": "q", "labels": ["this"], "custom": None}]}
                waiting = next(each for each in playing.open if playing.is_waiting(each))
                is_question = waiting.call.name == "AskUserQuestion"
                playing.answer("painted", raw=raw if is_question else msgspec.UNSET)
            try:
                reason = await playing.play()
            except Killed:
                reason = "killed"
    except AgentError as error:
        reason = error.code
    except RuntimeError as error:
        reason = str(error)
    complete = [each for each in playing.messages if not isinstance(each, AssistantMessage) or each.status != "cut"]
    messages = [msgspec.structs.replace(each, id="") for each in complete]
    return reason, messages, playing.steps


@settings(max_examples=60)
@given(body=steps, final=finals)
async def test_a_crash_after_any_model_step_does_not_change_the_outcome(
    body: list[Json], final: tuple[Json, ...]
) -> None:
    play = json.dumps({"script": [*body, *final]})
    reason, messages, count = await outcome(play)
    for place in range(1, count + 1):
        assert (await outcome(play, dies_after_steps=place))[:2] == (reason, messages)


@settings(max_examples=60)
@given(body=steps, final=st.sampled_from([(), ({"stop": "refusal"},)]), place=st.integers(1, 12))
async def test_a_crash_after_any_delta_does_not_change_the_outcome(
    body: list[Json], final: tuple[Json, ...], place: int
) -> None:
    """The step that was cut is played again from its beginning."""
    play = json.dumps({"script": [*body, *final]})
    assert (await outcome(play, dies_after_deltas=place))[:2] == (await outcome(play))[:2]


@pytest.mark.parametrize("place", range(1, 5))
async def test_results_and_answers_survive_every_crash(place: int) -> None:
    inner = [{"call": {"name": "paint", "input": {}}}, {"say": "inner {result}"}]
    body = [
        {"calls": [{"name": "add", "input": {"a": 1, "b": 1}}, {"name": "lookup", "input": {"q": "x"}}]},
        {"ask": {"questions": [{"question": "Which?", "options": [{"label": "this"}]}]}},
        {"fork": {"description": "d", "script": inner}},
        {"step": True},
        {"say": "{results}; {answer}; {result}", "size": 100},
    ]
    reason, messages, count = await outcome(json.dumps({"script": body}), dies_after_steps=place)
    assert (reason, count) == ("end_turn", 4)
    assert messages[-1].content[0].text == "2, looked up x; this; inner painted"
