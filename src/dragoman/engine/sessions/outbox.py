"""What a session has yet to write: events and pieces in the order of the log, and what must be stored with them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from dragoman.core.answers import replace_surrogates
from dragoman.core.content import StreamedBlockKind
from dragoman.core.events import LoggedEvent
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
    """Gathers what one session writes until the committer collects it. At most one collected append is in flight."""

    __slots__ = (
        "_closed_blocks",
        "_idempotency_records",
        "_is_new",
        "_kept",
        "_kept_waiter",
        "_kept_waiter_in_flight",
        "_name",
        "_payloads",
        "_piece_number",
        "_records",
        "_written_seq",
        "has_unsaved_settings",
        "in_flight",
        "in_flight_bytes",
        "in_flight_events",
    )

    def __init__(self, written_seq: int) -> None:
        self.has_unsaved_settings = False
        """Whether the stored settings are older than those of the state."""
        self.in_flight: list[Record] = []
        """The records that were collected last, until they are durable and published."""
        self.in_flight_events: Sequence[LoggedEvent] = ()
        """The events among them."""
        self.in_flight_bytes = 0
        """Their size in their stored form."""
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
        return not (self.in_flight or self._records or self._kept_waiter or self._kept_waiter_in_flight)

    def begin_session(self, name: str | None) -> None:
        """Have the next append create the session."""
        self._is_new = self.has_unsaved_settings = True
        self._name = name

    def resume(self, position: Cursor) -> None:
        """Continue after what the store has."""
        self._written_seq, self._piece_number = position

    def add_event(self, logged: LoggedEvent, payload: bytes) -> None:
        """Add an event, which follows everything added so far."""
        self._piece_number = 0
        self._payloads.append(payload)
        self._records.append(logged)

    def add_record(self, record: IdempotencyRecord) -> None:
        """Store an idempotency record with the events."""
        self._idempotency_records.append(record)

    def keep(self, writes: Mapping[str, bytes | None]) -> "asyncio.Future[None]":
        """Keep values with the session. Returns a future that completes when they are durable."""
        if self._kept_waiter is None:
            self._kept_waiter = asyncio.get_running_loop().create_future()
        self._kept |= writes
        return self._kept_waiter

    def settle_kept(self, failure: Exception | None = None) -> None:
        """Complete the future of the kept values in flight; a failure also fails that of the values gathered since."""
        waiters, self._kept_waiter_in_flight = [self._kept_waiter_in_flight], None
        if failure is not None:
            waiters.append(self._kept_waiter)
            self._kept, self._kept_waiter = {}, None
        for waiter in waiters:
            if waiter is None or waiter.done():
                continue
            if failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(failure)
                waiter.exception()  # everybody who waited may have been cancelled

    def close_block(self, block: OpenBlock, after: int) -> None:
        """Add the last pieces of a block. The event that closes it comes next."""
        self._records += self._cut_pieces(block, after)
        if block.is_stored:
            self._closed_blocks.append((block.message_id, block.index))

    def collect(self, state: SessionState, epoch: int, blocks: Iterable[OpenBlock]) -> Append | None:
        """Return everything that was gathered, which is then in flight; None if there is nothing.

        The text of each open block becomes a piece, so that one commit makes one piece of many deltas.
        """
        pieces: list[Piece] = []
        for block in blocks:
            if block.pending_deltas:
                pieces += self._cut_pieces(block, state.seq)
                block.is_stored = True
        records, payloads = self._records, self._payloads
        records += pieces
        if not (records or self._kept_waiter):
            return None
        self._records, self._payloads, self.in_flight = [], [], records
        self.in_flight_bytes = sum([len(piece.text) for piece in pieces])
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
        self.in_flight_events = append.events
        return append

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
            append.head = encode_head(state, with_settings=self.has_unsaved_settings)
            self.has_unsaved_settings = False
        self._written_seq += len(append.events)
        self.in_flight_bytes += sum(map(len, append.payloads))

    def discard(self) -> None:
        """Drop what was gathered."""
        self._records, self._payloads = [], []

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
