"""A store with faults: it counts, delays, refuses, and dies with its server at the n-th commit."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Literal

from dragoman.core.events import LoggedEvent
from dragoman.core.ids import CallId, RunId, SessionId, UserId
from dragoman.core.refusals import StoreUnavailable
from dragoman.core.session import SessionState
from dragoman.ports.log import Append, IdempotencyRecord, RecentSessions, RunLocation, SessionStore, Snapshot

Moment = Literal["before", "after"]
"""Whether a fault strikes before a commit takes effect, or afterwards but before it is acknowledged."""


class FaultyLog:
    """A store between an engine and the real one."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self.commits = 0
        self.reads = 0
        self.events_read = 0
        self.is_dead = False
        self.died = asyncio.Event()
        self._death_point: tuple[int, Moment] | None = None
        self._failure_point: tuple[int, int, Moment] | None = None
        self._yields = 0
        self.block_commits: asyncio.Event | None = None
        """While this is there and not set, commits wait for it."""
        self.commit_blocked = asyncio.Event()
        """Set when a commit waits for `block_commits`."""
        self.blocked_batch: Sequence[Append] = ()
        """What the commit that waits is to write."""
        self.written: list[Sequence[Append]] = []
        """The batches that were given to the store."""

    def die_at(self, commit: int, moment: Moment) -> None:
        """Die at that commit, counted from 1: from then on nothing returns."""
        self._death_point = (commit, moment)

    def fail_at(self, commit: int, count: int = 1, moment: Moment = "before") -> None:
        """Refuse so many commits, from that one on."""
        self._failure_point = (commit, count, moment)

    def delay(self, turns: int) -> None:
        """Let everything take so many turns of the event loop."""
        self._yields = turns

    async def _before_operation(self) -> None:
        for _ in range(self._yields):
            await asyncio.sleep(0)
        if self.is_dead:
            await asyncio.Future()

    async def _die(self) -> None:
        self.is_dead = True
        self.died.set()
        await asyncio.Future()

    async def commit(self, batch: Sequence[Append]) -> Sequence[bool]:
        await self._before_operation()
        self.commits += 1
        if self._death_point == (self.commits, "before"):
            await self._die()
        fault: Moment | None = None
        if self._failure_point is not None and 0 <= self.commits - self._failure_point[0] < self._failure_point[1]:
            fault = self._failure_point[2]
        if fault == "before":
            raise StoreUnavailable("the disk is full")
        if self.block_commits is not None:
            self.blocked_batch = batch
            self.commit_blocked.set()
            await self.block_commits.wait()
        self.written.append(batch)
        taken = await self.store.commit(batch)
        if self._death_point == (self.commits, "after"):
            await self._die()
        if fault == "after":
            raise StoreUnavailable("the disk is gone")
        return taken

    async def claim_epoch(self) -> int:
        await self._before_operation()
        return await self.store.claim_epoch()

    async def delete(self, session_id: SessionId, agents: Sequence[str] = ()) -> None:
        await self._before_operation()
        await self.store.delete(session_id, agents)

    async def kept(self, session_id: SessionId, below: str, after: str | None, limit: int) -> Mapping[str, bytes]:
        await self._before_operation()
        return await self.store.kept(session_id, below, after, limit)

    async def kept_size(self, session_id: SessionId) -> int:
        await self._before_operation()
        return await self.store.kept_size(session_id)

    async def pending_cleanups(self) -> Sequence[tuple[SessionId, str]]:
        await self._before_operation()
        return await self.store.pending_cleanups()

    async def finish_cleanup(self, session_id: SessionId, agent: str) -> None:
        await self._before_operation()
        await self.store.finish_cleanup(session_id, agent)

    async def load(self, session_id: SessionId) -> Snapshot | None:
        self.reads += 1
        await self._before_operation()
        return await self.store.load(session_id)

    async def events(self, session_id: SessionId, after: int, limit: int) -> Sequence[LoggedEvent]:
        self.reads += 1
        await self._before_operation()
        found = await self.store.events(session_id, after, limit)
        self.events_read += len(found)
        return found

    async def events_before(self, session_id: SessionId, before: int, limit: int) -> Sequence[LoggedEvent]:
        self.reads += 1
        await self._before_operation()
        found = await self.store.events_before(session_id, before, limit)
        self.events_read += len(found)
        return found

    async def page(
        self, owner: UserId, before: tuple[datetime, SessionId] | None, limit: int
    ) -> Sequence[SessionState]:
        self.reads += 1
        await self._before_operation()
        return await self.store.page(owner, before, limit)

    async def recent(self, owner: UserId, text: str, offset: int, limit: int) -> RecentSessions:
        self.reads += 1
        await self._before_operation()
        return await self.store.recent(owner, text, offset, limit)

    async def unfinished_sessions(self) -> Sequence[SessionId]:
        self.reads += 1
        await self._before_operation()
        return await self.store.unfinished_sessions()

    async def expired_sessions(self, by: datetime, limit: int) -> Sequence[tuple[SessionId, UserId]]:
        self.reads += 1
        await self._before_operation()
        return await self.store.expired_sessions(by, limit)

    async def idle_sessions(
        self,
        by: datetime,
        limit: int,
        *,
        skip: int = 0,
        only: UserId | None = None,
        except_for: Collection[UserId] = (),
    ) -> Sequence[tuple[SessionId, UserId]]:
        self.reads += 1
        await self._before_operation()
        return await self.store.idle_sessions(by, limit, skip=skip, only=only, except_for=except_for)

    async def find_run(self, run_id: RunId) -> RunLocation | None:
        self.reads += 1
        await self._before_operation()
        return await self.store.find_run(run_id)

    async def known_calls(self, session_id: SessionId, call_ids: Collection[CallId]) -> set[CallId]:
        self.reads += 1
        await self._before_operation()
        return await self.store.known_calls(session_id, call_ids)

    async def find_by_name(self, owner: UserId, name: str) -> SessionId | None:
        self.reads += 1
        await self._before_operation()
        return await self.store.find_by_name(owner, name)

    async def find_owner(self, session_id: SessionId) -> UserId | None:
        self.reads += 1
        await self._before_operation()
        return await self.store.find_owner(session_id)

    async def find_messages(self, session_id: SessionId, ids: Collection[str]) -> dict[str, int]:
        self.reads += 1
        await self._before_operation()
        return await self.store.find_messages(session_id, ids)

    async def find_idempotency_record(self, owner: UserId, key: str) -> IdempotencyRecord | None:
        self.reads += 1
        await self._before_operation()
        return await self.store.find_idempotency_record(owner, key)

    async def find_request(
        self, owner: UserId, key: str, session_id: SessionId, ids: Collection[str]
    ) -> tuple[IdempotencyRecord | None, dict[str, int]]:
        self.reads += 1
        await self._before_operation()
        return await self.store.find_request(owner, key, session_id, ids)
