"""A server that dies at any commit: what was seen or acknowledged is in the log, and every run ends."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dragoman.core.agent import Agent, Run
from dragoman.core.content import AssistantMessage, Message, ToolMessage, UserMessage, text_of
from dragoman.core.events import CallParked, LoggedEvent, MessageClosed
from dragoman.core.history import messages_of
from dragoman.core.inputs import Answer, Choice, Decision, Result, Submit, UserInput
from dragoman.core.open_calls import OpenCall
from dragoman.core.refusals import AgentNotServed, CallAlreadySettled
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.stream import START, Record, cursor_of, expand
from dragoman.core.tools import ToolSpec
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.log import SqliteLog
from tests.engine.faulty_log import FaultyLog, Moment
from tests.engine.log_checker import check_log, check_tool_call_pairing
from tests.engine.world import (
    DEADLINE_S,
    CallTool,
    PauseGate,
    Think,
    World,
    answer_request,
    ask_user,
    fork,
    open_session,
    play,
    reasons,
    reload,
    running_world,
    send,
    texts,
    wait_for_end,
    wait_until_durable,
    waiting_tools,
)
from tests.requirements import requirement
from tests.stores.simulated import SimulatedLog

INTERRUPTED = "Tool call interrupted: the server restarted"
PAINT = ToolSpec(name="paint", description="", parameters={"type": "object"})


async def sum_up(run: Run) -> None:
    """Summarize everything before the newest message."""
    if await run.summary() is None:
        messages = await run.context(100)
        await run.compact("in short", messages[-1].id, tokens_before=2, tokens_after=1)


def prepare(world: World) -> None:
    """Give a world the scripts and tools for these tests."""
    world.echo("once", on_restart="fail")
    world.echo("again", on_restart="repeat")
    world.echo("asking", on_restart="ask")
    world.echo("allowed", needs_approval=True)
    world.scripts |= {
        "talk": [
            ["one ", wait_until_durable, "two ", wait_until_durable, Think("hm "), wait_until_durable, "three"],
            ["four ", wait_until_durable, "five"],
            [wait_until_durable, "six"],
        ],
        "tools": [
            [
                "so ",
                wait_until_durable,
                CallTool("once", {"value": 1}),
                CallTool("again", {"value": 2}),
                CallTool("asking", {"value": 3}),
            ],
            [wait_until_durable, "then ", CallTool("nothing"), CallTool("once", {"value": 4})],
            ["done"],
        ],
        "below": [["deep ", wait_until_durable, CallTool("again", {"value": 1})], ["deeper ", fork("deepest")], ["up"]],
        "deepest": [["deepest ", ask_user("a", "b"), CallTool("allowed", {"value": 2})], ["said"]],
        "forks": [["top ", fork("below"), fork("deepest")], ["end"]],
        "clients": [
            [
                "please ",
                CallTool("paint"),
                ask_user("a", "b"),
                CallTool("allowed", {"value": 1}),
                CallTool("again", {"value": 2}),
            ],
            ["thanks ", wait_until_durable, "again"],
        ],
        "summing": [
            ["long ", wait_until_durable, CallTool("again", {"value": 1})],
            [sum_up, wait_until_durable, "short ", wait_until_durable],
            ["end"],
        ],
    }


SCRIPTS = ("talk", "tools", "forks", "clients", "summing")


def answer_to(call: OpenCall) -> Answer:
    """The application's answer to any call."""
    call_id = call.call.call_id
    if call.parked or call.kind == "permission":
        return Decision(call_id=call_id, granted=True)
    if call.kind == "question":
        return Choice(call_id=call_id, selections={"0": [1]})
    return Result(call_id=call_id, content="painted")


