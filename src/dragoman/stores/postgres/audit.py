"""The audit log in PostgreSQL."""

from collections.abc import Sequence

import msgspec
from psycopg import Connection

from dragoman.core.audit import AuditEntry
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.statements import statements

_SQL = statements("accounts")
_BODY = msgspec.json.Decoder(AuditEntry)


class PostgresAudit:
    """`AuditStore` over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entries: Sequence[AuditEntry]) -> None:
        """Store entries."""
        rows = [
            {
                "entry": each.entry_id,
                "user": each.user.replace("\0", "\ufffd"),
                "action": each.action,
                "body": msgspec.json.encode(each).decode(),
            }
            for each in entries
        ]

        def added(connection: Connection) -> None:
            for row in rows:
                connection.execute(_SQL["add_audit"], row)

        await self._database.write(added)

    async def page(
        self, before: str | None, limit: int, user: str | None = None, action: str | None = None
    ) -> Sequence[AuditEntry]:
        """List entries, newest first."""
        if any("\0" in given for given in (before, user, action) if given):
            return ()  # PostgreSQL stores no such text
        values = {"before": before, "limit": limit, "user": user, "action": action}
        rows = await self._database.read(lambda connection: connection.execute(_SQL["audit"], values).fetchall())
        return [_BODY.decode(body) for (body,) in rows]
