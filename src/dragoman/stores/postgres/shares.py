"""Share links in PostgreSQL. The statement that deletes a session deletes its links."""

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from dragoman.core.ids import SessionId, UserId
from dragoman.ports.accounts import Share
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.limits import has_room
from dragoman.stores.postgres.statements import statements
from dragoman.stores.times import from_us, time_or_none, to_us, us_or_none

_SQL = statements("accounts")


class PostgresShares:
    """`ShareStore` over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, share: Share, limit: int | None = None) -> bool:
        """Store a link. Returns False, and stores no link, if `limit` other links of its session are valid."""
        values = {
            "digest": share.digest,
            "owner": share.owner,
            "session": share.session_id,
            "created_at": to_us(share.created_at),
            "expires_at": us_or_none(share.expires_at),
        }

        def added(connection: Connection) -> bool:
            connection.execute(_SQL["forget_shares"], {"now": values["created_at"]})
            if has_room(connection, limit, f"links of {share.session_id}", _SQL["count_shares"], values):
                connection.execute(_SQL["add_share"], values)
                return True
            return False

        return await self._database.write(added)

    async def get(self, digest: bytes) -> Share | None:
        """Find a link by its token's digest."""
        row = await self._database.read(
            lambda connection: connection.execute(_SQL["share"], {"digest": digest}).fetchone()
        )
        return None if row is None else _share(row)

    async def of_session(self, session_id: SessionId, limit: int) -> Sequence[Share]:
        """List a session's links, newest first. Links that have expired may be among them."""
        values = {"session": session_id, "limit": limit}
        rows = await self._database.read(
            lambda connection: connection.execute(_SQL["shares_of_session"], values).fetchall()
        )
        return [_share(row) for row in rows]

    async def remove(self, session_id: SessionId, digest: bytes) -> bool:
        """Remove a session's link. Returns False if there was none."""
        values = {"session": session_id, "digest": digest}
        return await self._database.write(
            lambda connection: connection.execute(_SQL["remove_share"], values).rowcount == 1
        )


def _share(row: tuple[Any, ...]) -> Share:
    digest, owner, session_id, created_at, expires_at = row
    return Share(
        digest=digest,
        owner=UserId(owner),
        session_id=SessionId(session_id),
        created_at=from_us(created_at),
        expires_at=time_or_none(expires_at),
    )
