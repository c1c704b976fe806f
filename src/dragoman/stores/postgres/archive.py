"""Everything in a database, for all users."""

from collections.abc import Sequence
from functools import partial

import msgspec
from psycopg import Connection
from psycopg.rows import dict_row

from dragoman.core.ids import SessionId, UserId
from dragoman.core.memories import Memory, searchable_text
from dragoman.ports.accounts import Share
from dragoman.ports.archive import ArchivedSession
from dragoman.ports.log import IdempotencyRecord
from dragoman.stores.postgres.arrays import Texts
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.log import decode_text
from dragoman.stores.postgres.memories import decode_memory
from dragoman.stores.postgres.statements import statements
from dragoman.stores.times import from_us, time_or_none, to_us, us_or_none

_SQL = statements("archive")


class PostgresArchive:
    """`StoreArchive` over one database."""

    def __init__(self, database: Database) -> None:
        self._read = database.read
        self._write = database.write

    async def count(self) -> int:
        """Count the sessions that are not in quarantine."""
        ((count,),) = await self._read(lambda connection: connection.execute(_SQL["count"]).fetchall())
        return int(count)

    async def sessions(self, after: SessionId | None, limit: int) -> Sequence[ArchivedSession]:
        """List sessions that are not in quarantine, ordered by id, starting after `after`."""
        return await self._read(partial(_sessions, after, limit))

    async def quarantine(self, session_id: SessionId, reason: str) -> None:
        """Put a damaged session into quarantine."""
        values = {"session": session_id, "reason": reason.replace("\0", "\ufffd")}
        await self._write(lambda connection: connection.execute(_SQL["quarantine"], values))

    async def memories(self, after: int, limit: int) -> Sequence[Memory]:
        """List all users' memories ordered by id, starting after `after`."""
        values = {"after": after, "limit": limit}
        rows = await self._read(
            lambda connection: connection.cursor(row_factory=dict_row).execute(_SQL["memories"], values).fetchall()
        )
        return [decode_memory(row) for row in rows]

    async def restore_memories(self, memories: Sequence[Memory]) -> None:
        """Store memories under their existing ids. Memories created later get greater ids."""
        if memories:
            await self._write(partial(_restore, memories))

    async def shares(self) -> Sequence[Share]:
        """List all share links."""
        rows = await self._read(lambda connection: connection.execute(_SQL["shares"]).fetchall())
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


def _sessions(after: SessionId | None, limit: int, connection: Connection) -> list[ArchivedSession]:
    asked = {"after": after or "", "limit": limit}
    rows = connection.execute(_SQL["sessions"], asked, binary=True).fetchall()
    records_by_session: dict[str, list[IdempotencyRecord]] = {}
    listed = {"sessions": Texts(row[0] for row in rows)}
    for owner, key, fingerprint, session_id, run_id, at, lasts in connection.execute(
        _SQL["idempotency_records"], listed, binary=True
    ):
        once = IdempotencyRecord(
            owner=owner,
            key=decode_text(key),
            fingerprint=fingerprint,
            session_id=session_id,
            run_id=run_id,
            at=from_us(at),
            lasts=lasts,
        )
        records_by_session.setdefault(session_id, []).append(once)
    return [
        ArchivedSession(
            session_id=session_id,
            owner=owner,
            name=None if name is None else decode_text(name),
            idempotency_records=records_by_session.get(session_id, []),
        )
        for session_id, owner, name in rows
    ]


def _restore(memories: Sequence[Memory], connection: Connection) -> None:
    for memory in memories:
        values = {
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
        connection.execute(_SQL["restore"], values)
    connection.execute(_SQL["move_ids"], {"last": memories[-1].id})
