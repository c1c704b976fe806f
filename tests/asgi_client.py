"""A streaming client that runs an ASGI app in the test's own event loop: no socket, no thread, no buffering.

Each chunk is passed on as the app sends it. The client may read slowly, disconnect at any moment, and send concurrent
requests. The app sees an ASGI 2.3 server: `receive` returns `http.disconnect` after the client has disconnected, and
what is sent afterwards is silently dropped.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import unquote

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

DEADLINE_S = 60.0
"""Longest time that any wait in a test may take."""


class ConnectionClosed(ConnectionError):
    """The exchange ended before its response was complete."""


@dataclass(frozen=True)
class Answer:
    """A whole response. Header names are in lower case; values of repeated headers are joined by commas."""

    status: int
    headers: dict[str, str]
    body: bytes


class Stream(Protocol):
    """A response that is being read, over any transport."""

    status: int
    headers: dict[str, str]

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the remaining chunks."""

    def unread(self) -> bytes:
        """The bytes that have arrived and were not read yet. Does not wait."""

    async def chunk(self) -> bytes | None:
        """Read the next chunk; None at the end."""

    async def read(self) -> bytes:
        """Read the rest."""

    async def disconnect(self) -> None:
        """Close the connection."""


class Exchange:
    """One request, and its response as far as it has arrived."""

    def __init__(self, request: list[bytes], window: int | None, *, is_request_truncated: bool = False) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.task: asyncio.Task[None] | None = None
        self._request = request
        self._is_request_truncated = is_request_truncated
        self._window = window
        self._chunks: list[bytes] = []
        self._is_complete = False
        self._is_disconnected = False
        self._on_disconnect: Callable[[], None] | None = None
        self._waiters: set[asyncio.Future[None]] = set()

    async def receive(self) -> Message:
        if self._request and not self._is_disconnected:
            piece = self._request.pop(0)
            return {
                "type": "http.request",
                "body": piece,
                "more_body": bool(self._request) or self._is_request_truncated,
            }
        await self._until(lambda: self._is_disconnected or self._is_complete)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            assert self.status == 0, "the app started its response twice"
            self.status = message["status"]
            for raw_name, raw_value in message.get("headers", ()):
                name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
                assert name == name.lower(), f"ASGI header names must be in lower case, got {name}"
                self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value
        elif not self._is_disconnected:
            assert self.status != 0, "the app sent a body before its status"
            assert not self._is_complete, "the app sent more after the end of its response"
            if body := bytes(message.get("body", b"")):
                self._chunks.append(body)
            self._is_complete = not message.get("more_body", False)
        self._notify()
        if self._window is not None:  # a reader that does not read blocks the writer
            limit = self._window
            await self._until(lambda: self._is_disconnected or len(self.unread()) <= limit)

    @property
    def has_arrived(self) -> bool:
        """Whether the whole body of the request has arrived."""
        return len(self._request) == 1 and not self._is_request_truncated

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the client disconnects."""
        self._on_disconnect = callback
        if self._is_disconnected:
            callback()

    def is_ready(self) -> bool:
        """Whether `write` may be called now. Part of the extension `dragoman.push`."""
        return not self._is_disconnected and (self._window is None or len(self.unread()) <= self._window)

    def write(self, body: bytes) -> None:
        """Accept a part of the response. Part of the extension `dragoman.push`."""
        assert self.status != 0, "the app sent a body before its status"
        assert body, "the app wrote nothing"
        assert not self._is_complete, "the app sent more after the end of its response"
        self._chunks.append(body)
        self._notify()

    async def started(self) -> None:
        """Wait for the status and the headers."""
        async with asyncio.timeout(DEADLINE_S):
            await self._until(lambda: self.status != 0 or self._ended())
        self._raise_unless(self.status != 0)

    async def chunk(self) -> bytes | None:
        """Read the next chunk as the app sent it; None at the end of the response."""
        async with asyncio.timeout(DEADLINE_S):
            await self._until(lambda: bool(self._chunks) or self._is_complete or self._is_disconnected or self._ended())
        if self._chunks:
            piece = self._chunks.pop(0)
            self._notify()
            return piece
        self._raise_unless(self._is_complete)
        return None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self.chunk()) is not None:
            yield piece

    async def read(self) -> bytes:
        """Read the rest of the response."""
        return b"".join([piece async for piece in self])

    def unread(self) -> bytes:
        """The bytes that have arrived and were not read yet. Does not wait."""
        return b"".join(self._chunks)

    async def disconnect(self) -> None:
        """Close the connection now. The app may notice later."""
        self._is_disconnected = True
        if self._on_disconnect is not None and not self._is_complete:
            self._on_disconnect()
        self._notify()

    async def wait_until_released(self) -> None:
        """Wait until the app has finished with the exchange."""
        assert self.task is not None
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.wait({self.task})

    def on_task_done(self, task: asyncio.Task[None]) -> None:
        """The app returned or raised. Errors after a complete response are left to the app's own log."""
        if not task.cancelled():
            task.exception()
        self._notify()

    def _ended(self) -> bool:
        return self.task is not None and self.task.done()

    def _raise_unless(self, enough: bool) -> None:
        if enough:
            return
        over = self.task is not None and self.task.done() and not self.task.cancelled()
        if self.task is not None and over and (error := self.task.exception()) is not None:
            raise error
        raise ConnectionClosed("the exchange ended before its answer was whole")

    async def _until(self, predicate: Callable[[], bool]) -> None:
        while not predicate():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)

    def _notify(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class AsgiClient:
    """A client for one app, which also runs its lifespan: `async with AsgiClient(app) as client: …`."""

    def __init__(self, app: App, *, host: str = "127.0.0.1:8000") -> None:
        self.app = app
        self.host = host
        self.requests_started = 0
        """How many requests the app has received so far."""
        self._request_waiters: list[tuple[int, asyncio.Event]] = []
        self._state: dict[str, Any] = {}
        self._exchanges: set[Exchange] = set()
        self._stop = asyncio.Event()
        self._lifespan: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lifespan = asyncio.create_task(self._live(ready))
        async with asyncio.timeout(DEADLINE_S):
            await ready
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the app's lifespan, then disconnect the remaining exchanges."""
        self._stop.set()
        assert self._lifespan is not None
        async with asyncio.timeout(DEADLINE_S):
            await self._lifespan
        for exchange in list(self._exchanges):
            await exchange.disconnect()
            await exchange.wait_until_released()

    async def requests_received(self, count: int) -> None:
        """Wait until the app has received that many requests."""
        arrived = asyncio.Event()
        if self.requests_started < count:
            self._request_waiters.append((count, arrived))
            async with asyncio.timeout(DEADLINE_S):
                await arrived.wait()

    async def open(
        self,
        method: str,
        path: str,
        *,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes | list[bytes] = b"",
        window: int | None = None,
    ) -> Exchange:
        """Send a request and return as soon as its response has started. Arguments as in `begin`."""
        exchange = self.begin(method, path, headers=headers, body=body, window=window)
        await exchange.started()
        return exchange

    def begin(
        self,
        method: str,
        path: str,
        *,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes | list[bytes] = b"",
        window: int | None = None,
        is_request_truncated: bool = False,
    ) -> Exchange:
        """Send a request.

        Args:
            method: in upper case.
            path: the request's target, percent-encoded, with its query.
            headers: names and values; `host` and the body's length come by themselves.
            body: the whole body, or its pieces as they arrive one by one (then no length is announced).
            window: how many unread bytes the connection holds before the app's `send` waits; None for no bound.
            is_cut: more of the body was announced and never comes.
        """
        all_headers = [(name.lower(), value) for name, value in headers]
        names = {name for name, _ in all_headers}
        if "host" not in names:
            all_headers.append(("host", self.host))
        if isinstance(body, list):
            all_headers.append(("transfer-encoding", "chunked"))
        elif body and "content-length" not in names:
            all_headers.append(("content-length", str(len(body))))
        raw_path, _, query = path.partition("?")
        scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw_path),
            "raw_path": raw_path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "root_path": "",
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in all_headers],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8000),
            "state": dict(self._state),
        }
        exchange = Exchange(
            list(body) if isinstance(body, list) else [body], window, is_request_truncated=is_request_truncated
        )
        scope["extensions"] = {"dragoman.push": exchange}
        exchange.task = asyncio.create_task(self._run(scope, exchange))
        exchange.task.add_done_callback(exchange.on_task_done)
        return exchange

    async def request(
        self, method: str, path: str, *, headers: Iterable[tuple[str, str]] = (), body: bytes | list[bytes] = b""
    ) -> Answer:
        """Send a request and read the whole response."""
        exchange = await self.open(method, path, headers=headers, body=body)
        content = await exchange.read()
        return Answer(exchange.status, exchange.headers, content)

    async def _run(self, scope: Message, exchange: Exchange) -> None:
        self._exchanges.add(exchange)
        self.requests_started += 1
        for count, arrived in self._request_waiters:
            if self.requests_started >= count:
                arrived.set()
        try:
            await self.app(scope, exchange.receive, exchange.send)
        finally:
            self._exchanges.discard(exchange)

    async def _live(self, ready: asyncio.Future[None]) -> None:
        has_started = False

        async def receive() -> Message:
            nonlocal has_started
            if not has_started:
                has_started = True
                return {"type": "lifespan.startup"}
            await self._stop.wait()
            return {"type": "lifespan.shutdown"}

        async def send(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                ready.set_result(None)
            elif message["type"].endswith(".failed"):
                raise RuntimeError(message.get("message", message["type"]))

        scope: Message = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        try:
            await self.app(scope, receive, send)
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)
