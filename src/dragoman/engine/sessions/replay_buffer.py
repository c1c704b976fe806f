"""What readers may see of a session: its newest durable records, and who waits for the next ones."""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from dragoman.core.internal_calls import without_internal_calls
from dragoman.core.stream import Cursor, Record, cursor_of
from dragoman.engine.sessions.outbox import OpenBlock

MAX_RECORDS = 1024
"""Records kept for readers that follow live; a reader that falls further behind reads the log."""
MAX_BYTES = 1024 * 1024
"""Size limit of those records, in their stored form."""


class Follower(Protocol):
    """A reader that has seen everything and takes the next records at the moment at which they become durable."""

    def receive(self, records: Sequence[Record]) -> None:
        """Take the next records, as clients may see them. Must not raise."""

    def wake(self) -> None:
        """The session failed."""


class ReplayBuffer:
    """The newest durable records of a session, numbered from when the session was loaded."""

    __slots__ = ("_bytes", "_first_index", "_records", "_start", "closing_blocks", "cursor", "followers", "wakers")

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        """The position of the last durable record."""
        self.closing_blocks: list[tuple[int, OpenBlock]] = []
        """Blocks of which readers have seen pieces, with the event that closes each and is not durable yet."""
        self._records: list[Record] = []
        self._bytes = 0
        self._first_index = 0
        """The number of the first record kept."""
        self._start = cursor
        """The position before the first record kept."""
        self.wakers: dict[asyncio.Future[None], None] = {}
        """Who waits for the next commit."""
        self.followers: dict[Follower, None] = {}
        """Who takes records as soon as they are durable, in the order in which they came."""

    def publish(self, records: list[Record], size: int) -> None:
        """Show records, which follow all before, to the readers. `size` is their stored size in bytes."""
        self.cursor = cursor = cursor_of(records[-1])
        if self.closing_blocks:
            self.closing_blocks = [each for each in self.closing_blocks if each[0] > cursor.seq]
        self._records.extend(records)
        self._bytes += size
        if len(self._records) > 2 * MAX_RECORDS or self._bytes > 2 * MAX_BYTES:
            self._trim()
        if self.wakers:
            self._wake_waiting()
        if self.followers:
            shown = without_internal_calls(records)
            for follower in tuple(self.followers):  # one that wakes its reader stops following
                follower.receive(shown)

    def _trim(self) -> None:
        """Drop the older half of the records, or all if the newest alone are too large."""
        count = len(self._records)
        dropped = count - MAX_RECORDS if self._bytes <= 2 * MAX_BYTES else count
        self._bytes = 0 if dropped == count else self._bytes * MAX_RECORDS // count
        self._start = cursor_of(self._records[dropped - 1])
        self._records = self._records[dropped:]
        self._first_index += dropped

    def clear(self) -> None:
        """Drop all records, so that readers read the log."""
        self._first_index += len(self._records)
        self._records, self._bytes, self._start = [], 0, self.cursor

    # --- by position ----------------------------------------------------------------------------------------------

    @property
    def end_index(self) -> int:
        """The number of the next record."""
        return self._first_index + len(self._records)

    def records_from(self, index: int) -> list[Record] | None:
        """The records from number `index` on; None if they are no longer kept."""
        start = index - self._first_index
        return None if start < 0 else self._records[start:]

    def index_after(self, cursor: Cursor) -> int | None:
        """The number of the first record after a position; None if it is no longer kept."""
        if cursor < self._start:
            return None
        return self._first_index + bisect_right(self._records, cursor, key=cursor_of)

    # --- waiting --------------------------------------------------------------------------------------------------

    def next_commit(self) -> "asyncio.Future[None]":
        """Return a future that completes when records become durable or the session fails."""
        waker = asyncio.get_running_loop().create_future()
        self.wakers[waker] = None
        return waker

    def forget_waker(self, waker: "asyncio.Future[None]") -> None:
        """Drop a future of `next_commit` that nobody awaits any more."""
        self.wakers.pop(waker, None)

    def add_follower(self, follower: Follower) -> None:
        """Pass all further records to a follower."""
        self.followers[follower] = None

    def remove_follower(self, follower: Follower) -> None:
        """Stop passing records to a follower. Does nothing if it does not follow."""
        self.followers.pop(follower, None)

    def wake_all(self) -> None:
        """Wake everybody who waits: the session failed."""
        self._wake_waiting()
        for follower in tuple(self.followers):
            follower.wake()

    def _wake_waiting(self) -> None:
        wakers, self.wakers = self.wakers, {}
        for waker in wakers:
            if not waker.done():
                waker.set_result(None)
