"""Stopping runs: at every moment, simultaneously, and with agents and tools that ignore their cancellation."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dragoman.core.agent import Run
from dragoman.core.content import AssistantMessage, Data, Image, JsonObject
from dragoman.core.events import CallSettled, LoggedEvent, PlanUpdated
from dragoman.core.history import messages_of
from dragoman.core.stream import expand
from dragoman.engine.engine import Engine
from dragoman.engine.runs import runner as runs_module
from dragoman.engine.sessions.live_session import LiveSession
from tests.engine.log_checker import check_tool_call_pairing
from tests.engine.world import (
    DEADLINE_S,
    CallTool,
    PauseGate,
    World,
    ask_user,
    fork,
    open_session,
    play,
    read,
    read_all,
    reasons,
    send,
    texts,
    user_request,
    wait_for_end,
    wait_until_durable,
    waiting_tools,
)

STOPPED = "Tool call cancelled while it ran: the run was stopped"


@pytest.fixture
def short_cancel_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time that a stopped agent has to end."""
    monkeypatch.setattr(runs_module, "STOP_TIMEOUT_S", 0.05)


async def stop(engine: Engine, live: LiveSession) -> bool:
    async with asyncio.timeout(DEADLINE_S):
        return await engine.stop_run(live)


async def wait_until_gate_entered(gate: PauseGate) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()


def outcomes(events: list[LoggedEvent]) -> list[str]:
    return [each.event.outcome for each in events if isinstance(each.event, CallSettled)]


# --- at every moment --------------------------------------------------------------------------------------------------


