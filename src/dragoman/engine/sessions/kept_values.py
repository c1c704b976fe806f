"""The values that an agent keeps with its session, as one run writes and reads them."""

from collections.abc import Mapping

import msgspec

from dragoman.core.agent import AgentError
from dragoman.core.kept import check_kept
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports.log import EventLog

SIZE_CHECKS = 64
"""The size of a session's values is read from the store whenever this fraction of the limit has been written."""


class KeepLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much agents may keep, in bytes."""

    value_bytes: int = 16 * 1024 * 1024
    """One value."""
    session_bytes: int = 256 * 1024 * 1024
    """All values of a session."""
    private_bytes: int = 4 * 1024 * 1024
    """The private value of one message, as JSON."""


class KeptValues:
    """The kept values of one session during one run, all its loops included."""

    __slots__ = ("_live", "_log", "_size", "_written", "limits")

    def __init__(self, log: EventLog, live: LiveSession, limits: KeepLimits) -> None:
        self.limits = limits
        self._log = log
        self._live = live
        self._size: int | None = None
        """The size of the session's values when the store was asked last."""
        self._written = 0
        """Bytes written since. A value that is written again counts twice until the store is asked again."""

    async def keep(self, writes: Mapping[str, bytes | None], *, durable: bool = True) -> None:
        """Write values; see `core.agent.Run.keep`."""
        size = check_kept(writes, self.limits.value_bytes)
        limit = self.limits.session_bytes
        if (self._size or 0) + self._written + size > limit:
            raise AgentError("kept_limit", "The agent keeps too much for this session")
        self._written += size
        # nothing is awaited before: the events of this moment are in the same commit
        await self._live.keep(writes, durable=durable)
        is_due = self._written > limit // SIZE_CHECKS
        if is_due:
            self._written = 0
            await self._live.until_kept()  # the store counts only what is durable
        if is_due or self._size is None:
            self._size = await self._log.kept_size(self._live.state.session_id)

    async def kept(self, below: str = "", *, after: str | None = None, limit: int = 1000) -> Mapping[str, bytes]:
        """Read values; see `core.agent.Run.kept`."""
        await self._live.until_kept()
        return await self._log.kept(self._live.state.session_id, below, after, limit)
