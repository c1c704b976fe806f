"""Share links in SQLite. A trigger deletes them with their session."""

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Any

from dragoman.core.ids import SessionId, UserId
from dragoman.ports.accounts import Share
from dragoman.stores.sqlite.database import Database
from dragoman.stores.times import from_us, time_or_none, to_us, us_or_none

_SELECT = "SELECT digest, owner, session_id, created_at, expires_at FROM shares"


class SqliteShares:
    """`ShareStore` over one database."""

    def __init__(self, database: Database) -> None:
        self._run = database.writer.run
        self._read = database.read

    async def add(self, share: Share, limit: int | None = None) -> bool:
        """Store a link. Returns False, and stores no link, if `limit` other links of its session are valid."""
        return await self._run(partial(_add, share, limit))

    async def get(self, digest: bytes) -> Share | None:
        """Find a link by its token's digest."""
        return await self._read(partial(_get, digest))

    async def of_session(self, session_id: SessionId, limit: int) -> Sequence[Share]:
        """List a session's links, newest first. Links that have expired may be among them."""
        return await self._read(partial(_of_session, session_id, limit))

    async def remove(self, session_id: SessionId, digest: bytes) -> bool:
        """Remove a session's link. Returns False if there was none."""
        statement = "DELETE FROM shares WHERE session_id = ? AND digest = ?"
        removed = await self._run(lambda connection: connection.execute(statement, (session_id, digest)).rowcount)
        return removed == 1


def _add(share: Share, limit: int | None, connection: sqlite3.Connection) -> bool:
    expires_at = us_or_none(share.expires_at)
    connection.execute("DELETE FROM shares WHERE expires_at <= ?", (to_us(share.created_at),))
    if limit is not None:
        counted = "SELECT count(*) FROM shares WHERE session_id = ?"
        (count,) = connection.execute(counted, (share.session_id,)).fetchone()
        if count >= limit:
            return False
    connection.execute(
        "INSERT INTO shares (digest, owner, session_id, created_at, expires_at) VALUES (?, ?, ?, ?, ?)",
        (share.digest, share.owner, share.session_id, to_us(share.created_at), expires_at),
    )
    return True


def _get(digest: bytes, connection: sqlite3.Connection) -> Share | None:
    row = connection.execute(f"{_SELECT} WHERE digest = ?", (digest,)).fetchone()
    return None if row is None else _share(row)


def _of_session(session_id: SessionId, limit: int, connection: sqlite3.Connection) -> list[Share]:
    statement = f"{_SELECT} WHERE session_id = ? ORDER BY created_at DESC, digest LIMIT ?"
    return [_share(row) for row in connection.execute(statement, (session_id, limit))]


def _share(row: tuple[Any, ...]) -> Share:
    digest, owner, session_id, created_at, expires_at = row
    return Share(
        digest=digest,
        owner=UserId(owner),
        session_id=SessionId(session_id),
        created_at=from_us(created_at),
        expires_at=time_or_none(expires_at),
    )
