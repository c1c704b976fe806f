"""Several servers on one PostgreSQL: whose session is whose, who is asked, and what becomes of one that dies."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, closing
from typing import Any

import pytest

from dragoman.buses.local import LocalBus
from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import SessionBusy, SessionNotFound, StoreUnavailable
from dragoman.engine.cluster import cluster as neighbours_module
from dragoman.engine.engine import Engine
from dragoman.engine.services import idempotency
from dragoman.engine.services.idempotency import Key
from dragoman.ports import WORDS
from dragoman.stores.postgres.cluster import PostgresNodes
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.log import PostgresLog
from tests.engine.engine_group import LEASE_S, SeveralWorld
from tests.engine.world import (
    ANN,
    DEADLINE_S,
    Use,
    ended,
    open_session,
    play,
    read,
    reasons,
    says,
    send,
    texts,
    world_over,
)
from tests.requirements import requirement

APART_S = 12.0
"""Within which a run whose server died goes on elsewhere: its lease, and some seconds on a busy machine."""


class Pair:
    """Two engines, each with a database of its own, and their world."""

    def __init__(self, world: SeveralWorld, first: Engine, second: Engine) -> None:
        self.world = world
        self.first = first
        self.second = second


@pytest.fixture
async def pair(postgres_url: str) -> AsyncIterator[Pair]:
    with ExitStack() as databases:
        reading = databases.enter_context(closing(Database(postgres_url, use="beside")))
        world = SeveralWorld(PostgresLog(reading), postgres_url, databases, 2)
        async with world_over(world):
            bus = LocalBus()
            first, second = [await world.one(bus, {}) for _ in range(2)]
            world.engines += [first, second]
            yield Pair(world, first, second)


async def seen_by(engine: Engine, session_id: Any) -> Any:
    live = await engine.found(ANN, session_id)
    live.holds += 1
    return live


async def test_a_reader_on_another_server_sees_the_same_stream(pair: Pair) -> None:
    gate = pair.world.gate("gate")
    pair.world.scripts["go"] = [["one ", Use("gate")], ["two"]]
    live = await open_session(pair.first)
    await send(pair.first, live, "go")
    there = await seen_by(pair.second, live.state.session_id)
    reading = asyncio.create_task(read(pair.second, there))
    gate.opened.set()
    assert await reading == await read(pair.first, live)
    assert there.is_elsewhere is False
    assert there.state == live.state


class Loses(LocalBus):
    """Loses all words, or what is chosen of them."""

    def __init__(self, loses: Callable[[], bool]) -> None:
        super().__init__()
        self.lost = 0
        self.sent = 0
        self._loses = loses

    def publish(self, subject: str, payload: str) -> None:
        """See `Bus.publish`."""
        if subject.startswith(f"{WORDS}."):
            if self._loses():
                self.lost += 1
                return
            self.sent += 1
        super().publish(subject, payload)


class Wordless(LocalBus):
    """As a database's: it carries hints alone."""

    words = None

    def publish(self, subject: str, payload: str) -> None:
        """See `Bus.publish`."""
        assert not subject.startswith(f"{WORDS}."), "they have no place there"
        super().publish(subject, payload)


@pytest.mark.parametrize("kind", ["all there", "some lost", "all lost", "hints alone"])
async def test_words_come_over_the_bus_and_what_it_loses_is_looked_up(postgres_url: str, kind: str) -> None:
    chance = random.Random(1)
    share = {"some lost": 0.3, "all lost": 1.0}.get(kind, 0.0)
    bus = Wordless() if kind == "hints alone" else Loses(lambda: chance.random() < share)
    with ExitStack() as databases:
        reading = databases.enter_context(closing(Database(postgres_url, use="beside")))
        world = SeveralWorld(PostgresLog(reading), postgres_url, databases, 2)
        async with world_over(world):
            first, second = world.engines = [await world.one(bus, {}) for _ in range(2)]
            gate = world.gate("gate")
            world.scripts["go"] = [[Use("gate"), *(f"{place} " for place in range(40))], ["and the end"]]
            live = await open_session(first)
            await send(first, live, "go")
            async with asyncio.timeout(DEADLINE_S):
                await gate.entered.wait()
            there = await seen_by(second, live.state.session_id)
            assert second.neighbours is not None
            follow = second.neighbours.following._carrying.follow  # else it is said within a second
            follow([there.state.session_id])
            reading_there = asyncio.create_task(read(second, there))
            gate.opened.set()
            assert await reading_there == await read(first, live)
            assert (there.state, there.is_elsewhere) == (live.state, False)
    if isinstance(bus, Loses) and kind != "some lost":
        assert (bus.sent > 0, bus.lost > 0) == (kind == "all there", kind == "all lost")


