"""What a stream does when its client has left: it ends, instead of waking for every further record."""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, cast

from starlette.types import Receive, Scope, Send

from dragoman.core.stream import Record
from dragoman.protocols.kit.connection import PUSH_EXTENSION
from dragoman.protocols.kit.frames import KEEP_ALIVE
from dragoman.protocols.kit.sse import EventStream

DEADLINE_S = 60.0


class FakeReader:
    """A reader whose session always has one more record."""

    push: object = None

    def __init__(self) -> None:
        self.reads = 0
        self.is_entered = False
        self._end_reason: Exception | None = None

    def __enter__(self) -> "FakeReader":
        self.is_entered = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.is_entered = False

    def end(self, reason: Exception) -> None:
        self._end_reason = reason

    async def next(self) -> Sequence[Record]:
        self.reads += 1
        await asyncio.sleep(0)
        if self._end_reason is not None:
            raise self._end_reason
        return [cast("Record", object())]


class WordEncoder:
    keep_alive = KEEP_ALIVE
    is_over = False

    def feed(self, record: Record) -> bytes:
        return b"word "

    def close(self, error: Exception) -> bytes:
        return b"broken"


class DisconnectedPipe:
    """A pipe whose client has left already."""

    has_arrived = True

    def is_ready(self) -> bool:
        return False

    def write(self, body: bytes) -> None:
        raise AssertionError("nothing is pushed to a client that is gone")

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        callback()


async def stream_to(scope: Scope, receive: Receive) -> tuple[list[bytes], FakeReader, list[bool]]:
    """Serve a stream; returns the bodies that were sent, the reader, and what `on_close` was called with."""
    reader, sent, closed = FakeReader(), list[bytes](), list[bool]()

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    stream = await EventStream(cast("Any", reader), WordEncoder(), on_close=closed.append).open(b"first ")
    async with asyncio.timeout(DEADLINE_S):
        await stream({"type": "http", "method": "GET", "headers": [], **scope}, receive, cast("Send", send))
    return sent, reader, closed


async def test_a_stream_ends_at_once_when_our_server_says_that_its_client_left() -> None:
    async def receive() -> Any:
        raise AssertionError("our server tells it through the pipe")

    sent, reader, closed = await stream_to({"extensions": {PUSH_EXTENSION: DisconnectedPipe()}}, receive)
    assert (sent, reader.reads, reader.is_entered, closed) == ([b"", b"first "], 0, False, [True])


async def test_a_stream_under_another_server_ends_with_its_disconnect_message() -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    sent, reader, closed = await stream_to({}, receive)
    assert sent[:2] == [b"", b"first "]
    assert reader.reads <= 2, "it may have been waiting when the message came"
    assert (reader.is_entered, closed) == (False, [True])
