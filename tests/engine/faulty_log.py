"""A store with faults: it counts, delays, refuses, and dies with its server at the n-th commit."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Literal

from dragoman.core.events import Logged
from dragoman.core.ids import CallId, RunId, SessionId, UserId
from dragoman.core.refusals import StoreUnavailable
from dragoman.core.session import SessionState
from dragoman.ports import Append, Once, Recent, RunRow, Snapshot
from tests.stores.simulated import Store

Moment = Literal["before", "after"]
"""Whether a fault strikes before a commit took effect, or after it did but before anybody was told."""


class FaultyLog:
    """A store between an engine and the real one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.commits = 0
        self.reads = 0
        self.events_read = 0
        self.is_dead = False
        self.died = asyncio.Event()
        self._dies_at: tuple[int, Moment] | None = None
        self._fails_at: tuple[int, int, Moment] | None = None
        self._yields = 0
        self.hold: asyncio.Event | None = None
        """While this is there and not set, commits wait for it."""
        self.held = asyncio.Event()
        """Set when a commit waits for `hold`."""

    def die_at(self, commit: int, moment: Moment) -> None:
        """Die at that commit, counted from 1: from then on nothing returns."""
        self._dies_at = (commit, moment)

    def fail_at(self, commit: int, count: int = 1, moment: Moment = "before") -> None:
        """Refuse so many commits, from that one on."""
        self._fails_at = (commit, count, moment)

    def delay(self, turns: int) -> None:
        """Let everything take so many turns of the event loop."""
        self._yields = turns

    async def _come_in(self) -> None:
        for _ in range(self._yields):
            await asyncio.sleep(0)
        if self.is_dead:
            await asyncio.Future()

    async def _die(self) -> None:
        self.is_dead = True
        self.died.set()
        await asyncio.Future()

    async def commit(self, batch: Sequence[Append]) -> Sequence[bool]:
        await self._come_in()
        self.commits += 1
        if self._dies_at == (self.commits, "before"):
            await self._die()
        fault: Moment | None = None
        if self._fails_at is not None and 0 <= self.commits - self._fails_at[0] < self._fails_at[1]:
            fault = self._fails_at[2]
        if fault == "before":
            raise StoreUnavailable("the disk is full")
        if self.hold is not None:
            self.held.set()
            await self.hold.wait()
        taken = await self.store.commit(batch)
        if self._dies_at == (self.commits, "after"):
            await self._die()
        if fault == "after":
            raise StoreUnavailable("the disk is gone")
        return taken

    async def claim(self) -> int:
        await self._come_in()
        return await self.store.claim()

    async def delete(self, session_id: SessionId) -> None:
        await self._come_in()
        await self.store.delete(session_id)

    async def load(self, session_id: SessionId) -> Snapshot | None:
        self.reads += 1
        await self._come_in()
        return await self.store.load(session_id)

    async def events(self, session_id: SessionId, after: int, limit: int) -> Sequence[Logged]:
        self.reads += 1
        await self._come_in()
        found = await self.store.events(session_id, after, limit)
        self.events_read += len(found)
        return found

    async def events_before(self, session_id: SessionId, before: int, limit: int) -> Sequence[Logged]:
        self.reads += 1
        await self._come_in()
        found = await self.store.events_before(session_id, before, limit)
        self.events_read += len(found)
        return found

    async def page(
        self, owner: UserId, before: tuple[datetime, SessionId] | None, limit: int
    ) -> Sequence[SessionState]:
        self.reads += 1
        await self._come_in()
        return await self.store.page(owner, before, limit)

    async def recent(self, owner: UserId, words: str, offset: int, limit: int) -> Recent:
        self.reads += 1
        await self._come_in()
        return await self.store.recent(owner, words, offset, limit)

    async def unfinished(self) -> Sequence[SessionId]:
        self.reads += 1
        await self._come_in()
        return await self.store.unfinished()

    async def run(self, run_id: RunId) -> RunRow | None:
        self.reads += 1
        await self._come_in()
        return await self.store.run(run_id)

    async def settled(self, session_id: SessionId, call_ids: Collection[CallId]) -> set[CallId]:
        self.reads += 1
        await self._come_in()
        return await self.store.settled(session_id, call_ids)

    async def named(self, owner: UserId, name: str) -> SessionId | None:
        self.reads += 1
        await self._come_in()
        return await self.store.named(owner, name)

    async def messages(self, session_id: SessionId, ids: Collection[str]) -> dict[str, int]:
        self.reads += 1
        await self._come_in()
        return await self.store.messages(session_id, ids)

    async def once(self, owner: UserId, key: str) -> Once | None:
        self.reads += 1
        await self._come_in()
        return await self.store.once(owner, key)

    async def seen(
        self, owner: UserId, key: str, session_id: SessionId, ids: Collection[str]
    ) -> tuple[Once | None, dict[str, int]]:
        self.reads += 1
        await self._come_in()
        return await self.store.seen(owner, key, session_id, ids)
