"""The log of sessions in PostgreSQL, and what is looked up across it."""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from psycopg import Connection

from dragoman.core import events as core_events
from dragoman.core.events import Logged
from dragoman.core.ids import CallId, LoopId, MessageId, RunId, SessionId, UserId
from dragoman.core.session import SessionState, thaw
from dragoman.core.stream import Piece
from dragoman.ports import Append, Once, Recent, RunRow, Snapshot
from dragoman.stores.postgres import appends
from dragoman.stores.postgres.appends import raw
from dragoman.stores.postgres.arrays import Bytes
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.session_search import recent
from dragoman.stores.postgres.statements import statements
from dragoman.stores.times import from_us, to_us

_SQL = statements("log")
_EVENT, _PIECE = 1, 2
"""Parts of what `load` reads."""
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""What no text of PostgreSQL holds."""
Row = tuple[Any, ...]


class PostgresLog:
    """`EventLog` and `SessionIndex` over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._log = database.log
        self._read = database.read

    # --- writing --------------------------------------------------------------------------------------------------

    async def claim(self) -> int:
        """See `EventLog.claim`."""
        ((epoch,),) = await self._log(partial(_rows, "claim", {}))
        return int(epoch)

    async def commit(self, batch: Sequence[Append]) -> Sequence[bool]:
        """See `EventLog.commit`."""
        return await self._log(partial(appends.write, batch, self._database.node)) if batch else []

    async def delete(self, session_id: SessionId) -> None:
        """See `EventLog.delete`."""
        await self._database.write(partial(appends.delete, session_id))  # the log goes on meanwhile

    # --- reading --------------------------------------------------------------------------------------------------

    async def load(self, session_id: SessionId) -> Snapshot | None:
        """See `EventLog.load`."""
        rows = await self._rows("load", session=session_id)
        if not rows:
            return None
        return Snapshot(
            head=thaw(rows[0][3], rows[0][4]),
            events=logged_of(row[1:5] for row in rows if row[0] == _EVENT),
            pieces=[piece_of(row) for row in rows if row[0] == _PIECE],
        )

    async def events(self, session_id: SessionId, after: int, limit: int) -> Sequence[Logged]:
        """See `EventLog.events`."""
        return logged_of(await self._rows("events", session=session_id, after=after, limit=limit))

    async def events_before(self, session_id: SessionId, before: int, limit: int) -> Sequence[Logged]:
        """See `EventLog.events_before`."""
        return logged_of(reversed(await self._rows("events_before", session=session_id, before=before, limit=limit)))

    async def page(
        self, owner: UserId, before: tuple[datetime, SessionId] | None, limit: int
    ) -> Sequence[SessionState]:
        """See `SessionIndex.page`."""
        if before is None:
            rows = await self._rows("page", owner=owner, limit=limit)
        else:
            rows = await self._rows("page_from", owner=owner, at=to_us(before[0]), session=before[1], limit=limit)
        return [thaw(*row) for row in rows]

    async def recent(self, owner: UserId, words: str, offset: int, limit: int) -> Recent:
        """See `SessionIndex.recent`."""
        return await self._read(partial(recent, owner, words, offset, limit))

    async def unfinished(self) -> Sequence[SessionId]:
        """See `SessionIndex.unfinished`."""
        return [SessionId(row[0]) for row in await self._rows("unfinished")]

    async def run(self, run_id: RunId) -> RunRow | None:
        """See `SessionIndex.run`."""
        if _NO_TEXT.search(run_id):  # a client asks; no run of ours is called so
            return None
        rows = await self._rows("run", run=run_id)
        if not rows:
            return None
        session_id, owner, first_seq = rows[0]
        return RunRow(run_id=run_id, session_id=session_id, owner=owner, first_seq=first_seq)

    async def settled(self, session_id: SessionId, call_ids: Collection[CallId]) -> set[CallId]:
        """See `SessionIndex.settled`."""
        ids = list(call_ids)
        rows = await self._rows("settled", session=session_id, id=Bytes(map(raw, ids))) if ids else []
        return {ids[place - 1] for (place,) in rows}

    async def named(self, owner: UserId, name: str) -> SessionId | None:
        """See `SessionIndex.named`."""
        rows = await self._rows("named", owner=owner, name=raw(name))
        return SessionId(rows[0][0]) if rows else None

    async def once(self, owner: UserId, key: str) -> Once | None:
        """See `SessionIndex.once`."""
        return await self._read(partial(_once, owner, key))

    async def messages(self, session_id: SessionId, ids: Collection[str]) -> dict[str, int]:
        """See `SessionIndex.messages`."""
        return await self._read(partial(_messages, session_id, ids))

    async def seen(
        self, owner: UserId, key: str, session_id: SessionId, ids: Collection[str]
    ) -> tuple[Once | None, dict[str, int]]:
        """See `SessionIndex.seen`."""
        return await self._read(
            lambda connection: (_once(owner, key, connection), _messages(session_id, ids, connection))
        )

    async def _rows(self, statement: str, **values: object) -> list[Row]:
        return await self._read(partial(_rows, statement, values))


def _rows(statement: str, values: dict[str, object], connection: Connection) -> list[Row]:
    return connection.execute(_SQL[statement], values, binary=True).fetchall()


def _once(owner: UserId, key: str, connection: Connection) -> Once | None:
    rows = _rows("once", {"owner": owner, "key": raw(key)}, connection)
    if not rows:
        return None
    fingerprint, session_id, run_id, at, lasts = rows[0]
    return Once(
        owner=owner,
        key=key,
        fingerprint=fingerprint,
        session_id=session_id,
        run_id=run_id,
        at=from_us(at),
        lasts=lasts,
    )


def _messages(session_id: SessionId, ids: Collection[str], connection: Connection) -> dict[str, int]:
    names = list(ids)
    if not names:
        return {}
    rows = _rows("messages", {"session": session_id, "id": Bytes(map(raw, names))}, connection)
    return {names[place - 1]: seq for place, seq in rows}


def logged_of(rows: Iterable[Row]) -> list[Logged]:
    """Events as they are stored: number, time, run, payload."""
    return [Logged(seq, from_us(at), run_id, core_events.decode(payload)) for seq, at, run_id, payload in rows]


def piece_of(row: Row) -> Piece:
    """A piece as `load` reads it."""
    _, after, place, message_id, kind, block, loop, text = row
    return Piece(after, place, MessageId(message_id), block, kind, unraw(text), LoopId(loop))


def unraw(stored: bytes) -> str:
    """The inverse of `raw`."""
    return stored.decode("utf-8", "surrogatepass")
