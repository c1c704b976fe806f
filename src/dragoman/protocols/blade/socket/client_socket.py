"""One client's Socket.IO connection, and the packets that wait for it.

An event for many sockets is encoded once and put straight into their queues, because python-socketio's own way of
sending takes some 35 µs for each socket.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec
from engineio import packet  # type: ignore[import-untyped]  # the library is not annotated

from dragoman.core.audit import Actor
from dragoman.core.content import JsonObject
from dragoman.core.ids import SessionId
from dragoman.core.principal import Principal
from dragoman.engine.services.unread_responses import UnreadResponses

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
MAX_REMEMBERED_CHATS = 1000
"""How many of the chats that a socket started are remembered."""
_ENCODER = msgspec.json.Encoder()


def do_nothing() -> None:
    """Stand for what a socket does once it is connected."""


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


class EngineIOConnection(Protocol):
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
        connection: EngineIOConnection,
        unread_responses: UnreadResponses,
    ) -> None:
        self.sid = sid
        self.principal = principal
        self.actor = actor
        self.is_disconnected = False
        self.chat_run_ids: deque[str] = deque(maxlen=MAX_REMEMBERED_CHATS)
        """The newest chats that this socket started."""
        self.on_drained: dict[SessionId, Callable[[], None]] = {}
        """What to call when a slow socket has caught up, once for each session that it follows."""
        self.stop_watching_key: Callable[[], None] = do_nothing
        self.disconnect: Callable[[], None] = do_nothing
        self.abort: Callable[[], None] = do_nothing
        """Closes the connection at once, and drops what is queued."""
        self.release_slot: Callable[[], None] = do_nothing
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
        self.stop_watching_key = self.disconnect = self.abort = self.release_slot = do_nothing  # breaks their cycles
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
        drained, self.on_drained = self.on_drained, {}
        for callback in drained.values():
            callback()


def event_packet(name: str, payload: bytes) -> packet.Packet:
    """Return an event of the default namespace as a packet, which can be sent to many sockets."""
    return packet.Packet(packet.MESSAGE, data=f'2["{name}",{payload.decode()}]')
