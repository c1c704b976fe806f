"""The limit on one user's unfinished runs, for every way in which a run can start.

What counts is the run in its session's state, from the moment it is accepted to its end, so nothing has to be given
back: a run counts once, also after a crash or a takeover. Such runs are never refused; they only count.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dragoman.core.ids import UserId
from dragoman.core.refusals import LimitReached

RETRY_AFTER_S = 5


class RunLimit:
    """How many unfinished runs each user may have on this server.

    Args:
        max_runs: running and queued; 0 for no limit.
        count_unfinished: counts the unfinished runs of a user's sessions.
    """

    def __init__(self, max_runs: int, count_unfinished: Callable[[UserId], int]) -> None:
        self._max_runs = max_runs
        self._count_unfinished = count_unfinished
        self._reserved: Counter[UserId] = Counter()

    @contextmanager
    def reserve(self, user: UserId) -> Iterator[None]:
        """Reserve a place for a run while its request is processed; once accepted, the run itself counts.

        Raises:
            LimitReached: the user has as many unfinished runs as allowed.
        """
        if not self._max_runs:
            yield
            return
        self.check(user)
        self._reserved[user] += 1
        try:
            yield
        finally:
            self._reserved[user] -= 1
            if not self._reserved[user]:
                del self._reserved[user]

    def check(self, user: UserId) -> None:
        """Raise LimitReached if the user may not start or queue another run now."""
        if self._max_runs and self._count_unfinished(user) + self._reserved[user] >= self._max_runs:
            raise LimitReached(f"too many runs at the same time: at most {self._max_runs}", retry_after_s=RETRY_AFTER_S)
