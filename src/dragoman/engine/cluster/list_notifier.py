"""Notifies this server's watchers of changes to session lists that other servers make.

    committing server    publishes which session starts to run, or changes while it is at rest, and for whom
    this server          reads that change if the owner is connected here, and notifies its watchers

A request for a session always reads the session's log. This is for lists that clients already show. A lost hint is
repaired by the session's next change.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import lru_cache
from hashlib import sha256

import structlog

from dragoman.core.events import RunStarted, RunStopped, SettingsChanged
from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import Refused
from dragoman.engine.background_tasks import BackgroundTasks
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.ports.bus import Bus
from dragoman.ports.log import Append, EventLog

LIST_CHANGED_SUBJECT = "changed"
"""Subject of the hints: publishing server, session, digest of the owner, event before the change or `DELETED`."""
DELETED = "deleted"
LIST_EVENTS = frozenset({RunStarted, RunStopped, SettingsChanged})
"""Events that lists show even if the session is not at rest afterwards."""
PAGE = 200
"""Maximum number of events read for one hint; later events have hints of their own."""
MAX_CONCURRENT_LOOKUPS = 256
"""Maximum number of concurrent lookups; further hints are dropped."""
SEQ_DIGITS = 19
"""More than the digits of any event number, which has 64 bits."""

log = structlog.get_logger(__name__)


class SessionListNotifier:
    """Notifies the watchers of the `SessionRegistry` of what other servers did.

    Args:
        sessions: the sessions in memory, with their watchers.
        events: the log.
        bus: carries hints between the servers.
        refresh: reads what other servers wrote to a session in memory, which notifies the watchers.
    """

    def __init__(
        self, sessions: SessionRegistry, events: EventLog, bus: Bus, refresh: Callable[[LiveSession], Awaitable[None]]
    ) -> None:
        self.owners: Callable[[], Collection[UserId]] = tuple
        """Returns the users who are shown session lists here."""
        self._sessions = sessions
        self._events = events
        self._bus = bus
        self._refresh = refresh
        self.lookups = BackgroundTasks()
        """Read sessions that other servers changed."""

    def close(self) -> None:
        """Cancel all lookups."""
        self.lookups.cancel()

    def send(self, batch: Sequence[Append], node: str) -> None:
        """Publish what this server committed, as far as lists show it."""
        for append in batch:
            is_at_rest = append.head is not None
            if is_at_rest or not LIST_EVENTS.isdisjoint(type(logged.event) for logged in append.events):
                hint = f"{node} {append.session_id} {_owner_digest(append.owner)} {append.after}"
                self._bus.publish(LIST_CHANGED_SUBJECT, hint)

    def send_deleted(self, session_id: SessionId, owner: UserId, node: str) -> None:
        """Publish that this server deleted a session."""
        self._bus.publish(LIST_CHANGED_SUBJECT, f"{node} {session_id} {_owner_digest(owner)} {DELETED}")

    def on_hint(self, payload: str, own_node: str) -> None:
        """Handle another server's hint, if it concerns a user of this server."""
        match payload.split():
            case [node, session_id, mark, after] if after == DELETED:
                for owner in self.owners() if node != own_node else ():
                    if _owner_digest(owner) == mark:
                        self._sessions.notify_deleted(SessionId(session_id), owner)
            case [node, session_id, mark, after] if after.isdecimal() and len(after) < SEQ_DIGITS:
                if node != own_node and any(_owner_digest(owner) == mark for owner in self.owners()):
                    self._start_lookup(SessionId(session_id), int(after))
            case _:
                log.debug("invalid hint", subject=LIST_CHANGED_SUBJECT, length=len(payload))

    def _start_lookup(self, session_id: SessionId, after: int) -> None:
        if len(self.lookups) >= MAX_CONCURRENT_LOOKUPS:
            log.debug("hint dropped", session_id=session_id)
            return
        self.lookups.start(self._look_up(session_id, after), f"changed {session_id}")

    async def _look_up(self, session_id: SessionId, after: int) -> None:
        try:
            live = self._sessions.get_loaded(session_id)
            if live is not None:
                await self._refresh(live)
                return
            live = await self._sessions.get(session_id)
            if live is not None:
                self._sessions.notify_watchers(live, await self._events.events(session_id, after, PAGE))
        except Refused:  # the session is deleted, or cannot be read now
            return
        except Exception:  # the root of a task
            log.exception("failed to notify of a remote change", session_id=session_id)


@lru_cache(4096)
def _owner_digest(owner: str) -> str:
    """The digest that stands for a user in hints, which contain no user ids."""
    return sha256(owner.encode()).hexdigest()[:16]
