"""The limits of a run count what it did before a crash."""

import asyncio

from dragoman.core.content import text_of
from dragoman.core.events import CallSettled, LoggedEvent, MessageClosed
from dragoman.core.ids import ROOT
from dragoman.core.run_metadata import RunMetadata
from dragoman.engine.sessions.live_session import LiveSession
from tests.engine.faulty_log import FaultyLog
from tests.engine.world import (
    DEADLINE_S,
    CallTool,
    PauseGate,
    Script,
    World,
    fork,
    open_session,
    reasons,
    reload,
    send,
    user_request,
    wait_for_end,
)


async def events_after_a_crash(world: World, go: Script, metadata: RunMetadata | None = None) -> list[LoggedEvent]:
    """Play a script, let its server die while the tool `gate` runs, and let the next server finish it."""
    world.echo()
    gate = world.pausing_tool("gate", on_restart="repeat")
    world.scripts["go"] = go
    log = FaultyLog(world.store)
    engine = await world.start(log)
    live: LiveSession = await open_session(engine)
    await send(engine, live, user_request("go") if metadata is None else user_request("go", metadata=metadata))
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    log.is_dead = True
    await world.kill(engine)
    gate.opened.set()
    engine = await world.start()
    live = await reload(engine, live)
    await wait_for_end(live)
    return await world.events(live.state.session_id)


ECHO, GATE = CallTool("echo", {"value": 1}), CallTool("gate")


async def test_the_steps_before_a_crash_count_against_the_limit_of_steps(any_world: World) -> None:
    any_world.scripted_agent.spec_fields["max_steps"] = 4
    events = await events_after_a_crash(any_world, [[ECHO], [GATE], *[[ECHO]] * 10])
    assert reasons(events) == ["max_steps"]
    closed = [each.event for each in events if isinstance(each.event, MessageClosed)]
    assert sum(each.status == "completed" for each in closed) == 4


async def test_a_step_that_a_crash_cut_off_counts_once(any_world: World) -> None:
    any_world.echo()
    any_world.scripted_agent.spec_fields["max_steps"] = 2
    gate = PauseGate()
    any_world.scripts["go"] = [["half ", gate, ECHO], ["done"]]
    log = FaultyLog(any_world.store)
    engine = await any_world.start(log)
    live = await open_session(engine)
    await send(engine, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
        await live.until_durable(live.state.seq)
    log.is_dead = True
    await any_world.kill(engine)
    gate.opened.set()
    engine = await any_world.start()
    live = await reload(engine, live)
    await wait_for_end(live)
    events = await any_world.events(live.state.session_id)
    closed = [each.event.status for each in events if isinstance(each.event, MessageClosed)]
    assert (closed, reasons(events)) == (["cut", "completed", "completed"], ["end_turn"])


async def test_the_steps_of_a_sub_agent_before_a_crash_count_against_its_limit(any_world: World) -> None:
    any_world.scripted_agent.spec_fields["max_steps"] = 3
    any_world.scripts["below"] = [[ECHO], [GATE], *[[ECHO]] * 10]
    events = await events_after_a_crash(any_world, [[fork("below")], ["sorry"]])
    assert reasons(events) == ["end_turn"]
    settled = [each.event.result for each in events if isinstance(each.event, CallSettled)]
    (failed,) = (each for each in settled if each.loop == ROOT)
    assert text_of(failed.content) == "Tool execution failed: the run reached its limit of 3 steps"


async def test_the_calls_before_a_crash_count_against_the_limit_of_calls(any_world: World) -> None:
    script: Script = [[ECHO], [GATE], [ECHO], ["done"]]
    events = await events_after_a_crash(any_world, script, RunMetadata(max_calls=2))
    outcomes = [each.event.outcome for each in events if isinstance(each.event, CallSettled)]
    assert (outcomes, reasons(events)) == (["done", "done", "failed"], ["end_turn"])
