"""The rooms of the sessions that are followed here, and the updates of session lists for all other sockets."""

import asyncio
from collections.abc import Sequence
from weakref import WeakValueDictionary

import msgspec

from dragoman.core.content import JsonObject, UserMessage
from dragoman.core.events import (
    Branched,
    CallSettled,
    LoggedEvent,
    MessageAdded,
    RunStarted,
    RunStopped,
    SessionCreated,
    SettingsChange,
    SettingsChanged,
)
from dragoman.core.ids import SessionId, UserId
from dragoman.engine.background_tasks import BackgroundTasks
from dragoman.engine.engine import Engine
from dragoman.engine.runs.replays import is_replay
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade.projection.chats import replay_state_of, updated_fields
from dragoman.protocols.blade.projection.emitter import OutgoingEvent, PatchOptions
from dragoman.protocols.blade.socket.client_socket import Socket, event_packet
from dragoman.protocols.blade.socket.room import Room
from dragoman.protocols.blade.translate import status_of
from dragoman.protocols.blade.wire.chat import public_session_id

LIST_UPDATE_INTERVAL_S = 1.0
"""How often sockets get the changes of a session that they do not follow."""


class Rooms:
    """The open rooms, and all sockets."""

    def __init__(self, engine: Engine, options: PatchOptions) -> None:
        self._engine = engine
        self._options = options
        self._rooms: dict[SessionId, Room] = {}
        self._open_locks: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()
        self._sockets: dict[str, Socket] = {}
        self._close_tasks = BackgroundTasks()
        self._pending_list_updates: dict[SessionId, JsonObject] = {}
        """The changes since the last update of the lists, for sessions updated within the interval."""
        engine.watch(self.on_events, self.on_deleted)
        engine.cluster.show_lists_of(lambda: {each.principal.user for each in self._sockets.values()})

    def on_connect(self, socket: Socket) -> None:
        """Add a socket, which gets the changes of its owner's sessions."""
        self._sockets[socket.sid] = socket

    def on_disconnect(self, socket: Socket) -> None:
        """Remove a socket from everywhere."""
        self._sockets.pop(socket.sid, None)
        for room in tuple(self._rooms.values()):
            self.leave(room, socket)

    def find(self, session_id: SessionId) -> Room | None:
        """Return the room of a session, if it is open."""
        return self._rooms.get(session_id)

    async def open(self, session: SessionView) -> Room:
        """Return the room of a session, to which everything that has happened so far was sent.

        Join it before the next await.
        """
        session_id = session.state.session_id
        lock = self._open_locks.setdefault(session_id, asyncio.Lock())
        async with lock:
            await session.until_durable(session.state.seq)
            await self.wait_until_sent(session)
            room = self._rooms.get(session_id)
            if room is None or room.has_ended:
                room = Room(self._engine, session, self._on_updated, self._options)
                await room.start()
                self._rooms[session_id] = room
        return room

    async def wait_until_sent(self, session: SessionView) -> None:
        """Wait until everything durable in a session was sent to its room, if it has one."""
        if (room := self.find(session.state.session_id)) is not None:
            await room.wait_until_sent(session.durable_cursor)

    def leave(self, room: Room, socket: Socket) -> None:
        """Remove a socket from a room, and close the room if it was the last one."""
        room.leave(socket)
        self.close_if_empty(room)

    def close_if_empty(self, room: Room) -> None:
        """Close a room if nobody is in it."""
        if room.is_empty and self._rooms.get(room.session_id) is room:
            del self._rooms[room.session_id]
            self._close_tasks.start(room.close(), "close a room")

    async def close(self) -> None:
        """Close all rooms."""
        for room in tuple(self._rooms.values()):
            await room.close()
        self._rooms.clear()
        await self._close_tasks.wait()

    # --- session lists ----------------------------------------------------------------------------------------------

    def _on_updated(self, room: Room, event: OutgoingEvent) -> None:
        """Send an update to the owner's other sockets. Viewers leave when the session is no longer shared."""
        packet = event_packet("session:updated", event.payload)
        for socket in self._sockets.values():
            if socket.principal.user == room.owner and not room.delivers_to(socket):
                socket.send(packet)
        if not room.is_shared:
            for socket in tuple(self._sockets.values()):
                if socket.principal.user != room.owner:
                    self.leave(room, socket)

    def _send_to_lists(self, session_id: SessionId, owner: UserId, changes: JsonObject) -> None:
        """Send `session:updated` to the owner's sockets, and to those that follow the session."""
        payload = msgspec.json.encode({"session_id": public_session_id(session_id), **changes})
        room, packet = self._rooms.get(session_id), event_packet("session:updated", payload)
        for socket in self._sockets.values():
            if socket.principal.user == owner or (room is not None and room.delivers_to(socket)):
                socket.send(packet)

    def on_deleted(self, session_id: SessionId, owner: UserId) -> None:
        """Tell the owner's sockets that a session was deleted."""
        if session_id in self._pending_list_updates:
            self._pending_list_updates[session_id] = {}
        self._send_to_lists(session_id, owner, {"deleted": True})

    def on_events(self, session: SessionView, events: Sequence[LoggedEvent]) -> None:
        """Tell the owner's sockets what changed in a session.

        An open room reports changed settings and branches itself, so that here only the status and the title are left.
        """
        if not self._sockets:
            return
        state = session.state
        room = self._rooms.get(state.session_id)
        changes: JsonObject = {}
        for logged in events:
            match logged.event:
                case SessionCreated() | SettingsChanged(change=SettingsChange(unlisted=False)):
                    changes |= {"intent": state.title(), "status": status_of(state)}
                case SettingsChanged(change=change) if room is None:
                    changes |= updated_fields(change, state)
                case RunStarted():
                    changes["status"] = "running"
                case CallSettled() if state.run is None:  # a stop cancelled what the session waited for
                    changes["status"] = status_of(state)
                case Branched():
                    changes |= {"reload": True} if room is None else {}
                    changes |= {"intent": state.title()} if len(state.first_messages) > 1 else {}
                case MessageAdded(message=UserMessage()) if not state.settings.title or len(state.first_messages) > 1:
                    changes["intent"] = state.title()
                case RunStopped():
                    changes["status"] = status_of(state)
                    if room is None and is_replay(state):
                        changes["replay_state"] = replay_state_of(state)
        if changes and not state.settings.unlisted:
            self._update_lists(state.session_id, state.owner, changes)

    def _update_lists(self, session_id: SessionId, owner: UserId, changes: JsonObject) -> None:
        """Send the first change at once, and those within the next `LIST_UPDATE_INTERVAL_S` together."""
        pending = self._pending_list_updates.get(session_id)
        if pending is not None:
            pending.update(changes)
            return
        self._send_to_lists(session_id, owner, changes)
        self._pending_list_updates[session_id] = {}
        asyncio.get_running_loop().call_later(LIST_UPDATE_INTERVAL_S, self._flush_list_updates, session_id, owner)

    def _flush_list_updates(self, session_id: SessionId, owner: UserId) -> None:
        if changes := self._pending_list_updates.pop(session_id):
            self._update_lists(session_id, owner, changes)
