"""What a session has yet to write: events and pieces in the order of the log, and what must be stored with them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from dragoman.core.answers import replace_surrogates
from dragoman.core.content import StreamedBlockKind
from dragoman.core.events import Event, LoggedEvent, SettingsChanged
from dragoman.core.ids import LoopId, MessageId
from dragoman.core.session import SessionState, encode_head
from dragoman.core.stream import PIECE_LIMIT, Cursor, Piece, Record, split_into_pieces
from dragoman.engine.instrumentation.metrics import DELTAS
from dragoman.ports.log import Append, IdempotencyRecord


class OpenBlock:
    """A block that is still growing. `pending_deltas` is its text that is not part of a commit yet."""

    __slots__ = ("index", "is_stored", "kind", "loop", "message_id", "pending_deltas", "pieces")

    def __init__(self, message_id: MessageId, index: int, kind: StreamedBlockKind, loop: LoopId) -> None:
        self.message_id = message_id
        self.index = index
        self.kind = kind
        self.loop = loop
        self.pending_deltas: list[str] = []
        self.pieces: list[Piece] = []
        self.is_stored = False


class Outbox:
    """Gathers what one session writes until the committer collects it; then it is in flight until it is durable."""

    __slots__ = (
        "_closed_blocks",
        "_creation",
        "_has_unsaved_settings",
        "_idempotency_records",
        "_in_flight",
        "_in_flight_bytes",
        "_in_flight_events",
        "_is_new",
        "_kept",
        "_kept_waiter",
        "_kept_waiter_in_flight",
        "_name",
        "_payloads",
        "_piece_number",
        "_records",
        "_written_seq",
    )

    def __init__(self, written_seq: int) -> None:
        self._in_flight: list[Record] = []
        """The records that were collected last, until they are durable."""
        self._in_flight_events: Sequence[LoggedEvent] = ()
        """The events among them."""
        self._in_flight_bytes = 0
        """Their size in their stored form."""
        self._has_unsaved_settings = False
        """Whether the stored settings are older than those of the state."""
        self._creation: Append | None = None
        """The append that creates the session, until it is collected."""
        self._is_new = False
        self._name: str | None = None
        self._records: list[Record] = []
        self._payloads: list[bytes] = []
        """The events among the records, encoded."""
        self._closed_blocks: list[tuple[MessageId, int]] = []
        self._idempotency_records: list[IdempotencyRecord] = []
        self._kept: dict[str, bytes | None] = {}
        self._kept_waiter: asyncio.Future[None] | None = None
        """Completes when `_kept` is durable."""
        self._kept_waiter_in_flight: asyncio.Future[None] | None = None
        """Completes when the kept values that were collected last are durable."""
        self._written_seq = written_seq
        """The last event that was collected or read from the store."""
        self._piece_number = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is gathered and nothing is in flight."""
        return not (self._in_flight or self._records or self.kept_waiter)

    @property
    def kept_waiter(self) -> "asyncio.Future[None] | None":
        """Completes when all kept values are durable; None: they are."""
        return self._kept_waiter or self._kept_waiter_in_flight

    def begin_session(self, name: str | None) -> None:
        """Have the next append create the session."""
        self._is_new = self._has_unsaved_settings = True
        self._name = name

    def end_creation(self, state: SessionState, epoch: int) -> None:
        """Make an append of what was added since `begin_session`.

        A session is created at rest: a run that starts before the commit gets an append of its own.
        """
        (self._creation,) = self.collect(state, epoch, ())

    def resume(self, position: Cursor) -> None:
        """Continue after what the store has."""
        self._written_seq, self._piece_number = position

    def add_event(self, logged: LoggedEvent, payload: bytes) -> None:
        """Add an event, which follows everything added so far."""
        self._piece_number = 0
        self._payloads.append(payload)
        self._records.append(logged)
        self.track_settings(logged.event)

    def track_settings(self, event: Event) -> None:
        """Have the settings stored with the next state at rest if the event changes them."""
        if type(event) is SettingsChanged:
            self._has_unsaved_settings = True

    def add_record(self, record: IdempotencyRecord) -> None:
        """Store an idempotency record with the events."""
        self._idempotency_records.append(record)

    def keep(self, writes: Mapping[str, bytes | None]) -> None:
        """Keep values with the session."""
        if self._kept_waiter is None:
            self._kept_waiter = asyncio.get_running_loop().create_future()
        self._kept |= writes

    def close_block(self, block: OpenBlock, after: int) -> None:
        """Add the last pieces of a block. The event that closes it comes next."""
        self._records += self._cut_pieces(block, after)
        if block.is_stored:
            self._closed_blocks.append((block.message_id, block.index))

    def collect(self, state: SessionState, epoch: int, blocks: Iterable[OpenBlock]) -> Sequence[Append]:
        """Return what is to be committed, which is then in flight: an append, if there is anything.

        A new session whose first run started before the commit has two. The text of each open block becomes a piece,
        so that one commit makes one piece of many deltas.
        """
        creation, self._creation = self._creation, None
        pieces: list[Piece] = []
        for block in blocks:
            if block.pending_deltas:
                pieces += self._cut_pieces(block, state.seq)
                block.is_stored = True
        records, payloads = self._records, self._payloads
        records += pieces
        if not (records or self._kept_waiter):
            return () if creation is None else (creation,)
        self._records, self._payloads = [], []
        self._in_flight = [*self._in_flight, *records] if self._in_flight else records
        self._in_flight_bytes += sum([len(piece.text) for piece in pieces])
        append = Append(
            session_id=state.session_id,
            owner=state.owner,
            epoch=epoch,
            after=self._written_seq,
            events=[],
            payloads=payloads,
            pieces=pieces,
        )
        if payloads or self._kept_waiter:
            self._add_events_to(append, state, records)
        return (append,) if creation is None else (creation, append)

    def _add_events_to(self, append: Append, state: SessionState, records: Sequence[Record]) -> None:
        """Complete an append with events or kept values. Most have none, only text of one block."""
        append.kept, self._kept = self._kept, {}
        self._kept_waiter_in_flight, self._kept_waiter = self._kept_waiter, None
        append.events = [record for record in records if type(record) is LoggedEvent]
        append.closed_blocks, self._closed_blocks = self._closed_blocks, []
        append.idempotency_records, self._idempotency_records = self._idempotency_records, []
        append.is_new, self._is_new = self._is_new, False
        append.name, self._name = self._name, None
        if state.run is None and not state.queue:
            append.head = encode_head(state, with_settings=self._has_unsaved_settings)
            self._has_unsaved_settings = False
        self._written_seq += len(append.events)
        self._in_flight_events = (*self._in_flight_events, *append.events)
        self._in_flight_bytes += sum(map(len, append.payloads))

    def settle(self) -> tuple[list[Record], Sequence[LoggedEvent], int]:
        """Return what was in flight, which is durable now: records, the events among them, and their stored size."""
        records, events, size_bytes = self._in_flight, self._in_flight_events, self._in_flight_bytes
        self._in_flight, self._in_flight_events, self._in_flight_bytes = [], (), 0
        if self._kept_waiter_in_flight is not None:
            if not self._kept_waiter_in_flight.done():
                self._kept_waiter_in_flight.set_result(None)
            self._kept_waiter_in_flight = None
        return records, events, size_bytes

    def discard(self, failure: Exception) -> None:
        """Drop what was gathered. Whoever waits for kept values gets the failure."""
        self._records, self._payloads, self._kept = [], [], {}
        for waiter in (self._kept_waiter_in_flight, self._kept_waiter):
            if waiter is not None and not waiter.done():
                waiter.set_exception(failure)
                waiter.exception()  # everybody who waited may have been cancelled
        self._kept_waiter_in_flight = self._kept_waiter = None

    def _cut_pieces(self, block: OpenBlock, after: int) -> list[Piece]:
        """Cut a block's pending text into pieces that follow event `after`."""
        text = "".join(block.pending_deltas)
        DELTAS.inc(len(block.pending_deltas))
        block.pending_deltas.clear()
        if not text:
            return []
        if not text.isascii():
            text = replace_surrogates(text)
        pieces: list[Piece] = []
        for part in (text,) if len(text) <= PIECE_LIMIT else split_into_pieces(text):
            self._piece_number += 1
            pieces.append(Piece(after, self._piece_number, block.message_id, block.index, block.kind, part, block.loop))
        block.pieces += pieces
        return pieces
