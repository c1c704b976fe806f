"""The system's clock and the generator of ids."""

import os
import time
from datetime import UTC, datetime

from dragoman.core.ids import uuid7

_POOL_BYTES = 8192
_STEP_BYTES = 6
_TAIL_BYTES = 10
_TAIL_BITS = 74


class SystemClock:
    """The system's clock."""

    def now(self) -> datetime:
        """The current time in UTC."""
        return datetime.now(UTC)


class RandomIds:
    """Generates UUIDv7 ids from the system's randomness, read in blocks: a system call per id would take 60 µs.

    Within a millisecond each id is the previous one plus a random step, so ids sort by creation and stay unguessable.
    """

    def __init__(self) -> None:
        self._pool = b""
        self._pool_offset = 0
        self._ms = 0
        self._tail = 0

    def new(self) -> str:
        """Return a new id."""
        ms = time.time_ns() // 1_000_000
        if ms > self._ms:
            self._ms, self._tail = ms, self._random(_TAIL_BYTES) >> 8  # the top bits leave room for the steps
        else:
            self._tail += 1 + self._random(_STEP_BYTES)
            if self._tail >> _TAIL_BITS:
                self._ms, self._tail = self._ms + 1, self._random(_TAIL_BYTES) >> 8
        return uuid7(self._ms, self._tail)

    def _random(self, size: int) -> int:
        at = self._pool_offset
        if at + size > len(self._pool):
            self._pool, at = os.urandom(_POOL_BYTES), 0
        self._pool_offset = at + size
        return int.from_bytes(self._pool[at : self._pool_offset])
