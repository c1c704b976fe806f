"""The log of sessions in SQLite, and what is looked up across it."""

import asyncio
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from dragoman.core import events as core_events
from dragoman.core.events import Logged
from dragoman.core.ids import CallId, RunId, SessionId, UserId
from dragoman.core.refusals import StoreUnavailable
from dragoman.core.session import SessionState, thaw
from dragoman.ports import Append, Once, Recent, RunRow, Snapshot
from dragoman.stores.sqlite.appends import Appends
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.session_search import recent
from dragoman.stores.times import from_us, to_us


class SqliteLog:
    """`EventLog` and `SessionIndex` over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._run = database.writer.run
        self._read = database.read
        self._look_up = database.look_up
        self._appends = Appends()
        self._sweeping: asyncio.Task[None] | None = None
        self._sweeps = 0
        """How often there was something to sweep."""

    # --- writing --------------------------------------------------------------------------------------------------

    async def claim(self) -> int:
        """See `EventLog.claim`."""
        epoch = await self._run(_claim)
        self._sweep_soon()  # a server may have died over it
        return epoch

    async def commit(self, batch: Sequence[Append]) -> Sequence[bool]:
        """See `EventLog.commit`."""
        try:
            return await self._run(partial(self._appends.write, batch))
        except BaseException:
            self._appends.forget()
            raise

    async def delete(self, session_id: SessionId) -> None:
        """See `EventLog.delete`."""
        try:
            await self._run(partial(self._appends.delete, session_id))
        except BaseException:
            self._appends.forget()
            raise
        finally:
            self._sweep_soon()

    def _sweep_soon(self) -> None:
        """Have removed what deleted sessions have left. The task ends by itself, with the database at the latest."""
        self._sweeps += 1
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.create_task(self._sweep(), name="sweep")

    async def _sweep(self) -> None:
        seen = 0
        with suppress(StoreUnavailable):  # it goes on after the next deletion, or start
            while seen != self._sweeps:
                seen = self._sweeps
                while await self._run(self._appends.sweep):
                    pass  # who commits goes in between

    # --- reading --------------------------------------------------------------------------------------------------

    async def load(self, session_id: SessionId) -> Snapshot | None:
        """See `EventLog.load`."""
        snapshot = await self._read(partial(_load, session_id))
        if snapshot is None or not snapshot.events:
            return snapshot
        return msgspec.structs.replace(snapshot, pieces=await self._run(partial(self._appends.pieces, session_id)))

    async def events(self, session_id: SessionId, after: int, limit: int) -> Sequence[Logged]:
        """See `EventLog.events`."""
        return await self._read(partial(_events, session_id, after, limit))

    async def events_before(self, session_id: SessionId, before: int, limit: int) -> Sequence[Logged]:
        """See `EventLog.events_before`."""
        return await self._read(partial(_events_before, session_id, before, limit))

    async def page(
        self, owner: UserId, before: tuple[datetime, SessionId] | None, limit: int
    ) -> Sequence[SessionState]:
        """See `SessionIndex.page`."""
        return await self._read(partial(_page, owner, before, limit))

    async def recent(self, owner: UserId, words: str, offset: int, limit: int) -> Recent:
        """See `SessionIndex.recent`."""
        return await self._read(partial(recent, owner, words, offset, limit))

    async def unfinished(self) -> Sequence[SessionId]:
        """See `SessionIndex.unfinished`."""
        return await self._read(
            lambda connection: [
                SessionId(row[0]) for row in connection.execute("SELECT session_id FROM sessions WHERE is_running = 1")
            ]
        )

    async def run(self, run_id: RunId) -> RunRow | None:
        """See `SessionIndex.run`."""
        return await self._look_up(partial(_run_row, run_id))

    async def settled(self, session_id: SessionId, call_ids: Collection[CallId]) -> set[CallId]:
        """See `SessionIndex.settled`."""
        return await self._look_up(partial(_settled, session_id, call_ids))

    async def named(self, owner: UserId, name: str) -> SessionId | None:
        """See `SessionIndex.named`."""
        row = await self._look_up(
            lambda connection: connection.execute(
                "SELECT session_id FROM names WHERE owner = ? AND name = ?", (owner, name)
            ).fetchone()
        )
        return SessionId(row[0]) if row else None

    async def once(self, owner: UserId, key: str) -> Once | None:
        """See `SessionIndex.once`."""
        return await self._look_up(partial(_once, owner, key))

    async def messages(self, session_id: SessionId, ids: Collection[str]) -> dict[str, int]:
        """See `SessionIndex.messages`."""
        return await self._look_up(partial(_message_seqs, session_id, ids))

    async def seen(
        self, owner: UserId, key: str, session_id: SessionId, ids: Collection[str]
    ) -> tuple[Once | None, dict[str, int]]:
        """See `SessionIndex.seen`."""
        return await self._look_up(
            lambda connection: (_once(owner, key, connection), _message_seqs(session_id, ids, connection))
        )


def _claim(connection: sqlite3.Connection) -> int:
    row = connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'epoch' RETURNING value").fetchone()
    return int(row[0])


def _load(session_id: SessionId, connection: sqlite3.Connection) -> Snapshot | None:
    row = connection.execute(
        "SELECT number, head, settings, is_running FROM sessions WHERE session_id = ?", (session_id,)
    ).fetchone()
    if row is None:
        return None
    number, head, settings, is_running = row
    state = thaw(head, settings)
    if not is_running:
        return Snapshot(head=state, events=(), pieces=())
    rows = connection.execute(
        "SELECT seq, at, run_id, payload FROM events WHERE session = ? AND seq > ? ORDER BY seq", (number, state.seq)
    )
    return Snapshot(head=state, events=_logged(rows), pieces=())


def _events(session_id: SessionId, after: int, limit: int, connection: sqlite3.Connection) -> list[Logged]:
    rows = connection.execute(
        "SELECT seq, at, run_id, payload FROM events"
        " WHERE session = (SELECT number FROM sessions WHERE session_id = ?) AND seq > ? ORDER BY seq LIMIT ?",
        (session_id, after, limit),
    )
    return _logged(rows)


def _events_before(session_id: SessionId, before: int, limit: int, connection: sqlite3.Connection) -> list[Logged]:
    rows = connection.execute(
        "SELECT seq, at, run_id, payload FROM events"
        " WHERE session = (SELECT number FROM sessions WHERE session_id = ?) AND seq < ? ORDER BY seq DESC LIMIT ?",
        (session_id, before, limit),
    ).fetchall()
    return _logged(reversed(rows))


def _logged(rows: Iterable[tuple[Any, ...]]) -> list[Logged]:
    return [Logged(seq, from_us(at), run_id, core_events.decode(payload)) for seq, at, run_id, payload in rows]


def _settled(session_id: SessionId, call_ids: Collection[CallId], connection: sqlite3.Connection) -> set[CallId]:
    number = _number(session_id, connection)
    known = "SELECT 1 FROM calls WHERE session = ? AND call_id = ?"
    return {call_id for call_id in call_ids if connection.execute(known, (number, call_id)).fetchone()}


def _once(owner: UserId, key: str, connection: sqlite3.Connection) -> Once | None:
    row = connection.execute(
        "SELECT fingerprint, session_id, run_id, at, lasts FROM once JOIN sessions ON number = session"
        " WHERE once.owner = ? AND key = ?",
        (owner, key),
    ).fetchone()
    if row is None:
        return None
    fingerprint, session_id, run_id, at, lasts = row
    return Once(
        owner=owner,
        key=key,
        fingerprint=fingerprint,
        session_id=session_id,
        run_id=run_id,
        at=from_us(at),
        lasts=bool(lasts),
    )


def _message_seqs(session_id: SessionId, ids: Collection[str], connection: sqlite3.Connection) -> dict[str, int]:
    number = _number(session_id, connection)
    found: dict[str, int] = {}
    for each in ids:
        row = connection.execute("SELECT seq FROM messages WHERE session = ? AND id = ?", (number, each)).fetchone()
        if row is not None:
            found[each] = row[0]
    return found


def _number(session_id: SessionId, connection: sqlite3.Connection) -> int | None:
    row = connection.execute("SELECT number FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
    return None if row is None else row[0]


def _page(
    owner: UserId, before: tuple[datetime, SessionId] | None, limit: int, connection: sqlite3.Connection
) -> list[SessionState]:
    if before is None:
        rows = connection.execute(
            "SELECT head, settings FROM sessions WHERE owner = ? ORDER BY created_at DESC, session_id DESC LIMIT ?",
            (owner, limit),
        )
    else:
        at, session_id = before
        rows = connection.execute(
            "SELECT head, settings FROM sessions WHERE owner = ? AND (created_at, session_id) < (?, ?)"
            " ORDER BY created_at DESC, session_id DESC LIMIT ?",
            (owner, to_us(at), session_id, limit),
        )
    return [thaw(*row) for row in rows]


def _run_row(run_id: RunId, connection: sqlite3.Connection) -> RunRow | None:
    row = connection.execute(
        "SELECT session_id, owner, first_seq FROM runs JOIN sessions ON number = session WHERE run_id = ?", (run_id,)
    ).fetchone()
    if row is None:
        return None
    session_id, owner, first_seq = row
    return RunRow(run_id=run_id, session_id=session_id, owner=owner, first_seq=first_seq)
