"""API keys in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from psycopg import Connection

from dragoman.core.ids import KeyId
from dragoman.core.token_budgets import TokenLimits
from dragoman.ports.accounts import ApiKey
from dragoman.stores.postgres.arrays import Bigints, Texts
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.limits import has_room
from dragoman.stores.postgres.statements import statements
from dragoman.stores.times import time_or_none, to_us, us_or_none

_SQL = statements("accounts")
_BODY = msgspec.json.Decoder(ApiKey)


class PostgresKeys:
    """`ApiKeyStore` over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: ApiKey, limit: int | None = None) -> bool:
        """Store a key. Returns False, and stores nothing, if its user has `limit` keys already."""
        values = {
            "key": key.key_id,
            "digest": key.digest,
            "name": key.name,
            "created_at": to_us(key.created_at),
            "last_used_at": us_or_none(key.last_used_at),
            "body": msgspec.json.encode(key).decode(),
        }

        def added(connection: Connection) -> bool:
            counted = _SQL["count_keys"], {"user": key.user}
            if has_room(connection, limit, f"keys of {key.user}", *counted):
                connection.execute(_SQL["add_key"], values)
                return True
            return False

        return await self._database.write(added)

    async def all(self) -> Sequence[ApiKey]:
        """List all keys, oldest first."""
        rows = await self._database.read(lambda connection: connection.execute(_SQL["keys"]).fetchall())
        return [
            msgspec.structs.replace(_BODY.decode(body), name=name, last_used_at=time_or_none(last_used_at))
            for name, last_used_at, body in rows
        ]

    async def remove(self, key_id: KeyId) -> bool:
        """Remove a key. Returns False if there was none."""
        return await self._database.write(
            lambda connection: connection.execute(_SQL["remove_key"], {"key": key_id}).rowcount == 1
        )

    async def rename(self, key_id: KeyId, name: str) -> None:
        """Rename a key. Does nothing if there is none."""
        values = {"key": key_id, "name": name}
        await self._database.write(lambda connection: connection.execute(_SQL["rename_key"], values))

    async def touch(self, used: Sequence[tuple[KeyId, datetime]]) -> None:
        """Record when keys were last used."""
        values = {"key": Texts(key_id for key_id, _ in used), "at": Bigints(to_us(at) for _, at in used)}
        await self._database.write(lambda connection: connection.execute(_SQL["touch_keys"], values))

    async def can_use_peppers(self) -> bool:
        """Whether no server of release 0.1.0, which cannot check such digests, is alive."""
        row = await self._database.read(lambda connection: connection.execute(_SQL["can_use_peppers"]).fetchone())
        return row is not None and bool(row[0])

    async def rehash(self, key_id: KeyId, digest: bytes, pepper: str) -> None:
        """Replace a key's digest. Does nothing if there is no such key."""
        await self._change(key_id, {"digest": digest, "pepper": pepper}, digest)

    async def limit(self, key_id: KeyId, limits: TokenLimits) -> None:
        """Replace a key's token limits. Does nothing if there is no such key."""
        await self._change(key_id, {"token_limits": limits})

    async def _change(self, key_id: KeyId, changes: dict[str, object], digest: bytes | None = None) -> None:
        values = {"key": key_id, "changes": msgspec.json.encode(changes).decode(), "digest": digest}
        await self._database.write(lambda connection: connection.execute(_SQL["change_key"], values))
