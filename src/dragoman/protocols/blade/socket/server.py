"""Socket.IO, behind one module: who connects, what it sends, and what goes out to it. Knows no object of Blade's.

python-socketio does the protocol. What it would do too often is done here: an event for many sockets is encoded once
and put straight into their queues, past the library's own sending (which takes some 35 µs each).
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
import socketio  # type: ignore[import-untyped]  # the library is not annotated
import structlog
from engineio import packet  # type: ignore[import-untyped]  # nor is this one
from socketio.exceptions import ConnectionRefusedError as Refusal  # type: ignore[import-untyped]  # see above
from socketio.packet import ACK, EVENT  # type: ignore[import-untyped]  # see above
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from dragoman.core.content import Json, JsonObject
from dragoman.core.principal import Principal
from dragoman.core.refusals import Refused
from dragoman.engine.instrumentation.metrics import FAILED, STREAMS_OPEN
from dragoman.engine.services.keys import Doorkeeper
from dragoman.protocols.kit.http import BodyTooLarge, BodyTooSlow, address_of, json_answer, read_body

MESSAGE_BYTES = 16 * 1024 * 1024
WAITING_BYTES = 8 * 1024 * 1024
WAITING_EVENTS = 2000
"""What may wait for a socket before it counts as slow (specification, section 9, rule 6)."""
CUT_BYTES = 8 * WAITING_BYTES
"""What may wait for one that gets no more patches, but the ends of turns, before it is cut off."""
LOOK_S = 0.05
"""How often it is looked whether a slow socket has caught up."""
CONNECT_CHARS = 16 * 1024
"""How long the packet may be that brings a key: who has shown none must not keep the server busy with reading."""
CONNECT_S = 30.0
"""How long a connection may stay open without a key."""
UNAUTHORIZED = "Unauthorized"
RESERVED = frozenset({"connect", "disconnect", "connect_error", "*"})
"""Names under which the library calls its own handlers; it would do so for clients, too."""
UNREADABLE: JsonObject = {"code": "bad_request", "message": "the event is no JSON"}
_ASKS = re.compile(r"2([0-9]{1,15})?\[")
"""Begins an event, with the number under which it is acknowledged."""

log = structlog.get_logger(__name__)
_LIBRARY = logging.getLogger(f"{__name__}.library")
"""The library's log, which would write to standard error by itself, past ours, whatever clients sent. What is no
exception, or one of a value (no UTF-8, no packet), is a client's fault and left out.
"""
_LIBRARY.addFilter(lambda record: record.exc_info is not None and not isinstance(record.exc_info[1], ValueError))
_ENCODER = msgspec.json.Encoder()


class _Json:
    """msgspec in the shape of the module `json`, as the library wants one."""

    JSONDecodeError = msgspec.DecodeError

    @staticmethod
    def dumps(value: Json, **_: Json) -> str:
        return _ENCODER.encode(value).decode()

    @staticmethod
    def loads(text: str, **_: Json) -> Json:
        try:
            return msgspec.json.decode(text)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


class _Link(Protocol):
    """The Engine.IO half of a connection, as far as it is used here."""

    queue: "asyncio.Queue[packet.Packet | None]"
    closed: bool
    closing: bool


class Socket:
    """One client's connection."""

    def __init__(self, sid: str, principal: Principal, link: _Link) -> None:
        self.sid = sid
        self.principal = principal
        self.is_gone = False
        self.on_drained: list[Callable[[], None]] = []
        """Called once each when a slow socket has caught up."""
        self.forget_key: Callable[[], None] = lambda: None
        self.cut: Callable[[], None] = lambda: None
        """Ends the connection."""
        self.give_back: Callable[[], None] = lambda: None
        """Gives back what the connection took of its owner's share."""
        self._link = link
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._looking: asyncio.TimerHandle | None = None

    @property
    def is_slow(self) -> bool:
        """Whether too much waits for it. It is until it has read all of that."""
        if self._looking is not None:
            return True
        if self._waiting_bytes() <= WAITING_BYTES and len(self._sizes) <= WAITING_EVENTS:
            return False
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        return True

    def send(self, made: packet.Packet) -> None:
        """Send what `event_packet` made."""
        if self.is_gone or self._link.closed or self._link.closing:
            return
        self._link.queue.put_nowait(made)
        self._sizes.append(len(made.data))
        self._bytes += len(made.data)
        if self._bytes > CUT_BYTES and self._waiting_bytes() > CUT_BYTES:
            self.is_gone = True
            self.cut()

    def _waiting_bytes(self) -> int:
        waiting = self._link.queue.qsize()
        while len(self._sizes) > waiting:
            self._bytes -= self._sizes.popleft()
        return self._bytes

    def emit(self, name: str, told: JsonObject) -> None:
        """Send an event to this socket alone."""
        self.send(event_packet(name, _ENCODER.encode(told)))

    def forget(self) -> None:
        """The socket is gone. The library would leave a poll that waits open until its time is over."""
        self.is_gone = True
        self.forget_key()
        self.give_back()
        self._link.queue.put_nowait(None)
        if self._looking is not None:
            self._looking.cancel()

    def _look(self) -> None:
        if self._link.closed:
            return
        if self._link.queue.qsize():
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)
            return
        self._looking, self._bytes = None, 0
        self._sizes.clear()
        drained, self.on_drained = self.on_drained, []
        for tell in drained:
            tell()


