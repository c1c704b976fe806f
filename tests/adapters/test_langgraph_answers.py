"""Answers to the interrupts of graphs: their types, and what happens to those that do not fit."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph", reason="the extra langgraph is not installed")
pytest.importorskip("langchain", reason="langchain is not installed")

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel, field_validator
from typing_extensions import TypedDict

from dragoman.adapters.langgraph import LangGraphAgent
from dragoman.adapters.langgraph_questions import questions_for
from dragoman.core.events import CallParked, RunStopped
from dragoman.core.inputs import Choice, Decision
from tests.adapters.langgraph_models import ScriptedChatModel, calls, in_turn
from tests.agents.agent_harness import agent_harness


class Topic(TypedDict):
    topic: str


APPROVAL = {"question": "Approve this action?", "details": "pay 5"}


@pytest.mark.parametrize(
    ("value", "schema", "answer", "got"),
    [
        (APPROVAL, None, "True", "True"),
        (APPROVAL, None, "false", "False"),
        (APPROVAL, None, None, "''"),
        (
            {"action": "send", "to": "Ann", "message": "Send it?"},
            None,
            '{"action": "approve"}',
            "{'action': 'approve'}",
        ),
        ("Your age?", None, "42", "'42'"),
        ("Your age?", {"type": "integer"}, "42", "42"),
        ("Sure?", {"type": "boolean"}, 1, "False"),
        ("A word?", {"type": "string"}, "true", "'true'"),
        ("Where?", {"type": "object"}, '{"street": "Elm"}', "{'street': 'Elm'}"),
    ],
)
async def test_an_answer_has_the_type_that_the_node_expects_and_a_declined_one_approves_nothing(
    tmp_path: Path, value: Any, schema: dict[str, str] | None, answer: str | int | None, got: str
) -> None:

    def ask(state: Topic) -> Any:
        return {"answer": repr(interrupt(value) if schema is None else interrupt(value, response_schema=schema))}

    class Answered(TypedDict):
        topic: str
        answer: str

    builder = StateGraph(Answered, input_schema=Topic).add_node(ask).add_edge(START, "ask")
    async with agent_harness(tmp_path, LangGraphAgent(builder.compile(), name="asking")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("go") == "tool_use"
        call_id = await session.waiting_call_id()
        if answer is None:
            assert await session.answer(Decision(call_id=call_id, granted=False)) == "end_turn"
        elif isinstance(answer, int):
            assert await session.answer(Choice(call_id=call_id, selections={"0": [answer]})) == "end_turn"
        else:
            assert await session.answer(Choice(call_id=call_id, custom={"0": answer})) == "end_turn"
        assert (await session.summary_lines())[-1] == f"assistant: {got}"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (APPROVAL, "Approve this action?\ndetails: pay 5"),
        ({"action": "send", "to": ["Ann"], "message": "Send it?"}, 'Send it?\naction: send\nto: ["Ann"]'),
        ({"prompt": "Which?", "choices": ["a"], "multiple": True}, "Which?"),
        ({"text": "a draft"}, '{"text": "a draft"}'),
    ],
)
def test_a_question_shows_everything_that_it_is_about(value: Any, shown: str) -> None:
    (question,) = questions_for(value)["questions"]
    assert question["question"] == shown


class Address(BaseModel):
    street: str
    number: int


@pytest.mark.parametrize(
    ("schema", "wrong", "reason"),
    [
        ({"type": "integer"}, "next year", "expected integer"),
        (Address, '{"street": "Elm"}', "number"),
        (Address, "Elm 3", "expected object"),
    ],
)
@pytest.mark.parametrize("is_in_tool", [False, True])
async def test_an_answer_that_does_not_fit_its_schema_is_asked_for_again(
    tmp_path: Path, schema: Any, wrong: str, reason: str, is_in_tool: bool
) -> None:

    def ask() -> str:
        """Ask."""
        return str(interrupt("Where?", response_schema=schema))

    graph: Any
    if is_in_tool:
        graph = create_agent(ScriptedChatModel(script=in_turn(calls(("ask", {})), AIMessage("thanks"))), [ask])
    else:
        graph = StateGraph(Topic).add_node("ask", lambda state: {"topic": ask()}).add_edge(START, "ask").compile()
    async with agent_harness(tmp_path, LangGraphAgent(graph, name="asking")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("go") == "tool_use"
        call_id = await session.waiting_call_id()
        assert await session.answer(Choice(call_id=call_id, custom={"0": wrong})) == "tool_use"
        parked = [each for each in await session.events() if isinstance(each, CallParked)]
        (question,) = parked[-1].note["questions"]
        assert question["question"].startswith("The answer does not fit")
        assert reason in question["question"]
        right = "3" if isinstance(schema, dict) else '{"street": "Elm", "number": 3}'
        again = Choice(call_id=await session.waiting_call_id(), custom={"0": right})
        assert await session.answer(again) == "end_turn"
        assert "Elm" in str(await session.summary_lines()) or isinstance(schema, dict)


class Seats(BaseModel):
    count: int

    @field_validator("count")
    @classmethod
    def is_even(cls, count: int) -> int:
        if count % 2:
            raise ValueError("seats are sold in pairs")
        return count


@pytest.mark.parametrize("is_in_tool", [False, True])
async def test_an_answer_that_a_validator_of_the_graph_refuses_is_asked_for_again(
    tmp_path: Path, is_in_tool: bool
) -> None:

    def ask() -> str:
        """Ask."""
        return f"{interrupt('How many?', response_schema=Seats).count} seats"

    graph: Any
    if is_in_tool:
        graph = create_agent(ScriptedChatModel(script=in_turn(calls(("ask", {})), AIMessage("thanks"))), [ask])
    else:
        graph = StateGraph(Topic).add_node("ask", lambda state: {"topic": ask()}).add_edge(START, "ask").compile()
    async with agent_harness(tmp_path, LangGraphAgent(graph, name="asking")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("go") == "tool_use"
        assert await session.choose(custom_text='{"count": 3}') == "tool_use"
        (waiting,) = (await session.live()).state.waiting_calls()
        question = waiting.shown().input["questions"][0]["question"]
        assert question.splitlines() == ["The answer does not fit (Value error, seats are sold in pairs).", "How many?"]
        await harness.restart()
        assert await session.choose(custom_text='{"count": 4}') == "end_turn"
        assert "4 seats" in str(await session.summary_lines())


async def test_each_question_of_a_node_gets_its_own_answer(tmp_path: Path) -> None:
    class Answered(TypedDict):
        topic: str
        answer: str

    def ask(state: Topic) -> Any:
        return {"answer": ", ".join(interrupt(question) for question in ("Name?", "Age?", "City?"))}

    builder = StateGraph(Answered, input_schema=Topic).add_node(ask).add_edge(START, "ask")
    async with agent_harness(tmp_path, LangGraphAgent(builder.compile(), name="asking")) as harness:
        session = await harness.session()
        ends = [await session.send_and_wait("go")]
        for words in ("Ann", "42", "Bern"):
            choice = Choice(call_id=await session.waiting_call_id(), custom={"0": words})
            ends.append(await session.answer(choice))
        assert ends == ["tool_use", "tool_use", "tool_use", "end_turn"]
        assert (await session.summary_lines())[-1] == "assistant: Ann, 42, Bern"


async def test_a_declined_question_that_must_have_a_value_ends_the_run(tmp_path: Path) -> None:

    def ask(state: Topic) -> Any:
        return {"topic": str(interrupt("Your age?", response_schema={"type": "integer"}))}

    graph: Any = StateGraph(Topic).add_node(ask).add_edge(START, "ask").compile()
    async with agent_harness(tmp_path, LangGraphAgent(graph, name="asking")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("go") == "tool_use"
        denial = Decision(call_id=await session.waiting_call_id(), granted=False)
        assert await session.answer(denial) == "error"
        (*_, stopped) = [each for each in await session.events() if isinstance(each, RunStopped)]
        assert stopped.code == "question_declined"
