"""A client's connection over HTTP/1.1: uvicorn's, with bounded heads, and light enough to stay open by the thousands.

Uvicorn reads requests and keeps the connection; a request and its answer are ours (`Exchange`), for two reasons: an
open stream weighs less, and what is ready may be written to it in a plain call (`Pipe`), where ASGI's `send` has to
be awaited by a task that is woken for it.
"""

import re
from asyncio import Future, TimerHandle, Transport, get_running_loop
from collections.abc import Callable, Iterable
from typing import cast
from urllib.parse import unquote

import httptools
import structlog
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from dragoman.asgi.security import App, Message
from dragoman.protocols.kit.http import PUSH_EXTENSION

MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of a request's line and headers together."""
HEAD_TIMEOUT_S = 30.0
"""Longest time for them to arrive."""
LINGER_TIMEOUT_S = 10.0
MAX_LINGER_BYTES = 64 * 1024 * 1024
"""How long, and how much of, a body is still taken that was refused before its end: to close then would reset the
connection, and so take the answer from a client that reads it when it has sent all."""
_HEADER_CONTROL_CHARACTER = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

log = structlog.get_logger(__name__)


class LightweightEvent:
    """An `asyncio.Event` that weighs nothing while nobody waits."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiters: tuple[Future[None], ...] = ()

    def set(self) -> None:
        """Let who waits go on."""
        self._is_set = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Make the next one wait."""
        self._is_set = False

    async def wait(self) -> None:
        """Wait until it is set."""
        if self._is_set:
            return
        waiter: Future[None] = get_running_loop().create_future()
        self._waiters += (waiter,)
        try:
            await waiter
        finally:
            self._waiters = tuple(each for each in self._waiters if each is not waiter)


class TransportFlowControl(FlowControl):
    """Whether the transport takes more, and gives more."""

    __slots__ = ("_is_writable_event", "_transport", "read_paused", "write_paused")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.read_paused = False
        self.write_paused = False
        self._is_writable_event = LightweightEvent(is_set=True)  # type: ignore[assignment]  # as much of an event as is used


