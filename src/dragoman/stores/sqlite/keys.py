"""API keys in SQLite."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from dragoman.core.ids import KeyId, UserId
from dragoman.core.token_budgets import TokenLimits
from dragoman.ports.accounts import ApiKey
from dragoman.stores.decoding import decoding
from dragoman.stores.sqlite.database import Database
from dragoman.stores.times import from_us, time_or_none, to_us, us_or_none


class SqliteKeys:
    """`ApiKeyStore` over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: ApiKey, limit: int | None = None) -> bool:
        """Store a key. Returns False, and stores nothing, if its user has `limit` keys already."""

        def added(connection: sqlite3.Connection) -> bool:
            if limit is not None:
                (count,) = connection.execute("SELECT count(*) FROM keys WHERE user = ?", (key.user,)).fetchone()
                if count >= limit:
                    return False
            insert_key(connection, key)
            return True

        return await self._database.writer.run(added)

    async def all(self) -> Sequence[ApiKey]:
        """List all keys, oldest first."""
        with decoding("an API key"):
            return await self._database.read(select_keys)

    async def remove(self, key_id: KeyId) -> bool:
        """Remove a key. Returns False if there was none."""
        return await self._database.writer.run(lambda connection: delete_key(connection, key_id))

    async def rename(self, key_id: KeyId, name: str) -> None:
        """Rename a key. Does nothing if there is none."""
        await self._database.writer.run(
            lambda connection: connection.execute("UPDATE keys SET name = ? WHERE key_id = ?", (name, key_id))
        )

    async def touch(self, used: Sequence[tuple[KeyId, datetime]]) -> None:
        """Record when keys were last used."""
        rows = [(to_us(at), key_id) for key_id, at in used]
        await self._database.writer.run(
            lambda connection: connection.executemany("UPDATE keys SET last_used_at = ? WHERE key_id = ?", rows)
        )

    async def can_use_peppers(self) -> bool:
        """Always: only one server can use a data folder."""
        return True

    async def rehash(self, key_id: KeyId, digest: bytes, pepper: str) -> None:
        """Replace a key's digest. Does nothing if there is no such key."""
        statement = "UPDATE keys SET digest = ?, pepper = ? WHERE key_id = ?"
        await self._database.writer.run(lambda connection: connection.execute(statement, (digest, pepper, key_id)))

    async def limit(self, key_id: KeyId, limits: TokenLimits) -> None:
        """Replace a key's token limits. Does nothing if there is no such key."""
        statement = "UPDATE keys SET tokens_per_day = ?, tokens_per_month = ? WHERE key_id = ?"
        row = (limits.per_day, limits.per_month, key_id)
        await self._database.writer.run(lambda connection: connection.execute(statement, row))


def insert_key(connection: sqlite3.Connection, key: ApiKey) -> None:
    """Store a key."""
    connection.execute(
        "INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            key.key_id,
            key.digest,
            key.name,
            key.user,
            key.masked_key,
            " ".join(sorted(key.scopes)),
            to_us(key.created_at),
            us_or_none(key.expires_at),
            us_or_none(key.last_used_at),
            key.token_limits.per_day,
            key.token_limits.per_month,
            key.pepper,
        ),
    )


def select_keys(connection: sqlite3.Connection) -> list[ApiKey]:
    """List all keys, oldest first."""
    rows = connection.execute(
        "SELECT key_id, digest, pepper, name, user, masked, scopes, created_at, expires_at, last_used_at,"
        " tokens_per_day, tokens_per_month FROM keys"
        " ORDER BY created_at, key_id"
    )
    return [
        ApiKey(
            key_id=KeyId(key_id),
            digest=digest,
            pepper=pepper,
            name=name,
            user=UserId(user),
            masked_key=masked,
            scopes=frozenset(scopes.split()),
            created_at=from_us(created_at),
            expires_at=time_or_none(expires_at),
            last_used_at=time_or_none(last_used_at),
            token_limits=TokenLimits(*limits),
        )
        for key_id, digest, pepper, name, user, masked, scopes, created_at, expires_at, last_used_at, *limits in rows
    ]


def delete_key(connection: sqlite3.Connection, key_id: KeyId) -> bool:
    """Remove a key. Returns False if there was none."""
    return connection.execute("DELETE FROM keys WHERE key_id = ?", (key_id,)).rowcount == 1
