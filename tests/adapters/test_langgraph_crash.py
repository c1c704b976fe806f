"""Graphs with a plain tool node, which runs all calls of a step in one task, and a server that dies in one of them."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("langgraph", reason="the extra langgraph is not installed")
pytest.importorskip("langchain", reason="langchain is not installed")

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from dragoman.adapters.langgraph import LangGraphAgent
from dragoman.core.content import ToolMessage
from dragoman.engine.sessions.live_session import to_live_session
from tests.adapters.langgraph_models import ScriptedChatModel, calls, in_turn
from tests.agents.agent_harness import agent_harness
from tests.engine.world import DEADLINE_S

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


def graph_of(tools: list[Any]) -> Any:
    """A graph with one task for all calls of a step."""
    model = ScriptedChatModel(
        script=in_turn(calls(("quick", {"name": "a"}), ("slow", {"name": "b"})), AIMessage(ANSWER))
    )

    async def ask(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", ask)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile()


@pytest.mark.parametrize(
    ("policy", "starts", "result"),
    [
        ("fail", 1, "Tool call interrupted: the server restarted"),
        ("repeat", 2, "slow b"),
        ("ask", 2, "slow b"),
    ],
)
async def test_a_call_that_a_crash_interrupted_follows_its_policy_and_a_finished_sibling_is_not_repeated(
    tmp_path: Path, policy: Literal["fail", "repeat", "ask"], starts: int, result: str
) -> None:
    effects = Effects()
    agent = LangGraphAgent(graph_of(effects.tools()), name="worker", on_restart={"slow": policy})
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
