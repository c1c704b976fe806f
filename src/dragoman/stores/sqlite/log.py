"""The sessions' logs and their indexes in SQLite."""

import asyncio
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

import msgspec

from dragoman.core.events import BlockClosed, LoggedEvent
from dragoman.core.ids import CallId, RunId, SessionId, UserId
from dragoman.core.refusals import StoreUnavailable
from dragoman.core.session import SessionState
from dragoman.ports.log import Append, IdempotencyRecord, RecentSessions, RunLocation, Snapshot
from dragoman.stores.checksums import (
    EVENT_COLUMNS,
    STATE_COLUMNS,
    decode_verified_state,
    decode_verified_states,
    require_last_event,
    require_no_quarantine,
    verified_events,
    verified_kept,
)
from dragoman.stores.decoding import (
    DecodedStates,
    ReportUnreadable,
    decode_events,
    log_unreadable,
)
from dragoman.stores.lookups import LAST_CHARACTER
from dragoman.stores.sqlite.appends import AppendWriter
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.search_index import SearchIndexer
from dragoman.stores.sqlite.session_search import find_recent_sessions, search_sessions
from dragoman.stores.times import from_us, to_us

_SELECT_EVENTS = f"SELECT {EVENT_COLUMNS} FROM events WHERE session = ?"  # noqa: S608  # ours


