"""Rates and shares: what one caller takes, what it is refused, and that others do not notice."""

import pytest

from dragoman.core.refusals import Exhausted
from dragoman.engine.services import limits
from dragoman.engine.services.limits import Rate, Share


class Seconds:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def taken(rate: Rate, who: str) -> int:
    """How often the caller is let in before it is refused."""
    count = 0
    while True:
        try:
            rate.take(who)
        except Exhausted:
            return count
        count += 1


@pytest.mark.parametrize("per_minute", [1, 2, 7, 60, 1000])
def test_a_caller_gets_its_minute_at_once_and_then_one_by_one(per_minute: int) -> None:
    seconds = Seconds()
    rate = Rate(per_minute, "requests", now=seconds)
    assert taken(rate, "a") == per_minute
    seconds.now += 60 / per_minute
    assert taken(rate, "a") == 1
    seconds.now += 30
    assert taken(rate, "a") == per_minute // 2
    seconds.now += 3600
    assert taken(rate, "a") == per_minute


def test_a_refusal_says_when_to_come_again_and_that_is_true() -> None:
    seconds = Seconds()
    rate = Rate(6, "wrong keys", now=seconds)
    taken(rate, "a")
    with pytest.raises(Exhausted, match="too many wrong keys: at most 6 a minute") as refused:
        rate.take("a")
    assert refused.value.retry_after_s == 10
    seconds.now += 9.9
    assert taken(rate, "a") == 0
    seconds.now += 0.1
    assert taken(rate, "a") == 1


def test_callers_do_not_share_and_zero_is_no_limit() -> None:
    rate = Rate(1, "requests", now=Seconds())
    rate.take("a")
    rate.take("b")
    endless = Rate(0, "requests", now=Seconds())
    for _ in range(10_000):
        endless.take("a")


def test_the_memory_of_a_rate_is_bounded_even_when_everybody_comes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NAMES", 100)
    seconds = Seconds()
    rate = Rate(1, "wrong keys", now=seconds)
    for number in range(1000):
        rate.take(f"address {number}")
    assert len(rate._full_at) <= 100
    assert taken(rate, "address 999") == 0, "the newest are remembered"


def test_a_share_is_refused_when_all_places_are_held_and_free_again_when_given_back() -> None:
    share = Share(2, "open streams", retry_after_s=3)
    give_back, _ = share.hold("a"), share.hold("a")
    with pytest.raises(Exhausted, match="too many open streams at the same time: at most 2") as refused:
        share.hold("a")
    assert refused.value.retry_after_s == 3
    share.hold("b")
    give_back()
    give_back()
    assert share.held("a") == 1, "a place is given back once, however often one says so"
    share.hold("a")
    with pytest.raises(Exhausted):
        share.hold("a")


def test_a_share_of_zero_has_no_limit_and_forgets_who_left() -> None:
    share = Share(0, "runs")
    for release in [share.hold("a") for _ in range(1000)]:
        release()
    assert share.held("a") == 0
    assert share._held == {}
