"""An owner's sessions by their use, and which of them hold a text. Runs on a reader's thread."""

import sqlite3
from collections.abc import Iterator

from dragoman.core import events
from dragoman.core.ids import UserId
from dragoman.core.session import thaw
from dragoman.ports import Recent
from dragoman.stores.lookups import SEARCHED, said_in

_ORDER = (
    " FROM sessions WHERE owner = ?"
    " ORDER BY ifnull(json_extract(settings, '$.pinned'), 0) DESC, updated_at DESC, session_id DESC"
)


def recent(owner: UserId, words: str, offset: int, limit: int, connection: sqlite3.Connection) -> Recent:
    """See `SessionIndex.recent`."""
    if not words:
        rows = connection.execute(f"SELECT head, settings{_ORDER} LIMIT ? OFFSET ?", (owner, limit, offset))
        states = [thaw(*row) for row in rows]
        (total,) = connection.execute("SELECT count(*) FROM sessions WHERE owner = ?", (owner,)).fetchone()
        return Recent(states=states, total=total)
    search = _Search(words, connection)
    every = connection.execute(f"SELECT head, settings{_ORDER}", (owner,)).fetchall()
    found = [state for state in (thaw(*row) for row in every) if search.finds(state.session_id, state.settings.title)]
    return Recent(states=found[offset : offset + limit], total=len(found), is_partial=search.left <= 0)


class _Search:
    def __init__(self, words: str, connection: sqlite3.Connection) -> None:
        self.left = SEARCHED
        self._words = words.casefold()
        self._connection = connection

    def finds(self, session_id: str, title: str | None) -> bool:
        return self._words in (title or "").casefold() or any(
            self._words in text.casefold() for text in self._texts(session_id)
        )

    def _texts(self, session_id: str) -> Iterator[str]:
        """What was said in a session, newest first."""
        rows = self._connection.execute(
            "SELECT payload FROM events WHERE session = (SELECT number FROM sessions WHERE session_id = ?)"
            " AND type IN ('message_added', 'block_closed') ORDER BY seq DESC",
            (session_id,),
        )
        for (payload,) in rows:
            if self.left <= 0:
                return
            self.left -= 1
            yield said_in(events.decode(payload))
