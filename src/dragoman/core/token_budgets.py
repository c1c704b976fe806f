"""Token budgets: how many tokens runs may use in a calendar day or month, which begin and end in UTC. Pure."""

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from dragoman.core.ids import KeyId, UserId
from dragoman.core.quotas import Quota

MAX_TOKENS = 10**15
"""The largest limit, which no database rounds."""

Holder = Literal["user", "key"]
Period = Literal["day", "month"]


class TokenLimits(msgspec.Struct, frozen=True):
    """How many tokens may be used in a day and in a month; 0 for any number."""

    per_day: int = 0
    per_month: int = 0

    def __str__(self) -> str:
        periods = {"day": self.per_day, "month": self.per_month}
        return ", ".join(f"{limit} a {period}" for period, limit in periods.items() if limit) or "unlimited"


NO_LIMITS = TokenLimits()


class TokenCounter(msgspec.Struct, frozen=True, order=True):
    """The name of a counter: `user:ann` or `key:ID`, and `2026-11-23` or `2026-11`."""

    holder: str
    period: str


class TokenBudget(msgspec.Struct, frozen=True, kw_only=True):
    """What a user or a key may use in the current day or month, and what has been used of it."""

    holder: Holder
    period: Period
    limit: int
    used: int
    window_s: int
    resets_at: datetime
    resets_in_s: int

    @property
    def left(self) -> int:
        """The tokens that are left; 0 if more were used than allowed."""
        return max(0, self.limit - self.used)

    def quota(self) -> Quota:
        """The budget, for headers."""
        return Quota(f"{self.holder}-{self.period}", self.limit, self.left, "tokens", self.window_s, self.resets_in_s)


def period_of(period: Period, now: datetime) -> tuple[datetime, datetime]:
    """The beginning and the end of the day or month in which a UTC time is."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return today, today + timedelta(days=1)
    first = today.replace(day=1)
    return first, (first + timedelta(days=32)).replace(day=1)


def counter_of(holder: Holder, name: UserId | KeyId, period: Period, now: datetime) -> TokenCounter:
    """The counter of a user or a key in the current day or month."""
    return TokenCounter(f"{holder}:{name}", now.strftime("%Y-%m-%d" if period == "day" else "%Y-%m"))


def oldest_period(now: datetime) -> str:
    """The name of the previous month, before whose beginning counters are not needed any more."""
    return (period_of("month", now)[0] - timedelta(days=1)).strftime("%Y-%m")


def used_up_message(budget: TokenBudget) -> str:
    """The sentence that says which budget is used up, and until when."""
    until = budget.resets_at.strftime("%Y-%m-%d %H:%M UTC")
    return f"the {budget.holder}'s budget of {budget.limit} tokens a {budget.period} is used up; it resets at {until}"
