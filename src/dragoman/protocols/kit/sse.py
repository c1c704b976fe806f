"""Streams of server-sent events: one write path from a session's reader to a client, for every protocol.

    open ──► send             the first frames, with the headers
    commit ──► push           while the client keeps up: what became durable is written in the commit's own call, and
                              no task is woken
    next records ──► send     after a silence, for a client that reads slowly, and for what is read from the log

A protocol gives a `FrameEncoder`: what one record of the session's stream becomes on the wire.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Self

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dragoman.core.refusals import SessionNotFound, ShuttingDown, StoreUnavailable, Unauthenticated
from dragoman.core.stream import Cursor, Record
from dragoman.engine.sessions.reader import Reader
from dragoman.protocols.kit.connection import ResponsePipe, pipe_of, watch_disconnect
from dragoman.protocols.kit.frame_encoder import Chunk, FrameEncoder, encode_records
from dragoman.protocols.kit.shared_frames import SharedFrames

STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_NO_ACCESS = Unauthenticated("the API key or token is no longer valid; the run continues")


class EventStream(Response):
    """An answer that follows a session. It only reads: a client that leaves ends this stream and nothing else.

    Args:
        reader: from the position where the stream begins. It is entered here and left when the stream ends.
        encoder: makes the frames.
        share: what the frames depend on besides the records. Streams of a session whose encoders are of one type, were
            fed nothing yet and have an equal `share`, share what they read of the log. None: not shared.
        on_close: called once, however the stream ends, with whether the client disconnected; also if opening fails.
        idle_limit_s: ends the stream after so many seconds without a frame; None never does.
    """

    def __init__(
        self,
        reader: Reader,
        encoder: FrameEncoder,
        *,
        share: Hashable = None,
        on_close: Callable[[bool], None] = lambda _: None,
        idle_limit_s: float | None = None,
    ) -> None:
        self._reader = reader
        self._encoder = encoder
        self._shared = None if share is None else SharedFrames(encoder, share)
        """The frames of the log; None from when the stream is the only one that uses its encoder."""
        self._first = Chunk(b"")
        """What is sent with the headers."""
        self._last: Chunk | None = None
        """The last chunk, if it was encoded in a commit's call, which cannot end the answer: `send` does."""
        self._on_close = on_close
        self._idle_limit_s = self._idle_left_s = idle_limit_s
        self._pipe: ResponsePipe | None = None
        self._has_left = False
        self.status_code = 200
        self.background = None
        self.raw_headers = list(STREAM_HEADERS)
        reader.__enter__()

    async def open(self, before: bytes | None = None) -> Self:
        """Prepare what is sent with the headers: these frames, or those of the first records.

        Until the first records are there, a failure is still an HTTP error.
        """
        if before is not None:
            self._first = Chunk(before)
            return self
        try:
            self._first = self._encode(await self._reader.next())
        except BaseException:
            self._close()
            raise
        return self

    async def resume(self, up_to: Cursor, check_position: Callable[[FrameEncoder], None]) -> Self:
        """Prepare the first frame that the client has not seen. The encoder skips those that it has seen.

        The run is played once: up to that frame, or to the last durable record.

        Args:
            up_to: the last durable position. The reader is at the beginning of the run.
            check_position: called with the encoder if no frame follows; raises if the client claims to have seen more
                than there is.
        """
        chunk = Chunk(b"", is_last=self._encoder.is_over)
        try:
            while (self._reader.cursor < up_to or self._reader.is_in_page) and not (chunk.body or chunk.is_last):
                chunk = self._encode(await self._reader.next())
            if not chunk.body:
                check_position(self._own_encoder())
        except BaseException:
            self._close()
            raise
        self._first = chunk
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request; a HEAD with the headers alone."""
        end_watch: Callable[[], object] | None = None
        try:
            if scope["method"] == "HEAD":
                self._first = Chunk(b"", is_last=True)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            end_watch = watch_disconnect(scope, receive, self._client_left)
            if self._idle_limit_s is None and (pipe := pipe_of(scope)) is not None:
                self._pipe = pipe
                self._reader.push = self._push
            scope["headers"].clear()  # a stream may stay open for hours, and these weigh more than the rest of it
            scope.pop("indexed_headers", None)
            self.raw_headers.clear()
            chunk, self._first = self._first, Chunk(b"")
            while not chunk.is_last:
                await send({"type": "http.response.body", "body": chunk.body, "more_body": True})
                del chunk
                try:
                    chunk = await self._next_chunk()
                except asyncio.CancelledError:  # if the key was revoked, the client has everything but the reason
                    if not self._reader.is_in_page:
                        scope["revocation_frame"] = self._own_encoder().close(_NO_ACCESS)
                    raise
            await send({"type": "http.response.body", "body": chunk.body, "more_body": False})
        except ClientDisconnect:
            pass
        finally:
            if end_watch is not None:
                end_watch()
            self._close()

    def _close(self) -> None:
        self._reader.__exit__(None, None, None)
        self._reader.push = self._pipe = None  # breaks the reference cycle with the reader
        self._on_close(self._has_left)

    async def _next_chunk(self) -> Chunk:
        """Wait for something to write. Raises ClientDisconnect."""
        try:
            while True:
                if self._has_left:
                    raise ClientDisconnect
                left_s = self._idle_left_s
                records = await (self._reader.next() if left_s is None else self._next_within(left_s))
                if self._last is not None:  # these records are the ones that it was made of
                    return self._last
                if not records:
                    encoder = self._own_encoder()
                    return Chunk(encoder.keep_alive, encoder.is_over)
                chunk = self._encode(records)
                if chunk.body or chunk.is_last:
                    self._idle_left_s = self._idle_limit_s
                    return chunk
        except (SessionNotFound, ShuttingDown, StoreUnavailable) as error:
            return self._last or Chunk(self._own_encoder().close(error), is_last=True)
        except TimeoutError:
            return Chunk(b"", is_last=True)

    async def _next_within(self, left_s: float) -> Sequence[Record]:
        """The next records, if they come in time. Waiting counts as silence, sending to a slow client does not."""
        clock = asyncio.get_running_loop().time
        started_at = clock()
        async with asyncio.timeout(left_s):
            records = await self._reader.next()
        self._idle_left_s = left_s - (clock() - started_at)
        return records

    def _encode(self, records: Sequence[Record]) -> Chunk:
        part = self._reader.page_part
        if self._shared is not None and part is not None:
            return self._shared.chunk(part)
        return Chunk(*encode_records(self._own_encoder(), records))

    def _own_encoder(self) -> FrameEncoder:
        """The encoder, which is shared no longer. Not inside a page of the log."""
        if self._shared is not None:
            self._encoder, self._shared = self._shared.own_encoder(), None
        return self._encoder

    def _push(self, records: Sequence[Record]) -> bool:
        """Write records in the commit's own call. Returns False if `send` has to continue."""
        pipe = self._pipe
        assert pipe is not None, "set together with the reader's `push`"
        if not pipe.is_ready():
            return False
        encoder = self._encoder if self._shared is None else self._own_encoder()
        body, is_last = encode_records(encoder, records)
        if is_last:
            self._last = Chunk(body, is_last=True)
            return False
        if body:
            pipe.write(body)
        return True

    def _client_left(self) -> None:
        self._has_left = True
        self._reader.end(ClientDisconnect())


def fixed_stream(body: bytes) -> Response:
    """Return frames that are all known as an event stream."""
    response = Response(body)
    response.raw_headers = [*STREAM_HEADERS, (b"content-length", b"%d" % len(body))]
    return response
