"""A copy of one moment of a database, while a server may write to it."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.sqlite.database import FolderInUse, lock_folder
from dragoman.stores.sqlite.start_check import check_wal

PAGES_PER_STEP = 4096


def copy_database(folder: Path, target: Path, progress: Callable[[int, int], None]) -> None:
    """Copy the database of a data folder, which is not changed.

    Args:
        folder: the data folder; a server may be running on it.
        target: the file to create.
        progress: called with the number of pages that are copied, and of all.

    Raises:
        StoreUnavailable: the database cannot be read, or its write-ahead log is damaged.
    """
    path = folder / "dragoman.db"
    try:
        descriptor = lock_folder(folder)
    except FolderInUse:
        pass  # its server has checked the write-ahead log
    else:
        try:
            check_wal(path, accept_loss=False)
        finally:
            os.close(descriptor)
    target.touch(mode=0o600)
    try:
        with closing(_open(path)) as source, closing(sqlite3.connect(target)) as copy:
            source.execute("BEGIN")  # all steps read the same moment, and no write makes the copy start again
            source.execute("SELECT 1 FROM sqlite_schema").fetchone()
            source.backup(
                copy, pages=PAGES_PER_STEP, progress=lambda _, remaining, total: progress(total - remaining, total)
            )
    except sqlite3.Error as error:
        raise StoreUnavailable(f"the database {path} cannot be copied: {error}") from error


def _open(path: Path) -> sqlite3.Connection:
    """A connection that never checkpoints, not even as the last one that is closed: only the server writes."""
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, isolation_level=None)
