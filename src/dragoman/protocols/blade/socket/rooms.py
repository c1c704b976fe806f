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
from dragoman.core.events import Logged, MessageAdded, RunStarted, RunStopped, SettingsChanged
from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import SessionNotFound, ShuttingDown, StoreUnavailable
from dragoman.core.stream import START, Cursor, Record, cursor_of
from dragoman.engine.engine import Engine
from dragoman.engine.runs.replays import is_replay
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.protocols.blade.projection.chat import replay_state_of, updated_fields
from dragoman.protocols.blade.projection.loader import titles_of
from dragoman.protocols.blade.projection.projection import Projection
from dragoman.protocols.blade.socket.emitter import Emitted
from dragoman.protocols.blade.socket.server import Socket, event_packet
from dragoman.protocols.blade.translate import status_of
from dragoman.protocols.blade.wire.chat import shown_session

BATCHED = frozenset({"chat:start", "turn:start", "turn:patch", "turn:end"})
"""Events that raw sockets get in batches (specification, section 16)."""
REPEATED = frozenset({"turn:start", "turn:end"})
"""Of those, the ones whose fields stand at the item's top level too."""
LISTS_S = 1.0
"""How often a socket is told of a session that it does not follow."""
AGAIN_S = 0.5
"""After which time a session that left the memory is looked for again."""

log = structlog.get_logger(__name__)


