"""Everything in a data folder's database, for all users."""

import sqlite3
from collections.abc import Sequence
from functools import partial

import msgspec

from dragoman.core.ids import SessionId, UserId
from dragoman.core.memories import Memory, searchable_text
from dragoman.ports.accounts import Share
from dragoman.ports.archive import ArchivedSession
from dragoman.ports.log import IdempotencyRecord
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.memories import select_memories
from dragoman.stores.times import from_us, time_or_none, to_us, us_or_none


class SqliteArchive:
    """`StoreArchive` over one database."""

    def __init__(self, database: Database) -> None:
        self._run = database.writer.run
        self._read = database.read

    async def count(self) -> int:
        """Count the sessions that are not in quarantine."""
        row = await self._read(
            lambda connection: connection.execute("SELECT count(*) FROM sessions WHERE quarantine IS NULL").fetchone()
        )
        return int(row[0])

    async def sessions(self, after: SessionId | None, limit: int) -> Sequence[ArchivedSession]:
        """List sessions that are not in quarantine, ordered by id, starting after `after`."""
        return await self._read(partial(_sessions, after, limit))

    async def quarantine(self, session_id: SessionId, reason: str) -> None:
        """Put a damaged session into quarantine."""
        statement = "UPDATE sessions SET quarantine = ?, is_unlisted = 1, is_running = 0 WHERE session_id = ?"
        await self._run(lambda connection: connection.execute(statement, (reason, session_id)))

    async def memories(self, after: int, limit: int) -> Sequence[Memory]:
        """List all users' memories ordered by id, starting after `after`."""
        where = "id > ? ORDER BY id LIMIT ?"
        return await self._read(lambda connection: select_memories(connection, where, (after, limit)))

    async def restore_memories(self, memories: Sequence[Memory]) -> None:
        """Store memories under their existing ids. Memories created later get greater ids."""
        await self._run(partial(_restore, memories))

    async def shares(self) -> Sequence[Share]:
        """List all share links."""
        rows = await self._read(
            lambda connection: connection.execute(
                "SELECT digest, owner, session_id, created_at, expires_at FROM shares ORDER BY digest"
            ).fetchall()
        )
        return [
            Share(
                digest=digest,
                owner=UserId(owner),
                session_id=SessionId(session_id),
                created_at=from_us(created_at),
                expires_at=time_or_none(expires_at),
            )
            for digest, owner, session_id, created_at, expires_at in rows
        ]


def _sessions(after: SessionId | None, limit: int, connection: sqlite3.Connection) -> list[ArchivedSession]:
    rows = connection.execute(
        "SELECT session_id, sessions.owner, name FROM sessions LEFT JOIN names USING (session_id)"
        " WHERE session_id > ? AND quarantine IS NULL ORDER BY session_id LIMIT ?",
        (after or "", limit),
    ).fetchall()
    return [
        ArchivedSession(
            session_id=session_id,
            owner=owner,
            name=name,
            idempotency_records=_idempotency_records(session_id, connection),
        )
        for session_id, owner, name in rows
    ]


def _idempotency_records(session_id: SessionId, connection: sqlite3.Connection) -> list[IdempotencyRecord]:
    rows = connection.execute(
        "SELECT once.owner, key, fingerprint, run_id, at, lasts FROM once JOIN sessions ON number = session"
        " WHERE session_id = ? ORDER BY at, key",
        (session_id,),
    )
    return [
        IdempotencyRecord(
            owner=owner,
            key=key,
            fingerprint=fingerprint,
            session_id=session_id,
            run_id=run_id,
            at=from_us(at),
            lasts=bool(lasts),
        )
        for owner, key, fingerprint, run_id, at, lasts in rows
    ]


def _restore(memories: Sequence[Memory], connection: sqlite3.Connection) -> None:
    for memory in memories:
        row = {
            **msgspec.structs.asdict(memory.texts),
            "id": memory.id,
            "user": memory.user,
            "source_session": memory.source_session,
            "superseded_by": memory.superseded_by,
            "created_at": to_us(memory.created_at),
            "updated_at": us_or_none(memory.updated_at),
            "hit_count": memory.hit_count,
            "last_hit_at": us_or_none(memory.last_hit_at),
            "disabled": memory.disabled,
            "searched": searchable_text(memory.texts),
        }
        marks = ", ".join(f":{name}" for name in row)
        connection.execute(f"INSERT INTO memories ({', '.join(row)}) VALUES ({marks})", row)  # noqa: S608  # our names
