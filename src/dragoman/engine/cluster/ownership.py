"""Which sessions this server owns, as far as it knows without asking the store. Nothing here claims, reads or waits.

A server owns a session while it executes the session's run or has something to write to it. It can rely on a session
at rest only while it is alone, and only if no other server wrote to the session before that.
"""

from collections.abc import Iterable

from dragoman.core.ids import SessionId
from dragoman.engine.sessions.live_session import LiveSession


class Ownership:
    """What this server knows about ownership without asking the store."""

    def __init__(self) -> None:
        self.is_alone = False
        """Whether no other server is alive, as far as this one knows."""
        self._possibly_stale: set[SessionId] = set()
        """Sessions in memory that another server may have written to before this one was alone."""

    def become_alone(self, possibly_stale: Iterable[SessionId]) -> None:
        """Record that no other server is left, and that these sessions may have been written by one."""
        self._possibly_stale.update(possibly_stale)
        self.is_alone = True

    def mark_current(self, session_id: SessionId) -> None:
        """Record that everything that others wrote to a session is known here."""
        self._possibly_stale.discard(session_id)

    def is_ours(self, live: LiveSession) -> bool:
        """Whether this server writes to the session now, so that no other server can."""
        if live.is_remote:
            return False
        return live.state.run is not None or bool(live.state.queue) or not live.is_clean

    def is_known_current(self, live: LiveSession) -> bool:
        """Whether no other server can have written to the session."""
        return self.is_alone and not live.is_remote and live.state.session_id not in self._possibly_stale
