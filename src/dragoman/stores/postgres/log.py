"""The sessions' logs and their indexes in PostgreSQL."""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from psycopg import Connection

from dragoman.core.events import LoggedEvent
from dragoman.core.ids import CallId, LoopId, MessageId, RunId, SessionId, UserId
from dragoman.core.refusals import SessionUnreadable
from dragoman.core.session import SessionState
from dragoman.core.stream import Piece
from dragoman.ports.log import Append, IdempotencyRecord, RecentSessions, RunLocation, Snapshot
from dragoman.stores.checksums import (
    decode_verified_state,
    decode_verified_states,
    piece_checksum,
    require_last_event,
    require_no_quarantine,
    verified_events,
    verified_kept,
)
from dragoman.stores.decoding import ReportUnreadable, decode_events, log_unreadable
from dragoman.stores.lookups import LAST_CHARACTER
from dragoman.stores.postgres import appends
from dragoman.stores.postgres.appends import encode_text
from dragoman.stores.postgres.arrays import Bytes, Texts
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.search_index import SearchIndexer
from dragoman.stores.postgres.session_search import find_recent_sessions, search_sessions
from dragoman.stores.postgres.statements import statements
from dragoman.stores.times import from_us, to_us

_SQL = statements("log")
_EVENT, _PIECE = 1, 2
"""Kinds of rows that `load` returns."""
_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")
"""Characters that PostgreSQL cannot store in a text."""
Row = tuple[Any, ...]


class PostgresLog:
    """`SessionStore` over one database."""

    def __init__(self, database: Database, report_unreadable: ReportUnreadable = log_unreadable) -> None:
        self._database = database
        self._report_unreadable = report_unreadable
        self._indexer = SearchIndexer(database)
        self._write_log = database.write_log
        self._read = database.read

    # --- writing --------------------------------------------------------------------------------------------------

    async def claim_epoch(self) -> int:
        """Return a new epoch, greater than all before."""
        ((epoch,),) = await self._write_log(partial(_rows, "claim_epoch", {}))
        return int(epoch)

    async def commit(self, batch: Sequence[Append]) -> Sequence[bool]:
        """Write all appends of a batch durably in one transaction. Returns for each whether it was accepted."""
        return await self._write_log(partial(appends.write, batch, self._database.node_id)) if batch else []

    async def delete(self, session_id: SessionId, agents: Sequence[str] = ()) -> None:
        """Remove a session and everything that belongs to it."""
        await self._database.write(partial(appends.delete, session_id, agents))  # commits continue meanwhile

    async def finish_cleanup(self, session_id: SessionId, agent: str) -> None:
        """Record that an agent has deleted its data of a session."""
        await self._database.write(partial(_rows, "finish_cleanup", {"session": session_id, "agent": agent}))

    # --- reading --------------------------------------------------------------------------------------------------

    async def load(self, session_id: SessionId) -> Snapshot | None:
        """Load a session, or return None if there is none of that id."""
        rows = await self._rows("load", session=session_id)
        if not rows:
            return None
        _, last, is_running, quarantine, _, settings_checksum, _, head, settings, head_checksum = rows[0]
        require_no_quarantine(session_id, quarantine)
        state = decode_verified_state((session_id, head, settings, head_checksum, settings_checksum))
        if not is_running:
            require_last_event(state, last)
        stored = ((*row[1:4], *row[7:10:2]) for row in rows if row[0] == _EVENT)
        return Snapshot(
            head=state,
            events=decode_events(session_id, verified_events(session_id, stored, state.seq + 1, last - state.seq)),
            pieces=[decode_piece(session_id, (*row[1:8], row[9])) for row in rows if row[0] == _PIECE],
        )

    async def events(self, session_id: SessionId, after: int, limit: int) -> Sequence[LoggedEvent]:
        """Return the first `limit` events that follow event `after`, oldest first."""
        rows = await self._rows("events", session=session_id, after=after, limit=limit)
        if not rows:
            return []
        count = max(0, min(limit, rows[0][0] - after))
        return decode_events(session_id, verified_events(session_id, _found(rows), after + 1, count))

    async def events_before(self, session_id: SessionId, before: int, limit: int) -> Sequence[LoggedEvent]:
        """Return the last `limit` events that precede event `before`, oldest first."""
        rows = await self._rows("events_before", session=session_id, before=before, limit=limit)
        if not rows:
            return []
        last = min(rows[0][0], before - 1)
        count = max(0, min(limit, last))
        stored = reversed(_found(rows))
        return decode_events(session_id, verified_events(session_id, stored, last - count + 1, count))

    async def kept(self, session_id: SessionId, below: str, after: str | None, limit: int) -> Mapping[str, bytes]:
        """Return a session's kept values whose keys begin with `below` and follow `after`, in order of their keys."""
        up_to = below + LAST_CHARACTER
        rows = await self._rows("kept", session=session_id, below=below, up_to=up_to, after=after or "", limit=limit)
        return verified_kept(session_id, rows)

    async def kept_size(self, session_id: SessionId) -> int:
        """Return the total size of a session's kept values in bytes, without their keys."""
        ((size,),) = await self._rows("kept_size", session=session_id)
        return int(size)

    async def pending_cleanups(self) -> Sequence[tuple[SessionId, str]]:
        """List deleted sessions, each with an agent that still keeps data of it."""
        return [(SessionId(session_id), agent) for session_id, agent in await self._rows("pending_cleanups")]

    async def page(
        self, owner: UserId, before: tuple[datetime, SessionId] | None, limit: int
    ) -> Sequence[SessionState]:
        """Return an owner's sessions, newest first, each with its state when it was last at rest."""
        states: list[SessionState] = []
        position = None if before is None else {"at": to_us(before[0]), "session": before[1]}
        while (missing := limit - len(states)) > 0:
            if position is None:
                rows = await self._rows("page", owner=owner, limit=missing)
            else:
                rows = await self._rows("page_from", owner=owner, limit=missing, **position)
            decoded = decode_verified_states(row[1:] for row in rows)
            states += decoded.states
            for error in decoded.unreadable:
                self._report_unreadable(error)
            if len(rows) < missing:
                break
            position = {"at": rows[-1][0], "session": rows[-1][1]}
        return states

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
        return [SessionId(row[0]) for row in await self._rows("unfinished_sessions")]

    async def expired_sessions(self, by: datetime, limit: int) -> Sequence[tuple[SessionId, UserId]]:
        """List sessions at rest that expired until then, with their owners, those first that expired first."""
        rows = await self._rows("expired_sessions", by=to_us(by), limit=limit)
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
        values: dict[str, object] = {
            "by": to_us(by),
            "limit": limit,
            "skip": skip,
            "only": only,
            "excluded": Texts(except_for),
        }
        rows = await self._database.search(lambda connection, _: _rows("idle_sessions", values, connection))
        return [(SessionId(session_id), UserId(owner)) for session_id, owner in rows]

    async def find_run(self, run_id: RunId) -> RunLocation | None:
        """Find a run."""
        if _NOT_STORABLE.search(run_id):  # from a client; no run has such an id
            return None
        rows = await self._rows("find_run", run=run_id)
        if not rows:
            return None
        session_id, owner, first_seq = rows[0]
        return RunLocation(run_id=run_id, session_id=session_id, owner=owner, first_seq=first_seq)

    async def known_calls(self, session_id: SessionId, call_ids: Collection[CallId]) -> set[CallId]:
        """Return those of the calls that occur in the session's log."""
        ids = list(call_ids)
        rows = await self._rows("known_calls", session=session_id, id=Bytes(map(encode_text, ids))) if ids else []
        return {ids[place - 1] for (place,) in rows}

    async def find_by_name(self, owner: UserId, name: str) -> SessionId | None:
        """Find a session by the name that its owner's client gave it."""
        rows = await self._rows("find_by_name", owner=owner, name=encode_text(name))
        return SessionId(rows[0][0]) if rows else None

    async def find_owner(self, session_id: SessionId) -> UserId | None:
        """Find a session's owner."""
        rows = await self._rows("find_owner", session=session_id)
        return UserId(rows[0][0]) if rows else None

    async def find_idempotency_record(self, owner: UserId, key: str) -> IdempotencyRecord | None:
        """Find what the request with that key did."""
        return await self._read(partial(_find_idempotency_record, owner, key))

    async def find_messages(self, session_id: SessionId, ids: Collection[str]) -> dict[str, int]:
        """Return those of the ids that belong to messages in the session's log, with the event that completed each."""
        return await self._read(partial(_find_messages, session_id, ids))

    async def find_request(
        self, owner: UserId, key: str, session_id: SessionId, ids: Collection[str]
    ) -> tuple[IdempotencyRecord | None, dict[str, int]]:
        """Do `find_idempotency_record` and `find_messages` in one round trip."""
        return await self._read(
            lambda connection: (
                _find_idempotency_record(owner, key, connection),
                _find_messages(session_id, ids, connection),
            )
        )

    async def _rows(self, statement: str, **values: object) -> list[Row]:
        return await self._read(partial(_rows, statement, values))