def event_packet(name: str, payload: bytes) -> packet.Packet:
    """An event of the default namespace, as it goes over every socket."""
    return packet.Packet(packet.MESSAGE, data=f'2["{name}",{payload.decode()}]')


async def _unknown(name: str, *_: Json) -> JsonObject:
    """Acknowledge an event that is none of ours, so that nobody waits for that."""
    return {"status": "error", "code": "bad_request", "message": f"there is no event {name[:80]!r}"}


class _Server(socketio.AsyncServer):  # type: ignore[misc]  # the library is not annotated
    """The library's server, where it is too trusting: a connection that nobody logs in on gets only so much time and
    room, clients call no handlers of the library's own, and an event that cannot be read is acknowledged too.
    """

    def __init__(self, *, connect_s: float, **options: object) -> None:
        super().__init__(**options)
        self._connect_s = connect_s
        self._ending: set[asyncio.Task[None]] = set()

    async def _handle_eio_connect(self, eio_sid: str, environ: Mapping[str, Any]) -> None:
        await super()._handle_eio_connect(eio_sid, environ)
        asyncio.get_running_loop().call_later(self._connect_s, self._look, eio_sid)

    async def _handle_eio_message(self, eio_sid: str, data: str | bytes) -> None:
        if len(data) > CONNECT_CHARS and self.manager.sid_from_eio_sid(eio_sid, "/") is None:
            self._look(eio_sid)
            return
        try:
            await super()._handle_eio_message(eio_sid, data)
        except (msgspec.DecodeError, ValueError):
            asks = _ASKS.match(data) if isinstance(data, str) else None
            if asks is not None:
                await self._send_packet(eio_sid, self.packet_class(EVENT, data=["system:error", UNREADABLE]))
                number = int(asks[1]) if asks[1] else None
                await self._acknowledge(eio_sid, number, {"status": "error", **UNREADABLE})

    async def _handle_event(self, eio_sid: str, namespace: str | None, number: int | None, data: Json) -> None:
        name = data[0] if isinstance(data, list) and data else None
        if name in RESERVED:
            await self._acknowledge(eio_sid, number, await _unknown(name))
        elif isinstance(name, str):
            await super()._handle_event(eio_sid, namespace, number, data)

    async def _acknowledge(self, eio_sid: str, number: int | None, told: JsonObject) -> None:
        if number is not None:
            await self._send_packet(eio_sid, self.packet_class(ACK, data=[told], id=number))

    def _look(self, eio_sid: str) -> None:
        link = self.eio.sockets.get(eio_sid)
        if link is not None and self.manager.sid_from_eio_sid(eio_sid, "/") is None:
            link.queue.put_nowait(None)  # which closes the connection, whether its client wants that or not
            task = asyncio.ensure_future(link.close(wait=False, abort=True))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


Handler = Callable[[Socket, Json], Awaitable[JsonObject]]
"""Handles an event; gives its acknowledgement."""


