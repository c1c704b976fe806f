"""Who follows which session: one reader and one projection for each session that somebody is subscribed to.

The projection is folded from the session's first event on, because Blade numbers entries and events over the whole
session; from then on every record is translated once and encoded once, for all who are in the room.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from weakref import WeakValueDictionary

import msgspec
import structlog
from engineio import packet  # type: ignore[import-untyped]  # the library is not annotated

from dragoman.core.content import JsonObject, UserMessage
from dragoman.core.events import LoggedEvent, MessageAdded, RunStarted, RunStopped, SettingsChanged
from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import SessionNotFound, ShuttingDown, StoreUnavailable
from dragoman.core.stream import START, Cursor, Record, cursor_of
from dragoman.engine.engine import Engine
from dragoman.engine.runs.replays import is_replay
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade.projection.chat import replay_state_of, updated_fields
from dragoman.protocols.blade.projection.loader import tool_titles
from dragoman.protocols.blade.projection.projection import Projection
from dragoman.protocols.blade.socket.emitter import OutgoingEvent
from dragoman.protocols.blade.socket.server import Socket, event_packet
from dragoman.protocols.blade.translate import status_of
from dragoman.protocols.blade.wire.chat import public_session_id

BATCHED_EVENTS = frozenset({"chat:start", "turn:start", "turn:patch", "turn:end"})
"""Events that raw sockets get in batches (specification, section 16)."""
FLATTENED_EVENTS = frozenset({"turn:start", "turn:end"})
"""Of those, the ones whose fields stand at the item's top level too."""
LIST_UPDATE_INTERVAL_S = 1.0
"""How often a socket is told of a session that it does not follow."""
RELOAD_DELAY_S = 0.5
"""After which time a session that left the memory is looked for again."""

log = structlog.get_logger(__name__)


