"""HTTP/1.1 connections: uvicorn's, with bounded request heads and less memory per open stream.

Uvicorn parses requests and owns the connection (`Connection` adds the bounds). One request and its response are our own
class, `Exchange`, for two reasons: an open stream takes less memory, and a chunk that is ready can be written by a
plain call (`ResponsePipe`), where ASGI's `send` needs a task to be woken to await it.

    data_received ─► on_message_begin ─► on_headers_complete ─► Exchange.run_asgi ─► on_response_complete
                                                                                     │ next pipelined request, or idle
"""

from asyncio import Future, TimerHandle, Transport, get_running_loop
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote

import httptools
import structlog
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from dragoman.asgi.security import App, Message
from dragoman.core.principal import Principal
from dragoman.engine.services.unread_responses import UnreadResponses
from dragoman.protocols.kit.connection import PUSH_EXTENSION

MAX_HEAD_BYTES = 64 * 1024
"""Largest request line and headers together; also the most that may follow a part of a body without being body, which
are the extensions of a chunk and the trailers."""
MAX_PARSED_BYTES = 8 * 1024
"""How much of what arrived at once is parsed at a time. The rest waits while requests wait for their turn, so that a
client that pipelines thousands of requests neither fills the memory with them nor holds up the loop."""
HEAD_TIMEOUT_S = 30.0
"""Longest time for the head to arrive."""
LINGER_TIMEOUT_S = 10.0
MAX_LINGER_BYTES = 64 * 1024 * 1024
"""Bounds on the rest of a body that was refused before its end. It is read and dropped: closing at once would reset the
connection, and a client that sends everything before it reads would never see the response."""
_HEADER_CONTROL_CHARACTERS = bytes(each for each in (*range(32), 127) if each != ord("\t"))

log = structlog.get_logger(__name__)


class LightweightEvent:
    """An `asyncio.Event` that allocates nothing until somebody waits."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiters: tuple[Future[None], ...] = ()

    def set(self) -> None:
        """Set the event and wake all waiters."""
        self._is_set = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Reset the event."""
        self._is_set = False

    async def wait(self) -> None:
        """Wait until the event is set."""
        if self._is_set:
            return
        waiter: Future[None] = get_running_loop().create_future()
        self._waiters += (waiter,)
        try:
            await waiter
        finally:
            self._waiters = tuple(each for each in self._waiters if each is not waiter)


class TransportFlowControl(FlowControl):
    """Uvicorn's flow control, with the lightweight event."""

    __slots__ = ("_is_writable_event", "_transport", "read_paused", "write_paused")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.read_paused = False
        self.write_paused = False
        self._is_writable_event = LightweightEvent(is_set=True)  # type: ignore[assignment]  # has the methods that uvicorn uses


