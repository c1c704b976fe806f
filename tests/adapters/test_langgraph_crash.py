"""Graphs and dying servers: no tool runs twice, no message enters a graph twice, every call gets one result."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("langgraph", reason="the extra langgraph is not installed")
pytest.importorskip("langchain", reason="langchain is not installed")

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from dragoman.adapters.langgraph import LangGraphAgent
from dragoman.core.content import ToolMessage
from dragoman.core.events import CallOpened, CallSettled, MessageAdded
from dragoman.core.inputs import Decision
from dragoman.engine.sessions.live_session import to_live_session
from tests.adapters.langgraph_models import ScriptedChatModel, calls, in_turn
from tests.agents.agent_harness import agent_harness
from tests.engine.faulty_log import FaultyLog, Moment
from tests.engine.world import ANN, DEADLINE_S, World, answer_request, running_world, send, wait_for_end
from tests.engine.world import open_session as open_in
from tests.stores.simulated import SimulatedLog

ANSWER = "It is done."


class Effects:
    """What tools did, and a gate at which one of them waits."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()

    def tools(self) -> list[Any]:
        async def quick(name: str) -> str:
            """Be quick."""
            self.ran[f"quick {name}"] += 1
            return f"quick {name}"

        async def slow(name: str) -> str:
            """Be slow."""
            self.ran[f"slow {name}"] += 1
            self.entered.set()
            await self.opened.wait()
            return f"slow {name}"

        return [quick, slow]


def graph_of(kind: str, tools: list[Any]) -> Any:
    """An agent with one task per call, or a graph with one task for all calls."""
    model = ScriptedChatModel(
        script=in_turn(calls(("quick", {"name": "a"}), ("slow", {"name": "b"})), AIMessage(ANSWER))
    )
    if kind == "agent":
        return create_agent(model, tools)

    async def ask(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", ask)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile()


@pytest.mark.parametrize("kind", ["agent", "tool node"])
@pytest.mark.parametrize(
    ("policy", "starts", "result"),
    [
        ("fail", 1, "Tool call interrupted: the server restarted"),
        ("repeat", 2, "slow b"),
        ("ask", 2, "slow b"),
    ],
)
async def test_a_call_that_a_crash_interrupted_follows_its_policy_and_a_finished_sibling_is_not_repeated(
    tmp_path: Path, kind: str, policy: Literal["fail", "repeat", "ask"], starts: int, result: str
) -> None:
    effects = Effects()
    agent = LangGraphAgent(graph_of(kind, effects.tools()), name="worker", on_restart={"slow": policy})
    async with agent_harness(tmp_path, agent) as harness:
        session = await harness.session()
        await session.send("go")
        async with asyncio.timeout(DEADLINE_S):
            await effects.entered.wait()
            live = to_live_session(await session.live())
            while len(live.state.calls) > 1:  # the quick one has no result yet
                await live.next_commit()
        await harness.kill()
        effects.opened.set()
        reason = await session.wait_for_end()
        if policy == "ask":
            assert (reason, await session.pending(), effects.ran["slow b"]) == ("tool_use", ["slow"], 1)
            reason = await session.allow()
        assert reason == "end_turn"
        assert effects.ran == {"quick a": 1, "slow b": starts}
        results = {each.name: each.content for each in await session.messages() if isinstance(each, ToolMessage)}
        assert results == {"quick": "quick a", "slow": result}
        assert (await session.summary_lines())[-1].strip() == f"assistant: {ANSWER}"


async def play_until_it_dies(world: World, commit: int, moment: Moment, *, asks: bool) -> bool:
    """Send a message to a server that dies at a commit, and finish on the next. Returns whether the first one died."""
    log = FaultyLog(world.store)
    log.die_at(commit, moment)
    engine = await world.start(log)
    creating = asyncio.ensure_future(open_in(engine, agent="worker"))
    died = asyncio.ensure_future(log.died.wait())

    async def talk() -> None:
        live = await creating
        await send(engine, live, "go")
        await wait_for_end(live)
        if asks:
            waiting = [Decision(call_id=call.call.call_id, granted=True) for call in live.state.waiting_calls()]
            await send(engine, live, answer_request(*waiting))
            await wait_for_end(live)

    talking = asyncio.ensure_future(talk())
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([talking, died], return_when=asyncio.FIRST_COMPLETED)
    is_dead = died.done()
    for task in (talking, creating, died):
        task.cancel()
    await asyncio.wait([talking, creating, died])
    await world.kill(engine)
    engine = await world.start()
    for state in await world.store.page(ANN, None, 10):
        live = await engine.find_session(ANN, state.session_id)
        await wait_for_end(live)
        if live.state.last_run is None:
            continue
        while waiting := list(live.state.waiting_calls()):
            given = [Decision(call_id=call.call.call_id, granted=True) for call in waiting]
            await send(engine, live, answer_request(*given))
            await wait_for_end(live)
        await world.stop(engine)
        return is_dead
    await world.stop(engine)
    return is_dead


@pytest.mark.parametrize("asks", [False, True])
async def test_whichever_commit_the_server_dies_at_each_tool_runs_at_most_once_and_the_answer_comes(asks: bool) -> None:
    deaths = 0
    for commit in range(2, 60):
        died = False
        moments: tuple[Moment, ...] = ("after",) if asks else ("before", "after")
        for moment in moments:
            effects = Effects()
            effects.opened.set()
            middleware = [HumanInTheLoopMiddleware(interrupt_on={"quick": True, "slow": True})] if asks else []
            script = in_turn(calls(("quick", {"name": "a"}), ("slow", {"name": "b"})), AIMessage(ANSWER))
            model = ScriptedChatModel(script=script)
            graph = create_agent(model, effects.tools(), middleware=middleware)
            async with running_world(SimulatedLog()) as world:
                world.agents = {"worker": LangGraphAgent(graph, name="worker"), **world.agents}
                died = await play_until_it_dies(world, commit, moment, asks=asks)
                (state,) = await world.store.page(ANN, None, 10)
                events = [each.event for each in await world.events(state.session_id)]
                if not any(isinstance(each, MessageAdded) for each in events):
                    continue  # it died before the message was there
                where = (commit, moment, [type(each).__name__ for each in events])
                assert max(effects.ran.values(), default=0) <= 1, where
                opened = [each.call.call_id for each in events if isinstance(each, CallOpened)]
                settled = [each.result.call_id for each in events if isinstance(each, CallSettled)]
                assert sorted(opened) == sorted(settled), where
                assert model.asked, (where, state.last_stop, state)
                humans = [message.type for message in model.asked[-1]].count("human")
                assert humans == 1, where
                history = await world.history(state.session_id)
                assert str(history[-1].content).strip().find(ANSWER) >= 0, (where, history[-1])
            deaths += died
        if not died:
            break
    assert deaths > 15
