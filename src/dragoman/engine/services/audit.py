"""The audit log: an append-only record of keys, logins, shares, deletions, exports and limits.

What somebody did is stored before the request is answered. What anybody can cause in any number, such as wrong keys, is
counted, and stored as one entry for each kind and address a minute.
"""

import asyncio
from contextlib import suppress

import msgspec
import structlog

from dragoman.core.audit import ACTOR, Action, Actor, AuditEntry
from dragoman.core.ids import UserId
from dragoman.core.refusals import Invalid, StoreUnavailable
from dragoman.ports.accounts import AuditStore
from dragoman.ports.environment import Clock, Ids

COUNT_INTERVAL_S = 60.0
"""How often counts are stored."""
RETRY_INTERVAL_S = 2.0
MAX_COUNTS = 1000
"""Kinds and addresses that are counted separately at a time; further ones share one entry."""
MAX_UNWRITTEN = 10_000
"""Entries that wait for a store that cannot write."""
MAX_DETAIL_CHARS = 200
MAX_REQUEST_ID_CHARS = 128
MAX_PAGE = 1000

log = structlog.get_logger(__name__)


class AuditLog:
    """The audit log of one server. Servers on the same store share it."""

    def __init__(self, store: AuditStore, clock: Clock, ids: Ids) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._unwritten: list[AuditEntry] = []
        self._counts: dict[tuple[Action, Actor, str], int] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to store counts, and what could not be stored at once."""
        self._task = asyncio.create_task(self._run(), name="audit log")

    async def close(self) -> None:
        """Store the rest."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.flush()

    async def record(self, action: Action, *, target: str = "", detail: str = "", user: UserId | None = None) -> None:
        """Record what the sender of the current request did. If the store cannot write, it is stored later.

        Args:
            action: what it was.
            target: the key or session concerned.
            detail: more about it.
            user: who did it, if there is no current request.
        """
        actor = ACTOR.get() or Actor(user or UserId(""))
        self._add(action, actor, target, detail, 1)
        await self._write()

    def count(self, action: Action, actor: Actor, detail: str = "") -> None:
        """Count what anybody may cause in any number. Does not wait."""
        key = (action, msgspec.structs.replace(actor, request_id=""), detail[:MAX_DETAIL_CHARS])
        if key not in self._counts and len(self._counts) >= MAX_COUNTS:
            key = (action, Actor(), "from many addresses")
        self._counts[key] = self._counts.get(key, 0) + 1

    async def page(
        self, *, before: str | None = None, limit: int = 100, user: str | None = None, action: str | None = None
    ) -> list[AuditEntry]:
        """Entries, newest first.

        Args:
            before: only entries older than the one with this id.
            limit: at most as many.
            user: only those of a user.
            action: only those of an action.

        Raises:
            Invalid: the limit is not from 1 to `MAX_PAGE`.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise Invalid(f"expected a limit from 1 to {MAX_PAGE}, got {limit}", path="limit")
        return list(await self._store.page(before, limit, user, action))

    async def flush(self) -> None:
        """Store counts, and what could not be stored at once."""
        counts, self._counts = self._counts, {}
        for (action, actor, detail), count in counts.items():
            self._add(action, actor, "", detail, count)
        await self._write()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _add(self, action: Action, actor: Actor, target: str, detail: str, count: int) -> None:
        entry = AuditEntry(
            entry_id=self._ids.new(),
            at=self._clock.now(),
            action=action,
            user=actor.user,
            key_id=actor.key_id,
            address=actor.address,
            request_id=actor.request_id[:MAX_REQUEST_ID_CHARS],
            target=target,
            detail=detail[:MAX_DETAIL_CHARS],
            count=count,
        )
        if len(self._unwritten) < MAX_UNWRITTEN:
            self._unwritten.append(entry)
        else:
            log.error("audit log: an entry is lost, because the store cannot write", entry=msgspec.to_builtins(entry))

    async def _write(self) -> None:
        entries, self._unwritten = self._unwritten, []
        if not entries:
            return
        try:
            await self._store.add(entries)
        except StoreUnavailable:
            self._unwritten = entries + self._unwritten

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        next_flush = loop.time() + COUNT_INTERVAL_S
        while True:
            await asyncio.sleep(RETRY_INTERVAL_S)
            try:
                if loop.time() >= next_flush:
                    next_flush = loop.time() + COUNT_INTERVAL_S
                    await self.flush()
                else:
                    await self._write()
            except Exception:  # the outer edge of a task that must continue
                log.exception("audit log: cannot store entries")
