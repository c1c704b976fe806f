"""Whether a data folder's database can be used, and the reason if not."""

import os
import sqlite3
from pathlib import Path

from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.sqlite.database import Database

PROBE_BYTES = 1024 * 1024
"""What a probe writes. Less may fit into space that the database already has on a full disk."""


def failure_of(database: Database) -> str | None:
    """Why a database cannot be used, as far as that is known without trying; None if nothing is known."""
    if (known := database.failure) is not None:
        return known
    return "the disk of the data folder is full" if _is_full(database.folder) else None


async def probe(database: Database) -> None:
    """Read and write. Raises StoreUnavailable with the reason."""
    if (reason := failure_of(database)) is not None:
        raise StoreUnavailable(reason)
    try:
        await database.read(lambda connection: connection.execute("SELECT max(number) FROM sessions").fetchone())
        await database.writer.run(_grow)
        await database.writer.run(_shrink)
    except StoreUnavailable as error:
        raise StoreUnavailable(f"{error}: {error.__cause__}") from error


def _is_full(folder: Path) -> bool:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False  # reading or writing tells more
    return disk.f_bavail * disk.f_frsize < PROBE_BYTES


def _grow(connection: sqlite3.Connection) -> None:
    _shrink(connection)  # of a server that stopped in between
    connection.execute("CREATE TABLE probe (content BLOB)")
    connection.execute("INSERT INTO probe VALUES (zeroblob(?))", (PROBE_BYTES,))


def _shrink(connection: sqlite3.Connection) -> None:
    connection.execute("DROP TABLE IF EXISTS probe")