class Client:
    """An application: sends one message, answers calls one by one, and reads the stream."""

    def __init__(self, script: str, tools: tuple[ToolSpec, ...] = (PAINT,)) -> None:
        self.script = script
        self.tools = tools
        self.live: LiveSession | None = None
        self.records_seen: list[Record] = []
        self.acknowledged = 0

    async def converse(self, engine: Engine) -> None:
        """Go on where the conversation stands, to its end."""
        if self.live is None:
            self.live = await open_session(engine, client_tools=self.tools)
        else:
            self.live = await reload(engine, self.live)
        live = self.live
        reading = asyncio.create_task(self.read(engine, live))
        try:
            if live.state.last_run is None:
                await send(engine, live, self.script)
                self.acknowledged = max(self.acknowledged, 1)
            await wait_for_end(live)
            while live.state.status() == "waiting":
                await send(engine, live, answer_request(answer_to(next(live.state.waiting_calls()))))
                await wait_for_end(live)
            async with asyncio.timeout(DEADLINE_S):
                while not self.records_seen or cursor_of(self.records_seen[-1]) < live.durable_cursor:  # noqa: ASYNC110  # another task reads
                    await asyncio.sleep(0)
        finally:
            reading.cancel()
            await asyncio.wait([reading])

    async def read(self, engine: Engine, live: LiveSession) -> None:
        """Read from where reading broke off."""
        with engine.follow(live, cursor_of(self.records_seen[-1]) if self.records_seen else START) as reader:
            while True:
                self.records_seen += await reader.next()


class Step(NamedTuple):
    """A finished model step: its text, and each call's tool and result."""

    text: str
    results: list[tuple[str, str]]


class UndisturbedRun(NamedTuple):
    """The result of a script without crashes."""

    commits: int
    steps: list[Step]


async def undisturbed_run(script: str) -> UndisturbedRun:
    async with running_world(SimulatedLog()) as world:
        prepare(world)
        log = FaultyLog(world.store)
        engine = await world.start(log)
        client = Client(script)
        await client.converse(engine)
        assert client.live is not None
        return UndisturbedRun(log.commits, steps_of(await world.history(client.live.state.session_id)))


def steps_of(messages: Sequence[Message]) -> list[Step]:
    """The finished steps, without those that a crash cut off."""
    results = {each.call_id: text_of(each.content) for each in messages if isinstance(each, ToolMessage)}
    return [
        Step(text_of(each.content), [(call.name, results[call.call_id]) for call in each.calls()])
        for each in messages
        if isinstance(each, AssistantMessage) and each.status != "cut"
    ]


async def serve(world: World, client: Client, log: FaultyLog, **options: Any) -> bool:
    """Let an engine serve the client until its conversation ends or the store dies. Returns whether it died."""
    talking = asyncio.create_task(start_and_converse(world, client, log, **options))
    dying = asyncio.create_task(log.died.wait())
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([talking, dying], return_when=asyncio.FIRST_COMPLETED)
    died = not talking.done()
    dying.cancel()
    if died:
        talking.cancel()
        await asyncio.wait([talking])
    else:
        await talking
    for engine in tuple(world.engines):
        await (world.kill if died else world.stop)(engine)
    return died


async def start_and_converse(world: World, client: Client, log: FaultyLog, **options: Any) -> None:
    await client.converse(await world.start(log, **options))


async def check_conversation(world: World, client: Client, expected_run: UndisturbedRun) -> None:
    """Compare what the client saw with the log, and both with the conversation without crashes."""
    assert client.live is not None
    events = await world.events(client.live.state.session_id)
    assert client.records_seen == expand(events), "what was seen was taken back, doubled or left out"
    check_log(events, world.tools)
    check_tool_call_pairing(events)
    steps = steps_of(messages_of(events))
    assert [step.text for step in steps] == [step.text for step in expected_run.steps]
    for step, expected in zip(steps, expected_run.steps, strict=True):
        for (tool, result), undisturbed in zip(step.results, expected.results, strict=True):
            lost = result == INTERRUPTED and tool in ("once", "allowed")
            assert (tool, result) == undisturbed or lost, f"{tool} gave {result}"
    parked = sum(isinstance(each.event, CallParked) for each in events)
    assert world.tools["once"].max_starts_per_call <= 1
    assert world.tools["allowed"].max_starts_per_call <= 1
    assert world.tools["asking"].max_starts_per_call <= 1 + parked
    for context in world.scripted_agent.contexts:
        assert not any(isinstance(each, AssistantMessage) and each.status == "cut" for each in context)


# --- at every commit --------------------------------------------------------------------------------------------------


@requirement("faults:41:every-commit")
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("script", SCRIPTS)
async def test_a_server_that_dies_at_any_commit_loses_nothing_acknowledged(script: str, moment: Moment) -> None:
    plain = await undisturbed_run(script)
    cuts = 0
    for commit in range(1, plain.commits + 1):
        async with running_world(SimulatedLog()) as world:
            prepare(world)
            client = Client(script)
            log = FaultyLog(world.store)
            log.die_at(commit, moment)
            assert await serve(world, client, log)
            await check_records_seen(world, client)
            assert not await serve(world, client, FaultyLog(world.store))
            await check_conversation(world, client, plain)
            cuts += sum(is_cut(record) for record in client.records_seen)
    assert cuts > 0, "no crash fell into a step"


