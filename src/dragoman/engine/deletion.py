"""Deletes sessions, and has their agents forget what they store of them outside the server.

The store records which agents have to forget a session until they have done so: neither a crash nor an error of the
agent loses it.
"""

from collections.abc import Collection
from datetime import datetime

import structlog

from dragoman.core import admission
from dragoman.core.agent import KeepsSessionData
from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import SessionBusy, SessionNotFound
from dragoman.engine.cluster.cluster import Cluster
from dragoman.engine.cluster.single_server import SingleServer
from dragoman.engine.runs.write_access import WriteAccess
from dragoman.engine.services.attachments import Attachments
from dragoman.engine.services.audit import AuditLog
from dragoman.engine.services.served_agents import ServedAgents
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.ports.environment import Clock
from dragoman.ports.log import EventLog, StoreIndex

log = structlog.get_logger(__name__)


class Deletion:
    """Deletes sessions.

    Args:
        store: contains their events.
        index: finds them by their ids.
        sessions: those in memory.
        write_access: claims them.
        cluster: the other servers on the store.
        attachments: their large contents.
        clock: decides which have expired.
        agents: those that have to forget sessions.
        audit: records deletions of sessions that users see in lists.
    """

    def __init__(
        self,
        store: EventLog,
        index: StoreIndex,
        *,
        sessions: SessionRegistry,
        write_access: WriteAccess,
        cluster: Cluster | SingleServer,
        attachments: Attachments,
        clock: Clock,
        agents: ServedAgents,
        audit: AuditLog | None,
    ) -> None:
        self._store = store
        self._index = index
        self._sessions = sessions
        self._write_access = write_access
        self._cluster = cluster
        self._attachments = attachments
        self._clock = clock
        self._agents = agents
        self._audit = audit

    async def resume(self) -> None:
        """Have the agents of this server delete what they still keep of deleted sessions."""
        for session_id, name in await self._store.pending_cleanups():
            await self._clean_up(session_id, name)

    async def delete(self, live: LiveSession) -> None:
        """Delete a session. Its run is stopped first, so that its readers see the end."""
        if await self._write_access.stop(live, None):
            await self._cluster.wait_for_remote_readers()
        async with self._write_access.acquire(live) as may_write:
            if not may_write:
                raise SessionBusy
            await self._delete(live)

    async def delete_if_expired(self, live: LiveSession, idle_since: datetime | None = None) -> bool:
        """Delete a session at rest that has expired, or not changed since then.

        The caller must have its only reference.
        """
        async with self._write_access.acquire(live) as may_write:
            expires_at = live.state.expires_at()
            is_idle = idle_since is not None and live.state.updated_at <= idle_since
            is_over = is_idle or (expires_at is not None and expires_at <= self._clock.now())
            if not (may_write and is_over) or live.reference_count > 1 or admission.is_busy(live.state):
                return False
            await self._delete(live, has_expired=True)
        return True

    async def delete_unreadable(self, owner: UserId, session_id: SessionId) -> None:
        """Delete a session whose stored data cannot be decoded. Its agent is unknown, so all of them forget it."""
        if await self._index.find_owner(session_id) != owner:
            raise SessionNotFound
        await self._attachments.delete_for_session(session_id, owner)
        await self._delete_stored(session_id, self._agents.by_name)
        self._notify(session_id, owner)
        await self._record(session_id, owner)

    async def _delete(self, live: LiveSession, *, has_expired: bool = False) -> None:
        live.raise_if_ended()  # lost or deleted: this object no longer represents the session
        live.end(SessionNotFound("the session was deleted"))
        session_id, owner = live.state.session_id, live.state.owner
        try:  # attachments first: a leftover session can be deleted again, leftover attachments cannot
            await self._attachments.delete_for_session(session_id, owner)
            # Until then the ended object prevents others from loading it.
            await self._delete_stored(session_id, (live.state.agent,))
        finally:
            self._sessions.remove(live)
        if not live.state.settings.unlisted:
            self._notify(session_id, owner)
            await self._record(session_id, owner, has_expired=has_expired)

    async def _record(self, session_id: SessionId, owner: UserId, *, has_expired: bool = False) -> None:
        if self._audit is None:
            return
        if has_expired:  # nobody did it
            await self._audit.record("session.deleted", target=session_id, detail=f"of {owner}: it had expired")
        else:
            await self._audit.record("session.deleted", target=session_id, user=owner)

    async def _delete_stored(self, session_id: SessionId, agents: Collection[str]) -> None:
        """Delete a session from the store, then have the agents that keep data of it delete that, too.

        An agent that is not served here does so when a server that serves it starts.
        """
        with_data = list(filter(self._agents.may_keep_session_data, agents))
        await self._store.delete(session_id, with_data)
        for name in with_data:
            await self._clean_up(session_id, name)

    async def _clean_up(self, session_id: SessionId, name: str) -> None:
        agent = self._agents.find(name)
        if agent is None:
            return
        if isinstance(agent, KeepsSessionData):
            try:
                await agent.forget(session_id)
            except Exception:  # the session is deleted; the next start tries again
                log.exception("agent failed to delete what it keeps of a session", agent=name, session_id=session_id)
                return
        await self._store.finish_cleanup(session_id, name)

    def _notify(self, session_id: SessionId, owner: UserId) -> None:
        self._sessions.notify_deleted(session_id, owner)
        self._cluster.on_deleted(session_id, owner)
