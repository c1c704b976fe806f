"""The connection of a client over HTTP: deadlines, repetitions, and streams that come back by themselves."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar

import httpx2
import msgspec

from dragoman.client.codec import RefusalDecoder, Request, Turn, TypedRequest
from dragoman.client.errors import ClientError, InvalidResponse, NotFound, RequestRefused, TimedOut, Unreachable
from dragoman.client.events import Event, Notice
from dragoman.client.sse import FrameReader, FrameTooLong

Value = TypeVar("Value")

RETRYABLE_STATUSES = {429, 502, 503, 504}
"""Statuses of a server that will soon be there again. Nothing was done."""
NOT_SENT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
MAX_RESPONSE_BYTES = 256 * 1024 * 1024


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long is waited, in seconds.

    Args:
        connect_s: for a connection.
        idle_s: for the next byte of an answer. Servers like ours send one every 15 s at least. A stream that fell
            silent is read on over a new connection.
        run_s: for a whole run, callbacks included; None: for as long as it takes.
        lost_s: for a connection that was lost to come back, each time.
    """

    connect_s: float = 10.0
    idle_s: float = 60.0
    run_s: float | None = None
    reconnect_s: float = 60.0


class Backoff:
    """How long to wait before the next try: longer each time, and not the same for two clients.

    It begins anew when something came, and when a connection held for longer than the longest pause: what breaks only
    now was not lost before.
    """

    INITIAL_DELAY_S, MAX_DELAY_S = 0.1, 5.0

    def __init__(self, give_up_s: float, now: Callable[[], float]) -> None:
        self._give_up_s = give_up_s
        self._now = now
        self.record_progress()

    def record_progress(self) -> None:
        """Something came."""
        self._delay_s = self.INITIAL_DELAY_S
        self._lost_at: float | None = None
        self._connected_at: float | None = None

    def record_connection(self) -> None:
        """There is a connection."""
        self._connected_at = self._now()

    def next_delay(self, error: ClientError, retry_after_s: float = 0.0) -> float:
        """Seconds to wait; `asked_s` is what the server asked for. Raises the error when that would be too long."""
        now = self._now()
        if self._connected_at is not None and now - self._connected_at > self.MAX_DELAY_S:
            self.record_progress()
        self._connected_at = None
        if self._lost_at is None:
            self._lost_at = now
        pause = max(retry_after_s, self._delay_s * random.uniform(0.5, 1.0))  # noqa: S311  # it guards no secret
        if now + pause > self._lost_at + self._give_up_s:
            raise error
        self._delay_s = min(self._delay_s * 2, self.MAX_DELAY_S)
        return pause


