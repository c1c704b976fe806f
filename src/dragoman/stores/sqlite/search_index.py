"""Extends the full-text index of a user's sessions, in the background, after a search has found that it is behind.

Users who never search cost nothing. A batch is small, because commits wait for the transaction that writes it.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import NamedTuple

from dragoman.core import events
from dragoman.core.audit import ACTOR
from dragoman.core.ids import UserId
from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.lookups import searchable, text_in
from dragoman.stores.search_batches import COMMIT_CHARS, SEPARATOR, commits
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.session_search import DOCUMENT_ID_BITS
from dragoman.stores.sqlite.unindexed_sessions import unindexed_sessions

READ_SESSIONS = 1024
READ_CHARS = 1024 * 1024
"""Bounds of what is read at a time."""
MAX_EVENTS_OF_RUN = 256
"""A session is indexed between its runs; one whose run has more events than that, also during the run."""
_TEXTS = (
    "SELECT seq, CAST(payload AS BLOB) FROM events"
    " WHERE session = ? AND seq > ? AND type IN ('message_added', 'block_closed') ORDER BY seq"
)

_REMOVE_OTHER_TITLES = "DELETE FROM search_texts WHERE session = ? AND is_title = 1 AND text <> ?"
_ADD_TITLE = (
    "INSERT INTO search_texts SELECT ?, ?, ?, 1"
    " WHERE NOT EXISTS (SELECT 1 FROM search_texts WHERE session = ? AND is_title = 1)"
)
_NOT_BEHIND = "DELETE FROM search_behind WHERE session = ? AND ? >= (SELECT seq FROM sessions WHERE number = ?)"


class _Addition(NamedTuple):
    """Texts of a session to index, and its title."""

    number: int
    session_id: str
    seq: int
    title: str
    text: str


class SearchIndexer:
    """Indexes the sessions of users who search."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._owners: dict[UserId, None] = {}
        self._task: asyncio.Task[None] | None = None

    def request(self, owner: UserId) -> None:
        """Have a user's sessions indexed. The task ends by itself, at the latest with the database."""
        self._owners[owner] = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._index(), name="search index")

    async def _index(self) -> None:
        ACTOR.set(None)  # it takes turns with the users' searches
        with suppress(StoreUnavailable):  # the next search continues
            while self._owners:
                owner = next(iter(self._owners))
                await self._database.writer.run(partial(_add_user, owner))
                while True:
                    while batch := await self._database.search(partial(_next_batch, owner)):
                        for part in commits(batch):
                            await self._database.writer.run(partial(_write, owner, part))
                    if not await self._database.writer.run(partial(_note_complete, owner)):
                        break  # what changed meanwhile was indexed, too
                self._owners.pop(owner)


def _add_user(owner: UserId, connection: sqlite3.Connection) -> None:
    """Have changed sessions of the user noted from now on."""
    connection.execute("INSERT OR IGNORE INTO search_users (user) VALUES (?)", (owner,))


def _note_complete(owner: UserId, connection: sqlite3.Connection) -> bool:
    """Note that what is not indexed has been noted. Returns False if that was known."""
    statement = "UPDATE search_users SET is_complete = 1 WHERE user = ? AND is_complete = 0"
    return connection.execute(statement, (owner,)).rowcount > 0


def _next_batch(owner: UserId, connection: sqlite3.Connection) -> list[_Addition]:
    batch: list[_Addition] = []
    remaining_chars = READ_CHARS
    for behind in unindexed_sessions(owner, connection, lead=MAX_EVENTS_OF_RUN, limit=READ_SESSIONS):
        texts: list[str] = []
        chars = 0
        seq = behind.seq
        for event_seq, payload in connection.execute(_TEXTS, (behind.number, behind.indexed_seq)):
            with suppress(ValueError):  # damaged: reading the session reports it
                texts.append(text_in(events.decode(payload)))
                chars += len(texts[-1])
            if chars > COMMIT_CHARS:
                seq = event_seq  # the next batch continues there
                break
        text = searchable(SEPARATOR.join(texts))
        batch.append(_Addition(behind.number, behind.session_id, seq, searchable(behind.title or ""), text))
        remaining_chars -= chars
        if remaining_chars <= 0:
            break
    return batch


def _write(owner: UserId, batch: Sequence[_Addition], connection: sqlite3.Connection) -> None:
    (user,) = connection.execute("SELECT number FROM search_users WHERE user = ?", (owner,)).fetchone()
    first = user << DOCUMENT_ID_BITS
    (last,) = connection.execute(
        "SELECT max(id) FROM search_texts WHERE id BETWEEN ? AND ?", (first, first + (1 << DOCUMENT_ID_BITS) - 1)
    ).fetchone()
    ids = count(first if last is None else last + 1)
    for each in batch:
        session = (each.number, each.session_id)
        if not connection.execute("SELECT 1 FROM sessions WHERE number = ? AND session_id = ?", session).fetchone():
            continue  # it was deleted meanwhile
        connection.execute("INSERT OR REPLACE INTO search_sessions VALUES (?, ?)", (each.number, each.seq))
        connection.execute(_REMOVE_OTHER_TITLES, (each.number, each.title))
        if each.title:
            connection.execute(_ADD_TITLE, (next(ids), each.number, each.title, each.number))
        if each.text:
            connection.execute("INSERT INTO search_texts VALUES (?, ?, ?, 0)", (next(ids), each.number, each.text))
        connection.execute(_NOT_BEHIND, (each.number, each.seq, each.number))
