"""WebSocket connections: uvicorn's, within the memory budget of requests, and quiet about invalid text.

Imported only where the package `websockets` is installed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from dragoman.core.refusals import LimitReached
from dragoman.engine.services.limits import MemoryBudget
from dragoman.protocols.kit.connection import ABORT_EXTENSION

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
    from websockets.frames import Frame
    from websockets.http11 import Request

MAX_FRAMES_PER_TURN = 100
"""After so many frames the others have their turn: a frame costs some 15 µs, and one read may bring 40,000."""
MAX_PARSED_BYTES = 1024
"""How much is parsed at once: up to 170 frames."""
TURN_INTERVAL_S = 0.002
"""Time between two turns, in which the requests of others pass several iterations of the event loop."""
INVALID_TEXT = 1007
TRY_AGAIN_LATER = 1013

log = structlog.get_logger(__name__)


class ParseTurns:
    """Lets the connections that have more to parse continue one at a time, however many there are."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, parse: Callable[[], None]) -> None:
        """Call `parse` when its turn comes."""
        self._waiting.append(parse)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_later(TURN_INTERVAL_S, self._run)

    def _run(self) -> None:
        parse = self._waiting[0]
        try:
            parse()
        finally:
            self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_later(TURN_INTERVAL_S, self._run)


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket. What has arrived and the app has not taken yet counts as memory of requests."""

    def __init__(self, requests: MemoryBudget, turns: ParseTurns, **options: Any) -> None:  # noqa: ANN401  # uvicorn's own
        super().__init__(**options)
        self._memory = requests.open()
        self._turns = turns
        self._unparsed = b""
        """What arrived and is parsed in a later turn, or after the app has taken the messages before."""
        self._pong = b""
        """The answer to the newest ping, while the client does not read."""
        self._frames_after_close = 0

    def data_received(self, data: bytes) -> None:
        """Count and parse what arrived. Without memory for it, the connection is closed."""
        if self._ignores_client:
            return
        try:
            self._memory.grow(len(data))
        except LimitReached as refused:
            self._close(TRY_AGAIN_LATER, str(refused))
            return
        is_scheduled = bool(self._unparsed)
        self._unparsed += data
        if is_scheduled:
            self.transport.pause_reading()  # uvicorn reads on after the app's `close`
        else:
            self._parse()

    def _parse(self) -> None:
        """Parse some of what arrived, and no more as long as the app has messages to take."""
        data, frames = memoryview(self._unparsed), 0
        while data and frames < MAX_FRAMES_PER_TURN and not (self.read_paused or self._ignores_client):
            self.conn.receive_data(bytes(data[:MAX_PARSED_BYTES]))
            data = data[MAX_PARSED_BYTES:]
            frames += len(self.conn.events)
            if self.close_sent:
                self._frames_after_close += len(self.conn.events)
            if self.conn.parser_exc is not None:
                self.handle_parser_exception()
            else:
                self.handle_events()
        self._unparsed = b"" if self._ignores_client else bytes(data)
        if self._ignores_client:
            self._memory.release()
        if self._unparsed:
            self.transport.pause_reading()
            if not self.read_paused:
                self._turns.add(self._parse)
        elif not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    @property
    def _ignores_client(self) -> bool:
        """Whether what the client sends is dropped: it is cut off, or goes on sending long after the server's close."""
        return self.transport.is_closing() or self._frames_after_close > MAX_FRAMES_PER_TURN

    def handle_connect(self, event: "Request") -> None:
        """Start the app, which can cut the connection off by `ABORT_EXTENSION`."""
        super().handle_connect(event)
        if not self.transport.is_closing():
            self.scope["extensions"][ABORT_EXTENSION] = self.transport.abort  # type: ignore[assignment]  # as above

    def send_receive_event_to_app(self) -> None:
        """Pass a whole message on, unless it is invalid text."""
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError as error:
                log.warning("closed a WebSocket that sent malformed UTF-8", client=self.client, reason=error.reason)
                self.frames = []
                self._close(INVALID_TEXT, "")
                return
        super().send_receive_event_to_app()

    def handle_ping(self) -> None:
        """Answer a ping; the newest one only, if the client does not read its answers."""
        self._forget_control_frame()
        if self.writable.is_set():
            super().handle_ping()
        else:
            self._pong = b"".join(self.conn.data_to_send())

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        pong, self._pong = self._pong, b""
        if pong and not self.transport.is_closing():
            self.transport.write(pong)

    def handle_pong(self, event: "Frame") -> None:
        """Note a pong."""
        self._forget_control_frame()
        super().handle_pong(event)

    async def receive(self) -> "ASGIReceiveEvent":
        """Return the next message to the app, which has decoded the one before."""
        if self.queue.empty():
            self._memory.release()
        message = await super().receive()
        if self._unparsed and not self.read_paused:
            self.transport.pause_reading()
            self._turns.add(self._parse)
        return message

    async def send(self, message: "ASGISendEvent") -> None:
        """Send the app's message. A refusal ends the handshake, too: uvicorn would log it as an error of the app."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the memory."""
        self._memory.release()
        super().connection_lost(exc)

    def _forget_control_frame(self) -> None:
        if not self.frames and self.queue.empty():
            self._memory.release()

    def _close(self, code: int, reason: str) -> None:
        if self.close_sent:
            self.transport.close()
            return
        self.conn.send_close(code, reason)
        self.handle_parser_exception()
