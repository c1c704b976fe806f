"""Blade's way to a server: REST through the link, chats over a socket of their own each, which comes back by itself."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from types import ModuleType
from typing import Any

import msgspec

from dragoman.client import socketio_packets
from dragoman.client.blade import BladeFace, BladeTurn, answer_of, message_of, shown
from dragoman.client.codec import Given, Said, Talk, Wanted
from dragoman.client.connection import Backoff, Link, Timeouts
from dragoman.client.errors import Busy, ClientError, TimedOut, Unauthorized, Unreachable, Unsupported, refused
from dragoman.client.events import Agent, Ended, Event, Message, Notice, Pending, SessionInfo
from dragoman.core.content import Json, JsonObject

MESSAGE_BYTES = 64 * 1024 * 1024
NEEDS = "live Blade needs the extra: pip install '.[blade]'. Sessions and histories work without it"


class Lost(Exception):
    """The socket is gone, or never came to be; another one may do better."""

    def __init__(self, error: ClientError) -> None:
        super().__init__(str(error))
        self.error = error


class Socket:
    """One connection that is logged in."""

    def __init__(self, connection: Any, idle_s: float) -> None:  # noqa: ANN401  # the library is there or not
        self._connection = connection
        self._idle_s = idle_s
        self._sent = 0
        self._waiting: deque[socketio_packets.Packet] = deque()
        """Events that came while an acknowledgement was waited for."""

    async def packet(self) -> socketio_packets.Packet:
        """The next packet; pings are answered. Raises Lost."""
        while True:
            try:
                async with asyncio.timeout(self._idle_s):
                    text = await self._connection.recv()
            except TimeoutError as error:
                raise Lost(TimedOut(f"nothing came for {self._idle_s} s", may_retry=True)) from error
            found = socketio_packets.read(text if isinstance(text, str) else "")
            if found.kind == "ping":
                await self._connection.send(socketio_packets.PONG)
            elif found.kind == "closed":
                raise Lost(Unreachable("the server closed the socket", may_retry=True))
            elif found.kind != "other":
                return found

    async def call(self, name: str, payload: JsonObject) -> JsonObject:
        """Send an event and wait for its acknowledgement; what comes meanwhile is kept for `event`."""
        self._sent += 1
        await self._connection.send(socketio_packets.emit(name, payload, self._sent))
        while True:
            found = await self.packet()
            if found.kind == "ack" and found.ack_id == self._sent:
                return found.body if isinstance(found.body, dict) else {}
            if found.kind == "event":
                self._waiting.append(found)

    async def event(self) -> socketio_packets.Packet:
        """The next event."""
        if self._waiting:
            return self._waiting.popleft()
        while (found := await self.packet()).kind != "event":
            pass
        return found


class BladeDoor:
    """Blade of one server."""

    def __init__(self, link: Link, face: BladeFace, url: str, key: str | None) -> None:
        self._link = link
        self._face = face
        self._url = "ws" + url.removeprefix("http") + socketio_packets.PATH
        self._key = key
        self._timeouts: Timeouts = link.timeouts

    async def close(self) -> None:
        """See `Door.close`."""
        await self._link.close()

    async def agents(self) -> tuple[Agent, ...]:
        """See `Door.agents`."""
        return await self._link.ask(self._face.agents())

    async def create(self, wanted: Wanted, once: str) -> Talk:
        """See `Door.create`."""
        return await self._link.ask(self._face.create(wanted))

    async def open(self, session_id: str, wanted: Wanted) -> Talk:
        """See `Door.open`."""
        if wanted.tools:
            raise Unsupported("Blade has no tools of the application's: AAP, AG-UI and the Agent API have")
        talk = Talk(id=session_id, agent=wanted.agent)
        info = await self.look(talk)
        talk.id, talk.agent, talk.pending = info.id, info.agent, info.pending
        return talk

    async def look(self, talk: Talk) -> SessionInfo:
        """See `Door.look`."""
        info = await self._link.ask(self._face.look(talk))
        if info.status != "waiting":
            return info
        return msgspec.structs.replace(info, pending=await self._link.ask(self._face.pending(talk)))

    async def sessions(self, after: str) -> tuple[tuple[SessionInfo, ...], str]:
        """See `Door.sessions`."""
        return await self._link.ask(self._face.sessions(after))

    async def history(self, talk: Talk) -> tuple[Message, ...]:
        """See `Door.history`."""
        return await self._link.ask(self._face.history(talk))

    async def delete(self, talk: Talk) -> None:
        """See `Door.delete`."""
        await self._link.ask(self._face.delete(talk))

    async def stop(self, talk: Talk) -> None:
        """See `Door.stop`."""
        backoff = self._backoff()
        while True:
            try:
                async with self._socket() as socket:
                    _check(await socket.call("chat:stop", {"session_id": shown(talk.id)}))
                    return
            except Lost as lost:
                await asyncio.sleep(backoff.next(lost.error))

    async def play(self, talk: Talk, given: Given) -> AsyncGenerator[Event, None]:
        """See `Door.play`. Answers are sent one by one, each a chat of its own; the end of the last is the end."""
        sends = [message_of(talk, given)] if isinstance(given, Said) else [answer_of(talk, each) for each in given]
        for place, send in enumerate(sends):
            waiting = () if isinstance(given, Said) else talk.pending  # a message leaves behind what waited
            async with aclosing(self._chat(talk, send, waiting)) as chat:
                async for event in chat:
                    if not isinstance(event, Ended) or place == len(sends) - 1:
                        yield event

    async def resume(self, talk: Talk) -> AsyncGenerator[Event, None]:
        """See `Door.resume`."""
        async with aclosing(self._chat(talk, None)) as chat:
            async for event in chat:
                yield event

    # --- inside -----------------------------------------------------------------------------------------------------

    def _backoff(self) -> Backoff:
        return Backoff(self._timeouts.lost_s, asyncio.get_running_loop().time)

    async def _chat(
        self, talk: Talk, send: JsonObject | None, waiting: Sequence[Pending] = ()
    ) -> AsyncGenerator[Event, None]:
        """Send a message, unless there is none, and follow the latest chat."""
        backoff, turn, before, was_sent = self._backoff(), BladeTurn(talk, 0, waiting), -1, False
        while not turn.is_over:
            try:
                async with self._socket() as socket:
                    told = await self._subscribed(socket, talk, turn, is_joining=send is None or before >= 0)
                    backoff.connected()
                    number = int(told.get("stream_sequence") or 0)
                    if send is None:
                        if not number:
                            yield Ended(reason="end_turn")
                            return
                    elif before < 0:
                        before = turn.seen = number
                    if send is not None and number == before and not turn.run_id:
                        is_again, was_sent = was_sent, True
                        ack = await self._sent(socket, send, is_again=is_again)
                        turn.run_id = talk.run_id = str(ack.get("chat_run_id") or "")
                    is_doubtful = send is not None and not turn.run_id
                    while not turn.is_over:
                        events = await self._heard(socket, turn)
                        if is_doubtful and send is not None:
                            _check_said(turn, send)
                        for event in events:
                            backoff.progressed()
                            yield event
            except Lost as lost:
                pause = backoff.next(lost.error)
                yield Notice(kind="reconnecting", content={"after_s": round(pause, 3), "because": str(lost.error)})
                await asyncio.sleep(pause)

    async def _sent(self, socket: Socket, send: JsonObject, *, is_again: bool) -> JsonObject:
        """Send a message. Raises Lost: it comes again, and its first copy is being answered already."""
        try:
            return _check(await socket.call("chat:send", send))
        except Busy as busy:
            if not is_again:
                raise
            raise Lost(busy) from busy

    async def _heard(self, socket: Socket, turn: BladeTurn) -> Sequence[Event]:
        """What the next event tells."""
        found = await socket.event()
        try:
            return turn.feed(found.name, found.body)
        except Unreachable as error:
            raise Lost(error) from error

    async def _subscribed(self, socket: Socket, talk: Talk, turn: BladeTurn, *, is_joining: bool) -> JsonObject:
        """Follow the session; when joining, from the event behind the last one that was seen.

        The first event of a session is a chat's start, which tells nothing: so number 1 stands for the beginning, and
        is remembered at any age, which 0 is not.
        """
        asked: JsonObject = {"session_id": shown(talk.id)}
        if is_joining:
            asked |= {"after_sequence": max(turn.seen, 1), "resume": True}
        return _check(await socket.call("session:subscribe", asked))

    @asynccontextmanager
    async def _socket(self) -> AsyncIterator[Socket]:
        """A connection that is logged in. Raises Lost, Unauthorized."""
        library = _library()
        try:
            async with library.connect(
                self._url,
                open_timeout=self._timeouts.connect_s,
                close_timeout=1,
                max_size=MESSAGE_BYTES,
            ) as connection:
                socket = Socket(connection, self._timeouts.idle_s)
                await socket.packet()  # the opening of Engine.IO
                await connection.send(socketio_packets.connect({"token": self._key}))
                found = await socket.packet()
                if found.kind == "refused":
                    raise _unauthorized(found.body)
                yield socket
        except (OSError, EOFError, TimeoutError, library.exceptions.WebSocketException) as error:
            words = f"no socket to {self._url} ({error or type(error).__name__})"
            raise Lost(Unreachable(words, may_retry=True)) from error


def _check(told: JsonObject) -> JsonObject:
    """An acknowledgement, unless it says no."""
    if told.get("status") != "error":
        return told
    code = str(told.get("code") or "")
    status = {"session_busy": 409, "not_found": 404, "forbidden": 403}.get(code, 400)
    raise refused(status, code, str(told.get("message") or "the server refused it"), body=b"", request_id="")


def _check_said(turn: BladeTurn, send: JsonObject) -> None:
    """Check that the chat which began after a message was sent is the one that answers it."""
    message = send["message"]
    if isinstance(message, str) and message and turn.said is not None and turn.said != message:
        raise Unreachable("another message came first; whether this one arrived is unknown: the history tells")


def _unauthorized(body: Json) -> ClientError:
    words = str(body.get("message")) if isinstance(body, dict) else "the server refused the connection"
    return Unauthorized(words, status=401, code="unauthorized")


def _library() -> ModuleType:
    """The WebSocket library, which is there with the extra. Raises Unsupported."""
    try:
        import websockets  # an extra
    except ImportError as error:
        raise Unsupported(NEEDS) from error
    return websockets
