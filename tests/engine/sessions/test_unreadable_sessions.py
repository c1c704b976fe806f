"""Damaged stored data fails the session that it belongs to, and no other."""

import asyncio

import pytest
from structlog.testing import capture_logs

from dragoman.core.ids import UserId
from dragoman.core.refusals import SessionNotFound, SessionUnreadable
from dragoman.engine.engine import Engine
from dragoman.engine.expiry import ExpiredSessions
from dragoman.engine.instrumentation.metrics import SESSIONS_UNREADABLE
from dragoman.engine.sessions.live_session import LiveSession
from tests.engine.world import ANN, DEADLINE_S, World, open_session, play, reasons, reload, send
from tests.stores.simulated import SimulatedLog


def damage(world: World, live: LiveSession, seq: int | None = None) -> None:
    store = world.store
    assert isinstance(store, SimulatedLog)
    store.damage(live.state.session_id, seq)


async def listed(engine: Engine) -> set[str]:
    page, recent = await engine.page(ANN, None, 10), await engine.recent(ANN, "", 0, 10)
    assert {state.session_id for state in page} == {state.session_id for state in recent.states}
    return {state.session_id for state in page}


async def test_a_damaged_session_is_refused_left_out_of_lists_and_can_be_deleted(world: World) -> None:
    world.scripts["go"] = [["said"]]
    engine = await world.start()
    damaged, intact = await open_session(engine), await open_session(engine)
    await play(engine, damaged, "go")
    damage(world, damaged)
    engine = await world.restart(engine)

    assert await listed(engine) == {intact.state.session_id}
    before = SESSIONS_UNREADABLE.value
    with capture_logs() as logs, pytest.raises(SessionUnreadable):
        await reload(engine, damaged)
    assert SESSIONS_UNREADABLE.value == before + 1
    assert [(each["event"], each["session_id"]) for each in logs] == [
        ("session cannot be read", damaged.state.session_id)
    ]
    await play(engine, await reload(engine, intact), "go")

    bob = UserId("bob")
    with pytest.raises(SessionNotFound):
        await engine.find_session(bob, damaged.state.session_id)
    with pytest.raises(SessionNotFound):
        await engine.delete_by_name(bob, damaged.state.session_id)
    assert await engine.exists_for_other_owner(bob, damaged.state.session_id)
    await engine.delete_by_name(ANN, damaged.state.session_id)
    with pytest.raises(SessionNotFound):
        await reload(engine, damaged)


async def test_retention_keeps_and_logs_a_damaged_session_and_deletes_the_newer_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.engine.expiry.BATCH", 1)
    monkeypatch.setattr("dragoman.engine.expiry.RETENTION_PAUSE_S", 0)
    engine = await world.start()
    damaged, intact = await open_session(engine), await open_session(engine)
    damage(world, damaged)
    engine = await world.restart(engine)
    world.clock.move(2 * 86400)
    with capture_logs() as logs:
        await ExpiredSessions(engine, 1).enforce_retention()
    assert await world.store.find_owner(intact.state.session_id) is None
    assert await world.store.find_owner(damaged.state.session_id) == ANN
    kept = [each["session_id"] for each in logs if each["event"].startswith("old session kept")]
    assert kept == [damaged.state.session_id]


async def test_a_run_that_cannot_be_resumed_keeps_no_other_from_being_resumed(world: World) -> None:
    gate = world.pausing_tool("gate")
    world.scripts["go"] = [["one", gate, "two"]]
    world.scripts["again"] = [["one", "two"]]
    engine = await world.start()
    damaged, intact = await open_session(engine), await open_session(engine)
    for live in (damaged, intact):
        await send(engine, live, "go")
    await world.stop(engine)
    damage(world, damaged, 3)
    gate.opened.set()
    engine = await world.start()
    with pytest.raises(SessionUnreadable):
        await reload(engine, damaged)
    resumed = await reload(engine, intact)
    async with asyncio.timeout(DEADLINE_S):
        while resumed.state.run is not None:
            await resumed.next_commit()
    assert len(reasons(await world.events(intact.state.session_id))) == 1
    await engine.delete_by_name(ANN, damaged.state.session_id)
