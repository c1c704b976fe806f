"""Sessions that are unlisted, and sessions that end with their answer, or some time after it."""

import asyncio

import pytest

from dragoman.core.events import Lifetime, SettingsChange
from dragoman.core.ids import SessionId, UserId
from dragoman.core.inputs import Create, Decision, Result
from dragoman.core.refusals import SessionNotFound
from dragoman.core.tools import ToolSpec
from dragoman.engine.engine import Engine
from dragoman.engine.expiry import CLUSTER_GRACE_S, ExpiredSessions
from dragoman.engine.sessions.live_session import LiveSession, to_live_session
from tests.engine.faulty_log import FaultyLog
from tests.engine.world import (
    ANN,
    DEADLINE_S,
    CallTool,
    PauseGate,
    World,
    answer_request,
    open_session,
    play,
    reasons,
    send,
    user_request,
    wait_for_end,
)

EPHEMERAL = Lifetime(idle_s=0, waiting_s=3600)
KEPT = Lifetime(idle_s=86400, waiting_s=86400)
HOUR_S = 3600.0 + CLUSTER_GRACE_S
ASK = ToolSpec(name="ask", description="", parameters={"type": "object"})


async def open_unlisted(engine: Engine, lifetime: Lifetime, **fields: object) -> LiveSession:
    return await open_session(engine, change=SettingsChange(unlisted=True, lifetime=lifetime), **fields)


async def listed(engine: Engine) -> list[SessionId]:
    recent = await engine.recent(ANN, "", 0, 10)
    paged = [state.session_id for state in await engine.page(ANN, None, 10)]
    assert sorted(paged) == sorted(state.session_id for state in recent.states)
    return paged


async def is_there(engine: Engine, live: LiveSession) -> bool:
    try:
        await engine.find_session(ANN, live.state.session_id)
    except SessionNotFound:
        return False
    return True


async def wait_until_gone(engine: Engine, live: LiveSession) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await is_there(engine, live):  # noqa: ASYNC110  # nobody is told of the end of an unlisted session
            await asyncio.sleep(0)


