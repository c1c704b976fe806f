"""The fingerprints of the key files with which a data folder's database was written."""

from dragoman.stores.sqlite.database import Database

_REPLACE = """
    INSERT INTO key_fingerprints (name, fingerprint) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET fingerprint = excluded.fingerprint
"""


class SqliteKeyFingerprints:
    """Fingerprints by the name of the key's file. The first start registers them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, name: str) -> str | None:
        """The registered fingerprint of a key."""
        statement = "SELECT fingerprint FROM key_fingerprints WHERE name = ?"
        row = await self._database.read(lambda connection: connection.execute(statement, (name,)).fetchone())
        return None if row is None else str(row[0])

    async def register(self, name: str, fingerprint: str) -> str:
        """Register a fingerprint unless there is one. Returns the one that counts."""
        registered = await self.find(name)
        if registered is None:
            await self.replace(name, fingerprint)
        return registered or fingerprint

    async def replace(self, name: str, fingerprint: str) -> None:
        """Register a fingerprint in place of the present one."""
        await self._database.writer.run(lambda connection: connection.execute(_REPLACE, (name, fingerprint)))
