"""A circuit breaker: a server that is down is not asked for a while, so that runs fail at once. Pure.

After several failures in a row it opens. When its time is over it is half open: one request is sent, which closes it
or opens it again.
"""

from collections.abc import Callable
from typing import Literal

BreakerState = Literal["closed", "half_open", "open"]


class CircuitBreaker:
    """The state of one remote server.

    Args:
        threshold: the number of failures in a row after which the server is not asked.
        open_s: for how many seconds.
        now: a monotonic clock in seconds.
    """

    def __init__(self, threshold: int, open_s: float, now: Callable[[], float]) -> None:
        self._threshold = threshold
        self._open_s = open_s
        self._now = now
        self._failures = 0
        self._opened_at = 0.0
        self._is_probing = False

    @property
    def state(self) -> BreakerState:
        """`closed`: requests are sent. `half_open`: one request is sent, to see. `open`: none is sent."""
        if self._failures < self._threshold:
            return "closed"
        return "half_open" if self.wait_s <= 0 else "open"

    @property
    def wait_s(self) -> float:
        """The seconds until the server is asked again; 0 or less if it may be asked."""
        return self._opened_at + self._open_s - self._now() if self._failures >= self._threshold else 0.0

    def allows_request(self) -> bool:
        """Whether a request may be sent. A caller that gets True reports how it went."""
        state = self.state
        if state == "half_open":
            if self._is_probing:
                return False
            self._is_probing = True
        return state != "open"

    def record_success(self) -> None:
        """Note that the server answered."""
        self._failures, self._is_probing = 0, False

    def record_failure(self) -> None:
        """Note that the server could not be reached."""
        self._failures += 1
        self._is_probing = False
        self._opened_at = self._now()

    def release(self) -> None:
        """Note that a request ended before it was known whether the server answers."""
        self._is_probing = False