async def test_an_unlisted_session_is_listed_once_other_input_arrives(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_unlisted(engine, KEPT)
    await play(engine, live, user_request("hi", keeps_unlisted=True))
    assert await listed(engine) == []
    await play(engine, live, "again")
    assert await listed(engine) == [live.state.session_id]
    assert live.state.expires_at() is None, "a listed session is kept"


async def test_a_session_can_be_listed_while_its_run_is_active(world: World) -> None:
    gate = PauseGate()
    world.scripts["wait"] = [[gate]]
    engine = await world.start()
    live = await open_unlisted(engine, KEPT)
    await send(engine, live, user_request("wait", keeps_unlisted=True))
    await gate.entered.wait()
    await engine.change(live, SettingsChange(unlisted=False))
    gate.opened.set()
    await wait_for_end(live)
    assert await listed(engine) == [live.state.session_id]
    assert not live.state.settings.unlisted


async def test_an_ephemeral_session_is_deleted_after_its_answer_and_never_listed(any_world: World) -> None:
    engine = await any_world.start()
    expired = ExpiredSessions(engine)
    live = await open_unlisted(engine, EPHEMERAL)
    with engine.lease(live):
        await play(engine, live, "hi")
        any_world.clock.move(HOUR_S)
        await expired.tick()
        assert await is_there(engine, live), "somebody uses it"
    assert await listed(engine) == []
    await expired.tick()
    assert not await is_there(engine, live)
    await expired.close()


async def test_an_ephemeral_session_is_deleted_as_soon_as_its_answer_was_sent(world: World) -> None:
    engine = await world.start()
    deleted: list[str] = []
    engine.watch(lambda live, events: None, lambda session_id, owner: deleted.append(session_id))
    expired = ExpiredSessions(engine)
    live = await open_unlisted(engine, EPHEMERAL)
    await play(engine, live, "hi")
    expired.check(live)
    await wait_until_gone(engine, live)
    assert deleted == [], "no list has shown it"


async def test_a_session_whose_calls_wait_is_kept_longer(any_world: World) -> None:
    any_world.scripts["call"] = [[CallTool("ask")], ["done"]]
    engine = await any_world.start()
    expired = ExpiredSessions(engine)
    waiting, answered = [await open_unlisted(engine, EPHEMERAL, client_tools=(ASK,)) for _ in range(2)]
    for live in (waiting, answered):
        await play(engine, live, "call")
    any_world.clock.move(1800)
    await expired.tick()
    (call,) = answered.state.waiting_calls()
    await play(engine, answered, answer_request(Result(call_id=call.call.call_id, content="yes")))
    any_world.clock.move(CLUSTER_GRACE_S)
    await expired.tick()
    assert await is_there(engine, waiting)
    assert not await is_there(engine, answered)
    any_world.clock.move(1800)
    await expired.tick()
    assert not await is_there(engine, waiting)


async def test_after_a_crash_the_run_of_an_ephemeral_session_does_not_continue(world: World) -> None:
    gate = world.pausing_tool("work", on_restart="repeat")
    world.scripts["work"] = [[CallTool("work")], ["done"]]
    log = FaultyLog(world.store)
    engine = await world.start(log)
    live = await open_unlisted(engine, EPHEMERAL)
    await send(engine, live, "work")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    log.is_dead = True
    await world.kill(engine)
    engine = await world.start()
    again = await engine.find_session(ANN, live.state.session_id)
    await again.until_durable(again.state.seq)
    assert reasons(await world.events(live.state.session_id)) == ["interrupted"]
    assert world.tools["work"].max_starts_per_call == 1
    await ExpiredSessions(engine).tick()
    assert not await is_there(engine, live)


async def test_what_expired_while_no_server_ran_is_deleted_after_the_start(world: World) -> None:
    engine = await world.start()
    live = await open_unlisted(engine, KEPT)
    await play(engine, live, user_request("hi", keeps_unlisted=True))
    await world.stop(engine)
    world.clock.move(86400)
    engine = await world.start()
    expired = ExpiredSessions(engine)
    await expired.start()
    await wait_until_gone(engine, live)
    await expired.close()


async def test_sessions_are_deleted_when_their_retention_ends(any_world: World) -> None:
    engine = await any_world.start()
    bob, carl = UserId("bob"), UserId("carl")
    expired = ExpiredSessions(engine, 30, lambda: {bob: 0, carl: 1})
    old, used, kept, short = [
        (await engine.create(owner, Create(protocol="test", agent="player"))).state.session_id
        for owner in (ANN, ANN, bob, carl)
    ]

    async def owners() -> list[UserId | None]:
        return [await any_world.store.find_owner(each) for each in (old, used, kept, short)]

    any_world.clock.move(2 * 86400)
    await expired.enforce_retention()
    assert await owners() == [ANN, ANN, bob, None]
    any_world.clock.move(20 * 86400)
    await play(engine, to_live_session(await engine.find_session(ANN, used)), "hi")
    any_world.clock.move(9 * 86400)
    await expired.enforce_retention()
    assert await owners() == [None, ANN, bob, None]


@pytest.mark.parametrize("granted", [True, False])
async def test_permissions_are_waited_for_like_client_tools(world: World, granted: bool) -> None:
    world.echo("careful", needs_approval=True)
    world.scripts["call"] = [[CallTool("careful", {"value": "v"})], ["done"]]
    engine = await world.start()
    expired = ExpiredSessions(engine)
    live = await open_unlisted(engine, EPHEMERAL)
    await play(engine, live, "call")
    await expired.tick()
    (call,) = live.state.waiting_calls()
    await play(engine, live, answer_request(Decision(call_id=call.call.call_id, granted=granted)))
    await expired.tick()
    assert not await is_there(engine, live)