class Room:
    """One session's followers."""

    def __init__(
        self,
        engine: Engine,
        live: LiveSession,
        on_updated: Callable[["Room", Emitted], None],
        sync_s: float = 0.0,
    ) -> None:
        self.session_id: SessionId = live.state.session_id
        self.owner = live.state.owner
        self.plain: dict[str, Socket] = {}
        self.raw: dict[str, Socket] = {}
        self.projection = fresh(engine, live)
        self._engine = engine
        self._live = live
        self._on_updated = on_updated
        self._sync_s = sync_s
        self._syncing: asyncio.TimerHandle | None = None
        self._sent = 0
        self._is_caught_up = asyncio.Event()
        self._holding: dict[str, list[Emitted]] = {}
        """What came meanwhile for those who are still being told what they missed."""
        self._lagging: set[str] = set()
        self._passed = START
        self._passing: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Follow the session. Returns when all that is durable now was taken in."""
        self._task = asyncio.create_task(self._follow(), name=f"blade room {self.session_id}")
        waiting = asyncio.create_task(self._is_caught_up.wait())
        try:
            await asyncio.wait([self._task, waiting], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # who asked is gone, and nobody else knows of the room
            self._task.cancel()
            raise
        finally:
            waiting.cancel()
        if self._task.done():
            await self._task
            raise SessionNotFound("there is no such session")

    @property
    def is_over(self) -> bool:
        """Whether nobody follows the session here any more."""
        return self._task is None or self._task.done()

    @property
    def is_shared(self) -> bool:
        """Whether other users may follow the session."""
        return self._live.state.settings.shared

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in the room."""
        return not (self.plain or self.raw or self._holding)

    async def close(self) -> None:
        """Stop following."""
        if self._syncing is not None:
            self._syncing.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()  # it was logged when it was raised

    # --- who is here ------------------------------------------------------------------------------------------------

    def join(self, socket: Socket, *, is_raw: bool) -> None:
        """Let a socket in, unless it is gone; from now on it gets what comes."""
        self._turn_out(socket)
        if not socket.is_gone and (self.is_shared or not self._is_viewer(socket)):
            (self.raw if is_raw else self.plain)[socket.sid] = socket

    def hold(self, socket: Socket) -> Callable[[], None]:
        """Keep what comes for a socket until the function that this gives is called, which sends it.

        One that has not come in by then gets only what its owner's other sockets get.
        """
        held = self._holding[socket.sid] = []

        def release() -> None:
            if self._holding.get(socket.sid) is held:
                del self._holding[socket.sid]
                is_here = self.holds(socket)
                self._tell(socket, [each for each in held if is_here or each.name == "session:updated"])

        return release

    async def until_sent(self, cursor: Cursor) -> None:
        """Wait until everything up to a position was sent."""
        while self._passed < cursor and not self.is_over:
            self._passing = self._passing or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._passing)

    def holds(self, socket: Socket) -> bool:
        """Whether a socket is here."""
        return socket.sid in self.plain or socket.sid in self.raw

    def tells(self, socket: Socket) -> bool:
        """Whether a socket is here, or is still being told what it missed."""
        return self.holds(socket) or socket.sid in self._holding

    def leave(self, socket: Socket) -> None:
        """Let a socket go, also one that is still being told what it missed."""
        self._turn_out(socket)
        self._holding.pop(socket.sid, None)

    def _turn_out(self, socket: Socket) -> None:
        self.plain.pop(socket.sid, None)
        self.raw.pop(socket.sid, None)
        self._lagging.discard(socket.sid)

    def tell_snapshot(self, socket: Socket) -> None:
        """Tell a socket how the chat stands that goes on (specification, section 9, rule 1)."""
        self._tell(socket, self.projection.snapshot())

    async def resume(self, socket: Socket, after: int, *, is_raw: bool) -> None:
        """Let a socket in, and send it first what it has missed of the latest chat: every event after that number.

        What was sent before is made again from the log, at any age, and has the same numbers.
        """
        self._turn_out(socket)
        held = self._holding[socket.sid] = []
        try:
            missed = await self._missed(after, self._sent)
        finally:
            is_here = self._holding.get(socket.sid) is held
            if is_here:
                del self._holding[socket.sid]
        if is_here:
            self.join(socket, is_raw=is_raw)
            self._tell(socket, [*missed, *held])

    async def _missed(self, after: int, up_to: int) -> list[Emitted]:
        chat = self.projection.chat
        if chat is None or chat.first > up_to:
            return []
        first = max(after + 1, chat.first)
        again = fresh(self._engine, self._live)
        again.is_quiet = True
        found: list[Emitted] = []
        with self._engine.follow(self._live, START) as reader:
            while again.number < up_to:
                for record in await reader.next():
                    again.is_quiet = again.is_quiet and cursor_of(record).seq < chat.seq
                    found += [each for each in again.feed(record) if first <= each.number <= up_to]
        return found

    def _tell(self, socket: Socket, events: Sequence[Emitted]) -> None:
        if self._is_viewer(socket):
            events = [each.seen_by_viewers() for each in events]
        if socket.sid in self.raw:
            self._send_raw([socket], events)
        else:
            for each in events:
                socket.send(event_packet(each.name, each.payload))

    # --- following --------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        try:
            await self._follow_on()
        finally:
            self._tell_passed()

    async def _follow_on(self) -> None:
        while True:
            try:
                await self._read()
            except (SessionNotFound, ShuttingDown):
                return
            except Exception as error:  # whatever ended the session's object; only a fault of ours is raised again
                if self._live.failure is None:  # a fault of ours: again it would be the same
                    log.exception("room failed", session_id=self.session_id)
                    raise
                log.info("session left the memory", session_id=self.session_id, why=type(error).__name__)
            await asyncio.sleep(AGAIN_S)
            try:
                self._live = await self._engine.found(self.owner, self.session_id)
            except SessionNotFound:
                return
            except StoreUnavailable:
                continue
            self.projection = fresh(self._engine, self._live)

    async def _read(self) -> None:
        projection = self.projection
        projection.is_quiet = not self._is_caught_up.is_set()
        durable = self._live.durable
        with self._engine.follow(self._live, START) as reader:
            while True:
                if projection.is_quiet and reader.cursor >= durable:
                    projection.is_quiet = False
                    self._sent = projection.number
                    self._is_caught_up.set()
                self._take(await reader.next())
                reader.push = self._take

    def _take(self, records: Sequence[Record]) -> bool:
        """Send what records make; while the reader waits it is called by the commit itself, which saves a task."""
        events = [each for record in records for each in self.projection.feed(record)]
        if events and events[0].number <= self._sent:  # read again from the beginning
            events = [each for each in events if each.number > self._sent]
        if events:
            self._sent = events[-1].number
            self._send(events)
            if self._sync_s and self._syncing is None:
                self._syncing = asyncio.get_running_loop().call_later(self._sync_s, self._sync)
        self._passed = max(self._passed, cursor_of(records[-1])) if records else self._passed
        self._tell_passed()
        return True

    def _sync(self) -> None:
        """Send whole what has grown."""
        self._syncing = None
        self._send(self.projection.syncs())

    def _tell_passed(self) -> None:
        if self._passing is not None:
            self._passing.set_result(None)
            self._passing = None

    def _send(self, events: Sequence[Emitted]) -> None:
        for held in self._holding.values():
            held += events
        owners, viewers = list[Socket](), list[Socket]()
        for socket in (*self.plain.values(), *self.raw.values()):
            if socket.sid not in self._holding:
                (viewers if self._is_viewer(socket) else owners).append(socket)
        self._send_to(owners, events)
        if viewers:
            self._send_to(viewers, [each.seen_by_viewers() for each in events])
        for each in events:
            if each.name == "session:updated":
                self._on_updated(self, each)

    def _send_to(self, sockets: Sequence[Socket], events: Sequence[Emitted]) -> None:
        """Send events to sockets. Slow ones get no patches: a snapshot repeats those, or the end of their turn."""
        plain = [socket for socket in sockets if socket.sid in self.plain]
        raw = [socket for socket in sockets if socket.sid in self.raw]
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
        if socket.sid not in self._lagging:
            self._lagging.add(socket.sid)
            socket.on_drained.append(lambda: self._drained(socket))
        return True

    def _drained(self, socket: Socket) -> None:
        self._lagging.discard(socket.sid)
        if self.holds(socket):
            self.tell_snapshot(socket)

    def _send_raw(self, sockets: Sequence[Socket], events: Sequence[Emitted]) -> None:
        """Send events as raw sockets get them: in batches, ended by each event that stands alone."""
        if not sockets:
            return
        for made in raw_packets(self.projection, events):
            for socket in sockets:
                socket.send(made)


