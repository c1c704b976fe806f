"""Several servers on one PostgreSQL: whose session is whose, who is asked, and what becomes of one that dies."""

import asyncio
import random
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import pytest

from dragoman.buses.local import LocalBus
from dragoman.core.content import UserMessage
from dragoman.core.events import CallStarted, RunQueued, SettingsChange, UnknownEvent, decode, encode
from dragoman.core.ids import CallId, MessageId, RunId, SessionId, UserId
from dragoman.core.refusals import SessionBusy, SessionNotFound, SessionUnreadable, StoreUnavailable
from dragoman.engine.cluster import cluster as cluster_module
from dragoman.engine.cluster.cluster import Cluster
from dragoman.engine.cluster.remote_commands import Enqueue
from dragoman.engine.engine import Engine
from dragoman.engine.services import idempotency
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.live_session import to_live_session
from dragoman.ports.bus import DELTAS_SUBJECT_PREFIX
from dragoman.ports.log import IdempotencyRecord
from dragoman.stores.postgres.cluster import LeaseRenewer, PostgresCluster
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.log import PostgresLog
from tests.engine.engine_group import LEASE_S, ClusterWorld, TwoEngines, session_as_seen_by
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.world import (
    ANN,
    DEADLINE_S,
    CallTool,
    open_session,
    play,
    read,
    reasons,
    running_world,
    send,
    texts,
    user_request,
    wait_for_end,
)
from tests.requirements import requirement

MOOD_CHANGED = decode(b'{"type": "mood_changed", "mood": 3}')
CLOCK_SKEW_S = 12.0
"""Within which a run whose server died goes on elsewhere: its lease, and some seconds on a busy machine."""


def cluster_store_of(engine: Engine) -> PostgresCluster:
    assert isinstance(engine.cluster, Cluster)
    assert isinstance(engine.cluster.store, PostgresCluster)
    return engine.cluster.store


def lease_renewer(engine: Engine) -> LeaseRenewer:
    """The task that renews an engine's lease."""
    renewer = cluster_store_of(engine).renewer
    assert renewer is not None, "it has joined"
    return renewer


def node_id_of(engine: Engine) -> str:
    return cluster_store_of(engine).node_id


async def test_a_reader_on_another_server_sees_the_same_stream(two_engines: TwoEngines) -> None:
    gate = two_engines.world.pausing_tool("gate")
    two_engines.world.scripts["go"] = [["one ", CallTool("gate")], ["two"]]
    live = await open_session(two_engines.first)
    await send(two_engines.first, live, "go")
    there = await session_as_seen_by(two_engines.second, live.state.session_id)
    reading = asyncio.create_task(read(two_engines.second, there))
    gate.opened.set()
    assert await reading == await read(two_engines.first, live)
    assert there.is_remote is False
    assert there.state == live.state


class LossyBus(LocalBus):
    """Loses all words, or what is chosen of them."""

    def __init__(self, drops: Callable[[], bool]) -> None:
        super().__init__()
        self.dropped = 0
        self.sent = 0
        self._drops = drops

    def publish(self, subject: str, payload: str) -> None:
        """See `Bus.publish`."""
        if subject.startswith(f"{DELTAS_SUBJECT_PREFIX}."):
            if self._drops():
                self.dropped += 1
                return
            self.sent += 1
        super().publish(subject, payload)


class HintsOnlyBus(LocalBus):
    """As a database's: it carries hints alone."""

    deltas_group = None

    def publish(self, subject: str, payload: str) -> None:
        """See `Bus.publish`."""
        assert not subject.startswith(f"{DELTAS_SUBJECT_PREFIX}."), "they have no place there"
        super().publish(subject, payload)