def _rows(statement: str, values: dict[str, object], connection: Connection) -> list[Row]:
    return connection.execute(_SQL[statement], values, binary=True).fetchall()


def _find_idempotency_record(owner: UserId, key: str, connection: Connection) -> IdempotencyRecord | None:
    rows = _rows("find_idempotency_record", {"owner": owner, "key": encode_text(key)}, connection)
    if not rows:
        return None
    fingerprint, session_id, run_id, at, lasts = rows[0]
    return IdempotencyRecord(
        owner=owner,
        key=key,
        fingerprint=fingerprint,
        session_id=session_id,
        run_id=run_id,
        at=from_us(at),
        lasts=lasts,
    )


def _find_messages(session_id: SessionId, ids: Collection[str], connection: Connection) -> dict[str, int]:
    names = list(ids)
    if not names:
        return {}
    rows = _rows("find_messages", {"session": session_id, "id": Bytes(map(encode_text, names))}, connection)
    return {names[place - 1]: seq for place, seq in rows}


def _found(rows: Sequence[Row]) -> list[Row]:
    """The events in rows that begin with the number of the session's last event."""
    return [row[1:] for row in rows if row[1] is not None]


def decode_piece(session_id: SessionId, row: Row) -> Piece:
    """Decode a piece as `load` returns it, with its checksum. Raises SessionUnreadable if it was altered."""
    after, place, message_id, kind, block, loop, text, checksum = row
    if checksum is not None and checksum != piece_checksum(session_id, after, place, message_id, block, text):
        raise SessionUnreadable(session_id, f"piece {after}.{place}: the stored data was altered: its checksum differs")
    return Piece(after, place, MessageId(message_id), block, kind, decode_text(text), LoopId(loop))


def decode_text(stored: bytes) -> str:
    """The inverse of `encode_text`."""
    return stored.decode("utf-8", "surrogatepass")
