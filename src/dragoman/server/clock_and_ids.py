"""The system's clock and the generator of ids."""

import os
import time
from datetime import UTC, datetime

from dragoman.core.ids import uuid7_head, uuid7_tail

_BATCH = 128
_TAIL_DIGITS = 18


class SystemClock:
    """The system's clock."""

    def now(self) -> datetime:
        """The current time in UTC."""
        return datetime.now(UTC)


class RandomIds:
    """Generates UUIDv7 ids from the system's randomness, read in blocks: a system call per id would take 60 µs.

    The random parts of a block are used in ascending order, so ids sort by creation. The next one stays unguessable:
    between two of them there are about 2**65 others.
    """

    def __init__(self) -> None:
        self._tails: list[str] = []
        """The random parts of the next ids, the last one first."""
        self._ms = 0
        self._head = ""
        """The part that all ids of the millisecond share."""

    def new(self) -> str:
        """Return a new id."""
        ms = time.time_ns() // 1_000_000
        if not self._tails:
            digits = os.urandom(_BATCH * _TAIL_DIGITS // 2).hex()
            starts = range(0, len(digits), _TAIL_DIGITS)
            self._tails = sorted([uuid7_tail(digits[at : at + _TAIL_DIGITS]) for at in starts], reverse=True)
            ms = max(ms, self._ms + 1)  # the parts begin again with small ones
        if ms > self._ms:
            self._ms, self._head = ms, uuid7_head(ms)
        return self._head + self._tails.pop()
