"""The transport for Blade: REST over HTTP, and a Socket.IO connection per chat that reconnects by itself."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Self

import msgspec

from dragoman.client import socketio_packets
from dragoman.client.blade import (
    NO_CLIENT_TOOLS,
    BladeCodec,
    BladeTurn,
    answer_payload,
    message_payload,
    to_blade_session_id,
)
from dragoman.client.codec import SessionConfig, SessionHandle, TurnInput, UserInput
from dragoman.client.connection import Backoff, ServerConnection, Timeouts
from dragoman.client.errors import Busy, ClientError, TimedOut, Unauthorized, Unreachable, Unsupported, make_refusal
from dragoman.client.events import Agent, Ended, Event, Message, Notice, Pending, SessionInfo
from dragoman.client.transport import Checkpoint, Transport
from dragoman.core.content import Json, JsonObject

MAX_MESSAGE_BYTES = 64 * 1024 * 1024


class ConnectionLost(Exception):
    """The socket was lost or could not be opened; a retry may succeed."""

    def __init__(self, error: ClientError) -> None:
        super().__init__(str(error))
        self.error = error


class BladeSocket:
    """One authenticated Socket.IO connection."""

    def __init__(self, connection: Any, idle_s: float) -> None:  # noqa: ANN401  # the library is optional
        self._connection = connection
        self._idle_s = idle_s
        self._last_ack_id = 0
        self._buffered_events: deque[socketio_packets.Packet] = deque()
        """Events that arrived while `call` waited for its acknowledgement."""

    async def receive_packet(self) -> socketio_packets.Packet:
        """Wait for the next packet, answering pings. Raises ConnectionLost."""
        while True:
            try:
                async with asyncio.timeout(self._idle_s):
                    text = await self._connection.recv()
            except TimeoutError as error:
                raise ConnectionLost(
                    TimedOut(f"the server sent nothing for {self._idle_s} s", may_retry=True)
                ) from error
            packet = socketio_packets.decode_packet(text if isinstance(text, str) else "")
            if packet.kind == "ping":
                await self._connection.send(socketio_packets.PONG)
            elif packet.kind == "closed":
                raise ConnectionLost(Unreachable("the server closed the socket", may_retry=True))
            elif packet.kind != "other":
                return packet

    async def call(self, name: str, payload: JsonObject) -> JsonObject:
        """Send an event and wait for its acknowledgement. Events that arrive before it are buffered."""
        self._last_ack_id += 1
        await self._connection.send(socketio_packets.encode_event(name, payload, self._last_ack_id))
        while True:
            packet = await self.receive_packet()
            if packet.kind == "ack" and packet.ack_id == self._last_ack_id:
                return packet.body if isinstance(packet.body, dict) else {}
            if packet.kind == "event":
                self._buffered_events.append(packet)

    async def receive_event(self) -> socketio_packets.Packet:
        """Wait for the next event."""
        if self._buffered_events:
            return self._buffered_events.popleft()
        while (packet := await self.receive_packet()).kind != "event":
            pass
        return packet


class BladeTransport(Transport):
    """The transport for Blade."""

    needs_all_answers = False

    def __init__(self, connection: ServerConnection, codec: BladeCodec, url: str, key: str | None) -> None:
        super().__init__(connection)
        self._codec = codec
        self._url = "ws" + url.removeprefix("http") + socketio_packets.PATH
        self._key = key
        self._timeouts: Timeouts = connection.timeouts

    def with_headers(self, headers: Mapping[str, str]) -> Self:
        """The same server, for requests with more headers. A bearer token is also the socket's."""
        transport = super().with_headers(headers)
        scheme, _, token = transport._connection.headers.get("Authorization", "").partition(" ")
        transport._key = token if scheme.lower() == "bearer" else self._key
        return transport

    async def agents(self) -> tuple[Agent, ...]:
        """List the server's agents."""
        return await self._connection.send(self._codec.agents())

    async def create(self, session_config: SessionConfig, idempotency_key: str) -> SessionHandle:
        """Create a session."""
        return await self._connection.send(self._codec.create(session_config))

    async def open(self, session_id: str, session_config: SessionConfig) -> SessionHandle:
        """Open an existing session. Raises NotFound."""
        if session_config.tools:
            raise Unsupported(NO_CLIENT_TOOLS)
        handle = SessionHandle(id=session_id, agent=session_config.agent)
        info = await self.session_info(handle)  # also collects the handle's tool names
        handle.id, handle.agent, handle.pending = info.id, info.agent, info.pending
        return handle

    async def session_info(self, handle: SessionHandle) -> SessionInfo:
        """Fetch a session's current state."""
        info = await self._connection.send(self._codec.session_info(handle))
        if info.status != "waiting":
            return info
        return msgspec.structs.replace(info, pending=await self._connection.send(self._codec.pending(handle)))

    async def sessions(self, after: str) -> tuple[tuple[SessionInfo, ...], str]:
        """Fetch a page of the session list."""
        return await self._connection.send(self._codec.sessions(after))

    async def history(self, handle: SessionHandle) -> tuple[Message, ...]:
        """Fetch all messages."""
        return await self._connection.send(self._codec.history(handle))

    async def delete(self, handle: SessionHandle) -> None:
        """Delete the session and everything in it."""
        await self._connection.send(self._codec.delete(handle))

    async def stop(self, handle: SessionHandle) -> bool:
        """Stop the current run. Returns whether there was one."""
        backoff = self._backoff()
        while True:
            try:
                async with self._open_socket() as socket:
                    ack = _check_ack(await socket.call("chat:stop", {"session_id": to_blade_session_id(handle.id)}))
                    return ack.get("status") != "idle"
            except ConnectionLost as lost:
                await asyncio.sleep(backoff.next_delay(lost.error))

    async def run_turn(
        self,
        handle: SessionHandle,
        turn_input: TurnInput,
        idempotency_key: str = "",
        checkpoint: Checkpoint | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Run a turn, to its `Ended`. Answers are sent one by one, each in a chat of its own. There are no keys."""
        payloads = (
            [message_payload(handle, turn_input)]
            if isinstance(turn_input, UserInput)
            else [answer_payload(handle, each) for each in turn_input]
        )
        for payload in payloads:
            pending = () if isinstance(turn_input, UserInput) else handle.pending  # a message abandons what is pending
            async with aclosing(self._follow_chat(handle, payload, pending, checkpoint=checkpoint)) as chat:
                async for event in chat:
                    if not isinstance(event, Ended) or payload is payloads[-1]:
                        yield event

    async def take_up(
        self,
        handle: SessionHandle,
        turn_input: TurnInput,
        idempotency_key: str,
        checkpoint: Checkpoint | None = None,
    ) -> AsyncGenerator[Event, None] | None:
        """Read the chat that followed the newest event before the turn; if there is none, the message did not arrive.

        Several answers are several chats, of which it is not known how many were sent.
        """
        if handle.sequence < 0:  # there was no checkpoint, so that nothing was sent
            return self.run_turn(handle, turn_input, idempotency_key, checkpoint)
        if isinstance(turn_input, UserInput):
            return self._follow_chat(handle, message_payload(handle, turn_input), before=handle.sequence)
        if len(turn_input) > 1:
            return None
        payload = answer_payload(handle, turn_input[0])
        return self._follow_chat(handle, payload, handle.pending, before=handle.sequence)

    async def resume(self, handle: SessionHandle) -> AsyncGenerator[Event, None]:
        """Read the newest turn from its start."""
        async with aclosing(self._follow_chat(handle, None)) as chat:
            async for event in chat:
                yield event

    # --- inside -----------------------------------------------------------------------------------------------------

    def _backoff(self) -> Backoff:
        return Backoff(self._timeouts.reconnect_s, asyncio.get_running_loop().time)

    async def _follow_chat(
        self,
        handle: SessionHandle,
        payload: JsonObject | None,
        pending: Sequence[Pending] = (),
        *,
        before: int = -1,
        checkpoint: Checkpoint | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Send a message, if there is one, and follow the newest chat.

        Args:
            handle: the session.
            payload: the message.
            pending: what waits for answers besides.
            before: the newest event before the message, if it may have been sent already.
            checkpoint: called when `handle.sequence` is that event, before the message is sent.
        """
        backoff, turn, was_sent = self._backoff(), BladeTurn(handle, max(before, 0), pending), before >= 0
        while not turn.is_over:
            try:
                async with self._open_socket() as socket:
                    ack = await self._subscribe(socket, handle, turn, is_joining=payload is None or before >= 0)
                    backoff.record_connection()
                    number = int(ack.get("stream_sequence") or 0)
                    if payload is None:
                        if not number:
                            yield Ended(reason="end_turn")
                            return
                    elif before < 0:
                        before = turn.last_sequence = handle.sequence = number
                        if checkpoint is not None:
                            await checkpoint()
                    if payload is not None and number == before and not turn.run_id:
                        is_retry, was_sent = was_sent, True
                        ack = await self._send_message(socket, payload, is_retry=is_retry)
                        turn.run_id = handle.run_id = str(ack.get("chat_run_id") or "")
                    is_unconfirmed = payload is not None and not turn.run_id
                    while not turn.is_over:
                        events = await self._receive_events(socket, turn)
                        if is_unconfirmed and payload is not None:
                            _check_user_message(turn, payload)
                        for event in events:
                            backoff.record_progress()
                            yield event
            except ConnectionLost as lost:
                delay_s = backoff.next_delay(lost.error)
                yield Notice(kind="reconnecting", content={"after_s": round(delay_s, 3), "because": str(lost.error)})
                await asyncio.sleep(delay_s)

    async def _send_message(self, socket: BladeSocket, payload: JsonObject, *, is_retry: bool) -> JsonObject:
        """Send a message. Raises ConnectionLost if a retry finds the first copy already being answered."""
        try:
            return _check_ack(await socket.call("chat:send", payload))
        except Busy as busy:
            if not is_retry:
                raise
            raise ConnectionLost(busy) from busy

    async def _receive_events(self, socket: BladeSocket, turn: BladeTurn) -> Sequence[Event]:
        """Wait for the next packet and decode it."""
        packet = await socket.receive_event()
        try:
            return turn.feed(packet.name, packet.body)
        except Unreachable as error:
            raise ConnectionLost(error) from error

    async def _subscribe(
        self, socket: BladeSocket, handle: SessionHandle, turn: BladeTurn, *, is_joining: bool
    ) -> JsonObject:
        """Subscribe to the session; when joining, from the event after the last one that was decoded.

        To read from the beginning, subscribe after event 1: it is a chat's start, which carries nothing. After 0 the
        server would not replay old events.
        """
        payload: JsonObject = {"session_id": to_blade_session_id(handle.id)}
        if is_joining:
            payload |= {"after_sequence": max(turn.last_sequence, 1), "resume": True}
        return _check_ack(await socket.call("session:subscribe", payload))

    @asynccontextmanager
    async def _open_socket(self) -> AsyncIterator[BladeSocket]:
        """Open and authenticate a connection. Raises ConnectionLost and Unauthorized."""
        import websockets  # here, because only chats need it

        class Connect(websockets.connect):
            """A connection to this address and no other: a redirect would send the key to another server."""

            def process_redirect(self, exc: Exception) -> Exception | str:
                return exc

        try:
            async with Connect(
                self._url,
                additional_headers=self._connection.headers,
                open_timeout=self._timeouts.connect_s,
                close_timeout=1,
                max_size=MAX_MESSAGE_BYTES,
            ) as connection:
                socket = BladeSocket(connection, self._timeouts.idle_s)
                await socket.receive_packet()  # Engine.IO's open packet
                await connection.send(socketio_packets.encode_connect({"token": self._key}))
                packet = await socket.receive_packet()
                if packet.kind == "refused":
                    raise _to_unauthorized(packet.body)
                yield socket
        except (OSError, EOFError, TimeoutError, websockets.exceptions.WebSocketException) as error:
            message = f"cannot connect to {self._url} ({str(error) or type(error).__name__})"
            raise ConnectionLost(Unreachable(message, may_retry=True)) from error


def _check_ack(ack: JsonObject) -> JsonObject:
    """Return an acknowledgement. Raises RequestRefused if it reports an error."""
    if ack.get("status") != "error":
        return ack
    code = str(ack.get("code") or "")
    status = {"session_busy": 409, "not_found": 404, "forbidden": 403}.get(code, 400)
    raise make_refusal(
        status, code, str(ack.get("message") or "the server refused the request"), body=b"", request_id=""
    )


def _check_user_message(turn: BladeTurn, payload: JsonObject) -> None:
    """Check that the chat that started after a message was sent is the one that answers it."""
    message = payload["message"]
    if isinstance(message, str) and message and turn.user_text is not None and turn.user_text != message:
        raise Unreachable("another message was sent first; it is unknown whether this one arrived: check the history")


def _to_unauthorized(body: Json) -> ClientError:
    message = str(body.get("message")) if isinstance(body, dict) else "the server refused the connection"
    return Unauthorized(message, status=401, code="unauthorized")