class Sockets:
    """The Socket.IO server, as an ASGI application."""

    def __init__(
        self,
        doorkeeper: Doorkeeper,
        handlers: Mapping[str, Handler],
        *,
        on_connect: Callable[[Socket], None],
        on_gone: Callable[[Socket], None],
        admit: Callable[[Principal], Callable[[], None]],
        connect_s: float = CONNECT_S,
    ) -> None:
        self._doorkeeper = doorkeeper
        self._sockets: dict[str, Socket] = {}
        self._on_connect = on_connect
        self._on_gone = on_gone
        self._admit = admit
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._open = STREAMS_OPEN.labels(protocol="blade")
        self._server = _Server(
            connect_s=connect_s,
            async_mode="asgi",
            async_handlers=False,  # "Events of one socket are handled strictly one after the other" (section 6)
            json=_Json,
            cors_allowed_origins=[],  # the gate has looked at Origin, and writes the headers
            max_http_buffer_size=MESSAGE_BYTES,
            logger=_LIBRARY,
            engineio_logger=_LIBRARY,
        )
        self._server.on("connect", self._connected)
        self._server.on("disconnect", self._gone)
        for name, handler in handlers.items():
            self._server.on(name, self._handling(name, handler))
        self._server.on("*", _unknown)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "http" and scope["method"] == "POST":
            try:
                scope, receive = await self._whole(Request(scope, receive))
            except (BodyTooLarge, BodyTooSlow) as error:
                status = 413 if isinstance(error, BodyTooLarge) else 408
                refused = json_answer({"detail": str(error)}, status, {"Connection": "close"})
                await refused(scope, receive, send)
                return
            except ClientDisconnect:
                return
        await self._server.handle_request(scope, receive, send)

    async def _whole(self, request: Request) -> tuple[Scope, Receive]:
        """A polling client's packets, when all are there.

        The library would wait for them for ever, and after too many for ever that the client takes its goodbye.
        """
        is_known = self._server.manager.sid_from_eio_sid(request.query_params.get("sid", ""), "/") is not None
        body = await read_body(request, MESSAGE_BYTES if is_known else CONNECT_CHARS)
        others = [each for each in request.scope["headers"] if each[0] not in (b"content-length", b"transfer-encoding")]
        headers = [*others, (b"content-length", str(len(body)).encode())]

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        return {**request.scope, "headers": headers}, receive

    async def close(self) -> None:
        """Send all clients away. May be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        for socket in tuple(self._sockets.values()):
            await self._server.disconnect(socket.sid)
        await self._server.shutdown()

    async def _connected(self, sid: str, environ: Mapping[str, Any], auth: Json) -> None:
        token = auth.get("token") if isinstance(auth, dict) else None
        if not isinstance(token, str):
            token = ""
        try:
            principal = self._doorkeeper.authenticate(
                f"Bearer {token}" if token else None, address_of(environ["asgi.scope"])
            )
        except Refused as refused:
            raise Refusal(UNAUTHORIZED) from refused
        try:
            give_back = self._admit(principal)
        except Refused as refused:
            raise Refusal(str(refused)) from refused
        link = self._server.eio.sockets[self._server.manager.eio_sid_from_sid(sid, "/")]
        socket = Socket(sid, principal, link)
        socket.give_back = give_back
        socket.cut = lambda: self._send_away(socket)
        socket.forget_key = self._doorkeeper.on_revoked(principal, socket.cut)
        self._sockets[sid] = socket
        self._open.inc()
        self._on_connect(socket)

    async def _gone(self, sid: str, _reason: str) -> None:
        socket = self._sockets.pop(sid, None)
        if socket is not None:
            self._open.dec()
            socket.forget()
            self._on_gone(socket)

    def _send_away(self, socket: Socket) -> None:
        task = asyncio.ensure_future(self._server.disconnect(socket.sid))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _handling(self, name: str, handler: Handler) -> Callable[..., Awaitable[JsonObject]]:
        async def handle(sid: str, *given: Json) -> JsonObject:
            socket = self._sockets.get(sid)
            if socket is None:
                return {"status": "error", "code": "forbidden", "message": UNAUTHORIZED}
            try:
                return await handler(socket, given[0] if given else None)
            except Exception as error:  # an event's root: whatever failed, it is acknowledged
                FAILED.labels(protocol="blade").inc()
                log.error("event failed", event_name=name, exc_info=error)
                told = {"code": "internal", "message": "The server failed"}
                socket.emit("system:error", told)
                return {"status": "error", **told}

        return handle
