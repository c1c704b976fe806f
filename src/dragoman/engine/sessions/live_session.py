"""A session in memory: where it stands, what it has yet to write, and what its readers see.

Events are applied to the state at once and become visible when they are durable: between the two lies the outbox,
which the committer empties. Words of an open block gather in the block until then, so that one commit makes one piece
of them, however many deltas the agent emitted.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from dragoman.core.answers import replace_surrogates
from dragoman.core.content import Message, StreamedBlockKind, Text, Thinking
from dragoman.core.events import BlockClosed, Event, LoggedEvent, RunStarted, SettingsChanged, encode
from dragoman.core.history import Assembler
from dragoman.core.ids import LoopId, MessageId, RunId, SessionId
from dragoman.core.session import Head, SessionState, apply, encode_head, initial_state
from dragoman.core.stream import PIECE_LIMIT, Cursor, Piece, Record, cursor_of, expand, gather_cuts, split_into_pieces
from dragoman.engine.instrumentation.metrics import DELTAS
from dragoman.engine.sessions.group_commit import GroupCommitter
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.environment import Clock
from dragoman.ports.log import Append, IdempotencyRecord, Snapshot

RING_RECORDS = 1024
"""Records kept for readers who follow live; a reader who falls further behind reads the log."""
RING_BYTES = 1024 * 1024
"""Of those records, in the form in which they are stored."""
TAIL_MESSAGES = 256
"""Messages kept for the agent; older ones are read from the log."""
TAIL_BYTES = 1024 * 1024
"""Of those messages, in the form in which they are stored; the newest stays whatever its size."""


class OpenBlock:
    """A block that is still growing. `fresh` are its words since the last commit was begun."""

    __slots__ = ("index", "is_stored", "kind", "loop", "message_id", "pending_deltas", "pieces")

    def __init__(self, message_id: MessageId, index: int, kind: StreamedBlockKind, loop: LoopId) -> None:
        self.message_id = message_id
        self.index = index
        self.kind = kind
        self.loop = loop
        self.pending_deltas: list[str] = []
        self.pieces: list[Piece] = []
        self.is_stored = False


class Follower(Protocol):
    """A reader that has seen everything and takes what comes in the moment in which it is durable."""

    def receive(self, records: Sequence[Record]) -> None:
        """The next records. Must not raise."""

    def wake(self) -> None:
        """The session failed."""


class LoggedMessage(NamedTuple):
    """A message and the event that completed it."""

    seq: int
    message: Message


class LiveSession:
    """One session's single writer. Everything but waiting happens in plain calls on the event loop."""

    __slots__ = (
        "__weakref__",
        "_assembler",
        "_clock",
        "_closed_blocks",
        "_closing_blocks",
        "_committer",
        "_followers",
        "_has_unsaved_settings",
        "_idempotency_records",
        "_in_flight",
        "_in_flight_bytes",
        "_is_new",
        "_name",
        "_notified_seq",
        "_outbox",
        "_payloads",
        "_piece_number",
        "_ring",
        "_ring_base",
        "_ring_bytes",
        "_ring_from",
        "_tail_bytes",
        "_tail_marks",
        "_wakers",
        "_written_seq",
        "blocks",
        "claimed_until",
        "durable_cursor",
        "epoch",
        "failure",
        "is_dirty",
        "is_remote",
        "last_writer",
        "on_events",
        "on_failed",
        "reader_count",
        "reference_count",
        "run_task",
        "starts_run",
        "state",
        "tail",
        "tail_from",
    )

    def __init__(self, state: SessionState, epoch: int, committer: GroupCommitter, clock: Clock) -> None:
        self.state = state
        self.epoch = epoch
        self.blocks: dict[LoopId, OpenBlock] = {}
        self.failure: Exception | None = None
        """Why this object may not be used any more; the session itself may live on in the store."""
        self.reference_count = 0
        """How many need this object; it stays in memory for them."""
        self.reader_count = 0
        """How many streams follow it, through whichever door."""
        self.on_failed: Callable[[LiveSession], None] | None = None
        """Told when a commit failed, so that the session's run can be taken up again."""
        self.on_events: Callable[[LiveSession, Sequence[LoggedEvent]], None] | None = None
        """Told what happened, as soon as it is durable. Must not raise."""
        self.run_task: asyncio.Task[None] | None = None
        self.is_remote = False
        """Whether its run is not played here: this object follows the log."""
        self.last_writer: str | None = None
        """The server that wrote last, as far as that was looked up."""
        self.claimed_until = 0.0
        """Until when, by the monotonic clock, no other server writes to the session at rest."""
        self.tail: list[LoggedMessage] = []
        self.tail_from = state.seq
        """Messages completed after this event are in `tail`."""
        self._tail_bytes = 0
        """Of all events that were remembered."""
        self._tail_marks: list[int] = []
        """What `_tail_bytes` was at each message of the tail."""
        self._committer = committer
        self._clock = clock
        self._assembler = Assembler()
        self.is_dirty = False
        """Whether the committer was told that there is something to write."""
        self.starts_run = False
        """See `committer.Writing`."""
        self._is_new = False
        self._has_unsaved_settings = False
        """Whether the stored settings are older than the state's."""
        self._name: str | None = None
        self._idempotency_records: list[IdempotencyRecord] = []
        self._outbox: list[Record] = []
        self._payloads: list[bytes] = []
        """The outbox's events, encoded."""
        self._closed_blocks: list[tuple[MessageId, int]] = []
        self._closing_blocks: list[tuple[int, OpenBlock]] = []
        """Blocks that readers have seen pieces of, with the event that closes each and is not durable yet."""
        self._in_flight: list[Record] = []
        self._in_flight_bytes = 0
        self._written_seq = self._notified_seq = state.seq
        self._piece_number = 0
        self.durable_cursor = Cursor(state.seq)
        self._ring: list[Record] = []
        self._ring_bytes = 0
        self._ring_base = 0
        self._ring_from = Cursor(state.seq)
        self._wakers: dict[asyncio.Future[None], None] = {}
        self._followers: tuple[Follower, ...] = ()

    # --- coming into memory ---------------------------------------------------------------------------------------

    @classmethod
    def new(
        cls,
        session_id: SessionId,
        created: Sequence[Event],
        *,
        owner: str,
        name: str | None,
        idempotency_record: IdempotencyRecord | None,
        epoch: int,
        committer: GroupCommitter,
        clock: Clock,
    ) -> "LiveSession":
        """Begin a session with its first events."""
        first = LoggedEvent(1, clock.now(), None, created[0])
        live = cls(initial_state(session_id, owner, first), epoch, committer, clock)  # type: ignore[arg-type]  # a UserId is a str
        live._is_new, live._has_unsaved_settings, live._name = True, True, name
        live._idempotency_records = [] if idempotency_record is None else [idempotency_record]
        live._written_seq, live.durable_cursor, live._ring_from, live.tail_from = 0, Cursor(0), Cursor(0), 0
        live._notified_seq = 0
        live._outbox.append(first)
        live._payloads.append(encode(created[0]))
        live.append(created[1:], None)
        live.schedule_commit()
        return live

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, epoch: int, committer: GroupCommitter, clock: Clock) -> "LiveSession":
        """Take a stored session up where it stands, open blocks included."""
        live = cls(snapshot.head, epoch, committer, clock)
        for logged in snapshot.events:
            apply(live.state, logged)
            live._has_unsaved_settings |= type(logged.event) is SettingsChanged
            live._remember(logged, len(encode(logged.event)))
        live._written_seq = live._notified_seq = live.state.seq
        for piece in snapshot.pieces:
            block = live.blocks.get(piece.loop)
            if block is None:
                block = OpenBlock(piece.message_id, piece.index, piece.kind, piece.loop)
                block.is_stored = True
                live.blocks[piece.loop] = block
            block.pieces.append(piece)
        last = max((cursor_of(piece) for piece in snapshot.pieces), default=Cursor(0))
        live.durable_cursor = live._ring_from = max(last, Cursor(live.state.seq))
        live._piece_number = live.durable_cursor.pieces
        return live

    def catch_up(self, events: Sequence[LoggedEvent], pieces: Sequence[Piece]) -> None:
        """Take in what another server wrote behind the position `durable`, and show it to the readers.

        Args:
            events: all events behind it.
            pieces: all pieces behind it of the blocks that are open after them.

        Raises:
            ValueError, KeyError: this is not the same session's log any more.
        """
        self.apply_records(expand(events, pieces, self.durable_cursor))

    def apply_records(self, records: list[Record]) -> None:
        """The same, where all records behind `durable` are given as readers see them.

        Raises:
            ValueError, KeyError: see `catch_up`.
        """
        assert self.is_clean, "there is one writer"
        if not records:
            return
        size = 0
        for record in records:
            if type(record) is Piece:
                self._apply_piece(record)
                size += len(record.text)
            elif type(record) is LoggedEvent:
                size += self._apply_event(record)
        self._in_flight, self._in_flight_bytes = records, size
        self._written_seq = self.state.seq
        self.publish()
        self._piece_number = self.durable_cursor.pieces

    def _apply_event(self, logged: LoggedEvent) -> int:
        apply(self.state, logged)
        event, size = logged.event, len(encode(logged.event))
        if type(event) is BlockClosed:
            block = self.blocks.get(event.loop)
            if block is not None and (block.message_id, block.index) == (event.message_id, event.index):
                del self.blocks[event.loop]
        self._has_unsaved_settings |= type(event) is SettingsChanged
        self._remember(logged, size)
        return size

    def _apply_piece(self, piece: Piece) -> None:
        block = self.blocks.get(piece.loop)
        if block is None or (block.message_id, block.index) != (piece.message_id, piece.index):
            block = self.open_block(piece.message_id, piece.index, piece.kind, piece.loop)
            block.is_stored = True
        block.pieces.append(piece)

    # --- writing --------------------------------------------------------------------------------------------------

    def append(
        self, events: Sequence[Event], run_id: RunId | None, *, idempotency_record: IdempotencyRecord | None = None
    ) -> int:
        """Add events to the log; they are visible once they are durable. Returns the last one's number.

        Raises:
            Exception: `failure`, when this object has lost its session.
            TypeError, UnicodeEncodeError: an event holds what is no JSON; none of the events was added.
        """
        if self.failure is not None:
            raise self.failure
        payloads = [encode(event) for event in events]
        self._payloads += payloads
        if idempotency_record is not None:
            self._idempotency_records.append(idempotency_record)
        at = self._clock.now()
        for event, payload in zip(events, payloads, strict=True):
            logged = LoggedEvent(self.state.seq + 1, at, run_id, event)
            apply(self.state, logged)
            self._piece_number = 0
            self._outbox.append(logged)
            self._has_unsaved_settings |= type(event) is SettingsChanged
            self.starts_run |= type(event) is RunStarted
            self._remember(logged, len(payload))
        self.schedule_commit()
        return self.state.seq

    def schedule_commit(self) -> None:
        """Have what gathered here committed."""
        if not self.is_dirty and self.failure is None:
            self.is_dirty = True
            self._committer.schedule(self)

    def open_block(self, message_id: MessageId, index: int, kind: StreamedBlockKind, loop: LoopId) -> OpenBlock:
        """Begin a block that grows."""
        block = OpenBlock(message_id, index, kind, loop)
        self.blocks[loop] = block
        return block

    def close_block(self, loop: LoopId, run_id: RunId | None) -> None:
        """Close the loop's growing block, if it has one, with all that it holds."""
        block = self.blocks.pop(loop, None)
        if block is None:
            return
        self._outbox.extend(self._new_pieces(block))
        text = "".join(piece.text for piece in block.pieces)
        if block.is_stored:
            self._closed_blocks.append((block.message_id, block.index))
        closed = BlockClosed(
            message_id=block.message_id,
            index=block.index,
            block=Text(text) if block.kind == "text" else Thinking(text),
            loop=loop,
            cuts=gather_cuts(block.pieces),
        )
        seq = self.append((closed,), run_id)
        if block.is_stored:
            self._closing_blocks.append((seq, block))

    def collect(self) -> Append | None:
        """See `committer.Writing`."""
        self.is_dirty = self.starts_run = False
        if self.failure is not None:
            return None
        pieces: list[Piece] = []
        for block in self.blocks.values():
            if block.pending_deltas:
                pieces += self._new_pieces(block)
                block.is_stored = True
        records, payloads = self._outbox, self._payloads
        records += pieces
        if not records:
            return None
        self._outbox, self._payloads, self._in_flight = [], [], records
        self._in_flight_bytes = sum([len(piece.text) for piece in pieces])
        append = Append(
            session_id=self.state.session_id,
            owner=self.state.owner,
            epoch=self.epoch,
            after=self._written_seq,
            events=[],
            payloads=payloads,
            pieces=pieces,
        )
        if payloads:
            self._add_events(append, records)
        return append

    def _add_events(self, append: Append, records: Sequence[Record]) -> None:
        """Complete a share that has events: most have none, but words of one block."""
        append.events = [record for record in records if type(record) is LoggedEvent]
        append.closed_blocks, self._closed_blocks = self._closed_blocks, []
        append.idempotency_records, self._idempotency_records = self._idempotency_records, []
        append.is_new, self._is_new = self._is_new, False
        append.name, self._name = self._name, None
        if self.state.run is None and not self.state.queue:
            append.head = self._head()
            self.claimed_until = 0.0  # what is written lets go of the session
        self._written_seq += len(append.events)
        self._in_flight_bytes += sum(map(len, append.payloads))

    def publish(self) -> None:
        """See `committer.Writing`: show the records to the readers."""
        records, self._in_flight = self._in_flight, []
        self.durable_cursor = cursor_of(records[-1])
        if self._closing_blocks:
            self._closing_blocks = [each for each in self._closing_blocks if each[0] > self.durable_cursor.seq]
        self._ring.extend(records)
        self._ring_bytes += self._in_flight_bytes
        if len(self._ring) > 2 * RING_RECORDS or self._ring_bytes > 2 * RING_BYTES:
            self._trim_ring()
        self._wake_readers()
        for follower in self._followers:
            follower.receive(records)
        if self._written_seq > self._notified_seq and self.on_events is not None:
            self._notified_seq = self._written_seq
            self.on_events(self, [record for record in records if type(record) is LoggedEvent])
        if not self.reference_count and self.state.run is None:
            self.forget_records()

    def fail(self, error: Exception) -> None:
        """See `committer.Writing`: what was not written was never seen, and this object is of no more use."""
        self.end(error)
        if self.on_failed is not None:
            self.on_failed(self)

    def end(self, why: Exception) -> None:
        """Make this object unusable: its run ends, its readers are told why, after what was durable by then.

        What it knows of open blocks stays, because a reader who comes from the log needs their pieces still.
        """
        if self.failure is not None:
            return
        self.failure = why
        self._outbox, self._payloads = [], []
        if self.run_task is not None:
            self.run_task.cancel()
        self._wake_readers()
        for follower in self._followers:
            follower.wake()

    def _head(self) -> Head:
        head = encode_head(self.state, with_settings=self._has_unsaved_settings)
        self._has_unsaved_settings = False
        return head

    def _new_pieces(self, block: OpenBlock) -> list[Piece]:
        """Cut a block's fresh words into pieces that stand after the last event."""
        text = "".join(block.pending_deltas)
        DELTAS.inc(len(block.pending_deltas))
        block.pending_deltas.clear()
        if not text:
            return []
        if not text.isascii():
            text = replace_surrogates(text)
        after, made = self.state.seq, []
        for part in (text,) if len(text) <= PIECE_LIMIT else split_into_pieces(text):
            self._piece_number += 1
            made.append(Piece(after, self._piece_number, block.message_id, block.index, block.kind, part, block.loop))
        block.pieces += made
        return made

    def _remember(self, logged: LoggedEvent, size: int) -> None:
        self._tail_bytes += size
        message = self._assembler.feed(logged)
        if message is None:
            return
        tail, marks = self.tail, self._tail_marks
        tail.append(LoggedMessage(logged.seq, message))
        marks.append(self._tail_bytes)
        while len(tail) > TAIL_MESSAGES or (len(tail) > 1 and self._tail_bytes - marks[0] > TAIL_BYTES):
            self.tail_from = tail.pop(0).seq
            marks.pop(0)

    # --- reading --------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be missed if this object left the memory."""
        return not (self.reference_count or (self.state.run and not self.is_remote)) and self.is_clean

    @property
    def is_clean(self) -> bool:
        """Whether everything that was done here is durable."""
        return not (self.is_dirty or self._in_flight or self._outbox)

    async def until_durable(self, seq: int) -> None:
        """Wait until event `seq` is durable.

        Raises:
            Exception: `failure`, when it never will be.
        """
        while self.durable_cursor.seq < seq:
            if self.failure is not None:
                raise self.failure
            await self.next_commit()

    def next_commit(self) -> "asyncio.Future[None]":
        """What completes when something became durable, or this object failed."""
        waker = asyncio.get_running_loop().create_future()
        self._wakers[waker] = None
        return waker

    def forget_waker(self, waker: "asyncio.Future[None]") -> None:
        """Drop what `next_commit` gave, unless it is complete."""
        self._wakers.pop(waker, None)

    def add_follower(self, follower: Follower) -> None:
        """Hand over all records from now on."""
        self._followers += (follower,)

    def remove_follower(self, follower: Follower) -> None:
        """Hand over no more, if that was done."""
        self._followers = tuple(each for each in self._followers if each is not follower)

    @property
    def ring_end(self) -> int:
        """The number of the next record, counted from when the session came into memory."""
        return self._ring_base + len(self._ring)

    def records_from(self, index: int) -> list[Record] | None:
        """The durable records from number `index` on; None when they have left the memory."""
        start = index - self._ring_base
        return None if start < 0 else self._ring[start:]

    def index_after(self, cursor: Cursor) -> int | None:
        """The number of the first record behind a position; None when it is no longer in memory."""
        if cursor < self._ring_from:
            return None
        return self._ring_base + bisect_right(self._ring, cursor, key=cursor_of)

    def durable_pieces(self) -> Iterator[Piece]:
        """The pieces that readers may see of blocks whose end is not durable yet."""
        blocks = [*self.blocks.values(), *(block for _, block in self._closing_blocks)]
        return (piece for block in blocks for piece in block.pieces if cursor_of(piece) <= self.durable_cursor)

    def forget_records(self) -> None:
        """Free the records kept for readers."""
        self._ring_base += len(self._ring)
        self._ring, self._ring_bytes, self._ring_from = [], 0, self.durable_cursor

    def _trim_ring(self) -> None:
        """Let the older records go: half of what may be kept, or all when the newest alone are too many."""
        gone = len(self._ring) - RING_RECORDS if self._ring_bytes <= 2 * RING_BYTES else len(self._ring)
        self._ring_bytes = 0 if gone == len(self._ring) else self._ring_bytes * RING_RECORDS // len(self._ring)
        self._ring_from = cursor_of(self._ring[gone - 1])
        self._ring = self._ring[gone:]
        self._ring_base += gone

    def _wake_readers(self) -> None:
        if not self._wakers:
            return
        wakers, self._wakers = self._wakers, {}
        for waker in wakers:
            if not waker.done():
                waker.set_result(None)


def to_live_session(view: SessionView) -> LiveSession:
    """The session behind a view: every view that the engine hands out is one."""
    assert isinstance(view, LiveSession), "views come from the engine"
    return view