def is_cut(record: Record) -> bool:
    return isinstance(record, LoggedEvent) and isinstance(record.event, MessageClosed) and record.event.status == "cut"


async def check_records_seen(world: World, client: Client) -> None:
    """After the crash, the log contains everything that was acknowledged or seen, as it was seen."""
    if client.live is None:
        return
    session_id = client.live.state.session_id
    events = await world.events(session_id)
    snapshot = await world.store.load(session_id)
    assert snapshot is not None, "an acknowledged session"
    assert len([each for each in messages_of(events) if isinstance(each, UserMessage)]) >= client.acknowledged
    assert expand(events, snapshot.pieces)[: len(client.records_seen)] == client.records_seen


@pytest.mark.parametrize("seed", range(30))
async def test_a_run_finishes_although_its_server_dies_repeatedly(seed: int) -> None:
    chance = random.Random(seed)
    script = SCRIPTS[seed % len(SCRIPTS)]
    plain = await undisturbed_run(script)
    deaths = 0
    async with running_world(SimulatedLog()) as world:
        prepare(world)
        client = Client(script)
        while True:
            log = FaultyLog(world.store)
            log.delay(chance.randrange(3))
            log.die_at(chance.randint(2, 7), chance.choice(["before", "after"]))
            if not await serve(world, client, log, max_attempts=1000):
                break
            deaths += 1
        await check_conversation(world, client, plain)
    assert deaths > 0


@requirement("faults:41:every-commit")
@pytest.mark.parametrize("script", SCRIPTS)
async def test_a_real_database_is_recovered_after_a_crash(script: str, tmp_path: Path) -> None:
    """At every third commit, because each takes a database of its own; the simulated store dies at all of them."""
    plain = await undisturbed_run(script)
    for commit in range(1, plain.commits + 1, 3):
        database = Database(tmp_path / str(commit), synchronous="normal")
        database.start()
        try:
            async with running_world(SqliteLog(database)) as world:
                prepare(world)
                client = Client(script)
                log = FaultyLog(world.store)
                log.die_at(commit, "before" if commit % 2 else "after")
                await serve(world, client, log)
                await check_records_seen(world, client)
                world.store = SqliteLog(database)
                assert not await serve(world, client, FaultyLog(world.store))
                await check_conversation(world, client, plain)
        finally:
            database.close()


# --- what is declared -------------------------------------------------------------------------------------------------


async def crash_in_a_tool(
    world: World, policy: str, agents: dict[str, Agent] | None = None, request: str | Submit = "go"
) -> tuple[Engine, LiveSession, PauseGate]:
    """Let a server die while a tool with that policy runs, and start the next one, if given with other agents."""
    gate = world.pausing_tool("gate", on_restart=policy)
    world.scripts["go"] = [["so ", CallTool("gate")], ["done"]]
    log = FaultyLog(world.store)
    engine = await world.start(log)
    live = await open_session(engine)
    await send(engine, live, request)
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    gate.entered.clear()
    log.is_dead = True
    await world.kill(engine)
    world.agents = world.agents if agents is None else agents
    engine = await world.start()
    return engine, await reload(engine, live), gate


async def test_a_tool_that_fails_on_restart_is_not_started_again(any_world: World) -> None:
    _, live, _ = await crash_in_a_tool(any_world, "fail")
    await wait_for_end(live)
    assert any_world.tools["gate"].max_starts_per_call == 1
    assert texts(await any_world.history(live.state.session_id)) == ["go", "so  gate()", INTERRUPTED, "done"]


async def test_a_tool_that_repeats_on_restart_is_started_again(any_world: World) -> None:
    _, live, gate = await crash_in_a_tool(any_world, "repeat")
    gate.opened.set()
    await wait_for_end(live)
    assert any_world.tools["gate"].started_calls == [any_world.tools["gate"].started_calls[0]] * 2, "the same call"
    assert texts(await any_world.history(live.state.session_id)) == ["go", "so  gate()", "through", "done"]


