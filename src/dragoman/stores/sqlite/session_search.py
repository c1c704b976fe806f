"""An owner's sessions in order of use, and full-text search. Runs on a reader thread.

Texts are found in the index, as far as it goes, and in the events after that. `search_index` extends the index.
"""

import json
import sqlite3
from collections.abc import Sequence, Set
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
from dragoman.stores.sqlite.unindexed_sessions import UnindexedSession, is_complete, unindexed_sessions

_IN_TITLE, _IN_TEXT = 1, 2
DOCUMENT_ID_BITS = 32
"""The ids of a user's texts are the user's number, followed by that many bits."""
_ORDER = "ORDER BY ifnull(json_extract(settings, '$.pinned'), 0) DESC, updated_at DESC, session_id DESC"
_PAGE = f"SELECT {STATE_COLUMNS} FROM sessions WHERE owner = ? AND is_unlisted = 0 {_ORDER} LIMIT ? OFFSET ?"  # noqa: S608  # ours
_ORDERED = (  # each is looked up, instead of comparing all of the owner's
    "SELECT number FROM json_each(?) CROSS JOIN sessions ON number = value"  # noqa: S608  # ours
    f" WHERE owner = ? AND is_unlisted = 0 {_ORDER}"
)
_STATES = f"SELECT {STATE_COLUMNS} FROM sessions WHERE number IN (SELECT value FROM json_each(?)) {_ORDER}"  # noqa: S608  # ours
_COMPARED = (  # read from the beginning, as far as needed
    "SELECT number, ("  # noqa: S608  # ours
    "SELECT max(iif(instr(text, ?) > 0, iif(is_title, 1, 2), 0)) FROM search_texts WHERE session = number"
    f") FROM sessions WHERE owner = ? AND is_unlisted = 0 {_ORDER}"
)
"""What matches in each session: 2 a text, 1 only its title, 0 or NULL nothing."""
_CANDIDATES = (
    "SELECT session, iif(instr(search_texts.text, ?) > 0, iif(is_title, 1, 2), 0)"
    " FROM search_trigrams JOIN search_texts ON id = search_trigrams.rowid"
    " WHERE search_trigrams MATCH ? AND search_trigrams.rowid BETWEEN ? AND ?"
    " ORDER BY search_trigrams.rowid DESC LIMIT ?"
)
_TEXTS = (
    "SELECT CAST(payload AS BLOB) FROM events"
    " WHERE session = ? AND seq > ? AND type IN ('message_added', 'block_closed') LIMIT ?"
)


def find_recent_sessions(
    owner: UserId, offset: int, limit: int, connection: sqlite3.Connection
) -> tuple[RecentSessions, list[SessionUnreadable]]:
    """Return a page of an owner's sessions as `SessionIndex.recent` does, and the errors of those left out."""
    states, unreadable = decode_verified_states(connection.execute(_PAGE, (owner, limit, offset)))
    row = connection.execute("SELECT count FROM session_counts WHERE owner = ?", (owner,)).fetchone()
    total = row[0] if row else 0
    return RecentSessions(states=states, total=total), unreadable


def search_sessions(
    owner: UserId, text: str, offset: int, limit: int, connection: sqlite3.Connection
) -> tuple[RecentSessions, list[SessionUnreadable], bool]:
    """Search an owner's sessions as `SessionIndex.recent` does. Also returns whether the index is behind."""
    wanted = searchable(text)
    behind = unindexed_sessions(owner, connection)
    found, read = _new_matches(behind, wanted, connection)
    indexed = _Indexed(owner, wanted, {each.number for each in behind}, found, connection)
    matches, has_all = indexed.matches(offset + limit)
    page = json.dumps(matches[offset : offset + limit])
    states, unreadable = decode_verified_states(connection.execute(_STATES, (page,)))
    is_partial = not has_all or read >= MAX_SEARCHED_EVENTS
    is_behind = bool(behind) or not is_complete(owner, connection)
    return RecentSessions(states=states, total=len(matches), is_partial=is_partial), unreadable, is_behind


def _new_matches(
    behind: Sequence[UnindexedSession], wanted: str, connection: sqlite3.Connection
) -> tuple[set[int], int]:
    """The matches in titles and events that are not indexed yet, and how many events were read."""
    found = {each.number for each in behind if each.title and wanted in searchable(each.title)}
    read = 0
    for each in behind:
        values = (each.number, each.indexed_seq, MAX_SEARCHED_EVENTS - read)
        for (payload,) in connection.execute(_TEXTS, values):
            read += 1
            if each.number not in found:
                with suppress(ValueError):  # damaged: reading the session reports it
                    if wanted in searchable(text_in(events.decode(payload))):
                        found.add(each.number)
        if read >= MAX_SEARCHED_EVENTS:
            break
    return found, read


class _Indexed:
    """A search in the index. `found` are the matches in what is not indexed yet of the sessions `behind`."""

    def __init__(
        self, owner: UserId, wanted: str, behind: Set[int], found: Set[int], connection: sqlite3.Connection
    ) -> None:
        self._owner = owner
        self._wanted = wanted
        self._behind = behind
        self._found = found
        self._connection = connection

    def matches(self, needed: int) -> tuple[Sequence[int], bool]:
        """The newest matching sessions in order, and whether these are all."""
        trigrams = distinct_trigrams(self._wanted)[:MAX_SEARCH_TRIGRAMS]
        compared = self._connection.execute(_COMPARED, (self._wanted, self._owner))
        newest = newest_matches(
            ((number, number in self._found or self._is_match(number, matching)) for number, matching in compared),
            needed,
            has_index=bool(trigrams),
        )
        if not newest.needs_index:
            return newest.sessions, newest.is_complete
        candidates = self._candidates(trigrams)
        matches = {number for number, matching in candidates if self._is_match(number, matching)}
        return self._ordered({*newest.sessions, *self._found, *matches}), len(candidates) < COMPARED_CANDIDATES

    def _is_match(self, number: int, matching: int | None) -> bool:
        """Texts remain. A title in the index is an old one if the session has changed."""
        return matching == _IN_TEXT or (matching == _IN_TITLE and number not in self._behind)

    def _candidates(self, trigrams: Sequence[str]) -> Sequence[tuple[int, int]]:
        """The sessions of the texts that have all these trigrams, each with what matches in it."""
        user = self._connection.execute("SELECT number FROM search_users WHERE user = ?", (self._owner,)).fetchone()
        if user is None:
            return []
        first = user[0] << DOCUMENT_ID_BITS
        last = first + (1 << DOCUMENT_ID_BITS) - 1
        quoted = " ".join('"' + each.replace('"', '""') + '"' for each in trigrams)
        return self._connection.execute(
            _CANDIDATES, (self._wanted, quoted, first, last, COMPARED_CANDIDATES)
        ).fetchall()

    def _ordered(self, sessions: Set[int]) -> list[int]:
        """The listed sessions among these, in order."""
        rows = self._connection.execute(_ORDERED, (json.dumps(sorted(sessions)), self._owner))
        return [number for (number,) in rows]
