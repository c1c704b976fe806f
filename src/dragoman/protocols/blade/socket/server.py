"""The Socket.IO server: who connects, what arrives, and what is sent. It knows none of Blade's objects.

python-socketio implements the protocol. An event for many sockets is encoded once and put straight into their queues,
because the library's own way of sending takes some 35 µs for each socket.
"""

import asyncio
import logging
import re
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol
from urllib.parse import parse_qs

import msgspec
import socketio  # type: ignore[import-untyped]  # the library is not annotated
import structlog
from engineio import packet  # type: ignore[import-untyped]  # nor is this one
from socketio.exceptions import ConnectionRefusedError as Refusal  # type: ignore[import-untyped]  # see above
from socketio.packet import ACK, EVENT  # type: ignore[import-untyped]  # see above
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from dragoman.core.audit import ACTOR, Actor
from dragoman.core.content import Json, JsonObject
from dragoman.core.principal import HOPS, HOPS_HEADER, Principal, parse_hops
from dragoman.core.refusals import LimitExceeded, LimitReached, Refused, Unavailable
from dragoman.engine.background_tasks import BackgroundTasks
from dragoman.engine.instrumentation.metrics import STREAMS_OPEN
from dragoman.engine.services.keys import client_network
from dragoman.engine.services.unread_responses import UnreadResponses
from dragoman.protocols.blade.errors import ERROR_TABLE, InvalidPacket
from dragoman.protocols.blade.rest.endpoints import write_error
from dragoman.protocols.blade.socket.unauthenticated import CONNECT_TIMEOUT_S, UnauthenticatedConnections
from dragoman.protocols.kit.access import AccessControl
from dragoman.protocols.kit.app import actor_of, address_of
from dragoman.protocols.kit.body import header, read_body, release_body
from dragoman.protocols.kit.connection import ABORT_EXTENSION
from dragoman.protocols.kit.decoding import MAX_VALUES, check_number_of_values, replace_lone_surrogates
from dragoman.protocols.kit.errors import RequestError

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
SLOW_QUEUE_BYTES = 8 * 1024 * 1024
SLOW_QUEUE_EVENTS = 2000
"""The queue from which on a socket counts as slow and gets no patches (specification, section 9, rule 6)."""
SENT_AT_ONCE_BYTES = 64 * 1024
COUNTED_QUEUE_BYTES = 256 * 1024
"""The queue from which on it counts as an unread response."""
DISCONNECT_QUEUE_BYTES = 8 * SLOW_QUEUE_BYTES
"""The queue from which on a slow socket is disconnected."""
DRAIN_CHECK_INTERVAL_S = 0.05
"""How often to check whether a slow socket has caught up."""
MAX_BINARY_PARTS = 16
"""The binary messages that an event may have; together they are limited as one message is."""
MAX_CONNECT_PACKET_CHARS = 16 * 1024
"""The limit for packets of clients that have not shown a key yet."""
MAX_REMEMBERED_CHATS = 1000
"""How many of the chats that a socket started are remembered."""
KEPT_HEADERS = frozenset({b"x-request-id"})
"""The headers of a handshake that are kept with its connection."""
UNAUTHORIZED = "Unauthorized"
RESERVED_EVENTS = frozenset({"connect", "disconnect", "connect_error", "*"})
"""The names of the library's own handlers, which it would also call for clients' events."""
DETACHED_EVENTS = frozenset({"chat:stop"})
"""Events whose handling the socket's next events do not wait for."""
MAX_DETACHED_EVENTS = 16
"""Events of a socket that are handled beside the next ones. Further ones are handled in their turn."""
wants_acknowledgement: ContextVar[bool] = ContextVar("wants_acknowledgement")
"""Whether the client asked for an acknowledgement of the event that is handled."""
INVALID_JSON_ERROR: JsonObject = {"code": "bad_request", "message": "the event is not JSON"}
MISSING_PART_ERROR: JsonObject = {"code": "bad_request", "message": "the event came without its binary part"}
BINARY_PARTS_ERROR: JsonObject = {"code": "bad_request", "message": "the event has too many or too large binary parts"}
INVALID_PACKET_CODE = 1002  # protocol error
PACKET_TYPES = frozenset("0123456b")
"""The first characters of Engine.IO's packets, from `open` to `noop`, and of binary data as text."""
UPGRADE_PACKET = "5"
"""What ends the upgrade from polling to a WebSocket. The library answers each, without a limit."""
_EVENT_PREFIX = re.compile(r"2([0-9]{1,15})?\[")
"""The beginning of an event, with the number of its acknowledgement."""

