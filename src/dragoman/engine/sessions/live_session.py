"""A session in memory: its state, its open blocks, and its life from loading to deletion.

Events are applied to the state at once and become visible when they are durable. In between they are in the `Outbox`,
which the committer empties; afterwards they are in the `ReplayBuffer`, from which readers take them.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from dragoman.core.content import StreamedBlockKind, Text, Thinking
from dragoman.core.events import BlockClosed, Event, LoggedEvent, RunStarted, encode, encode_plain
from dragoman.core.ids import LoopId, MessageId, RunId, SessionId, UserId
from dragoman.core.refusals import SessionNotFound
from dragoman.core.session import SessionState, apply, initial_state
from dragoman.core.stream import START, Cursor, Piece, Record, cursor_of, expand, gather_cuts
from dragoman.engine.sessions.group_commit import GroupCommitter
from dragoman.engine.sessions.outbox import OpenBlock, Outbox
from dragoman.engine.sessions.recent_messages import RecentMessages
from dragoman.engine.sessions.replay_buffer import ReplayBuffer
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.environment import Clock
from dragoman.ports.log import Append, IdempotencyRecord, Snapshot

LAZY_COMMIT_S = 0.02
"""How long something that is not urgent waits for the commit of something else."""


# Large: what one session is made of, in slots.
class LiveSession:
    """One session's single writer. Everything except waiting happens in plain calls on the event loop."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_committer",
        "_end_reason",
        "_lazy_commit",
        "_outbox",
        "blocks",
        "claimed_until",
        "epoch",
        "is_dirty",
        "is_remote",
        "last_writer",
        "on_events",
        "on_failed",
        "reader_count",
        "recent_messages",
        "reference_count",
        "replay_buffer",
        "run_task",
        "starts_run",
        "state",
    )

    def __init__(
        self, state: SessionState, epoch: int, committer: GroupCommitter, clock: Clock, *, durable: Cursor
    ) -> None:
        self.state = state
        self.epoch = epoch
        """The claim on the store with which this object writes."""
        self.blocks: dict[LoopId, OpenBlock] = {}
        self._end_reason: Exception | None = None
        self.reference_count = 0
        """Number of users of this object, for whom it stays in memory."""
        self.reader_count = 0
        """Number of streams that follow it, through any protocol."""
        self.on_failed: Callable[[LiveSession], None] | None = None
        """Called after a failed commit, so that the session's run can be resumed."""
        self.on_events: Callable[[LiveSession, Sequence[LoggedEvent]], None] | None = None
        """Called with events as soon as they are durable. Must not raise."""
        self.run_task: asyncio.Task[None] | None = None
        self.is_remote = False
        """Whether its run is on another server: this object follows the log."""
        self.last_writer: str | None = None
        """The server that wrote last, as of the last look."""
        self.claimed_until = 0.0
        """Until when, by the monotonic clock, no other server writes to the session at rest."""
        self.is_dirty = False
        """Whether the committer knows that there is something to write."""
        self.starts_run = False
        """Whether a run starts with the next commit."""
        self.recent_messages = RecentMessages(durable.seq)
        self.replay_buffer = ReplayBuffer(durable)
        self._outbox = Outbox(durable.seq)
        self._committer = committer
        self._clock = clock
        self._lazy_commit: asyncio.TimerHandle | None = None
        """The timer of the commit of what is not urgent, if any was gathered since the last commit."""

    # --- loading --------------------------------------------------------------------------------------------------

    @classmethod
    def new(
        cls,
        session_id: SessionId,
        created: Sequence[Event],
        *,
        owner: UserId,
        name: str | None,
        idempotency_record: IdempotencyRecord | None,
        epoch: int,
        committer: GroupCommitter,
        clock: Clock,
    ) -> "LiveSession":
        """Begin a session with its first events."""
        first = LoggedEvent(1, clock.now(), None, created[0])
        state = initial_state(session_id, owner, first)
        live = cls(state, epoch, committer, clock, durable=Cursor(0))
        live._outbox.begin_session(name)
        live._outbox.add_event(first, encode(created[0]))
        live.append(created[1:], None, idempotency_record=idempotency_record)
        live._outbox.end_creation(state, epoch)
        return live

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, epoch: int, committer: GroupCommitter, clock: Clock) -> "LiveSession":
        """Resume a stored session, including its open blocks."""
        state = snapshot.head
        at_rest = state.seq
        for logged in snapshot.events:
            apply(state, logged)
        durable = max([Cursor(state.seq), *map(cursor_of, snapshot.pieces)])
        live = cls(state, epoch, committer, clock, durable=durable)
        live.recent_messages.after = at_rest
        for logged in snapshot.events:
            live._outbox.track_settings(logged.event)
            live.recent_messages.add(logged, len(encode(logged.event)))
        live._outbox.resume(durable)
        for piece in snapshot.pieces:
            live._apply_piece(piece)
        return live

    def catch_up(self, events: Sequence[LoggedEvent], pieces: Sequence[Piece]) -> None:
        """Apply what another server wrote after `durable_cursor`, and show it to the readers.

        Args:
            events: all events after it.
            pieces: all pieces after it of the blocks that these events leave open.

        Raises:
            ValueError, KeyError: these do not continue this session's log.
        """
        self.apply_records(expand(events, pieces, self.durable_cursor))

    def apply_records(self, records: list[Record]) -> None:
        """Do what `catch_up` does, given all records after `durable_cursor` as readers see them.

        Raises:
            ValueError, KeyError: these do not continue this session's log.
        """
        assert self.is_clean, "there is one writer"
        if not records:
            return
        size = 0
        for record in records:
            if type(record) is Piece:
                self._apply_piece(record)
                size += len(record.text)
            else:
                size += self._apply_event(record)
        self._outbox.resume(cursor_of(records[-1]))
        self._show(records, [record for record in records if type(record) is LoggedEvent], size)

    def _apply_event(self, logged: LoggedEvent) -> int:
        apply(self.state, logged)
        event, size = logged.event, len(encode(logged.event))
        if type(event) is BlockClosed:
            block = self.blocks.get(event.loop)
            if block is not None and (block.message_id, block.index) == (event.message_id, event.index):
                del self.blocks[event.loop]
        self._outbox.track_settings(event)
        self.recent_messages.add(logged, size)
        return size

    def _apply_piece(self, piece: Piece) -> None:
        block = self.blocks.get(piece.loop)
        if block is None or (block.message_id, block.index) != (piece.message_id, piece.index):
            block = self.open_block(piece.message_id, piece.index, piece.kind, piece.loop)
            block.is_stored = True
        block.pieces.append(piece)

    # --- writing --------------------------------------------------------------------------------------------------

    def append(
        self,
        events: Sequence[Event],
        run_id: RunId | None,
        *,
        idempotency_record: IdempotencyRecord | None = None,
        urgent: bool = True,
    ) -> int:
        """Add events to the log; they become visible once they are durable. Returns the last one's number.

        Args:
            events: the events.
            run_id: the run that they belong to.
            idempotency_record: stored in the same commit.
            urgent: False leaves them to the commit of what is written next, if it follows within `LAZY_COMMIT_S`.

        Raises:
            Exception: as `raise_if_ended`.
            TypeError, UnicodeEncodeError: an event holds a value that JSON cannot represent; no event was added.
        """
        self.raise_if_ended()
        plain = list(map(encode_plain, events))
        outbox, state, at = self._outbox, self.state, self._clock.now()
        if idempotency_record is not None:
            outbox.add_record(idempotency_record)
        remember = self.recent_messages.add
        for event, payload in plain:
            logged = LoggedEvent(state.seq + 1, at, run_id, event)
            apply(state, logged)
            outbox.add_event(logged, payload)
            if type(event) is RunStarted:
                self.starts_run = True
            remember(logged, len(payload))
        self.schedule_commit() if urgent else self._schedule_commit_later()
        return state.seq

    async def keep(self, writes: Mapping[str, bytes | None], *, durable: bool = True) -> None:
        """Keep values with the session, in one commit with what was appended before. They are durable on return.

        With `durable=False` this does not wait: they are committed with what is written next, or after `LAZY_COMMIT_S`.

        Raises:
            Exception: as `raise_if_ended`.
        """
        self.raise_if_ended()
        self._outbox.keep(writes)
        if durable:
            await self.until_kept()
        else:
            self._schedule_commit_later()

    async def until_kept(self) -> None:
        """Wait until all kept values are durable. Raises as `raise_if_ended`, if they never will be."""
        if (kept := self._outbox.kept_waiter) is not None:
            self.schedule_commit()
            await asyncio.shield(kept)  # several callers share it

    def schedule_commit(self) -> None:
        """Have the committer write what gathered here."""
        if not self.is_dirty and self._end_reason is None:
            self.is_dirty = True
            self._committer.schedule(self)

    def _schedule_commit_later(self) -> None:
        """Have the committer write what gathered here after a short time, unless it does so before."""
        if not self.is_dirty and self._lazy_commit is None:
            self._lazy_commit = asyncio.get_running_loop().call_later(LAZY_COMMIT_S, self.schedule_commit)

    def open_block(self, message_id: MessageId, index: int, kind: StreamedBlockKind, loop: LoopId) -> OpenBlock:
        """Begin a block that grows."""
        block = OpenBlock(message_id, index, kind, loop)
        self.blocks[loop] = block
        return block

    def close_block(self, loop: LoopId, run_id: RunId | None) -> None:
        """Close the loop's growing block, if it has one, with all its text."""
        block = self.blocks.pop(loop, None)
        if block is None:
            return
        self._outbox.close_block(block, self.state.seq)
        text = "".join([piece.text for piece in block.pieces])
        closed = BlockClosed(
            message_id=block.message_id,
            index=block.index,
            block=Text(text) if block.kind == "text" else Thinking(text),
            loop=loop,
            cuts=gather_cuts(block.pieces),
        )
        seq = self.append((closed,), run_id)
        if block.is_stored:
            self.replay_buffer.closing_blocks.append((seq, block))

    def collect(self) -> Sequence[Append]:
        """Return what is to be committed, in one commit; see `Outbox.collect`."""
        self.is_dirty = self.starts_run = False
        if self._lazy_commit is not None:
            self._lazy_commit.cancel()
            self._lazy_commit = None
        if self._end_reason is not None:
            return ()
        appends = self._outbox.collect(self.state, self.epoch, self.blocks.values())
        if appends and appends[-1].head is not None:
            self.claimed_until = 0.0  # writing the state at rest releases the claim
        return appends

    def publish(self) -> None:
        """Show the readers what was collected last: it is durable now."""
        records, events, size_bytes = self._outbox.settle()
        if records:
            self._show(records, events, size_bytes)

    def _show(self, records: list[Record], events: Sequence[LoggedEvent], size_bytes: int) -> None:
        self.replay_buffer.publish(records, size_bytes)
        if events and self.on_events is not None:
            self.on_events(self, events)
        if not self.reference_count and self.state.run is None:
            self.replay_buffer.clear()

    def fail(self, error: Exception) -> None:
        """End this object because a commit failed. Nobody has seen what was not written."""
        self.end(error)
        if self.on_failed is not None:
            self.on_failed(self)

    def end(self, why: Exception) -> None:
        """Make this object unusable: cancel its run, and end its readers with `why` after all durable records.

        The pieces of open blocks stay for readers that are still reading the log.
        """
        if self._end_reason is not None:
            return
        self._end_reason = why
        self._outbox.discard(_without_frames(why))
        if self.run_task is not None:
            self.run_task.cancel()
        self.replay_buffer.wake_all()

    # --- reading --------------------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Whether this object must not be used any more; the session itself may live on in the store."""
        return self._end_reason is not None

    @property
    def was_deleted(self) -> bool:
        """Whether the session was deleted, or is being deleted."""
        return isinstance(self._end_reason, SessionNotFound)

    def raise_if_ended(self) -> None:
        """Raise what `end` was called with, if it was.

        A new exception each time: one that was raised keeps the frames that it went through, and they this object.
        """
        if self._end_reason is not None:
            raise _without_frames(self._end_reason)

    @property
    def is_idle(self) -> bool:
        """Whether this object can leave the memory."""
        return not (self.reference_count or (self.state.run and not self.is_remote)) and self.is_clean

    @property
    def is_clean(self) -> bool:
        """Whether everything that was done here is durable."""
        return not self.is_dirty and self._outbox.is_empty

    @property
    def durable_cursor(self) -> Cursor:
        """The position of the last durable record."""
        return self.replay_buffer.cursor

    def durable_pieces(self, after: Cursor = START, limit: int | None = None) -> tuple[list[Piece], bool]:
        """The durable pieces after a position of blocks whose end is not durable yet, and whether these are all."""
        buffer, pieces = self.replay_buffer, list[Piece]()
        for block in (*self.blocks.values(), *(block for _, block in buffer.closing_blocks)):
            first = bisect_right(block.pieces, after, key=cursor_of)
            pieces += block.pieces[first : None if limit is None else first + limit + 1]
        pieces = sorted((piece for piece in pieces if cursor_of(piece) <= buffer.cursor), key=cursor_of)
        return pieces[:limit], limit is None or len(pieces) <= limit

    async def until_durable(self, seq: int) -> None:
        """Wait until event `seq` is durable.

        Raises:
            Exception: as `raise_if_ended`; then it never will be.
        """
        while self.durable_cursor.seq < seq:
            self.raise_if_ended()
            if self._lazy_commit is not None:
                self.schedule_commit()
            await self.next_commit()

    def next_commit(self) -> "asyncio.Future[None]":
        """Return a future that completes when something becomes durable or this object fails."""
        return self.replay_buffer.next_commit()


def to_live_session(view: SessionView) -> LiveSession:
    """The session behind a view: every view that the engine hands out is one."""
    assert isinstance(view, LiveSession), "views come from the engine"
    return view


def _without_frames(error: Exception) -> Exception:
    """A copy of an exception, without its traceback."""
    fresh = type(error).__new__(type(error), *error.args)
    vars(fresh).update(vars(error))
    fresh.__cause__ = error.__cause__
    return fresh