class _RetryableFailure(Exception):
    """A try that failed, and may go better soon."""

    def __init__(self, error: ClientError, *, was_sent: bool, retry_after_s: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.was_sent = was_sent
        self.retry_after_s = retry_after_s


class ServerConnection:
    """A server, in the words of one protocol."""

    def __init__(
        self,
        url: str,
        key: str | None,
        codec: RefusalDecoder,
        timeouts: Timeouts,
    ) -> None:
        if key and not (key.isascii() and key.isprintable()):
            raise ClientError("a key is of printable ASCII characters")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._codec = codec
        self.timeouts = timeouts
        self.url = url.rstrip("/")
        self._has_answered = False
        self._http = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(timeouts.idle_s, connect=timeouts.connect_s),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def send(self, request: TypedRequest[Value]) -> Value:
        """Send a request and read its answer; again and again while that is safe and may help."""
        backoff, may_be_done = self._backoff(), False
        while True:
            try:
                async with self._open_response(request.request) as response:
                    return request.decode(await self._read_body(response))
            except NotFound:
                if may_be_done and request.request.method == "DELETE":
                    return request.decode(b"")  # the first try arrived
                raise
            except _RetryableFailure as passing:
                may_be_done = may_be_done or passing.was_sent
                if self._is_final(passing) or (passing.was_sent and not request.request.is_idempotent):
                    raise passing.error from passing
                await asyncio.sleep(backoff.next_delay(passing.error, passing.retry_after_s))

    async def stream_events(self, turn: Turn, idempotency_probe: TypedRequest[bool]) -> AsyncGenerator[Event, None]:
        """The events of an exchange to its end, each once, whatever happens to the connection meanwhile.

        Args:
            turn: the exchange.
            confirm: asked where a request may have arrived: whether it can be sent again.
        """
        backoff = self._backoff()
        while not turn.is_over:
            request = turn.request
            try:
                async with (
                    self._open_response(request, is_stream=True) as response,
                    aclosing(self._decode_events(response, turn)) as told,
                ):
                    backoff.record_connection()
                    async for event in told:
                        backoff.record_progress()
                        yield event
            except _RetryableFailure as passing:
                if self._is_final(passing):
                    raise passing.error from passing
                if not turn.can_resume:
                    raise Unreachable(
                        f"{passing.error}; this server's streams cannot be resumed: the rest is in the history"
                    ) from passing
                if (
                    passing.was_sent
                    and not turn.request.is_idempotent
                    and not await self._is_idempotent_server(idempotency_probe)
                ):
                    raise Unreachable(
                        f"{passing.error}; whether the message arrived is unknown: the history tells"
                    ) from passing
                pause = backoff.next_delay(passing.error, passing.retry_after_s)
                yield Notice(kind="reconnecting", content={"after_s": round(pause, 3), "because": str(passing.error)})
                await asyncio.sleep(pause)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _is_final(self, failure: "_RetryableFailure") -> bool:
        """Whether a server that never answered cannot be reached: the address is wrong, or nobody is there."""
        return not (self._has_answered or failure.was_sent)

    async def _is_idempotent_server(self, idempotency_probe: TypedRequest[bool]) -> bool:
        """Whether the server is one that takes a request once, however often it comes."""
        try:
            return await self.send(idempotency_probe)
        except RequestRefused:
            return False

    def _backoff(self) -> Backoff:
        return Backoff(self.timeouts.reconnect_s, asyncio.get_running_loop().time)

    @asynccontextmanager
    async def _open_response(self, request: Request, *, is_stream: bool = False) -> AsyncIterator[httpx2.Response]:
        """Send; the answer, once it is a good one.

        Raises:
            _Passing: another try may go better.
            Refused: the server said no.
        """
        headers = {
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
            raise ClientError(f"an address such as http://127.0.0.1:8000 was expected, got {self.url}") from error
        except httpx2.TimeoutException as error:
            raise _RetryableFailure(
                TimedOut(f"{self.url} did not answer in time ({_error_text(error)})", may_retry=True),
                was_sent=not isinstance(error, NOT_SENT_ERRORS),
            ) from error
        except (httpx2.LocalProtocolError, httpx2.ProxyError) as error:
            raise Unreachable(f"no request to {self.url} can be made ({_error_text(error)})") from error
        except httpx2.TransportError as error:
            raise _RetryableFailure(
                Unreachable(f"no connection with {self.url} ({_error_text(error)})", may_retry=True),
                was_sent=not isinstance(error, NOT_SENT_ERRORS),
            ) from error
        except httpx2.HTTPError as error:
            raise InvalidResponse(f"the answer of {self.url} cannot be read ({_error_text(error)})") from error

    async def _decode_events(self, response: httpx2.Response, turn: Turn) -> AsyncGenerator[Event, None]:
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            body = await self._read_body(response)
            for event in turn.feed_body(body):
                yield event
            if not turn.is_over:  # a proxy's page, say; sent again the request might run a second time
                raise InvalidResponse(
                    f"the events of a run were expected, got {len(body)} bytes of {kind or 'no type'}"
                )
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
                except Unreachable as error:  # the server says that it goes, and that the run goes on
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
                raise InvalidResponse(f"an answer of at most {MAX_RESPONSE_BYTES} bytes was expected")
        return b"".join(pieces)


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _parse_retry_after(retry_after: str | None) -> float:
    """The header's seconds; its other form, a date, counts as nothing."""
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 0.0
