"""Streams of runs: one run to its end, or a thread's runs one after the other. They end when their client leaves."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dragoman.core.refusals import SessionNotFound, ShuttingDown, StoreUnavailable
from dragoman.core.stream import Record
from dragoman.engine.reader import Reader
from dragoman.protocols._http import STREAM_HEADERS, Chunk
from dragoman.protocols.agui import events as wire
from dragoman.protocols.agui.frames import KEEP_ALIVE, RunFrames, ThreadFrames, frame

BROKEN: dict[type[Exception], tuple[str, str]] = {
    SessionNotFound: ("thread_deleted", "The thread was deleted"),
    ShuttingDown: ("shutting_down", "The server restarts; the answer goes on, and is there when it is back"),
    StoreUnavailable: ("unavailable", "The server cannot read its store now; the answer goes on"),
}
"""What ends a stream before its run: the code and the sentence of its RUN_ERROR."""


class ClientLeft(Exception):
    """Nobody reads the stream any more."""


class Source(Protocol):
    """Where a stream's chunks come from."""

    async def first(self) -> Chunk:
        """What goes out with the headers."""

    async def more(self) -> Chunk:
        """What goes out next; an empty body is a sign of life. Raises ClientLeft."""

    def left(self) -> None:
        """The client has left: let `more` end at once."""

    def close(self, *, has_left: bool) -> None:
        """The stream is over. Called once."""


class RunSource:
    """The frames of a run that a reader follows, after what is told before them."""

    def __init__(
        self,
        reader: Reader,
        frames: RunFrames | ThreadFrames,
        *,
        before: bytes = b"",
        closed: Callable[[bool], None] = lambda has_left: None,
    ) -> None:
        """Enter the reader.

        Args:
            reader: the session's.
            frames: what turns its records into frames.
            before: frames that go out first.
            closed: told that the stream is over, and whether its client left; the reader has ended by then.
        """
        self._reader = reader
        self._frames = frames
        self._before = before
        self._closed = closed
        self._has_left = False
        reader.__enter__()

    async def first(self) -> Chunk:
        """See `Source.first`. What fails here is still an HTTP status."""
        if isinstance(self._frames, ThreadFrames) or self._before:
            return Chunk(self._before)
        return self._chunk(await self._reader.next())

    async def more(self) -> Chunk:
        """See `Source.more`."""
        try:
            while not self._has_left:
                records = await self._reader.next()
                chunk = self._chunk(records)
                if chunk.body or chunk.is_last or not records:
                    return chunk
        except (SessionNotFound, ShuttingDown, StoreUnavailable) as error:
            return Chunk(self._broken(error), is_last=True)
        raise ClientLeft

    def left(self) -> None:
        """See `Source.left`."""
        self._has_left = True
        self._reader.end(ClientLeft())

    def close(self, *, has_left: bool) -> None:
        """See `Source.close`."""
        self._reader.__exit__(None, None, None)
        self._closed(has_left)

    def _chunk(self, records: Sequence[Record]) -> Chunk:
        body = self._frames.take(records)
        return Chunk(body, is_last=isinstance(self._frames, RunFrames) and self._frames.is_over)

    def _broken(self, error: Exception) -> bytes:
        if isinstance(self._frames, ThreadFrames):
            return b""  # the run is not over: the client goes on from its last id
        code, message = BROKEN[type(error)]
        return frame(wire.RunError(message=message, code=code))


class RunStream(Response):
    """A stream of server-sent events that knows at once when its client leaves."""

    def __init__(self, first: Chunk, source: Source) -> None:
        self._first = first
        self._source = source
        self._has_left = False
        self.status_code = 200
        self.background = None
        self.raw_headers = list(STREAM_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        watching = asyncio.create_task(self._watch(receive), name="watch a client")
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            chunk = self._first
            while not chunk.is_last:
                await send({"type": "http.response.body", "body": chunk.body or KEEP_ALIVE, "more_body": True})
                chunk = await self._source.more()
            await send({"type": "http.response.body", "body": chunk.body, "more_body": False})
        except ClientLeft:
            pass
        finally:
            watching.cancel()
            self._source.close(has_left=self._has_left)

    async def _watch(self, receive: Receive) -> None:
        with suppress(asyncio.CancelledError):
            while (await receive())["type"] != "http.disconnect":
                pass
            self._has_left = True
            self._source.left()


def told(*events: wire.Event) -> Response:
    """A stream that is whole already."""
    response = Response(b"".join(map(frame, events)))
    response.raw_headers = [*STREAM_HEADERS, (b"content-length", str(len(response.body)).encode())]
    return response


async def open_stream(source: RunSource) -> RunStream:
    """Open a stream once its first frame is durable: what fails before that is still an HTTP status."""
    try:
        return RunStream(await source.first(), source)
    except BaseException:
        source.close(has_left=False)
        raise
