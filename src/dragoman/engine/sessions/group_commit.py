"""Commit, then publish: what sessions have to write is gathered, written together, and only then shown to readers.

What comes after a pause is committed at once; what comes within a window from the last commit's start, or while a
commit is under way, shares the next one. So an idle server adds the latency of one commit, and a busy one shares
its commits among all sessions: the more of them wrote in the last commit, the wider the window before the next.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from dragoman.core.refusals import StoreUnavailable
from dragoman.ports.log import Append, EventLog

WINDOW_S = 0.002
LOOP_TURNS_BEFORE_FIRST_COMMIT = 3
"""Turns of the loop before the commit of a run's start begins: in them the run says its first words, which then share
that commit. It waits for nothing but what is ready; and later words wait for nothing at all."""
SESSIONS_THAT_DOUBLE_WINDOW = 16
"""So many sessions in a commit double the window before the next, twice as many make it five times as wide: a commit
costs as much CPU as the words of some forty sessions, but a few sessions should not wait for one another."""
MAX_WINDOW_FACTOR = 5
"""How often the window fits in the widest one."""

log = structlog.get_logger(__name__)


class Writable(Protocol):
    """A session with something to write."""

    @property
    def starts_run(self) -> bool:
        """Whether a run starts with it."""

    def collect(self) -> Append | None:
        """Hand over what is to be written."""

    def publish(self) -> None:
        """What was handed over last is durable."""

    def fail(self, error: Exception) -> None:
        """What was handed over last was not written, and never will be."""


class GroupCommitter:
    """The one place from which sessions' logs are written."""

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
        """Begin to commit."""
        self._task = asyncio.create_task(self._run(), name="committer")

    def schedule(self, session: Writable) -> None:
        """Note that a session has something to write. The session calls once until it is asked to `collect`."""
        self._pending.append(session)
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def stop(self) -> None:
        """Commit what is there, then end."""
        self._is_stopping = True
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        last, window_s = 0.0, self._window_s
        while True:
            if not self._pending:
                if self._is_stopping:
                    return
                self._wakeup = loop.create_future()
                await self._wakeup
                continue
            if (early := last + window_s - loop.time()) > 0:
                await asyncio.sleep(early)
            if any(session.starts_run for session in self._pending):
                for _ in range(LOOP_TURNS_BEFORE_FIRST_COMMIT):
                    await asyncio.sleep(0)
            last, is_last = loop.time(), self._is_stopping
            written = await self._commit()
            if is_last:  # an agent that does not let itself be cancelled would always have more
                return
            window_s = self._window_s * min(1 + (written / SESSIONS_THAT_DOUBLE_WINDOW) ** 2, MAX_WINDOW_FACTOR)

    async def _commit(self) -> int:
        """Commit what all sessions have to write, and show it; how many sessions there were."""
        sessions, self._pending = self._pending, []
        writing: list[Writable] = []
        batch: list[Append] = []
        for session in sessions:
            append = session.collect()
            if append is not None:
                writing.append(session)
                batch.append(append)
        if not batch:
            return 0
        try:
            taken = await self._log.commit(batch)
        except Exception as error:  # the committer outlives whatever its store does
            log.error("commit failed", sessions=len(batch), exc_info=error)
            for session in writing:
                session.fail(error if isinstance(error, StoreUnavailable) else StoreUnavailable("a commit failed"))
            return len(batch)
        for session, was_taken in zip(writing, taken, strict=True):
            if was_taken:
                session.publish()
            else:
                session.fail(StoreUnavailable("the session was claimed by another server, or deleted"))
        try:
            self._on_commit(batch)
        except Exception:  # the batch is durable and published; the committer outlives errors of its callback
            log.exception("commit callback failed", sessions=len(batch))
        return len(batch)
