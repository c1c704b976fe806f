"""What the doors over HTTP have in common: reading bodies within bounds, JSON answers, streams of events.

Nothing here knows a protocol's words; each brings its own error bodies.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

import msgspec
import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dragoman.core.principal import Principal
from dragoman.core.stream import Record
from dragoman.engine.sessions.reader import Reader

Authenticate = Callable[[str | None, str], Principal]
"""Who sends this `Authorization` header, from that address? Raises Unauthenticated or Exhausted."""

Admit = Callable[[Principal], Callable[[], None]]
"""Counts a request that starts a run, or an open stream, against its caller's share; what it returns gives it back.

Raises Exhausted.
"""

BODY_TIMEOUT_S = 60.0
"""Seconds that a body may take to arrive."""
DISCONNECT_CHECK_INTERVAL_S = 5.0
"""Seconds of sending after which a stream looks whether its client is still there."""
STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
PING = b": ping\n\n"

log = structlog.get_logger(__name__)
PUSH_EXTENSION = "dragoman.push"
"""The ASGI extension of our server: a `Pipe` for the answer's body. Under another server streams only send."""


class BodyTooLarge(Exception):
    """A request's body is longer than the door takes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is larger than {limit} bytes")
        self.limit = limit


class BodyTooSlow(Exception):
    """A request's body did not arrive in time."""


class UnsupportedMediaType(Exception):
    """A request's body is not declared as JSON."""


class MethodNotAllowed(Exception):
    """A known path, asked with another method."""

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__(f"this path takes {' or '.join(allowed)}")
        self.allowed = allowed


def admit_all(_principal: Principal) -> Callable[[], None]:
    """`Admit` without shares: everything is admitted."""
    return lambda: None


def principal_of(request: Request) -> Principal:
    """Who sends a request that was let in."""
    principal: Principal = request.scope["principal"]
    return principal


def header(scope: Scope, name: bytes) -> str | None:
    """The first header of that name, which is in lower case."""
    for each, value in scope["headers"]:
        if each == name:
            return str(value, "latin-1")
    return None


def log_failure(error: Exception) -> str:
    """Write a fault of ours to the log, and give the reference under which it stands there, for the answer."""
    reference = hashlib.sha256(f"{id(error)}{error!r}".encode()).hexdigest()[:12]
    log.error("request failed", reference=reference, exc_info=error)
    return reference


def address_of(scope: Scope) -> str:
    """The peer's address, as far as the server knows it."""
    client = scope.get("client")
    return client[0] if client else ""


def require_json(request: Request) -> None:
    """Check the declared type of the body: JSON, or nothing at all.

    `text/plain` would need no preflight, so a foreign page could post it to a server without keys.

    Raises:
        UnsupportedMediaType: it is something else.
    """
    declared = (header(request.scope, b"content-type") or "").partition(";")[0].strip().lower()
    if declared not in ("", "application/json"):
        raise UnsupportedMediaType(f"Content-Type: application/json was expected, got {declared!r}")