@pytest.mark.parametrize("granted", [True, False])
async def test_a_tool_that_asks_on_restart_waits_for_the_users_decision(any_world: World, granted: bool) -> None:
    engine, live, gate = await crash_in_a_tool(any_world, "ask")
    gate.opened.set()
    await wait_for_end(live)
    assert (waiting_tools(live.state), live.state.status()) == (["gate"], "waiting")
    assert any_world.tools["gate"].max_starts_per_call == 1
    engine = await any_world.restart(engine)
    live = await reload(engine, live)
    (call,) = live.state.waiting_calls()
    assert call.is_repeat
    await play(engine, live, answer_request(Decision(call_id=call.call.call_id, granted=granted, remember=True)))
    assert live.state.settings.trusted_tools == ()
    assert any_world.tools["gate"].max_starts_per_call == 1 + granted
    result = "through" if granted else "Tool call denied"
    assert texts(await any_world.history(live.state.session_id)) == ["go", "so  gate()", result, "done"]


async def test_where_nobody_can_be_asked_a_call_that_a_crash_interrupted_does_not_run_again(any_world: World) -> None:
    message = (UserInput(content="go"),)
    headless = Submit(protocol="test", messages=message, metadata=RunMetadata(headless=True))
    _, live, _ = await crash_in_a_tool(any_world, "ask", request=headless)
    await wait_for_end(live)
    assert any_world.tools["gate"].max_starts_per_call == 1
    assert texts(await any_world.history(live.state.session_id)) == ["go", "so  gate()", INTERRUPTED, "done"]


async def test_an_approval_counts_once_and_a_repeated_one_after_a_crash_runs_nothing(any_world: World) -> None:
    gate = any_world.pausing_tool("pay", needs_approval=True, on_restart="ask")
    any_world.echo("again", on_restart="repeat", needs_approval=True)
    any_world.scripts["go"] = [["so ", CallTool("pay"), CallTool("again", {"value": 1})], ["done"]]
    log = FaultyLog(any_world.store)
    engine = await any_world.start(log)
    live = await open_session(engine)
    await play(engine, live, "go")
    assert not any(call.is_repeat for call in live.state.waiting_calls())
    approval = answer_request(*(answer_to(call) for call in live.state.waiting_calls()))
    await send(engine, live, approval)
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    gate.entered.clear()
    log.is_dead = True
    await any_world.kill(engine)
    gate.opened.set()
    for asked in range(2):  # it is asked again, also when the next server stops
        engine = await any_world.start()
        live = await reload(engine, live)
        await wait_for_end(live)
        assert waiting_tools(live.state) == ["pay"]
        with pytest.raises(CallAlreadySettled):
            await send(engine, live, approval)
        assert any_world.tools["pay"].max_starts_per_call == 1
        assert len(any_world.tools["pay"].started_calls) == 1, f"started without permission after crash {asked}"
        await any_world.stop(engine)
    engine = await any_world.start()
    live = await reload(engine, live)
    (call,) = live.state.waiting_calls()
    assert call.is_repeat
    await play(engine, live, answer_request(Decision(call_id=call.call.call_id, granted=True, remember=True)))
    assert live.state.settings.trusted_tools == (), "who allows a repeat allows no later calls"
    assert len(set(any_world.tools["pay"].started_calls)) == 2
    assert texts(await any_world.history(live.state.session_id)) == [
        "go",
        "so  pay() again()",
        "1",
        INTERRUPTED,
        "pay()",
        "through",
        "done",
    ]
    check_tool_call_pairing(await any_world.events(live.state.session_id))


@pytest.mark.one_server
@pytest.mark.parametrize("is_served_again", [True, False])
async def test_a_run_whose_agent_is_not_served_waits_for_it_and_can_be_stopped(
    any_world: World, is_served_again: bool
) -> None:
    engine, live, gate = await crash_in_a_tool(any_world, "repeat", agents={})
    for _ in range(2):
        assert (live.state.status(), engine.waiting_run_count) == ("running", 1)
        with pytest.raises(AgentNotServed):
            await send(engine, live, "and now?")
        engine = await any_world.restart(engine)
        live = await reload(engine, live)
    gate.opened.set()
    if is_served_again:
        await any_world.stop(engine)
        any_world.agents = {"player": any_world.scripted_agent}
        engine = await any_world.start()
        live = await reload(engine, live)
        await wait_for_end(live)
    else:
        assert await engine.stop_run(live)
    assert engine.waiting_run_count == 0
    ends = reasons(await any_world.events(live.state.session_id))
    assert ends == (["end_turn"] if is_served_again else ["cancelled"])


