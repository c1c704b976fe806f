"""Databases from the command line: brought up to date without serving, or copied into another."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from dragoman.core.refusals import StoreUnavailable
from dragoman.server.copy_between_stores import CopyCounts, CopyError, Progress, copy
from dragoman.server.stores import is_database_url, open_postgres, open_stores_at
from dragoman.settings import Settings, SettingsError
from dragoman.stores.errors import StoreInUse, WrongVersion
from dragoman.stores.sqlite.database import Database


class DatabaseCommandError(Exception):
    """It did not work; the message says why, and what to do."""


def migrate_database(settings: Settings) -> tuple[int, int]:
    """Bring the settings' database up to date; its schema's number before and now.

    Raises:
        CannotMove: a server uses it, it is from a newer release, or cannot be used.
    """
    try:
        if settings.database is not None:  # servers of the release before may run on: the schema has a lock of its own
            with closing(open_postgres(settings.database, use="beside")) as shared:
                return shared.schema_versions
        with closing(Database(settings.folder)) as database:
            return database.schema_versions
    except (StoreInUse, WrongVersion, SettingsError, StoreUnavailable) as error:
        raise DatabaseCommandError(str(error)) from error
    except (OSError, sqlite3.Error) as error:
        raise DatabaseCommandError(f"cannot use the data folder {settings.folder}: {error}") from error


def copy_database(
    source: str, target: str, progress: Progress, *, source_blobs: str | None = None, target_blobs: str | None = None
) -> CopyCounts:
    """Copy everything from one place, a data folder or a database's address, into another, and compare both.

    Args:
        source: the one.
        target: the other.
        progress: see `copy`.
        source_blobs: the bucket that holds the source's blobs, if they are in one.
        target_blobs: the bucket for the target's.

    Raises:
        CannotMove: there is nothing at the source, something at the target, a server uses one of them, or the copy
            differs.
    """
    if not is_database_url(source) and not (Path(source) / "dragoman.db").exists():
        raise DatabaseCommandError(f"there is no data in {source}: name a data folder, or a database's address")
    try:
        with (
            closing(open_stores_at(source, source_blobs)) as from_there,
            closing(open_stores_at(target, target_blobs)) as to_there,
        ):
            return asyncio.run(copy(from_there, to_there, progress))
    except (StoreInUse, WrongVersion, SettingsError, StoreUnavailable, CopyError) as error:
        raise DatabaseCommandError(str(error)) from error
    except (OSError, sqlite3.Error) as error:
        raise DatabaseCommandError(f"a data folder cannot be used: {error}") from error
