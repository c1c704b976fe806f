"""An owner's sessions in order of use, and full-text search. Runs on a thread of the database.

Texts are found in the index, as far as it goes, and in the events behind that. `search_index` extends the index. What
matches is decided here, because databases fold case differently.
"""

from collections.abc import Callable
from contextlib import suppress

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
from dragoman.stores.search_batches import MAX_SEARCH_TRIGRAMS, distinct_trigrams

_SQL, _SEARCH = statements("log"), statements("search")
_BATCH = 500


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
    texts, titles = _indexed_matches(owner, wanted, connection) if is_listed else (set(), set())
    new_ids = {session_id for session_id, _, _ in new}
    found = texts | (titles - new_ids) | {row[0] for row in new if wanted in title_of(row[2])}
    read = 0
    values = {
        "session": Texts(session_id for session_id, _, _ in new),
        "seq": Bigints(seq for _, seq, _ in new),
        "text": _as_stored(wanted),
        "limit": MAX_SEARCHED_EVENTS,
    }
    with connection.transaction(), connection.cursor("search") as cursor:
        cursor.itersize = _BATCH
        for session_id, payload in cursor.execute(_SEARCH["new_texts"], values) if new else ():
            read += 1
            if read % _BATCH == 0 and is_abandoned():
                break
            if session_id not in found:
                with suppress(ValueError):  # damaged: reading the session reports it
                    if wanted in searchable(text_in(events.decode(payload))):
                        found.add(session_id)
    matching = connection.execute(_SQL["matching"], {"owner": owner, "sessions": Texts(found)}).fetchall()
    page = Texts(session_id for (session_id,) in matching[offset : offset + limit])
    states, unreadable = decode_verified_states(connection.execute(_SQL["states"], {"sessions": page}, binary=True))
    recent = RecentSessions(states=states, total=len(matching), is_partial=read >= MAX_SEARCHED_EVENTS)
    return recent, unreadable, bool(new)


def _indexed_matches(owner: UserId, wanted: str, connection: Connection) -> tuple[set[str], set[str]]:
    """The sessions with an indexed text that matches, and those with a title that does."""
    trigrams = distinct_trigrams(wanted)[:MAX_SEARCH_TRIGRAMS]
    values = {"owner": owner, "text": wanted, "grams": grams(owner, trigrams)}
    of_owner = "" if trigrams else "_of_owner"  # the index has no shorter texts
    texts, titles = (
        {row[0] for row in connection.execute(_SEARCH[f"indexed_{kind}{of_owner}"], values)}
        for kind in ("texts", "titles")
    )
    return texts, titles


def _as_stored(wanted: str) -> str:
    """What a payload in ASCII contains, in lower case, if its text contains the words; empty if that is not known."""
    return "" if any(character in '"\\?\ufffd' or character < " " for character in wanted) else wanted
