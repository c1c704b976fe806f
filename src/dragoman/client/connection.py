"""The connection of a client over HTTP: deadlines, repetitions, and streams that come back by themselves."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar

import httpx2
import msgspec

from dragoman.client.codec import Ask, Refusing, Request, Turn
from dragoman.client.errors import ClientError, NotFound, Refused, TimedOut, Unreachable, Unreadable
from dragoman.client.events import Event, Notice
from dragoman.client.sse import FrameReader, TooLong

Value = TypeVar("Value")

PASSING = {429, 502, 503, 504}
"""Statuses of a server that will soon be there again. Nothing was done."""
NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
ANSWER_LIMIT_BYTES = 256 * 1024 * 1024


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
    lost_s: float = 60.0


class Backoff:
    """How long to wait before the next try: longer each time, and not the same for two clients.

    It begins anew when something came, and when a connection held for longer than the longest pause: what breaks only
    now was not lost before.
    """

    FIRST_S, MOST_S = 0.1, 5.0

    def __init__(self, give_up_s: float, now: Callable[[], float]) -> None:
        self._give_up_s = give_up_s
        self._now = now
        self.progressed()

    def progressed(self) -> None:
        """Something came."""
        self._pause_s = self.FIRST_S
        self._lost_at: float | None = None
        self._connected_at: float | None = None

    def connected(self) -> None:
        """There is a connection."""
        self._connected_at = self._now()

    def next(self, error: ClientError, asked_s: float = 0.0) -> float:
        """Seconds to wait; `asked_s` is what the server asked for. Raises the error when that would be too long."""
        now = self._now()
        if self._connected_at is not None and now - self._connected_at > self.MOST_S:
            self.progressed()
        self._connected_at = None
        if self._lost_at is None:
            self._lost_at = now
        pause = max(asked_s, self._pause_s * random.uniform(0.5, 1.0))  # noqa: S311  # it guards no secret
        if now + pause > self._lost_at + self._give_up_s:
            raise error
        self._pause_s = min(self._pause_s * 2, self.MOST_S)
        return pause


class _Passing(Exception):
    """A try that failed, and may go better soon."""

    def __init__(self, error: ClientError, *, was_sent: bool, asked_s: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.was_sent = was_sent
        self.asked_s = asked_s


class Link:
    """A server, in the words of one protocol."""

    def __init__(
        self,
        url: str,
        key: str | None,
        face: Refusing,
        timeouts: Timeouts,
    ) -> None:
        if key and not (key.isascii() and key.isprintable()):
            raise ClientError("a key is of printable ASCII characters")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._face = face
        self.timeouts = timeouts
        self.url = url.rstrip("/")
        self._was_there = False
        self._http = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(timeouts.idle_s, connect=timeouts.connect_s),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def ask(self, ask: Ask[Value]) -> Value:
        """Send a request and read its answer; again and again while that is safe and may help."""
        backoff, may_be_done = self._backoff(), False
        while True:
            try:
                async with self._sent(ask.request) as response:
                    return ask.read(await self._body(response))
            except NotFound:
                if may_be_done and ask.request.method == "DELETE":
                    return ask.read(b"")  # the first try arrived
                raise
            except _Passing as passing:
                may_be_done = may_be_done or passing.was_sent
                if self._is_final(passing) or (passing.was_sent and not ask.request.repeats):
                    raise passing.error from passing
                await asyncio.sleep(backoff.next(passing.error, passing.asked_s))

    async def play(self, turn: Turn, confirm: Ask[bool]) -> AsyncGenerator[Event, None]:
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
                    self._sent(request, is_stream=True) as response,
                    aclosing(self._told(response, turn)) as told,
                ):
                    backoff.connected()
                    async for event in told:
                        backoff.progressed()
                        yield event
            except _Passing as passing:
                if self._is_final(passing):
                    raise passing.error from passing
                if not turn.can_resume:
                    raise Unreachable(
                        f"{passing.error}; this server's streams cannot be resumed: the rest is in the history"
                    ) from passing
                if passing.was_sent and not turn.request.repeats and not await self._is_known(confirm):
                    raise Unreachable(
                        f"{passing.error}; whether the message arrived is unknown: the history tells"
                    ) from passing
                pause = backoff.next(passing.error, passing.asked_s)
                yield Notice(kind="reconnecting", content={"after_s": round(pause, 3), "because": str(passing.error)})
                await asyncio.sleep(pause)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _is_final(self, passing: "_Passing") -> bool:
        """Whether a server that never answered cannot be reached: the address is wrong, or nobody is there."""
        return not (self._was_there or passing.was_sent)

    async def _is_known(self, confirm: Ask[bool]) -> bool:
        """Whether the server is one that takes a request once, however often it comes."""
        try:
            return await self.ask(confirm)
        except Refused:
            return False

    def _backoff(self) -> Backoff:
        return Backoff(self.timeouts.lost_s, asyncio.get_running_loop().time)

    @asynccontextmanager
    async def _sent(self, request: Request, *, is_stream: bool = False) -> AsyncIterator[httpx2.Response]:
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
                self._was_there = True
                if response.is_success:
                    yield response
                    return
                error = self._face.refusal(response.status_code, response.headers, await self._body(response))
                if response.status_code not in PASSING:
                    raise error
                error.may_retry = True
                raise _Passing(error, was_sent=False, asked_s=_seconds(response.headers.get("retry-after")))
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise ClientError(f"an address such as http://127.0.0.1:8000 was expected, got {self.url}") from error
        except httpx2.TimeoutException as error:
            raise _Passing(
                TimedOut(f"{self.url} did not answer in time ({_words(error)})", may_retry=True),
                was_sent=not isinstance(error, NEVER_SENT),
            ) from error
        except (httpx2.LocalProtocolError, httpx2.ProxyError) as error:
            raise Unreachable(f"no request to {self.url} can be made ({_words(error)})") from error
        except httpx2.TransportError as error:
            raise _Passing(
                Unreachable(f"no connection with {self.url} ({_words(error)})", may_retry=True),
                was_sent=not isinstance(error, NEVER_SENT),
            ) from error
        except httpx2.HTTPError as error:
            raise Unreadable(f"the answer of {self.url} cannot be read ({_words(error)})") from error

    async def _told(self, response: httpx2.Response, turn: Turn) -> AsyncGenerator[Event, None]:
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            body = await self._body(response)
            for event in turn.take(body):
                yield event
            if not turn.is_over:  # a proxy's page, say; sent again the request might run a second time
                raise Unreadable(f"the events of a run were expected, got {len(body)} bytes of {kind or 'no type'}")
            return
        reader = FrameReader()
        async for chunk in response.aiter_bytes():
            try:
                frames = reader.feed(chunk)
            except TooLong as error:
                raise Unreadable(str(error)) from error
            for frame in frames:
                try:
                    events = turn.feed(frame)
                except Unreachable as error:  # the server says that it goes, and that the run goes on
                    raise _Passing(error, was_sent=True) from error
                for event in events:
                    yield event
                if turn.is_over:
                    return
        raise _Passing(Unreachable("the stream ended before its run did", may_retry=True), was_sent=True)

    @staticmethod
    async def _body(response: httpx2.Response) -> bytes:
        pieces, size = [], 0
        async for piece in response.aiter_bytes():
            pieces.append(piece)
            size += len(piece)
            if size > ANSWER_LIMIT_BYTES:
                raise Unreadable(f"an answer of at most {ANSWER_LIMIT_BYTES} bytes was expected")
        return b"".join(pieces)


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _seconds(retry_after: str | None) -> float:
    """The header's seconds; its other form, a date, counts as nothing."""
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 0.0
