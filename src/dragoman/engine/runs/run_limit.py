"""The limit on one user's unfinished runs, for every way in which a run can start.

What counts is the run in its session's state, from the moment it is accepted to its end, so nothing has to be given
back: a run counts once, also after a crash or a takeover. Such runs are never refused; they only count.

The runs of other servers are counted in the store, once they are committed. Runs queued there are not.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from dragoman.core.ids import UserId
from dragoman.core.quotas import Quota, show_quota
from dragoman.core.refusals import LimitReached
from dragoman.ports.cluster import SessionClaims

RETRY_AFTER_S = 5
_NO_RESERVATION = nullcontext()


class RunLimit:
    """How many unfinished runs each user may have. A check shows what is left (`core.quotas`).

    Args:
        max_runs: running and queued; 0 for no limit.
        count_unfinished: counts the unfinished runs of a user's sessions on this server.
        other_servers: returns the store in which those of other servers can be counted; None while there are none.
    """

    def __init__(
        self,
        max_runs: int,
        count_unfinished: Callable[[UserId], int],
        other_servers: Callable[[], SessionClaims | None],
    ) -> None:
        self._max_runs = max_runs
        self._count_unfinished = count_unfinished
        self._other_servers = other_servers
        self._reserved: Counter[UserId] = Counter()

    async def reserve(self, user: UserId) -> AbstractContextManager[None]:
        """Reserve a place for a run while its request is processed; once accepted, the run itself counts.

        Raises:
            LimitReached: the user has as many unfinished runs as allowed. Raised when the context is entered.
            StoreUnavailable: the runs of other servers cannot be counted.
        """
        return self._reserve(user, await self.count_on_other_servers(user)) if self._max_runs else _NO_RESERVATION

    @contextmanager
    def _reserve(self, user: UserId, on_other_servers: int) -> Iterator[None]:
        self.check(user, on_other_servers)
        self._reserved[user] += 1
        try:
            yield
        finally:
            self._reserved[user] -= 1
            if not self._reserved[user]:
                del self._reserved[user]

    async def count_on_other_servers(self, user: UserId) -> int:
        """Count the user's runs on other servers. Raises StoreUnavailable."""
        store = self._other_servers() if self._max_runs else None
        return 0 if store is None else await store.count_runs_on_other_servers(user)

    def check(self, user: UserId, on_other_servers: int) -> None:
        """Raise LimitReached if the user, with so many runs on other servers, may not start or queue another one."""
        if not self._max_runs:
            return
        left = self._max_runs - self._count_unfinished(user) - self._reserved[user] - on_other_servers
        show_quota(Quota("user-runs", self._max_runs, max(0, left - 1), "runs"))
        if left <= 0:
            raise LimitReached(f"too many runs at the same time: at most {self._max_runs}", retry_after_s=RETRY_AFTER_S)