@pytest.mark.parametrize("kind", ["all there", "some lost", "all lost", "hints alone"])
async def test_words_come_over_the_bus_and_what_it_loses_is_looked_up(postgres_url: str, kind: str) -> None:
    chance = random.Random(1)
    share = {"some lost": 0.3, "all lost": 1.0}.get(kind, 0.0)
    bus = HintsOnlyBus() if kind == "hints alone" else LossyBus(lambda: chance.random() < share)
    with ExitStack() as databases:
        reading = databases.enter_context(closing(Database(postgres_url, access="unlocked")))
        world = ClusterWorld(PostgresLog(reading), postgres_url, databases, 2)
        async with running_world(world):
            first, second = world.engines = [await world.start_one(bus, {}) for _ in range(2)]
            gate = world.pausing_tool("gate")
            world.scripts["go"] = [[CallTool("gate"), *(f"{place} " for place in range(40))], ["and the end"]]
            live = await open_session(first)
            await send(first, live, "go")
            async with asyncio.timeout(DEADLINE_S):
                await gate.entered.wait()
            there = await session_as_seen_by(second, live.state.session_id)
            assert isinstance(second.cluster, Cluster)
            follow = second.cluster.log_tailer.delta_relay.announce  # else it is said within a second
            follow([there.state.session_id])
            reading_there = asyncio.create_task(read(second, there))
            gate.opened.set()
            assert await reading_there == await read(first, live)
            assert (there.state, there.is_remote) == (live.state, False)
    if isinstance(bus, LossyBus) and kind != "some lost":
        assert (bus.sent > 0, bus.dropped > 0) == (kind == "all there", kind == "all lost")


async def test_what_another_server_runs_can_be_stopped_and_waited_for(two_engines: TwoEngines) -> None:
    two_engines.world.pausing_tool("gate")
    two_engines.world.scripts["go"] = [[CallTool("gate")]]
    live = await open_session(two_engines.first)
    await send(two_engines.first, live, "go")
    there = await session_as_seen_by(two_engines.second, live.state.session_id)
    assert there.is_remote
    with pytest.raises(SessionBusy):
        await two_engines.second.start_run(there, user_request("now"), by=ANN)
    queued = await two_engines.second.start_run(there, user_request("later"), by=ANN, busy="queue")
    assert queued.is_queued
    async with asyncio.timeout(DEADLINE_S):
        active = there.state.run
        assert active is not None
        assert await two_engines.second.stop_run(there, active.run_id)
    await wait_for_end(live)
    assert texts(await two_engines.world.history(live.state.session_id))[-2:] == ["later", "You said: later"]
    assert reasons(await two_engines.world.events(live.state.session_id)) == ["cancelled", "end_turn"]


