"""Blade's events from clients: read, let into the core, acknowledged. Thin; the rules are in the core.

Every event is acknowledged. What is refused is told twice, as clients of older releases take no acknowledgements, and
to the refused socket alone: a `system:error` ends streams in published clients. Source: specification, section 6.1.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

import structlog

from dragoman.core.admission import is_busy
from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import ROOT
from dragoman.core.inputs import Submit
from dragoman.core.refusals import Forbidden, Invalid, Refused, SessionNotFound
from dragoman.engine.engine import Engine
from dragoman.engine.instrumentation.metrics import REQUESTS_REFUSED
from dragoman.engine.sessions.view import SessionLease, SessionView
from dragoman.protocols.blade import errors, translate
from dragoman.protocols.blade.projection.loader import active_turns, load_projection
from dragoman.protocols.blade.rest.access import open_session_owned_by
from dragoman.protocols.blade.socket.rooms import Room, Rooms
from dragoman.protocols.blade.socket.server import Handler, Socket
from dragoman.protocols.blade.wire import chat as wire_chat

MISSING_FIELDS_MESSAGE = "Missing session_id or message"
ACCESS_DENIED_MESSAGE = "Access denied"
NOTHING_TO_COMPACT_MESSAGE = "there is nothing to sum up"
STOP_TIMEOUT_S = 5.0
"""How long a stop is waited for before it is said that it is under way."""
RESUME_WINDOW = timedelta(seconds=60)
"""After which a chat that ended is not sent again to those who resume without a number."""

log = structlog.get_logger(__name__)


class Inbox:
    """Answers the events of all sockets."""

    def __init__(self, engine: Engine, rooms: Rooms) -> None:
        self._engine = engine
        self._rooms = rooms
        self._stop_tasks: set[asyncio.Task[bool]] = set()

    def handlers(self) -> Mapping[str, Handler]:
        """What answers to which event."""
        return {
            "session:subscribe": self._with_error_handling(self.subscribe),
            "session:unsubscribe": self._with_error_handling(self.unsubscribe),
            "chat:send": self._with_error_handling(self.send),
            "chat:stop": self._with_error_handling(self.stop),
            "chat:compact": self._with_error_handling(self.compact),
        }

    # --- following ----------------------------------------------------------------------------------------------------

    async def subscribe(self, socket: Socket, data: Json) -> JsonObject:
        """`session:subscribe`."""
        asked = wire_chat.read_event(wire_chat.Subscribe, data)
        async with self._open_readable_session(socket, asked.session_id) as live:
            room = await self._rooms.open(live)
            is_raw = asked.event_format == "raw"
            chat = room.projection.chat
            is_fresh = chat is not None and (
                not chat.has_ended
                or (chat.ended_at is not None and self._engine.clock.now() - chat.ended_at < RESUME_WINDOW)
            )
            told: JsonObject = {
                "status": "ok",
                "session_id": wire_chat.public_session_id(live.state.session_id),
                "running": room.projection.is_running,
                "stream_sequence": room.projection.number,
            }
            after = asked.after_sequence or 0
            # Below zero is ours: the whole latest chat, at any age, for those who only look.
            if (after <= room.projection.number and after != 0) or (after == 0 and asked.resume and is_fresh):
                try:
                    await room.resume(socket, after, is_raw=is_raw)
                finally:
                    self._rooms.close_if_empty(room)  # the socket may have gone meanwhile, or the store
                return {**told, "resumed": True}
            room.join(socket, is_raw=is_raw)
            room.send_snapshot(socket)
            return {**told, "resumed": False} if after > 0 else told  # a number that no event of the session has

    async def unsubscribe(self, socket: Socket, data: Json) -> JsonObject:
        """`session:unsubscribe`."""
        asked = wire_chat.read_event(wire_chat.SessionCommand, data)
        async with self._open_readable_session(socket, asked.session_id) as live:
            room = self._rooms.find(live.state.session_id)
            if room is not None:
                self._rooms.leave(room, socket)
        return {"status": "ok"}

    # --- chatting -----------------------------------------------------------------------------------------------------

    async def send(self, socket: Socket, data: Json) -> JsonObject:
        """`chat:send`. The sender is subscribed, and hears of the acknowledgement before it hears of the chat."""
        if not isinstance(data, dict) or not data.get("session_id") or data.get("message") is None:
            raise MissingFields
        asked = wire_chat.read_event(wire_chat.ChatSend, data)
        if not (asked.message or asked.askuser_answer or asked.whatif or asked.replay_decision):
            raise MissingFields
        socket.principal.require("use")
        async with await self._open_owned_session(socket, asked.session_id) as live:
            request = await self._build_submit(asked, live)
            if not request.messages and not request.answers:
                raise MissingFields
            before_seq = None if asked.whatif is None else await self._branch_point(live, asked.whatif.from_step)
            room = await self._rooms.open(live)
            release = room.start_buffering(socket)
            try:
                submitted = await self._engine.start_run(live, request, by=socket.principal.user, before_seq=before_seq)
                await live.until_durable(submitted.seq)
                if not room.contains(socket):  # who is refused hears of that alone
                    room.join(socket, is_raw=False)
            finally:
                asyncio.get_running_loop().call_soon(self._release_room, room, release)
            run_id = submitted.run_id
            return {
                "status": "ok",
                "session_id": wire_chat.public_session_id(live.state.session_id),
                "chat_run_id": f"answer_{submitted.seq}" if run_id is None else wire_chat.public_run_id(run_id),
            }

    async def _build_submit(self, command: wire_chat.ChatSend, live: SessionView) -> Submit:
        """What a message asks of the core. In a replay it is held against what was recorded (section 5.6).

        Raises:
            Invalid: the recording is over, or cannot be played so.
            Mismatch: something else was recorded, and the client has not said which of them holds.
        """
        replay = live.state.settings.replay
        if replay is None or not replay.is_on or command.askuser_answer is not None or is_busy(live.state):
            return translate.submit_of(command, live.state)
        try:
            turn = await self._engine.replays.next_turn(live)
        except SessionNotFound as error:
            raise Invalid("the recorded session was deleted") from error
        return translate.submit_of_replay(command, live.state, turn)

    def _release_room(self, room: Room, release: Callable[[], None]) -> None:
        release()
        self._rooms.close_if_empty(room)

    async def _branch_point(self, live: SessionView, from_step: int) -> int | None:
        """The event before which a what-if leaves the active branch, of which it keeps so many root entries.

        None when it keeps them all. Source: specification, section 8.7.

        Raises:
            Invalid: there are not so many.
        """
        projection = await load_projection(self._engine, live)
        entries = [each for each in active_turns(live, projection) if each.turn.loop_id == ROOT]
        if not 0 <= from_step <= len(entries):
            raise Invalid(f"must be from 0 to {len(entries)}", path="whatif.from_step")
        if from_step == len(entries):
            return None
        first = entries[from_step]
        return first.rewind_seq or first.first_seq

    async def stop(self, socket: Socket, data: Json) -> JsonObject:
        """`chat:stop`. Acknowledged after the events that it leads to."""
        asked = wire_chat.read_event(wire_chat.ChatStop, data)
        socket.principal.require("use")
        async with await self._open_owned_session(socket, asked.session_id) as live:
            run = live.state.run
            newest = live.state.last_run if run is None else run.run_id  # which may be waiting for an answer
            if asked.chat_run_id is not None and (
                newest is None or wire_chat.public_run_id(newest) != asked.chat_run_id
            ):
                return {"status": "idle"}
            stopping = asyncio.create_task(self._engine.stop_run(live))
            self._stop_tasks.add(stopping)
            stopping.add_done_callback(self._stop_tasks.discard)
            done, _ = await asyncio.wait([stopping], timeout=STOP_TIMEOUT_S)
            if not done:
                return {"status": "stopping"}
            room = self._rooms.find(live.state.session_id)
            if room is not None:
                await room.wait_until_sent(live.durable_cursor)
            return {"status": "stopped" if stopping.result() else "idle"}

    async def compact(self, socket: Socket, data: Json) -> JsonObject:
        """`chat:compact`."""
        asked = wire_chat.read_event(wire_chat.SessionCommand, data)
        socket.principal.require("use")
        async with await self._open_owned_session(socket, asked.session_id) as live:
            made = await self._engine.compact(live)
            room = self._rooms.find(live.state.session_id)
            if room is not None:
                await room.wait_until_sent(live.durable_cursor)
        if made is None:
            raise NothingToCompact
        return {"status": "ok", "message": f"{made.archived_count} messages were summed up"}

    # --- access -------------------------------------------------------------------------------------------------------

    def _open_readable_session(self, socket: Socket, name: str) -> SessionLease:
        return self._engine.session(socket.principal.user, wire_chat.parse_session_name(name), include_shared=True)

    async def _open_owned_session(self, socket: Socket, name: str) -> SessionLease:
        return await open_session_owned_by(self._engine, socket.principal.user, wire_chat.parse_session_name(name))

    # --- answering ----------------------------------------------------------------------------------------------------

    def _with_error_handling(self, handle: Callable[[Socket, Json], Awaitable[JsonObject]]) -> Handler:
        async def answer(socket: Socket, data: Json) -> JsonObject:
            told: JsonObject
            try:
                return await handle(socket, data)
            except (
                translate.ReplayMismatch
            ) as mismatch:  # a choice is left to the client; it is no error, which ends streams
                told = {"session_id": mismatch.session_id, "expected": mismatch.expected, "received": mismatch.received}
                socket.emit("replay:input_mismatch", told)
                return {"status": "error", "code": "replay_input_mismatch", "message": str(mismatch)}
            except (Refused, MissingFields, NothingToCompact) as refused:
                code, message = to_socket_error(refused)
                REQUESTS_REFUSED.labels(protocol="blade", code=code).inc()
                told = {"message": message, "code": code}
                given = data.get("session_id") if isinstance(data, dict) else None
                if isinstance(given, str) and given and not isinstance(refused, MissingFields):
                    told["session_id"] = given
                socket.emit("system:error", told)
                return {"status": "error", "code": code, "message": message}

        return answer


class MissingFields(Exception):
    """A message without what makes it one."""


class NothingToCompact(Exception):
    """A session so short that it needs no summary."""


def to_socket_error(refused: Refused | MissingFields | NothingToCompact) -> tuple[str, str]:
    """What a refused socket is told: a code and a sentence."""
    if isinstance(refused, NothingToCompact):
        return "nothing_to_compact", NOTHING_TO_COMPACT_MESSAGE
    if isinstance(refused, MissingFields):
        return "bad_request", MISSING_FIELDS_MESSAGE
    if isinstance(refused, Forbidden | SessionNotFound):  # unknown and foreign are never told apart
        return "forbidden", ACCESS_DENIED_MESSAGE
    return errors.ERROR_TABLE[type(refused)].code, errors.to_response(refused).detail
