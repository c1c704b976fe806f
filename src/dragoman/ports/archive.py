"""Reading and restoring a whole store, to copy it to another one."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from dragoman.core.ids import SessionId, UserId
from dragoman.core.memories import Memory
from dragoman.ports.accounts import Share
from dragoman.ports.log import IdempotencyRecord


class ArchivedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session in an archive: what is stored about it outside its log."""

    session_id: SessionId
    owner: UserId
    name: str | None
    idempotency_records: Sequence[IdempotencyRecord]


class StoreArchive(Protocol):
    """Everything that a store holds for all users. Use it only while no server runs on the store."""

    async def count(self) -> int:
        """Count the sessions that are not in quarantine."""

    async def sessions(self, after: SessionId | None, limit: int) -> Sequence[ArchivedSession]:
        """List sessions that are not in quarantine, ordered by id, starting after `after`."""

    async def quarantine(self, session_id: SessionId, reason: str) -> None:
        """Put a damaged session into quarantine: it is not listed, and cannot be loaded. It can be deleted."""

    async def memories(self, after: int, limit: int) -> Sequence[Memory]:
        """List all users' memories ordered by id, starting after `after`."""

    async def restore_memories(self, memories: Sequence[Memory]) -> None:
        """Store memories under their existing ids. Memories created later get greater ids."""

    async def shares(self) -> Sequence[Share]:
        """List all share links."""
