"""Agents of the OpenAI Agents SDK on servers that die: no tool runs twice, and nothing that was said is lost."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from agents import Agent, function_tool, handoff

from dragoman.adapters.openai_agents import OpenAIAgentsAgent
from dragoman.core.answers import INTERRUPTED_RESULT
from dragoman.core.content import AssistantMessage, JsonObject, ToolMessage, text_of
from dragoman.core.inputs import Answer, Decision, Result
from dragoman.core.session import OpenCall
from dragoman.core.tools import OnRestart, ToolSpec
from dragoman.engine.sessions.live_session import LiveSession
from tests.adapters.openai_model import CallOf, PlayedModel, Script
from tests.engine.faulty_log import FaultyLog, Moment
from tests.engine.world import (
    DEADLINE_S,
    PauseGate,
    World,
    answer_request,
    open_session,
    reload,
    running_world,
    send,
    wait_for_end,
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


def answer_to(call: OpenCall) -> Answer:
    if call.call.name == "paint":
        return Result(call_id=call.call.call_id, content="painted")
    return Decision(call_id=call.call.call_id, granted=True)


class Client:
    """An application: sends one message, and answers calls one by one."""

    def __init__(self, script: str) -> None:
        self.script = script
        self.live: LiveSession | None = None

    async def converse(self, world: World, log: FaultyLog) -> None:
        engine = await world.start(log)
        if self.live is None:
            self.live = await open_session(engine, client_tools=(PAINT,))
        live = self.live = await reload(engine, self.live)
        if live.state.last_run is None:
            await send(engine, live, self.script)
        await wait_for_end(live)
        while live.state.status() == "waiting":
            await send(engine, live, answer_request(answer_to(next(live.state.waiting_calls()))))
            await wait_for_end(live)


async def serve(world: World, client: Client, log: FaultyLog) -> bool:
    """Let an engine serve the client until its conversation ends or the store dies. Returns whether it died."""
    talking = asyncio.create_task(client.converse(world, log))
    dying = asyncio.create_task(log.died.wait())
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([talking, dying], return_when=asyncio.FIRST_COMPLETED)
    died = not talking.done()
    (talking if died else dying).cancel()
    await asyncio.wait([talking])
    if not died:
        talking.result()
    for engine in tuple(world.engines):
        await (world.kill if died else world.stop)(engine)
    return died


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
        log, client = FaultyLog(world.store), Client(script)
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


@pytest.mark.parametrize("script", ["tools", "handoffs"])
async def test_a_server_that_dies_between_commits_runs_nothing_twice(script: str) -> None:
    commits, expected = await undisturbed(script)
    lost = 0
    for commit in range(2, commits + 1, 2):
        moment: Moment = "before" if commit % 4 else "after"
        async with running_world(SimulatedLog()) as world:
            tested, client = AgentWithAllCalls(), Client(script)
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


@pytest.mark.parametrize(
    ("on_restart", "result", "runs"),
    [("fail", INTERRUPTED_RESULT, 1), ("repeat", "slept b", 2), ("ask", "slept b", 2)],
)
async def test_a_tool_that_was_running_is_treated_as_declared_and_its_finished_sibling_is_not_run_again(
    on_restart: OnRestart, result: str, runs: int
) -> None:
    async with running_world(SimulatedLog()) as world:
        tested, client = AgentWithAllCalls(on_restart), Client("tools")
        world.agents["player"] = tested.agent
        world.tool("slow", no_body, on_restart=on_restart)
        tested.gate = PauseGate()
        log = FaultyLog(world.store)
        talking = asyncio.create_task(client.converse(world, log))
        await asyncio.wait_for(tested.gate.entered.wait(), DEADLINE_S)
        while tested.runs["note a"] == 0:  # noqa: ASYNC110  # another task runs it
            await asyncio.sleep(0)
        await yield_often()
        log.is_dead = True
        talking.cancel()
        await asyncio.wait([talking])
        for engine in tuple(world.engines):
            await world.kill(engine)
        tested.gate = None
        assert not await serve(world, client, FaultyLog(world.store))
        assert (await steps(world, client))[0] == ("so ", [("note", "noted a"), ("slow", result)])
        assert (tested.runs["note a"], tested.runs["slow b"]) == (1, runs)
