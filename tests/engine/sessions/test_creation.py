"""New sessions: when they are durable, and what is left of one whose first run is refused or not stored."""

import asyncio

import pytest

from dragoman.core.content import UserMessage
from dragoman.core.events import MessageAdded, RunStarted, SessionCreated
from dragoman.core.ids import MessageId, SessionId
from dragoman.core.inputs import Create, Submit
from dragoman.core.refusals import Invalid, SessionNotFound, StoreUnavailable
from dragoman.engine.cluster.cluster import Cluster
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.live_session import LiveSession, to_live_session
from tests.engine.faulty_log import FaultyLog
from tests.engine.world import ANN, DEADLINE_S, World, read, reload, send, user_request, wait_for_end

SEED = UserMessage(id=MessageId("seed"), content="before")
CHOSEN = SessionId("01890a5d-ac96-774b-bcce-b302099a8057")


async def create(engine: Engine, **fields: object) -> LiveSession:
    """A session whose first run the caller starts next."""
    request = Create(**{"protocol": "test", "agent": "player", "tools": "all", **fields})  # type: ignore[arg-type]  # fields of any test
    async with asyncio.timeout(DEADLINE_S):
        return to_live_session(await engine.create(ANN, request, run_follows=True))


async def test_a_session_and_its_first_run_share_a_commit(any_world: World) -> None:
    log = FaultyLog(any_world.store)
    engine = await any_world.start(log)
    live = await create(engine, seeds=(SEED,))
    async with engine.first_request(live, is_new=True):
        await send(engine, live, "hello")
    commits, written = log.commits, log.written[0]
    await wait_for_end(live)
    assert (commits, [append.is_new for append in written]) == (1, [True, False])
    assert [[type(each.event) for each in append.events][:2] for append in written] == [
        [SessionCreated, MessageAdded],
        [RunStarted, MessageAdded],
    ]
    records = await read(engine, live)
    again = await reload(await any_world.restart(engine), live)
    assert again.state == live.state
    assert await read(any_world.engines[-1], again) == records


async def test_a_server_that_dies_after_that_commit_resumes_the_run(any_world: World) -> None:
    log = FaultyLog(any_world.store)
    log.die_at(1, "after")
    engine = await any_world.start(log)
    live = await create(engine)
    await engine.start_run(live, user_request("hello"), by=ANN)
    async with asyncio.timeout(DEADLINE_S):
        await log.died.wait()
    await any_world.kill(engine)
    again = await reload(await any_world.start(), live)
    await wait_for_end(again)
    assert again.state.last_stop == "end_turn"


async def test_neither_is_there_if_their_commit_fails(any_world: World) -> None:
    log = FaultyLog(any_world.store)
    engine = await any_world.start(log)
    log.fail_at(1)
    live = await create(engine)
    with pytest.raises(StoreUnavailable):
        async with engine.first_request(live, is_new=True):
            await send(engine, live, "hello")
    assert await any_world.store.load(live.state.session_id) is None
    with pytest.raises(SessionNotFound):
        await reload(engine, live)


async def test_an_id_whose_session_was_not_stored_is_free_for_the_next_request(any_world: World) -> None:
    log = FaultyLog(any_world.store)
    engine = await any_world.start(log)
    log.fail_at(1)

    async def ask() -> LiveSession:
        live = await create(engine, session_id=CHOSEN)
        async with engine.first_request(live, is_new=True):
            await send(engine, live, "hello")
        return live

    with pytest.raises(StoreUnavailable):
        await ask()
    again = await ask()
    await wait_for_end(again)
    assert again.state.last_stop == "end_turn"


async def test_a_session_whose_first_run_is_refused_is_deleted_after_it_was_written(any_world: World) -> None:
    engine = await any_world.start()
    live = await create(engine)
    with pytest.raises(Invalid, match="neither a message nor an answer"):
        async with engine.first_request(live, is_new=True):
            await engine.start_run(live, Submit(protocol="test"), by=ANN)
    assert await any_world.store.load(live.state.session_id) is None
    with pytest.raises(SessionNotFound):
        await reload(engine, live)


async def test_others_find_a_new_session_when_it_is_durable(any_world: World) -> None:
    log = FaultyLog(any_world.store)
    engine = await any_world.start(log)
    log.block_commits = asyncio.Event()
    live = await create(engine)
    async with asyncio.timeout(DEADLINE_S):
        finding = asyncio.ensure_future(engine.find_session(ANN, live.state.session_id))
        await log.commit_blocked.wait()
        assert not finding.done()
        log.block_commits.set()
        assert await finding is live


async def test_a_name_that_the_client_chose_is_durable_first_because_another_request_may_get_it(
    any_world: World,
) -> None:
    engine = await any_world.start()
    await create(engine, name="mine")
    assert await any_world.store.find_by_name(ANN, "mine") is not None


async def test_an_id_that_the_client_chose_is_durable_first_if_another_server_may_get_it(any_world: World) -> None:
    log = FaultyLog(any_world.store)
    engine = await any_world.start(log)
    log.block_commits = asyncio.Event()
    creating = asyncio.ensure_future(create(engine, session_id=CHOSEN))
    async with asyncio.timeout(DEADLINE_S):
        if isinstance(engine.cluster, Cluster):
            await log.commit_blocked.wait()
            assert not creating.done()
            log.block_commits.set()
        await creating  # of a server alone, before the commit
    log.block_commits.set()
