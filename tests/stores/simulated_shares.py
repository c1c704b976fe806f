"""Links in a dictionary: the contract in the fewest words."""

from collections.abc import Sequence

from dragoman.core.ids import SessionId
from dragoman.ports.accounts import Share


class SimulatedShares:
    """`Shares` in memory."""

    def __init__(self) -> None:
        self._all: dict[bytes, Share] = {}

    async def add(self, share: Share, limit: int | None = None) -> bool:
        own = await self.of_session(share.session_id, len(self._all))
        valid = [each for each in own if each.expires_at is None or each.expires_at > share.created_at]
        if limit is not None and len(valid) >= limit:
            return False
        self._all[share.digest] = share
        return True

    async def get(self, digest: bytes) -> Share | None:
        return self._all.get(digest)

    async def of_session(self, session_id: SessionId, limit: int) -> Sequence[Share]:
        own = [each for each in self._all.values() if each.session_id == session_id]
        return sorted(own, key=lambda each: each.created_at, reverse=True)[:limit]

    async def remove(self, session_id: SessionId, digest: bytes) -> bool:
        share = self._all.get(digest)
        if share is None or share.session_id != session_id:
            return False
        del self._all[digest]
        return True