log = structlog.get_logger(__name__)
_LIBRARY_LOG = logging.getLogger(f"{__name__}.library")
"""The library's log, which would otherwise write to standard error. Only exceptions are logged, without ValueErrors,
such as malformed UTF-8, because those are a client's fault.
"""
_LIBRARY_LOG.addFilter(lambda record: record.exc_info is not None and not isinstance(record.exc_info[1], ValueError))
_ENCODER = msgspec.json.Encoder()


class _Json:
    """msgspec with the interface of the module `json`, for the library."""

    JSONDecodeError = msgspec.DecodeError

    @staticmethod
    def dumps(value: Json, **_: Json) -> str:
        return _ENCODER.encode(value).decode()

    @staticmethod
    def loads(text: str, **_: Json) -> Json:
        try:
            if len(text) > MAX_VALUES:
                check_number_of_values(text.encode(errors="replace"))
            try:
                return msgspec.json.decode(text)
            except msgspec.DecodeError:
                return msgspec.json.decode(replace_lone_surrogates(text.encode()))
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        except LimitExceeded as error:
            raise ValueError(str(error)) from error


def _do_nothing() -> None:
    pass


class PacketQueue(asyncio.Queue["packet.Packet | None"]):
    """The packets that wait for a client.

    The library takes as many as it can get, and holds them until all are sent. This queue hands out some at a time, so
    that its size says how much the client has not read.
    """

    on_taken: Callable[[], object] | None = None
    """Called when a packet was taken."""
    _taken_bytes = 0

    async def get(self) -> "packet.Packet | None":
        """Wait for the first packet that is sent next."""
        while True:
            self._taken_bytes = 0
            with suppress(asyncio.QueueEmpty):  # somebody else was faster
                return await super().get()

    def get_nowait(self) -> "packet.Packet | None":
        """Return a packet that is sent together with the first one. Raises QueueEmpty if they are enough."""
        if self._taken_bytes > SENT_AT_ONCE_BYTES:
            raise asyncio.QueueEmpty
        taken = super().get_nowait()
        self._taken_bytes += len(taken.data) if taken is not None and isinstance(taken.data, str | bytes) else 0
        if self.on_taken is not None:
            self.on_taken()
        return taken

    def clear(self) -> None:
        """Drop everything."""
        while not self.empty():
            self._taken_bytes = 0
            self.get_nowait()


class _EngineIOConnection(Protocol):
    """The part of an Engine.IO connection that is used here."""

    queue: PacketQueue
    closed: bool
    closing: bool
    last_ping: float | None

    def schedule_ping(self) -> None:
        """Ping the client after an interval, unless the last ping is 0 (none yet) or None (one is scheduled)."""

    async def close(self, wait: bool = True, abort: bool = False) -> None:
        """Close it."""


