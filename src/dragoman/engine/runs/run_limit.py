"""The limits on one user's unfinished runs and on tokens, for every way in which a run can start.

What counts is the run in its session's state, from the moment it is accepted to its end, so nothing has to be given
back: a run counts once, also after a crash or a takeover. Such runs are never refused; they only count.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from dragoman.core.content import Usage
from dragoman.core.ids import KeyId, UserId
from dragoman.core.refusals import LimitReached
from dragoman.engine.services.token_budgets import TokenBudgets

RETRY_AFTER_S = 5
_NO_RESERVATION = nullcontext()


class RunLimit:
    """How many unfinished runs each user may have on this server.

    Args:
        max_runs: running and queued; 0 for no limit.
        count_unfinished: counts the unfinished runs of a user's sessions.
        budgets: the token budgets; None if there are none.
    """

    def __init__(
        self, max_runs: int, count_unfinished: Callable[[UserId], int], budgets: TokenBudgets | None = None
    ) -> None:
        self._max_runs = max_runs
        self._count_unfinished = count_unfinished
        self._budgets = budgets
        self._reserved: Counter[UserId] = Counter()

    async def require_tokens(self, user: UserId, key_id: KeyId | None = None) -> None:
        """Check the token budgets before a run. `key_id` is the key with which the request came.

        Raises:
            TokenBudgetUsedUp: the user or the key has no tokens left.
            StoreUnavailable: the counters cannot be read.
        """
        if self._budgets is not None:
            await self._budgets.require(user, key_id)

    async def count(self, user: UserId, usage: Usage) -> None:
        """Count what a summary outside of a run has cost, for the user and the key of the current request."""
        if self._budgets is not None and usage != Usage():
            await self._budgets.count(user, self.limited_key(), usage.input_tokens + usage.output_tokens)

    def reserve(self, user: UserId) -> AbstractContextManager[None]:
        """Reserve a place for a run while its request is processed; once accepted, the run itself counts.

        Raises:
            LimitReached: the user has as many unfinished runs as allowed. Raised when the context is entered.
        """
        return self._reserve(user) if self._max_runs else _NO_RESERVATION

    @contextmanager
    def _reserve(self, user: UserId) -> Iterator[None]:
        self.check(user)
        self._reserved[user] += 1
        try:
            yield
        finally:
            self._reserved[user] -= 1
            if not self._reserved[user]:
                del self._reserved[user]

    def limited_key(self) -> KeyId | None:
        """The key of the current request, if it has a token budget."""
        return None if self._budgets is None else self._budgets.limited_key()

    def check(self, user: UserId) -> None:
        """Raise LimitReached if the user may not start or queue another run now."""
        if self._max_runs and self._count_unfinished(user) + self._reserved[user] >= self._max_runs:
            raise LimitReached(f"too many runs at the same time: at most {self._max_runs}", retry_after_s=RETRY_AFTER_S)
