"""A model on an OpenAI-compatible Chat Completions server, over HTTP. `openai_wire` builds the requests."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import httpx2
import msgspec

from dragoman.models.openai_answer import AnswerInterrupted, AnswerReader, classify_error_body, excerpt
from dragoman.models.openai_wire import Dialect, request_body
from dragoman.models.sse import EventReader, EventTooLong
from dragoman.ports.models import ModelEvent, ModelFailed, ModelRequest, ModelUnavailable

CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 300.0
"""Maximum time between two reads. Reasoning models may be silent for minutes before the first token."""
TAIL_TIMEOUT_S = 5.0
"""Maximum time for what follows the finish reason: usage and the end of the body. The answer is complete without."""
MIN_SECRET_LENGTH = 8
"""A shorter API key is masked in errors only as a word of its own."""
MAX_EVENT_BYTES = 4 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
_REFUSED_SCHEMA = re.compile("response_format|schema|grammar", re.IGNORECASE)
"""What is in the error of a server that knows no schemas, or not all of their keywords."""
UNLIMITED = httpx2.Limits(max_connections=None)
"""The engine limits the number of runs; a second limit here would only make them wait for each other."""


class OpenAIModel:
    """A model on an OpenAI-compatible server.

    A server that refuses `stream_options`, or the schema of an answer, is asked again without. The object pools
    connections; `aclose` closes them. The API key never appears in errors or representations.

    Args:
        name: the server's name for the model. A request's `model` is our own name, and is not sent.
        base_url: the address, including `/v1`.
        api_key: sent as a bearer token. None: no key is sent.
        dialect: what the server supports.
        context_window: the model's context window in tokens; None if it is not known.
        transport: replaces the TCP transport.

    Raises:
        ValueError: the address or the key is not valid.
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
    ) -> None:
        self.name = name
        self.context_window = context_window
        self._api_key = api_key
        self._dialect = dialect or Dialect()
        self.accepts_images, self.accepts_files = self._dialect.images, self._dialect.files
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
        """Does nothing: the first call connects."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Call the model, and stream its answer."""
        if self._client.is_closed:
            raise ModelUnavailable(f"the model {self.name} has been closed")
        has_begun = False
        while True:
            dialect = self._dialect
            try:
                async with self._open_response(request_body(self.name, request, dialect)) as response:
                    while events := await response.next():
                        has_begun = True
                        for event in events:
                            yield event
                return
            except ModelFailed as error:
                text = self._redact_key(str(error))
                error.args = (text,)
                if has_begun:
                    raise
                if isinstance(error, AnswerInterrupted):
                    is_slow = isinstance(error.__cause__, httpx2.ReadTimeout)  # it may still be working on it
                    raise ModelUnavailable(text, may_retry=not is_slow) from error
                if isinstance(error, ModelUnavailable):
                    raise
                if dialect.usage and "stream_options" in text:
                    self._dialect = msgspec.structs.replace(dialect, usage=False)
                elif request.output_schema is not None and _REFUSED_SCHEMA.search(text):
                    request = msgspec.structs.replace(request, output_schema=None)
                else:
                    raise

    async def aclose(self) -> None:
        """Close the connections. Calls that are still streaming fail."""
        await self._client.aclose()

    @asynccontextmanager
    async def _open_response(self, body: bytes) -> AsyncIterator["_ResponseStream"]:
        """Send the request. The body of the response is open inside the block."""
        response = await self._send(body, is_retry=False)
        try:
            if response.status_code != httpx2.codes.OK:
                raise await _read_error(response)
            content_type = response.headers.get("content-type", "")
            if not content_type.startswith("text/event-stream"):
                raise ModelFailed(f"expected an event stream, got {excerpt(content_type.encode())}")
            yield _ResponseStream(response)
        finally:
            await response.aclose()

    async def _send(self, body: bytes, *, is_retry: bool) -> httpx2.Response:
        """Send the request. A pooled connection that the server had closed is replaced once."""
        request = self._client.build_request("POST", "chat/completions", content=body)
        try:
            return await self._client.send(request, stream=True)
        except httpx2.ReadTimeout as error:  # the server may still be working: a retry would double its load
            raise ModelUnavailable(f"no answer within {READ_TIMEOUT_S:.0f} s", may_retry=False) from error
        except httpx2.TransportError as error:
            if is_retry or isinstance(error, httpx2.ConnectError | httpx2.TimeoutException):
                raise ModelUnavailable(f"cannot reach {self.base_url}: {_describe_error(error)}") from error
        return await self._send(body, is_retry=True)

    def _redact_key(self, text: str) -> str:
        """Remove the API key, because servers tend to repeat a key that they reject."""
        if self._api_key is None:
            return text
        key = re.escape(self._api_key)
        if len(self._api_key) < MIN_SECRET_LENGTH:  # a placeholder such as `x` or `none`, which other words may contain
            key = rf"(?<!\w){key}(?!\w)"
        return re.sub(key, "***", text)


class _ResponseStream:
    """Reads the body of a response."""

    def __init__(self, response: httpx2.Response) -> None:
        self._chunks = response.aiter_bytes()
        self._sse_reader = EventReader(MAX_EVENT_BYTES)
        self._answer_reader = AnswerReader(new_id=lambda: f"call_{uuid4().hex}")
        self._has_ended = False
        self._is_closed = False

    async def next(self) -> list[ModelEvent]:
        """The next events. Empty at the end of the stream."""
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
            async with asyncio.timeout(TAIL_TIMEOUT_S):  # read to the end, so that the connection can be reused
                return self._sse_reader.feed(await anext(self._chunks))
        except EventTooLong as error:
            raise ModelFailed(str(error)) from error
        except (StopAsyncIteration, TimeoutError):
            self._has_ended = True
            return self._sse_reader.close()
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            if not self._answer_reader.is_finished:
                raise AnswerInterrupted(f"the answer was interrupted: {_describe_error(error)}") from error
            self._has_ended = True
            return []


async def _read_error(response: httpx2.Response) -> ModelFailed:
    """Convert an error response. At most `MAX_ERROR_BYTES` of its body are read."""
    body = b""
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_ERROR_BYTES:
                break
    except (httpx2.TransportError, httpx2.DecodingError):
        pass  # the status is sufficient
    failed = classify_error_body(response.status_code, body[:MAX_ERROR_BYTES])
    if isinstance(failed, ModelUnavailable):
        failed.retry_after_s = _retry_after_s(response.headers)
    return failed


def _retry_after_s(headers: httpx2.Headers) -> float | None:
    """The delay that the server asks for in seconds. A date is ignored: too rare among these servers."""
    try:
        delay_s = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return delay_s if delay_s >= 0 else None


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _parse_url(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise ValueError(f"expected the address of a model server, got {base_url!r}") from error
    if url.userinfo:  # addresses appear in logs, errors and settings
        raise ValueError("the address of a model server must not contain a password; use an API key instead")
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError(f"expected an http:// or https:// address of a model server, got {base_url!r}")
    return url


def _headers(api_key: str | None) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    if api_key is not None:
        if not api_key.isascii() or not api_key.isprintable() or " " in api_key or not api_key:
            # The HTTP library would reject it too, but would include the key in its error.
            raise ValueError("the model's API key is empty or contains an invalid character, such as a line break")
        headers["authorization"] = f"Bearer {api_key}"
    return headers