class Room:
    """One session's followers."""

    def __init__(
        self,
        engine: Engine,
        live: SessionView,
        on_updated: Callable[["Room", OutgoingEvent], None],
        sync_interval_s: float = 0.0,
    ) -> None:
        self.session_id: SessionId = live.state.session_id
        self.owner = live.state.owner
        self.standard_sockets: dict[str, Socket] = {}
        self.raw_sockets: dict[str, Socket] = {}
        self.projection = new_projection(engine, live)
        self._engine = engine
        self._live = live
        self._on_updated = on_updated
        self._sync_interval_s = sync_interval_s
        self._sync_timer: asyncio.TimerHandle | None = None
        self._sent_number = 0
        self._caught_up = asyncio.Event()
        self._buffers: dict[str, list[OutgoingEvent]] = {}
        """What came meanwhile for those who are still being told what they missed."""
        self._slow_sids: set[str] = set()
        self._sent_cursor = START
        self._sent_cursor_advanced: asyncio.Future[None] | None = None
        self._follow_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Follow the session. Returns when all that is durable now was taken in."""
        self._follow_task = asyncio.create_task(self._follow(), name=f"blade room {self.session_id}")
        waiting = asyncio.create_task(self._caught_up.wait())
        try:
            await asyncio.wait([self._follow_task, waiting], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # who asked is gone, and nobody else knows of the room
            self._follow_task.cancel()
            raise
        finally:
            waiting.cancel()
        if self._follow_task.done():
            await self._follow_task
            raise SessionNotFound("there is no such session")

    @property
    def has_ended(self) -> bool:
        """Whether nobody follows the session here any more."""
        return self._follow_task is None or self._follow_task.done()

    @property
    def is_shared(self) -> bool:
        """Whether other users may follow the session."""
        return self._live.state.settings.shared

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in the room."""
        return not (self.standard_sockets or self.raw_sockets or self._buffers)

    async def close(self) -> None:
        """Stop following."""
        if self._sync_timer is not None:
            self._sync_timer.cancel()
        if self._follow_task is not None:
            self._follow_task.cancel()
            await asyncio.wait([self._follow_task])
            if not self._follow_task.cancelled():
                self._follow_task.exception()  # it was logged when it was raised

    # --- who is here ------------------------------------------------------------------------------------------------

    def join(self, socket: Socket, *, is_raw: bool) -> None:
        """Let a socket in, unless it is gone; from now on it gets what comes."""
        self._remove(socket)
        if not socket.is_disconnected and (self.is_shared or not self._is_viewer(socket)):
            (self.raw_sockets if is_raw else self.standard_sockets)[socket.sid] = socket

    def start_buffering(self, socket: Socket) -> Callable[[], None]:
        """Keep what comes for a socket until the function that this gives is called, which sends it.

        One that has not come in by then gets only what its owner's other sockets get.
        """
        held = self._buffers[socket.sid] = []

        def release() -> None:
            if self._buffers.get(socket.sid) is held:
                del self._buffers[socket.sid]
                is_here = self.contains(socket)
                self._send_one(socket, [each for each in held if is_here or each.name == "session:updated"])

        return release

    async def wait_until_sent(self, cursor: Cursor) -> None:
        """Wait until everything up to a position was sent."""
        while self._sent_cursor < cursor and not self.has_ended:
            self._sent_cursor_advanced = self._sent_cursor_advanced or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._sent_cursor_advanced)

    def contains(self, socket: Socket) -> bool:
        """Whether a socket is here."""
        return socket.sid in self.standard_sockets or socket.sid in self.raw_sockets

    def delivers_to(self, socket: Socket) -> bool:
        """Whether a socket is here, or is still being told what it missed."""
        return self.contains(socket) or socket.sid in self._buffers

    def leave(self, socket: Socket) -> None:
        """Let a socket go, also one that is still being told what it missed."""
        self._remove(socket)
        self._buffers.pop(socket.sid, None)

    def _remove(self, socket: Socket) -> None:
        self.standard_sockets.pop(socket.sid, None)
        self.raw_sockets.pop(socket.sid, None)
        self._slow_sids.discard(socket.sid)

    def send_snapshot(self, socket: Socket) -> None:
        """Tell a socket how the chat stands that goes on (specification, section 9, rule 1)."""
        self._send_one(socket, self.projection.snapshot())

    async def resume(self, socket: Socket, after: int, *, is_raw: bool) -> None:
        """Let a socket in, and send it first what it has missed of the latest chat: every event after that number.

        What was sent before is made again from the log, at any age, and has the same numbers.
        """
        self._remove(socket)
        held = self._buffers[socket.sid] = []
        try:
            missed = await self._missed_events(after, self._sent_number)
        finally:
            is_here = self._buffers.get(socket.sid) is held
            if is_here:
                del self._buffers[socket.sid]
        if is_here:
            self.join(socket, is_raw=is_raw)
            self._send_one(socket, [*missed, *held])

    async def _missed_events(self, after: int, up_to: int) -> list[OutgoingEvent]:
        chat = self.projection.chat
        if chat is None or chat.first_number > up_to:
            return []
        first = max(after + 1, chat.first_number)
        again = new_projection(self._engine, self._live)
        again.is_quiet = True
        found: list[OutgoingEvent] = []
        with self._engine.follow(self._live, START) as reader:
            while again.number < up_to:
                for record in await reader.next():
                    again.is_quiet = again.is_quiet and cursor_of(record).seq < chat.started_seq
                    found += [each for each in again.feed(record) if first <= each.number <= up_to]
        return found

    def _send_one(self, socket: Socket, events: Sequence[OutgoingEvent]) -> None:
        if self._is_viewer(socket):
            events = [each.for_viewers() for each in events]
        if socket.sid in self.raw_sockets:
            self._send_raw([socket], events)
        else:
            for each in events:
                socket.send(event_packet(each.name, each.payload))

    # --- following --------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        try:
            await self._follow_with_reload()
        finally:
            self._notify_sent()

    async def _follow_with_reload(self) -> None:
        while True:
            try:
                await self._read_records()
            except (SessionNotFound, ShuttingDown):
                return
            except Exception as error:  # whatever ended the session's object; only a fault of ours is raised again
                if self._live.failure is None:  # a fault of ours: again it would be the same
                    log.exception("room failed", session_id=self.session_id)
                    raise
                log.info("session left the memory", session_id=self.session_id, why=type(error).__name__)
            await asyncio.sleep(RELOAD_DELAY_S)
            try:
                self._live = await self._engine.find_session(self.owner, self.session_id)
            except SessionNotFound:
                return
            except StoreUnavailable:
                continue
            self.projection = new_projection(self._engine, self._live)

    async def _read_records(self) -> None:
        projection = self.projection
        projection.is_quiet = not self._caught_up.is_set()
        durable = self._live.durable_cursor
        with self._engine.follow(self._live, START) as reader:
            while True:
                if projection.is_quiet and reader.cursor >= durable:
                    projection.is_quiet = False
                    self._sent_number = projection.number
                    self._caught_up.set()
                self._publish(await reader.next())
                reader.push = self._publish

    def _publish(self, records: Sequence[Record]) -> bool:
        """Send what records make; while the reader waits it is called by the commit itself, which saves a task."""
        events = [each for record in records for each in self.projection.feed(record)]
        if events and events[0].number <= self._sent_number:  # read again from the beginning
            events = [each for each in events if each.number > self._sent_number]
        if events:
            self._sent_number = events[-1].number
            self._send(events)
            if self._sync_interval_s and self._sync_timer is None:
                self._sync_timer = asyncio.get_running_loop().call_later(self._sync_interval_s, self._send_syncs)
        self._sent_cursor = max(self._sent_cursor, cursor_of(records[-1])) if records else self._sent_cursor
        self._notify_sent()
        return True

    def _send_syncs(self) -> None:
        """Send whole what has grown."""
        self._sync_timer = None
        self._send(self.projection.sync_events())

    def _notify_sent(self) -> None:
        if self._sent_cursor_advanced is not None:
            self._sent_cursor_advanced.set_result(None)
            self._sent_cursor_advanced = None

    def _send(self, events: Sequence[OutgoingEvent]) -> None:
        for held in self._buffers.values():
            held += events
        owners, viewers = list[Socket](), list[Socket]()
        for socket in (*self.standard_sockets.values(), *self.raw_sockets.values()):
            if socket.sid not in self._buffers:
                (viewers if self._is_viewer(socket) else owners).append(socket)
        self._send_to(owners, events)
        if viewers:
            self._send_to(viewers, [each.for_viewers() for each in events])
        for each in events:
            if each.name == "session:updated":
                self._on_updated(self, each)

    def _send_to(self, sockets: Sequence[Socket], events: Sequence[OutgoingEvent]) -> None:
        """Send events to sockets. Slow ones get no patches: a snapshot repeats those, or the end of their turn."""
        plain = [socket for socket in sockets if socket.sid in self.standard_sockets]
        raw = [socket for socket in sockets if socket.sid in self.raw_sockets]
        made = [(each.name, event_packet(each.name, each.payload)) for each in events] if plain else []
        for socket in plain:
            is_slow = self._is_slow(socket)
            for name, encoded in made:
                if not (is_slow and name == "turn:patch"):
                    socket.send(encoded)
        if raw:
            slow = [socket for socket in raw if self._is_slow(socket)]
            self._send_raw([socket for socket in raw if socket not in slow], events)
            self._send_raw(slow, [each for each in events if each.name != "turn:patch"])

    def _is_viewer(self, socket: Socket) -> bool:
        """Whether a socket is another user's, with whom the session is shared."""
        return socket.principal.user != self.owner

    def _is_slow(self, socket: Socket) -> bool:
        if not socket.is_slow:
            return False
        if socket.sid not in self._slow_sids:
            self._slow_sids.add(socket.sid)
            socket.on_drained.append(lambda: self._on_drained(socket))
        return True

    def _on_drained(self, socket: Socket) -> None:
        self._slow_sids.discard(socket.sid)
        if self.contains(socket):
            self.send_snapshot(socket)

    def _send_raw(self, sockets: Sequence[Socket], events: Sequence[OutgoingEvent]) -> None:
        """Send events as raw sockets get them: in batches, ended by each event that stands alone."""
        if not sockets:
            return
        for made in raw_packets(self.projection, events):
            for socket in sockets:
                socket.send(made)


