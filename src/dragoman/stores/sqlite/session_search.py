"""An owner's sessions in order of use, and full-text search. Runs on a reader thread.

Texts are found in the index, as far as it goes, and in the events behind that. `search_index` extends the index.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress

from dragoman.core import events
from dragoman.core.ids import UserId
from dragoman.core.refusals import SessionUnreadable
from dragoman.ports.log import RecentSessions
from dragoman.stores.checksums import STATE_COLUMNS, decode_verified_states
from dragoman.stores.lookups import MAX_SEARCHED_EVENTS, searchable, text_in
from dragoman.stores.search_batches import (
    COMPARED_CANDIDATES,
    MAX_SEARCH_TRIGRAMS,
    distinct_trigrams,
    newest_matches,
)

DOCUMENT_ID_BITS = 32
"""The ids of a user's texts are the user's number, followed by that many bits."""
_ORDER = "ORDER BY ifnull(json_extract(settings, '$.pinned'), 0) DESC, updated_at DESC, session_id DESC"
_PAGE = f"SELECT {STATE_COLUMNS} FROM sessions WHERE owner = ? AND is_unlisted = 0 {_ORDER} LIMIT ? OFFSET ?"  # noqa: S608  # ours
_ORDERED = (
    "SELECT number FROM sessions"  # noqa: S608  # ours
    f" WHERE owner = ? AND is_unlisted = 0 AND number IN (SELECT value FROM json_each(?)) {_ORDER}"
)
_STATES = f"SELECT {STATE_COLUMNS} FROM sessions WHERE number IN (SELECT value FROM json_each(?)) {_ORDER}"  # noqa: S608  # ours
_COMPARED = (  # read from the beginning, as far as needed
    "SELECT number, ("  # noqa: S608  # ours
    " EXISTS (SELECT 1 FROM search_sessions WHERE search_sessions.session = number"
    " AND search_sessions.seq = sessions.seq AND instr(title, :text) > 0)"
    " OR EXISTS (SELECT 1 FROM search_texts WHERE search_texts.session = number AND instr(text, :text) > 0)"
    f") FROM sessions WHERE owner = :owner AND is_unlisted = 0 {_ORDER}"
)
_CANDIDATES = (
    "SELECT session, instr(search_texts.text, ?) > 0"
    " FROM search_trigrams JOIN search_texts ON id = search_trigrams.rowid"
    " WHERE search_trigrams MATCH ? AND search_trigrams.rowid BETWEEN ? AND ?"
    " ORDER BY search_trigrams.rowid DESC LIMIT ?"
)
_TITLES = (
    "SELECT number FROM sessions JOIN search_sessions ON session = number"
    " WHERE owner = ? AND is_unlisted = 0 AND sessions.seq = search_sessions.seq AND instr(title, ?) > 0"
)
_NEW_TITLES = (
    "SELECT number, json_extract(settings, '$.title') FROM sessions LEFT JOIN search_sessions ON session = number"
    " WHERE owner = ? AND is_unlisted = 0 AND sessions.seq > ifnull(search_sessions.seq, 0) AND json_valid(settings)"
)
_NEW_EVENTS = (  # without its limit, the inner query would lose its order
    "SELECT number, CAST(payload AS BLOB) FROM"
    " (SELECT number, ifnull(search_sessions.seq, 0) AS indexed, updated_at"
    " FROM sessions LEFT JOIN search_sessions ON session = number"
    " WHERE owner = ? AND is_unlisted = 0 AND sessions.seq > ifnull(search_sessions.seq, 0)"
    " ORDER BY updated_at DESC LIMIT -1)"
    " CROSS JOIN events ON events.session = number AND events.seq > indexed"
    " WHERE type IN ('message_added', 'block_closed') LIMIT ?"
)


def find_recent_sessions(
    owner: UserId, offset: int, limit: int, connection: sqlite3.Connection
) -> tuple[RecentSessions, list[SessionUnreadable]]:
    """Return a page of an owner's sessions as `SessionIndex.recent` does, and the errors of those left out."""
    states, unreadable = decode_verified_states(connection.execute(_PAGE, (owner, limit, offset)))
    (total,) = connection.execute(
        "SELECT count(*) FROM sessions WHERE owner = ? AND is_unlisted = 0", (owner,)
    ).fetchone()
    return RecentSessions(states=states, total=total), unreadable


