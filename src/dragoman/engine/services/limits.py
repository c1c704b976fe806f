"""Limits for each caller: rates, concurrency and memory. A refusal says when to try again."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b

from dragoman.core.quotas import Quota
from dragoman.core.refusals import LimitReached

MAX_TRACKED_CALLERS = 10_000
"""Callers remembered before those with a full allowance are forgotten."""


SMALL_REQUEST_BYTES = 64 * 1024
"""The part of each request that does not count."""


class RateLimit:
    """A number per minute for each caller, which may come in one burst.

    A bucket is one number: the time when it will be full again (the generic cell rate algorithm). Full buckets are not
    remembered. Callers are remembered by digests, which other servers may see.

    Args:
        per_minute: the limit; 0 for none.
        what: what is counted, for the refusal.
        now: seconds of a monotonic clock.
    """

    def __init__(self, per_minute: int, what: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = 60 / per_minute if per_minute else 0.0
        self._burst_s = 60 - self._interval_s
        self._what = what
        self._now = now
        self._full_at: dict[str, float] = {}
        self._unreported: Counter[str] | None = None

    @property
    def tracked_callers(self) -> int:
        """The number of callers that are remembered."""
        return len(self._full_at)

    def quota(self, who: str) -> Quota | None:
        """What the caller has left; None if there is no limit."""
        if not self._interval_s:
            return None
        used_s = max(0.0, self._full_at.get(_digest(who), 0.0) - self._now())
        left = math.floor((60 - used_s) / self._interval_s + 1e-9)
        return Quota(self._what, round(60 / self._interval_s), max(0, left), "", 60, math.ceil(used_s))

    def consume(self, who: str) -> None:
        """Count one. Raises LimitReached if the caller has none left; then nothing is counted."""
        if not self._interval_s:
            return
        caller, now = _digest(who), self._now()
        full_at = max(self._full_at.get(caller, 0.0), now)
        if full_at - now > self._burst_s + 1e-9:
            raise LimitReached(
                f"too many {self._what}: at most {60 / self._interval_s:.0f} a minute",
                retry_after_s=max(1, math.ceil(full_at - now - self._burst_s)),
            )
        self._remember(caller, full_at + self._interval_s)
        if self._unreported is not None:
            self._unreported[caller] += 1

    def report(self) -> Mapping[str, int]:
        """What callers consumed here since the last report, by their digests. The first call begins to count."""
        consumed, self._unreported = self._unreported, Counter()
        return consumed or {}

    def count_remote(self, consumed: Mapping[str, int]) -> None:
        """Count what callers consumed on another server. At most, they have nothing left."""
        now = self._now()
        for caller, count in consumed.items():
            full_at = max(self._full_at.get(caller, 0.0), now)
            self._remember(caller, max(full_at, min(full_at + count * self._interval_s, now + 60)))

    def _remember(self, caller: str, full_at: float) -> None:
        if caller not in self._full_at and len(self._full_at) >= MAX_TRACKED_CALLERS:
            self._evict(self._now())
        self._full_at[caller] = full_at

    def _evict(self, now: float) -> None:
        self._full_at = {who: full_at for who, full_at in self._full_at.items() if full_at > now}
        while len(self._full_at) >= MAX_TRACKED_CALLERS:  # memory stays bounded even if all callers come at once
            del self._full_at[next(iter(self._full_at))]


@lru_cache(4096)
def _digest(who: str) -> str:
    return blake2b(who.encode(errors="surrogatepass"), digest_size=8).hexdigest()


class ConcurrencyLimit:
    """A number at the same time for each caller.

    Args:
        limit: the limit; 0 for none.
        what: what is counted, for the refusal.
        retry_after_s: the seconds after which to try again.
    """

    def __init__(self, limit: int, what: str, *, retry_after_s: int = 5) -> None:
        self._limit = limit
        self._what = what
        self._retry_after_s = retry_after_s
        self._in_use: dict[str, int] = {}

    def acquire(self, who: str) -> Callable[[], None]:
        """Take a slot. Returns a function that releases it; further calls of that function do nothing.

        Raises:
            LimitReached: the caller has all its slots in use.
        """
        in_use = self._in_use.get(who, 0)
        if self._limit and in_use >= self._limit:
            raise LimitReached(
                f"too many {self._what} at the same time: at most {self._limit}", retry_after_s=self._retry_after_s
            )
        self._in_use[who] = in_use + 1
        return _Slot(self._in_use, who)

    @property
    def tracked_callers(self) -> int:
        """The number of callers with a slot in use."""
        return len(self._in_use)

    def in_use(self, who: str) -> int:
        """The number of slots that the caller has in use."""
        return self._in_use.get(who, 0)


class _Slot:
    """A caller's slot; calling it releases it. A class, because a closure takes three times as much memory."""

    __slots__ = ("_in_use", "_who")

    def __init__(self, in_use: dict[str, int], who: str) -> None:
        self._in_use: dict[str, int] | None = in_use
        self._who = who

    def __call__(self) -> None:
        in_use, self._in_use = self._in_use, None
        if in_use is None:
            return
        in_use[self._who] -= 1
        if not in_use[self._who]:
            del in_use[self._who]


class MemoryBudget:
    """How much memory a server uses for requests that it is receiving or decoding.

    One user may use half of it. A single request always fits, as do small ones, so that large ones keep nobody out.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self.used_by_user: dict[str, int] = {}

    def open(self, user: str | None = None) -> "MemoryReservation":
        """Begin to receive a request.

        Args:
            user: whose request it is, if that is known.
        """
        return MemoryReservation(self, user)


class MemoryReservation:
    """The part of the budget that one request uses."""

    __slots__ = ("_budget", "_counted_bytes", "_size_bytes", "_user")

    def __init__(self, budget: MemoryBudget, user: str | None) -> None:
        self._budget = budget
        self._user = user
        self._size_bytes = 0
        self._counted_bytes = 0

    def grow(self, size_bytes: int) -> None:
        """Count what has arrived. Raises LimitReached if there is no room for it."""
        self._size_bytes += size_bytes
        more = self._size_bytes - SMALL_REQUEST_BYTES - self._counted_bytes
        if more <= 0:
            return
        budget, user = self._budget, self._user
        _require_room(budget.used_bytes, self._counted_bytes, more, budget.total_bytes)
        budget.used_bytes += more
        self._counted_bytes += more
        if user is not None:
            used = budget.used_by_user[user] = budget.used_by_user.get(user, 0) + more
            _require_room(used - more, self._counted_bytes - more, more, budget.total_bytes // 2)

    def release(self) -> None:
        """Give everything back. Further calls do nothing."""
        counted, self._counted_bytes, self._size_bytes = self._counted_bytes, 0, 0
        if not counted:
            return
        self._budget.used_bytes -= counted
        if self._user is not None:
            self._budget.used_by_user[self._user] -= counted
            if not self._budget.used_by_user[self._user]:
                del self._budget.used_by_user[self._user]


def _require_room(used: int, own: int, more: int, limit: int) -> None:
    if used > own and used + more > limit:
        raise LimitReached("too many large requests at the same time", retry_after_s=1)
