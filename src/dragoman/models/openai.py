"""A model behind an OpenAI-compatible Chat Completions server, over HTTP. What is said on the wire: `openai_wire`."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

import httpx2

from dragoman.models.openai_answer import AnswerReader, classify_error_body, excerpt
from dragoman.models.openai_wire import Dialect, request_body
from dragoman.models.sse import EventReader, EventTooLong
from dragoman.ports.models import ModelEvent, ModelFailed, ModelRequest, ModelUnavailable

CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 300.0
"""Between two reads: reasoning models are silent for minutes before their first word."""
TAIL_TIMEOUT_S = 5.0
"""For what follows the finish reason: usage and the body's end. The answer is whole without them."""
MAX_EVENT_BYTES = 4 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
BACKOFF_S = 0.5
MAX_BACKOFF_S = 10.0
"""A server that asks for a longer wait than this gets no second try."""
UNLIMITED = httpx2.Limits(max_connections=None)
"""The engine bounds its runs; a second bound below it could only let them wait for each other."""


class OpenAIModel:
    """A model of an OpenAI-compatible server.

    A call is tried once more if it failed as unavailable before its first event; never after. The object keeps its
    connections; `aclose()` ends them. Its key is in no error and no representation.

    Args:
        name: the server's name for the model. (A request's `model` is its name here, and not sent.)
        base_url: the address up to and with `/v1`.
        api_key: sent as a bearer token; None for servers that want none.
        dialect: what the server understands.
        context_window: see `Model`.
        transport: another way to the server than TCP.
        pause: waits some seconds before the second try.

    Raises:
        ValueError: the address or the key cannot be one.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str,
        api_key: str | None = None,
        dialect: Dialect | None = None,
        context_window: int | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self.context_window = context_window
        self._api_key = api_key
        self._dialect = dialect or Dialect()
        self._sleep = sleep
        self._client = httpx2.AsyncClient(
            base_url=_parse_url(base_url),
            headers=_headers(api_key),
            timeout=httpx2.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=UNLIMITED,
            transport=transport,
        )

    @property
    def base_url(self) -> httpx2.URL:
        """The server's address."""
        return self._client.base_url

    async def start(self) -> None:
        """Nothing to do: the first call connects."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model`."""
        if self._client.is_closed:
            raise ModelUnavailable(f"the model {self.name} was closed")
        body = request_body(self.name, request, self._dialect)
        for is_last_try in (False, True):
            has_begun = False
            try:
                async with self._open_response(body) as answer:
                    while events := await answer.next():
                        has_begun = True
                        for event in events:
                            yield event
                return
            except ModelFailed as error:
                error.args = (self._redact_key(str(error)),)
                wait_s = _retry_delay_s(error)
                if has_begun or is_last_try or wait_s is None:
                    raise
            await self._sleep(wait_s)

    async def aclose(self) -> None:
        """Close the connections; calls that still stream fail."""
        await self._client.aclose()

    @asynccontextmanager
    async def _open_response(self, body: bytes) -> AsyncIterator["_ResponseStream"]:
        """Send the request; the answer's body is open inside the block."""
        request = self._client.build_request("POST", "chat/completions", content=body)
        try:
            response = await self._client.send(request, stream=True)
        except httpx2.ReadTimeout as error:  # it may be at work: asking again would double the load
            raise _RetryLater(f"no answer within {READ_TIMEOUT_S:.0f} s", None) from error
        except httpx2.TransportError as error:  # not reached, or a kept connection that the server had closed
            raise _RetryLater(f"{self.base_url} cannot be reached: {_describe_error(error)}", BACKOFF_S) from error
        try:
            if response.status_code != httpx2.codes.OK:
                raise await _read_error(response)
            content_type = response.headers.get("content-type", "")
            if not content_type.startswith("text/event-stream"):
                raise ModelFailed(f"an event stream expected, got {excerpt(content_type.encode())}")
            yield _ResponseStream(response)
        finally:
            await response.aclose()

    def _redact_key(self, text: str) -> str:
        """Servers like to repeat a key that they refuse."""
        return text.replace(self._api_key, "***") if self._api_key else text


class _ResponseStream:
    """The body of an answer that has begun."""

    def __init__(self, response: httpx2.Response) -> None:
        self._chunks = response.aiter_bytes()
        self._sse_reader = EventReader(MAX_EVENT_BYTES)
        self._answer_reader = AnswerReader(new_id=lambda: f"call_{uuid4().hex}")
        self._has_ended = False
        self._is_closed = False

    async def next(self) -> list[ModelEvent]:
        """The next events; none when there are no more."""
        events: list[ModelEvent] = []
        while not events and not self._is_closed:
            for data in await self._next_data():
                events += self._answer_reader.feed(data)
            if self._has_ended:
                self._is_closed = True
                events += self._answer_reader.close()
        return events

    async def _next_data(self) -> list[bytes]:
        try:
            if not self._answer_reader.is_finished:
                return self._sse_reader.feed(await anext(self._chunks))
            async with asyncio.timeout(TAIL_TIMEOUT_S):  # read to the end, so that the connection can be used again
                return self._sse_reader.feed(await anext(self._chunks))
        except EventTooLong as error:
            raise ModelFailed(str(error)) from error
        except (StopAsyncIteration, TimeoutError):
            self._has_ended = True
            return self._sse_reader.close()
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            if not self._answer_reader.is_finished:
                raise ModelFailed(f"the answer broke off: {_describe_error(error)}") from error
            self._has_ended = True
            return []


class _RetryLater(ModelUnavailable):
    """Unavailable, with the seconds after which a second try makes sense; None if it does not."""

    def __init__(self, text: str, retry_after_s: float | None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


def _retry_delay_s(error: ModelFailed) -> float | None:
    if isinstance(error, _RetryLater):
        return error.retry_after_s
    return BACKOFF_S if isinstance(error, ModelUnavailable) else None


async def _read_error(response: httpx2.Response) -> ModelFailed:
    """What an error status means. Only the beginning of its body is read."""
    body = b""
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_ERROR_BYTES:
                break
    except (httpx2.TransportError, httpx2.DecodingError):
        pass  # the status says enough
    failed = classify_error_body(response.status_code, body[:MAX_ERROR_BYTES])
    if isinstance(failed, ModelUnavailable):
        return _RetryLater(str(failed), _retry_after_s(response.headers))
    return failed


def _retry_after_s(headers: httpx2.Headers) -> float | None:
    """The wait that the server asks for, if it is a number of seconds; None if it is too long to wait here."""
    try:
        wait_s = float(headers.get("retry-after", BACKOFF_S))
    except ValueError:  # a date: rare among these servers, and not worth a clock
        return BACKOFF_S
    return wait_s if 0 <= wait_s <= MAX_BACKOFF_S else None


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _parse_url(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise ValueError(f"the address of a model server expected, got {base_url!r}") from error
    if url.userinfo:  # addresses are shown in logs, errors and settings
        raise ValueError("the address of a model server must not hold a password; give an API key instead")
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError(f"an http:// or https:// address of a model server expected, got {base_url!r}")
    return url


def _headers(api_key: str | None) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    if api_key is not None:
        if not api_key.isascii() or not api_key.isprintable() or " " in api_key or not api_key:
            # The HTTP library would refuse it too, and show it in its error.
            raise ValueError("the model's API key is empty or has characters that no key has, such as a line break")
        headers["authorization"] = f"Bearer {api_key}"
    return headers