class Connection(HttpToolsProtocol):
    """A connection that bounds how large a request's head may be and how long it may take to come."""

    __slots__ = (
        "_bytes_to_discard",
        "_has_head_bytes",
        "_head_bytes",
        "_head_timer",
        "_idle_since",
        "_idle_timer",
        "_is_in_head",
    )

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # uvicorn's own signature
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self.flow = TransportFlowControl(transport)
        self.pipeline = []  # type: ignore[assignment]  # a deque has room for 64 from the start; hardly anybody pipelines
        self._head_bytes = 0
        self._is_in_head = True
        """Whether the next bytes belong to a head."""
        self._has_head_bytes = False
        """Whether some of that head's have come."""
        self._head_timer: TimerHandle | None = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)
        self._idle_since: float | None = None
        """When the last request was answered, or more of it came after that; none while one is under way."""
        self._bytes_to_discard = 0
        """How much is still taken, and dropped, before the connection is closed."""
        self._idle_timer: TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._stop_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        exchange = cast("Exchange | None", self.cycle)
        super().connection_lost(exc)
        self.cycle = None  # type: ignore[assignment]  # as before its first request; the two held each other
        if exchange is not None and exchange.disconnected and exchange.disconnect_callback is not None:
            exchange.disconnect_callback()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._bytes_to_discard:
            self._bytes_to_discard -= len(data)
            if self._bytes_to_discard <= 0:
                self.transport.close()
                return
        if self._idle_since is not None:  # the rest of a body that was refused before its end, or a head
            self._idle_since = self.loop.time()
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")
        if self._has_head_bytes and self._head_timer is None:  # most heads come whole, and need none
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def on_message_begin(self) -> None:
        """See `httptools`."""
        super().on_message_begin()
        self._has_head_bytes = True

    def on_headers_complete(self) -> None:
        """See `httptools`: the request begins, or waits for the ones before it on the same connection."""
        self._stop_timer()
        self._is_in_head = self._has_head_bytes = False
        self._idle_since = None
        if self._head_bytes > MAX_HEAD_BYTES:  # or it is the body, of which a part came along
            lines = sum(len(name) + len(value) + len(b": \r\n") for name, value in self.headers)
            if len(self.url) + lines > MAX_HEAD_BYTES:
                raise httptools.HttpParserError("the head is too large")
        if self.url[:1] not in (b"/", b"*"):
            raise httptools.HttpParserError("an absolute URL or an authority is for proxies")
        scope, parser = self.scope, self.parser
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = parser.get_http_version()
        if parser.should_upgrade() and self._should_upgrade():
            return
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        before: RequestResponseCycle | None = self.cycle
        exchange = Exchange(self)
        scope["extensions"] = {PUSH_EXTENSION: exchange}  # type: ignore[dict-item]  # uvicorn has extensions of its own in mind
        self.cycle = cycle = cast("RequestResponseCycle", exchange)
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.insert(0, (cycle, self.app))

    def on_message_complete(self) -> None:
        """See `httptools`."""
        if self._bytes_to_discard:
            self.transport.close()
            return
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """See uvicorn: the request that waits is next, else the connection waits for one.

        One timer looks after the silence; to set and cancel one for each request takes as long as its head.
        """
        self.server_state.total_requests += 1
        if self._bytes_to_discard or self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            return
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._check_idle)

    def linger(self) -> None:
        """Close when the client has sent all of what was refused, or soon."""
        self._bytes_to_discard = MAX_LINGER_BYTES
        self.flow.resume_reading()
        self._head_timer = self.loop.call_later(LINGER_TIMEOUT_S, self.transport.close)

    def _check_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None:
            return  # the next answer's end sets it again
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._idle_timer = self.loop.call_later(left, self._check_idle)
        else:
            self.timeout_keep_alive_handler()

    def _should_upgrade(self) -> bool:
        """Whether this opens a WebSocket: by a whole handshake alone. A body after it would never be answered."""
        names = {name for name, _ in self.headers}
        is_whole = b"sec-websocket-key" in names and not names & {b"content-length", b"transfer-encoding"}
        return is_whole and super()._should_upgrade()

    def _unsupported_upgrade_warning(self) -> None:
        """What asks for another protocol is answered in this one, as HTTP has it: nothing to warn of."""

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class Exchange:
    """A request and its answer: ASGI's `receive` and `send`, and a `Pipe` for streams. In place of uvicorn's cycle."""

    __slots__ = (
        "_connection",
        "_expects_continue",
        "_flow",
        "_has_begun",
        "_head",
        "_is_chunked",
        "_is_head",
        "_remaining_bytes",
        "_scope",
        "_transport",
        "body",
        "disconnect_callback",
        "disconnected",
        "keep_alive",
        "message_event",
        "more_body",
        "response_complete",
    )

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._transport = connection.transport
        self._flow = connection.flow
        self._scope: Message = cast("Message", connection.scope)
        self._is_head = self._scope["method"] == "HEAD"
        self._expects_continue = connection.expect_100_continue
        self._has_begun = False
        self._head = b""
        """The answer's head, until it leaves together with the first part of the body."""
        self._is_chunked = False
        self._remaining_bytes: int | None = 0
        """Bytes of the announced body that were not sent yet; none where the connection's end is the body's."""
        self.keep_alive = self._scope["http_version"] != "1.0" and connection.parser.should_keep_alive()
        self.disconnected = False
        self.disconnect_callback: Callable[[], None] | None = None
        """Told when the client leaves before the answer has ended."""
        self.response_complete = False
        self.body = b""
        """What of the request's body has arrived and was not received yet."""
        self.more_body = True
        self.message_event = LightweightEvent()
        """Set when there is something to receive."""

    async def run_asgi(self, app: App) -> None:
        """Have the app answer. Half an answer is cut, so that it does not look whole."""
        try:
            await app(self._scope, self.receive, self.send)
        except BaseException as error:  # the root of a request's task
            log.error("request failed", path=self._scope["path"], exc_info=error)
        finally:
            del self._scope["extensions"]  # through which this object held itself
            self.disconnect_callback = None
        if self.response_complete or self.disconnected:
            return
        if self._has_begun:
            self._transport.close()
        else:
            body = b"Internal Server Error"
            headers = [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
            await self.send({"type": "http.response.start", "status": 500, "headers": headers})
            await self.send({"type": "http.response.body", "body": body})

    async def receive(self) -> Message:
        """See ASGI."""
        if self._expects_continue and not self._transport.is_closing():
            self._expects_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not self.disconnected and not self.response_complete:
            self._flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = self.body, b""
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        """See ASGI."""
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            if self._has_begun:
                raise RuntimeError("an answer begins once")
            self._has_begun = True
            if self._expects_continue:  # who was not told to go on sends nothing
                self._expects_continue = self.more_body = False
            self._head = self._build_head(message["status"], message.get("headers", ()))
            return
        if not self._has_begun or self.response_complete:
            raise RuntimeError("an answer's body comes after its beginning and before its end")
        is_last = not message.get("more_body", False)
        self._write(message.get("body", b""), is_last=is_last)
        if is_last:
            self._complete()

    @property
    def has_arrived(self) -> bool:
        """See `Pipe`."""
        return not self.more_body

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """See `Pipe`."""
        self.disconnect_callback = callback
        if self.disconnected:
            callback()

    def is_ready(self) -> bool:
        """See `Pipe`."""
        return self._is_chunked and not (self._head or self._flow.write_paused or self.disconnected)

    def write(self, body: bytes) -> None:
        """See `Pipe`."""
        self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))

    def _build_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The answer's line and headers. Decides how its body is delimited, and whether the connection stays."""
        lines = [STATUS_LINE[status]]
        length: int | None = None
        for name, value in (*self._connection.server_state.default_headers, *headers):
            if _HEADER_CONTROL_CHARACTER.search(value):
                raise RuntimeError(f"the header {name!r} holds a control character")
            if name == b"content-length":
                length = int(value)
            elif name == b"connection":
                if value.lower() == b"close":
                    self.keep_alive = False
                continue
            lines += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if not self._is_head:
            self._remaining_bytes = length or 0
        if length is None and not self._is_head and status not in (204, 304):
            if self._scope["http_version"] == "1.0":  # which knows no chunks
                self._remaining_bytes = None
            else:
                self._is_chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)

    def _write(self, body: bytes, *, is_last: bool) -> None:
        head, self._head = self._head, b""
        if self._is_head:
            body = b""
        elif self._is_chunked:
            if body:
                body = b"%x\r\n%b\r\n" % (len(body), body)
            if is_last:
                body += b"0\r\n\r\n"
        elif self._remaining_bytes is not None:
            self._remaining_bytes -= len(body)
            if self._remaining_bytes < 0 or (is_last and self._remaining_bytes > 0):
                raise RuntimeError("an answer's body is as long as its Content-Length says")
        self._transport.write(head + body)

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive and self.more_body:
            self._connection.linger()
        elif not self.keep_alive:
            self._transport.close()
        self._connection.on_response_complete()
