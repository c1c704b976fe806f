"""Token budgets of users and keys: counted in the store, so that all servers on it share them.

A counter is a row for each user or key, and day or month. Only what has a budget is counted: a read before a run, and a
write after each of its steps that reports usage.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import NamedTuple

import structlog

from dragoman.core.agent import AgentError
from dragoman.core.audit import ACTOR
from dragoman.core.content import Usage
from dragoman.core.ids import KeyId, UserId
from dragoman.core.quotas import show_quota
from dragoman.core.refusals import StoreUnavailable, TokenBudgetUsedUp
from dragoman.core.token_budgets import (
    NO_LIMITS,
    Holder,
    Period,
    TokenBudget,
    TokenCounter,
    TokenLimits,
    counter_of,
    oldest_period,
    period_of,
    used_up_message,
)
from dragoman.ports.accounts import TokenUsageStore
from dragoman.ports.environment import Clock

ERROR_CODE = "token_budget_used_up"
"""The code of runs that ended because a budget was used up."""

log = structlog.get_logger(__name__)


class _Limit(NamedTuple):
    """A limit, and what it is counted by."""

    holder: Holder
    period: Period
    tokens: int
    counter: TokenCounter


class TokenBudgets:
    """The budgets of all users and keys.

    Args:
        store: counts the tokens.
        clock: for days and months.
        of_user: returns the limits of a user.
        of_key: returns the limits of a key.
    """

    def __init__(
        self,
        store: TokenUsageStore,
        clock: Clock,
        *,
        of_user: Callable[[UserId], TokenLimits],
        of_key: Callable[[KeyId], TokenLimits] = lambda _: NO_LIMITS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._of_user = of_user
        self._of_key = of_key
        self._uncounted: Counter[TokenCounter] = Counter()
        """What could not be written, for the next write."""
        self._pruned_before = ""

    def limited_key(self) -> KeyId | None:
        """The key of the current request, if it has limits."""
        actor = ACTOR.get()
        key_id = None if actor is None else actor.key_id
        return key_id if key_id is not None and self._of_key(key_id) != NO_LIMITS else None

    async def current(self, user: UserId, key_id: KeyId | None) -> list[TokenBudget]:
        """The budgets of a user and a key; none if they have no limits.

        Raises:
            StoreUnavailable: the counters cannot be read.
        """
        if not self._has_limits(user, key_id):
            return []
        now = self._clock.now()
        limits = list(self._limits(user, key_id, now))
        return _budgets(limits, await self._store.get([each.counter for each in limits]), now)

    async def of_users(self, users: Sequence[UserId]) -> list[list[TokenBudget]]:
        """The budgets of users, in the same order, in one read.

        Raises:
            StoreUnavailable: the counters cannot be read.
        """
        now = self._clock.now()
        limits = [list(self._limits(user, None, now)) for user in users]
        used = iter(await self._store.get([each.counter for of_user in limits for each in of_user]))
        return [_budgets(of_user, list(islice(used, len(of_user))), now) for of_user in limits]

    async def require(self, user: UserId, key_id: KeyId | None) -> None:
        """Check that a run may start.

        Raises:
            TokenBudgetUsedUp: a budget is used up.
            StoreUnavailable: the counters cannot be read.
        """
        budgets = await self.current(user, key_id)
        for each in budgets:
            show_quota(each.quota())
        if budgets and (used_up := longest_used_up(budgets)):
            raise TokenBudgetUsedUp(used_up)

    async def for_run(self, user: UserId, key_id: KeyId | None) -> "RunBudget | None":
        """What a run counts its tokens by; None if it has no budget. Raises AgentError if one is used up."""
        if not self._has_limits(user, key_id):
            return None
        budget = RunBudget(self, user, key_id, await self.current(user, key_id))
        budget.require()
        return budget

    async def count(self, user: UserId, key_id: KeyId | None, usage: Usage) -> list[TokenBudget]:
        """Count the tokens that a step of a run or a summary has used. Returns the budgets; none if that fails now."""
        now = self._clock.now()
        limits = sorted(self._limits(user, key_id, now), key=lambda each: each.counter)  # else servers may deadlock
        if not limits:
            return []
        added, self._uncounted = self._uncounted, Counter()
        tokens = usage.input_tokens + usage.output_tokens
        added.update({each.counter: tokens for each in limits})
        try:
            totals = await self._store.add(dict(sorted(added.items())))
        except StoreUnavailable as error:
            self._uncounted.update(added)
            log.warning("tokens not counted yet", cause=repr(error.__cause__))
            return []
        with suppress(StoreUnavailable):  # the tokens are counted; the next step tries again
            await self._prune(now)
        return _budgets(limits, [totals[each.counter] for each in limits], now)

    def _has_limits(self, user: UserId, key_id: KeyId | None) -> bool:
        return self._of_user(user) != NO_LIMITS or (key_id is not None and self._of_key(key_id) != NO_LIMITS)

    def _limits(self, user: UserId, key_id: KeyId | None, now: datetime) -> Iterator[_Limit]:
        holders: list[tuple[Holder, UserId | KeyId, TokenLimits]] = [("user", user, self._of_user(user))]
        if key_id is not None:
            holders.append(("key", key_id, self._of_key(key_id)))
        for holder, name, limits in holders:
            if limits.per_day:
                yield _Limit(holder, "day", limits.per_day, counter_of(holder, name, "day", now))
            if limits.per_month:
                yield _Limit(holder, "month", limits.per_month, counter_of(holder, name, "month", now))

    async def _prune(self, now: datetime) -> None:
        """Remove the counters of months that are over, once a month."""
        oldest = oldest_period(now)
        if oldest != self._pruned_before:
            await self._store.remove_before(oldest)
            self._pruned_before = oldest


class RunBudget:
    """The budgets that a run counts against."""

    def __init__(
        self, budgets: TokenBudgets, user: UserId, key_id: KeyId | None, current: Sequence[TokenBudget]
    ) -> None:
        self._budgets = budgets
        self._user = user
        self._key_id = key_id
        self._used_up = longest_used_up(current)

    async def count(self, usage: Usage) -> None:
        """Count the usage of a step."""
        used = await self._budgets.count(self._user, self._key_id, usage)
        self._used_up = longest_used_up(used)

    def require(self) -> None:
        """Raise AgentError if a budget was used up when the last step was counted."""
        if self._used_up is not None:
            raise AgentError(ERROR_CODE, used_up_message(self._used_up))


def longest_used_up(budgets: Sequence[TokenBudget]) -> TokenBudget | None:
    """The budget that is used up for the longest time; None if all have tokens left."""
    return max((each for each in budgets if not each.left), key=lambda each: each.resets_at, default=None)


def _budgets(limits: Sequence[_Limit], used: Sequence[int], now: datetime) -> list[TokenBudget]:
    budgets = []
    for limit, tokens in zip(limits, used, strict=True):
        starts_at, resets_at = period_of(limit.period, now)
        budgets.append(
            TokenBudget(
                holder=limit.holder,
                period=limit.period,
                limit=limit.tokens,
                used=tokens,
                window_s=int((resets_at - starts_at).total_seconds()),
                resets_at=resets_at,
                resets_in_s=math.ceil((resets_at - now).total_seconds()),
            )
        )
    return budgets