async def test_a_run_whose_server_dies_continues_on_another_server_and_its_reader_sees_one_stream(
    two_engines: TwoEngines,
) -> None:
    gate = two_engines.world.pausing_tool("gate", on_restart="repeat")
    two_engines.world.repeatable_calls |= {"any"}
    two_engines.world.scripts["go"] = [["one ", CallTool("gate")], ["two"]]
    live = await open_session(two_engines.first)
    await send(two_engines.first, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    there = await session_as_seen_by(two_engines.second, live.state.session_id)
    reading = asyncio.create_task(read(two_engines.second, there))
    two_engines.world.repeatable_calls |= set(there.state.calls)
    await kill_engine(two_engines.world, two_engines.first)
    gate.opened.set()
    async with asyncio.timeout(CLOCK_SKEW_S):
        seen = await reading
    assert reasons(seen) == ["end_turn"]
    assert [each.seq for each in await two_engines.world.events(live.state.session_id)][-1] == there.state.seq


async def test_a_server_takes_only_runs_of_agents_that_it_serves(two_engines: TwoEngines) -> None:
    world, first, second = two_engines.world, two_engines.first, two_engines.second
    gate = world.pausing_tool("gate", on_restart="repeat")
    world.scripts["go"] = [["one ", CallTool("gate")], ["two"]]
    await world.stop(second)
    agents, world.agents = world.agents, {}
    stranger = await world.start_one(LocalBus(), {})
    world.engines.append(stranger)
    live = await open_session(first)
    await send(first, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    world.repeatable_calls |= set(live.state.calls)
    await kill_engine(world, first)
    gate.opened.set()
    there = await session_as_seen_by(stranger, live.state.session_id)
    async with asyncio.timeout(CLOCK_SKEW_S):
        while stranger.waiting_run_count == 0:  # noqa: ASYNC110  # the server looks by itself
            await asyncio.sleep(0)
    await stranger.change(there, SettingsChange(title="waits"))
    assert (there.state.status(), there.is_remote, stranger.waiting_run_count) == ("running", True, 1)
    world.agents = agents
    third = await world.start_one(LocalBus(), {})
    world.engines.append(third)
    async with asyncio.timeout(CLOCK_SKEW_S):
        await wait_for_end(await session_as_seen_by(third, live.state.session_id))
    assert reasons(await world.events(live.state.session_id)) == ["end_turn"]


@requirement("faults:42:begins-anew")
async def test_a_server_whose_lease_ended_writes_nothing_more_and_begins_again(two_engines: TwoEngines) -> None:
    gate = two_engines.world.pausing_tool("gate", on_restart="repeat")
    two_engines.world.scripts["go"] = [["one ", CallTool("gate")], ["two"]]
    live = await open_session(two_engines.first)
    await send(two_engines.first, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    two_engines.world.repeatable_calls |= set(live.state.calls)
    renewal = lease_renewer(two_engines.first)
    before = node_id_of(two_engines.first)
    renewal.stop()
    renewal.lease_ends_at, renewal.is_lease_expired = 0.0, True
    async with asyncio.timeout(CLOCK_SKEW_S):
        while not live.has_ended:
            await live.next_commit()
    with pytest.raises(StoreUnavailable, match="lease"):
        live.raise_if_ended()
    gate.opened.set()
    async with asyncio.timeout(CLOCK_SKEW_S):
        again = await session_as_seen_by(two_engines.first, live.state.session_id)
        await wait_for_end(again)
    assert node_id_of(two_engines.first) != before
    assert reasons(await two_engines.world.events(live.state.session_id)) == ["end_turn"]


async def test_the_same_key_on_two_servers_does_one_thing(two_engines: TwoEngines) -> None:
    live = await open_session(two_engines.first)
    there = await session_as_seen_by(two_engines.second, live.state.session_id)

    async def ask(engine: Engine, session: Any) -> Any:
        async with engine.reserve_key(ANN, IdempotencyKey("k", "f")) as earlier:
            if earlier is not None:
                return earlier.run_id
            submitted = await engine.start_run(
                session, user_request("hello"), by=ANN, idempotency_key=IdempotencyKey("k", "f")
            )
            await session.until_durable(submitted.seq)
            return submitted.run_id

    async with asyncio.timeout(DEADLINE_S):
        answers = await asyncio.gather(
            ask(two_engines.first, live), ask(two_engines.second, there), ask(two_engines.first, live)
        )
    assert len(set(answers)) == 1
    await wait_for_end(live)
    assert texts(await two_engines.world.history(live.state.session_id)) == ["hello", "You said: hello"]


async def test_a_server_whose_lease_has_ended_keeps_no_key_from_others(postgres_url: str) -> None:
    """Otherwise it and the server that takes over the key would both execute the request."""
    with (
        closing(Database(postgres_url, access="shared")) as one,
        closing(Database(postgres_url, access="shared")) as two,
    ):
        first, second = (
            PostgresCluster(each, folder_id=home, lease_s=LEASE_S) for each, home in ((one, "1"), (two, "2"))
        )
        await first.join()
        await second.join()
        await first.leave()
        assert [await each.lock_idempotency_key(ANN, "key") for each in (first, second, first)] == [False, True, False]
        await second.leave()


async def test_a_command_of_a_server_that_lost_its_key_meanwhile_starts_no_second_run(two_engines: TwoEngines) -> None:
    """The client has sent its request again by then, to the server that executes the session's run."""
    two_engines.world.scripts["slow"] = [[CallTool("gate")], ["done"]]
    gate, live = two_engines.world.pausing_tool("gate"), await open_session(two_engines.first)
    await send(two_engines.first, live, "slow")
    key = IdempotencyKey("key", "f")
    async with two_engines.first.reserve_key(ANN, key):
        again = await two_engines.first.start_run(
            live, user_request("hello"), by=ANN, idempotency_key=key, busy="queue"
        )
        await live.until_durable(again.seq)
    there = to_live_session(await two_engines.second.find_session(ANN, live.state.session_id))
    late = RunQueued(
        run_id=RunId("late"), protocol="test", inputs=(UserMessage(id=MessageId("late"), content="hello"),)
    )
    record = IdempotencyRecord(
        owner=ANN,
        key=key.name,
        fingerprint=key.fingerprint,
        session_id=live.state.session_id,
        run_id=late.run_id,
        at=two_engines.world.clock.now(),
    )
    assert isinstance(two_engines.second.cluster, Cluster)
    with two_engines.second.lease(there), pytest.raises(StoreUnavailable, match="send it again"):
        await two_engines.second.cluster.send(there, Enqueue(late, record))
    gate.opened.set()
    await wait_for_end(live)
    assert texts(await two_engines.world.history(live.state.session_id)).count("hello") == 1


async def test_a_request_whose_server_lost_its_lease_in_the_middle_does_nothing(two_engines: TwoEngines) -> None:
    """Another server may be doing it by then: the key was let go of with the lease."""
    live = await open_session(two_engines.first)
    seq, key = live.state.seq, IdempotencyKey("key", "f")
    renewal: Any = lease_renewer(two_engines.first)
    async with two_engines.first.reserve_key(ANN, key) as earlier:
        assert earlier is None
        renewal.stop()
        renewal.lease_ends_at = 0.0
        with pytest.raises(StoreUnavailable, match="lost its lease"):
            await two_engines.first.start_run(live, user_request("hello"), by=ANN, idempotency_key=key)
        assert live.state.seq == seq
    renewal.is_lease_expired = True  # and so it joins anew


async def test_a_key_that_could_not_be_let_go_of_is_free_as_soon_as_the_store_works(
    two_engines: TwoEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "UNLOCK_RETRY_DELAY_S", 0.01)
    real, failures = PostgresCluster.unlock_idempotency_key, [1, 2]

    async def free_key(self: PostgresCluster, owner: UserId, key: str) -> None:
        if failures:
            failures.pop()
            raise StoreUnavailable("the connection broke")
        await real(self, owner, key)

    monkeypatch.setattr(PostgresCluster, "unlock_idempotency_key", free_key)
    async with asyncio.timeout(DEADLINE_S):
        async with two_engines.first.reserve_key(ANN, IdempotencyKey("k", "f")):
            pass
        async with two_engines.second.reserve_key(ANN, IdempotencyKey("k", "f")) as earlier:
            assert (earlier, failures) == (None, [])


async def test_messages_to_both_at_once_are_played_one_after_the_other_and_none_is_lost(
    two_engines: TwoEngines,
) -> None:
    live = await open_session(two_engines.first)
    there = await session_as_seen_by(two_engines.second, live.state.session_id)
    live.reference_count += 1
    chance = random.Random(3)

    async def speak(place: int) -> None:
        engine, session = chance.choice([(two_engines.first, live), (two_engines.second, there)])
        submitted = await engine.start_run(session, user_request(f"{place}"), by=ANN, busy="queue")
        await session.until_durable(submitted.seq)

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(speak(place) for place in range(20)))
        while live.state.status() != "idle" or live.state.message_count < 40:
            await live.next_commit()
    said = texts(await two_engines.world.history(live.state.session_id))
    assert sorted(said[::2]) == sorted(f"{place}" for place in range(20))
    assert said[1::2] == [f"You said: {text}" for text in said[::2]]


async def test_a_server_that_cannot_join_again_refuses_in_time(
    two_engines: TwoEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its database may be away for hours: requests fail at once in the meantime."""
    live = await open_session(two_engines.first)
    cluster = two_engines.first.cluster
    assert isinstance(cluster, Cluster), "there are several"

    has_tried = asyncio.Event()

    async def away() -> int:
        has_tried.set()
        raise StoreUnavailable("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(cluster_module, "CLAIM_TIMEOUT_S", 0.05)
        patched.setattr(cluster.store, "join", away)
        renewal = lease_renewer(two_engines.first)
        renewal.stop()
        renewal.lease_ends_at, renewal.is_lease_expired = 0.0, True
        async with asyncio.timeout(DEADLINE_S):
            await has_tried.wait()
            for asked in (send(two_engines.first, live, "hello"), open_session(two_engines.first)):
                with pytest.raises(StoreUnavailable, match="lost its lease"):
                    await asked
    await cluster.wait_until_joined()
    await play(two_engines.first, await session_as_seen_by(two_engines.first, live.state.session_id), "hello")


async def test_what_one_server_deletes_is_gone_on_the_other(two_engines: TwoEngines) -> None:
    live = await open_session(two_engines.first)
    await play(two_engines.first, live, "hello")
    there = await session_as_seen_by(two_engines.second, live.state.session_id)
    await two_engines.second.delete(there)
    with pytest.raises(SessionNotFound):
        await two_engines.first.find_session(ANN, live.state.session_id)


async def test_who_follows_a_run_on_another_server_sees_its_end_when_its_session_is_deleted(
    two_engines: TwoEngines,
) -> None:
    """What is removed has been read before, also where no hint comes."""
    deaf = await two_engines.world.start_one(LocalBus(), {})
    two_engines.world.engines.append(deaf)
    gate = two_engines.world.pausing_tool("gate")
    two_engines.world.scripts["go"] = [["one ", CallTool("gate")]]
    live = await open_session(two_engines.first)
    await send(two_engines.first, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
        there = await session_as_seen_by(deaf, live.state.session_id)
        reading = asyncio.create_task(read(deaf, there))
        await two_engines.first.delete(live)
        assert reasons(await reading) == ["cancelled"]


async def test_a_run_that_ends_while_its_session_is_loaded_on_another_server_keeps_nobody_waiting(
    two_engines: TwoEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = two_engines.world.pausing_tool("gate")
    two_engines.world.scripts["go"] = [[CallTool("gate")], ["done"]]
    live = await open_session(two_engines.first)
    await send(two_engines.first, live, "go")
    real, claims = PostgresCluster.claim_session, []

    async def claim(self: PostgresCluster, session_id: SessionId) -> Any:
        gate.opened.set()
        await wait_for_end(live)
        claims.append(await real(self, session_id))
        return claims[-1]

    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
        with monkeypatch.context() as patched:
            patched.setattr(PostgresCluster, "claim_session", claim)
            await session_as_seen_by(two_engines.second, live.state.session_id)
        assert [each and each.is_running for each in claims] == [False], "it was stored as running"
        assert isinstance(two_engines.second.cluster, Cluster)
        await two_engines.second.cluster.claims.release_tasks.wait()
        claimed = await PostgresCluster.claim_session(cluster_store_of(two_engines.first), live.state.session_id)
        assert claimed is not None
        assert claimed.epoch is not None, "nobody has it any more"


@pytest.mark.parametrize("more", [0, 1, 2], ids=["shorter", "as long", "longer"])
async def test_an_id_that_is_used_again_is_the_new_session_everywhere(two_engines: TwoEngines, more: int) -> None:
    old = await open_session(two_engines.first)
    await play(two_engines.first, old, "hello")
    await play(two_engines.first, old, "hello again")
    session_id = old.state.session_id
    stale = await two_engines.second.find_session(ANN, session_id)
    await two_engines.first.delete(old)
    two_engines.world.clock.move(1)
    new = await open_session(two_engines.first, session_id=session_id)
    for place in range(1 + more):
        await play(two_engines.first, new, f"new {place}")
    with pytest.raises(SessionNotFound):
        await two_engines.second.start_run(stale, user_request("to the old one"), by=ANN)
    there = await two_engines.second.find_session(ANN, session_id)
    assert (there.state, there.state == old.state) == (new.state, False)
    async with asyncio.timeout(DEADLINE_S):
        await play(two_engines.second, there, "newer")
    said = texts(await two_engines.world.history(session_id))
    assert said[::2] == [*(f"new {place}" for place in range(1 + more)), "newer"]


async def test_lists_report_what_runs_on_another_server(two_engines: TwoEngines) -> None:
    two_engines.world.pausing_tool("gate").opened.clear()
    two_engines.world.scripts["go"] = [[CallTool("gate")]]
    live = await open_session(two_engines.first)
    await send(two_engines.first, live, "go")
    (listed,) = await two_engines.second.page(ANN, None, 10)
    assert (listed.status(), listed.seq) == ("running", live.durable_cursor.seq)
    await two_engines.first.stop_run(live)


async def test_lists_wait_for_nothing_that_another_server_wrote(two_engines: TwoEngines) -> None:
    live = await open_session(two_engines.first)
    await play(two_engines.first, live, "hello")
    await two_engines.second.find_session(ANN, live.state.session_id)
    await play(two_engines.first, live, "hello again")
    (listed,) = await two_engines.second.page(ANN, None, 10)
    assert listed.seq == live.durable_cursor.seq
    async with asyncio.timeout(DEADLINE_S):
        await two_engines.second.until_durable([(listed.session_id, listed.seq)])


async def test_a_server_that_is_alone_claims_nothing_and_reads_nothing_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(name: str) -> Any:
        real = getattr(PostgresCluster, name)

        async def count(self: PostgresCluster, *given: Any) -> Any:
            asked.append(name)
            return await real(self, *given)

        return count

    for name in ("claim_session", "release_session", "session_updates", "lock_idempotency_key"):
        monkeypatch.setattr(PostgresCluster, name, counted(name))
    with ExitStack() as databases:
        reading = databases.enter_context(closing(Database(postgres_url, access="unlocked")))
        world = ClusterWorld(PostgresLog(reading), postgres_url, databases, 1)
        async with running_world(world):
            engine = await world.start_one(LocalBus(), {})
            world.engines.append(engine)
            live = await open_session(engine)
            async with engine.reserve_key(ANN, IdempotencyKey("k", "f")):
                await play(engine, live, "hello")
            await engine.find_session(ANN, live.state.session_id)
            await engine.page(ANN, None, 10)
            await engine.delete(live)
    assert asked == []


async def kill_engine(world: ClusterWorld, engine: EngineUnderTest) -> None:
    """End an engine as `kill -9` would: it renews nothing, and writes nothing."""
    lease_renewer(engine).stop()
    await world.kill(engine)
    assert LEASE_S < CLOCK_SKEW_S


@pytest.mark.parametrize("has_bus", [True, False])
async def test_an_event_of_an_unknown_type_is_skipped_by_who_follows_on_another_server(
    two_engines: TwoEngines, monkeypatch: pytest.MonkeyPatch, has_bus: bool
) -> None:
    first, second = two_engines.first, two_engines.second
    two_engines.world.scripts["go"] = [["said"]]
    assert isinstance(first.cluster, Cluster)
    if not has_bus:
        monkeypatch.setattr(first.cluster.log_tailer, "send", lambda batch: None)  # all changes are read from the store
    live = to_live_session(await open_session(first))
    reading = asyncio.create_task(read(second, await session_as_seen_by(second, live.state.session_id), ends=2))
    await play(first, live, "go")
    assert isinstance(MOOD_CHANGED, UnknownEvent)
    await live.until_durable(live.append((MOOD_CHANGED,), None))
    await play(first, live, "go")
    assert await reading == await read(first, live, ends=2)


async def test_an_event_that_cannot_be_decoded_or_does_not_follow_stops_its_session_s_readers_and_no_others(
    two_engines: TwoEngines, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers read the changes of all followed sessions in one batch."""
    first, second = two_engines.first, two_engines.second
    two_engines.world.scripts["go"] = [["said"]]
    assert isinstance(first.cluster, Cluster)
    assert isinstance(second.cluster, Cluster)
    monkeypatch.setattr(first.cluster.log_tailer, "send", lambda batch: None)  # all changes are read from the store
    damaged, odd, intact = [await open_session(first) for _ in range(3)]
    seen = [await session_as_seen_by(second, live.state.session_id) for live in (damaged, odd, intact)]
    readings = [asyncio.create_task(read(second, live)) for live in seen]
    may_read = asyncio.Event()
    real = PostgresCluster.session_updates

    async def session_updates(self: PostgresCluster, positions: Any) -> Any:
        if self is cluster_store_of(second):
            await may_read.wait()
        return await real(self, positions)

    monkeypatch.setattr(PostgresCluster, "session_updates", session_updates)
    for live in (damaged, odd, intact):
        await play(first, live, "go")
    unknown_call = encode(CallStarted(call_id=CallId("none")))
    with psycopg.connect(postgres_url) as connection:
        for live, payload in ((damaged, b"{"), (odd, unknown_call)):
            connection.execute(
                "UPDATE events SET payload = %s, checksum = NULL WHERE session_id = %s AND seq = %s",
                (payload.decode(), live.state.session_id, live.state.seq),
            )
    may_read.set()
    async with asyncio.timeout(DEADLINE_S):
        outcomes = await asyncio.gather(*readings, return_exceptions=True)
        assert [type(each) for each in outcomes[:2]] == [SessionUnreadable, SessionUnreadable]
        assert outcomes[2] == await read(first, intact)
        for live in (damaged, odd):
            await first.delete(live)
        with pytest.raises(SessionNotFound):
            await second.find_session(ANN, damaged.state.session_id)
