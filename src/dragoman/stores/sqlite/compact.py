"""Gives the space of deleted data back to the file system."""

import sqlite3
from contextlib import closing
from pathlib import Path

from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.sqlite.appends import AppendWriter
from dragoman.stores.sqlite.database import Database


def compact(folder: Path) -> tuple[int, int]:
    """Compact the database of a data folder. Returns its size in bytes before and after.

    Raises:
        FolderInUse: a server uses the folder.
        WrongVersion, StoreUnavailable: as for `Database`; nothing is lost if there is no space for a second copy.
    """
    path = folder / "dragoman.db"
    before = path.stat().st_size
    with closing(Database(folder)) as database:
        appends = AppendWriter()
        while database.writer.run_now(appends.sweep):  # what deleted sessions have left
            pass
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("INSERT INTO search_trigrams (search_trigrams) VALUES ('optimize')")
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the database {path} cannot be compacted: {error}") from error
    return before, path.stat().st_size
