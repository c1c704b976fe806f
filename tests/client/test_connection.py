"""Addresses, and backoff: how long the client waits before a retry, and when it gives up."""

import pytest

from dragoman.client import AsyncClient, ClientError, Unreachable
from dragoman.client.connection import Backoff

GONE = Unreachable("gone")


class Time:
    """A clock that the test advances."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    monkeypatch.setattr(Backoff, "INITIAL_DELAY_S", 0.1)
    monkeypatch.setattr(Backoff, "MAX_DELAY_S", 5.0)
    return Time()


def wait(backoff: Backoff, time: Time, retry_after_s: float = 0.0) -> float:
    delay = backoff.next_delay(GONE, retry_after_s)
    time.now += delay
    return delay


def test_delays_grow_to_the_maximum_until_the_connection_is_given_up(time: Time) -> None:
    backoff = Backoff(60.0, time)
    delays = [wait(backoff, time) for _ in range(9)]
    longest = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert all(most / 2 <= delay <= most for delay, most in zip(delays, longest, strict=True))
    while time.now < 54.0:
        wait(backoff, time)
    time.now = 59.9
    with pytest.raises(Unreachable, match="gone"):
        wait(backoff, time)


def test_received_data_resets_the_backoff(time: Time) -> None:
    backoff = Backoff(60.0, time)
    for _ in range(12):
        wait(backoff, time)
    backoff.record_progress()
    time.now += 1000.0
    assert wait(backoff, time) <= 0.1


def test_a_lasting_connection_resets_the_backoff_and_one_that_broke_at_once_does_not(time: Time) -> None:
    backoff = Backoff(60.0, time)
    for _ in range(12):
        wait(backoff, time)
        backoff.record_connection()
    assert wait(backoff, time) > 2.0
    backoff.record_connection()
    time.now += 90.0  # a long silence, with nothing but the server's pings
    assert wait(backoff, time) <= 0.1


def test_retry_after_is_respected_unless_it_is_too_long(time: Time) -> None:
    backoff = Backoff(60.0, time)
    assert wait(backoff, time, retry_after_s=7.0) == 7.0
    with pytest.raises(Unreachable):
        wait(backoff, time, retry_after_s=54.0)


@pytest.mark.parametrize("url", ["http://[", "http://", "ftp://127.0.0.1", "127.0.0.1:8000"])
def test_an_address_that_is_none_is_refused_with_the_librarys_own_error(url: str) -> None:
    with pytest.raises(ClientError, match=r"^expected an address such as http://127\.0\.0\.1:8000, got "):
        AsyncClient(url)
