"""The Socket.IO server as an ASGI application: who connects, and what handles an event. It knows nothing of Blade."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from socketio.exceptions import ConnectionRefusedError as Refusal  # type: ignore[import-untyped]  # not annotated
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from dragoman.core.audit import ACTOR
from dragoman.core.content import Json, JsonObject
from dragoman.core.principal import HOPS, HOPS_HEADER, parse_hops
from dragoman.core.refusals import LimitReached, Refused, Unavailable
from dragoman.engine.background_tasks import BackgroundTasks
from dragoman.engine.instrumentation.metrics import STREAMS_OPEN
from dragoman.protocols.blade.errors import ERROR_TABLE, InvalidPacket
from dragoman.protocols.blade.rest.endpoints import write_error
from dragoman.protocols.blade.socket.client_socket import Socket
from dragoman.protocols.blade.socket.socketio_server import (
    DETACHED_EVENTS,
    MAX_CONNECT_PACKET_CHARS,
    MAX_MESSAGE_BYTES,
    HardenedAsyncServer,
    acknowledge_unknown_event,
)
from dragoman.protocols.blade.socket.unauthenticated import CONNECT_TIMEOUT_S
from dragoman.protocols.kit.access import AccessControl
from dragoman.protocols.kit.app import actor_of, address_of
from dragoman.protocols.kit.body import header, read_body, release_body
from dragoman.protocols.kit.errors import RequestError

UNAUTHORIZED = "Unauthorized"
INVALID_PACKET_CODE = 1002  # protocol error
PACKET_TYPES = frozenset("0123456b")
"""The first characters of Engine.IO's packets, from `open` to `noop`, and of binary data as text."""
UPGRADE_PACKET = "5"
"""What ends the upgrade from polling to a WebSocket. The library answers each, without a limit."""


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
        self._server = HardenedAsyncServer(
            unauthenticated_per_address=unauthenticated_per_address,
            connect_timeout_s=connect_timeout_s,
        )
        self._server.on("connect", self._handle_connect)
        self._server.on("disconnect", self._handle_disconnect)
        for name, handler in handlers.items():
            self._server.on(name, self._with_socket(handler, waits=name not in DETACHED_EVENTS))
        self._server.on("*", acknowledge_unknown_event)

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
