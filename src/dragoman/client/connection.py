"""HTTP connections to a server: timeouts, retries, and streams that resume after a lost connection."""

import asyncio
import copy
import random
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import cache
from typing import Self, TypeVar

import httpx2
import msgspec

from dragoman.client.codec import RefusalDecoder, Request, Turn, TypedRequest
from dragoman.client.errors import ClientError, InvalidResponse, NotFound, RequestRefused, TimedOut, Unreachable
from dragoman.client.events import Event, Notice
from dragoman.client.sse import FrameReader, FrameTooLong

Value = TypeVar("Value")

RETRYABLE_STATUSES = {429, 502, 503, 504}
"""Statuses that are worth a retry. The server did not act on the request."""
NOT_SENT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""Errors after which the request has certainly not reached the server."""
MAX_RESPONSE_BYTES = 256 * 1024 * 1024


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits, in seconds.

    Args:
        connect_s: for opening a connection.
        idle_s: for the next byte of a response. A Dragoman server sends one at least every 15 s. A stream that is
            silent for longer is resumed over a new connection.
        run_s: for a whole run, including callbacks; None for no limit.
        reconnect_s: for restoring a lost connection, each time.
    """

    connect_s: float = 10.0
    idle_s: float = 60.0
    run_s: float | None = None
    reconnect_s: float = 60.0


class Backoff:
    """Exponential backoff with jitter, until `give_up_s` after the connection was lost.

    It starts over whenever data arrives, and when a connection has lasted longer than the longest delay.
    """

    INITIAL_DELAY_S, MAX_DELAY_S = 0.1, 5.0

    def __init__(self, give_up_s: float, now: Callable[[], float]) -> None:
        self._give_up_s = give_up_s
        self._now = now
        self.record_progress()

    def record_progress(self) -> None:
        """Note that data arrived."""
        self._delay_s = self.INITIAL_DELAY_S
        self._lost_at: float | None = None
        self._connected_at: float | None = None

    def record_connection(self) -> None:
        """Note that a connection was opened."""
        self._connected_at = self._now()

    def next_delay(self, error: ClientError, retry_after_s: float = 0.0) -> float:
        """Return the seconds to wait, at least `retry_after_s`. Raises `error` if that would exceed the limit."""
        now = self._now()
        if self._connected_at is not None and now - self._connected_at > self.MAX_DELAY_S:
            self.record_progress()
        self._connected_at = None
        if self._lost_at is None:
            self._lost_at = now
        delay_s = max(retry_after_s, self._delay_s * random.uniform(0.5, 1.0))  # noqa: S311  # jitter, not a secret
        if now + delay_s > self._lost_at + self._give_up_s:
            raise error
        self._delay_s = min(self._delay_s * 2, self.MAX_DELAY_S)
        return delay_s


