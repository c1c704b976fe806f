"""Pages of a session's stream, read from the log for readers that start at an old position or fell behind.

Readers that need the same page at about the same time share it: if a thousand clients reconnect to one session, its log
is read once.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

from dragoman.core.events import LoggedEvent, RunStopped
from dragoman.core.internal_calls import without_internal_calls
from dragoman.core.refusals import SessionNotFound
from dragoman.core.stream import Cursor, Record, cursor_of, expand
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports.log import EventLog

PAGE_EVENTS = 500
"""Events read from the log at a time. A page ends at the end of a run, where no block is open."""
PAGE_PIECES = 2000
"""Pieces of open blocks in a page."""


class LogPage(NamedTuple):
    """Records in order, as clients may see them.

    Record `next_index` of the replay buffer follows them or, if that is None, the next page. `derived` caches what
    readers derive from the records and share, such as frames.
    """

    records: Sequence[Record]
    next_index: int | None
    derived: dict[Hashable, object]


class PagePart(NamedTuple):
    """Some records of a page, which is divided in the same way for all readers."""

    page: LogPage
    number: int
    """Counts the parts of the page from 0."""
    records: Sequence[Record]


class LogPages:
    """Reads pages."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._reads: WeakValueDictionary[tuple[LiveSession, Cursor], asyncio.Task[LogPage]] = WeakValueDictionary()
        """The reads under way, and those whose page a reader still has."""

    async def read(self, live: LiveSession, after: Cursor) -> "asyncio.Task[LogPage]":
        """Read the page that begins after a position. It is shared as long as somebody keeps the task.

        Raises:
            Exception: as `LiveSession.raise_if_ended`, `SessionNotFound` or what the store raised.
        """
        task = self._reads.get((live, after))
        if task is None or (task.done() and task.exception() is not None):
            task = asyncio.create_task(self._read(live, after), name="read a page of the log")
            self._reads[live, after] = task
        await asyncio.shield(task)
        return task

    async def _read(self, live: LiveSession, after: Cursor) -> LogPage:
        buffer = live.replay_buffer
        durable, end = buffer.cursor, buffer.end_index
        open_pieces, is_complete = live.durable_pieces(after, PAGE_PIECES)
        limit = PAGE_EVENTS
        while True:
            page = await self._log.events(live.state.session_id, after.seq, limit)
            events = [logged for logged in page if logged.seq <= durable.seq]
            if len(page) < limit and (page[-1].seq if page else after.seq) < durable.seq:
                live.raise_if_ended()
                raise SessionNotFound("the session was deleted")  # what follows would leave a gap
            if len(page) < limit or len(events) < len(page):
                records = expand(events, open_pieces, after)
                if is_complete:
                    return _page(records, end)
                return _page(records[: bisect_right(records, cursor_of(open_pieces[-1]), key=cursor_of)], None)
            whole = _count_to_last_stop(events)
            if whole:
                return _page(expand(events[:whole], (), after), None)
            limit *= 2


def _page(records: Sequence[Record], next_index: int | None) -> LogPage:
    return LogPage(without_internal_calls(records), next_index, {})


def _count_to_last_stop(events: Sequence[LoggedEvent]) -> int:
    """Count the events up to and including the last end of an active run.

    The end of a run that was still queued does not count: another run's blocks may be open there.
    """
    for count in range(len(events), 0, -1):
        logged = events[count - 1]
        if isinstance(logged.event, RunStopped) and logged.run_id == logged.event.run_id:
            return count
    return 0
