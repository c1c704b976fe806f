"""One session's subscribers: they share one reader and one projection.

The projection starts at the session's first event, because Blade numbers entries and events over the whole session.
From then on every record is translated once, and every event is encoded once for all sockets of a kind.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import structlog
from engineio import packet  # type: ignore[import-untyped]  # the library is not annotated

from dragoman.core.ids import SessionId
from dragoman.core.refusals import SessionNotFound, ShuttingDown, StoreUnavailable
from dragoman.core.stream import START, Cursor, Record, cursor_of
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade.projection.emitter import OutgoingEvent, PatchOptions
from dragoman.protocols.blade.projection.loader import tool_titles
from dragoman.protocols.blade.projection.projection import Projection
from dragoman.protocols.blade.socket.client_socket import Socket, event_packet

BATCHED_EVENTS = frozenset({"chat:start", "turn:start", "turn:patch", "turn:end"})
"""Events that raw sockets get in batches (specification, section 16)."""
FLATTENED_EVENTS = frozenset({"turn:start", "turn:end"})
"""Of those, the ones whose fields are repeated at the item's top level."""
RELOAD_DELAY_S = 0.5
"""How long to wait before a session that left the memory is loaded again."""

log = structlog.get_logger(__name__)


class Room:
    """The subscribers of one session."""

    def __init__(
        self,
        engine: Engine,
        session: SessionView,
        on_updated: Callable[["Room", OutgoingEvent], None],
        options: PatchOptions,
    ) -> None:
        self.session_id: SessionId = session.state.session_id
        self.owner = session.state.owner
        self._options = options
        self.projection = new_projection(engine, session, options)
        self._engine = engine
        self._session = session
        self._on_updated = on_updated
        self._sync_timer: asyncio.TimerHandle | None = None
        self._sockets: dict[str, Socket] = {}
        self._raw_sids: set[str] = set()
        self._buffers: dict[str, list[OutgoingEvent]] = {}
        """New events for sockets that are still being sent what they missed."""
        self._sent_number = 0
        self._sent_cursor = START
        self._sent_cursor_advanced: asyncio.Future[None] | None = None
        self._caught_up = asyncio.Event()
        self._follow_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Follow the session. Returns once everything that is durable now was read."""
        self._follow_task = asyncio.create_task(self._follow(), name=f"blade room {self.session_id}")
        waiting = asyncio.create_task(self._caught_up.wait())
        try:
            await asyncio.wait([self._follow_task, waiting], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the caller is gone, and nobody else knows of the room
            self._follow_task.cancel()
            raise
        finally:
            waiting.cancel()
        if self._follow_task.done():
            await self._follow_task
            raise SessionNotFound

    @property
    def has_ended(self) -> bool:
        """Whether the room no longer follows its session."""
        return self._follow_task is None or self._follow_task.done()

    @property
    def is_shared(self) -> bool:
        """Whether other users may follow the session."""
        return self._session.state.settings.shared

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in the room."""
        return not (self._sockets or self._buffers)

    async def close(self) -> None:
        """Stop following."""
        if self._sync_timer is not None:
            self._sync_timer.cancel()
        if self._follow_task is not None:
            self._follow_task.cancel()
            await asyncio.wait([self._follow_task])
            if not self._follow_task.cancelled():
                self._follow_task.exception()  # it was logged when it was raised

    # --- subscribers ------------------------------------------------------------------------------------------------

    def contains(self, socket: Socket) -> bool:
        """Return whether a socket is subscribed."""
        return socket.sid in self._sockets

    def delivers_to(self, socket: Socket) -> bool:
        """Return whether a socket is subscribed, or is still being sent what it missed."""
        return socket.sid in self._sockets or socket.sid in self._buffers

    def join(self, socket: Socket, *, is_raw: bool) -> None:
        """Subscribe a socket, unless it is gone or may no longer read the session."""
        self._remove(socket)
        if not socket.is_disconnected and (self.is_shared or not self._is_viewer(socket)):
            self._sockets[socket.sid] = socket
            if is_raw:
                self._raw_sids.add(socket.sid)

    def leave(self, socket: Socket) -> None:
        """Unsubscribe a socket, even if it is still being sent what it missed."""
        self._remove(socket)
        self._buffers.pop(socket.sid, None)

    def _remove(self, socket: Socket) -> None:
        self._sockets.pop(socket.sid, None)
        self._raw_sids.discard(socket.sid)

    def start_buffering(self, socket: Socket) -> Callable[[], None]:
        """Buffer the events for a socket until the returned function is called, which sends them.

        A socket that has not joined by then gets only what the owner's other sockets get.
        """
        buffer = self._buffers[socket.sid] = []

        def release() -> None:
            if self._buffers.get(socket.sid) is buffer:
                del self._buffers[socket.sid]
                is_here = self.contains(socket)
                self._send_to([socket], [each for each in buffer if is_here or each.name == "session:updated"])

        return release

    def send_snapshot(self, socket: Socket) -> None:
        """Send the state of the running chat to a socket (specification, section 9, rule 1)."""
        self._send_to([socket], self.projection.snapshot())

    async def resume(self, socket: Socket, after: int, *, is_raw: bool) -> None:
        """Subscribe a socket, and first send it the events of the latest chat that have a higher number than `after`.

        They are made again from the log, at any age, and have the same numbers as before.
        """
        self._remove(socket)
        buffer = self._buffers[socket.sid] = []
        try:
            missed = await self._missed_events(after, self._sent_number)
        finally:
            is_here = self._buffers.get(socket.sid) is buffer
            if is_here:
                del self._buffers[socket.sid]
        if is_here:
            self.join(socket, is_raw=is_raw)
            self._send_to([socket], [*missed, *buffer])

    async def _missed_events(self, after: int, up_to: int) -> list[OutgoingEvent]:
        chat = self.projection.emitter.chat
        if chat is None or chat.first_number > up_to:
            return []
        first = max(after + 1, chat.first_number)
        projection = new_projection(self._engine, self._session, self._options)
        emitter = projection.emitter
        emitter.is_quiet = True
        missed: list[OutgoingEvent] = []
        with self._engine.follow(self._session, START) as reader:
            while emitter.number < up_to:
                for record in await reader.next():
                    emitter.is_quiet = emitter.is_quiet and cursor_of(record).seq < chat.started_seq
                    missed += [each for each in projection.feed(record) if first <= each.number <= up_to]
        return missed

    # --- following --------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        try:
            while True:
                try:
                    await self._read_records()
                except (SessionNotFound, ShuttingDown):
                    return
                except Exception as error:  # whatever ended the session's object
                    if not self._session.has_ended:  # a fault of the server, which would happen again
                        log.exception("session room failed", session_id=self.session_id)
                        raise
                    log.info("session was unloaded", session_id=self.session_id, reason=type(error).__name__)
                await asyncio.sleep(RELOAD_DELAY_S)
                try:
                    self._session = await self._engine.find_session(self.owner, self.session_id)
                except SessionNotFound:
                    return
                except StoreUnavailable:
                    continue
                self.projection = new_projection(self._engine, self._session, self._options)
        finally:
            self._notify_sent()

    async def _read_records(self) -> None:
        emitter = self.projection.emitter
        emitter.is_quiet = not self._caught_up.is_set()
        durable = self._session.durable_cursor
        with self._engine.follow(self._session, START) as reader:
            while True:
                if emitter.is_quiet and reader.cursor >= durable:
                    emitter.is_quiet = False
                    self._sent_number = emitter.number
                    self._caught_up.set()
                self._publish(await reader.next())
                reader.push = self._publish

    def _publish(self, records: Sequence[Record]) -> bool:
        """Send the events of records. While the reader waits, the commit itself calls this, which saves a task."""
        events = [each for record in records for each in self.projection.feed(record)]
        if events and events[0].number <= self._sent_number:  # the log is being read again from the beginning
            events = [each for each in events if each.number > self._sent_number]
        if events:
            self._sent_number = events[-1].number
            self._send(events)
            if self._options.sync_interval_s and self._sync_timer is None:
                self._sync_timer = asyncio.get_running_loop().call_later(
                    self._options.sync_interval_s, self._send_syncs
                )
        if records:
            self._sent_cursor = max(self._sent_cursor, cursor_of(records[-1]))
        self._notify_sent()
        return True

    def _notify_sent(self) -> None:
        if self._sent_cursor_advanced is not None:
            self._sent_cursor_advanced.set_result(None)
            self._sent_cursor_advanced = None

    async def wait_until_sent(self, cursor: Cursor) -> None:
        """Wait until everything up to a position was sent."""
        while self._sent_cursor < cursor and not self.has_ended:
            self._sent_cursor_advanced = self._sent_cursor_advanced or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._sent_cursor_advanced)

    # --- sending ----------------------------------------------------------------------------------------------------

    def _send_syncs(self) -> None:
        self._sync_timer = None
        self._send(self.projection.turns.sync_events())

    def _send(self, events: Sequence[OutgoingEvent]) -> None:
        for buffer in self._buffers.values():
            buffer += events
        self._send_to([each for each in self._sockets.values() if each.sid not in self._buffers], events)
        for each in events:
            if each.name == "session:updated":
                self._on_updated(self, each)

    def _send_to(self, sockets: Iterable[Socket], events: Sequence[OutgoingEvent]) -> None:
        """Send events, encoded once for each kind of socket.

        Slow sockets get no patches: a snapshot, or the end of the turn, repeats them.
        """
        packets: dict[tuple[bool, bool, bool], list[packet.Packet]] = {}
        for socket in tuple(sockets):
            kind = is_raw, is_viewer, is_slow = (
                socket.sid in self._raw_sids,
                self._is_viewer(socket),
                self.contains(socket) and self._is_slow(socket),
            )
            if kind not in packets:
                wanted = [each for each in events if not (is_slow and each.name == "turn:patch")]
                wanted = [each.for_viewers() for each in wanted] if is_viewer else wanted
                encode = self._raw_packets if is_raw else _standard_packets
                packets[kind] = encode(wanted)
            for each in packets[kind]:
                socket.send(each)

    def _is_viewer(self, socket: Socket) -> bool:
        """Return whether a socket belongs to a user with whom the session is shared."""
        return socket.principal.user != self.owner

    def _is_slow(self, socket: Socket) -> bool:
        if socket.is_slow:
            socket.on_drained[self.session_id] = partial(self._on_drained, socket)
            return True
        return False

    def _on_drained(self, socket: Socket) -> None:
        if self.contains(socket):
            self.send_snapshot(socket)

    def _raw_packets(self, events: Sequence[OutgoingEvent]) -> list[packet.Packet]:
        """Encode events for raw sockets: in batches, each ended by an event that is sent on its own."""
        packets: list[packet.Packet] = []
        items: list[bytes] = []

        def flush() -> None:
            if items:
                prefix = self.projection.emitter.payload_prefix
                packets.append(event_packet("turn:events", prefix + b',"events":[' + b",".join(items) + b"]}"))
                items.clear()

        for each in events:
            if each.name in BATCHED_EVENTS:
                items.append(_raw_item(each))
            else:
                flush()
                packets += _standard_packets([each])
        flush()
        return packets


def _standard_packets(events: Sequence[OutgoingEvent]) -> list[packet.Packet]:
    return [event_packet(each.name, each.payload) for each in events]


def _raw_item(event: OutgoingEvent) -> bytes:
    """Encode one item of a batch. Events of a snapshot have no number."""
    number = b',"stream_sequence":%d' % event.number if event.number else b""
    item = b'{"type":"' + event.name.encode() + b'","payload":' + event.payload + number
    if event.name in FLATTENED_EVENTS:
        item += b"," + event.payload[1:-1].replace(number, b"", 1)
    return item + b"}"


def new_projection(engine: Engine, session: SessionView, options: PatchOptions) -> Projection:
    """Return a projection of a session that has seen nothing yet."""
    projection = Projection(session.state.session_id, tool_titles(engine, session))
    projection.emitter.repeats_content = options.repeats_content
    return projection
