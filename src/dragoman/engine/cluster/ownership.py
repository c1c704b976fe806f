"""Whose session is whose, as far as this server knows. Plain answers: nothing here claims, reads or waits.

A session is this server's while its run is played here, or something is still to be written here. Of one at rest it
can be sure only while it is alone, and only if nobody wrote it before that.
"""

from collections.abc import Iterable

from dragoman.core.ids import SessionId
from dragoman.engine.sessions.live_session import LiveSession


class Ownership:
    """What this server may rely on without asking the store."""

    def __init__(self) -> None:
        self.is_alone = False
        """Whether no other server lives, as far as is known."""
        self._possibly_stale: set[SessionId] = set()
        """Sessions in memory that another server may have written before this one was alone."""

    def become_alone(self, possibly_stale: Iterable[SessionId]) -> None:
        """The last other server left or died, which may have written these sessions."""
        self._possibly_stale.update(possibly_stale)
        self.is_alone = True

    def mark_current(self, session_id: SessionId) -> None:
        """What others wrote to a session is known here."""
        self._possibly_stale.discard(session_id)

    def is_ours(self, live: LiveSession) -> bool:
        """Whether this server writes the session now, so that no other one can."""
        if live.is_remote:
            return False
        return live.state.run is not None or bool(live.state.queue) or not live.is_clean

    def is_known_current(self, live: LiveSession) -> bool:
        """Whether nobody else can have written the session."""
        return self.is_alone and not live.is_remote and live.state.session_id not in self._possibly_stale
