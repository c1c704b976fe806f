"""How much one caller may take: rates and shares. What is above is refused with the time after which to come again."""

import math
import time
from collections.abc import Callable

import msgspec

from dragoman.core.refusals import LimitReached

MAX_TRACKED_CALLERS = 10_000
"""Callers remembered before those are forgotten that have their whole allowance again."""


class RateLimit:
    """So many a minute for each caller, in bursts of as many.

    A bucket is one number: the moment at which it will be full again (the "generic cell rate algorithm"). Full buckets
    need not be remembered.
    """

    def __init__(self, per_minute: int, what: str, *, now: Callable[[], float] = time.monotonic) -> None:
        """Args:
        per_minute: how many; 0 for no limit.
        what: what is counted, for the refusal.
        now: seconds of a clock that never goes back.
        """
        self._interval_s = 60 / per_minute if per_minute else 0.0
        self._burst_s = 60 - self._interval_s
        self._what = what
        self._now = now
        self._full_at: dict[str, float] = {}

    def consume(self, who: str) -> None:
        """Count one. Raises Exhausted when the caller has none left; that one is not counted."""
        if not self._interval_s:
            return
        now = self._now()
        full_at = max(self._full_at.get(who, 0.0), now)
        if full_at - now > self._burst_s + 1e-9:
            raise LimitReached(
                f"too many {self._what}: at most {60 / self._interval_s:.0f} a minute",
                retry_after_s=max(1, math.ceil(full_at - now - self._burst_s)),
            )
        if who not in self._full_at and len(self._full_at) >= MAX_TRACKED_CALLERS:
            self._evict(now)
        self._full_at[who] = full_at + self._interval_s

    def _evict(self, now: float) -> None:
        self._full_at = {who: full_at for who, full_at in self._full_at.items() if full_at > now}
        while len(self._full_at) >= MAX_TRACKED_CALLERS:  # the memory is bounded even when they all come at once
            del self._full_at[next(iter(self._full_at))]


class ConcurrencyLimit:
    """So many at the same time for each caller."""

    def __init__(self, limit: int, what: str, *, retry_after_s: int = 5) -> None:
        """Args:
        limit: how many; 0 for no limit.
        what: what is counted, for the refusal.
        retry_after_s: when a place may be free again.
        """
        self._limit = limit
        self._what = what
        self._retry_after_s = retry_after_s
        self._in_use: dict[str, int] = {}

    def acquire(self, who: str) -> Callable[[], None]:
        """Take a place. Returns what gives it back, once, however often it is called.

        Raises:
            Exhausted: the caller holds all its places.
        """
        held = self._in_use.get(who, 0)
        if self._limit and held >= self._limit:
            raise LimitReached(
                f"too many {self._what} at the same time: at most {self._limit}", retry_after_s=self._retry_after_s
            )
        self._in_use[who] = held + 1
        return _Slot(self._in_use, who)

    def in_use(self, who: str) -> int:
        """The places that the caller holds."""
        return self._in_use.get(who, 0)


class _Slot:
    """A caller's place; calling it gives it back. A class, because a closure weighs three times as much."""

    __slots__ = ("_in_use", "_who")

    def __init__(self, in_use: dict[str, int], who: str) -> None:
        self._in_use: dict[str, int] | None = in_use
        self._who = who

    def __call__(self) -> None:
        held, self._in_use = self._in_use, None
        if held is None:
            return
        held[self._who] -= 1
        if not held[self._who]:
            del held[self._who]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one caller may take: requests are counted per key, streams per user. Runs are limited by the engine."""

    requests: RateLimit
    streams: ConcurrencyLimit


def make_limits(*, requests_per_minute: int = 0, streams: int = 0) -> Limits:
    """Limits of so many; 0 for none."""
    return Limits(
        requests=RateLimit(requests_per_minute, "requests"),
        streams=ConcurrencyLimit(streams, "open streams"),
    )
