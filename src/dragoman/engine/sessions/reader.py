"""Readers of a session's stream, each at its own pace. None delays the run or another reader.

A reader that keeps up takes records from memory. If it can take them in a plain call (`Reader.push`), it gets them at
the moment at which they become durable. A reader that fell behind, or starts at an old position, reads the log. There
is no queue in between, so a slow reader costs no memory.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from types import TracebackType

from dragoman.core.internal_calls import without_internal_calls
from dragoman.core.stream import Cursor, Record, cursor_of
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.log_pages import LogPage, LogPages, PagePart

STEP_RECORDS = 100
"""Records that a lagging reader gets at a time: encoding them takes a few milliseconds."""
SILENCE_CHECKS_PER_HEARTBEAT = 8
"""How often all readers are checked for silence within one heartbeat interval, with one timer."""
READERS_PER_CHECK = 25
"""How many of them are checked in one iteration of the event loop: the heartbeat of each takes some 40 µs."""
FINAL_COMMIT_TIMEOUT_S = 5.0
"""How long a stopping server waits for its store before it ends the streams."""

Push = Callable[[Sequence[Record]], bool]
"""Takes records without waiting. False: `Reader.next` must return them. `next` raises what it raises."""


class ReaderRegistry:
    """All readers of a server. A silent one is woken for a heartbeat before the interval has passed."""

    def __init__(self, heartbeat_interval_s: float) -> None:
        self.check_interval_s = heartbeat_interval_s / (
            SILENCE_CHECKS_PER_HEARTBEAT + 1
        )  # the first check may come at the moment at which the silence begins
        self._readers: set[Reader] = set()
        self._turn = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._end_reason: Exception | None = None

    def __len__(self) -> int:
        return len(self._readers)

    def __iter__(self) -> "Iterator[Reader]":
        return iter(tuple(self._readers))

    def add(self, reader: "Reader") -> None:
        """Add a reader. One that comes after the end, of a client that connects again, ends with what is durable."""
        self._readers.add(reader)
        if self._end_reason is not None:
            reader.end(self._end_reason)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.check_interval_s, self._check_silence)

    def discard(self, reader: "Reader") -> None:
        """Remove a reader."""
        self._readers.discard(reader)
        if not self._readers and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def wait_for_turn(self) -> None:
        """Let all other tasks run before a lagging reader gets its next records.

        One such reader continues per iteration of the event loop, however many there are.
        """
        async with self._turn:
            await asyncio.sleep(0)

    async def end(self, why: Exception) -> None:
        """End all readers after what has happened is durable: the end of a run is written after the run."""
        written = [live.until_durable(live.state.seq) for live in {reader.live for reader in self._readers}]
        with suppress(TimeoutError):
            async with asyncio.timeout(FINAL_COMMIT_TIMEOUT_S):
                await asyncio.gather(*written, return_exceptions=True)  # readers raise a failed session's error
        self._end_reason = why
        for reader in self:
            reader.end(why)

    def _check_silence(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.check_interval_s, self._check_silence)
        self._check_next(iter(self))

    def _check_next(self, readers: "Iterator[Reader]") -> None:
        """Check the next readers, and the rest after everything else that is ready."""
        some = tuple(islice(readers, READERS_PER_CHECK))
        for reader in some:
            reader.on_silence_check()
        if some:
            asyncio.get_running_loop().call_soon(self._check_next, readers)


class Reader:
    """Follows a session from a position. Use it as a context manager, during which it counts as a reader."""

    __slots__ = (
        "_buffer",
        "_end_reason",
        "_index",
        "_is_heartbeat_due",
        "_offset",
        "_page",
        "_pages",
        "_readers",
        "_silent_checks",
        "_waiter",
        "cursor",
        "ends_on_drain",
        "live",
        "page_part",
        "push",
    )

    def __init__(
        self, live: LiveSession, pages: LogPages, after: Cursor, *, readers: ReaderRegistry, ends_on_drain: bool
    ) -> None:
        self.live = live
        self.ends_on_drain = ends_on_drain
        self.cursor = after
        """The position after the last record returned."""
        self.push: Push | None = None
        """Takes records that become durable while `next` waits, so that no task has to be woken."""
        self.page_part: PagePart | None = None
        """What `next` returned last, if it was read from the log."""
        self._pages = pages
        self._page: asyncio.Task[LogPage] | None = None
        """The page of the log that is being returned, from record `_offset` on."""
        self._offset = 0
        self._readers = readers
        self._end_reason: Exception | None = None
        self._buffer = live.replay_buffer
        self._index: int | None = self._buffer.index_after(after)
        self._waiter: asyncio.Future[None] | None = None
        self._silent_checks = 0
        """Number of silence checks since the last record."""
        self._is_heartbeat_due = False
        """Whether `next` must return without records."""

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
        """Return the next records in order; none after a time of silence, when a heartbeat is due, or after `nudge`.

        Raises:
            Exception: as `LiveSession.raise_if_ended`, the argument of `end`, or what `push` raised; all earlier
                records have been returned.
        """
        self._silent_checks = 0
        self.page_part = None
        while True:
            index = self._index
            records = await self._next_from_log() if index is None else self._next_from_memory(index)
            if records:
                self.cursor = cursor_of(records[-1])
                return records if index is None else without_internal_calls(records)
            if self._index is None:
                continue
            self.live.raise_if_ended()
            if self._end_reason is not None:
                raise self._end_reason
            if not self._is_heartbeat_due:
                await self._wait_for_records()
            if self._is_heartbeat_due:
                self._is_heartbeat_due = False
                return ()

    @property
    def is_in_page(self) -> bool:
        """Whether `next` returns another part of the same page of the log, without waiting for anything to happen."""
        return self._page is not None

    def receive(self, records: Sequence[Record]) -> None:
        """Pass records to `push`, or wake `next`."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            return  # it has just been woken, and reads them itself
        assert self.push is not None, "it follows"
        assert self._index is not None, "it has read what was before"
        try:
            is_taken = self.push(records)
        except Exception as error:  # noqa: BLE001  # a protocol's error ends its own stream only
            self._buffer.remove_follower(self)
            waiter.set_exception(error)
            del waiter  # breaks the reference cycle through the error's traceback
            return
        if not is_taken:
            self.wake()
            return
        self._index += len(records)
        self.cursor = self._buffer.cursor
        self._silent_checks = 0

    def end(self, why: Exception) -> None:
        """Have `next` raise after it has returned all records."""
        self._end_reason = why
        self.wake()

    def nudge(self) -> None:
        """Have `next` return now, without records if there are none: a stream has something else to send."""
        self._is_heartbeat_due = True
        self.wake()

    def wake(self) -> None:
        """Wake `next` if it waits."""
        if self._waiter is not None and not self._waiter.done():
            self._buffer.remove_follower(self)
            self._waiter.set_result(None)

    def on_silence_check(self) -> None:
        """Count a check; `SILENCE_CHECKS_PER_HEARTBEAT` checks without a record make a heartbeat due."""
        self._silent_checks += 1
        if self._silent_checks > SILENCE_CHECKS_PER_HEARTBEAT and self._waiter is not None:
            self._silent_checks = 0
            self._is_heartbeat_due = True
            self.wake()

    async def _wait_for_records(self) -> None:
        """Wait until there are records that `push` does not take, or until woken."""
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
            buffer.forget_waker(waiter)  # a silent session has many heartbeats
            buffer.remove_follower(self)
            del waiter  # as in `receive`

    def _next_from_memory(self, index: int) -> Sequence[Record]:
        """Take the next records from memory. If it no longer has them, the reader continues from the log."""
        found = self._buffer.records_from(index)
        self._index = None if found is None else index + len(found)
        if found and cursor_of(found[0]) <= self.cursor:  # the given position was not durable yet
            return found[bisect_right(found, self.cursor, key=cursor_of) :]
        return found or ()

    async def _next_from_log(self) -> Sequence[Record]:
        """Read the next records from the log. At its end the reader continues from memory without a gap."""
        if self._page is None:
            self._page, self._offset = await self._pages.read(self.live, self.cursor), 0
        page, start = self._page.result(), self._offset
        if len(page.records) > STEP_RECORDS:
            await self._readers.wait_for_turn()
        self._offset = end = start + STEP_RECORDS
        if end >= len(page.records):
            self._page, self._index = None, page.next_index
        records = page.records[start:end]
        if records:
            self.page_part = PagePart(page, start // STEP_RECORDS, records)
        return records