def raw_packets(projection: Projection, events: Iterable[OutgoingEvent]) -> list[packet.Packet]:
    """The packets of events in the raw form."""
    made: list[packet.Packet] = []
    items: list[bytes] = []

    def flush() -> None:
        if items:
            made.append(event_packet("turn:events", projection.encode_batch(items)))
            items.clear()

    for each in events:
        if each.name in BATCHED_EVENTS:
            items.append(raw_item(each))
        else:
            flush()
            made.append(event_packet(each.name, each.payload))
    flush()
    return made


def raw_item(event: OutgoingEvent) -> bytes:
    """One item of a batch. A snapshot's has no number."""
    item = b'{"type":"' + event.name.encode() + b'","payload":' + event.payload
    if event.number:
        item += b',"stream_sequence":%d' % event.number
    if event.name in FLATTENED_EVENTS:
        fields = event.payload[1:-1]
        if event.number:  # its own number is the last field but one place: it stands in the item already
            fields = fields.replace(b',"stream_sequence":%d' % event.number, b"", 1)
        return item + b"," + fields + b"}"
    return item + b"}"


def new_projection(engine: Engine, live: SessionView) -> Projection:
    """A projection of a session that has seen nothing yet."""
    return Projection(live.state.session_id, tool_titles(engine, live))