class SqliteLog:
    """`SessionStore` over one database."""

    def __init__(self, database: Database, report_unreadable: ReportUnreadable = log_unreadable) -> None:
        self._database = database
        self._report_unreadable = report_unreadable
        self._run = database.writer.run
        self._read = database.read
        self._look_up = database.look_up
        self._appends = AppendWriter()
        self._indexer = SearchIndexer(database)
        self._sweep_task: asyncio.Task[None] | None = None
        self._sweep_requests = 0
        """Number of times that a sweep was requested."""

    # --- writing --------------------------------------------------------------------------------------------------

    async def claim_epoch(self) -> int:
        """Return a new epoch, greater than all before."""
        epoch = await self._run(_claim)
        self.request_sweep()  # the previous server may have died during a sweep
        return epoch

    async def commit(self, batch: Sequence[Append]) -> Sequence[bool]:
        """Write all appends of a batch durably in one transaction. Returns for each whether it was accepted."""
        try:
            return await self._run(partial(self._appends.write, batch))
        except BaseException:
            self._appends.clear_cache()
            raise

    async def delete(self, session_id: SessionId, agents: Sequence[str] = ()) -> None:
        """Remove a session and everything that belongs to it."""
        try:
            are_rows_left = await self._run(partial(self._appends.delete, session_id, agents))
        except BaseException:
            self._appends.clear_cache()
            self.request_sweep()  # a deletion whose caller was cancelled is still carried out
            raise
        if are_rows_left:
            self.request_sweep()

    async def finish_cleanup(self, session_id: SessionId, agent: str) -> None:
        """Record that an agent has deleted its data of a session."""
        await self._run(
            lambda connection: connection.execute(
                "DELETE FROM forgetting WHERE session_id = ? AND agent = ?", (session_id, agent)
            )
        )

    def request_sweep(self) -> None:
        """Start removing what deleted sessions have left. The task ends by itself, at the latest with the database."""
        self._sweep_requests += 1
        if self._sweep_task is None or self._sweep_task.done():
            self._sweep_task = asyncio.create_task(self._sweep(), name="sweep")

    async def _sweep(self) -> None:
        seen = 0
        with suppress(StoreUnavailable):  # it continues after the next deletion or start
            while seen != self._sweep_requests:
                seen = self._sweep_requests
                while await self._run(self._appends.sweep):
                    pass  # commits go in between

    # --- reading --------------------------------------------------------------------------------------------------

    async def load(self, session_id: SessionId) -> Snapshot | None:
        """Load a session, or return None if there is none of that id."""
        snapshot = await self._read(partial(_load, session_id))
        if snapshot is None or not snapshot.events:
            return snapshot
        pieces = await self._run(partial(self._appends.pieces, session_id))
        # What was open before the session was last at rest is closed, even if the event that says so is damaged. So is
        # what these events close, even if a damaged page hid them when the table of pieces was read.
        closed = {
            (each.event.message_id, each.event.index) for each in snapshot.events if isinstance(each.event, BlockClosed)
        }
        current = [
            piece
            for piece in pieces
            if piece.after >= snapshot.head.seq and (piece.message_id, piece.index) not in closed
        ]
        return msgspec.structs.replace(snapshot, pieces=current)

    async def events(self, session_id: SessionId, after: int, limit: int) -> Sequence[LoggedEvent]:
        """Return the first `limit` events that follow event `after`, oldest first."""
        return await self._read(partial(_events, session_id, after, limit))

    async def events_before(self, session_id: SessionId, before: int, limit: int) -> Sequence[LoggedEvent]:
        """Return the last `limit` events that precede event `before`, oldest first."""
        return await self._read(partial(_events_before, session_id, before, limit))

    async def kept(self, session_id: SessionId, below: str, after: str | None, limit: int) -> Mapping[str, bytes]:
        """Return a session's kept values whose keys begin with `below` and follow `after`, in order of their keys."""
        return await self._read(partial(_kept, session_id, below, after, limit))

    async def kept_size(self, session_id: SessionId) -> int:
        """Return the total size of a session's kept values in bytes, without their keys."""
        return await self._read(
            lambda connection: int(
                connection.execute(
                    "SELECT total(length(value)) FROM kept JOIN sessions ON number = session WHERE session_id = ?",
                    (session_id,),
                ).fetchone()[0]
            )
        )

    async def pending_cleanups(self) -> Sequence[tuple[SessionId, str]]:
        """List deleted sessions, each with an agent that still keeps data of it."""
        return await self._read(
            lambda connection: [
                (SessionId(session_id), agent)
                for session_id, agent in connection.execute("SELECT session_id, agent FROM forgetting")
            ]
        )

    async def page(
        self, owner: UserId, before: tuple[datetime, SessionId] | None, limit: int
    ) -> Sequence[SessionState]:
        """Return an owner's sessions, newest first, each with its state when it was last at rest."""
        decoded = await self._read(partial(_page, owner, before, limit))
        for error in decoded.unreadable:
            self._report_unreadable(error)
        return decoded.states

    async def recent(self, owner: UserId, text: str, offset: int, limit: int) -> RecentSessions:
        """Return an owner's sessions, pinned ones first, then by time of last change, then by time of creation."""
        if text:
            search = partial(search_sessions, owner, text, offset, limit)
            recent, unreadable, is_index_behind = await self._database.search(search)
            if is_index_behind:
                self._indexer.request(owner)
        else:
            recent, unreadable = await self._read(partial(find_recent_sessions, owner, offset, limit))
        for error in unreadable:
            self._report_unreadable(error)
        return recent

    async def unfinished_sessions(self) -> Sequence[SessionId]:
        """List the sessions with a run that has not stopped."""
        return await self._read(
            lambda connection: [
                SessionId(row[0]) for row in connection.execute("SELECT session_id FROM sessions WHERE is_running = 1")
            ]
        )

    async def expired_sessions(self, by: datetime, limit: int) -> Sequence[tuple[SessionId, UserId]]:
        """List sessions at rest that expired until then, with their owners, those first that expired first."""
        statement = (
            "SELECT session_id, owner FROM sessions WHERE expires_at <= ? AND is_running = 0"
            " ORDER BY expires_at LIMIT ?"
        )
        rows = await self._read(lambda connection: connection.execute(statement, (to_us(by), limit)).fetchall())
        return [(SessionId(session_id), UserId(owner)) for session_id, owner in rows]

    async def idle_sessions(
        self,
        by: datetime,
        limit: int,
        *,
        skip: int = 0,
        only: UserId | None = None,
        except_for: Collection[UserId] = (),
    ) -> Sequence[tuple[SessionId, UserId]]:
        """List sessions at rest that have not changed since then, with their owners, the oldest first."""
        statement = (
            "SELECT session_id, owner FROM sessions WHERE is_running = 0 AND updated_at <= ?"
            " AND ifnull(owner = ?, 1) AND owner NOT IN (SELECT value FROM json_each(?))"
            " ORDER BY updated_at, session_id LIMIT ? OFFSET ?"
        )
        values = (to_us(by), only, msgspec.json.encode(list(except_for)).decode(), limit, skip)
        rows = await self._database.search(lambda connection: connection.execute(statement, values).fetchall())
        return [(SessionId(session_id), UserId(owner)) for session_id, owner in rows]

    async def find_run(self, run_id: RunId) -> RunLocation | None:
        """Find a run."""
        return await self._look_up(partial(_find_run, run_id))

    async def known_calls(self, session_id: SessionId, call_ids: Collection[CallId]) -> set[CallId]:
        """Return those of the calls that occur in the session's log."""
        return await self._look_up(partial(_known_calls, session_id, call_ids))

    async def find_by_name(self, owner: UserId, name: str) -> SessionId | None:
        """Find a session by the name that its owner's client gave it."""
        row = await self._look_up(
            lambda connection: connection.execute(
                "SELECT session_id FROM names WHERE owner = ? AND name = ?", (owner, name)
            ).fetchone()
        )
        return SessionId(row[0]) if row else None

    async def find_owner(self, session_id: SessionId) -> UserId | None:
        """Find a session's owner."""
        row = await self._look_up(
            lambda connection: connection.execute(
                "SELECT owner FROM sessions WHERE session_id = ?", (session_id,)
            ).fetchone()
        )
        return UserId(row[0]) if row else None

    async def find_idempotency_record(self, owner: UserId, key: str) -> IdempotencyRecord | None:
        """Find what the request with that key did."""
        return await self._look_up(partial(_find_idempotency_record, owner, key))

    async def find_messages(self, session_id: SessionId, ids: Collection[str]) -> dict[str, int]:
        """Return those of the ids that belong to messages in the session's log, with the event that completed each."""
        return await self._look_up(partial(_find_messages, session_id, ids))

    async def find_request(
        self, owner: UserId, key: str, session_id: SessionId, ids: Collection[str]
    ) -> tuple[IdempotencyRecord | None, dict[str, int]]:
        """Do `find_idempotency_record` and `find_messages` in one round trip."""
        return await self._look_up(
            lambda connection: (
                _find_idempotency_record(owner, key, connection),
                _find_messages(session_id, ids, connection),
            )
        )


