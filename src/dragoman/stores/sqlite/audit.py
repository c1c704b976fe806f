"""The audit log in SQLite."""

from collections.abc import Sequence

import msgspec

from dragoman.core.audit import AuditEntry
from dragoman.stores.sqlite.database import Database

_BODY = msgspec.json.Decoder(AuditEntry)


class SqliteAudit:
    """`AuditStore` over one database."""

    def __init__(self, database: Database) -> None:
        self._run = database.writer.run
        self._read = database.read

    async def add(self, entries: Sequence[AuditEntry]) -> None:
        """Store entries."""
        rows = [(each.entry_id, each.user, each.action, msgspec.json.encode(each).decode()) for each in entries]
        statement = "INSERT INTO audit (entry_id, user, action, body) VALUES (?, ?, ?, ?)"
        await self._run(lambda connection: connection.executemany(statement, rows))

    async def page(
        self, before: str | None, limit: int, user: str | None = None, action: str | None = None
    ) -> Sequence[AuditEntry]:
        """List entries, newest first."""
        given = {"entry_id < ?": before, "user = ?": user, "action = ?": action}
        filters = {condition: value for condition, value in given.items() if value is not None}
        where = f"WHERE {' AND '.join(filters)}" if filters else ""
        statement = f"SELECT body FROM audit {where} ORDER BY entry_id DESC LIMIT ?"  # noqa: S608  # our conditions
        rows = await self._read(lambda connection: connection.execute(statement, (*filters.values(), limit)).fetchall())
        return [_BODY.decode(body) for (body,) in rows]
