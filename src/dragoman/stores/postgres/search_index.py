"""Extends the index of a user's sessions, in the background, after a search has found that it is behind.

Users who never search cost nothing. Several servers may index the same user: each passes over what others have indexed.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple
from zlib import crc32

import msgspec
from psycopg import Connection

from dragoman.core import events
from dragoman.core.audit import ACTOR
from dragoman.core.ids import UserId
from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.lookups import searchable, text_in
from dragoman.stores.postgres.arrays import Bigints, Texts
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.statements import statements
from dragoman.stores.search_batches import COMMIT_CHARS, SEPARATOR, commits, distinct_trigrams

READ_SESSIONS = 128
READ_EVENTS = 64
"""Events of a session that are read at a time."""
LIST_RETRY_DELAY_S = 0.05
"""Pause while a transaction runs that began before the user's first search."""
_SQL = statements("search")


class _Titled(msgspec.Struct):
    title: str | None = None


_TITLE_DECODER = msgspec.json.Decoder(_Titled)


class _Addition(NamedTuple):
    """Texts of a session to index."""

    session_id: str
    after: int
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
                await self._database.write(partial(_add_user, owner))
                while not await self._database.write(partial(_list_sessions, owner)):  # noqa: ASYNC110  # nobody tells
                    await asyncio.sleep(LIST_RETRY_DELAY_S)
                while batch := await self._database.search(partial(_next_batch, owner)):
                    for part in commits(batch):
                        await self._database.write(partial(_write, owner, part))
                self._owners.pop(owner)


def title_of(settings: str) -> str:
    """A session's title in the form in which it is searched; empty if the settings are damaged."""
    with suppress(ValueError):  # the lists report it
        return searchable(_TITLE_DECODER.decode(settings).title or "")
    return ""


def grams(owner: UserId, trigrams: Sequence[str]) -> Bigints:
    """Trigrams as signed numbers of 32 bits. Two may share one: what has all numbers is then compared."""
    seed = crc32(owner.encode())
    numbers = (crc32(trigram.encode(), seed) for trigram in trigrams)
    return Bigints(number - (1 << 32) if number >= 1 << 31 else number for number in numbers)


def _add_user(owner: UserId, connection: Connection) -> None:
    connection.execute(_SQL["add_user"], {"owner": owner})


def _list_sessions(owner: UserId, connection: Connection) -> bool:
    """Note all sessions of a user. Returns whether they are noted."""
    connection.execute(_SQL["list_sessions"], {"owner": owner})
    return connection.execute(_SQL["is_listed"], {"owner": owner}).fetchone() == (True,)


def _next_batch(owner: UserId, connection: Connection, is_abandoned: Callable[[], bool]) -> list[_Addition]:
    rows = connection.execute(_SQL["next_batch"], {"owner": owner, "limit": READ_SESSIONS}).fetchall()
    existing = [row for row in rows if row[2] is not None]
    values = {
        "session": Texts(row[0] for row in existing),
        "after": Bigints(row[1] for row in existing),
        "last": Bigints(row[2] for row in existing),
        "limit": READ_EVENTS,
    }
    found: dict[str, list[tuple[int, str]]] = {}
    for session_id, seq, payload in connection.execute(_SQL["texts_to_index"], values):
        text = ""
        with suppress(ValueError):  # damaged: reading the session reports it
            text = text_in(events.decode(payload))
        found.setdefault(session_id, []).append((seq, text))
    batch = [_Addition(row[0], 0, 0, "", "") for row in rows if row[2] is None]  # deleted meanwhile
    for session_id, after, last, settings in existing:
        texts = found.get(session_id, [])
        batch.append(_addition(session_id, after, last, title_of(settings), texts))
    return batch


def _addition(session_id: str, after: int, last: int, title: str, texts: Sequence[tuple[int, str]]) -> _Addition:
    """The first texts of a session, as many as one transaction indexes."""
    chars, taken = 0, []
    for seq, text in texts:
        taken.append(text)
        chars += len(text)
        if chars > COMMIT_CHARS or len(taken) == READ_EVENTS:
            last = seq  # the next batch continues there
            break
    return _Addition(session_id, after, last, title, searchable(SEPARATOR.join(taken)))


def _write(owner: UserId, batch: Sequence[_Addition], connection: Connection) -> None:
    for each in batch:
        session = {"session": each.session_id, "after": each.after, "seq": each.seq, "title": each.title}
        values = {**session, "grams": grams(owner, distinct_trigrams(each.title))}
        if connection.execute(_SQL["index_session"], values).fetchone() is not None and each.text:
            text = {"session": each.session_id, "text": each.text}
            connection.execute(_SQL["index_text"], {**text, "grams": grams(owner, distinct_trigrams(each.text))})
    connection.execute(_SQL["not_behind"], {"owner": owner, "session": Texts(each.session_id for each in batch)})
