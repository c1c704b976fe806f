"""An owner's sessions in order of use, and full-text search. Runs on a thread of the database.

The database passes over the texts in which the words cannot be. What they match is decided here, because databases fold
case differently.
"""

from collections.abc import Callable
from contextlib import suppress

import msgspec
from psycopg import Connection

from dragoman.core import events
from dragoman.core.ids import UserId
from dragoman.core.refusals import SessionUnreadable
from dragoman.ports.log import RecentSessions
from dragoman.stores.checksums import decode_verified_states
from dragoman.stores.lookups import MAX_SEARCHED_EVENTS, searchable, text_in
from dragoman.stores.postgres.statements import statements

_SQL = statements("log")
_BATCH = 500


class _Titled(msgspec.Struct):
    title: str | None = None


_TITLE_DECODER = msgspec.json.Decoder(_Titled)


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
) -> tuple[RecentSessions, list[SessionUnreadable]]:
    """Search an owner's sessions as `SessionIndex.recent` does."""
    wanted = searchable(text)
    found = _titled(owner, wanted, connection)
    read = 0
    values = {"owner": owner, "text": _as_stored(wanted), "limit": MAX_SEARCHED_EVENTS}
    with connection.transaction(), connection.cursor("search") as cursor:
        cursor.itersize = _BATCH
        for session_id, payload in cursor.execute(_SQL["search"], values):
            read += 1
            if read % _BATCH == 0 and is_abandoned():
                break
            if session_id not in found:
                with suppress(ValueError):  # damaged: reading the session reports it
                    if wanted in searchable(text_in(events.decode(payload))):
                        found.add(session_id)
    page = {"owner": owner, "sessions": list(found), "limit": limit, "offset": offset}
    states, unreadable = decode_verified_states(connection.execute(_SQL["recent_of"], page, binary=True))
    return RecentSessions(states=states, total=len(found), is_partial=read >= MAX_SEARCHED_EVENTS), unreadable


def _titled(owner: UserId, wanted: str, connection: Connection) -> set[str]:
    found: set[str] = set()
    for session_id, settings in connection.execute(_SQL["settings_of_owner"], {"owner": owner}):
        with suppress(ValueError):  # damaged: the lists report it
            if wanted in searchable(_TITLE_DECODER.decode(settings).title or ""):
                found.add(session_id)
    return found


def _as_stored(wanted: str) -> str:
    """What a payload in ASCII contains, in lower case, if its text contains the words; empty if that is not known."""
    return "" if any(character in '"\\' or character < " " for character in wanted) else wanted
