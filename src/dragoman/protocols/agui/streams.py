"""Streams of runs: one run to its end, or a thread's runs one after the other. They end when their client leaves."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from dragoman.core.refusals import SessionNotFound, ShuttingDown, StoreUnavailable
from dragoman.core.stream import Record
from dragoman.engine.sessions.reader import Reader
from dragoman.protocols.agui import events as wire
from dragoman.protocols.agui.frames import KEEP_ALIVE, RunFrames, ThreadFrames, encode_frame
from dragoman.protocols.kit.http import PUSH_EXTENSION, STREAM_HEADERS, Chunk, EventStream, LiveSource, ResponsePipe

STREAM_ERRORS: dict[type[Exception], tuple[str, str]] = {
    SessionNotFound: ("thread_deleted", "The thread was deleted"),
    ShuttingDown: ("shutting_down", "The server restarts; the answer goes on, and is there when it is back"),
    StoreUnavailable: ("unavailable", "The server cannot read its store now; the answer goes on"),
}
"""What ends a stream before its run: the code and the sentence of its RUN_ERROR."""


REVOKED_FRAME = encode_frame(
    wire.RunError(message="The key of this stream is not valid any more; the answer goes on", code="unauthorized")
)
"""What ends the stream of a run when its key is revoked: clients take a stream without an end for a whole answer."""


class ClientDisconnected(Exception):
    """Nobody reads the stream any more."""


class RunSource:
    """The frames of a run that a reader follows, after what is told before them."""

    def __init__(
        self,
        reader: Reader,
        frames: RunFrames | ThreadFrames,
        *,
        preamble: bytes = b"",
        on_close: Callable[[bool], None] = lambda has_left: None,
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
        self._preamble = preamble
        self._on_close = on_close
        self.has_disconnected = False
        reader.__enter__()

    async def first_chunk(self) -> Chunk:
        """What goes out with the headers. What fails here is still an HTTP status."""
        if isinstance(self._frames, ThreadFrames) or self._preamble:
            return Chunk(self._preamble)
        return self._encode(await self._reader.next())

    async def next_chunk(self) -> Chunk:
        """What goes out next. Raises ClientLeft."""
        try:
            while not self.has_disconnected:
                records = await self._reader.next()
                if not records:
                    return Chunk(KEEP_ALIVE)
                chunk = self._encode(records)
                if chunk.body or chunk.is_last:
                    return chunk
        except (SessionNotFound, ShuttingDown, StoreUnavailable) as error:
            return Chunk(self._error_frame(error), is_last=True)
        raise ClientDisconnected

    @property
    def live_source(self) -> LiveSource:
        """How it goes on while the reader keeps up."""
        return LiveSource(self._reader, self._encode)

    def on_disconnect(self) -> None:
        """The client has left: let `more` end at once."""
        self.has_disconnected = True
        self._reader.end(ClientDisconnected())

    def close(self) -> None:
        """The stream is over. Called once."""
        self._reader.__exit__(None, None, None)
        self._on_close(self.has_disconnected)

    def _encode(self, records: Sequence[Record]) -> Chunk:
        body = self._frames.encode(records)
        return Chunk(body, is_last=isinstance(self._frames, RunFrames) and self._frames.is_over)

    def _error_frame(self, error: Exception) -> bytes:
        if isinstance(self._frames, ThreadFrames):
            return b""  # the run is not over: the client goes on from its last id
        code, message = STREAM_ERRORS[type(error)]
        return encode_frame(wire.RunError(message=message, code=code))


class RunStream(EventStream):
    """A stream of server-sent events that knows at once when its client leaves."""

    def __init__(self, first: Chunk, source: RunSource) -> None:
        super().__init__(first, source.next_chunk, source.close, source.live_source)
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        pipe: ResponsePipe | None = scope.get("extensions", {}).get(PUSH_EXTENSION)
        if pipe is not None:  # as our own server has it: no second task is needed to watch
            pipe.on_disconnect(self._source.on_disconnect)
            with suppress(ClientDisconnected):
                await super().__call__(scope, _receive_nothing, send)
            return
        watching = asyncio.create_task(self._wait_for_disconnect(receive), name="watch a client")
        try:
            with suppress(ClientDisconnected):
                await super().__call__(scope, _receive_nothing, send)
        finally:
            watching.cancel()

    async def _wait_for_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._source.on_disconnect()


async def _receive_nothing() -> Message:
    """What the client sends to a stream: nothing; that it leaves is watched elsewhere."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("it is waited for until it is cancelled")


def complete_stream(*events: wire.Event) -> Response:
    """A stream that is whole already."""
    response = Response(b"".join(map(encode_frame, events)))
    response.raw_headers = [*STREAM_HEADERS, (b"content-length", str(len(response.body)).encode())]
    return response


async def open_stream(source: RunSource) -> RunStream:
    """Open a stream once its first frame is durable: what fails before that is still an HTTP status."""
    try:
        return RunStream(await source.first_chunk(), source)
    except BaseException:
        source.close()
        raise