class Connection(HttpToolsProtocol):
    """A connection that bounds the size of a request's head and the time it takes to arrive."""

    __slots__ = (
        "_answered",
        "_bytes_to_discard",
        "_has_head_bytes",
        "_head_bytes",
        "_head_timer",
        "_idle_since",
        "_idle_timer",
        "_is_in_head",
        "_refusal",
        "_unparsed",
        "_unread_responses",
    )

    def __init__(self, unread_responses: UnreadResponses, **options: Any) -> None:  # noqa: ANN401  # uvicorn's own
        super().__init__(**options)
        self._unread_responses = unread_responses

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # uvicorn's own signature
        """Start the timeout for the first request's head."""
        super().connection_made(transport)
        self.flow = TransportFlowControl(transport)
        self.pipeline = []  # type: ignore[assignment]  # a deque allocates 64 slots; clients rarely pipeline
        self._head_bytes = 0
        """Bytes that arrived since the head began, or since the last part of the body."""
        self._is_in_head = True
        """Whether the next bytes belong to a request's head."""
        self._has_head_bytes = False
        """Whether part of that head has arrived."""
        self._head_timer: TimerHandle | None = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)
        self._idle_since: float | None = None
        """When the last response ended, or bytes last arrived after that; None while a request is in progress."""
        self._bytes_to_discard = 0
        """While lingering: how many more bytes are read and dropped before the connection is closed."""
        self._idle_timer: TimerHandle | None = None
        self._answered: Exchange | None = None
        """The exchange in progress; the newest one, `cycle`, may be waiting behind it."""
        self._unparsed = b""
        """What arrived behind requests that wait for their turn."""
        self._refusal: str | None = None
        """Why nothing more is parsed; sent after the responses to the requests before."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers and tell the exchange in progress that its client disconnected."""
        self._stop_timer()
        self.stop_idle_timer()
        self._unread_responses.discard(self)
        exchange, self._answered = self._answered, None
        if exchange is not None:
            self.cycle = cast("RequestResponseCycle", exchange)
        super().connection_lost(exc)
        self.cycle = None  # type: ignore[assignment]  # breaks the reference cycle between the two
        self.pipeline.clear()
        if exchange is not None and exchange.disconnected and exchange.disconnect_callback is not None:
            exchange.disconnect_callback()

    def pause_writing(self) -> None:
        """Count what the client has not read. Called by the transport if it is more than 64 KiB."""
        super().pause_writing()
        principal: Principal | None = None if self._answered is None else self._answered.principal
        reader = (self.client or ("",))[0] if principal is None else principal.user
        self._unread_responses.add(self, reader, self.transport.get_write_buffer_size(), self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the client has read nearly everything. Called by the transport."""
        self._unread_responses.discard(self)
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, within the bounds."""
        if self._bytes_to_discard:
            self._bytes_to_discard -= len(data)
            if self._bytes_to_discard <= 0:
                self.transport.close()
                return
        if self._idle_since is not None:  # the rest of a refused body, or the next head
            self._idle_since = self.loop.time()
        if self.pipeline or self._unparsed or len(data) > MAX_PARSED_BYTES:
            self._unparsed += data
            self._parse_waiting()
        else:
            self._parse(data)

    def _parse_waiting(self) -> None:
        """Parse what waits until a request has to wait for its turn; then read no more."""
        data = memoryview(self._unparsed)
        self._unparsed = b""
        while data and not self.pipeline and self.parser is not None:
            self._parse(data[:MAX_PARSED_BYTES])
            data = data[MAX_PARSED_BYTES:]
        if self.pipeline:
            self._unparsed = bytes(data)
            self.flow.pause_reading()

    def _parse(self, data: "bytes | memoryview") -> None:
        """Parse what arrived, within the bounds."""
        if self._refusal is not None or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if self._should_upgrade():
                    self.handle_websocket_upgrade()
                    return
                data = self._head_without_upgrade() + bytes(data[upgrade.args[0] :])
                self.parser = httptools.HttpRequestParser(self)  # the other one takes the body for another protocol
                self._is_in_head = True
                continue
            except httptools.HttpParserError:
                msg = "Invalid HTTP request received."
                self.logger.warning(msg)
                self.send_400_response(msg)
            break
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")
        if self._has_head_bytes and self._head_timer is None and not self.pipeline:  # most heads arrive whole
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """Refuse what arrived, and close the connection; after the responses to the whole requests before it."""
        newest = cast("Exchange | None", self.cycle)
        self._refusal = msg
        if newest is None or newest.response_complete or (newest.more_body and not self.pipeline):
            super().send_400_response(msg)
        elif newest.more_body:
            del self.pipeline[0]

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the WebSocket protocol. Called while the parser ends with the handshake."""
        super().handle_websocket_upgrade()
        self.parser = None  # type: ignore[assignment]  # breaks the reference cycle between the two, as a lost connection

    def on_message_begin(self) -> None:
        """Note that a request's head has begun. Called by httptools."""
        super().on_message_begin()
        self._has_head_bytes = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header, without the spaces around its value, which the parser leaves at its end.

        Trailers are dropped: they arrive after the checks, and their number is not limited.
        """
        if self._is_in_head:
            super().on_header(name, value.strip(b" \t"))

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on. Called by httptools."""
        self._head_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Start the request, or queue it behind earlier ones on the connection. Called by httptools."""
        self._stop_timer()
        self._is_in_head = self._has_head_bytes = False
        self._idle_since = None
        if self._head_bytes > MAX_HEAD_BYTES:  # may include the first part of the body
            lines = sum(len(name) + len(value) + len(b": \r\n") for name, value in self.headers)
            if len(self.url) + lines > MAX_HEAD_BYTES:
                raise httptools.HttpParserError("the request's head is too large")
        self._head_bytes = 0
        if self.url[:1] not in (b"/", b"*"):
            raise httptools.HttpParserError("absolute and authority-form targets are for proxies")
        scope, parser = self.scope, self.parser
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = parser.get_http_version()
        if parser.should_upgrade():
            if scope["method"] == "CONNECT":
                raise httptools.HttpParserError("CONNECT is for proxies")
            return
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        before: RequestResponseCycle | None = self.cycle
        exchange = Exchange(self)
        scope["extensions"] = {PUSH_EXTENSION: exchange}  # type: ignore[dict-item]  # uvicorn's type lists its own extensions only
        self.cycle = cycle = cast("RequestResponseCycle", exchange)
        if before is None or before.response_complete:
            self._answered = exchange
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.insert(0, (cycle, self.app))

    def on_message_complete(self) -> None:
        """Expect the next request's head. Called by httptools at the end of a request."""
        if self.parser.should_upgrade():
            return
        if self._bytes_to_discard:
            self.transport.close()
            return
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the next pipelined request, or let the connection idle.

        One timer serves all idle periods: setting and cancelling one per request would cost as much as parsing a head.
        """
        self.server_state.total_requests += 1
        if self._bytes_to_discard or self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._answered = cast("Exchange", cycle)
            self._start_asgi_task(cycle, app)
        elif self._refusal is not None:
            super().send_400_response(self._refusal)
        if self._unparsed and not self.pipeline:
            self._parse_waiting()
        self.resume_reading()
        if not self.cycle.response_complete:
            return
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._check_idle)

    def resume_reading(self) -> None:
        """Read on, unless requests wait for their turn."""
        if not self.pipeline:
            self.flow.resume_reading()

    def linger(self) -> None:
        """Close the connection when the client has sent the whole refused body, or when a bound is reached."""
        self._bytes_to_discard = MAX_LINGER_BYTES
        self.flow.resume_reading()
        self._head_timer = self.loop.call_later(LINGER_TIMEOUT_S, self.transport.close)

    def stop_idle_timer(self) -> None:
        """Drop the timer of idle periods: the connection is closed, or its response is an open stream."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _check_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None:
            return  # the end of the next response sets the timer again
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._idle_timer = self.loop.call_later(left, self._check_idle)
        else:
            self.timeout_keep_alive_handler()

    def _should_upgrade(self) -> bool:
        """Whether this is a complete WebSocket handshake, with no request before it that is not answered yet.

        One with a body is none: the body would never be read.
        """
        newest = cast("Exchange | None", self.cycle)
        if newest is not None and not newest.response_complete:
            return False
        names = {name for name, _ in self.headers}
        is_whole = b"sec-websocket-key" in names and not names & {b"content-length", b"transfer-encoding"}
        return is_whole and super()._should_upgrade()

    def _head_without_upgrade(self) -> bytes:
        """The head of a request, as if it did not ask for another protocol: a server may ignore that.

        Java's HTTP client asks for HTTP/2 in each request that is not encrypted.
        """
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                value = b",".join(each for each in value.split(b",") if each.strip().lower() != b"upgrade")
            lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join([*lines, b"", b""])

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class Exchange:
    """A request and its response: ASGI's `receive` and `send`, and a `ResponsePipe`. Replaces uvicorn's cycle."""

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
        """The response's head, until it is written together with the first part of the body."""
        self._is_chunked = False
        self._remaining_bytes: int | None = 0
        """Bytes of the declared body left to send; None if closing the connection ends the body."""
        self.keep_alive = self._scope["http_version"] != "1.0" and connection.parser.should_keep_alive()
        self.disconnected = False
        self.disconnect_callback: Callable[[], None] | None = None
        """Called if the client disconnects before the response has ended."""
        self.response_complete = False
        self.body = b""
        """The part of the request's body that has arrived and that the app has not received yet."""
        self.more_body = True
        self.message_event = LightweightEvent()
        """Set when the app has something to receive."""

    async def run_asgi(self, app: App) -> None:
        """Run the app. If it ends halfway, the connection is cut, so that half a response does not look whole."""
        try:
            await app(self._scope, self.receive, self.send)
        except BaseException as error:  # the root of the request's task
            log.error("request failed", path=self._scope["path"], exc_info=error)
        finally:
            del self._scope["extensions"]  # breaks the reference cycle through the scope
            self.disconnect_callback = None
        if self.response_complete or self.disconnected:
            return
        if self._has_begun and self._flow.write_paused:  # a client that does not read could keep the connection open
            self._transport.abort()
        elif self._has_begun:
            self._transport.close()
        else:
            body = b"Internal Server Error"
            headers = [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
            await self.send({"type": "http.response.start", "status": 500, "headers": headers})
            await self.send({"type": "http.response.body", "body": body})

    async def receive(self) -> Message:
        """Return the next part of the request's body, or that the client disconnected. ASGI's `receive`."""
        if self._expects_continue and not self._transport.is_closing():
            self._expects_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not self.disconnected and not self.response_complete:
            self._connection.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = self.body, b""
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        """Send the head or a part of the body; waits while the client reads slowly. ASGI's `send`."""
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            if self._has_begun:
                raise RuntimeError("http.response.start was sent twice")
            self._has_begun = True
            if self._expects_continue:  # the client got no 100 Continue, so it sends no body
                self._expects_continue = self.more_body = False
            self._head = self._build_head(message["status"], message.get("headers", ()))
            return
        if not self._has_begun or self.response_complete:
            raise RuntimeError("http.response.body was sent before http.response.start or after the end")
        is_last = not message.get("more_body", False)
        self._write(message.get("body", b""), is_last=is_last)
        if is_last:
            self._complete()

    @property
    def principal(self) -> Principal | None:
        """Who sent the request, once the app knows it."""
        return self._scope.get("principal")

    @property
    def has_arrived(self) -> bool:
        """Whether the whole body of the request has arrived."""
        return not self.more_body

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the client disconnects before the response has ended, which may take long."""
        self._connection.stop_idle_timer()
        self.disconnect_callback = callback
        if self.disconnected:
            callback()

    def is_ready(self) -> bool:
        """Whether `write` may be called now."""
        return self._is_chunked and not (self._head or self._flow.write_paused or self.disconnected)

    def write(self, body: bytes) -> None:
        """Write a part of the body as one chunk."""
        self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))

    def _build_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The status line and headers. Decides how the body is delimited and whether the connection stays open."""
        headers = [*self._connection.server_state.default_headers, *headers]
        by_name = dict(headers)
        if b"connection" in by_name:
            self.keep_alive &= by_name[b"connection"].lower() != b"close"
            headers = [each for each in headers if each[0] != b"connection"]
        lines = [_header_line(name, value) for name, value in headers]
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        length = by_name.get(b"content-length")
        if not self._is_head:
            self._remaining_bytes = int(length or 0)
        if length is None and not self._is_head and status not in (204, 304):
            if self._scope["http_version"] == "1.0":  # HTTP/1.0 has no chunked encoding
                self._remaining_bytes = None
            else:
                self._is_chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
        return b"%b%b\r\n" % (STATUS_LINE[status], b"".join(lines))

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
                raise RuntimeError("the response's body does not match its Content-Length")
        self._transport.write(head + body)

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive and self.more_body:
            self._connection.linger()
        elif not self.keep_alive:
            self._transport.close()
        self._connection.on_response_complete()


@lru_cache(maxsize=1024)
def _header_line(name: bytes, value: bytes) -> bytes:
    """A header as it is sent. Cached, because nearly all responses have the same ones."""
    if len((name + value).translate(None, _HEADER_CONTROL_CHARACTERS)) < len(name) + len(value):
        raise RuntimeError(f"the header {name!r} contains a control character")
    return b"%b: %b\r\n" % (name, value)
