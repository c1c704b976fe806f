"""How often a run is taken up again after crashes."""

import asyncio

from dragoman.core.events import RunResumed
from dragoman.engine.sessions.live_session import LiveSession
from tests.engine.faulty_log import FaultyLog
from tests.engine.world import (
    DEADLINE_S,
    CallTool,
    World,
    open_session,
    reasons,
    reload,
    send,
    texts,
    wait_for_end,
)


async def test_a_run_is_recovered_up_to_the_limit_of_attempts(any_world: World) -> None:
    gate = any_world.pausing_tool("gate", on_restart="repeat")
    any_world.scripts["go"] = [[CallTool("gate")]]
    live: LiveSession | None = None
    for attempt in range(1, 4):
        log = FaultyLog(any_world.store)
        engine = await any_world.start(log, max_attempts=3)
        if live is None:
            live = await open_session(engine)
            await send(engine, live, "go")
        async with asyncio.timeout(DEADLINE_S):
            await gate.entered.wait()
        gate.entered.clear()
        live = await reload(engine, live)
        assert live.state.run is not None
        assert live.state.run.attempt == attempt
        log.is_dead = True
        await any_world.kill(engine)
    assert live is not None
    engine = await any_world.start(max_attempts=3)
    live = await reload(engine, live)
    await wait_for_end(live)
    events = await any_world.events(live.state.session_id)
    assert reasons(events) == ["interrupted"]
    assert [each.event.attempt for each in events if isinstance(each.event, RunResumed)] == [2, 3]


async def test_crashes_before_the_last_finished_call_do_not_count(any_world: World) -> None:
    """A long run is not given up because of crashes that it has left behind."""
    gates = [any_world.pausing_tool(name, on_restart="repeat") for name in ("first", "second", "third")]
    any_world.scripts["go"] = [*[[CallTool(name)] for name in ("first", "second", "third")], ["done"]]
    live: LiveSession | None = None
    for gate in gates:
        log = FaultyLog(any_world.store)
        engine = await any_world.start(log, max_attempts=2)
        live = await reload(engine, live) if live else await open_session(engine)
        if gate is gates[0]:
            await send(engine, live, "go")
        async with asyncio.timeout(DEADLINE_S):
            await gate.entered.wait()
        log.is_dead = True
        await any_world.kill(engine)
        gate.opened.set()
    assert live is not None
    engine = await any_world.start(max_attempts=2)
    live = await reload(engine, live)
    await wait_for_end(live)
    assert reasons(await any_world.events(live.state.session_id)) == ["end_turn"]
    assert texts(await any_world.history(live.state.session_id))[-1] == "done"


async def test_a_graceful_restart_does_not_count_as_an_attempt(any_world: World) -> None:
    gate = any_world.pausing_tool("gate", on_restart="repeat")
    any_world.scripts["go"] = [[CallTool("gate")], ["done"]]
    engine = await any_world.start(max_attempts=2)
    live = await open_session(engine)
    await send(engine, live, "go")
    for _ in range(5):
        async with asyncio.timeout(DEADLINE_S):
            await gate.entered.wait()
        gate.entered.clear()
        engine = await any_world.restart(engine, max_attempts=2)
        live = await reload(engine, live)
    gate.opened.set()
    await wait_for_end(live)
    events = await any_world.events(live.state.session_id)
    assert reasons(events) == ["end_turn"]
    assert {each.event.attempt for each in events if isinstance(each.event, RunResumed)} == {1}
