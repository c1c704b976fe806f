"""An owner's sessions in order of use, and full-text search."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from psycopg import Connection

from dragoman.core import events
from dragoman.core.ids import UserId
from dragoman.core.refusals import SessionUnreadable
from dragoman.ports.log import RecentSessions
from dragoman.stores.decoding import decode_states
from dragoman.stores.lookups import MAX_SEARCHED_EVENTS, text_in
from dragoman.stores.postgres.statements import statements

_SQL = statements("log")
_PAGE_SIZE = 500
_MAX_SEQ = 2**62


def find_recent_sessions(
    owner: UserId, text: str, offset: int, limit: int, connection: Connection
) -> tuple[RecentSessions, list[SessionUnreadable]]:
    """Return a page of an owner's sessions as `SessionIndex.recent` does, and the errors of those left out."""
    values = {"owner": owner, "limit": None if text else limit, "offset": 0 if text else offset}
    states, unreadable = decode_states(connection.execute(_SQL["recent"], values))
    if not text:
        (total,) = connection.execute(_SQL["count"], {"owner": owner}).fetchone() or (0,)
        return RecentSessions(states=states, total=total), unreadable
    search = _Search(text, connection)
    matches = [state for state in states if search.matches(state.session_id, state.settings.title)]
    is_partial = search.remaining_events <= 0
    page = RecentSessions(states=matches[offset : offset + limit], total=len(matches), is_partial=is_partial)
    return page, unreadable


class _Search:
    def __init__(self, text: str, connection: Connection) -> None:
        self.remaining_events = MAX_SEARCHED_EVENTS
        self._text = text.casefold()
        self._connection = connection

    def matches(self, session_id: str, title: str | None) -> bool:
        return self._text in (title or "").casefold() or any(
            self._text in text.casefold() for text in self._texts(session_id)
        )

    def _texts(self, session_id: str) -> Iterator[str]:
        """The texts of a session, newest first."""
        before = _MAX_SEQ
        while self.remaining_events > 0:
            asked = {"session": session_id, "before": before, "limit": min(_PAGE_SIZE, self.remaining_events)}
            rows: list[tuple[Any, ...]] = self._connection.execute(_SQL["texts"], asked).fetchall()
            for seq, payload in rows:
                self.remaining_events -= 1
                before = seq
                with suppress(ValueError):  # damaged: reading the session reports it
                    yield text_in(events.decode(payload))
            if len(rows) < _PAGE_SIZE:
                return