def raw_packets(projection: Projection, events: Iterable[Emitted]) -> list[packet.Packet]:
    """The packets of events in the raw form."""
    made: list[packet.Packet] = []
    items: list[bytes] = []

    def flush() -> None:
        if items:
            made.append(event_packet("turn:events", projection.batch(items)))
            items.clear()

    for each in events:
        if each.name in BATCHED:
            items.append(raw_item(each))
        else:
            flush()
            made.append(event_packet(each.name, each.payload))
    flush()
    return made


def raw_item(event: Emitted) -> bytes:
    """One item of a batch. A snapshot's has no number."""
    item = b'{"type":"' + event.name.encode() + b'","payload":' + event.payload
    if event.number:
        item += b',"stream_sequence":%d' % event.number
    if event.name in REPEATED:
        fields = event.payload[1:-1]
        if event.number:  # its own number is the last field but one place: it stands in the item already
            fields = fields.replace(b',"stream_sequence":%d' % event.number, b"", 1)
        return item + b"," + fields + b"}"
    return item + b"}"


def fresh(engine: Engine, live: LiveSession) -> Projection:
    """A projection of a session that has seen nothing yet."""
    return Projection(live.state.session_id, titles_of(engine, live))


class Rooms:
    """The rooms that are open."""

    def __init__(self, engine: Engine, sync_s: float = 0.0) -> None:
        self._engine = engine
        self._sync_s = sync_s
        self._rooms: dict[SessionId, Room] = {}
        self._opening: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()
        self._sockets: dict[str, Socket] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._unlisted: dict[SessionId, JsonObject] = {}
        """What has changed since lists were told of a session last, for those that were told lately."""
        engine.watch(self.happened)
        if engine.neighbours is not None:
            engine.neighbours.elsewhere.owners = self._owners

    def connected(self, socket: Socket) -> None:
        """A socket is there; it hears of changes of its owner's sessions."""
        self._sockets[socket.sid] = socket

    def gone(self, socket: Socket) -> None:
        """A socket is gone."""
        self._sockets.pop(socket.sid, None)
        for room in tuple(self._rooms.values()):
            self.leave(room, socket)

    def find(self, session_id: SessionId) -> Room | None:
        """The room of a session, if somebody is in it."""
        return self._rooms.get(session_id)

    async def open(self, live: LiveSession) -> Room:
        """The room of a session, caught up with what is durable. Who asks joins at once, before waiting again."""
        session_id = live.state.session_id
        lock = self._opening.setdefault(session_id, asyncio.Lock())
        async with lock:
            room = self._rooms.get(session_id)
            if room is None or room.is_over:
                room = Room(self._engine, live, self._updated, self._sync_s)
                await room.start()
                self._rooms[session_id] = room
        return room

    def leave(self, room: Room, socket: Socket) -> None:
        """Let a socket go, and close the room when it was the last."""
        room.leave(socket)
        self.tidy(room)

    def tidy(self, room: Room) -> None:
        """Close a room if nobody is in it."""
        if room.is_empty and self._rooms.get(room.session_id) is room:
            del self._rooms[room.session_id]
            task = asyncio.create_task(room.close(), name="close a room")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all."""
        for room in tuple(self._rooms.values()):
            await room.close()
        self._rooms.clear()
        if self._closing:
            await asyncio.wait(self._closing)

    def _updated(self, room: Room, event: Emitted) -> None:
        """Tell the owner's other sockets, so that their lists refresh; viewers go when it is no longer shared."""
        made = event_packet(event.name, event.payload)
        for socket in self._sockets.values():
            if socket.principal.user == room.owner and not room.tells(socket):
                socket.send(made)
        if not room.is_shared:
            self._send_viewers_away(room)

    def _owners(self) -> set[UserId]:
        """Whose lists of sessions are shown here."""
        return {socket.principal.user for socket in self._sockets.values()}

    def happened(self, live: LiveSession, events: Sequence[Logged]) -> None:
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
            self._tell_lists(state.session_id, state.owner, told)

    def _tell_lists(self, session_id: SessionId, owner: UserId, told: JsonObject) -> None:
        """Tell the owner's sockets that do not follow a session what changed in it, at most once in `LISTS_S`.

        A first change is told at once; those that come soon after it are told together.
        """
        waiting = self._unlisted.get(session_id)
        if waiting is not None:
            waiting.update(told)
            return
        room = self._rooms.get(session_id)
        made = event_packet("session:updated", msgspec.json.encode({"session_id": shown_session(session_id), **told}))
        for socket in self._sockets.values():
            if socket.principal.user == owner and (room is None or not room.tells(socket)):
                socket.send(made)
        self._unlisted[session_id] = {}
        asyncio.get_running_loop().call_later(LISTS_S, self._tell_rest, session_id, owner)

    def _tell_rest(self, session_id: SessionId, owner: UserId) -> None:
        told = self._unlisted.pop(session_id)
        if told:
            self._tell_lists(session_id, owner, told)

    def _send_viewers_away(self, room: Room) -> None:
        """End the following of all but the owner, whichever server the session stopped to be shared at."""
        for socket in tuple(self._sockets.values()):
            if socket.principal.user != room.owner:
                self.leave(room, socket)
