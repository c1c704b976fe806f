"""An owner's sessions by their use, and which of them hold a text. Runs on a reader's thread."""

import sqlite3
from collections.abc import Iterator

from dragoman.core import events
from dragoman.core.ids import UserId
from dragoman.core.session import decode_head
from dragoman.ports.log import RecentSessions
from dragoman.stores.lookups import MAX_SEARCHED_EVENTS, text_in

_ORDER = (
    " FROM sessions WHERE owner = ?"
    " ORDER BY ifnull(json_extract(settings, '$.pinned'), 0) DESC, updated_at DESC, session_id DESC"
)


def find_recent_sessions(
    owner: UserId, text: str, offset: int, limit: int, connection: sqlite3.Connection
) -> RecentSessions:
    """See `SessionIndex.recent`."""
    if not text:
        rows = connection.execute(f"SELECT head, settings{_ORDER} LIMIT ? OFFSET ?", (owner, limit, offset))
        states = [decode_head(*row) for row in rows]
        (total,) = connection.execute("SELECT count(*) FROM sessions WHERE owner = ?", (owner,)).fetchone()
        return RecentSessions(states=states, total=total)
    search = _Search(text, connection)
    every = connection.execute(f"SELECT head, settings{_ORDER}", (owner,)).fetchall()
    found = [
        state
        for state in (decode_head(*row) for row in every)
        if search.matches(state.session_id, state.settings.title)
    ]
    return RecentSessions(
        states=found[offset : offset + limit], total=len(found), is_partial=search.remaining_events <= 0
    )


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
        """What was said in a session, newest first."""
        rows = self._connection.execute(
            "SELECT payload FROM events WHERE session = (SELECT number FROM sessions WHERE session_id = ?)"
            " AND type IN ('message_added', 'block_closed') ORDER BY seq DESC",
            (session_id,),
        )
        for (payload,) in rows:
            if self.remaining_events <= 0:
                return
            self.remaining_events -= 1
            yield text_in(events.decode(payload))
