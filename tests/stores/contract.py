"""What every store promises: the contract of `EventLog` and `SessionIndex`, for every adapter.

An adapter's tests inherit `StoreContract` and provide a fixture `store`. Callers rely on nothing else.
"""

# Large: one test for each guarantee of a store, which every store must pass.

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from random import Random
from typing import Any, Protocol

import msgspec
import pytest

from dragoman.core.content import AssistantMessage, Call, Text, ToolMessage, UserMessage
from dragoman.core.events import (
    BlockClosed,
    CallOpened,
    CallSettled,
    Event,
    Lifetime,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    RunQueued,
    RunStarted,
    RunStopped,
    SessionCreated,
    SessionSettings,
    SettingsChange,
    SettingsChanged,
    encode,
)
from dragoman.core.ids import ROOT, CallId, MessageId, RunId, SessionId, UserId, uuid7
from dragoman.core.refusals import SessionUnreadable
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.session import SessionState, decode_head, encode_head, fold, initial_state
from dragoman.core.stream import Piece, cursor_of
from dragoman.ports.log import Append, IdempotencyRecord, RunLocation, SessionStore, Snapshot
from tests.core.log_generator import LogGenerator, generated_log
from tests.core.strategies import NOON

ANN, BOB = UserId("ann"), UserId("bob")
DEADLINE_S = 60.0


def session_id(number: int) -> SessionId:
    return SessionId(uuid7(number, 0))


class SessionWriter:
    """A session as its writer knows it: makes the appends that a store is given."""

    def __init__(self, number: int, *, epoch: int, owner: UserId = ANN, at: Any = NOON) -> None:
        self.session_id = session_id(number)
        self.owner = owner
        self.epoch = epoch
        self.at = at
        self.log: list[LoggedEvent] = []
        self.state: SessionState | None = None
        self._settings_due = True

    def append(self, *events: Event, **fields: Any) -> Append:
        """The next append; the writer goes on as if it had been taken."""
        after = len(self.log)
        logged = [
            LoggedEvent(seq, self.at, getattr(event, "run_id", None), event)
            for seq, event in enumerate(events, after + 1)
        ]
        self.log += logged
        if self.state is None:
            self.state = initial_state(self.session_id, self.owner, logged[0])
            fold(self.state, logged[1:])
        else:
            fold(self.state, logged)
        self._settings_due |= any(isinstance(event, SettingsChanged) for event in events)
        rests = self.state.run is None and not self.state.queue
        head = encode_head(self.state, with_settings=self._settings_due) if rests else None
        if rests:
            self._settings_due = False
        made: dict[str, Any] = {
            "session_id": self.session_id,
            "owner": self.owner,
            "epoch": self.epoch,
            "after": after,
            "events": logged,
            "payloads": [encode(event) for event in events],
            "head": head,
        }
        return Append(**{**made, **fields})

    def new(self, **fields: Any) -> Append:
        """The append that begins the session."""
        created = SessionCreated(agent="agent", settings=SessionSettings(title="t"), protocol="test")
        return self.append(created, is_new=True, **fields)

    def text_events(self, text: str) -> Append:
        return self.append(MessageAdded(message=UserMessage(id=MessageId(f"m{len(self.log)}"), content=text)))


async def commit_accepted(store: SessionStore, *appends: Append) -> list[bool]:
    async with asyncio.timeout(DEADLINE_S):
        return list(await store.commit(appends))


async def new_session_in(store: SessionStore, number: int = 1, **fields: Any) -> SessionWriter:
    """A new session in the store."""
    writing = SessionWriter(number, epoch=await store.claim_epoch(), **fields)
    assert await commit_accepted(store, writing.new()) == [True]
    return writing


async def dump_session(store: SessionStore, of: SessionId) -> tuple[Snapshot | None, Sequence[LoggedEvent]]:
    """What a store returns about a session."""
    return await store.load(of), await store.events(of, 0, 1_000_000)


def started(number: int) -> RunStarted:
    return RunStarted(run_id=RunId(f"run-{number}"), protocol="test")


def stopped(number: int) -> RunStopped:
    return RunStopped(run_id=RunId(f"run-{number}"), reason="end_turn")


def a_piece(after: int, text: str, *, place: int = 1, index: int = 0) -> Piece:
    return Piece(after, place, MessageId("m"), index, "text", text, ROOT)


def idempotency_record(
    key: str, number: int = 1, *, owner: UserId = ANN, hours: float = 0.0, run: int | None = None
) -> IdempotencyRecord:
    run_id = None if run is None else RunId(f"run-{run}")
    at = NOON + timedelta(hours=hours)
    return IdempotencyRecord(owner=owner, key=key, fingerprint="f", session_id=session_id(number), run_id=run_id, at=at)


Commit = tuple[Append, SessionState, list[Piece]]