class Rooms:
    """The rooms that are open."""

    def __init__(self, engine: Engine, sync_interval_s: float = 0.0) -> None:
        self._engine = engine
        self._sync_interval_s = sync_interval_s
        self._rooms: dict[SessionId, Room] = {}
        self._open_locks: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()
        self._sockets: dict[str, Socket] = {}
        self._close_tasks: set[asyncio.Task[None]] = set()
        self._pending_list_updates: dict[SessionId, JsonObject] = {}
        """What has changed since lists were told of a session last, for those that were told lately."""
        engine.watch(self.on_events)
        engine.cluster.show_lists_of(self._connected_users)

    def on_connect(self, socket: Socket) -> None:
        """A socket is there; it hears of changes of its owner's sessions."""
        self._sockets[socket.sid] = socket

    def on_disconnect(self, socket: Socket) -> None:
        """A socket is gone."""
        self._sockets.pop(socket.sid, None)
        for room in tuple(self._rooms.values()):
            self.leave(room, socket)

    def find(self, session_id: SessionId) -> Room | None:
        """The room of a session, if somebody is in it."""
        return self._rooms.get(session_id)

    async def open(self, live: SessionView) -> Room:
        """The room of a session, caught up with what is durable. Who asks joins at once, before waiting again."""
        session_id = live.state.session_id
        lock = self._open_locks.setdefault(session_id, asyncio.Lock())
        async with lock:
            room = self._rooms.get(session_id)
            if room is None or room.has_ended:
                room = Room(self._engine, live, self._broadcast_update, self._sync_interval_s)
                await room.start()
                self._rooms[session_id] = room
        return room

    async def wait_until_sent(self, live: SessionView) -> None:
        """Wait until everything durable in a session was sent to its room, if it has one."""
        if (room := self.find(live.state.session_id)) is not None:
            await room.wait_until_sent(live.durable_cursor)

    def leave(self, room: Room, socket: Socket) -> None:
        """Let a socket go, and close the room when it was the last."""
        room.leave(socket)
        self.close_if_empty(room)

    def close_if_empty(self, room: Room) -> None:
        """Close a room if nobody is in it."""
        if room.is_empty and self._rooms.get(room.session_id) is room:
            del self._rooms[room.session_id]
            task = asyncio.create_task(room.close(), name="close a room")
            self._close_tasks.add(task)
            task.add_done_callback(self._close_tasks.discard)

    async def close(self) -> None:
        """Close all."""
        for room in tuple(self._rooms.values()):
            await room.close()
        self._rooms.clear()
        if self._close_tasks:
            await asyncio.wait(self._close_tasks)

    def _broadcast_update(self, room: Room, event: OutgoingEvent) -> None:
        """Tell the owner's other sockets, so that their lists refresh; viewers go when it is no longer shared."""
        made = event_packet(event.name, event.payload)
        for socket in self._sockets.values():
            if socket.principal.user == room.owner and not room.delivers_to(socket):
                socket.send(made)
        if not room.is_shared:
            self._remove_viewers(room)

    def _connected_users(self) -> set[UserId]:
        """Whose lists of sessions are shown here."""
        return {socket.principal.user for socket in self._sockets.values()}

    def on_events(self, live: SessionView, events: Sequence[LoggedEvent]) -> None:
        """Tell the owner's sockets what changed in a session that they do not follow; see `engine.sessions.Watcher`.

        Of changes that the session's room tells to all of them, only that it runs, or does no more, is told here.
        """
        if not self._sockets:
            return
        state = live.state
        room = self._rooms.get(state.session_id)
        told: JsonObject = {}
        for logged in events:
            match logged.event:
                case SettingsChanged(change=change) if room is None:
                    told |= updated_fields(change, state)
                case RunStarted():
                    told["status"] = "running"
                case MessageAdded(message=UserMessage()) if not state.settings.title:
                    told["intent"] = state.title()
                case RunStopped():
                    told["status"] = status_of(state)
                    if room is None and is_replay(state):
                        told["replay_state"] = replay_state_of(state)
        if told:
            self._notify_lists(state.session_id, state.owner, told)

    def _notify_lists(self, session_id: SessionId, owner: UserId, changes: JsonObject) -> None:
        """Tell the owner's sockets that do not follow a session what changed in it, at most once in `LISTS_S`.

        A first change is told at once; those that come soon after it are told together.
        """
        waiting = self._pending_list_updates.get(session_id)
        if waiting is not None:
            waiting.update(changes)
            return
        room = self._rooms.get(session_id)
        made = event_packet(
            "session:updated", msgspec.json.encode({"session_id": public_session_id(session_id), **changes})
        )
        for socket in self._sockets.values():
            if socket.principal.user == owner and (room is None or not room.delivers_to(socket)):
                socket.send(made)
        self._pending_list_updates[session_id] = {}
        asyncio.get_running_loop().call_later(LIST_UPDATE_INTERVAL_S, self._flush_list_updates, session_id, owner)

    def _flush_list_updates(self, session_id: SessionId, owner: UserId) -> None:
        told = self._pending_list_updates.pop(session_id)
        if told:
            self._notify_lists(session_id, owner, told)

    def _remove_viewers(self, room: Room) -> None:
        """End the following of all but the owner, whichever server the session stopped to be shared at."""
        for socket in tuple(self._sockets.values()):
            if socket.principal.user != room.owner:
                self.leave(room, socket)