def _claim(connection: sqlite3.Connection) -> int:
    row = connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'epoch' RETURNING value").fetchone()
    return int(row[0])


def _load(session_id: SessionId, connection: sqlite3.Connection) -> Snapshot | None:
    row = connection.execute(
        f"SELECT number, seq, is_running, quarantine, {STATE_COLUMNS} FROM sessions WHERE session_id = ?",  # noqa: S608  # ours
        (session_id,),
    ).fetchone()
    if row is None:
        return None
    number, last, is_running, quarantine, *stored = row
    require_no_quarantine(session_id, quarantine)
    state = decode_verified_state(stored)
    if not is_running:
        require_last_event(state, last)
        return Snapshot(head=state, events=(), pieces=())
    rows = connection.execute(f"{_SELECT_EVENTS} AND seq > ? ORDER BY seq", (number, state.seq))
    verified = verified_events(session_id, rows, state.seq + 1, last - state.seq)
    return Snapshot(head=state, events=decode_events(session_id, verified), pieces=())


def _events(session_id: SessionId, after: int, limit: int, connection: sqlite3.Connection) -> list[LoggedEvent]:
    number, last = _number_and_last_event(session_id, connection)
    rows = connection.execute(f"{_SELECT_EVENTS} AND seq > ? ORDER BY seq LIMIT ?", (number, after, limit))
    count = max(0, min(limit, last - after))
    return decode_events(session_id, verified_events(session_id, rows, after + 1, count))


