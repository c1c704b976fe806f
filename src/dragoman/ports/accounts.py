"""What is stored for users outside of their sessions: keys, profiles, memories, share links, schedules, audit log."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from dragoman.core.audit import AuditEntry
from dragoman.core.ids import KeyId, RunId, SessionId, UserId
from dragoman.core.memories import Memory, MemoryFilter
from dragoman.core.profile import Profile
from dragoman.core.schedules import Fire, Schedule, ScheduleId
from dragoman.core.token_budgets import NO_LIMITS, TokenCounter, TokenLimits


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key as it is stored, without the key itself. `masked_key` shows its prefix and last four characters.

    `pepper` is the id of the pepper that the digest was made with; None: plain SHA-256 (see `core.key_digests`).
    """

    key_id: KeyId
    digest: bytes
    pepper: str | None = None
    name: str
    user: UserId
    masked_key: str = msgspec.field(name="masked")
    scopes: frozenset[str]
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    token_limits: TokenLimits = NO_LIMITS


class ApiKeyStore(Protocol):
    """The stored API keys."""

    async def add(self, key: ApiKey, limit: int | None = None) -> bool:
        """Store a key. Returns False, and stores nothing, if its user has `limit` keys already."""

    async def all(self) -> Sequence[ApiKey]:
        """List all keys, oldest first."""

    async def remove(self, key_id: KeyId) -> bool:
        """Remove a key. Returns False if there was none."""

    async def rename(self, key_id: KeyId, name: str) -> None:
        """Rename a key. Does nothing if there is none."""

    async def touch(self, used: Sequence[tuple[KeyId, datetime]]) -> None:
        """Record when keys were last used."""

    async def can_use_peppers(self) -> bool:
        """Whether all servers on the store can check digests that were made with a pepper."""

    async def rehash(self, key_id: KeyId, digest: bytes, pepper: str) -> None:
        """Replace a key's digest. Does nothing if there is no such key."""

    async def limit(self, key_id: KeyId, limits: TokenLimits) -> None:
        """Replace a key's token limits. Does nothing if there is no such key."""


class AuditStore(Protocol):
    """The stored audit log. Entries are never changed."""

    async def add(self, entries: Sequence[AuditEntry]) -> None:
        """Store entries."""

    async def page(
        self, before: str | None, limit: int, user: str | None = None, action: str | None = None
    ) -> Sequence[AuditEntry]:
        """List entries, newest first: those older than the entry `before`, of a user, of an action."""


class TokenUsageStore(Protocol):
    """The counters of tokens that users and keys have used."""

    async def add(self, tokens: Mapping[TokenCounter, int]) -> Mapping[TokenCounter, int]:
        """Add to counters, all or none. Returns what they count now.

        The counters are given in their order, so that servers that add to the same ones do not deadlock.
        """

    async def get(self, counters: Sequence[TokenCounter]) -> Sequence[int]:
        """What counters count, in the same order; 0 for those that do not exist."""

    async def all(self) -> Mapping[TokenCounter, int]:
        """All counters."""

    async def remove_before(self, period: str) -> None:
        """Remove the counters of earlier periods."""


class ProfileStore(Protocol):
    """The stored user profiles."""

    async def all(self) -> Sequence[Profile]:
        """List all profiles."""

    async def put(self, profile: Profile) -> None:
        """Store a user's profile, replacing any previous one."""


class MemoryStore(Protocol):
    """What is remembered about users. Each memory belongs to one user and is visible only to that user."""

    async def add(self, memory: Memory, replaces: int | None = None, *, limit: int | None = None) -> Memory | None:
        """Store a new memory and return it with its id.

        The memory `replaces` is marked as superseded by it. If the user has no such memory, or has `limit` memories
        already, nothing is stored and the result is None.
        """

    async def get(self, user: UserId, ids: Collection[int]) -> Sequence[Memory]:
        """Return those of the memories that belong to the user, newest first."""

    async def page(self, user: UserId, criteria: MemoryFilter, offset: int, limit: int) -> tuple[Sequence[Memory], int]:
        """Return a page of the matching memories, newest first, and the total number of matches."""

    async def put(self, memory: Memory, *, expected: Memory) -> bool:
        """Store a memory's texts, time of change and whether it is disabled.

        Returns False, and stores nothing, if the memory is gone or no longer equals `expected`.
        """

    async def set_disabled(self, user: UserId, ids: Collection[int], *, disabled: bool, at: datetime) -> int:
        """Disable or enable memories. Returns how many changed."""

    async def remove(self, user: UserId, ids: Collection[int]) -> int:
        """Remove memories permanently. Returns how many there were."""

    async def candidates(self, user: UserId, trigrams: Sequence[str]) -> Sequence[Memory]:
        """Return enabled memories that may be relevant: the newest, and those that share most trigrams."""

    async def record_hits(self, run_id: RunId, user: UserId, ids: Collection[int], at: datetime) -> None:
        """Count that an agent received these memories, at most once per run."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A share link as it is stored, without its token. Whoever has the link may read the session."""

    digest: bytes
    owner: UserId
    session_id: SessionId
    created_at: datetime
    expires_at: datetime | None = None


class ShareStore(Protocol):
    """The stored share links. Deleting a session deletes its links."""

    async def add(self, share: Share, limit: int | None = None) -> bool:
        """Store a link. Links that expired before its creation may be removed.

        Returns False, and stores no link, if `limit` other links of its session are valid.
        """

    async def get(self, digest: bytes) -> Share | None:
        """Find a link by its token's digest."""

    async def of_session(self, session_id: SessionId, limit: int) -> Sequence[Share]:
        """List a session's links, newest first. Links that have expired may be among them."""

    async def remove(self, session_id: SessionId, digest: bytes) -> bool:
        """Remove a session's link. Returns False if there was none."""


class ScheduleStore(Protocol):
    """The users' schedules and their fires: the times that came due."""

    async def put(self, schedule: Schedule) -> None:
        """Store a schedule, replacing any previous one of its id."""

    async def remove(self, schedule_id: ScheduleId) -> None:
        """Remove a schedule and all its fires."""

    async def all(self) -> Sequence[Schedule]:
        """List all schedules, oldest first."""

    async def claim_fire(self, schedule: Schedule, fire: Fire) -> bool:
        """Store a fire and its updated schedule together. Returns False if that time was already claimed."""

    async def update_fire(self, fire: Fire) -> None:
        """Store a fire's outcome. Does nothing if the fire no longer exists."""

    async def fires(self, schedule_id: ScheduleId, offset: int, limit: int) -> Sequence[Fire]:
        """Return a page of a schedule's fires, newest first."""

    async def running_fires(self) -> Sequence[Fire]:
        """List the fires that have not ended, oldest first."""