async def test_a_call_of_a_tool_that_no_longer_exists_fails_as_interrupted(any_world: World) -> None:
    gate = any_world.pausing_tool("gate", on_restart="repeat")
    any_world.scripts["go"] = [["so ", CallTool("gate")], ["done"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    await gate.entered.wait()
    await any_world.stop(engine)
    del any_world.tools["gate"]
    engine = await any_world.start()
    live = await reload(engine, live)
    await wait_for_end(live)
    assert texts(await any_world.history(live.state.session_id)) == ["go", "so  gate()", INTERRUPTED, "done"]


# --- runs that are given up -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cannot resume", "died too often"])
async def test_a_run_that_cannot_continue_ends_as_interrupted_and_leaves_no_call_open(
    any_world: World, how: str
) -> None:
    gate = any_world.pausing_tool("gate", on_restart="repeat")
    any_world.scripts |= {
        "below": [["deep ", wait_until_durable, CallTool("gate")]],
        "go": [["top ", fork("below"), CallTool("gate")], ["never"]],
    }
    log = FaultyLog(any_world.store)
    engine = await any_world.start(log)
    live = await open_session(engine)
    await send(engine, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
        while sum(call.started for call in live.state.calls.values()) < 2:
            await live.next_commit()
    log.is_dead = True
    await any_world.kill(engine)
    if how == "cannot resume":
        any_world.scripted_agent.spec_fields["can_resume"] = False
    engine = await any_world.start(max_attempts=1 if how == "died too often" else 5)
    live = await reload(engine, live)
    await wait_for_end(live)
    events = await any_world.events(live.state.session_id)
    assert reasons(events) == ["interrupted"]
    assert live.state.calls == {}, "calls that nobody will ever answer"
    check_tool_call_pairing(events)
    assert texts(messages_of(events))[2:] == [INTERRUPTED, INTERRUPTED]


async def test_an_abandoned_run_keeps_the_calls_that_the_user_can_answer(any_world: World) -> None:
    gate = any_world.pausing_tool("gate", on_restart="repeat")
    any_world.scripts |= {"below": [[ask_user("a", "b")], ["up"]], "go": [[fork("below"), CallTool("gate")], ["end"]]}
    log = FaultyLog(any_world.store)
    engine = await any_world.start(log)
    live = await open_session(engine)
    await send(engine, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
        while waiting_tools(live.state) != ["AskUserQuestion"]:
            await live.next_commit()
        await live.until_durable(live.state.seq)
    log.is_dead = True
    await any_world.kill(engine)
    engine = await any_world.start(max_attempts=1)
    live = await reload(engine, live)
    await wait_for_end(live)
    assert (reasons(await any_world.events(live.state.session_id)), live.state.status()) == (["interrupted"], "waiting")
    (call,) = live.state.waiting_calls()
    await play(engine, live, answer_request(Choice(call_id=call.call.call_id, selections={"0": [0]})))
    assert (live.state.last_stop, live.state.calls) == ("end_turn", {})
    assert texts(await any_world.history(live.state.session_id))[-1] == "end"


async def test_a_question_is_answerable_after_a_hundred_restarts(world: World) -> None:
    world.scripts["go"] = [[ask_user("a", "b")], ["thanks"]]
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    before = await world.events(live.state.session_id)
    for restart in range(100):
        world.clock.move(86400)
        if restart % 2:
            engine = await world.restart(engine)
        else:
            await world.kill(engine)
            engine = await world.start()
    live = await reload(engine, live)
    assert await world.events(live.state.session_id) == before, "waiting costs nothing"
    (call,) = live.state.waiting_calls()
    await play(engine, live, answer_request(Choice(call_id=call.call.call_id, selections={"0": [0]})))
    assert texts(await world.history(live.state.session_id))[-1] == "thanks"


async def test_a_queued_run_starts_after_a_crash(any_world: World) -> None:
    gate = any_world.pausing_tool("gate")
    any_world.scripts["go"] = [["one ", wait_until_durable, gate, "two"]]
    log = FaultyLog(any_world.store)
    engine = await any_world.start(log)
    live = await open_session(engine)
    await send(engine, live, "go")
    await send(engine, live, "later", "queue")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    log.is_dead = True
    await any_world.kill(engine)
    gate.opened.set()
    engine = await any_world.start()
    live = await reload(engine, live)
    await wait_for_end(live)
    assert texts(await any_world.history(live.state.session_id)) == [
        "go",
        "one ",
        "one two",
        "later",
        "You said: later",
    ]
