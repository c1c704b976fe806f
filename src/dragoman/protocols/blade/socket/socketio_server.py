"""python-socketio's server, hardened: what clients without a key, and clients that send anything, can make it do."""

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import msgspec
import socketio  # type: ignore[import-untyped]  # the library is not annotated
from socketio.packet import ACK, EVENT  # type: ignore[import-untyped]  # see above
from starlette.types import Scope

from dragoman.core.content import Json, JsonObject
from dragoman.core.refusals import LimitExceeded
from dragoman.engine.background_tasks import BackgroundTasks
from dragoman.engine.services.keys import client_network
from dragoman.protocols.blade.socket.client_socket import (
    DRAIN_CHECK_INTERVAL_S,
    SLOW_QUEUE_EVENTS,
    EngineIOConnection,
    PacketQueue,
    do_nothing,
)
from dragoman.protocols.blade.socket.unauthenticated import UnauthenticatedConnections
from dragoman.protocols.kit.app import address_of
from dragoman.protocols.kit.connection import ABORT_EXTENSION
from dragoman.protocols.kit.decoding import MAX_VALUES, check_number_of_values, replace_lone_surrogates

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_BINARY_PARTS = 16
"""The binary messages that an event may have; together they are limited as one message is."""
MAX_CONNECT_PACKET_CHARS = 16 * 1024
"""The limit for packets of clients that have not shown a key yet."""
KEPT_HEADERS = frozenset({b"x-request-id"})
"""The headers of a handshake that are kept with its connection."""
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
_EVENT_PREFIX = re.compile(r"2([0-9]{1,15})?\[")
"""The beginning of an event, with the number of its acknowledgement."""
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


async def acknowledge_unknown_event(name: str, *_: Json) -> JsonObject:
    """Acknowledge an unknown event, so that no client waits for it."""
    return {"status": "error", "code": "bad_request", "message": f"there is no event {name[:80]!r}"}


class HardenedAsyncServer(socketio.AsyncServer):  # type: ignore[misc]  # the library is not annotated
    """The library's server, hardened: connections without a key get little time and room, clients cannot call the
    library's own handlers, and malformed events are acknowledged too.
    """

    def __init__(self, *, unauthenticated_per_address: int, connect_timeout_s: float) -> None:
        super().__init__(
            async_mode="asgi",
            async_handlers=False,  # "Events of one socket are handled strictly one after the other" (section 6)
            json=_Json,
            cors_allowed_origins=[],  # SecurityMiddleware checks Origin and writes the headers
            max_http_buffer_size=MAX_MESSAGE_BYTES,
            logger=_LIBRARY_LOG,
            engineio_logger=_LIBRARY_LOG,
        )
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
        self._aborts[eio_sid] = scope.get("extensions", {}).get(ABORT_EXTENSION, do_nothing)
        kept = {
            "client": scope.get("client"),
            "headers": [each for each in scope["headers"] if each[0] in KEPT_HEADERS],
        }
        await super()._handle_eio_connect(eio_sid, {"asgi.scope": kept})
        self.eio.sockets[eio_sid].last_ping = 0.0  # no ping yet: its task would keep a closed connection for 25 s
        self._expect_key(eio_sid)

    async def _handle_connect(self, eio_sid: str, namespace: str | None, data: Json) -> None:
        await super()._handle_connect(eio_sid, namespace, data)
        connection: EngineIOConnection | None = self.eio.sockets.get(eio_sid)
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
            self._aborts[eio_sid] = scope.get("extensions", {}).get(ABORT_EXTENSION, do_nothing)

    def abort(self, eio_sid: str) -> None:
        """Close a connection at once, and drop what is queued."""
        connection: EngineIOConnection | None = self.eio.sockets.get(eio_sid)
        if connection is None:
            return
        connection.queue.clear()
        self._aborts.get(eio_sid, do_nothing)()
        self._tasks.start(self._close(eio_sid, connection), "close a socket")

    def _expect_key(self, eio_sid: str | None) -> None:
        """Count an open connection as one without a key."""
        connection: EngineIOConnection | None = self.eio.sockets.get(eio_sid)
        if eio_sid is None or connection is None or connection.closing or connection.closed:
            return
        if self.manager.sid_from_eio_sid(eio_sid, "/") is None:
            self._unauthenticated.add(eio_sid, client_network(address_of(self.environ[eio_sid]["asgi.scope"])))

    async def _wait_for_reader(self, eio_sid: str) -> None:
        """Wait until a client has read the answers to its last events. No more is read from it meanwhile."""
        connection: EngineIOConnection | None = self.eio.sockets.get(eio_sid)
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
            await self._acknowledge(eio_sid, number, await acknowledge_unknown_event(name))
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

    async def _close(self, eio_sid: str, connection: EngineIOConnection) -> None:
        await connection.close(wait=False, abort=True)
        self.eio.sockets.pop(eio_sid, None)  # the library forgets it only after some time
