"""Whether a load balancer should send work to this server."""

import asyncio
from collections.abc import Callable

from dragoman.core.refusals import StoreUnavailable
from dragoman.engine.instrumentation.counted_log import CountedLog
from dragoman.ports.stores import Stores

PROBE_TIMEOUT_S = 2.0
"""How long a store that failed may take to prove that it works again."""


class Readiness:
    """The server's readiness. The store is probed if it has failed, or if other servers share it."""

    def __init__(self, state: Callable[[], str], log: CountedLog, stores: Stores) -> None:
        self.reason: str | None = None
        """Why the store cannot be used, as the last check found it."""
        self._state = state
        self._log = log
        self._stores = stores

    async def check(self) -> str:
        """Return `ready`, or in two words why not."""
        state = self._state()
        self.reason = None
        if state != "ready":
            return state
        if self._stores.cluster_store is None and not self._log.is_failing and self._stores.failure() is None:
            return state
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await self._stores.probe()
        except (StoreUnavailable, TimeoutError) as error:
            self.reason = str(error) or "it does not answer"
            return "store unavailable"
        self._log.is_failing = False
        return state
