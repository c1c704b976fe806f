"""What happens in sessions at other servers, told to those here who show their owners lists of them.

    who commits    says which session begins to run, comes to rest or changes its settings, and whose it is
    who shows      looks that up, if one of its users is the owner, and tells its watchers as of what happens here

Who asks for a session reads its log in any case; this is for lists, which nobody asks for again. What is lost is made
good by the next change.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import lru_cache
from hashlib import sha256

import structlog

from dragoman.core.events import RunStarted, RunStopped, SettingsChanged
from dragoman.core.ids import SessionId
from dragoman.core.refusals import Refused
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.ports.bus import Bus
from dragoman.ports.log import Append, EventLog

LIST_CHANGED_SUBJECT = "changed"
"""The subject on which is said what lists show otherwise: by which server, the session, whose, after which event."""
LIST_EVENTS = frozenset({RunStarted, RunStopped, SettingsChanged})
PAGE = 200
"""Events that are looked at behind a hint; what comes later has a hint of its own."""
MAX_CONCURRENT_LOOKUPS = 256
"""Changes that are looked up at once; further ones are lost, as hints may be."""
SEQ_DIGITS = 19
"""An event's number has fewer: stores count with 64 bits."""

log = structlog.get_logger(__name__)


class SessionListNotifier:
    """Tells the watchers of `Sessions` what other servers did."""

    def __init__(
        self, sessions: SessionRegistry, events: EventLog, bus: Bus, refresh: Callable[[LiveSession], Awaitable[None]]
    ) -> None:
        """Args:
        sessions: those in memory, and who watches them.
        events: where the others are.
        bus: hints to and from the other servers.
        refresh: brings a session in memory up to date, which tells its watchers.
        """
        self.owners: Callable[[], Collection[str]] = tuple
        """Whose sessions somebody here shows."""
        self._sessions = sessions
        self._events = events
        self._bus = bus
        self._refresh = refresh
        self._lookups: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Look no more."""
        for task in self._lookups:
            task.cancel()

    def send(self, batch: Sequence[Append], node: str) -> None:
        """Say what this server committed."""
        for append in batch:
            if not LIST_EVENTS.isdisjoint(type(logged.event) for logged in append.events):
                hint = f"{node} {append.session_id} {_owner_digest(append.owner)} {append.after}"
                self._bus.publish(LIST_CHANGED_SUBJECT, hint)

    def on_hint(self, payload: str, own_node: str) -> None:
        """Look at what another server said, if it concerns somebody here."""
        match payload.split():
            case [node, session_id, mark, after] if after.isdecimal() and len(after) < SEQ_DIGITS:
                if node != own_node and any(_owner_digest(owner) == mark for owner in self.owners()):
                    self._start_lookup(SessionId(session_id), int(after))
            case _:
                log.debug("hint not understood", subject=LIST_CHANGED_SUBJECT, length=len(payload))

    def _start_lookup(self, session_id: SessionId, after: int) -> None:
        if len(self._lookups) >= MAX_CONCURRENT_LOOKUPS:
            log.debug("hint not followed", session_id=session_id)
            return
        task = asyncio.create_task(self._look_up(session_id, after), name=f"changed {session_id}")
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)

    async def _look_up(self, session_id: SessionId, after: int) -> None:
        try:
            live = self._sessions.get_loaded(session_id)
            if live is not None:
                await self._refresh(live)
                return
            live = await self._sessions.get(session_id)
            if live is not None:
                events = await self._events.events(session_id, after, PAGE)
                for watcher in self._sessions.watchers:
                    watcher(live, events)
        except Refused:  # it is deleted, or cannot be read now
            return
        except Exception:  # the root of a task
            log.exception("a change elsewhere was not told", session_id=session_id)


@lru_cache(4096)
def _owner_digest(owner: str) -> str:
    """What a user's sessions are known by in hints, which name no users."""
    return sha256(owner.encode()).hexdigest()[:16]
