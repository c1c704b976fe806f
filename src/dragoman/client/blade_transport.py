"""Blade's way to a server: REST through the link, chats over a socket of their own each, which comes back by itself."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from types import ModuleType
from typing import Any

import msgspec

from dragoman.client import socketio_packets
from dragoman.client.blade import BladeCodec, BladeTurn, answer_payload, message_payload, to_blade_session_id
from dragoman.client.codec import SessionConfig, SessionHandle, TurnInput, UserInput
from dragoman.client.connection import Backoff, ServerConnection, Timeouts
from dragoman.client.errors import Busy, ClientError, TimedOut, Unauthorized, Unreachable, Unsupported, make_refusal
from dragoman.client.events import Agent, Ended, Event, Message, Notice, Pending, SessionInfo
from dragoman.core.content import Json, JsonObject

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MISSING_EXTRA_MESSAGE = "live Blade needs the extra: pip install '.[blade]'. Sessions and histories work without it"


class ConnectionLost(Exception):
    """The socket is gone, or never came to be; another one may do better."""

    def __init__(self, error: ClientError) -> None:
        super().__init__(str(error))
        self.error = error


class BladeSocket:
    """One connection that is logged in."""

    def __init__(self, connection: Any, idle_s: float) -> None:  # noqa: ANN401  # the library is there or not
        self._connection = connection
        self._idle_s = idle_s
        self._last_ack_id = 0
        self._buffered_events: deque[socketio_packets.Packet] = deque()
        """Events that came while an acknowledgement was waited for."""

    async def receive_packet(self) -> socketio_packets.Packet:
        """The next packet; pings are answered. Raises Lost."""
        while True:
            try:
                async with asyncio.timeout(self._idle_s):
                    text = await self._connection.recv()
            except TimeoutError as error:
                raise ConnectionLost(TimedOut(f"nothing came for {self._idle_s} s", may_retry=True)) from error
            found = socketio_packets.decode_packet(text if isinstance(text, str) else "")
            if found.kind == "ping":
                await self._connection.send(socketio_packets.PONG)
            elif found.kind == "closed":
                raise ConnectionLost(Unreachable("the server closed the socket", may_retry=True))
            elif found.kind != "other":
                return found

    async def call(self, name: str, payload: JsonObject) -> JsonObject:
        """Send an event and wait for its acknowledgement; what comes meanwhile is kept for `event`."""
        self._last_ack_id += 1
        await self._connection.send(socketio_packets.encode_event(name, payload, self._last_ack_id))
        while True:
            found = await self.receive_packet()
            if found.kind == "ack" and found.ack_id == self._last_ack_id:
                return found.body if isinstance(found.body, dict) else {}
            if found.kind == "event":
                self._buffered_events.append(found)

    async def receive_event(self) -> socketio_packets.Packet:
        """The next event."""
        if self._buffered_events:
            return self._buffered_events.popleft()
        while (found := await self.receive_packet()).kind != "event":
            pass
        return found


class BladeTransport:
    """Blade of one server."""

    def __init__(self, connection: ServerConnection, codec: BladeCodec, url: str, key: str | None) -> None:
        self._connection = connection
        self._codec = codec
        self._url = "ws" + url.removeprefix("http") + socketio_packets.PATH
        self._key = key
        self._timeouts: Timeouts = connection.timeouts

    async def close(self) -> None:
        """See `Door.close`."""
        await self._connection.close()

    async def agents(self) -> tuple[Agent, ...]:
        """See `Door.agents`."""
        return await self._connection.send(self._codec.agents())

    async def create(self, session_config: SessionConfig, idempotency_key: str) -> SessionHandle:
        """See `Door.create`."""
        return await self._connection.send(self._codec.create(session_config))

    async def open(self, session_id: str, session_config: SessionConfig) -> SessionHandle:
        """See `Door.open`."""
        if session_config.tools:
            raise Unsupported("Blade has no tools of the application's: AAP, AG-UI and the Agent API have")
        talk = SessionHandle(id=session_id, agent=session_config.agent)
        info = await self.session_info(talk)
        talk.id, talk.agent, talk.pending = info.id, info.agent, info.pending
        return talk

    async def session_info(self, handle: SessionHandle) -> SessionInfo:
        """See `Door.look`."""
        info = await self._connection.send(self._codec.session_info(handle))
        if info.status != "waiting":
            return info
        return msgspec.structs.replace(info, pending=await self._connection.send(self._codec.pending(handle)))

    async def sessions(self, after: str) -> tuple[tuple[SessionInfo, ...], str]:
        """See `Door.sessions`."""
        return await self._connection.send(self._codec.sessions(after))

    async def history(self, handle: SessionHandle) -> tuple[Message, ...]:
        """See `Door.history`."""
        return await self._connection.send(self._codec.history(handle))

    async def delete(self, handle: SessionHandle) -> None:
        """See `Door.delete`."""
        await self._connection.send(self._codec.delete(handle))

    async def stop(self, handle: SessionHandle) -> None:
        """See `Door.stop`."""
        backoff = self._backoff()
        while True:
            try:
                async with self._open_socket() as socket:
                    _check_ack(await socket.call("chat:stop", {"session_id": to_blade_session_id(handle.id)}))
                    return
            except ConnectionLost as lost:
                await asyncio.sleep(backoff.next_delay(lost.error))

    async def run_turn(self, handle: SessionHandle, turn_input: TurnInput) -> AsyncGenerator[Event, None]:
        """See `Door.play`. Answers are sent one by one, each a chat of its own; the end of the last is the end."""
        sends = (
            [message_payload(handle, turn_input)]
            if isinstance(turn_input, UserInput)
            else [answer_payload(handle, each) for each in turn_input]
        )
        for place, send in enumerate(sends):
            waiting = () if isinstance(turn_input, UserInput) else handle.pending  # a message leaves behind what waited
            async with aclosing(self._follow_chat(handle, send, waiting)) as chat:
                async for event in chat:
                    if not isinstance(event, Ended) or place == len(sends) - 1:
                        yield event

    async def resume(self, handle: SessionHandle) -> AsyncGenerator[Event, None]:
        """See `Door.resume`."""
        async with aclosing(self._follow_chat(handle, None)) as chat:
            async for event in chat:
                yield event

    # --- inside -----------------------------------------------------------------------------------------------------

    def _backoff(self) -> Backoff:
        return Backoff(self._timeouts.reconnect_s, asyncio.get_running_loop().time)

    async def _follow_chat(
        self, handle: SessionHandle, payload: JsonObject | None, pending: Sequence[Pending] = ()
    ) -> AsyncGenerator[Event, None]:
        """Send a message, unless there is none, and follow the latest chat."""
        backoff, turn, before, was_sent = self._backoff(), BladeTurn(handle, 0, pending), -1, False
        while not turn.is_over:
            try:
                async with self._open_socket() as socket:
                    told = await self._subscribe(socket, handle, turn, is_joining=payload is None or before >= 0)
                    backoff.record_connection()
                    number = int(told.get("stream_sequence") or 0)
                    if payload is None:
                        if not number:
                            yield Ended(reason="end_turn")
                            return
                    elif before < 0:
                        before = turn.last_sequence = number
                    if payload is not None and number == before and not turn.run_id:
                        is_again, was_sent = was_sent, True
                        ack = await self._send_message(socket, payload, is_retry=is_again)
                        turn.run_id = handle.run_id = str(ack.get("chat_run_id") or "")
                    is_doubtful = payload is not None and not turn.run_id
                    while not turn.is_over:
                        events = await self._receive_events(socket, turn)
                        if is_doubtful and payload is not None:
                            _check_user_message(turn, payload)
                        for event in events:
                            backoff.record_progress()
                            yield event
            except ConnectionLost as lost:
                pause = backoff.next_delay(lost.error)
                yield Notice(kind="reconnecting", content={"after_s": round(pause, 3), "because": str(lost.error)})
                await asyncio.sleep(pause)

    async def _send_message(self, socket: BladeSocket, payload: JsonObject, *, is_retry: bool) -> JsonObject:
        """Send a message. Raises Lost: it comes again, and its first copy is being answered already."""
        try:
            return _check_ack(await socket.call("chat:send", payload))
        except Busy as busy:
            if not is_retry:
                raise
            raise ConnectionLost(busy) from busy

    async def _receive_events(self, socket: BladeSocket, turn: BladeTurn) -> Sequence[Event]:
        """What the next event tells."""
        found = await socket.receive_event()
        try:
            return turn.feed(found.name, found.body)
        except Unreachable as error:
            raise ConnectionLost(error) from error

    async def _subscribe(
        self, socket: BladeSocket, handle: SessionHandle, turn: BladeTurn, *, is_joining: bool
    ) -> JsonObject:
        """Follow the session; when joining, from the event behind the last one that was seen.

        The first event of a session is a chat's start, which tells nothing: so number 1 stands for the beginning, and
        is remembered at any age, which 0 is not.
        """
        asked: JsonObject = {"session_id": to_blade_session_id(handle.id)}
        if is_joining:
            asked |= {"after_sequence": max(turn.last_sequence, 1), "resume": True}
        return _check_ack(await socket.call("session:subscribe", asked))

    @asynccontextmanager
    async def _open_socket(self) -> AsyncIterator[BladeSocket]:
        """A connection that is logged in. Raises Lost, Unauthorized."""
        library = _import_websockets()
        try:
            async with library.connect(
                self._url,
                open_timeout=self._timeouts.connect_s,
                close_timeout=1,
                max_size=MAX_MESSAGE_BYTES,
            ) as connection:
                socket = BladeSocket(connection, self._timeouts.idle_s)
                await socket.receive_packet()  # the opening of Engine.IO
                await connection.send(socketio_packets.encode_connect({"token": self._key}))
                found = await socket.receive_packet()
                if found.kind == "refused":
                    raise _to_unauthorized(found.body)
                yield socket
        except (OSError, EOFError, TimeoutError, library.exceptions.WebSocketException) as error:
            words = f"no socket to {self._url} ({error or type(error).__name__})"
            raise ConnectionLost(Unreachable(words, may_retry=True)) from error


def _check_ack(ack: JsonObject) -> JsonObject:
    """An acknowledgement, unless it says no."""
    if ack.get("status") != "error":
        return ack
    code = str(ack.get("code") or "")
    status = {"session_busy": 409, "not_found": 404, "forbidden": 403}.get(code, 400)
    raise make_refusal(status, code, str(ack.get("message") or "the server refused it"), body=b"", request_id="")


def _check_user_message(turn: BladeTurn, payload: JsonObject) -> None:
    """Check that the chat which began after a message was sent is the one that answers it."""
    message = payload["message"]
    if isinstance(message, str) and message and turn.user_text is not None and turn.user_text != message:
        raise Unreachable("another message came first; whether this one arrived is unknown: the history tells")


def _to_unauthorized(body: Json) -> ClientError:
    words = str(body.get("message")) if isinstance(body, dict) else "the server refused the connection"
    return Unauthorized(words, status=401, code="unauthorized")


def _import_websockets() -> ModuleType:
    """The WebSocket library, which is there with the extra. Raises Unsupported."""
    try:
        import websockets  # an extra
    except ImportError as error:
        raise Unsupported(MISSING_EXTRA_MESSAGE) from error
    return websockets
