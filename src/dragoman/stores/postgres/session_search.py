"""An owner's sessions by their use, and which of them hold a text."""

from collections.abc import Iterator
from typing import Any

from psycopg import Connection

from dragoman.core import events
from dragoman.core.ids import UserId
from dragoman.core.session import thaw
from dragoman.ports import Recent
from dragoman.stores.lookups import SEARCHED, said_in
from dragoman.stores.postgres.statements import statements

_SQL = statements("log")
_PAGE = 500
_BEYOND = 2**62


def recent(owner: UserId, words: str, offset: int, limit: int, connection: Connection) -> Recent:
    """See `SessionIndex.recent`."""
    asked = {"owner": owner, "limit": None if words else limit, "offset": 0 if words else offset}
    states = [thaw(*row) for row in connection.execute(_SQL["recent"], asked)]
    if not words:
        (total,) = connection.execute(_SQL["count"], {"owner": owner}).fetchone() or (0,)
        return Recent(states=states, total=total)
    search = _Search(words, connection)
    found = [state for state in states if search.finds(state.session_id, state.settings.title)]
    return Recent(states=found[offset : offset + limit], total=len(found), is_partial=search.left <= 0)


class _Search:
    def __init__(self, words: str, connection: Connection) -> None:
        self.left = SEARCHED
        self._words = words.casefold()
        self._connection = connection

    def finds(self, session_id: str, title: str | None) -> bool:
        return self._words in (title or "").casefold() or any(
            self._words in text.casefold() for text in self._texts(session_id)
        )

    def _texts(self, session_id: str) -> Iterator[str]:
        """What was said in a session, newest first."""
        before = _BEYOND
        while self.left > 0:
            asked = {"session": session_id, "before": before, "limit": min(_PAGE, self.left)}
            rows: list[tuple[Any, ...]] = self._connection.execute(_SQL["said"], asked).fetchall()
            for seq, payload in rows:
                self.left -= 1
                before = seq
                yield said_in(events.decode(payload))
            if len(rows) < _PAGE:
                return
