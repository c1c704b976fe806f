"""The fingerprints of the keys that all servers of one PostgreSQL database must have in their data folders."""

from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.statements import statements

_SQL = statements("accounts")


class PostgresKeyFingerprints:
    """Fingerprints by the name of the key's file. The first server registers them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, name: str) -> str | None:
        """The registered fingerprint of a key."""
        values = {"name": name}
        row = await self._database.read(lambda connection: connection.execute(_SQL["fingerprint"], values).fetchone())
        return None if row is None else str(row[0])

    async def replace(self, name: str, fingerprint: str) -> None:
        """Register a fingerprint in place of the present one."""
        values = {"name": name, "fingerprint": fingerprint}
        await self._database.write(lambda connection: connection.execute(_SQL["replace_fingerprint"], values))

    async def register(self, name: str, fingerprint: str) -> str:
        """Register a fingerprint unless there is one. Returns the one that counts."""
        values = {"name": name, "fingerprint": fingerprint}
        await self._database.write(lambda connection: connection.execute(_SQL["register_fingerprint"], values))
        return await self.find(name) or fingerprint
