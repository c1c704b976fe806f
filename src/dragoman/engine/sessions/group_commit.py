"""Group commit: the writes of all sessions are committed together, and published to readers only afterwards.

A write after a pause is committed at once. Writes within a window since the start of the last commit, or during a
commit, share the next one. So an idle server adds the latency of one commit, and a busy one shares its commits among
all sessions. The window grows with the number of sessions in the last commit.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from dragoman.core.refusals import StoreUnavailable
from dragoman.ports.log import Append, EventLog

WINDOW_S = 0.002
LOOP_TURNS_BEFORE_FIRST_COMMIT = 3
"""Event loop iterations before the commit of a run's start, so that the run's first deltas share that commit. Only what
is ready runs in them, and later deltas are not delayed."""
SESSIONS_THAT_DOUBLE_WINDOW = 16
"""This number of sessions in a commit doubles the next window; twice as many make it five times as wide. A commit costs
as much CPU as the deltas of some forty sessions, but a few sessions should not wait for each other."""
MAX_WINDOW_FACTOR = 5
"""Upper limit of the window, as a multiple of the base window."""

log = structlog.get_logger(__name__)


class Writable(Protocol):
    """A session with something to write."""

    @property
    def starts_run(self) -> bool:
        """Whether a run starts with what is to be written."""

    def collect(self) -> Sequence[Append]:
        """Return the appends to be written, if any. The first of several creates the session; the last decides."""

    def publish(self) -> None:
        """Publish what was collected last: it is durable."""

    def fail(self, error: Exception) -> None:
        """End the session object: what was collected last was not written and never will be."""


class GroupCommitter:
    """Writes the logs of all sessions."""

    def __init__(
        self, log: EventLog, *, window_s: float = WINDOW_S, on_commit: Callable[[Sequence[Append]], None]
    ) -> None:
        self._on_commit = on_commit
        self._log = log
        self._window_s = window_s
        self._pending: list[Writable] = []
        self._wakeup: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def start(self) -> None:
        """Start committing."""
        self._task = asyncio.create_task(self._run(), name="committer")

    def schedule(self, session: Writable) -> None:
        """Add a session to the next commit. A session calls this once until its `collect` is called."""
        self._pending.append(session)
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def stop(self) -> None:
        """Commit what is scheduled, then stop."""
        self._is_stopping = True
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        last_commit_at, window_s = 0.0, self._window_s
        while True:
            if not self._pending:
                if self._is_stopping:
                    return
                self._wakeup = loop.create_future()
                await self._wakeup
                continue
            if (early_s := last_commit_at + window_s - loop.time()) > 0:
                await asyncio.sleep(early_s)
            if any(session.starts_run for session in self._pending):
                for _ in range(LOOP_TURNS_BEFORE_FIRST_COMMIT):
                    await asyncio.sleep(0)
            last_commit_at, is_last = loop.time(), self._is_stopping
            written = await self._commit()
            if is_last:  # an agent that ignores its cancellation would write forever
                return
            window_s = self._window_s * min(1 + (written / SESSIONS_THAT_DOUBLE_WINDOW) ** 2, MAX_WINDOW_FACTOR)

    async def _commit(self) -> int:
        """Commit and publish what the scheduled sessions have to write. Returns the number of sessions."""
        sessions, self._pending = self._pending, []
        last_appends: dict[Writable, int] = {}
        """The sessions that write, each with the place of its last append in the batch."""
        batch: list[Append] = []
        for session in sessions:
            try:
                appends = session.collect()
            except Exception as error:  # such as MemoryError: only this session loses what was not written
                log.error("commit failed", sessions=1, exc_info=error)
                session.fail(StoreUnavailable("a commit failed"))
                continue
            if appends:
                batch += appends
                last_appends[session] = len(batch) - 1
        if not batch:
            return 0
        try:
            is_accepted = await self._log.commit(batch)
        except Exception as error:  # the committer must survive any error of its store
            log.error("commit failed", sessions=len(batch), exc_info=error)
            for session in last_appends:
                session.fail(error if isinstance(error, StoreUnavailable) else StoreUnavailable("a commit failed"))
            return len(last_appends)
        for session, place in last_appends.items():
            if is_accepted[place]:
                session.publish()
            else:
                session.fail(StoreUnavailable("the session was claimed by another server, or deleted"))
        try:
            self._on_commit(batch)
        except Exception:  # the batch is durable and published; the committer outlives errors of its callback
            log.exception("commit callback failed", sessions=len(last_appends))
        return len(last_appends)
