"""Rate and concurrency limits: what a caller may use, when it is refused, and that others are not affected."""

import pytest

from dragoman.core.refusals import LimitReached
from dragoman.engine.services import limits
from dragoman.engine.services.limits import ConcurrencyLimit, RateLimit


class ManualMonotonicClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def count_admitted(rate: RateLimit, who: str) -> int:
    """The number of requests of a caller until it is refused."""
    count = 0
    while True:
        try:
            rate.consume(who)
        except LimitReached:
            return count
        count += 1


@pytest.mark.parametrize("per_minute", [1, 2, 7, 60, 1000])
def test_a_caller_can_use_a_whole_minutes_allowance_at_once_and_then_one_by_one(per_minute: int) -> None:
    seconds = ManualMonotonicClock()
    rate = RateLimit(per_minute, "requests", now=seconds)
    assert count_admitted(rate, "a") == per_minute
    seconds.now += 60 / per_minute
    assert count_admitted(rate, "a") == 1
    seconds.now += 30
    assert count_admitted(rate, "a") == per_minute // 2
    seconds.now += 3600
    assert count_admitted(rate, "a") == per_minute


def test_a_refusal_states_the_correct_time_to_try_again() -> None:
    seconds = ManualMonotonicClock()
    rate = RateLimit(6, "wrong keys", now=seconds)
    count_admitted(rate, "a")
    with pytest.raises(LimitReached, match="too many wrong keys: at most 6 a minute") as refused:
        rate.consume("a")
    assert refused.value.retry_after_s == 10
    seconds.now += 9.9
    assert count_admitted(rate, "a") == 0
    seconds.now += 0.1
    assert count_admitted(rate, "a") == 1


def test_callers_have_separate_limits_and_zero_means_no_limit() -> None:
    rate = RateLimit(1, "requests", now=ManualMonotonicClock())
    rate.consume("a")
    rate.consume("b")
    endless = RateLimit(0, "requests", now=ManualMonotonicClock())
    for _ in range(10_000):
        endless.consume("a")


def test_the_number_of_tracked_callers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_TRACKED_CALLERS", 100)
    seconds = ManualMonotonicClock()
    rate = RateLimit(1, "wrong keys", now=seconds)
    for number in range(1000):
        rate.consume(f"address {number}")
    assert rate.tracked_callers <= 100
    assert count_admitted(rate, "address 999") == 0, "the newest are remembered"


def test_a_caller_is_refused_while_all_its_slots_are_in_use() -> None:
    share = ConcurrencyLimit(2, "open streams", retry_after_s=3)
    give_back, _ = share.acquire("a"), share.acquire("a")
    with pytest.raises(LimitReached, match="too many open streams at the same time: at most 2") as refused:
        share.acquire("a")
    assert refused.value.retry_after_s == 3
    share.acquire("b")
    give_back()
    give_back()
    assert share.in_use("a") == 1, "a place is given back once, however often one says so"
    share.acquire("a")
    with pytest.raises(LimitReached):
        share.acquire("a")


def test_a_concurrency_limit_of_zero_admits_all_and_forgets_released_slots() -> None:
    share = ConcurrencyLimit(0, "runs")
    for release in [share.acquire("a") for _ in range(1000)]:
        release()
    assert share.in_use("a") == 0
    assert share.tracked_callers == 0
