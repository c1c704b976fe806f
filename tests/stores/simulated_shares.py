"""Links in a dictionary: the contract in the fewest words."""

from collections.abc import Sequence

from dragoman.core.ids import SessionId
from dragoman.ports.accounts import Share


class SimulatedShares:
    """`Shares` in memory."""

    def __init__(self) -> None:
        self._all: dict[bytes, Share] = {}

    async def add(self, share: Share) -> None:
        self._all[share.digest] = share

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
