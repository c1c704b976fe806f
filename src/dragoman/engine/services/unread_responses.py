"""Limits the memory of responses that clients have not read.

A client that reads a byte a second keeps a whole response in memory.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import structlog

from dragoman.core.ids import UserId
from dragoman.engine.fair_turns import FairTurns

log = structlog.get_logger(__name__)


class _Unread(NamedTuple):
    reader: str
    size_bytes: int
    cut: Callable[[], None]


class UnreadResponses:
    """The responses that wait for their clients, the oldest first.

    Beyond the limit, the oldest ones of the reader with the most bytes are cut off, so that slow readers of one user
    harm no other user. A response that exceeds the limit alone is sent, and is cut off when another one is added.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._turns = FairTurns()
        self._unread: dict[object, _Unread] = {}
        self._bytes_by_reader: Counter[str] = Counter()
        self._total_bytes = 0

    def add(self, key: object, reader: str, size_bytes: int, cut: Callable[[], None]) -> None:
        """Count a response, or update what is left of it.

        Args:
            key: its connection.
            reader: who reads it: a user, or an address without one.
            size_bytes: how much of it is not read yet.
            cut: closes the connection at once.
        """
        before = self._unread.get(key)
        more = size_bytes - (0 if before is None else before.size_bytes)
        self._unread[key] = _Unread(reader, size_bytes, cut)  # keeps its place, if it is known
        self._bytes_by_reader[reader] += more
        self._total_bytes += more
        while self._total_bytes > self.limit_bytes:
            most = max(self._bytes_by_reader, key=self._bytes_by_reader.__getitem__)
            theirs = (each for each, unread in self._unread.items() if unread.reader == most and each != key)
            oldest = next(theirs, None)
            if oldest is None:
                return  # this response is all that they have, and gives way to the next one
            unread = self._unread[oldest]
            self.discard(oldest)
            log.warning("cut off a slow reader", reader=unread.reader, unread_bytes=unread.size_bytes)
            unread.cut()

    def is_slow(self, reader: str) -> bool:
        """Whether a reader has so much to read that its next responses should be encoded one at a time."""
        return bool(self._unread) and self._bytes_by_reader[reader] > self.limit_bytes // 8

    async def take_turn(self, user: UserId) -> None:
        """Wait until the next response of a slow user may be encoded."""
        await self._turns.take(user)

    def discard(self, key: object) -> None:
        """Forget a response that was read, or whose connection is closed. Further calls do nothing."""
        unread = self._unread.pop(key, None)
        if unread is None:
            return
        self._total_bytes -= unread.size_bytes
        self._bytes_by_reader[unread.reader] -= unread.size_bytes
        if not self._bytes_by_reader[unread.reader]:
            del self._bytes_by_reader[unread.reader]
