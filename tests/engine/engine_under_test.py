"""The engine as tests see it: the one place that looks behind its public methods.

Tests need three things that no user of an engine does: to end it as SIGKILL would, to observe its parts, and to replace
what it reports commits to.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from dragoman.core.ids import UserId
from dragoman.core.refusals import StoreUnavailable
from dragoman.core.token_budgets import NO_LIMITS, TokenCounter
from dragoman.engine.cluster.cluster import Cluster
from dragoman.engine.engine import Engine
from dragoman.engine.runs.write_access import WriteAccess
from dragoman.engine.services.token_budgets import TokenBudgets
from dragoman.engine.sessions.reader import ReaderRegistry
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.ports.environment import Clock
from dragoman.ports.log import Append

DEADLINE_S = 60.0
TURNS_TO_END = 100
"""Turns of the event loop that a cancelled task may take to end before it is cancelled again."""


class _NoTokenUsage:
    """Counters of which none is ever read or written."""

    async def add(self, tokens: Mapping[TokenCounter, int]) -> Mapping[TokenCounter, int]:
        raise AssertionError(tokens)

    async def get(self, counters: Sequence[TokenCounter]) -> Sequence[int]:
        raise AssertionError(counters)

    async def all(self) -> Mapping[TokenCounter, int]:
        raise AssertionError

    async def remove_before(self, period: str) -> None:
        raise AssertionError(period)


def no_budgets(clock: Clock) -> TokenBudgets:
    """Token budgets by which nobody is limited, and nothing is counted."""
    return TokenBudgets(_NoTokenUsage(), clock, of_user=lambda _: NO_LIMITS)


class EngineUnderTest(Engine):
    """An engine that can crash, and that shows what it consists of."""

    @property
    def sessions(self) -> SessionRegistry:
        """The sessions in memory."""
        return self._sessions

    @property
    def readers(self) -> ReaderRegistry:
        """The readers of a session."""
        return self._readers

    @property
    def write_access(self) -> WriteAccess:
        """The right to append to sessions."""
        return self._write_access

    def unfinished_runs(self, owner: UserId) -> int:
        """The runs that count against an owner's limit."""
        return self._runner.count_unfinished_runs(owner)

    def report_commits_to(self, report: Callable[[Sequence[Append]], None]) -> None:
        """Report commits to a function, instead of to the other servers."""
        self._committer._on_commit = report

    def begin_parking(self) -> None:
        """Start no run from now on, as between the two halves of `drain`."""
        self._runner._is_parking = True

    async def crash(self) -> None:
        """End as SIGKILL would: nothing that the engine does from now on is written.

        Its store is expected to be dead to it; only its tasks must not linger.
        """
        self.begin_parking()  # a dead server records no end of a run
        tasks = set(self._runner._tasks)
        self._runner._cancelled_tasks |= tasks
        for live in tuple(self._sessions):
            live.end(StoreUnavailable("the server is dead"))  # whoever waits for its commits in a task of its own ends
        if self._committer._task is not None:
            tasks.add(self._committer._task)
        if isinstance(self.cluster, Cluster):  # it renews nothing
            for task in self.cluster._tasks:
                task.cancel()
        async with asyncio.timeout(DEADLINE_S):
            while tasks:  # some swallow a cancellation, or several
                for task in tasks:
                    task.cancel()
                for _ in range(TURNS_TO_END):
                    await asyncio.sleep(0)
                    tasks = {task for task in tasks if not task.done()}
                    if not tasks:
                        break
