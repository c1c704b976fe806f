"""The limit on a user's unfinished runs: it holds for every way in which a run can start, and each run counts once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, closing

import pytest

from dragoman.buses.local import LocalBus
from dragoman.core.agent import Summary
from dragoman.core.content import Message
from dragoman.core.events import RunResumed
from dragoman.core.ids import UserId
from dragoman.core.inputs import Create, Decision
from dragoman.core.refusals import Invalid, LimitReached
from dragoman.engine.sessions.live_session import to_live_session
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.log import PostgresLog
from tests.engine.engine_group import ClusterWorld
from tests.engine.engine_under_test import EngineUnderTest
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
    reload,
    running_world,
    send,
    texts,
    user_request,
    wait_for_end,
)

BOB = UserId("bob")
REFUSAL = "too many runs at the same time: at most {}"


def pausing(world: World, **policy: object) -> PauseGate:
    """A tool that waits, and the script `slow` that calls it."""
    world.scripts["slow"] = [[CallTool("gate")], ["done"]]
    return world.pausing_tool("gate", **policy)


async def test_one_run_more_than_allowed_is_refused_and_nothing_is_stored(world: World) -> None:
    gate = pausing(world)
    engine = await world.start(max_runs_per_user=2)
    running = [await open_session(engine) for _ in range(2)]
    for live in running:
        await send(engine, live, "slow")
    third = await open_session(engine)
    before = await world.events(third.state.session_id)
    with pytest.raises(LimitReached, match=REFUSAL.format(2)) as refused:
        await send(engine, third, "hello")
    assert refused.value.retry_after_s > 0
    assert await world.events(third.state.session_id) == before
    theirs = await engine.create(BOB, Create(protocol="test", agent="player"))
    await engine.start_run(theirs, user_request("hello"), by=BOB)
    gate.opened.set()
    for live in running:
        await wait_for_end(live)
    await play(engine, third, "hello")


async def test_without_a_limit_any_number_of_runs_may_start(world: World) -> None:
    gate = pausing(world)
    engine = await world.start()
    sessions = [await open_session(engine) for _ in range(20)]
    for live in sessions:
        await send(engine, live, "slow")
    gate.opened.set()
    for live in sessions:
        await wait_for_end(live)


async def test_starts_at_the_same_moment_do_not_exceed_the_limit(world: World) -> None:
    gate = pausing(world)
    engine = await world.start(max_runs_per_user=3)
    sessions = [await open_session(engine) for _ in range(8)]
    results = await asyncio.gather(*(send(engine, live, "slow") for live in sessions), return_exceptions=True)
    assert [type(each) for each in results].count(LimitReached) == 5
    gate.opened.set()
    for live in sessions:
        await wait_for_end(live)


class SlowSummarizer:
    """Begins a summary, and ends it when it may."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.may_end = asyncio.Event()

    async def summarize(self, messages: Sequence[Message], previous_summary: str | None) -> Summary | None:
        self.started.set()
        await self.may_end.wait()
        return None


async def test_a_summary_counts_as_a_run_while_it_is_written(world: World) -> None:
    engine = await world.start(max_runs_per_user=1)
    live, agent = await open_session(engine), SlowSummarizer()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(engine.summarize(ANN, agent, []))
        await agent.started.wait()
        with pytest.raises(LimitReached):
            await send(engine, live, "hello")
        agent.may_end.set()
    await play(engine, live, "hello")


async def test_a_queued_run_counts_once_from_its_acceptance_to_its_end(world: World) -> None:
    gate = pausing(world)
    engine = await world.start(max_runs_per_user=2)
    live = await open_session(engine)
    await send(engine, live, "slow")
    queued = await send(engine, live, "slow", busy="queue")
    assert queued.is_queued
    for session in (live, await open_session(engine)):
        with pytest.raises(LimitReached):
            await send(engine, session, "hello", busy="queue")
    await engine.stop_run(live, queued.run_id)
    await send(engine, live, "later", busy="queue")
    gate.opened.set()
    await wait_for_end(live)
    assert texts(await world.history(live.state.session_id))[-2:] == ["later", "You said: later"]
    for session in (live, await open_session(engine)):
        await play(engine, session, "hello")


async def test_a_refused_input_and_a_run_that_waits_for_answers_do_not_count(world: World) -> None:
    world.echo("allowed", needs_approval=True)
    world.scripts["ask"] = [[CallTool("allowed", {"value": 1})], ["done"]]
    engine = await world.start(max_runs_per_user=1)
    live, other = await open_session(engine), await open_session(engine)
    with pytest.raises(Invalid):
        await send(engine, live, user_request("x" * 2_000_000))
    await play(engine, live, "ask")
    [call] = live.state.waiting_calls()
    await play(engine, other, "hello")
    await play(engine, live, answer_request(Decision(call_id=call.call.call_id, granted=True)))