class Socket:
    """One client's connection."""

    def __init__(
        self,
        sid: str,
        principal: Principal,
        actor: Actor,
        connection: _EngineIOConnection,
        unread_responses: UnreadResponses,
    ) -> None:
        self.sid = sid
        self.principal = principal
        self.actor = actor
        self.is_disconnected = False
        self.chat_run_ids: deque[str] = deque(maxlen=MAX_REMEMBERED_CHATS)
        """The newest chats that this socket started."""
        self.on_drained: list[Callable[[], None]] = []
        """Callbacks for when a slow socket has caught up; each is called once."""
        self.stop_watching_key: Callable[[], None] = _do_nothing
        self.disconnect: Callable[[], None] = _do_nothing
        self.abort: Callable[[], None] = _do_nothing
        """Closes the connection at once, and drops what is queued."""
        self.release_slot: Callable[[], None] = _do_nothing
        """Stops counting the connection against its user's limit."""
        self._connection = connection
        self._unread_responses = unread_responses
        self._queued_sizes: deque[int] = deque()
        self._queued_bytes = 0
        self._is_counted = False
        """Whether the queue counts as an unread response."""
        self._drain_check: asyncio.TimerHandle | None = None
        self._event_arrived = asyncio.Event()

    def on_event(self) -> None:
        """Note that an event arrived."""
        self._event_arrived.set()
        self._event_arrived = asyncio.Event()

    async def wait_for_event(self, timeout_s: float) -> None:
        """Wait until the next event arrives, for a limited time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event_arrived.wait(), timeout_s)

    @property
    def is_slow(self) -> bool:
        """Whether too much is queued. Once slow, a socket stays slow until its queue is empty."""
        if self._drain_check is not None:
            return True
        if self._count_queued_bytes() <= SLOW_QUEUE_BYTES and len(self._queued_sizes) <= SLOW_QUEUE_EVENTS:
            return False
        self._drain_check = asyncio.get_running_loop().call_later(DRAIN_CHECK_INTERVAL_S, self._check_drained)
        return True

    def send(self, event: packet.Packet) -> None:
        """Queue a packet made by `event_packet`."""
        if self.is_disconnected or self._connection.closed or self._connection.closing:
            return
        self._connection.queue.put_nowait(event)
        self._queued_sizes.append(len(event.data))
        self._queued_bytes += len(event.data)
        if self._queued_bytes > COUNTED_QUEUE_BYTES and self._count_queued_bytes() > COUNTED_QUEUE_BYTES:
            self._is_counted, self._connection.queue.on_taken = True, self._count_queued_bytes
            self._unread_responses.add(self, self.principal.user, self._queued_bytes, self.abort)
        if self._queued_bytes > DISCONNECT_QUEUE_BYTES and self._count_queued_bytes() > DISCONNECT_QUEUE_BYTES:
            self.is_disconnected = True
            self.disconnect()

    async def until_read(self) -> None:
        """Wait until a slow socket has caught up."""
        while self.is_slow and not self.is_disconnected:  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(DRAIN_CHECK_INTERVAL_S)

    def _count_queued_bytes(self) -> int:
        length = self._connection.queue.qsize()
        while len(self._queued_sizes) > length:
            self._queued_bytes -= self._queued_sizes.popleft()
        if self._is_counted and self._queued_bytes <= COUNTED_QUEUE_BYTES:
            self._is_counted, self._connection.queue.on_taken = False, None
            self._unread_responses.discard(self)
        return self._queued_bytes

    def emit(self, name: str, payload: JsonObject) -> None:
        """Send an event to this socket alone."""
        self.send(event_packet(name, _ENCODER.encode(payload)))

    def mark_disconnected(self) -> None:
        """Release everything that belongs to the socket, and end a waiting poll, which the library would leave open."""
        self.is_disconnected = True
        self.stop_watching_key()
        self.release_slot()
        self._unread_responses.discard(self)
        self._connection.queue.on_taken = None
        self.stop_watching_key = self.disconnect = self.abort = self.release_slot = _do_nothing  # breaks their cycles
        self._connection.queue.put_nowait(None)
        if self._drain_check is not None:
            self._drain_check.cancel()

    def _check_drained(self) -> None:
        if self._connection.closed:
            return
        if self._connection.queue.qsize():
            self._drain_check = asyncio.get_running_loop().call_later(DRAIN_CHECK_INTERVAL_S, self._check_drained)
            return
        self._drain_check = None
        self._count_queued_bytes()
        drained, self.on_drained = self.on_drained, []
        for callback in drained:
            callback()


def event_packet(name: str, payload: bytes) -> packet.Packet:
    """Return an event of the default namespace as a packet, which can be sent to many sockets."""
    return packet.Packet(packet.MESSAGE, data=f'2["{name}",{payload.decode()}]')


async def _acknowledge_unknown_event(name: str, *_: Json) -> JsonObject:
    """Acknowledge an unknown event, so that no client waits for it."""
    return {"status": "error", "code": "bad_request", "message": f"there is no event {name[:80]!r}"}


class _HardenedAsyncServer(socketio.AsyncServer):  # type: ignore[misc]  # the library is not annotated
    """The library's server, hardened: connections without a key get little time and room, clients cannot call the
    library's own handlers, and malformed events are acknowledged too.
    """

    def __init__(self, *, unauthenticated_per_address: int, connect_timeout_s: float, **options: object) -> None:
        super().__init__(**options)
        self.eio.create_queue = PacketQueue
        self._tasks = BackgroundTasks()
        self._detached_events: Counter[str] = Counter()
        self._aborts: dict[str, Callable[[], None]] = {}
        """What cuts off the WebSocket of each connection."""
        self._unauthenticated = UnauthenticatedConnections(
            self._close_if_unauthenticated, per_address=unauthenticated_per_address, timeout_s=connect_timeout_s
        )

    async def _handle_eio_connect(self, eio_sid: str, environ: Mapping[str, Any]) -> None:
        scope = environ["asgi.scope"]
        # the library keeps it as long as the connection: without the request, whose head may have 64 KiB
        self._aborts[eio_sid] = scope.get("extensions", {}).get(ABORT_EXTENSION, _do_nothing)
        kept = {
            "client": scope.get("client"),
            "headers": [each for each in scope["headers"] if each[0] in KEPT_HEADERS],
        }
        await super()._handle_eio_connect(eio_sid, {"asgi.scope": kept})
        self.eio.sockets[eio_sid].last_ping = 0.0  # no ping yet: its task would keep a closed connection for 25 s
        self._expect_key(eio_sid)

    async def _handle_connect(self, eio_sid: str, namespace: str | None, data: Json) -> None:
        await super()._handle_connect(eio_sid, namespace, data)
        connection: _EngineIOConnection | None = self.eio.sockets.get(eio_sid)
        if connection is None or self.manager.sid_from_eio_sid(eio_sid, "/") is None:
            return
        self._unauthenticated.discard(eio_sid)
        if connection.last_ping == 0.0:  # not for a client that connects once more
            connection.last_ping = time.time()
            connection.schedule_ping()

    async def _handle_disconnect(self, eio_sid: str, namespace: str | None, reason: str | None = None) -> None:
        await super()._handle_disconnect(eio_sid, namespace, reason)
        self._expect_key(eio_sid)

    async def disconnect(self, sid: str, namespace: str | None = None, ignore_queue: bool = False) -> None:
        """Disconnect a client, whose connection stays open for some time, as after its own packet `disconnect`."""
        eio_sid = self.manager.eio_sid_from_sid(sid, namespace or "/")
        await super().disconnect(sid, namespace, ignore_queue)
        self._expect_key(eio_sid)

    async def _handle_eio_disconnect(self, eio_sid: str, reason: str) -> None:
        await super()._handle_eio_disconnect(eio_sid, reason)
        self._unauthenticated.discard(eio_sid)
        self._aborts.pop(eio_sid, None)

    def on_upgrade(self, eio_sid: str, scope: Scope) -> None:
        """Note the WebSocket to which a polling client upgrades."""
        if eio_sid in self._aborts:
            self._aborts[eio_sid] = scope.get("extensions", {}).get(ABORT_EXTENSION, _do_nothing)

    def abort(self, eio_sid: str) -> None:
        """Close a connection at once, and drop what is queued."""
        connection: _EngineIOConnection | None = self.eio.sockets.get(eio_sid)
        if connection is None:
            return
        connection.queue.clear()
        self._aborts.get(eio_sid, _do_nothing)()
        self._tasks.start(self._close(eio_sid, connection), "close a socket")

    def _expect_key(self, eio_sid: str | None) -> None:
        """Count an open connection as one without a key."""
        connection: _EngineIOConnection | None = self.eio.sockets.get(eio_sid)
        if eio_sid is None or connection is None or connection.closing or connection.closed:
            return
        if self.manager.sid_from_eio_sid(eio_sid, "/") is None:
            self._unauthenticated.add(eio_sid, client_network(address_of(self.environ[eio_sid]["asgi.scope"])))

    async def _wait_for_reader(self, eio_sid: str) -> None:
        """Wait until a client has read the answers to its last events. No more is read from it meanwhile."""
        connection: _EngineIOConnection | None = self.eio.sockets.get(eio_sid)
        if connection is None:
            return
        while connection.queue.qsize() > SLOW_QUEUE_EVENTS and not connection.closed:  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(DRAIN_CHECK_INTERVAL_S)

    async def _handle_eio_message(self, eio_sid: str, data: str | bytes) -> None:
        await self._wait_for_reader(eio_sid)
        if len(data) > MAX_CONNECT_PACKET_CHARS and self.manager.sid_from_eio_sid(eio_sid, "/") is None:
            self._close_if_unauthenticated(eio_sid)
            return
        incomplete = self._binary_packet.get(eio_sid)
        if isinstance(data, str):
            if incomplete is not None:
                del self._binary_packet[eio_sid]
                await self._reject_event(eio_sid, incomplete.id, MISSING_PART_ERROR)
        elif incomplete is None:
            return
        elif (
            incomplete.attachment_count > MAX_BINARY_PARTS
            or sum(map(len, incomplete.attachments)) + len(data) > MAX_MESSAGE_BYTES
        ):
            del self._binary_packet[eio_sid]  # the library would keep the parts of any number of messages
            await self._reject_event(eio_sid, incomplete.id, BINARY_PARTS_ERROR)
            return
        try:
            await super()._handle_eio_message(eio_sid, data)
        except (msgspec.DecodeError, ValueError):
            event = _EVENT_PREFIX.match(data) if isinstance(data, str) else None
            if event is not None:
                await self._reject_event(eio_sid, int(event[1]) if event[1] else None, INVALID_JSON_ERROR)

    async def _handle_event(self, eio_sid: str, namespace: str | None, number: int | None, data: Json) -> None:
        name = data[0] if isinstance(data, list) and data and isinstance(data[0], str) else None
        wants_acknowledgement.set(number is not None)
        if name in RESERVED_EVENTS:
            await self._acknowledge(eio_sid, number, await _acknowledge_unknown_event(name))
        elif name in DETACHED_EVENTS and self._detached_events[eio_sid] < MAX_DETACHED_EVENTS:
            self._detached_events[eio_sid] += 1
            self._tasks.start(self._handle_detached_event(eio_sid, namespace, number, data), f"event {name}")
            await asyncio.sleep(0)  # the handler begins before those of the next events
        elif name is not None:
            await super()._handle_event(eio_sid, namespace, number, data)

    async def _handle_detached_event(self, eio_sid: str, namespace: str | None, number: int | None, data: Json) -> None:
        try:
            await super()._handle_event(eio_sid, namespace, number, data)
        finally:
            self._detached_events[eio_sid] -= 1
            if not self._detached_events[eio_sid]:
                del self._detached_events[eio_sid]

    async def _reject_event(self, eio_sid: str, number: int | None, error: JsonObject) -> None:
        await self._send_packet(eio_sid, self.packet_class(EVENT, data=["system:error", error]))
        await self._acknowledge(eio_sid, number, {"status": "error", **error})

    async def _acknowledge(self, eio_sid: str, number: int | None, payload: JsonObject) -> None:
        if number is not None:
            await self._send_packet(eio_sid, self.packet_class(ACK, data=[payload], id=number))

    def _close_if_unauthenticated(self, eio_sid: str) -> None:
        self._unauthenticated.discard(eio_sid)
        connection = self.eio.sockets.get(eio_sid)
        if connection is not None and self.manager.sid_from_eio_sid(eio_sid, "/") is None:
            connection.queue.put_nowait(None)  # closes the connection, even if its client does not cooperate
            self._tasks.start(self._close(eio_sid, connection), "close a socket")

    async def _close(self, eio_sid: str, connection: _EngineIOConnection) -> None:
        await connection.close(wait=False, abort=True)
        self.eio.sockets.pop(eio_sid, None)  # the library forgets it only after some time


def _ending_at_invalid_packet(receive: Receive) -> Receive:
    """Wrap a WebSocket's `receive` so that a frame that is not an Engine.IO packet ends the connection.

    The library would log a traceback for it. A second end of the upgrade is no packet either.
    """
    allowed = PACKET_TYPES

    async def receive_packet() -> Message:
        nonlocal allowed
        message = await receive()
        text = message.get("text") if message["type"] == "websocket.receive" else None
        if text is not None and text[:1] not in allowed:
            return {"type": "websocket.disconnect", "code": INVALID_PACKET_CODE}
        if text is not None and text[:1] == UPGRADE_PACKET:
            allowed = PACKET_TYPES - {UPGRADE_PACKET}
        return message

    return receive_packet


Handler = Callable[[Socket, Json], Awaitable[JsonObject]]
"""Handles an event, and returns its acknowledgement."""


class SocketServer:
    """The Socket.IO server, as an ASGI application."""

    def __init__(
        self,
        access: AccessControl,
        handlers: Mapping[str, Handler],
        *,
        on_connect: Callable[[Socket], None],
        on_disconnect: Callable[[Socket], None],
        unauthenticated_per_address: int,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._access = access
        self._sockets: dict[str, Socket] = {}
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._disconnect_tasks = BackgroundTasks()
        self._is_closed = False
        self._open_streams = STREAMS_OPEN.labels(protocol="blade")
        self._server = _HardenedAsyncServer(
            unauthenticated_per_address=unauthenticated_per_address,
            connect_timeout_s=connect_timeout_s,
            async_mode="asgi",
            async_handlers=False,  # "Events of one socket are handled strictly one after the other" (section 6)
            json=_Json,
            cors_allowed_origins=[],  # SecurityMiddleware checks Origin and writes the headers
            max_http_buffer_size=MAX_MESSAGE_BYTES,
            logger=_LIBRARY_LOG,
            engineio_logger=_LIBRARY_LOG,
        )
        self._server.on("connect", self._handle_connect)
        self._server.on("disconnect", self._handle_disconnect)
        for name, handler in handlers.items():
            self._server.on(name, self._with_socket(handler, waits=name not in DETACHED_EVENTS))
        self._server.on("*", _acknowledge_unknown_event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a WebSocket."""
        scope["connection_memory"] = self._access.memory
        HOPS.set(parse_hops(header(scope, HOPS_HEADER.encode())))
        try:
            if scope["type"] == "websocket":
                receive = _ending_at_invalid_packet(receive)
                self._server.on_upgrade(parse_qs(scope["query_string"]).get(b"sid", [b""])[0].decode("latin-1"), scope)
            else:
                self._forget_closed(Request(scope).query_params.get("sid", ""))
            if scope["type"] == "http" and scope["method"] == "POST":
                scope, receive = await self._buffer_body(Request(scope, receive))
            await self._server.handle_request(scope, receive, send)
        except (RequestError, LimitReached) as error:
            await write_error(ERROR_TABLE.to_response(error))(scope, receive, send)
        except ClientDisconnect:
            pass
        finally:
            release_body(scope)

    def _forget_closed(self, eio_sid: str) -> None:
        """Forget a connection that is closed, which the library does from time to time. Until then it fails on it."""
        connection = self._server.eio.sockets.get(eio_sid)
        if connection is not None and connection.closed:
            self._server.eio.sockets.pop(eio_sid)

    async def _buffer_body(self, request: Request) -> tuple[Scope, Receive]:
        """Read a polling client's packets before the library sees them.

        The library itself would wait for them without a limit, and after too many it would wait for the client again.
        """
        is_known = self._server.manager.sid_from_eio_sid(request.query_params.get("sid", ""), "/") is not None
        body = await read_body(request, MAX_MESSAGE_BYTES if is_known else MAX_CONNECT_PACKET_CHARS)
        packets = body.removeprefix(b"d=").split(b"\x1e")
        allowed = PACKET_TYPES - {UPGRADE_PACKET}
        if body and any(each[:1].isascii() and each[:1].decode() not in allowed for each in packets):
            raise InvalidPacket
        headers = [
            each for each in request.scope["headers"] if each[0] not in (b"content-length", b"transfer-encoding")
        ]
        headers.append((b"content-length", str(len(body)).encode()))

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        return {**request.scope, "headers": headers}, receive

    async def close(self) -> None:
        """Close all connections. Can be called again.

        Clients connect again by themselves after a lost connection, but not after Socket.IO's own packet `disconnect`.
        """
        if self._is_closed:
            return
        self._is_closed = True
        for connection in tuple(self._server.eio.sockets.values()):
            await connection.close(wait=False)
        await self._server.shutdown()

    async def _handle_connect(self, sid: str, environ: Mapping[str, Any], auth: Json) -> None:
        token = auth.get("token") if isinstance(auth, dict) else None
        credentials = f"Bearer {token}" if token and isinstance(token, str) else None
        try:
            principal = await self._access.authenticator.authenticate(credentials, address_of(environ["asgi.scope"]))
        except Unavailable as refused:
            raise Refusal(str(refused)) from refused
        except Refused as refused:
            raise Refusal(UNAUTHORIZED) from refused
        try:
            release_slot = self._access.admit_stream(principal)
        except Refused as refused:
            raise Refusal(str(refused)) from refused
        connection = self._server.eio.sockets[self._server.manager.eio_sid_from_sid(sid, "/")]
        actor = actor_of(principal, environ["asgi.scope"])
        socket = Socket(sid, principal, actor, connection, self._access.memory.responses)
        socket.release_slot = release_slot
        socket.disconnect = lambda: self._disconnect(socket)
        socket.abort = partial(self._server.abort, self._server.manager.eio_sid_from_sid(sid, "/"))
        socket.stop_watching_key = self._access.authenticator.on_revoked(principal, socket.disconnect)
        self._sockets[sid] = socket
        self._open_streams.inc()
        self._on_connect(socket)

    async def _handle_disconnect(self, sid: str, _reason: str) -> None:
        socket = self._sockets.pop(sid, None)
        if socket is not None:
            self._open_streams.dec()
            socket.mark_disconnected()
            self._on_disconnect(socket)

    def _disconnect(self, socket: Socket) -> None:
        self._disconnect_tasks.start(self._server.disconnect(socket.sid), "disconnect a socket")

    def _with_socket(self, handler: Handler, *, waits: bool) -> Callable[..., Awaitable[JsonObject]]:
        async def handle(sid: str, *arguments: Json) -> JsonObject:
            socket = self._sockets.get(sid)
            if socket is None:
                return {"status": "error", "code": "forbidden", "message": UNAUTHORIZED}
            socket.on_event()
            if waits:
                await socket.until_read()
            ACTOR.set(socket.actor)
            return await handler(socket, arguments[0] if arguments else None)

        return handle
