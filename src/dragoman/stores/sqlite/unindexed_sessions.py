"""The parts of a user's sessions that the full-text index does not contain yet. Runs on a reader thread."""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from dragoman.core.ids import UserId

_COLUMNS = (
    "number, session_id, ifnull(search_sessions.seq, 0),"
    " iif(json_valid(settings), json_extract(settings, '$.title'), NULL), sessions.seq"
)
_NOTED = (
    f"SELECT {_COLUMNS} FROM ("  # noqa: S608  # ours
    " SELECT session AS noted FROM search_behind WHERE user = (SELECT number FROM search_users WHERE user = :owner)"
    " UNION"
    " SELECT number FROM sessions INDEXED BY sessions_running"  # newer releases of SQLite would read all sessions
    " LEFT JOIN search_sessions ON session = number"
    " WHERE is_running = 1 AND owner = :owner AND sessions.seq > ifnull(search_sessions.seq, 0) + :lead"
    ") CROSS JOIN sessions ON number = noted LEFT JOIN search_sessions ON session = number"
    " WHERE owner = :owner ORDER BY updated_at DESC LIMIT :limit"
)
_COMPARED = (
    f"SELECT {_COLUMNS} FROM sessions LEFT JOIN search_sessions ON session = number"  # noqa: S608  # ours
    " WHERE owner = :owner AND is_unlisted = 0"
    " AND sessions.seq > ifnull(search_sessions.seq, 0) + iif(is_running, :lead, 0)"
    " ORDER BY updated_at DESC LIMIT :limit"
)
"""For a user whose sessions were never all indexed: they are compared one by one."""


class UnindexedSession(NamedTuple):
    """A session with events after `indexed_seq`, the last one that is indexed."""

    number: int
    session_id: str
    indexed_seq: int
    title: str | None
    """The title now; None if there is none, or if the settings are damaged."""
    seq: int


def unindexed_sessions(
    owner: UserId, connection: sqlite3.Connection, *, lead: int = 0, limit: int = -1
) -> Sequence[UnindexedSession]:
    """A user's sessions that are not indexed, or not completely, those changed last first.

    Args:
        owner: the user.
        connection: a connection of a reader.
        lead: running sessions are left out unless they have more new events than this.
        limit: how many at most; -1 for all.
    """
    statement = _NOTED if is_complete(owner, connection) else _COMPARED
    rows = connection.execute(statement, {"owner": owner, "lead": lead, "limit": limit})
    return [UnindexedSession(*row) for row in rows]


def is_complete(owner: UserId, connection: sqlite3.Connection) -> bool:
    """Whether all of a user's sessions that are behind are noted."""
    statement = "SELECT is_complete FROM search_users WHERE user = ?"
    return bool(connection.execute(statement, (owner,)).fetchone() == (1,))
