"""Tools that interrupt their graph several times: each interrupt has an id, and each call its own answers."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph", reason="the extra langgraph is not installed")
pytest.importorskip("langchain", reason="langchain is not installed")

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from dragoman.adapters.langgraph import LangGraphAgent
from dragoman.core.content import ToolMessage
from dragoman.core.inputs import Decision
from dragoman.core.refusals import CallAlreadySettled
from tests.adapters.langgraph_models import ScriptedChatModel, calls, in_turn
from tests.agents.agent_harness import Session, agent_harness
from tests.engine.world import DEADLINE_S

Build = Callable[[ScriptedChatModel, list[Any]], Any]


def one_task_for_all_calls(model: ScriptedChatModel, tools: list[Any]) -> Any:
    """A graph whose tool node runs all calls of a step in one task."""

    async def ask(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", ask)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model").add_conditional_edges("model", tools_condition).add_edge("tools", "model")
    return builder.compile()


BUILDS = [pytest.param(one_task_for_all_calls, id="one task"), pytest.param(create_agent, id="a task for each call")]


def is_allowed(amount: int) -> bool:
    asked = interrupt({"action_requests": [{"name": "pay", "args": {"amount": amount}}]})
    return bool(asked["decisions"][0]["type"] == "approve")


async def results_of(session: Session, name: str) -> list[object]:
    return [each.content for each in await session.messages() if isinstance(each, ToolMessage) and each.name == name]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("allowed", [1, 2])
async def test_an_approval_is_for_the_call_that_it_was_asked_for_although_others_asked_at_the_same_time(
    tmp_path: Path, build: Build, allowed: int
) -> None:
    paid: list[int] = []

    async def pay(amount: int) -> str:
        """Pay."""
        if not is_allowed(amount):
            return f"kept {amount}"
        paid.append(amount)
        return f"paid {amount}"

    model = ScriptedChatModel(script=in_turn(calls(("pay", {"amount": 1}), ("pay", {"amount": 2})), AIMessage("ok")))
    async with agent_harness(tmp_path, LangGraphAgent(build(model, [pay]), name="bank")) as harness:
        session = await harness.session()
        await session.send_and_wait("pay")
        while waiting := list((await session.live()).state.waiting_calls()):
            call = waiting[0].call
            await session.answer(Decision(call_id=call.call_id, granted=call.input["amount"] == allowed))
        assert paid == [allowed]
        assert sorted(map(str, await results_of(session, "pay"))) == [f"kept {3 - allowed}", f"paid {allowed}"]


@pytest.mark.parametrize("build", BUILDS)
async def test_a_tool_that_asks_for_a_second_approval_waits_under_another_id_and_a_repeated_one_does_not_count(
    tmp_path: Path, build: Build
) -> None:
    begun: list[int] = []

    async def transfer(amount: int) -> str:
        """Pay a part, then all of it."""
        begun.append(amount)
        for part in (amount, 10 * amount):
            if not is_allowed(part):
                return f"kept {part}"
        return "paid all"

    model = ScriptedChatModel(script=in_turn(calls(("transfer", {"amount": 1})), AIMessage("ok")))
    async with agent_harness(tmp_path, LangGraphAgent(build(model, [transfer]), name="bank")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("pay") == "tool_use"
        first = Decision(call_id=await session.waiting_call_id(), granted=True)
        assert await session.answer(first) == "tool_use"
        (waiting,) = (await session.live()).state.waiting_calls()
        assert (waiting.call.name, waiting.call.input) == ("pay", {"amount": 10})
        with pytest.raises(CallAlreadySettled):
            await session.send("", first)  # its client never saw the response
        assert await session.pending() == ["pay"]
        assert len(begun) == 2
        await harness.restart()
        assert await session.deny() == "end_turn"
        assert await results_of(session, "transfer") == ["kept 10"]


async def test_a_tool_that_asked_and_was_interrupted_by_a_crash_gets_its_own_answer_when_it_may_run_again(
    tmp_path: Path,
) -> None:
    entered, opened, heard = asyncio.Event(), asyncio.Event(), list[object]()

    async def book(hotel: str) -> str:
        """Book."""
        heard.append(interrupt("How many nights?"))
        entered.set()
        await opened.wait()
        return f"{hotel}: {heard[-1]}, {interrupt('Breakfast?')}"

    model = ScriptedChatModel(script=in_turn(calls(("book", {"hotel": "Ritz"})), AIMessage("ok")))
    agent = LangGraphAgent(create_agent(model, [book]), name="travel", on_restart={"book": "ask"})
    async with agent_harness(tmp_path, agent) as harness:
        session = await harness.session()
        assert await session.send_and_wait("book") == "tool_use"
        answering = asyncio.create_task(session.choose(custom_text="three"))
        async with asyncio.timeout(DEADLINE_S):
            await entered.wait()
        await harness.kill()
        answering.cancel()
        opened.set()
        assert await session.wait_for_end() == "tool_use"
        assert heard == ["three"]
        assert await session.allow() == "tool_use"
        assert await session.choose(custom_text="yes") == "end_turn"
        assert await results_of(session, "book") == ["Ritz: three, yes"]


@pytest.mark.parametrize("build", BUILDS)
async def test_a_graph_in_a_tool_gets_the_answers_to_its_own_interrupts(tmp_path: Path, build: Build) -> None:
    def first(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"{interrupt('Where to?')}")]}

    def second(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"{state['messages'][-1].text} by {interrupt('How?')}")]}

    inner = StateGraph(MessagesState).add_node("first", first).add_node("second", second)
    inner.add_edge(START, "first").add_edge("first", "second")
    trip = inner.compile()

    async def plan() -> str:
        """Plan."""
        found = await trip.ainvoke({"messages": []})
        return f"{found['messages'][-1].text}, {interrupt('Really?')}"

    model = ScriptedChatModel(script=in_turn(calls(("plan", {})), AIMessage("ok")))
    async with agent_harness(tmp_path, LangGraphAgent(build(model, [plan]), name="travel")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("plan") == "tool_use"
        ids, reason = [], ""
        for answer in ("Bern", "train", "yes"):
            ids.append(await session.waiting_call_id())
            await harness.restart()
            reason = await session.choose(custom_text=answer)
        assert reason == "end_turn"
        assert len(set(ids)) == 3
        assert await results_of(session, "plan") == ["Bern by train, yes"]