async def test_what_another_server_runs_can_be_stopped_and_waited_for(pair: Pair) -> None:
    pair.world.gate("gate")
    pair.world.scripts["go"] = [[Use("gate")]]
    live = await open_session(pair.first)
    await send(pair.first, live, "go")
    there = await seen_by(pair.second, live.state.session_id)
    assert there.is_elsewhere
    with pytest.raises(SessionBusy):
        await pair.second.submit(there, says("now"), by=ANN)
    queued = await pair.second.submit(there, says("later"), by=ANN, busy="queue")
    assert queued.is_queued
    async with asyncio.timeout(DEADLINE_S):
        active = there.state.run
        assert active is not None
        assert await pair.second.stop_run(there, active.run_id)
    await ended(live)
    assert texts(await pair.world.history(live.state.session_id))[-2:] == ["later", "You said: later"]
    assert reasons(await pair.world.events(live.state.session_id)) == ["cancelled", "end_turn"]


async def test_a_run_whose_server_dies_goes_on_elsewhere_and_its_reader_sees_one_stream(pair: Pair) -> None:
    gate = pair.world.gate("gate", on_restart="repeat")
    pair.world.repeats |= {"any"}
    pair.world.scripts["go"] = [["one ", Use("gate")], ["two"]]
    live = await open_session(pair.first)
    await send(pair.first, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    there = await seen_by(pair.second, live.state.session_id)
    reading = asyncio.create_task(read(pair.second, there))
    pair.world.repeats |= set(there.state.calls)
    await died(pair.world, pair.first)
    gate.opened.set()
    async with asyncio.timeout(APART_S):
        seen = await reading
    assert reasons(seen) == ["end_turn"]
    assert [each.seq for each in await pair.world.events(live.state.session_id)][-1] == there.state.seq


@requirement("faults:42:begins-anew")
async def test_a_server_whose_lease_ended_writes_nothing_more_and_begins_anew(pair: Pair) -> None:
    gate = pair.world.gate("gate", on_restart="repeat")
    pair.world.scripts["go"] = [["one ", Use("gate")], ["two"]]
    live = await open_session(pair.first)
    await send(pair.first, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    pair.world.repeats |= set(live.state.calls)
    nodes: Any = getattr(pair.first.neighbours, "_nodes")  # noqa: B009  # its lease is nobody's business but here
    before = nodes.node
    nodes._renewal.stop()
    nodes._renewal.ends, nodes._renewal.has_lapsed = 0.0, True
    async with asyncio.timeout(APART_S):
        while live.failure is None:
            await live.next_commit()
    assert isinstance(live.failure, StoreUnavailable)
    gate.opened.set()
    async with asyncio.timeout(APART_S):
        again = await seen_by(pair.first, live.state.session_id)
        await ended(again)
    assert nodes.node != before
    assert reasons(await pair.world.events(live.state.session_id)) == ["end_turn"]


async def test_the_same_key_on_two_servers_does_one_thing(pair: Pair) -> None:
    live = await open_session(pair.first)
    there = await seen_by(pair.second, live.state.session_id)

    async def ask(engine: Engine, session: Any) -> Any:
        async with engine.once(ANN, Key("k", "f")) as earlier:
            if earlier is not None:
                return earlier.run_id
            submitted = await engine.submit(session, says("hello"), by=ANN, once=Key("k", "f"))
            await session.until_durable(submitted.seq)
            return submitted.run_id

    async with asyncio.timeout(DEADLINE_S):
        answers = await asyncio.gather(ask(pair.first, live), ask(pair.second, there), ask(pair.first, live))
    assert len(set(answers)) == 1
    await ended(live)
    assert texts(await pair.world.history(live.state.session_id)) == ["hello", "You said: hello"]


async def test_a_server_whose_lease_has_ended_keeps_no_key_from_others(postgres_url: str) -> None:
    """Else it, and whoever takes the key from the dead at once, would both do what was asked."""
    with closing(Database(postgres_url, use="shared")) as one, closing(Database(postgres_url, use="shared")) as two:
        first, second = (PostgresNodes(each, home=home, lease_s=LEASE_S) for each, home in ((one, "1"), (two, "2")))
        await first.join()
        await second.join()
        await first.leave()
        assert [await each.hold_key(ANN, "key") for each in (first, second, first)] == [False, True, False]
        await second.leave()


async def test_a_request_whose_server_lost_its_lease_in_the_middle_does_nothing(pair: Pair) -> None:
    """Another server may be doing it by then: the key was let go of with the lease."""
    live = await open_session(pair.first)
    seq, key = live.state.seq, Key("key", "f")
    renewal: Any = getattr(pair.first.neighbours, "_nodes")._renewal  # noqa: B009  # as above
    async with pair.first.once(ANN, key) as earlier:
        assert earlier is None
        renewal.stop()
        renewal.ends = 0.0
        with pytest.raises(StoreUnavailable, match="lost its lease"):
            await pair.first.submit(live, says("hello"), by=ANN, once=key)
        assert live.state.seq == seq
    renewal.has_lapsed = True  # and so it joins anew


async def test_a_key_that_could_not_be_let_go_of_is_free_as_soon_as_the_store_works(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "LATER_S", 0.01)
    real, failures = PostgresNodes.free_key, [1, 2]

    async def free_key(self: PostgresNodes, owner: UserId, key: str) -> None:
        if failures:
            failures.pop()
            raise StoreUnavailable("the connection broke")
        await real(self, owner, key)

    monkeypatch.setattr(PostgresNodes, "free_key", free_key)
    async with asyncio.timeout(DEADLINE_S):
        async with pair.first.once(ANN, Key("k", "f")):
            pass
        async with pair.second.once(ANN, Key("k", "f")) as earlier:
            assert (earlier, failures) == (None, [])


async def test_messages_to_both_at_once_are_played_one_after_the_other_and_none_is_lost(pair: Pair) -> None:
    live = await open_session(pair.first)
    there = await seen_by(pair.second, live.state.session_id)
    live.holds += 1
    chance = random.Random(3)

    async def speak(place: int) -> None:
        engine, session = chance.choice([(pair.first, live), (pair.second, there)])
        submitted = await engine.submit(session, says(f"{place}"), by=ANN, busy="queue")
        await session.until_durable(submitted.seq)

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(speak(place) for place in range(20)))
        while live.state.status() != "idle" or live.state.messages < 40:
            await live.next_commit()
    said = texts(await pair.world.history(live.state.session_id))
    assert sorted(said[::2]) == sorted(f"{place}" for place in range(20))
    assert said[1::2] == [f"You said: {text}" for text in said[::2]]


async def test_a_server_that_cannot_join_anew_refuses_in_time(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its database may be away for hours: who asks for something meanwhile is told so, and does not wait."""
    live = await open_session(pair.first)
    neighbours = pair.first.neighbours
    assert neighbours is not None, "there are several"
    monkeypatch.setattr(neighbours_module, "PATIENCE_S", 0.05)

    async def away() -> int:
        raise StoreUnavailable("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(neighbours._nodes, "join", away)
        neighbours._has_joined.clear()
        async with asyncio.timeout(DEADLINE_S):
            for asked in (send(pair.first, live, "hello"), open_session(pair.first)):
                with pytest.raises(StoreUnavailable, match="lost its lease"):
                    await asked
    await neighbours._has_joined.wait()
    await play(pair.first, await seen_by(pair.first, live.state.session_id), "hello")


async def test_what_one_server_deletes_is_gone_on_the_other(pair: Pair) -> None:
    live = await open_session(pair.first)
    await play(pair.first, live, "hello")
    there = await seen_by(pair.second, live.state.session_id)
    await pair.second.delete(there)
    with pytest.raises(SessionNotFound):
        await pair.first.found(ANN, live.state.session_id)


async def test_who_follows_a_run_elsewhere_sees_its_end_when_its_session_is_deleted(pair: Pair) -> None:
    """What is removed has been read before, also where no hint comes."""
    deaf = await pair.world.one(LocalBus(), {})
    pair.world.engines.append(deaf)
    gate = pair.world.gate("gate")
    pair.world.scripts["go"] = [["one ", Use("gate")]]
    live = await open_session(pair.first)
    await send(pair.first, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
        there = await seen_by(deaf, live.state.session_id)
        reading = asyncio.create_task(read(deaf, there))
        await pair.first.delete(live)
        assert reasons(await reading) == ["cancelled"]


async def test_a_run_that_ends_while_its_session_is_loaded_elsewhere_keeps_nobody_waiting(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = pair.world.gate("gate")
    pair.world.scripts["go"] = [[Use("gate")], ["done"]]
    live = await open_session(pair.first)
    await send(pair.first, live, "go")
    real, claims = PostgresNodes.claim, []

    async def claim(self: PostgresNodes, session_id: SessionId) -> Any:
        gate.opened.set()
        await ended(live)
        claims.append(await real(self, session_id))
        return claims[-1]

    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
        with monkeypatch.context() as patched:
            patched.setattr(PostgresNodes, "claim", claim)
            await seen_by(pair.second, live.state.session_id)
        assert [each and each.is_running for each in claims] == [False], "it was stored as running"
        assert pair.second.neighbours is not None
        await asyncio.gather(*pair.second.neighbours._releasing)
        claimed = await PostgresNodes.claim(pair.first.neighbours._nodes, live.state.session_id)  # type: ignore[union-attr, arg-type]
        assert claimed is not None
        assert claimed.epoch is not None, "nobody has it any more"


@pytest.mark.parametrize("more", [0, 1, 2], ids=["shorter", "as long", "longer"])
async def test_an_id_that_is_used_again_is_the_new_session_everywhere(pair: Pair, more: int) -> None:
    old = await open_session(pair.first)
    await play(pair.first, old, "hello")
    await play(pair.first, old, "hello again")
    session_id = old.state.session_id
    stale = await pair.second.found(ANN, session_id)
    await pair.first.delete(old)
    pair.world.clock.move(1)
    new = await open_session(pair.first, session_id=session_id)
    for place in range(1 + more):
        await play(pair.first, new, f"new {place}")
    with pytest.raises(SessionNotFound):
        await pair.second.submit(stale, says("to the old one"), by=ANN)
    there = await pair.second.found(ANN, session_id)
    assert (there.state, there.state == old.state) == (new.state, False)
    async with asyncio.timeout(DEADLINE_S):
        await play(pair.second, there, "newer")
    said = texts(await pair.world.history(session_id))
    assert said[::2] == [*(f"new {place}" for place in range(1 + more)), "newer"]


async def test_lists_tell_what_runs_elsewhere(pair: Pair) -> None:
    pair.world.gate("gate").opened.clear()
    pair.world.scripts["go"] = [[Use("gate")]]
    live = await open_session(pair.first)
    await send(pair.first, live, "go")
    (listed,) = await pair.second.page(ANN, None, 10)
    assert (listed.status(), listed.seq) == ("running", live.durable.seq)
    await pair.first.stop_run(live)


async def test_lists_wait_for_nothing_that_another_server_wrote(pair: Pair) -> None:
    live = await open_session(pair.first)
    await play(pair.first, live, "hello")
    await pair.second.found(ANN, live.state.session_id)
    await play(pair.first, live, "hello again")
    (listed,) = await pair.second.page(ANN, None, 10)
    assert listed.seq == live.durable.seq
    async with asyncio.timeout(DEADLINE_S):
        await pair.second.until_durable([(listed.session_id, listed.seq)])


async def test_a_server_that_is_alone_claims_nothing_and_reads_nothing_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(name: str) -> Any:
        real = getattr(PostgresNodes, name)

        async def count(self: PostgresNodes, *given: Any) -> Any:
            asked.append(name)
            return await real(self, *given)

        return count

    for name in ("claim", "release", "news", "hold_key"):
        monkeypatch.setattr(PostgresNodes, name, counted(name))
    with ExitStack() as databases:
        reading = databases.enter_context(closing(Database(postgres_url, use="beside")))
        world = SeveralWorld(PostgresLog(reading), postgres_url, databases, 1)
        async with world_over(world):
            engine = await world.one(LocalBus(), {})
            world.engines.append(engine)
            live = await open_session(engine)
            async with engine.once(ANN, Key("k", "f")):
                await play(engine, live, "hello")
            await engine.found(ANN, live.state.session_id)
            await engine.page(ANN, None, 10)
            await engine.delete(live)
    assert asked == []


async def died(world: SeveralWorld, engine: Engine) -> None:
    """End an engine as `kill -9` would: it renews nothing, and writes nothing."""
    neighbours: Any = engine.neighbours
    for task in neighbours._tasks:
        task.cancel()
    neighbours._nodes._renewal.stop()
    await world.kill(engine)
    assert LEASE_S < APART_S