def commits_of(scribe: LogGenerator, chance: Random, epoch: int) -> Iterator[Commit]:
    """A conversation's stream in random parts, each with the state and the open blocks' pieces after it."""
    state = initial_state(SessionId(scribe.state.session_id), ANN, scribe.log[0])
    open_pieces: dict[tuple[MessageId, int], list[Piece]] = {}
    is_due = True
    rest = list(scribe.stream)
    while rest:
        size = 1 if state.seq == 1 and is_due else chance.choice([1, 1, 2, 3, 5, 10])
        part, rest = rest[:size], rest[size:]
        events = [record for record in part if isinstance(record, LoggedEvent)]
        after = 0 if events and events[0].seq == 1 else state.seq
        stored = set(open_pieces)
        for record in part:
            if isinstance(record, Piece):
                open_pieces.setdefault((record.message_id, record.index), []).append(record)
                continue
            if record.seq > 1:
                fold(state, [record])
            is_due |= isinstance(record.event, SettingsChanged)
            if isinstance(record.event, BlockClosed):
                open_pieces.pop((record.event.message_id, record.event.index), None)
        rests = state.run is None and not state.queue
        yield (
            Append(
                session_id=state.session_id,
                owner=ANN,
                epoch=epoch,
                after=after,
                events=events,
                payloads=[encode(logged.event) for logged in events],
                pieces=[piece for pieces in open_pieces.values() for piece in pieces if piece in part],
                closed_blocks=[block for block in stored if block not in open_pieces],
                head=encode_head(state, with_settings=is_due) if rests else None,
                is_new=after == 0 and bool(events),
            ),
            copy_state(state),
            sorted((piece for pieces in open_pieces.values() for piece in pieces), key=cursor_of),
        )
        is_due = is_due and not rests


def copy_state(state: SessionState) -> SessionState:
    """A copy that does not change when the other is folded on."""
    head = encode_head(state, with_settings=True)
    assert head.settings is not None
    return decode_head(head.state, head.settings)


class Damage(Protocol):
    """Overwrites a session's stored state, or one of its stored events, with what cannot be decoded."""

    async def __call__(self, session_id: SessionId, seq: int | None = None) -> None: ...


