"""An owner's sessions in order of use, and full-text search. Runs on a thread of the database.

Texts are found in the index, as far as it goes, and in the events after that. `search_index` extends the index. What
matches is decided here, because databases fold case differently.
"""

from collections.abc import Callable, Generator, Sequence, Set
from contextlib import closing, suppress

from psycopg import Connection

from dragoman.core import events
from dragoman.core.ids import UserId
from dragoman.core.refusals import SessionUnreadable
from dragoman.ports.log import RecentSessions
from dragoman.stores.checksums import decode_verified_states
from dragoman.stores.lookups import MAX_SEARCHED_EVENTS, searchable, text_in
from dragoman.stores.postgres.arrays import Bigints, Texts
from dragoman.stores.postgres.search_index import grams, title_of
from dragoman.stores.postgres.statements import statements
from dragoman.stores.search_batches import (
    COMPARED_CANDIDATES,
    MAX_SEARCH_TRIGRAMS,
    distinct_trigrams,
    newest_matches,
)

_SQL, _SEARCH = statements("log"), statements("search")
_BATCH = 200


def find_recent_sessions(
    owner: UserId, offset: int, limit: int, connection: Connection
) -> tuple[RecentSessions, list[SessionUnreadable]]:
    """Return a page of an owner's sessions as `SessionIndex.recent` does, and the errors of those left out."""
    values = {"owner": owner, "limit": limit, "offset": offset}
    states, unreadable = decode_verified_states(connection.execute(_SQL["recent"], values, binary=True))
    (total,) = connection.execute(_SQL["count"], {"owner": owner}).fetchone() or (0,)
    return RecentSessions(states=states, total=total), unreadable


def search_sessions(
    owner: UserId, text: str, offset: int, limit: int, connection: Connection, is_abandoned: Callable[[], bool]
) -> tuple[RecentSessions, list[SessionUnreadable], bool]:
    """Search an owner's sessions as `SessionIndex.recent` does. Also returns whether some are not indexed yet."""
    wanted = searchable(text)
    is_listed = connection.execute(_SEARCH["is_listed"], {"owner": owner}).fetchone() == (True,)
    new = connection.execute(_SEARCH["behind" if is_listed else "not_indexed"], {"owner": owner}).fetchall()
    found, read = _new_matches(wanted, new, connection, is_abandoned) if new else (set(), 0)
    is_partial = read >= MAX_SEARCHED_EVENTS
    matches: Sequence[str]
    if is_listed:
        new_ids = {session_id for session_id, _, _ in new}
        indexed = _Indexed(owner, wanted, new_ids, found, connection)
        matches, is_complete = indexed.matches(offset + limit, is_abandoned)
        is_partial |= not is_complete
    else:
        matches = _ordered(owner, found, connection)
    page = Texts(matches[offset : offset + limit])
    states, unreadable = decode_verified_states(connection.execute(_SQL["states"], {"sessions": page}, binary=True))
    return RecentSessions(states=states, total=len(matches), is_partial=is_partial), unreadable, bool(new)


def _new_matches(
    wanted: str, new: Sequence[tuple[str, int, str]], connection: Connection, is_abandoned: Callable[[], bool]
) -> tuple[set[str], int]:
    """The matches in titles and events that are not indexed yet, and how many events were read."""
    found = {session_id for session_id, _, settings in new if wanted in title_of(settings)}
    read = 0
    values = {
        "session": Texts(session_id for session_id, _, _ in new),
        "seq": Bigints(seq for _, seq, _ in new),
        "text": _as_stored(wanted),
        "limit": MAX_SEARCHED_EVENTS,
    }
    with connection.transaction(), connection.cursor("search") as cursor:
        cursor.itersize = _BATCH
        for session_id, payload in cursor.execute(_SEARCH["new_texts"], values):
            read += 1
            if read % _BATCH == 0 and is_abandoned():
                break
            if session_id not in found:
                with suppress(ValueError):  # damaged: reading the session reports it
                    if wanted in searchable(text_in(events.decode(payload))):
                        found.add(session_id)
    return found, read


class _Indexed:
    """A search in the index. `found` are the matches in what is not indexed yet of the sessions `new_ids`."""

    def __init__(self, owner: UserId, wanted: str, new_ids: Set[str], found: Set[str], connection: Connection) -> None:
        self._owner = owner
        self._wanted = wanted
        self._new_ids = new_ids
        self._found = found
        self._connection = connection

    def matches(self, needed: int, is_abandoned: Callable[[], bool]) -> tuple[Sequence[str], bool]:
        """The newest matching sessions in order, and whether these are all."""
        trigrams = distinct_trigrams(self._wanted)[:MAX_SEARCH_TRIGRAMS]
        with closing(self._compared()) as compared:
            newest = newest_matches(compared, needed, has_index=bool(trigrams), is_abandoned=is_abandoned)
        if not newest.needs_index:
            return newest.sessions, newest.is_complete
        values = {"text": self._wanted, "grams": grams(self._owner, trigrams), "limit": COMPARED_CANDIDATES}
        with self._connection.transaction():
            self._connection.execute("SET LOCAL enable_seqscan = off")  # it would read other users' texts
            texts, titles = (
                self._connection.execute(_SEARCH[f"candidate_{kind}"], values).fetchall()
                for kind in ("texts", "titles")
            )
        in_texts = {session_id for session_id, is_match in texts if is_match}
        in_titles = {session_id for session_id, is_match in titles if is_match}
        matches = _ordered(
            self._owner, {*newest.sessions, *in_texts, *(in_titles - self._new_ids), *self._found}, self._connection
        )
        return matches, max(len(texts), len(titles)) < COMPARED_CANDIDATES

    def _compared(self) -> Generator[tuple[str, bool], None, None]:
        """All sessions in order, each with whether it matches."""
        values = {"owner": self._owner, "text": self._wanted}
        with self._connection.transaction(), self._connection.cursor("newest") as cursor:
            cursor.itersize = _BATCH
            for session_id, in_texts, in_title in cursor.execute(_SEARCH["newest"], values):
                is_match = in_texts or session_id in self._found or (in_title and session_id not in self._new_ids)
                yield session_id, bool(is_match)


def _ordered(owner: UserId, sessions: Set[str], connection: Connection) -> list[str]:
    """The listed sessions among these, in order."""
    values = {"owner": owner, "sessions": Texts(sessions)}
    return [session_id for (session_id,) in connection.execute(_SQL["matching"], values)]


def _as_stored(wanted: str) -> str:
    """What a payload in ASCII contains, in lower case, if its text contains the words; empty if that is not known."""
    return "" if any(character in '"\\?\ufffd' or character < " " for character in wanted) else wanted
