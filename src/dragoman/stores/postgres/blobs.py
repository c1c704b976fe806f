"""Blobs as rows of the database, so that a backup of the database includes them."""

from collections.abc import Sequence

from dragoman.stores.folder_blobs import validate_blob_name
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.statements import statements

_SQL = statements("blobs")


class PostgresBlobs:
    """`BlobStore` over one database. Writes are atomic."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, name: str, content: bytes) -> None:
        """Store a value durably, replacing any previous one."""
        values = {"name": validate_blob_name(name), "content": content}
        await self._database.write(lambda connection: connection.execute(_SQL["put"], values))

    async def get(self, name: str) -> bytes | None:
        """Return a value, or None if there is none of that name."""
        values = {"name": validate_blob_name(name)}
        row = await self._database.read(
            lambda connection: connection.execute(_SQL["get"], values, binary=True).fetchone()
        )
        return None if row is None else bytes(row[0])

    async def delete(self, name: str) -> None:
        """Remove a value and all values whose names start with this one and a `/`."""
        values = {"name": validate_blob_name(name), **_name_range(name)}
        await self._database.write(lambda connection: connection.execute(_SQL["delete"], values))

    async def names(self, prefix: str | None = None) -> Sequence[str]:
        """List all names in order, or only those that start with a prefix and a `/`."""
        statement, values = (
            ("names", {}) if prefix is None else ("names_below", _name_range(validate_blob_name(prefix)))
        )
        rows = await self._database.read(lambda connection: connection.execute(_SQL[statement], values).fetchall())
        return [row[0] for row in rows]


def _name_range(folder: str) -> dict[str, str]:
    """The range of all names in a folder; names are compared by their bytes."""
    return {"first": f"{folder}/", "last": f"{folder}0"}  # "0" comes just after "/"
