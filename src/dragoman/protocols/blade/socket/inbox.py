"""Handles the events that Blade's clients send over the socket. Source: specification, section 6.1.

Every event is acknowledged. An error is also sent as `system:error`, because older clients take no acknowledgements,
and only to the socket at fault, because it ends streams in published clients.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

import structlog

from dragoman.core.admission import is_busy
from dragoman.core.branches import BranchPoint
from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import ROOT, UserId, parse_session_id
from dragoman.core.inputs import Submit
from dragoman.core.refusals import Invalid, Refused, SessionNotFound
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade import translate
from dragoman.protocols.blade.access import lease_owned, lease_readable
from dragoman.protocols.blade.errors import SOCKET_ERROR_TABLE, MissingFields, NothingToCompact, detail_of
from dragoman.protocols.blade.projection.loader import active_turns, load_projection
from dragoman.protocols.blade.socket.client_socket import Socket
from dragoman.protocols.blade.socket.room import Room
from dragoman.protocols.blade.socket.rooms import Rooms
from dragoman.protocols.blade.socket.server import Handler
from dragoman.protocols.blade.socket.socketio_server import wants_acknowledgement
from dragoman.protocols.blade.wire import chat as wire
from dragoman.protocols.kit.app import counted_error
from dragoman.protocols.kit.decoding import convert_value
from dragoman.protocols.kit.errors import RequestError

STOP_TIMEOUT_S = 5.0
"""How long a stop may take before it is acknowledged as `stopping`."""
UNSUBSCRIBE_TIMEOUT_S = 0.1
"""How long a stop without an acknowledgement waits for the unsubscription that may follow it."""
RESUME_WINDOW = timedelta(seconds=60)
"""How long after its end a chat is sent again to clients that resume without a sequence number."""

log = structlog.get_logger(__name__)


class Inbox:
    """Handles the events of all sockets."""

    def __init__(self, engine: Engine, rooms: Rooms) -> None:
        self._engine = engine
        self._rooms = rooms
        self._stops: dict[tuple[UserId, str], set[asyncio.Task[str]]] = {}
        """The stops that have not taken effect yet, by the names of their sessions."""

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by the names of their events."""
        handlers = {
            "session:subscribe": self.subscribe,
            "session:unsubscribe": self.unsubscribe,
            "chat:send": self.send,
            "chat:stop": self.stop,
            "chat:compact": self.compact,
        }
        return {name: partial(self._acknowledge, name, handler) for name, handler in handlers.items()}

    async def _acknowledge(self, event_name: str, handle: Handler, socket: Socket, data: Json) -> JsonObject:
        """Handle an event, and return its acknowledgement, whatever fails.

        An error names its session unless the socket started the chat that runs there: its client would end that.
        """
        try:
            return await handle(socket, data)
        except translate.ReplayMismatch as mismatch:  # not an error, which would end streams: the client decides
            socket.emit("replay:input_mismatch", mismatch.facts)
            return {"status": "error", "code": "replay_input_mismatch", "message": str(mismatch)}
        except Exception as error:  # noqa: BLE001  # the root of an event: every failure is answered
            response = counted_error(translate.PROTOCOL, SOCKET_ERROR_TABLE, error, event_name=event_name)
            payload = {"message": detail_of(response), "code": response.code}
            session_id = data.get("session_id") if isinstance(data, dict) else None
            is_named = isinstance(error, Refused | RequestError) and not isinstance(error, MissingFields)
            if is_named and isinstance(session_id, str) and session_id and not self._is_streaming(socket, session_id):
                payload["session_id"] = session_id
        socket.emit("system:error", payload)
        return {"status": "error", "code": response.code, "message": detail_of(response)}

    def _is_streaming(self, socket: Socket, session_name: str) -> bool:
        """Return whether a chat runs that the socket itself started in a session."""
        session_id = parse_session_id(wire.parse_session_name(session_name))
        room = None if session_id is None else self._rooms.find(session_id)
        chat = None if room is None else room.projection.emitter.running_chat
        return chat is not None and chat.run_id in socket.chat_run_ids

    async def subscribe(self, socket: Socket, data: Json) -> JsonObject:
        """Handle `session:subscribe`."""
        command = convert_value(data, wire.Subscribe)
        await self._wait_for_stops(socket, command.session_id)
        async with lease_readable(self._engine, socket.principal.user, command.session_id) as session:
            room = await self._rooms.open(session)
            is_raw = command.event_format == "raw"
            emitter = room.projection.emitter
            chat, newest = emitter.chat, emitter.number
            is_fresh = chat is not None and (
                chat.ended_at is None or self._engine.clock.now() - chat.ended_at < RESUME_WINDOW
            )
            acknowledgement: JsonObject = {
                "status": "ok",
                "session_id": wire.public_session_id(session.state.session_id),
                "running": emitter.running_chat is not None,
                "stream_sequence": newest,
            }
            after = command.after_sequence or 0
            # An addition of ours: a number below zero asks for the whole latest chat, at any age.
            if (after <= newest and after != 0) or (after == 0 and command.resume and is_fresh):
                try:
                    await room.resume(socket, after, is_raw=is_raw)
                finally:
                    self._rooms.close_if_empty(room)  # the socket, or the store, may have gone meanwhile
                return {**acknowledgement, "resumed": True}
            room.join(socket, is_raw=is_raw)
            room.send_snapshot(socket)
            if after > 0:  # a number that no event of the session has
                acknowledgement["resumed"] = False
            return acknowledgement

    async def unsubscribe(self, socket: Socket, data: Json) -> JsonObject:
        """Handle `session:unsubscribe`."""
        command = convert_value(data, wire.SessionCommand)
        session_id = parse_session_id(wire.parse_session_name(command.session_id))
        room = None if session_id is None else self._rooms.find(session_id)
        if room is not None and room.delivers_to(socket):
            self._rooms.leave(room, socket)  # before any await: the end of a stopped chat may come at any time
            return {"status": "ok"}
        async with lease_readable(self._engine, socket.principal.user, command.session_id) as session:
            room = self._rooms.find(session.state.session_id)
            if room is not None:
                self._rooms.leave(room, socket)
        return {"status": "ok"}

    async def send(self, socket: Socket, data: Json) -> JsonObject:
        """Handle `chat:send`. The sender is subscribed, and gets the acknowledgement before the chat's events."""
        if not isinstance(data, dict) or not data.get("session_id") or data.get("message") is None:
            raise MissingFields
        command = convert_value(data, wire.ChatSend)
        if not (command.message or command.askuser_answer or command.whatif or command.replay_decision):
            raise MissingFields
        socket.principal.require("use")
        await self._wait_for_stops(socket, command.session_id)
        async with lease_owned(self._engine, socket.principal.user, command.session_id) as session:
            submit = await self._build_submit(command, session)
            if not submit.messages and not submit.answers:
                raise MissingFields
            branch = None if command.whatif is None else await self._branch_point(session, command.whatif.from_step)
            room = await self._rooms.open(session)
            release = room.start_buffering(socket)
            try:
                result = await self._engine.start_run(session, submit, by=socket.principal.user, branch=branch)
                await session.until_durable(result.seq)
                if not room.contains(socket):  # a refused sender is not subscribed
                    room.join(socket, is_raw=False)
            finally:
                asyncio.get_running_loop().call_soon(self._release, room, release)
            session_id, run_id = wire.public_session_id(session.state.session_id), result.run_id
            chat_run_id = wire.answer_run_id(session_id, result.seq) if run_id is None else wire.public_run_id(run_id)
            socket.chat_run_ids.append(chat_run_id)
            return {"status": "ok", "session_id": session_id, "chat_run_id": chat_run_id}

    async def _build_submit(self, command: wire.ChatSend, session: SessionView) -> Submit:
        """Return the core's form of a message. In a replay, the message is compared with the recorded one."""
        replay = session.state.settings.replay
        if replay is None or not replay.is_on or command.askuser_answer is not None or is_busy(session.state):
            return translate.submit_of(command, session.state)
        try:
            turn = await self._engine.replays.next_turn(session)
        except SessionNotFound as error:
            raise Invalid("the recorded session was deleted") from error
        return translate.submit_of_replay(command, session.state, turn)

    async def _branch_point(self, session: SessionView, from_step: int) -> BranchPoint | None:
        """Return where a what-if branches off, so that `from_step` root entries remain.

        None if all remain. Source: specification, section 8.7.

        Raises:
            Invalid: there are fewer entries.
        """
        turns = active_turns(session, await load_projection(self._engine, session))
        entries = [each for each in turns if each.turn.loop_id == ROOT]
        if not 0 <= from_step <= len(entries):
            raise Invalid(f"must be from 0 to {len(entries)}", path="whatif.from_step")
        if from_step == len(entries):
            return None
        return BranchPoint(entries[from_step].rewind_seq or entries[from_step].first_seq)

    def _release(self, room: Room, release: Callable[[], None]) -> None:
        release()
        self._rooms.close_if_empty(room)

    async def stop(self, socket: Socket, data: Json) -> JsonObject:
        """Handle `chat:stop`. It is acknowledged after the events that the stop causes.

        Older clients, which take no acknowledgement, stop a chat when they leave it and unsubscribe right afterwards.
        They must miss the chat's end, which they would take for the end of their next chat in the session.
        """
        command = convert_value(data, wire.ChatStop)
        socket.principal.require("use")
        key = (socket.principal.user, wire.parse_session_name(command.session_id))
        stops = self._stops.setdefault(key, set())

        def on_done(task: asyncio.Task[str]) -> None:
            stops.discard(task)
            if not stops:
                self._stops.pop(key, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.debug("chat not stopped", session=key[1], reason=repr(error))

        task = asyncio.create_task(self._stop(socket, command))
        stops.add(task)
        task.add_done_callback(on_done)
        done, _ = await asyncio.wait([task], timeout=STOP_TIMEOUT_S)
        return {"status": task.result() if done else "stopping"}

    async def _stop(self, socket: Socket, command: wire.ChatStop) -> str:
        if not wants_acknowledgement.get():
            await socket.wait_for_event(UNSUBSCRIBE_TIMEOUT_S)
        async with lease_owned(self._engine, socket.principal.user, command.session_id) as session:
            run = session.state.run
            newest = session.state.last_run if run is None else run.run_id  # the last run may wait for an answer
            if command.chat_run_id is not None and (
                newest is None or wire.public_run_id(newest) != command.chat_run_id
            ):
                return "idle"
            is_stopped = await self._engine.stop_run(session)
            await self._rooms.wait_until_sent(session)
            return "stopped" if is_stopped else "idle"

    async def _wait_for_stops(self, socket: Socket, session_name: str) -> None:
        """Wait until the user's stops of a session have taken effect, so that a new chat gets its own events only."""
        if stops := self._stops.get((socket.principal.user, wire.parse_session_name(session_name))):
            await asyncio.wait(stops, timeout=STOP_TIMEOUT_S)

    async def compact(self, socket: Socket, data: Json) -> JsonObject:
        """Handle `chat:compact`."""
        command = convert_value(data, wire.SessionCommand)
        socket.principal.require("use")
        await self._wait_for_stops(socket, command.session_id)
        async with lease_owned(self._engine, socket.principal.user, command.session_id) as session:
            compaction = await self._engine.compact(session)
            await self._rooms.wait_until_sent(session)
        if compaction is None:
            raise NothingToCompact
        return {"status": "ok", "message": f"{compaction.archived_count} messages were compacted"}