def _events_before(session_id: SessionId, before: int, limit: int, connection: sqlite3.Connection) -> list[LoggedEvent]:
    number, last = _number_and_last_event(session_id, connection)
    statement = f"{_SELECT_EVENTS} AND seq < ? ORDER BY seq DESC LIMIT ?"
    rows = connection.execute(statement, (number, before, limit)).fetchall()
    last = min(last, before - 1)
    count = max(0, min(limit, last))
    return decode_events(session_id, verified_events(session_id, reversed(rows), last - count + 1, count))


def _number_and_last_event(session_id: SessionId, connection: sqlite3.Connection) -> tuple[int | None, int]:
    row = connection.execute("SELECT number, seq FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
    return (None, 0) if row is None else row


def _known_calls(session_id: SessionId, call_ids: Collection[CallId], connection: sqlite3.Connection) -> set[CallId]:
    number = _session_number(session_id, connection)
    known = "SELECT 1 FROM calls WHERE session = ? AND call_id = ?"
    return {call_id for call_id in call_ids if connection.execute(known, (number, call_id)).fetchone()}


def _find_idempotency_record(owner: UserId, key: str, connection: sqlite3.Connection) -> IdempotencyRecord | None:
    row = connection.execute(
        "SELECT fingerprint, session_id, run_id, at, lasts FROM once JOIN sessions ON number = session"
        " WHERE once.owner = ? AND key = ?",
        (owner, key),
    ).fetchone()
    if row is None:
        return None
    fingerprint, session_id, run_id, at, lasts = row
    return IdempotencyRecord(
        owner=owner,
        key=key,
        fingerprint=fingerprint,
        session_id=session_id,
        run_id=run_id,
        at=from_us(at),
        lasts=bool(lasts),
    )


def _find_messages(session_id: SessionId, ids: Collection[str], connection: sqlite3.Connection) -> dict[str, int]:
    number = _session_number(session_id, connection)
    found: dict[str, int] = {}
    for each in ids:
        row = connection.execute("SELECT seq FROM messages WHERE session = ? AND id = ?", (number, each)).fetchone()
        if row is not None:
            found[each] = row[0]
    return found


def _session_number(session_id: SessionId, connection: sqlite3.Connection) -> int | None:
    row = connection.execute("SELECT number FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
    return None if row is None else row[0]


def _page(
    owner: UserId, before: tuple[datetime, SessionId] | None, limit: int, connection: sqlite3.Connection
) -> DecodedStates:
    position = None if before is None else (to_us(before[0]), before[1])
    page = DecodedStates([], [])
    while (missing := limit - len(page.states)) > 0:
        where, values = ("", ()) if position is None else (" AND (created_at, session_id) < (?, ?)", position)
        rows = connection.execute(
            f"SELECT created_at, {STATE_COLUMNS} FROM sessions WHERE owner = ? AND is_unlisted = 0{where}"  # noqa: S608  # ours
            " ORDER BY created_at DESC, session_id DESC LIMIT ?",
            (owner, *values, missing),
        ).fetchall()
        decoded = decode_verified_states(row[1:] for row in rows)
        page.states.extend(decoded.states)
        page.unreadable.extend(decoded.unreadable)
        if len(rows) < missing:
            break
        position = rows[-1][:2]
    return page


def _find_run(run_id: RunId, connection: sqlite3.Connection) -> RunLocation | None:
    row = connection.execute(
        "SELECT session_id, owner, first_seq FROM runs JOIN sessions ON number = session WHERE run_id = ?", (run_id,)
    ).fetchone()
    if row is None:
        return None
    session_id, owner, first_seq = row
    return RunLocation(run_id=run_id, session_id=session_id, owner=owner, first_seq=first_seq)


def _kept(
    session_id: SessionId, below: str, after: str | None, limit: int, connection: sqlite3.Connection
) -> dict[str, bytes]:
    rows = connection.execute(
        "SELECT key, value, checksum FROM kept JOIN sessions ON number = session"
        " WHERE session_id = ? AND key >= ? AND key <= ? AND key > ? ORDER BY key LIMIT ?",
        (session_id, below, below + LAST_CHARACTER, after or "", limit),
    ).fetchall()
    return verified_kept(session_id, rows)
