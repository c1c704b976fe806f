"""Deletes sessions at the end of their lifetime: right after the answer, or later if a crash prevented that.

It also enforces the retention of sessions: the server's, and those of single users.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import count

import structlog

from dragoman.core.audit import ACTOR
from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import Refused, SessionNotFound, SessionUnreadable
from dragoman.engine.background_tasks import BackgroundTasks
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView

CHECK_INTERVAL_S = 30.0
"""How often the store is searched for expired sessions."""
CLUSTER_GRACE_S = 60.0
"""How much later another server's sessions expire: it may be about to use one, or still send its answer."""
BATCH = 200
"""Sessions that are looked up at a time."""
CHECKS_PER_RETENTION = 120
"""How many checks there are for one enforcement of the retention: one per hour. Its search reads all sessions."""
RETENTION_PAUSE_S = 1.0
"""Pause after a batch of old sessions, so that deleting many does not delay other work."""

log = structlog.get_logger(__name__)


class ExpiredSessions:
    """Deletes expired sessions.

    Args:
        engine: deletes them.
        retention_days: after how many days without change sessions are deleted; 0 for never.
        retention_of_users: the same for single users.
    """

    def __init__(
        self,
        engine: Engine,
        retention_days: int = 0,
        retention_of_users: Callable[[], Mapping[UserId, int]] = dict,
    ) -> None:
        self._engine = engine
        self._retention_days = retention_days
        self._retention_of_users = retention_of_users
        self._tasks = BackgroundTasks()

    async def start(self, *, run_timer: bool = True) -> None:
        """Delete what expired while no server ran, and from then on what expires.

        Args:
            run_timer: check regularly; else the caller calls `tick`.
        """
        if run_timer:
            self._tasks.start(self._run(), "expired sessions")

    async def close(self) -> None:
        """Stop. What is left is deleted after the next start."""
        self._tasks.cancel()
        await self._tasks.wait()

    def check(self, session: SessionView) -> None:
        """Delete a session if its answer was all that it lived for. Returns at once."""
        if session.state.settings.is_ephemeral:
            self._tasks.start(self._delete_quietly(session.state.session_id, session.state.owner), "expired sessions")

    async def tick(self) -> None:
        """Delete what has expired, except for sessions that are in use."""
        grace_s = CLUSTER_GRACE_S if self._engine.cluster.is_shared else 0.0
        by = self._engine.clock.now() - timedelta(seconds=grace_s)
        while True:
            expired = await self._engine.index.expired_sessions(by, BATCH)
            deleted = [await self._delete(*each) for each in expired]
            if len(expired) < BATCH or not any(deleted):
                return

    async def enforce_retention(self) -> None:
        """Delete the sessions that have not changed for as many days as their owner's retention, in portions.

        Sessions that cannot be read are kept and logged.
        """
        of_users = self._retention_of_users()
        for user, days in of_users.items():
            await self._delete_idle(days, only=user)
        await self._delete_idle(self._retention_days, except_for=of_users)

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        ACTOR.set(None)  # nobody's request
        for number in count():
            try:
                await self.tick()
                if number % CHECKS_PER_RETENTION == 0:
                    await self.enforce_retention()
            except Refused as refused:
                log.warning("expired sessions were not deleted", reason=str(refused))
            except Exception:  # the root of a task
                log.exception("expired sessions were not deleted")
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def _delete_idle(self, days: int, *, only: UserId | None = None, except_for: Collection[UserId] = ()) -> None:
        if not days:
            return
        by = self._engine.clock.now() - timedelta(days=days)
        kept = 0  # which stay the oldest
        while True:
            idle = await self._engine.index.idle_sessions(by, BATCH, skip=kept, only=only, except_for=except_for)
            deleted = [await self._delete(*each, by) for each in idle]
            kept += len(idle) - sum(deleted)
            if any(deleted):
                log.info("old sessions deleted", sessions=sum(deleted), retention_days=days)
            if len(idle) < BATCH:
                return
            await asyncio.sleep(RETENTION_PAUSE_S)

    async def _delete(self, session_id: SessionId, owner: UserId, idle_since: datetime | None = None) -> bool:
        try:
            return await self._engine.delete_if_expired(owner, session_id, idle_since)
        except SessionNotFound:  # another server, or its owner, was faster
            return True
        except SessionUnreadable:
            if idle_since is not None:  # what is damaged may be repaired, and nobody asked to have it deleted
                log.warning("old session kept, because it cannot be read", session_id=session_id, hint="dragoman check")
                return False
            await self._engine.delete_by_name(owner, session_id)
            return True

    async def _delete_quietly(self, session_id: SessionId, owner: UserId) -> None:
        ACTOR.set(None)  # the request is over
        with suppress(Refused):  # the next check tries again
            await self._delete(session_id, owner)
