"""Provides the address of the server, and lets clients wait for its restart."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.crash.client import ConnectionBroken
from tests.crash.client_records import Violation

RESTART_TIMEOUT_S = 60.0
EARLY_END_TOLERANCE_S = 1.0
"""How long a server may live after a connection to it was seen to be broken."""


class Life:
    """One life of a server, as its clients see it."""

    def __init__(self, port: int, is_dead: Callable[[], bool] = lambda: False) -> None:
        self.port = port
        self.is_dead = is_dead
        """Asks the operating system whether the process has ended, which the busy loop may notice much later."""
        self.is_draining = False
        """It was asked to stop: it may refuse requests and end streams early."""
        self.over = asyncio.Event()


class ServerAvailability:
    """Gives clients the port of a running server."""

    def __init__(self) -> None:
        self._is_closing = False
        self._life: Life | None = None
        self._has_started = asyncio.Event()

    def is_closing(self) -> bool:
        """Whether clients should finish."""
        return self._is_closing

    def close(self) -> None:
        """Ask the clients to finish."""
        self._is_closing = True

    def begin(self, life: Life) -> None:
        """Record that a server is running."""
        self._life = life
        self._has_started.set()

    def end(self) -> None:
        """Record that the server ended."""
        assert self._life is not None, "it was there"
        self._life.over.set()
        self._life = None
        self._has_started.clear()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        """Wait for a server and return its port. If it dies during the block, wait until it is known to be dead.

        Raises:
            ConnectionBroken: raised in the block; another server runs or will run.
            Violation: the server broke a connection and continued to run.
        """
        async with asyncio.timeout(RESTART_TIMEOUT_S):
            await self._has_started.wait()
        life = self._life
        assert life is not None, "it came"
        try:
            yield life.port
        except ConnectionBroken as gone:
            try:
                async with asyncio.timeout(EARLY_END_TOLERANCE_S):
                    await life.over.wait()
            except TimeoutError:
                if not (life.is_draining or life.is_dead()):
                    raise Violation(f"a living server broke a connection: {gone}") from gone
                async with asyncio.timeout(RESTART_TIMEOUT_S):
                    await life.over.wait()
            raise

    def check_draining(self, what: str) -> None:
        """Raise Violation, unless the server was asked to stop."""
        if self._life is not None and not self._life.is_draining:
            raise Violation(what)
