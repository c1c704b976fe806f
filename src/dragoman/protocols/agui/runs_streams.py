"""The event streams of the run service: from a position in a thread on, until nothing comes for too long."""

import asyncio
from collections.abc import Callable, Sequence

from dragoman.core.refusals import SessionNotFound, ShuttingDown, StoreUnavailable
from dragoman.core.stream import Record
from dragoman.engine.reader import Reader
from dragoman.protocols._http import Chunk, EventStream
from dragoman.protocols.agui.runs_translate import ThreadEvents

KEEP_ALIVE = b": keep-alive\n\n"
END = Chunk(b"", is_last=True)


class Following:
    """One client's way through a thread."""

    def __init__(self, reader: Reader, events: ThreadEvents, idle_limit_s: float) -> None:
        self._reader = reader
        self._events = events
        self._idle_limit_s = idle_limit_s
        self._idle_at = asyncio.get_running_loop().time() + idle_limit_s

    async def next(self) -> Chunk:
        """Wait for the next events, for a sign of life, or for the end."""
        try:
            while True:
                async with asyncio.timeout_at(self._idle_at):
                    records = await self._reader.next()
                chunk = self._told(records)
                if chunk.body or chunk.is_last:
                    return chunk
                if not records:
                    return Chunk(KEEP_ALIVE)
        except (TimeoutError, SessionNotFound, ShuttingDown, StoreUnavailable):
            return END  # the client comes back with its last id, or finds that the thread is gone

    def _told(self, records: Sequence[Record]) -> Chunk:
        frames: list[bytes] = []
        for record in records:
            frames += [sent.frame() for sent in self._events.feed(record)]
            if self._events.is_over:
                return Chunk(b"".join(frames), is_last=True)
        if frames:
            self._idle_at = asyncio.get_running_loop().time() + self._idle_limit_s
        return Chunk(b"".join(frames))


def open_stream(reader: Reader, events: ThreadEvents, idle_limit_s: float, release: Callable[[], None]) -> EventStream:
    """A stream of a thread's events as an answer. `release` gives its place back, however it ends."""
    reader.__enter__()

    def close() -> None:
        reader.__exit__(None, None, None)
        release()

    return EventStream(Chunk(KEEP_ALIVE), Following(reader, events, idle_limit_s).next, close)
