"""The event streams of the run service: from a position in a thread on, until nothing comes for too long."""

import asyncio
from collections.abc import Callable, Sequence

from starlette.types import Receive, Scope, Send

from dragoman.core.refusals import SessionNotFound, ShuttingDown, StoreUnavailable
from dragoman.core.stream import Record
from dragoman.engine.sessions.reader import Reader
from dragoman.protocols.agui.run_service.translate import ThreadEvents
from dragoman.protocols.kit.http import Chunk, EventStream

KEEP_ALIVE = b": keep-alive\n\n"
END_CHUNK = Chunk(b"", is_last=True)


class ThreadFrameSource:
    """One client's way through a thread."""

    def __init__(self, reader: Reader, events: ThreadEvents, idle_limit_s: float) -> None:
        self._reader = reader
        self._events = events
        self._idle_limit_s = self._remaining_s = idle_limit_s
        """How long nothing may come: waiting counts, sending to a slow client does not."""

    async def next_chunk(self) -> Chunk:
        """Wait for the next events, for a sign of life, or for the end."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                began = clock()
                async with asyncio.timeout(self._remaining_s):
                    records = await self._reader.next()
                self._remaining_s -= clock() - began
                chunk = self._encode(records)
                if chunk.body or chunk.is_last:
                    return chunk
                if not records:
                    return Chunk(KEEP_ALIVE)
        except (TimeoutError, _ClientDisconnected, SessionNotFound, ShuttingDown, StoreUnavailable):
            return END_CHUNK  # the client comes back with its last id, or finds that the thread is gone

    def on_disconnect(self) -> None:
        """End: nobody reads."""
        self._reader.end(_ClientDisconnected())

    def _encode(self, records: Sequence[Record]) -> Chunk:
        frames: list[bytes] = []
        for record in records:
            frames += [sent.encode_frame() for sent in self._events.feed(record)]
            if self._events.is_over:
                return Chunk(b"".join(frames), is_last=True)
        if frames:
            self._remaining_s = self._idle_limit_s
        return Chunk(b"".join(frames))


class _ClientDisconnected(Exception):
    """The client is gone."""


class _DisconnectAwareStream(EventStream):
    """A stream that notices at once when its client leaves: the places of a user are few."""

    def __init__(self, first: Chunk, source: ThreadFrameSource, close: Callable[[], None]) -> None:
        super().__init__(first, source.next_chunk, close)
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See `EventStream`."""
        watch = asyncio.create_task(_wait_for_disconnect(receive), name="watch a stream's client")
        watch.add_done_callback(lambda _: self._source.on_disconnect())
        try:
            await super().__call__(scope, receive, send)
        finally:
            watch.cancel()
            await asyncio.wait({watch})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def open_stream(reader: Reader, events: ThreadEvents, idle_limit_s: float, release: Callable[[], None]) -> EventStream:
    """A stream of a thread's events as an answer. `release` gives its place back, however it ends."""
    reader.__enter__()

    def close() -> None:
        reader.__exit__(None, None, None)
        release()

    return _DisconnectAwareStream(Chunk(KEEP_ALIVE), ThreadFrameSource(reader, events, idle_limit_s), close)
