"""Agents of the OpenAI Agents SDK on servers that die: no tool runs twice, and nothing that was said is lost."""

import asyncio
from collections import Counter
from typing import Any

from agents import Agent, function_tool, handoff

from dragoman.adapters.openai_agents import OpenAIAgentsAgent
from dragoman.core.answers import INTERRUPTED_RESULT
from dragoman.core.content import AssistantMessage, JsonObject, ToolMessage, text_of
from dragoman.core.tools import OnRestart, ToolSpec
from tests.adapters.dying_servers import Client, serve
from tests.adapters.openai_model import CallOf, PlayedModel, Script
from tests.engine.faulty_log import FaultyLog, Moment
from tests.engine.world import (
    PauseGate,
    World,
    running_world,
)
from tests.stores.simulated import SimulatedLog

PAINT = ToolSpec(name="paint", description="Paints.", parameters={"type": "object", "properties": {}})


async def yield_often() -> None:
    """Let everything that is ready be committed."""
    for _ in range(12):
        await asyncio.sleep(0)


SCRIPTS: dict[str, Script] = {
    "tools": [
        ["so ", yield_often, CallOf("note", {"text": "a"}), CallOf("slow", {"text": "b"}), yield_often],
        ["then ", yield_often, CallOf("pay", {"amount": 5}), CallOf("note", {"text": "c"}), CallOf("paint")],
        [yield_often, "done"],
    ],
    "handoffs": [
        ["one ", CallOf("note", {"text": "a"}), CallOf("transfer_to_billing")],
        ["two ", yield_often, CallOf("transfer_to_triage")],
        ["three ", yield_often, CallOf("ask_billing", {"input": "inner"})],
        [yield_often, "done"],
    ],
    "inner": [[CallOf("pay", {"amount": 7})], ["inner done"]],
}


async def no_body(arguments: JsonObject) -> None:
    """The body of a tool that only declares its policy for the checks of the log."""


class AgentWithAllCalls:
    """An agent with every kind of call, and how often each piece of the application's code was begun."""

    def __init__(self, on_restart: OnRestart = "fail") -> None:
        self.runs: Counter[str] = Counter()
        self.gate: PauseGate | None = None
        self.model = PlayedModel(SCRIPTS)

        @function_tool
        async def note(text: str) -> str:
            """Note."""
            self.runs[f"note {text}"] += 1
            return f"noted {text}"

        @function_tool
        async def slow(text: str) -> str:
            """Take some time."""
            self.runs[f"slow {text}"] += 1
            await yield_often()
            if self.gate is not None:
                await self.gate()
            return f"slept {text}"

        @function_tool(needs_approval=True)
        async def pay(amount: int) -> str:
            """Pay."""
            self.runs[f"pay {amount}"] += 1
            await yield_often()
            return f"paid {amount}"

        async def count_handoff(context: Any) -> None:
            self.runs["handoff"] += 1
            await yield_often()

        billing: Agent[Any] = Agent(name="Billing", model=self.model, tools=[note, pay])
        triage: Agent[Any] = Agent(
            name="Triage",
            model=self.model,
            tools=[note, slow, pay, billing.as_tool("ask_billing", "Asks billing.")],
            handoffs=[handoff(billing, on_handoff=count_handoff)],
        )
        billing.handoffs.append(triage)
        self.agent = OpenAIAgentsAgent(triage, name="player", on_restart={"*": on_restart})


Steps = list[tuple[str, list[tuple[str, str]]]]


async def steps(world: World, client: Client) -> Steps:
    """The finished steps: their texts, and each call's tool and result."""
    assert client.live is not None
    messages = await world.history(client.live.state.session_id)
    results = {each.call_id: text_of(each.content) for each in messages if isinstance(each, ToolMessage)}
    return [
        (text_of(each.content), [(call.name, results[call.call_id]) for call in each.calls()])
        for each in messages
        if isinstance(each, AssistantMessage) and each.status != "cut"
    ]


async def undisturbed(script: str) -> tuple[int, Steps]:
    async with running_world(SimulatedLog()) as world:
        world.agents["player"] = AgentWithAllCalls().agent
        log, client = FaultyLog(world.store), Client(script, client_tools=(PAINT,))
        assert not await serve(world, client, log)
        return log.commits, await steps(world, client)


async def test_without_crashes_everything_runs_once() -> None:
    _, found = await undisturbed("tools")
    assert found == [
        ("so ", [("note", "noted a"), ("slow", "slept b")]),
        ("then ", [("pay", "paid 5"), ("note", "noted c"), ("paint", "painted")]),
        ("done", []),
    ]
    _, found = await undisturbed("handoffs")
    assert found == [
        ("one ", [("note", "noted a"), ("transfer_to_billing", '{"assistant": "Billing"}')]),
        ("two ", [("transfer_to_triage", '{"assistant": "Triage"}')]),
        ("three ", [("ask_billing", "inner done")]),
        ("done", []),
    ]


async def test_a_server_that_dies_between_commits_of_handoffs_runs_nothing_twice() -> None:
    script = "handoffs"
    commits, expected = await undisturbed(script)
    lost = 0
    for commit in range(2, commits + 1, 2):
        moment: Moment = "before" if commit % 4 else "after"
        async with running_world(SimulatedLog()) as world:
            tested, client = AgentWithAllCalls(), Client(script, client_tools=(PAINT,))
            world.agents["player"] = tested.agent
            log = FaultyLog(world.store)
            log.die_at(commit, moment)
            assert await serve(world, client, log)
            assert not await serve(world, client, FaultyLog(world.store))
            found = await steps(world, client)
            assert [text for text, _ in found] == [text for text, _ in expected]
            for (_, results), (_, others) in zip(found, expected, strict=True):
                for (tool, result), undisturbed_result in zip(results, others, strict=True):
                    assert (tool, result) == undisturbed_result or result == INTERRUPTED_RESULT, (commit, tool, result)
                    lost += result == INTERRUPTED_RESULT
            assert max(tested.runs.values()) == 1, (commit, tested.runs)
    assert lost > 0, "no crash fell into a tool"
