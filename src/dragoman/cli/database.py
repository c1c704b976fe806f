"""The commands for whole databases: what they do, with all errors as `DatabaseCommandError`."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dragoman.core.refusals import StoreUnavailable
from dragoman.server.backup import BackupError, Manifest, restore_backup, write_backup
from dragoman.server.bundled_database import bundled_database_running
from dragoman.server.check_store import CheckReport, check
from dragoman.server.copy_between_stores import CopyCounts, CopyError, Progress, copy
from dragoman.server.key_files import rotate
from dragoman.server.stores import configured_store, is_database_url, open_snapshot, open_stores_at
from dragoman.settings import Settings, UnusableData
from dragoman.stores.errors import StoreInUse, WrongVersion


class DatabaseCommandError(Exception):
    """The command failed. The message says why and what to do."""


def migrate_database(settings: Settings) -> tuple[int, int]:
    """Migrate the database, and return its schema version before and after.

    Raises:
        DatabaseCommandError: a server uses the database, it is from a newer release, or it cannot be used; a data
            folder contains none.
    """
    with _located(settings, f"cannot use the data folder {settings.folder}") as settings:
        _require_data(settings)
        adapter, location = configured_store(settings)
        return adapter.migrate(location)


def check_database(settings: Settings, *, repair: bool, accept_loss: bool) -> CheckReport:
    """Check everything that the database contains.

    Args:
        settings: where the database is.
        repair: put damaged sessions into quarantine.
        accept_loss: continue without acknowledged commits that a damaged write-ahead log does not give back.

    Raises:
        DatabaseCommandError: as for `migrate_database`.
    """
    with _located(settings, f"cannot use the data folder {settings.folder}") as settings:
        _require_data(settings)
        if accept_loss:
            adapter, location = configured_store(settings)
            adapter.accept_loss(location)
        if settings.database is not None and not repair:  # servers may be running
            with closing(open_snapshot(settings.database, None)) as stores:
                return asyncio.run(check(stores))
        with closing(open_stores_at(settings.database or settings.data)) as stores:
            return asyncio.run(check(stores, settings.folder / "quarantine" if repair else None))


def backup_database(settings: Settings, file: Path, progress: Progress) -> Manifest:
    """Write a backup of everything into a new file, while servers may be running.

    Raises:
        DatabaseCommandError: something cannot be read or is damaged, or the file exists or cannot be written.
    """
    with _located(settings, f"the backup {file} cannot be written") as settings:
        _require_data(settings)
        return asyncio.run(write_backup(settings, file, progress))


def restore_database(settings: Settings, file: Path, progress: Progress) -> Manifest:
    """Restore a backup into empty stores, which are unchanged if it fails.

    Raises:
        DatabaseCommandError: the file is not an intact backup, or the target is not empty or not writable.
    """
    with _located(settings, f"cannot restore into the data folder {settings.folder}", creates=True) as settings:
        return asyncio.run(restore_backup(settings, file, progress))


def compact_database(settings: Settings) -> tuple[int, int]:
    """Give the space of deleted data back. Returns the database's size in bytes before and after.

    Raises:
        DatabaseCommandError: a server uses the database, or it cannot be compacted.
    """
    with _located(settings, f"cannot use the data folder {settings.folder}") as settings:
        _require_data(settings)
        adapter, location = configured_store(settings)
        return adapter.compact(location)


def rotate_key_file(settings: Settings, name: str, *, is_lost: bool) -> str:
    """Make a new current key in the data folder, and return the fingerprint of the file.

    Args:
        settings: where the data is.
        name: the key's file.
        is_lost: continue with the folder's keys, because those with which the data was written are lost.

    Raises:
        DatabaseCommandError: a server uses the database, or the folder has no such key.
    """
    with _located(settings, f"cannot use the data folder {settings.folder}") as settings:
        _require_data(settings)
        with closing(open_stores_at(settings.database or settings.data)) as stores:
            return asyncio.run(rotate(settings.folder, name, stores.key_fingerprints, is_lost=is_lost))


def _require_data(settings: Settings) -> None:
    if settings.database is None and not (settings.folder / "dragoman.db").exists():
        raise DatabaseCommandError(f"{settings.folder} contains no data: name a data folder with --data")


@contextmanager
def _located(settings: Settings, what: str, *, creates: bool = False) -> Iterator[Settings]:
    """The settings with the address of the bundled database, which runs meanwhile, if they select it."""
    with _reporting_errors(what), bundled_database_running(settings, creates=creates) as located:
        yield located


@contextmanager
def _reporting_errors(what: str) -> Iterator[None]:
    try:
        yield
    except (StoreInUse, WrongVersion, UnusableData, StoreUnavailable, CopyError, BackupError) as error:
        raise DatabaseCommandError(str(error)) from error
    except (OSError, sqlite3.Error) as error:
        raise DatabaseCommandError(f"{what}: {error}") from error


def copy_database(
    source: str, target: str, progress: Progress, *, source_blobs: str | None = None, target_blobs: str | None = None
) -> CopyCounts:
    """Copy everything from one store into another, and compare both.

    Args:
        source: a data folder, or the address of a database.
        target: the same; must be empty.
        progress: called with the step, and how many of how many items are done.
        source_blobs: the bucket with the source's blobs, if they are in one.
        target_blobs: the bucket for the target's blobs.

    Raises:
        DatabaseCommandError: the source has no data, the target has some, a server uses one of them, or the copy
            differs.
    """
    with (
        _located(_settings_of(source), "cannot use a data folder") as source_settings,
        _located(_settings_of(target), "cannot use a data folder") as target_settings,
    ):
        if source_settings.database is None and not (source_settings.folder / "dragoman.db").exists():
            raise DatabaseCommandError(f"{source} contains no data: name a data folder, or the address of a database")
        with (
            closing(open_stores_at(source_settings.database or source, source_blobs)) as source_stores,
            closing(open_stores_at(target_settings.database or target, target_blobs)) as target_stores,
        ):
            return asyncio.run(copy(source_stores, target_stores, progress))


def _settings_of(location: str) -> Settings:
    return Settings(database=location) if is_database_url(location) else Settings(data=location)