def search_sessions(
    owner: UserId, text: str, offset: int, limit: int, connection: sqlite3.Connection
) -> tuple[RecentSessions, list[SessionUnreadable], bool]:
    """Search an owner's sessions as `SessionIndex.recent` does. Also returns whether some are not indexed yet."""
    wanted = searchable(text)
    found, read = _new_matches(owner, wanted, connection)
    trigrams = _trigrams(wanted)
    compared = (
        (number, bool(is_match) or number in found) for number, is_match in _compared(owner, wanted, connection)
    )
    newest = newest_matches(compared, offset + limit, has_index=bool(trigrams))
    matches, is_complete = newest.sessions, newest.is_complete
    if newest.needs_index:
        candidates, is_complete = _indexed_matches(owner, wanted, trigrams, connection)
        matches = _ordered(owner, {*matches, *found, *candidates}, connection)
    page = json.dumps(matches[offset : offset + limit])
    states, unreadable = decode_verified_states(connection.execute(_STATES, (page,)))
    is_partial = not is_complete or read >= MAX_SEARCHED_EVENTS
    return RecentSessions(states=states, total=len(matches), is_partial=is_partial), unreadable, read > 0


def _compared(owner: UserId, wanted: str, connection: sqlite3.Connection) -> Iterator[tuple[int, int]]:
    """All sessions in order, each with whether an indexed title or text matches."""
    yield from connection.execute(_COMPARED, {"owner": owner, "text": wanted})


def _indexed_matches(
    owner: UserId, wanted: str, trigrams: Sequence[str], connection: sqlite3.Connection
) -> tuple[set[int], bool]:
    """The sessions with an indexed title or text that matches, and whether all candidates were compared."""
    found = {number for (number,) in connection.execute(_TITLES, (owner, wanted))}
    user = connection.execute("SELECT number FROM search_users WHERE user = ?", (owner,)).fetchone()
    if user is None:
        return found, True
    first = user[0] << DOCUMENT_ID_BITS
    last = first + (1 << DOCUMENT_ID_BITS) - 1
    values = (wanted, " ".join(trigrams), first, last, COMPARED_CANDIDATES)
    candidates = connection.execute(_CANDIDATES, values).fetchall()
    return found | {number for number, is_match in candidates if is_match}, len(candidates) < COMPARED_CANDIDATES


def _ordered(owner: UserId, sessions: Set[int], connection: sqlite3.Connection) -> list[int]:
    """The listed sessions among these, in order."""
    return [number for (number,) in connection.execute(_ORDERED, (owner, json.dumps(sorted(sessions))))]


def _trigrams(wanted: str) -> list[str]:
    """The trigrams of a query, quoted for the index."""
    return ['"' + each.replace('"', '""') + '"' for each in distinct_trigrams(wanted)[:MAX_SEARCH_TRIGRAMS]]


def _new_matches(owner: UserId, wanted: str, connection: sqlite3.Connection) -> tuple[set[int], int]:
    """The matches in what is not indexed yet, and how many events were read."""
    titles = connection.execute(_NEW_TITLES, (owner,))
    found = {number for number, title in titles if title and wanted in searchable(title)}
    read = 0
    for number, payload in connection.execute(_NEW_EVENTS, (owner, MAX_SEARCHED_EVENTS)):
        read += 1
        if number not in found:
            with suppress(ValueError):  # damaged: reading the session reports it
                if wanted in searchable(text_in(events.decode(payload))):
                    found.add(number)
    return found, read