async def read_body(request: Request, limit: int) -> bytes:
    """Read a body of at most `limit` bytes, whatever its Content-Length says.

    Raises:
        BodyTooLarge: it is longer; no more than the limit was read.
        BodyTooSlow: it took longer than `BODY_S`.
        ClientDisconnect: the client left before the end.
    """
    declared = header(request.scope, b"content-length") or ""
    if declared.isascii() and declared.isdigit() and (len(declared) > 18 or int(declared) > limit):
        raise BodyTooLarge(limit)
    pipe: ResponsePipe | None = request.scope.get("extensions", {}).get(PUSH_EXTENSION)
    if pipe is not None and pipe.has_arrived:
        return await _body(request, limit)  # which does not wait: most bodies come with their heads
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await _body(request, limit)
    except TimeoutError as error:
        raise BodyTooSlow(f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from error


async def _body(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise BodyTooLarge(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as a JSON body."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


class Chunk(NamedTuple):
    """What goes out next. After the last one the stream closes."""

    body: bytes
    is_last: bool = False


class ResponsePipe(Protocol):
    """Writes parts of an answer that has begun in plain calls, where ASGI's `send` has to be awaited."""

    @property
    def has_arrived(self) -> bool:
        """Whether the whole body of the request is there."""

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Have it told, at once and in a plain call, that the client leaves before the answer has ended."""

    def is_ready(self) -> bool:
        """Whether the client takes more now. If not, `send` waits until it does."""

    def write(self, body: bytes) -> None:
        """Write a part; it is ready."""


EMPTY_CHUNK = Chunk(b"")


class LiveSource(NamedTuple):
    """How a stream goes on while its reader keeps up: `take` makes the next chunk of records, without waiting."""

    reader: Reader
    encode: Callable[[Sequence[Record]], Chunk]


class EventStream(Response):
    """A stream of server-sent events: one write for all that is ready, a ping when there is nothing for a while.

        more ──► send                 at the beginning, after a silence, for a client that reads slowly
        commit ──► take ──► write     else: what became durable leaves in the commit's own call, and no task is woken

    It only reads: when the client leaves, nothing but this reader ends. Whether it left is looked at with each ping,
    when nothing can be written in passing, and every few seconds while there is much to send, so that an open stream
    needs no second task to watch for it.
    """

    def __init__(
        self,
        first: Chunk,
        next_chunk: Callable[[], Awaitable[Chunk]],
        close: Callable[[], None],
        live_source: LiveSource | None = None,
    ) -> None:
        """Make an answer of what is ready and what will be.

        Args:
            first: what goes out with the headers.
            more: waits for the next; an empty body means that a ping is due.
            close: called once, however the stream ends.
            live: the reader that `more` awaits, and what it makes of records. Without it each chunk wakes this task,
                which costs about as much again as the chunk's write.
        """
        self._first = first
        self._next_chunk = next_chunk
        self._close = close
        self._live_source = live_source
        self.status_code = 200
        self.background = None
        self.raw_headers = list(STREAM_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request; of a HEAD, only what the stream would begin with."""
        try:
            if scope["method"] == "HEAD":
                self._first = Chunk(b"", is_last=True)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            pipe: ResponsePipe | None = scope.get("extensions", {}).get(PUSH_EXTENSION)
            if self._live_source is not None and pipe is not None:
                self._live_source.reader.push = partial(_push, pipe, self._live_source.encode)
            scope["headers"].clear()  # for hours they would weigh more than the rest of a request
            chunk, clock = self._first, asyncio.get_running_loop().time
            looked = clock()
            while not chunk.is_last:
                await send({"type": "http.response.body", "body": chunk.body or PING, "more_body": True})
                is_stuck = pipe is not None and not pipe.is_ready()  # perhaps each chunk is sent to nobody
                if not chunk.body or is_stuck or clock() - looked > DISCONNECT_CHECK_INTERVAL_S:
                    looked = clock()
                    if await _has_disconnected(receive):
                        return
                chunk = self._first = EMPTY_CHUNK
                try:
                    chunk = await self._next_chunk()
                except _StreamEnded as over:
                    chunk = over.last_chunk
            await send({"type": "http.response.body", "body": chunk.body, "more_body": False})
        finally:
            self._close()


class _StreamEnded(Exception):
    """The stream's last chunk was made where it could not be sent."""

    def __init__(self, last_chunk: Chunk) -> None:
        super().__init__()
        self.last_chunk = last_chunk


def _push(pipe: ResponsePipe, encode: Callable[[Sequence[Record]], Chunk], records: Sequence[Record]) -> bool:
    """See `engine.reader.Push`."""
    if not pipe.is_ready():
        return False
    chunk = encode(records)
    if chunk.is_last:
        raise _StreamEnded(chunk)
    if chunk.body:
        pipe.write(chunk.body)
    return True


async def _has_disconnected(receive: Receive) -> bool:
    """Whether the client has disconnected, without waiting for it."""
    asked = asyncio.ensure_future(receive())
    await asyncio.sleep(0)
    if asked.done():
        return bool(asked.result()["type"] == "http.disconnect")
    asked.cancel()
    with suppress(asyncio.CancelledError):
        await asked
    return False