# Large: one test for each guarantee of a store.
class StoreContract:
    """Every test takes the fixture `store`; those on damaged data also `damage`, which writes past the store."""

    # --- fences -----------------------------------------------------------------------------------------------------

    async def test_claims_grow(self, store: SessionStore) -> None:
        claims = [await store.claim_epoch() for _ in range(3)]
        assert claims == sorted(set(claims))
        assert claims[0] > 0

    @pytest.mark.parametrize("after", [-1, 1])
    async def test_a_writer_that_is_behind_or_ahead_writes_nothing(self, store: SessionStore, after: int) -> None:
        writing = await new_session_in(store)
        assert await commit_accepted(store, writing.text_events("one")) == [True]
        before = await dump_session(store, writing.session_id)
        wrong = writing.text_events("two")
        wrong.after += after
        assert await commit_accepted(store, wrong) == [False]
        assert await dump_session(store, writing.session_id) == before

    async def test_a_writer_that_was_overtaken_writes_nothing(self, store: SessionStore) -> None:
        old = await new_session_in(store)
        new = SessionWriter(1, epoch=await store.claim_epoch())
        assert old.state is not None
        new.log, new.state = list(old.log), copy_state(old.state)
        assert await commit_accepted(store, new.text_events("new")) == [True]
        before = await dump_session(store, old.session_id)
        for late in (old.text_events("old"), old.append(pieces=[a_piece(2, "old")]), old.append(started(1))):
            late.after = 2  # it would even know where the log stands
            assert await commit_accepted(store, late) == [False]
        assert await dump_session(store, old.session_id) == before

    async def test_a_claim_alone_takes_nothing_from_anybody(self, store: SessionStore) -> None:
        """Only who writes with it overtakes."""
        writing = await new_session_in(store)
        await store.claim_epoch()
        assert await commit_accepted(store, writing.text_events("still here")) == [True]

    async def test_a_session_begins_once(self, store: SessionStore) -> None:
        await new_session_in(store)
        before = await dump_session(store, session_id(1))
        again = SessionWriter(1, epoch=await store.claim_epoch(), owner=BOB)
        assert await commit_accepted(store, again.new(idempotency_records=[idempotency_record("k", owner=BOB)])) == [
            False
        ]
        assert await dump_session(store, session_id(1)) == before
        assert await store.find_idempotency_record(BOB, "k") is None, "nothing of a refused append is kept"

    async def test_what_was_never_begun_takes_nothing(self, store: SessionStore) -> None:
        writing = SessionWriter(1, epoch=await store.claim_epoch())
        writing.new()
        assert await commit_accepted(store, writing.text_events("one")) == [False]
        assert await dump_session(store, writing.session_id) == (None, [])

    async def test_a_late_writer_of_a_deleted_session_writes_nothing(self, store: SessionStore) -> None:
        writing = await new_session_in(store)
        assert await commit_accepted(store, writing.append(started(1))) == [True]
        await store.delete(writing.session_id)
        for late in (writing.text_events("late"), writing.append(pieces=[a_piece(2, "late")])):
            assert await commit_accepted(store, late) == [False]
        assert await dump_session(store, writing.session_id) == (None, [])

    async def test_an_id_may_be_used_again_after_a_deletion(self, store: SessionStore) -> None:
        await new_session_in(store)
        await store.delete(session_id(1))
        again = await new_session_in(store, owner=BOB)
        snapshot = await store.load(again.session_id)
        assert snapshot is not None
        assert (snapshot.head.owner, snapshot.head.seq) == (BOB, 1)

    # --- commits ----------------------------------------------------------------------------------------------------

    async def test_of_a_batch_each_is_taken_or_refused_by_itself(self, store: SessionStore) -> None:
        epoch = await store.claim_epoch()
        sessions = [SessionWriter(number, epoch=epoch) for number in range(1, 6)]
        assert await commit_accepted(store, *(each.new() for each in sessions)) == [True] * 5
        appends = [each.text_events("two") for each in sessions]
        appends[1].after = 7
        appends[3].session_id = session_id(99)
        assert await commit_accepted(store, *appends) == [True, False, True, False, True]
        for place, each in enumerate(sessions):
            assert len(await store.events(each.session_id, 0, 10)) == (1 if place in (1, 3) else 2)

    async def test_a_batch_may_create_a_session_and_continue_it(self, store: SessionStore) -> None:
        writing = SessionWriter(1, epoch=await store.claim_epoch())
        created, running = writing.new(name="mine"), writing.append(started(1))
        assert await commit_accepted(store, created, running) == [True, True]
        assert [*await store.unfinished_sessions()] == [writing.session_id]
        stored, events = await dump_session(store, writing.session_id)
        assert stored is not None
        assert (stored.head.seq, [*stored.events], [*events]) == (1, writing.log[1:], writing.log)
        refused = SessionWriter(2, epoch=writing.epoch)
        assert await commit_accepted(store, refused.new(name="mine"), refused.append(started(2))) == [False, False]

    async def test_an_empty_batch_is_taken(self, store: SessionStore) -> None:
        assert await commit_accepted(store) == []

    async def test_batches_at_once_do_not_mix(self, store: SessionStore) -> None:
        epoch = await store.claim_epoch()
        sessions = [SessionWriter(number, epoch=epoch) for number in range(1, 21)]
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*(commit_accepted(store, each.new()) for each in sessions))
            for _ in range(5):
                await asyncio.gather(*(commit_accepted(store, each.text_events("more")) for each in sessions))
        for each in sessions:
            assert await store.events(each.session_id, 0, 100) == each.log

    async def test_a_caller_who_gives_up_leaves_nothing_half_done(self, store: SessionStore) -> None:
        """Whole or not at all; and the store goes on."""
        writing = await new_session_in(store)
        for number in range(1, 20):
            said = MessageAdded(message=UserMessage(id=MessageId(f"m{number}"), content="x"))
            append = writing.append(started(number), said, stopped(number))
            task = asyncio.create_task(commit_accepted(store, append))
            for _ in range(number % 4):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            marker = SessionWriter(1000 + number, epoch=writing.epoch)
            assert await commit_accepted(store, marker.new()) == [True], "what was given up is over by now"
            written = len(await store.events(writing.session_id, 0, 1000))
            assert written in (len(writing.log), len(writing.log) - 3)
            if written != len(writing.log):
                writing.log = writing.log[:written]
                writing.state = fold(initial_state(writing.session_id, ANN, writing.log[0]), writing.log[1:])

    # --- reading back -----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("seed", range(12))
    async def test_after_any_prefix_of_appends_the_store_holds_their_fold(self, store: SessionStore, seed: int) -> None:
        """A random conversation, committed in random parts; a crash after each would lose nothing."""
        scribe = generated_log(seed, 80)
        for append, state, pieces in commits_of(scribe, Random(seed), await store.claim_epoch()):
            assert await commit_accepted(store, append) == [True]
            snapshot = await store.load(append.session_id)
            assert snapshot is not None
            assert fold(snapshot.head, snapshot.events) == state
            assert sorted(snapshot.pieces, key=cursor_of) == pieces
            assert [*await store.unfinished_sessions()] == ([append.session_id] if append.head is None else [])
        assert [*await store.events(append.session_id, 0, 100_000)] == scribe.log

    async def test_events_are_read_from_any_place_in_both_directions(self, store: SessionStore) -> None:
        writing = await new_session_in(store)
        for number in range(20):
            assert await commit_accepted(store, writing.text_events(f"{number}")) == [True]
        for place in (0, 1, 7, 20, 21, 22, 100):
            for limit in (1, 5, 100):
                assert [*await store.events(writing.session_id, place, limit)] == writing.log[place : place + limit]
                before = writing.log[max(0, min(place - 1, 21) - limit) : max(0, place - 1)]
                assert [*await store.events_before(writing.session_id, place, limit)] == before
        assert [*await store.events(session_id(99), 0, 10)] == []
        assert [*await store.events_before(session_id(99), 10, 10)] == []

    async def test_what_is_stored_is_what_was_given(self, store: SessionStore) -> None:
        """Texts with everything that a text may have, times to the microsecond, objects of any depth that is taken."""
        hard = "\0 \u202e \U0001f600 é \r\n \x1b[31m '; DROP TABLE events; -- " + "x" * 100_000
        writing = SessionWriter(1, epoch=await store.claim_epoch(), at=NOON + timedelta(microseconds=123_457))
        deep: dict[str, Any] = {}
        for _ in range(60):
            deep = {"a": [deep]}
        assert await commit_accepted(store, writing.new(), writing.text_events(hard)) == [True, True]
        assert await commit_accepted(
            store, writing.append(RunQueued(run_id=RunId("r"), protocol="d", metadata=RunMetadata(protocol=deep)))
        ) == [True]
        assert [*await store.events(writing.session_id, 0, 10)] == writing.log
        snapshot = await store.load(writing.session_id)
        assert snapshot is not None
        assert fold(snapshot.head, snapshot.events) == writing.state

    async def test_settings_that_change_during_a_run_are_there_afterwards(self, store: SessionStore) -> None:
        writing = await new_session_in(store)
        change = SettingsChanged(change=SettingsChange(title="new", options={"o": "x"}))
        for event in (started(1), change, stopped(1)):
            assert await commit_accepted(store, writing.append(event)) == [True]
            snapshot = await store.load(writing.session_id)
            assert snapshot is not None
            assert fold(snapshot.head, snapshot.events) == writing.state
        assert writing.state is not None
        assert writing.state.settings.title == "new"

    # --- pieces -----------------------------------------------------------------------------------------------------

    async def test_pieces_are_there_until_their_block_is_closed(self, store: SessionStore) -> None:
        writing = await new_session_in(store)
        opened = MessageOpened(message_id=MessageId("m"))
        assert await commit_accepted(store, writing.append(started(1), opened)) == [True]
        first, second = a_piece(3, "one "), a_piece(3, "two", place=2)
        assert await commit_accepted(store, writing.append(pieces=[first])) == [True]
        assert await commit_accepted(store, writing.append(pieces=[second])) == [True]
        snapshot = await store.load(writing.session_id)
        assert snapshot is not None
        assert [*snapshot.pieces] == [first, second]
        closed = writing.append(MessageClosed(message_id=MessageId("m")), closed_blocks=[(MessageId("m"), 0)])
        other = a_piece(4, "next", index=1)
        closed.pieces = [other]
        assert await commit_accepted(store, closed) == [True]
        snapshot = await store.load(writing.session_id)
        assert snapshot is not None
        assert [*snapshot.pieces] == [other]

    # --- what is looked up --------------------------------------------------------------------------------------------

    async def test_runs_are_found_by_their_id(self, store: SessionStore) -> None:
        writing = await new_session_in(store)
        queued = RunQueued(run_id=RunId("run-2"), protocol="test")
        assert await commit_accepted(store, writing.append(started(1), queued)) == [True]
        row = RunLocation(run_id=RunId("run-1"), session_id=session_id(1), owner=ANN, first_seq=2)
        assert await store.find_run(RunId("run-1")) == row
        assert await store.find_run(RunId("run-2")) == RunLocation(
            run_id=RunId("run-2"), session_id=session_id(1), owner=ANN, first_seq=3
        )
        assert await commit_accepted(store, writing.append(stopped(1), started(2), stopped(2))) == [True]
        moved = await store.find_run(RunId("run-2"))
        assert moved is not None
        assert moved.first_seq == 5, "where it began in the end"
        assert await store.find_run(RunId("run-1")) == row
        assert await store.find_run(RunId("nobody's")) is None

    async def test_calls_are_known_once_they_were_made(self, store: SessionStore) -> None:
        writing, other = await new_session_in(store), await new_session_in(store, 2)
        ids = [CallId(name) for name in ("seeded", "made", "settled", "strange")]
        seeded = AssistantMessage(id=MessageId("a"), content=(Call(ids[0], "t", {}),))
        made = [
            CallOpened(message_id=MessageId("b"), index=place, call=Call(call_id, "t", {}), kind="client")
            for place, call_id in enumerate(ids[1:3])
        ]
        result = ToolMessage(id=MessageId("c"), call_id=ids[2], name="t", content="")
        assert await commit_accepted(
            store,
            writing.append(
                MessageAdded(message=seeded),
                MessageOpened(message_id=MessageId("b")),
                *made,
                MessageClosed(message_id=MessageId("b")),
                CallSettled(outcome="done", result=result),
            ),
        ) == [True]
        assert await store.known_calls(writing.session_id, ids) == set(ids[:3])
        assert await store.known_calls(other.session_id, ids) == set(), "a call belongs to its session"
        assert await store.known_calls(writing.session_id, []) == set()

    async def test_names_belong_to_their_owners(self, store: SessionStore) -> None:
        epoch = await store.claim_epoch()
        for number, owner, name in ((1, ANN, "mine"), (2, BOB, "mine"), (3, ANN, "x" * 5000)):
            assert await commit_accepted(store, SessionWriter(number, epoch=epoch, owner=owner).new(name=name)) == [
                True
            ]
        assert await store.find_by_name(ANN, "mine") == session_id(1)
        assert await store.find_by_name(BOB, "mine") == session_id(2)
        assert await store.find_by_name(ANN, "x" * 5000) == session_id(3)
        assert await store.find_by_name(BOB, "x" * 5000) is None

    async def test_of_two_sessions_with_one_name_the_first_has_it_and_nobody_else_is_harmed(
        self, store: SessionStore
    ) -> None:
        epoch = await store.claim_epoch()
        first, second, other = (SessionWriter(number, epoch=epoch) for number in (1, 2, 3))
        batch = [first.new(name="mine"), second.new(name="mine"), other.new()]
        assert await commit_accepted(store, *batch) == [True, False, True]
        assert await store.find_by_name(ANN, "mine") == session_id(1)
        assert await dump_session(store, session_id(2)) == (None, [])
        assert [state.session_id for state in await store.page(ANN, None, 10)] == [session_id(3), session_id(1)]

    async def test_unfinished_are_those_with_a_run(self, store: SessionStore) -> None:
        idle, running, ended = [await new_session_in(store, number) for number in (1, 2, 3)]
        assert await commit_accepted(store, running.append(started(1)), ended.append(started(2), stopped(2))) == [
            True,
            True,
        ]
        assert [*await store.unfinished_sessions()] == [running.session_id]
        assert await commit_accepted(store, running.append(stopped(1)), idle.append(started(3))) == [True, True]
        assert [*await store.unfinished_sessions()] == [idle.session_id]

    # --- doing things once ------------------------------------------------------------------------------------------

    async def test_what_a_request_did_is_kept_with_it(self, store: SessionStore) -> None:
        writing = await new_session_in(store)
        kept = [idempotency_record("a", run=1), idempotency_record("b"), idempotency_record("a", owner=BOB)]
        assert await commit_accepted(store, writing.append(started(1), idempotency_records=kept)) == [True]
        assert await store.find_idempotency_record(ANN, "a") == kept[0]
        assert await store.find_idempotency_record(ANN, "b") == kept[1]
        assert await store.find_idempotency_record(BOB, "a") == kept[2]
        assert await store.find_idempotency_record(BOB, "b") is None

    async def test_what_a_refused_append_did_is_not_kept(self, store: SessionStore) -> None:
        writing = await new_session_in(store)
        refused = writing.append(started(1), idempotency_records=[idempotency_record("a")])
        refused.after = 9
        assert await commit_accepted(store, refused) == [False]
        assert await store.find_idempotency_record(ANN, "a") is None

    async def test_a_key_is_kept_for_a_day_even_if_clocks_are_two_days_apart(self, store: SessionStore) -> None:
        writing = await new_session_in(store)
        assert await commit_accepted(
            store, writing.append(started(1), idempotency_records=[idempotency_record("old")])
        ) == [True]
        assert await commit_accepted(
            store, writing.append(stopped(1), idempotency_records=[idempotency_record("new", hours=72)])
        ) == [True]
        assert await store.find_idempotency_record(ANN, "old") is not None, "a day, and two for the clocks"
        assert await commit_accepted(
            store, writing.append(started(2), idempotency_records=[idempotency_record("newer", hours=72.001)])
        ) == [True]
        assert await store.find_idempotency_record(ANN, "old") is None
        assert await store.find_idempotency_record(ANN, "new") is not None

    async def test_a_key_that_lasts_goes_with_its_session(self, store: SessionStore) -> None:
        writing = await new_session_in(store)
        lasting = msgspec.structs.replace(idempotency_record("lasting"), lasts=True)
        assert await commit_accepted(store, writing.append(started(1), idempotency_records=[lasting])) == [True]
        assert await commit_accepted(
            store, writing.append(stopped(1), idempotency_records=[idempotency_record("newer", hours=24 * 365)])
        ) == [True]
        assert await store.find_idempotency_record(ANN, "lasting") == lasting
        await store.delete(writing.session_id)
        assert await store.find_idempotency_record(ANN, "lasting") is None

    async def test_a_key_and_ids_of_messages_are_looked_up_in_one(self, store: SessionStore) -> None:
        writing = await new_session_in(store)
        said = MessageAdded(message=UserMessage(id=MessageId("ours"), content="hi", client_id="theirs"))
        assert await commit_accepted(store, writing.append(said, idempotency_records=[idempotency_record("a")])) == [
            True
        ]
        assert await store.find_request(ANN, "a", writing.session_id, ["theirs", "nobody's"]) == (
            idempotency_record("a"),
            {"theirs": 2},
        )
        assert await store.find_request(BOB, "a", session_id(2), ["theirs"]) == (None, {})
        assert await store.find_request(ANN, "a", writing.session_id, []) == (idempotency_record("a"), {})

    # --- messages ---------------------------------------------------------------------------------------------------

    async def test_messages_are_found_by_their_ids_and_by_the_clients(self, store: SessionStore) -> None:
        writing, other = await new_session_in(store), await new_session_in(store, 2)
        said = UserMessage(id=MessageId("m-1"), client_id="c-1", content="hello")
        answered = AssistantMessage(id=MessageId("m-2"), content="Hello.")
        assert await commit_accepted(
            store, writing.append(MessageAdded(message=said), MessageAdded(message=answered))
        ) == [True]
        known = {"m-1": 2, "c-1": 2, "m-2": 3}
        assert await store.find_messages(writing.session_id, ["c-1", "m-1", "m-2", "m-3", ""]) == known
        assert await store.find_messages(writing.session_id, []) == {}
        assert await store.find_messages(other.session_id, ["c-1", "m-1"]) == {}
        again = UserMessage(id=MessageId("m-4"), client_id="c-1", content="hello again")
        assert await commit_accepted(store, writing.append(MessageAdded(message=again))) == [True]
        assert await store.find_messages(writing.session_id, ["c-1"]) == {"c-1": 4}, "the newest is found"
        await store.delete(writing.session_id)
        assert await store.find_messages(writing.session_id, ["c-1"]) == {}

    # --- lists ------------------------------------------------------------------------------------------------------

    async def test_pages_hold_an_owners_sessions_newest_first(self, store: SessionStore) -> None:
        made = [
            await new_session_in(store, number, at=NOON + timedelta(seconds=number // 2)) for number in range(1, 12)
        ]
        await new_session_in(store, 50, owner=BOB)
        found: list[SessionState] = []
        while page := await store.page(ANN, (found[-1].created_at, found[-1].session_id) if found else None, 3):
            assert len(page) <= 3
            found += page
        assert [state.session_id for state in found] == [each.session_id for each in reversed(made)]
        assert found == [each.state for each in reversed(made)]
        assert [state.session_id for state in await store.page(BOB, None, 10)] == [session_id(50)]
        assert [*await store.page(UserId("carl"), None, 10)] == []

    async def test_pages_are_stable_while_sessions_come_go_and_change(self, store: SessionStore) -> None:
        made = [await new_session_in(store, number, at=NOON + timedelta(seconds=number)) for number in range(1, 10)]
        first = await store.page(ANN, None, 4)
        await new_session_in(store, 50, at=NOON + timedelta(hours=1))
        await store.delete(made[6].session_id)  # on the first page
        await store.delete(made[3].session_id)  # on the second
        assert await commit_accepted(store, made[0].text_events("changed"), made[8].text_events("changed")) == [
            True,
            True,
        ]
        rest = await store.page(ANN, (first[-1].created_at, first[-1].session_id), 100)
        shown = [state.session_id for state in (*first, *rest)]
        assert shown == [each.session_id for each in reversed(made) if each is not made[3]]

    async def test_a_list_shows_sessions_as_they_were_at_their_last_rest(self, store: SessionStore) -> None:
        writing = await new_session_in(store)
        assert await commit_accepted(store, writing.append(started(1)), writing.text_events("x")) == [True, True]
        (state,) = await store.page(ANN, None, 10)
        assert (state.seq, state.run) == (1, None)
        assert await commit_accepted(store, writing.append(stopped(1))) == [True]
        assert [*await store.page(ANN, None, 10)] == [writing.state]

    async def test_sessions_by_use_are_the_pinned_then_those_changed_last(self, store: SessionStore) -> None:
        made = [await new_session_in(store, number, at=NOON + timedelta(seconds=number)) for number in range(1, 5)]
        await new_session_in(store, 50, owner=BOB)
        made[0].at = NOON + timedelta(hours=1)
        pin = SettingsChanged(change=SettingsChange(pinned=True))
        assert await commit_accepted(store, made[0].text_events("changed"), made[1].append(pin)) == [True, True]
        found = await store.recent(ANN, "", 0, 3)
        assert [state.session_id for state in found.states] == [session_id(each) for each in (2, 1, 4)]
        assert (found.total, found.is_partial) == (4, False)
        rest = await store.recent(ANN, "", 3, 3)
        assert [state.session_id for state in rest.states] == [session_id(3)]
        assert [*(await store.recent(UserId("carl"), "", 0, 3)).states] == []

    async def test_unlisted_sessions_are_in_no_list_and_no_search_until_they_are_listed(
        self, store: SessionStore
    ) -> None:
        hidden = SessionWriter(1, epoch=await store.claim_epoch())
        created = SessionCreated(
            agent="agent", settings=SessionSettings(title="quince", unlisted=True), protocol="test"
        )
        said = MessageAdded(message=UserMessage(id=MessageId("m"), content="quince jelly"))
        listed = await new_session_in(store, 2)
        assert await commit_accepted(store, hidden.append(created, said, is_new=True)) == [True]
        for words, shown in (("", [session_id(2)]), ("quince", [])):
            found = await store.recent(ANN, words, 0, 10)
            assert ([state.session_id for state in found.states], found.total) == (shown, len(shown))
        assert [*await store.page(ANN, None, 10)] == [listed.state]
        assert [*await store.page(ANN, (NOON + timedelta(days=1), session_id(9)), 10)] == [listed.state]
        assert (await store.load(hidden.session_id)) is not None, "it is there for whoever knows its id"
        change = SettingsChanged(change=SettingsChange(unlisted=False))
        assert await commit_accepted(store, hidden.append(change)) == [True]
        assert [*await store.page(ANN, None, 10)] == [listed.state, hidden.state]
        found = await store.recent(ANN, "quince", 0, 10)
        assert [state.session_id for state in found.states] == [session_id(1)]

    async def test_sessions_at_rest_expire_at_the_end_of_their_lifetime(self, store: SessionStore) -> None:
        epoch = await store.claim_epoch()
        writers = [SessionWriter(number, epoch=epoch, owner=ANN if number < 4 else BOB) for number in range(1, 5)]
        lives = ((60, True), (30, True), (0, False), (0, True))
        for writing, (idle_s, unlisted) in zip(writers, lives, strict=True):
            settings = SessionSettings(unlisted=unlisted, lifetime=Lifetime(idle_s=idle_s, waiting_s=600))
            created = SessionCreated(agent="agent", settings=settings, protocol="test")
            assert await commit_accepted(store, writing.append(created, is_new=True)) == [True]
        assert await commit_accepted(store, writers[3].append(started(4))) == [True]
        expired = [(session_id(2), ANN), (session_id(1), ANN)]
        assert [*await store.expired_sessions(NOON + timedelta(seconds=29), 10)] == []
        assert [*await store.expired_sessions(NOON + timedelta(seconds=60), 1)] == expired[:1]
        assert [*await store.expired_sessions(NOON + timedelta(days=1), 10)] == expired, "a run keeps the fourth"
        assert await commit_accepted(store, writers[3].append(stopped(4))) == [True]
        assert [*await store.expired_sessions(NOON, 10)] == [(session_id(4), BOB)]

    async def test_sessions_at_rest_are_listed_by_their_last_change(self, store: SessionStore) -> None:
        epoch = await store.claim_epoch()
        for number, owner in ((1, ANN), (2, BOB), (3, ANN), (4, BOB)):
            at = NOON + timedelta(days=number)
            writer = SessionWriter(number, epoch=epoch, owner=owner, at=at)
            assert await commit_accepted(store, writer.new()) == [True]
            if number == 4:
                assert await commit_accepted(store, writer.append(started(4))) == [True]
        last = NOON + timedelta(days=10)
        assert [*await store.idle_sessions(NOON + timedelta(days=2), 10)] == [
            (session_id(1), ANN),
            (session_id(2), BOB),
        ]
        assert [*await store.idle_sessions(last, 1)] == [(session_id(1), ANN)]
        assert [*await store.idle_sessions(last, 1, skip=1)] == [(session_id(2), BOB)]
        assert [*await store.idle_sessions(last, 10, only=ANN)] == [(session_id(1), ANN), (session_id(3), ANN)]
        assert [*await store.idle_sessions(last, 10, except_for=[ANN])] == [(session_id(2), BOB)], "one is running"

    async def test_sessions_are_found_by_their_title_and_by_what_was_said_in_whatever_case(
        self, store: SessionStore
    ) -> None:
        made = [await new_session_in(store, number, at=NOON + timedelta(seconds=number)) for number in range(1, 4)]
        title = SettingsChanged(change=SettingsChange(title="Grüße aus Wien"))
        answer = BlockClosed(message_id=MessageId("m"), index=0, block=Text("杭州 und WIEN"))
        assert await commit_accepted(
            store,
            made[0].append(title),
            made[1].append(MessageOpened(message_id=MessageId("m")), answer, MessageClosed(message_id=MessageId("m"))),
            made[2].text_events("nothing of the kind"),
        ) == [True, True, True]
        for words, numbers in (("GRÜSSE", [1]), ("wien", [2, 1]), ("杭州", [2]), ("message", []), ("%", [])):
            found = await store.recent(ANN, words, 0, 10)
            assert [state.session_id for state in found.states] == [session_id(each) for each in numbers]
            assert found.total == len(numbers)
        second = await store.recent(ANN, "wien", 1, 10)
        assert ([state.session_id for state in second.states], second.total) == ([session_id(1)], 2)

    # --- damage -----------------------------------------------------------------------------------------------------

    async def test_a_damaged_state_is_left_out_of_lists_and_fails_alone(
        self, store: SessionStore, damage: Damage, unreadable: list[SessionUnreadable]
    ) -> None:
        for number in range(1, 6):
            await new_session_in(store, number, at=NOON + timedelta(seconds=number))
        for number in (2, 4):
            await damage(session_id(number))
        page = [*await store.page(ANN, None, 2)]
        assert [state.session_id for state in page] == [session_id(5), session_id(3)], "a page is filled up"
        rest = await store.page(ANN, (page[-1].created_at, page[-1].session_id), 2)
        assert [state.session_id for state in rest] == [session_id(1)]
        for text in ("", "t"):
            recent = await store.recent(ANN, text, 0, 10)
            assert [state.session_id for state in recent.states] == [session_id(each) for each in (5, 3, 1)]
        assert {error.session_id for error in unreadable} == {session_id(2), session_id(4)}
        assert all(error.reason.startswith("state: ") for error in unreadable)
        with pytest.raises(SessionUnreadable):
            await store.load(session_id(2))
        assert await store.load(session_id(1)) is not None
        assert await store.find_owner(session_id(2)) == ANN
        await store.delete(session_id(2))
        assert (await store.load(session_id(2)), await store.find_owner(session_id(2))) == (None, None)

    async def test_a_damaged_event_fails_its_session_and_no_other(self, store: SessionStore, damage: Damage) -> None:
        damaged, intact = await new_session_in(store, 1), await new_session_in(store, 2)
        for each, writer in enumerate((damaged, intact), 1):
            assert await commit_accepted(store, writer.text_events("findable"), writer.append(started(each)))
        await damage(damaged.session_id, 3)
        for reading in (
            store.load(damaged.session_id),
            store.events(damaged.session_id, 0, 10),
            store.events_before(damaged.session_id, 10, 10),
        ):
            with pytest.raises(SessionUnreadable) as raised:
                await reading
            assert (raised.value.session_id, raised.value.reason[:8]) == (damaged.session_id, "event 3:")
        assert len(await store.events(damaged.session_id, 0, 2)) == 2, "what precedes the damage can be read"
        assert len(await store.events(intact.session_id, 0, 10)) == 3
        assert (await store.recent(ANN, "findable", 0, 10)).total == 2
        await store.delete(damaged.session_id)
        assert await store.load(damaged.session_id) is None

    async def test_a_search_passes_over_damaged_text(self, store: SessionStore, damage: Damage) -> None:
        for number in (1, 2):
            writer = await new_session_in(store, number)
            assert await commit_accepted(store, writer.text_events("findable")) == [True]
        await damage(session_id(1), 2)
        found = await store.recent(ANN, "findable", 0, 10)
        assert [state.session_id for state in found.states] == [session_id(2)]

    # --- deletion ---------------------------------------------------------------------------------------------------

    async def test_deleting_removes_everything_of_a_session_and_nothing_else(self, store: SessionStore) -> None:
        gone, other = await new_session_in(store, 1), await new_session_in(store, 2)
        for number, writing in enumerate((gone, other), start=1):
            called = CallOpened(message_id=MessageId("m"), index=0, call=Call(CallId("c"), "t", {}), kind="client")
            opened = MessageOpened(message_id=MessageId("m"))
            queued = RunQueued(run_id=RunId(f"queued-{number}"), protocol="test")
            kept = [idempotency_record(f"key-{number}", number)]
            assert await commit_accepted(
                store, writing.append(started(number), queued, opened, called, idempotency_records=kept)
            ) == [True]
            assert await commit_accepted(store, writing.append(pieces=[a_piece(5, "so ")])) == [True]
        named = SessionWriter(3, epoch=gone.epoch)
        assert await commit_accepted(store, named.new(name="mine")) == [True]
        before = await dump_session(store, other.session_id)

        await store.delete(gone.session_id)
        await store.delete(named.session_id)
        await store.delete(session_id(99))

        assert await dump_session(store, gone.session_id) == (None, [])
        assert [await store.find_run(RunId(name)) for name in ("run-1", "queued-1")] == [None, None]
        assert await store.known_calls(gone.session_id, [CallId("c")]) == set()
        assert await store.find_idempotency_record(ANN, "key-1") is None
        assert await store.find_by_name(ANN, "mine") is None
        assert [*await store.unfinished_sessions()] == [other.session_id]
        assert [state.session_id for state in await store.page(ANN, None, 10)] == [other.session_id]
        assert await dump_session(store, other.session_id) == before
        assert await store.find_idempotency_record(ANN, "key-2") is not None
        assert await store.known_calls(other.session_id, [CallId("c")]) == {CallId("c")}
        assert await store.find_run(RunId("queued-2")) is not None
