"""Readers of a session's stream: each at its own pace, none in the way of the run or of another.

A reader that keeps up gets records from memory, and if it can take them in a plain call, in the very moment in which
they became durable (`Reader.push`). One that fell behind, or comes with an old position, reads the log. There is no
queue between the two, so a slow reader costs nothing but its place.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType

from dragoman.core.events import LoggedEvent, RunStopped
from dragoman.core.stream import Cursor, Record, cursor_of, expand
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports.log import EventLog

PAGE = 500
"""Events read from the log at a time. A page ends at the end of a run, where no block is open."""
SILENCE_CHECKS_PER_HEARTBEAT = 8
"""How often in the time of a heartbeat it is looked who has been silent: one timer for all readers."""
FINAL_COMMIT_TIMEOUT_S = 5.0
"""How long a server that stops waits for a slow store before it ends the streams."""

Push = Callable[[Sequence[Record]], bool]
"""Takes records without waiting. False: not now, `Reader.next` is to give them. What it raises, `next` raises."""


class ReaderRegistry:
    """All readers of a server. One that has nothing to give is woken for a heartbeat before `beat_s` seconds pass."""

    def __init__(self, heartbeat_interval_s: float) -> None:
        self._check_interval_s = heartbeat_interval_s / (
            SILENCE_CHECKS_PER_HEARTBEAT + 1
        )  # the first look may come in the very moment in which the silence begins
        self._readers: set[Reader] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._readers)

    def __iter__(self) -> "Iterator[Reader]":
        return iter(tuple(self._readers))

    def add(self, reader: "Reader") -> None:
        """Look after a reader."""
        self._readers.add(reader)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._check_interval_s, self._check_silence)

    def discard(self, reader: "Reader") -> None:
        """Look after it no more."""
        self._readers.discard(reader)
        if not self._readers and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def end(self, why: Exception) -> None:
        """End all, once each could give what has happened: a run's end is written after the run has ended."""
        written = [live.until_durable(live.state.seq) for live in {reader.live for reader in self._readers}]
        with suppress(TimeoutError):
            async with asyncio.timeout(FINAL_COMMIT_TIMEOUT_S):
                await asyncio.gather(*written, return_exceptions=True)  # a session that failed tells its readers itself
        for reader in self:
            reader.end(why)

    def _check_silence(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._check_interval_s, self._check_silence)
        for reader in self._readers:
            reader.on_silence_check()


class Reader:
    """Follows a session from a position. Use it as a context manager: it counts as somebody who watches."""

    __slots__ = (
        "_buffer",
        "_end_reason",
        "_index",
        "_is_heartbeat_due",
        "_log",
        "_readers",
        "_silent_checks",
        "_waiter",
        "cursor",
        "ends_on_drain",
        "live",
        "push",
    )

    def __init__(
        self, live: LiveSession, log: EventLog, after: Cursor, *, readers: ReaderRegistry, ends_on_drain: bool
    ) -> None:
        self.live = live
        self.ends_on_drain = ends_on_drain
        self.cursor = after
        """The position behind the last record given."""
        self.push: Push | None = None
        """What takes the records that become durable while `next` waits, so that no task need be woken for them."""
        self._log = log
        self._readers = readers
        self._end_reason: Exception | None = None
        self._buffer = live.replay_buffer
        self._index: int | None = self._buffer.index_after(after)
        self._waiter: asyncio.Future[None] | None = None
        self._silent_checks = 0
        """How often somebody looked since there was something to give."""
        self._is_heartbeat_due = False
        """Whether it has been silent for so long that `next` returns with nothing."""

    def __enter__(self) -> "Reader":
        self.live.reference_count += 1
        self.live.reader_count += 1
        self._readers.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.live.reference_count -= 1
        self.live.reader_count -= 1
        self._readers.discard(self)
        if self.live.is_idle:
            self._buffer.clear()

    async def next(self) -> Sequence[Record]:
        """The next records, in order; empty after a time of silence, as a sign to send a heartbeat.

        Raises:
            Exception: the session's `failure`, when it was deleted or lost, or what `end` was called with, or what
                `push` raised; all records before were given.
        """
        self._silent_checks = 0
        while True:
            if self._index is None:
                records = await self._read_log()
            else:
                found = self._buffer.records_from(self._index)
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
            why = self.live.failure or self._end_reason
            if why is not None:
                raise why
            await self._wait_for_records()
            if self._is_heartbeat_due:
                self._is_heartbeat_due = False
                return ()

    def receive(self, records: Sequence[Record]) -> None:
        """See `live.Follower`."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            return  # it was woken in this very moment, and reads them itself
        assert self.push is not None, "it follows"
        assert self._index is not None, "it has read what was before"
        try:
            is_taken = self.push(records)
        except Exception as error:  # noqa: BLE001  # a door's fault is its stream's own, not its neighbours'
            self._buffer.remove_follower(self)
            waiter.set_exception(error)
            return
        if not is_taken:
            self.wake()
            return
        self._index += len(records)
        self.cursor = self._buffer.cursor
        self._silent_checks = 0

    def end(self, why: Exception) -> None:
        """Have `next` raise, once it has given what is there."""
        self._end_reason = why
        self.wake()

    def wake(self) -> None:
        """Have `next` look again, if it waits."""
        if self._waiter is not None and not self._waiter.done():
            self._buffer.remove_follower(self)
            self._waiter.set_result(None)

    def on_silence_check(self) -> None:
        """Note that time went by: `LOOKS` times without a record are a silence."""
        self._silent_checks += 1
        if self._silent_checks > SILENCE_CHECKS_PER_HEARTBEAT and self._waiter is not None:
            self._silent_checks = 0
            self._is_heartbeat_due = True
            self.wake()

    async def _wait_for_records(self) -> None:
        """Wait until there is something to give, or a reason not to wait; what `push` takes is neither."""
        buffer = self._buffer
        if self.push is None or self.cursor > buffer.cursor:
            self._waiter = waiter = buffer.next_commit()
        else:
            self._waiter = waiter = asyncio.get_running_loop().create_future()
            buffer.add_follower(self)
        try:
            await waiter
        finally:
            self._waiter = None
            buffer.forget_waker(waiter)  # a session that is silent for a month has many heartbeats
            buffer.remove_follower(self)

    async def _read_log(self) -> Sequence[Record]:
        """The next records from the log. At its end the reader goes on in memory, without a gap."""
        live, after = self.live, self.cursor
        durable, end, open_pieces = self._buffer.cursor, self._buffer.end_index, list(live.durable_pieces())
        events: list[LoggedEvent] = []
        limit = PAGE
        while True:
            page = await self._log.events(live.state.session_id, after.seq, limit)
            events = [logged for logged in page if logged.seq <= durable.seq]
            if len(page) < limit or len(events) < len(page):
                self._index = end
                return expand(events, [piece for piece in open_pieces if cursor_of(piece) <= durable], after)
            whole = _count_to_last_stop(events)
            if whole:
                return expand(events[:whole], (), after)
            limit *= 2


def _count_to_last_stop(events: Sequence[LoggedEvent]) -> int:
    """How many of the events there are up to the last end of the active run, that one included.

    A run that is stopped while it still waits belongs to no run: it ends in the middle of another one's blocks.
    """
    for count in range(len(events), 0, -1):
        logged = events[count - 1]
        if isinstance(logged.event, RunStopped) and logged.run_id == logged.event.run_id:
            return count
    return 0