@pytest.mark.one_server
async def test_a_run_that_is_stopped_before_its_first_event_ends_as_cancelled(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    reading = asyncio.create_task(read(engine, live))
    await asyncio.sleep(0)
    submitted = await engine.start_run(live, user_request("hello"), by=live.state.owner)
    assert live.run_task is not None
    assert await stop(engine, live)
    assert reasons(await reading) == ["cancelled"]
    assert texts(await any_world.history(live.state.session_id)) == ["hello"], "it never said a word"
    assert live.state.last_run == submitted.run_id
    await play(engine, live, "again")
    assert texts(await any_world.history(live.state.session_id))[1:] == ["again", "You said: again"]


async def test_text_remains_as_it_was_when_the_run_was_stopped(any_world: World) -> None:
    gate = any_world.pausing_tool("gate")
    any_world.scripts["go"] = [["one ", wait_until_durable, "two ", gate, "three"]]
    engine = await any_world.start()
    live = await open_session(engine)
    readings = [asyncio.create_task(read(engine, live)) for _ in range(3)]
    await send(engine, live, "go")
    await wait_until_gate_entered(gate)
    assert await stop(engine, live)
    assert gate.cancelled.is_set()
    streams = [await reading for reading in readings]
    assert streams[0] == streams[1] == streams[2] == await read_all(engine, live)
    assert reasons(streams[0]) == ["cancelled"]
    answer = (await any_world.history(live.state.session_id))[-1]
    assert isinstance(answer, AssistantMessage)
    assert (texts([answer]), answer.status) == (["one two "], "interrupted")


async def test_tools_are_cancelled_and_every_call_has_a_result(any_world: World) -> None:
    gate = any_world.pausing_tool("gate")
    any_world.echo()
    any_world.scripts["go"] = [[CallTool("gate"), CallTool("echo", {"value": 1}), CallTool("gate")], ["never"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    await wait_until_gate_entered(gate)
    while not live.state.calls or len(live.state.calls) > 2:
        await live.next_commit()
    assert await stop(engine, live)
    assert gate.cancelled.is_set()
    events = await any_world.events(live.state.session_id)
    check_tool_call_pairing(events)
    assert outcomes(events) == ["done", "cancelled", "cancelled"]
    assert texts(messages_of(events)).count(STOPPED) == 2
    await play(engine, live, "again")
    assert live.state.last_stop == "end_turn"


async def test_sub_agents_stop_with_their_parents(any_world: World) -> None:
    gate = any_world.pausing_tool("gate")
    any_world.scripts |= {
        "deepest": [["deep ", wait_until_durable, gate, "never"]],
        "below": [["middle ", fork("deepest")], ["never"]],
        "go": [["top ", fork("below"), fork("deepest")], ["never"]],
    }
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    await wait_until_gate_entered(gate)
    while len(live.state.open_messages) < 2:
        await live.next_commit()
    assert await stop(engine, live)
    events = await any_world.events(live.state.session_id)
    check_tool_call_pairing(events)
    assert outcomes(events) == ["cancelled"] * 3
    assert reasons(events) == ["cancelled"]
    assert (live.state.calls, live.state.open_messages) == ({}, {})
    said = [message for message in messages_of(events, None) if isinstance(message, AssistantMessage)]
    assert sorted((*texts([message]), message.status) for message in said) == [
        ("deep ", "interrupted"),
        ("deep ", "interrupted"),
        ("middle  Agent()", "completed"),
        ("top  Agent() Agent()", "completed"),
    ]


async def test_a_stop_while_calls_wait_settles_them(any_world: World) -> None:
    any_world.echo(needs_approval=True)
    any_world.scripts |= {
        "below": [[ask_user("a", "b")]],
        "go": [[fork("below"), CallTool("echo", {"value": 1})], ["never"]],
    }
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    assert (waiting_tools(live.state), live.state.status()) == (["echo", "AskUserQuestion"], "waiting")
    assert await stop(engine, live)
    assert (live.state.calls, live.state.status()) == ({}, "idle")
    events = await any_world.events(live.state.session_id)
    assert reasons(events) == ["tool_use"], "the run had ended before"
    check_tool_call_pairing(events)
    assert not await stop(engine, live), "there is nothing more to stop"


async def test_only_the_run_that_left_waiting_calls_cancels_them(any_world: World) -> None:
    any_world.scripts["go"] = [[ask_user("here", "there")], ["done"]]
    engine = await any_world.start()
    live = await open_session(engine)
    first, second = [(await play(engine, live, "go")).run_id for _ in range(2)]
    assert first is not None
    assert second is not None
    assert not await engine.cancel_waiting_calls(live, first)
    assert live.state.status() == "waiting"
    assert await engine.cancel_waiting_calls(live, second)
    assert live.state.status() == "idle"


@pytest.mark.one_server
async def test_many_simultaneous_stops_have_one_outcome(any_world: World) -> None:
    gate = any_world.pausing_tool("gate")
    any_world.scripts["go"] = [[CallTool("gate")]]
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    await wait_until_gate_entered(gate)
    assert await asyncio.gather(*(stop(engine, live) for _ in range(10))) == [True] * 10
    assert not await stop(engine, live)
    events = await any_world.events(live.state.session_id)
    assert (reasons(events), outcomes(events)) == (["cancelled"], ["cancelled"])


async def test_a_stop_after_the_end_does_nothing(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    submitted = await play(engine, live, "hello")
    before = await any_world.events(live.state.session_id)
    assert not await stop(engine, live)
    assert not await engine.stop_run(live, submitted.run_id)
    assert await any_world.events(live.state.session_id) == before


@pytest.mark.parametrize("moment", range(40))
async def test_a_stop_at_any_moment_leaves_a_complete_log(world: World, moment: int) -> None:
    """Stop after a number of event loop iterations; the log checker verifies the log at the end."""
    world.echo()
    world.echo("asked", needs_approval=True)
    world.scripts |= {
        "below": [["deep ", CallTool("echo", {"value": 2})], ["deeper"]],
        "go": [
            ["one ", CallTool("echo", {"value": 1}), fork("below")],
            ["two ", wait_until_durable, "three", CallTool("echo", {"value": 3})],
            ["four"],
        ],
    }
    engine = await world.start()
    live = await open_session(engine)
    reading = asyncio.create_task(read(engine, live))
    await engine.start_run(live, user_request("go"), by=live.state.owner)
    for _ in range(moment * 3):
        await asyncio.sleep(0)
    stopped, again = await asyncio.gather(stop(engine, live), stop(engine, live))
    await wait_for_end(live)
    assert reasons(await reading) == (["cancelled"] if stopped else ["end_turn"])
    assert again == stopped
    assert expand(await world.events(live.state.session_id)) == await reading
    check_tool_call_pairing(await world.events(live.state.session_id))


async def test_a_queued_run_can_be_stopped_by_itself(any_world: World) -> None:
    gate = any_world.pausing_tool("gate")
    any_world.scripts["go"] = [[gate, "said"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    first = await send(engine, live, "one", "queue")
    second = await send(engine, live, "two", "queue")
    assert await engine.stop_run(live, first.run_id)
    gate.opened.set()
    await wait_for_end(live, second.run_id)
    assert texts(await any_world.history(live.state.session_id)) == ["go", "said", "two", "You said: two"]
    assert reasons(await any_world.events(live.state.session_id)) == ["cancelled", "end_turn", "end_turn"]


async def test_a_stop_ends_the_active_run_and_all_queued_runs(any_world: World) -> None:
    gate = any_world.pausing_tool("gate")
    any_world.scripts["go"] = [[gate, "said"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    await send(engine, live, "one", "queue")
    await send(engine, live, "two", "queue")
    await wait_until_gate_entered(gate)
    assert await stop(engine, live)
    assert live.state.status() == "idle"
    assert texts(await any_world.history(live.state.session_id)) == ["go"]
    assert reasons(await any_world.events(live.state.session_id)) == ["cancelled"] * 3


# --- who does not let himself be stopped ------------------------------------------------------------------------------


def stubborn(gate: PauseGate, released: asyncio.Event) -> Callable[[Run], Awaitable[None]]:
    """Waits before a gate and, when cancelled there, until `held` is set."""

    async def wait(run: Run) -> None:
        try:
            await gate(run)
        except asyncio.CancelledError:
            await released.wait()

    return wait


async def test_a_run_counts_as_stopped_although_its_agent_swallows_the_cancellation(any_world: World) -> None:
    gate, at_once = PauseGate(), asyncio.Event()
    at_once.set()
    any_world.scripts["go"] = [["one ", wait_until_durable, stubborn(gate, at_once), "two"], ["three"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    await wait_until_gate_entered(gate)
    assert await stop(engine, live)
    assert reasons(await any_world.events(live.state.session_id)) == ["cancelled"]


async def go_on_talking(run: Run) -> None:
    run.emit("zombie")
    run.think("zombie")


async def go_on_adding(run: Run) -> None:
    run.add(Image("https://example.org/zombie.png"))


async def go_on_calling(run: Run) -> None:
    run.call("echo", {"value": "zombie"})
    await run.end_step()


async def go_on_planning(run: Run) -> None:
    run.plan(PlanUpdated(status="draft", steps=()))


async def go_on_showing(run: Run) -> None:
    run.card({"zombie": True})


async def go_on_stepping(run: Run) -> None:
    await run.end_step()
    run.add(Data({"zombie": True}))


async def keep_compacting(run: Run) -> None:
    messages = await run.context(10)
    await run.compact("zombie", messages[-1].id, tokens_before=1, tokens_after=1)


ZOMBIES = [
    go_on_talking,
    go_on_adding,
    go_on_calling,
    go_on_planning,
    go_on_showing,
    go_on_stepping,
    keep_compacting,
]


@pytest.mark.usefixtures("short_cancel_grace")
@pytest.mark.parametrize("again", [True, False], ids=["beside the next run", "alone"])
@pytest.mark.parametrize("zombie", ZOMBIES)
async def test_an_agent_that_continues_after_the_end_of_its_run_writes_nothing(
    world: World, zombie: Callable[[Run], Awaitable[None]], again: bool
) -> None:
    gate, held, next_gate = PauseGate(), asyncio.Event(), PauseGate()
    world.echo()
    world.scripts["go"] = [["one ", wait_until_durable, stubborn(gate, held), zombie, zombie]]
    world.scripts["next"] = [["new ", wait_until_durable, next_gate, "words"]]
    engine = await world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    await wait_until_gate_entered(gate)
    task = live.run_task
    assert task is not None
    assert await stop(engine, live), "the run ended over it"
    if again:
        await send(engine, live, "next")
        await wait_until_gate_entered(next_gate)
    held.set()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([task])
    next_gate.opened.set()
    await wait_for_end(live)
    history = await world.history(live.state.session_id)
    assert texts(history) == ["go", "one ", *(["next", "new words"] if again else [])]
    assert reasons(await world.events(live.state.session_id)) == ["cancelled", *(["end_turn"] if again else [])]
    assert live.state.compaction is None
    assert engine.running_sessions() == []


@pytest.mark.usefixtures("short_cancel_grace")
@pytest.mark.parametrize("again", [True, False], ids=["beside the next run", "alone"])
@pytest.mark.one_server
async def test_a_tool_that_continues_after_the_end_of_its_run_gives_no_second_result(
    any_world: World, again: bool
) -> None:
    gate, held, next_gate = PauseGate(), asyncio.Event(), PauseGate()

    async def stubborn_tool(arguments: JsonObject) -> str:
        try:
            await gate()
        except asyncio.CancelledError:
            await held.wait()
        return "zombie"

    any_world.tool("stubborn", stubborn_tool)
    any_world.scripts["go"] = [[CallTool("stubborn")], ["never"]]
    any_world.scripts["next"] = [["new ", wait_until_durable, next_gate, "words"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    await wait_until_gate_entered(gate)
    task = live.run_task
    assert task is not None
    assert await stop(engine, live)
    if again:
        await send(engine, live, "next")
        await wait_until_gate_entered(next_gate)
    held.set()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([task])
    next_gate.opened.set()
    await wait_for_end(live)
    events = await any_world.events(live.state.session_id)
    assert outcomes(events) == ["cancelled"]
    assert reasons(events) == ["cancelled", *(["end_turn"] if again else [])]
    after = ["next", "new words"] if again else []
    assert texts(messages_of(events)) == ["go", "stubborn()", STOPPED, *after]


@pytest.mark.usefixtures("short_cancel_grace")
async def test_a_queued_run_starts_once_when_the_previous_one_ignored_its_cancellation(world: World) -> None:
    gate, held = PauseGate(), asyncio.Event()
    world.scripts["go"] = [["one ", stubborn(gate, held), "two"]]
    engine = await world.start()
    live = await open_session(engine)
    active = await send(engine, live, "go")
    await wait_until_gate_entered(gate)
    queued = await send(engine, live, "queued", "queue")
    task = live.run_task
    assert task is not None
    async with asyncio.timeout(DEADLINE_S):
        assert await engine.stop_run(live, active.run_id)
    held.set()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([task])
    await wait_for_end(live, queued.run_id)
    assert texts(await world.history(live.state.session_id)) == ["go", "one ", "queued", "You said: queued"]
    assert reasons(await world.events(live.state.session_id)) == ["cancelled", "end_turn"]


@pytest.mark.usefixtures("short_cancel_grace")
@pytest.mark.one_server
async def test_an_agent_that_never_ends_does_not_prevent_the_engine_from_closing(any_world: World) -> None:
    async def talk(run: Run) -> None:
        while True:
            try:
                while True:
                    run.emit("bla ")
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                pass
            if over.is_set():
                return

    over = asyncio.Event()
    any_world.scripts["go"] = [[talk]]
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    task = live.run_task
    assert task is not None
    try:
        await any_world.stop(engine)
    finally:
        over.set()
        task.cancel()
        await asyncio.wait([task])
