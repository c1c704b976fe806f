"""An owner's sessions in order of use, and full-text search. Runs on a reader thread."""

import sqlite3
from collections.abc import Iterator
from contextlib import suppress

from dragoman.core import events
from dragoman.core.ids import UserId
from dragoman.core.refusals import SessionUnreadable
from dragoman.ports.log import RecentSessions
from dragoman.stores.decoding import decode_states
from dragoman.stores.lookups import MAX_SEARCHED_EVENTS, text_in

_SELECT = (
    "SELECT session_id, head, settings FROM sessions WHERE owner = ?"
    " ORDER BY ifnull(json_extract(settings, '$.pinned'), 0) DESC, updated_at DESC, session_id DESC"
)


def find_recent_sessions(
    owner: UserId, text: str, offset: int, limit: int, connection: sqlite3.Connection
) -> tuple[RecentSessions, list[SessionUnreadable]]:
    """Return a page of an owner's sessions as `SessionIndex.recent` does, and the errors of those left out."""
    if not text:
        rows = connection.execute(f"{_SELECT} LIMIT ? OFFSET ?", (owner, limit, offset))
        states, unreadable = decode_states(rows)
        (total,) = connection.execute("SELECT count(*) FROM sessions WHERE owner = ?", (owner,)).fetchone()
        return RecentSessions(states=states, total=total), unreadable
    search = _Search(text, connection)
    states, unreadable = decode_states(connection.execute(_SELECT, (owner,)).fetchall())
    matches = [state for state in states if search.matches(state.session_id, state.settings.title)]
    is_partial = search.remaining_events <= 0
    page = RecentSessions(states=matches[offset : offset + limit], total=len(matches), is_partial=is_partial)
    return page, unreadable


class _Search:
    def __init__(self, text: str, connection: sqlite3.Connection) -> None:
        self.remaining_events = MAX_SEARCHED_EVENTS
        self._text = text.casefold()
        self._connection = connection

    def matches(self, session_id: str, title: str | None) -> bool:
        return self._text in (title or "").casefold() or any(
            self._text in text.casefold() for text in self._texts(session_id)
        )

    def _texts(self, session_id: str) -> Iterator[str]:
        """The texts of a session, newest first."""
        rows = self._connection.execute(
            "SELECT payload FROM events WHERE session = (SELECT number FROM sessions WHERE session_id = ?)"
            " AND type IN ('message_added', 'block_closed') ORDER BY seq DESC",
            (session_id,),
        )
        for (payload,) in rows:
            if self.remaining_events <= 0:
                return
            self.remaining_events -= 1
            with suppress(ValueError):  # damaged: reading the session reports it
                yield text_in(events.decode(payload))