@pytest.mark.parametrize("is_killed", [False, True])
async def test_recovered_runs_count_and_are_never_refused(world: World, is_killed: bool) -> None:
    gate = pausing(world, on_restart="repeat")
    engine = await world.start()
    sessions = [await open_session(engine) for _ in range(3)]
    for live in sessions:
        await send(engine, live, "slow")
    await send(engine, sessions[0], "hello", busy="queue")
    for live in sessions:
        async with asyncio.timeout(DEADLINE_S):
            while not live.state.calls:
                await live.next_commit()
        world.repeatable_calls |= set(live.state.calls)
        await live.until_durable(live.state.seq)
    if is_killed:
        await world.kill(engine)
        engine = await world.start(max_runs_per_user=2)
    else:
        engine = await world.restart(engine, max_runs_per_user=2)
    sessions = [await reload(engine, live) for live in sessions]
    assert engine.unfinished_runs(ANN) == 4
    fresh = await open_session(engine)
    with pytest.raises(LimitReached):
        await send(engine, fresh, "hello")
    gate.opened.set()
    for live in sessions:
        await wait_for_end(live)
        events = await world.events(live.state.session_id)
        assert reasons(events)[0] == "end_turn"
        assert sum(isinstance(each.event, RunResumed) for each in events) == 1
    await play(engine, fresh, "hello")


# --- several servers --------------------------------------------------------------------------------------------------


@pytest.fixture
async def two_limited_engines(
    postgres_url: str,
) -> AsyncIterator[tuple[ClusterWorld, EngineUnderTest, EngineUnderTest]]:
    """Two engines over one database; each allows two unfinished runs of a user."""
    with ExitStack() as databases:
        reading = databases.enter_context(closing(Database(postgres_url, access="unlocked")))
        world = ClusterWorld(PostgresLog(reading), postgres_url, databases, 2)
        async with running_world(world):
            bus, options = LocalBus(), {"max_runs_per_user": 2}
            first, second = [await world.start_one(bus, options) for _ in range(2)]
            world.engines += [first, second]
            yield world, first, second


async def test_a_run_queued_through_another_server_counts_where_it_is_executed(
    two_limited_engines: tuple[ClusterWorld, EngineUnderTest, EngineUnderTest],
) -> None:
    world, first, second = two_limited_engines
    gate = pausing(world)
    live = await open_session(first)
    await send(first, live, "slow")
    there = to_live_session(await second.find_session(ANN, live.state.session_id))
    with second.lease(there):
        assert there.is_remote
        async with asyncio.timeout(DEADLINE_S):
            await second.start_run(there, user_request("one"), by=ANN, busy="queue")
            with pytest.raises(LimitReached, match=REFUSAL.format(2)) as refused:
                await second.start_run(there, user_request("two"), by=ANN, busy="queue")
        assert refused.value.retry_after_s > 0
        with pytest.raises(LimitReached):
            await send(first, await open_session(first), "hello")
        gate.opened.set()
        await wait_for_end(live)
    assert "two" not in texts(await world.history(live.state.session_id))


async def test_runs_on_other_servers_count(
    two_limited_engines: tuple[ClusterWorld, EngineUnderTest, EngineUnderTest],
) -> None:
    world, first, second = two_limited_engines
    gate = pausing(world)
    running = []
    for engine in (first, second):
        live = await open_session(engine)
        await send(engine, live, "slow")
        await live.until_durable(live.state.seq)
        running.append(live)
    for engine in (first, second):
        refused = await open_session(engine)
        with pytest.raises(LimitReached, match=REFUSAL.format(2)):
            await send(engine, refused, "hello")
        theirs = await engine.create(BOB, Create(protocol="test", agent="player"))
        await engine.start_run(theirs, user_request("hello"), by=BOB)
        await wait_for_end(theirs)
    gate.opened.set()
    for live in running:
        await wait_for_end(live)
    await play(second, await open_session(second), "hello")


async def test_runs_that_were_taken_over_count_and_are_never_refused(
    two_limited_engines: tuple[ClusterWorld, EngineUnderTest, EngineUnderTest],
) -> None:
    world, first, second = two_limited_engines
    gate = pausing(world, on_restart="repeat")
    moved, own = await open_session(first), await open_session(second)
    for engine, live in ((first, moved), (second, own)):
        await send(engine, live, "slow")
        async with asyncio.timeout(DEADLINE_S):
            while not live.state.calls:
                await live.next_commit()
        world.repeatable_calls |= set(live.state.calls)
        await live.until_durable(live.state.seq)
        if live is moved:
            await send(engine, live, "slow", busy="queue")  # which the other server does not count
    await world.stop(first)
    async with asyncio.timeout(DEADLINE_S):
        while second.unfinished_runs(ANN) < 3:  # noqa: ASYNC110  # a takeover has no event here
            await asyncio.sleep(0.01)
    with pytest.raises(LimitReached):
        await send(second, await open_session(second), "hello")
    gate.opened.set()
    for live, ends in ((moved, 2), (own, 1)):
        await wait_for_end(await reload(second, live))
        assert reasons(await world.events(live.state.session_id)) == ["end_turn"] * ends
