"""Rate and concurrency limits: what a caller may use, when it is refused, and that others are not affected."""

import asyncio
import json
from collections import Counter

import pytest

from dragoman.buses.local import LocalBus
from dragoman.core.refusals import LimitReached
from dragoman.engine.services import limits, rate_sharing
from dragoman.engine.services.limits import ConcurrencyLimit, RateLimit
from dragoman.engine.services.rate_sharing import RateSharing
from tests.asgi_client import DEADLINE_S


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


def test_what_was_consumed_elsewhere_is_missing_here_and_nobody_owes_more_than_a_minute() -> None:
    seconds = ManualMonotonicClock()
    here, there = (RateLimit(60, "requests", now=seconds) for _ in range(2))
    here.report()
    for _ in range(20):
        here.consume("a")
    there.count_remote(here.report())
    assert here.report() == {}
    assert count_admitted(there, "a") == 40
    assert count_admitted(there, "b") == 60
    for _ in range(100):
        there.count_remote(dict.fromkeys(("unknown", *_digests_of("a")), 60))
    seconds.now += 1
    assert count_admitted(there, "a") == 1


def _digests_of(who: str) -> list[str]:
    limit = RateLimit(60, "requests")
    limit.report()
    limit.consume(who)
    return list(limit.report())


async def test_servers_on_one_bus_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_sharing, "REPORT_INTERVAL_S", 0.01)
    bus = LocalBus()
    seconds = ManualMonotonicClock()
    limits = [RateLimit(2000, "requests", now=seconds) for _ in range(3)]
    tasks = [asyncio.create_task(RateSharing(limit, bus, "rates").run()) for limit in limits]
    await asyncio.sleep(0)  # all listen
    consumed, is_heard = Counter[str](), asyncio.Event()

    def hear(report: str) -> None:
        consumed.update(json.loads(report)["consumed"])
        if consumed.total() == 1001:
            is_heard.set()

    bus.subscribe("rates", hear)
    for number in range(1000):  # more callers than one hint has room for
        limits[0].consume(f"caller {number}")
    limits[1].consume("caller 0")
    async with asyncio.timeout(DEADLINE_S):
        await is_heard.wait()
    assert [left(limit, "caller 0") for limit in limits] == [1998] * 3
    assert [left(limit, "caller 500") for limit in limits] == [1999] * 3
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def left(limit: RateLimit, who: str) -> int:
    quota = limit.quota(who)
    assert quota is not None
    return quota.left


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
