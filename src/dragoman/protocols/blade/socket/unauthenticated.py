"""Connections that have not shown a key yet: how many there may be, from one address and in all, and for how long."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

MAX_UNAUTHENTICATED = 4000
"""Connections without a key that are open at the same time. Each takes some 6 KB."""
CONNECT_TIMEOUT_S = 15.0
"""How long a connection may stay open without a key. It is pinged only afterwards, and clients expect the first ping
within 45 s of the handshake, which is 20 s more than the interval.
"""


class _Connection(NamedTuple):
    address: str
    timer: asyncio.TimerHandle


class UnauthenticatedConnections:
    """The connections without a key, the oldest first. Beyond a limit, the oldest one is closed for the newest.

    Closing the oldest lets clients in while somebody opens connections in a flood: clients show their keys at once.

    Args:
        close: closes a connection, and calls `discard` for it.
        per_address: the limit for each address; 0 for none.
        timeout_s: how long a connection may stay without a key.
    """

    def __init__(self, close: Callable[[str], None], *, per_address: int, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        self._close = close
        self._per_address = per_address
        self._timeout_s = timeout_s
        self._connections: dict[str, _Connection] = {}
        self._by_address: dict[str, dict[str, None]] = {}

    def add(self, connection_id: str, address: str) -> None:
        """Add a connection, unless it is there already, and close the oldest ones beyond the limits."""
        if connection_id in self._connections:
            return
        timer = asyncio.get_running_loop().call_later(self._timeout_s, self._close, connection_id)
        self._connections[connection_id] = _Connection(address, timer)
        of_address = self._by_address.setdefault(address, {})
        of_address[connection_id] = None
        if self._per_address and len(of_address) > self._per_address:
            self._close(next(iter(of_address)))
        if len(self._connections) > MAX_UNAUTHENTICATED:
            self._close(next(iter(self._connections)))

    def discard(self, connection_id: str) -> None:
        """Forget a connection that has shown a key or is closed. Further calls do nothing."""
        connection = self._connections.pop(connection_id, None)
        if connection is None:
            return
        connection.timer.cancel()
        of_address = self._by_address[connection.address]
        del of_address[connection_id]
        if not of_address:
            del self._by_address[connection.address]