class _RetryableFailure(Exception):
    """An attempt failed, and a retry may succeed."""

    def __init__(self, error: ClientError, *, was_sent: bool, retry_after_s: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.was_sent = was_sent
        self.retry_after_s = retry_after_s


@cache
def _trusted_authorities() -> ssl.SSLContext:
    """The certificate authorities. Reading them takes longer than the rest of a new client, so clients share them."""
    return httpx2.create_ssl_context()


class ServerConnection:
    """The HTTP connections to one server, over one protocol."""

    def __init__(
        self,
        url: str,
        key: str | None,
        codec: RefusalDecoder,
        timeouts: Timeouts,
    ) -> None:
        if key and not (key.isascii() and key.isprintable()):
            raise ClientError("an API key consists of printable ASCII characters")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._codec = codec
        self.timeouts = timeouts
        self.url = url.rstrip("/")
        self._has_answered = False
        self.headers: Mapping[str, str] = {}
        """Sent with every request, in addition to those of the request."""
        self._http = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(timeouts.idle_s, connect=timeouts.connect_s),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            verify=_trusted_authorities(),
        )

    def with_headers(self, headers: Mapping[str, str]) -> Self:
        """The same connections, for requests with more headers. An address that is down is tried for `reconnect_s`."""
        connection = copy.copy(self)
        connection.headers = {**self.headers, **headers}
        connection._has_answered = True
        return connection

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def send(self, request: TypedRequest[Value]) -> Value:
        """Send a request and decode the response. Retries while that is safe and may succeed."""
        backoff, may_have_arrived = self._backoff(), False
        while True:
            try:
                async with self._open_response(request.request) as response:
                    return request.decode(await self._read_body(response))
            except NotFound:
                if may_have_arrived and request.request.method == "DELETE":
                    return request.decode(b"")  # an earlier attempt deleted it
                raise
            except _RetryableFailure as failure:
                may_have_arrived = may_have_arrived or failure.was_sent
                if self._is_final(failure) or (failure.was_sent and not request.request.is_idempotent):
                    raise failure.error from failure
                await asyncio.sleep(backoff.next_delay(failure.error, failure.retry_after_s))

    async def stream_events(self, turn: Turn, idempotency_probe: TypedRequest[bool]) -> AsyncGenerator[Event, None]:
        """Yield the events of a turn to its end, each once, resuming after lost connections.

        Args:
            turn: the turn to read.
            idempotency_probe: tells whether a request that may have arrived can be sent to this server again.
        """
        backoff = self._backoff()
        while not turn.is_over:
            request = turn.request
            try:
                async with (
                    self._open_response(request, is_stream=True) as response,
                    aclosing(self._decode_events(response, turn)) as events,
                ):
                    backoff.record_connection()
                    async for event in events:
                        backoff.record_progress()
                        yield event
            except _RetryableFailure as failure:
                if self._is_final(failure):
                    raise failure.error from failure
                if not turn.can_resume:
                    raise Unreachable(
                        f"{failure.error}; this server cannot resume streams: read the rest from the history"
                    ) from failure
                if failure.was_sent and not turn.request.is_idempotent and not await self.probe(idempotency_probe):
                    raise Unreachable(
                        f"{failure.error}; it is unknown whether the message arrived: check the history"
                    ) from failure
                delay_s = backoff.next_delay(failure.error, failure.retry_after_s)
                yield Notice(kind="reconnecting", content={"after_s": round(delay_s, 3), "because": str(failure.error)})
                await asyncio.sleep(delay_s)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _is_final(self, failure: "_RetryableFailure") -> bool:
        """Whether the server has never answered: then the address is wrong or the server is down."""
        return not (self._has_answered or failure.was_sent)

    async def probe(self, idempotency_probe: TypedRequest[bool]) -> bool:
        """Find out whether the server runs a request once, even if it arrives twice."""
        try:
            return await self.send(idempotency_probe)
        except RequestRefused:
            return False

    def _backoff(self) -> Backoff:
        return Backoff(self.timeouts.reconnect_s, asyncio.get_running_loop().time)

    @asynccontextmanager
    async def _open_response(self, request: Request, *, is_stream: bool = False) -> AsyncIterator[httpx2.Response]:
        """Send a request and yield its response once that has a 2xx status.

        Raises:
            _RetryableFailure: a retry may succeed.
            RequestRefused: the server refused the request.
        """
        headers = {
            **self.headers,
            **request.headers,
            "Accept": "text/event-stream, application/json" if is_stream else "application/json",
        }
        try:
            async with self._http.stream(
                request.method, self.url + request.path, content=request.body, headers=headers
            ) as response:
                self._has_answered = True
                if response.is_success:
                    yield response
                    return
                error = self._codec.decode_refusal(
                    response.status_code, response.headers, await self._read_body(response)
                )
                if response.status_code not in RETRYABLE_STATUSES:
                    raise error
                error.may_retry = True
                raise _RetryableFailure(
                    error, was_sent=False, retry_after_s=_parse_retry_after(response.headers.get("retry-after"))
                )
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise ClientError(f"expected an address such as http://127.0.0.1:8000, got {self.url}") from error
        except httpx2.TimeoutException as error:
            raise _RetryableFailure(
                TimedOut(f"{self.url} did not answer in time ({_error_text(error)})", may_retry=True),
                was_sent=not isinstance(error, NOT_SENT_ERRORS),
            ) from error
        except (httpx2.LocalProtocolError, httpx2.ProxyError) as error:
            raise Unreachable(f"cannot send requests to {self.url} ({_error_text(error)})") from error
        except httpx2.TransportError as error:
            raise _RetryableFailure(
                Unreachable(f"cannot connect to {self.url} ({_error_text(error)})", may_retry=True),
                was_sent=not isinstance(error, NOT_SENT_ERRORS),
            ) from error
        except httpx2.HTTPError as error:
            raise InvalidResponse(f"cannot read the response of {self.url} ({_error_text(error)})") from error

    async def _decode_events(self, response: httpx2.Response, turn: Turn) -> AsyncGenerator[Event, None]:
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            body = await self._read_body(response)
            try:
                events = turn.feed_body(body)
            except Unreachable as error:
                raise _RetryableFailure(error, was_sent=True) from error
            for event in events:
                yield event
            if not turn.is_over:  # for example a proxy's page; a retry might run the request a second time
                raise InvalidResponse(f"expected an event stream, got {len(body)} bytes of {kind or 'no content type'}")
            return
        reader = FrameReader()
        async for chunk in response.aiter_bytes():
            try:
                frames = reader.feed(chunk)
            except FrameTooLong as error:
                raise InvalidResponse(str(error)) from error
            for frame in frames:
                try:
                    events = turn.feed(frame)
                except Unreachable as error:  # the server is stopping, and the run continues
                    raise _RetryableFailure(error, was_sent=True) from error
                for event in events:
                    yield event
                if turn.is_over:
                    return
        raise _RetryableFailure(Unreachable("the stream ended before its run did", may_retry=True), was_sent=True)

    @staticmethod
    async def _read_body(response: httpx2.Response) -> bytes:
        pieces, size = [], 0
        async for piece in response.aiter_bytes():
            pieces.append(piece)
            size += len(piece)
            if size > MAX_RESPONSE_BYTES:
                raise InvalidResponse(f"expected a response of at most {MAX_RESPONSE_BYTES} bytes, got more")
        return b"".join(pieces)


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _parse_retry_after(retry_after: str | None) -> float:
    """The seconds in a Retry-After header; a date counts as 0."""
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 0.0
