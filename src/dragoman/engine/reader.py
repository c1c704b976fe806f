"""Readers of a session's stream: each at its own pace, none in the way of the run or of another.

A reader that keeps up takes records from memory; one that fell behind, or comes with an old position, reads the log.
There is no queue between the two, so a slow reader costs nothing but its place.
"""

import asyncio
from collections.abc import Sequence
from types import TracebackType

from dragoman.core.events import Logged, RunStopped
from dragoman.core.stream import Cursor, Record, cursor_of, expand
from dragoman.engine.live import LiveSession
from dragoman.ports import EventLog

PAGE = 500
"""Events read from the log at a time. A page ends at the end of a run, where no block is open."""


class Reader:
    """Follows a session from a position. Use it as a context manager: it counts as somebody who watches."""

    def __init__(
        self,
        live: LiveSession,
        log: EventLog,
        after: Cursor,
        *,
        readers: "set[Reader]",
        beat_s: float,
        ends_on_drain: bool,
    ) -> None:
        self.live = live
        self.ends_on_drain = ends_on_drain
        self.cursor = after
        """The position behind the last record given."""
        self._log = log
        self._readers = readers
        self._end: Exception | None = None
        self._index: int | None = live.index_after(after)
        self._beat_s = beat_s
        self._waiting: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._quiet_since = 0.0

    def __enter__(self) -> "Reader":
        self.live.holds += 1
        self.live.readers += 1
        self._readers.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.live.holds -= 1
        self.live.readers -= 1
        self._readers.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self.live.is_idle:
            self.live.forget_records()

    async def next(self) -> Sequence[Record]:
        """The next records, in order; empty after `beat_s` seconds of silence, as a sign to send a heartbeat.

        Raises:
            Exception: the session's `failure`, when it was deleted or lost, or what `end` was called with; all records
                before were given.
        """
        loop = asyncio.get_running_loop()
        self._quiet_since = loop.time()
        while True:
            if self._index is None:
                records = await self._read_log()
            else:
                found = self.live.records_from(self._index)
                if found is None:
                    self._index = None
                    continue
                self._index += len(found)
                records = found
                if found and cursor_of(found[0]) <= self.cursor:  # the position was not durable yet when it was given
                    records = [record for record in found if cursor_of(record) > self.cursor]
            if records:
                self.cursor = cursor_of(records[-1])
                return records
            if self._index is None:
                continue
            why = self.live.failure or self._end
            if why is not None:
                raise why
            if loop.time() - self._quiet_since >= self._beat_s:
                return ()
            self._waiting = waker = self.live.next_commit()
            if self._timer is None:
                self._timer = loop.call_later(self._beat_s, self._beat)
            try:
                await waker
            finally:
                self.live.forget_waker(waker)  # a session that is silent for a month has many heartbeats

    def end(self, why: Exception) -> None:
        """Have `next` raise, once it has given what is there."""
        self._end = why
        self._look()

    def _look(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _beat(self) -> None:
        """Wake the reader when it has been quiet for long enough. One timer a reader, not one a record."""
        loop = asyncio.get_running_loop()
        quiet_s = loop.time() - self._quiet_since
        if quiet_s >= self._beat_s:
            self._timer = None
            self._look()
        else:
            self._timer = loop.call_later(self._beat_s - quiet_s, self._beat)

    async def _read_log(self) -> Sequence[Record]:
        """The next records from the log. At its end the reader goes on in memory, without a gap."""
        live, after = self.live, self.cursor
        durable, end, open_pieces = live.durable, live.ring_end, list(live.durable_pieces())
        events: list[Logged] = []
        limit = PAGE
        while True:
            page = await self._log.events(live.state.session_id, after.seq, limit)
            events = [logged for logged in page if logged.seq <= durable.seq]
            if len(page) < limit or len(events) < len(page):
                self._index = end
                return expand(events, [piece for piece in open_pieces if cursor_of(piece) <= durable], after)
            whole = _last_stop(events)
            if whole:
                return expand(events[:whole], (), after)
            limit *= 2


def _last_stop(events: Sequence[Logged]) -> int:
    """How many of the events there are up to the last end of the active run, that one included.

    A run that is stopped while it still waits belongs to no run: it ends in the middle of another one's blocks.
    """
    for count in range(len(events), 0, -1):
        logged = events[count - 1]
        if isinstance(logged.event, RunStopped) and logged.run_id == logged.event.run_id:
            return count
    return 0
