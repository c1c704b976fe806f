"""Opens the configured stores: SQLite in the data folder, or a database; optionally a bucket for blobs.

A data folder is used in all cases: it contains the encryption keys, the first key and the admin socket. The drivers for
databases and buckets are imported only if needed.
"""

import asyncio
import os
import platform
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import structlog

from dragoman.core.refusals import StoreUnavailable
from dragoman.engine.instrumentation.unreadable import report_unreadable
from dragoman.ports.blobs import BlobStore
from dragoman.ports.stores import DatabaseAdapter, StoreAdapter, Stores
from dragoman.settings import BUNDLED_DATABASE, Settings, SettingsError, UnusableData
from dragoman.stores.encryption import load_or_create_key
from dragoman.stores.folder_blobs import FolderBlobs
from dragoman.stores.postgres import bundled
from dragoman.stores.sqlite.adapter import SqliteAdapter
from dragoman.stores.sqlite.database import lock_folder
from dragoman.stores.sqlite.writer import Synchronous

FOLDER_ID_FILE = "home"
"""A file of random bytes that identify a data folder among all servers of a cluster."""
CHANGE_POLL_INTERVAL_S = 1.0
"""How often a shared database is polled for changes of keys and profiles."""

log = structlog.get_logger(__name__)


# --- kinds of stores --------------------------------------------------------------------------------------------------


def postgres_adapter() -> DatabaseAdapter:
    """PostgreSQL. Raises UnusableData if the driver is not installed."""
    with _requiring_driver("a PostgreSQL database", extra="postgres"):
        from dragoman.stores.postgres.adapter import PostgresAdapter
    return PostgresAdapter(report_unreadable)


DATABASES: dict[str, Callable[[], DatabaseAdapter]] = {
    "postgresql": postgres_adapter,
    "postgres": postgres_adapter,
}
"""The databases by the schemes of their addresses. One more takes an adapter in `stores/`, a factory and its scheme."""


def is_database_url(location: str) -> bool:
    """Whether a location is a database's address (`postgresql://…` or `host=… dbname=…`) and not a folder."""
    return "://" in location or re.match(r"\s*[a-z_]+\s*=", location) is not None


def check_database_address(settings: Settings) -> None:
    """Check, before anything is created, that there is an adapter for the database. Raises SettingsError."""
    if settings.database not in (None, BUNDLED_DATABASE):
        database_adapter(settings.database)


def database_adapter(address: str) -> DatabaseAdapter:
    """The adapter for a database's address: by its scheme, or PostgreSQL for `host=… dbname=…`.

    Raises:
        SettingsError: no adapter has this scheme, or its driver is not installed.
    """
    scheme, separator, _ = address.partition("://")
    factory = DATABASES.get(scheme.lower()) if separator else postgres_adapter
    if factory is None:
        known = " or ".join(f"{each}://" for each in DATABASES)
        raise SettingsError(f"there is no database of the kind {scheme}://: expected an address with {known}")
    return factory()


def folder_adapter(synchronous: Synchronous = "full") -> StoreAdapter:
    """The adapter for data folders, with what it syncs to disk."""
    return _FolderAdapter(report_unreadable, synchronous=synchronous)


def configured_store(settings: Settings) -> tuple[StoreAdapter, str]:
    """The adapter for the configured store, and its location. Raises SettingsError as `database_adapter`."""
    if settings.database is None:
        return folder_adapter(settings.synchronous), settings.data
    return database_adapter(settings.database), settings.database


class _FolderAdapter(SqliteAdapter):
    """SQLite in data folders whose data is not in the bundled PostgreSQL."""

    def open(self, location: str) -> Stores:
        """Open the store of a folder. Raises SettingsError if its data is in the bundled PostgreSQL."""
        if bundled.exists(Path(location)):
            raise SettingsError(
                f"the data of {location} is in the bundled PostgreSQL, which only dragoman serve starts: use that,"
                " or name another data folder"
            )
        return super().open(location)


# --- opening them -----------------------------------------------------------------------------------------------------


def open_stores(settings: Settings, worker: int | None = None) -> Stores:
    """Open a server's stores and migrate them.

    Args:
        settings: where the stores are.
        worker: the number of the worker; the supervisor has locked the data folder for all workers.

    Raises:
        StoreInUse: another server uses the folder, or another program the database.
        WrongVersion: the stores are from a newer release, or contain another program's tables.
        SettingsError: the database is of an unknown kind, a driver is not installed, or the bucket cannot be used.
        StoreUnavailable: a store cannot be used at the moment.
    """
    if settings.database is None:
        return _with_blobs(folder_adapter(settings.synchronous).open(settings.data), settings.blobs)
    if settings.database == BUNDLED_DATABASE:
        raise SettingsError("the bundled PostgreSQL is started by dragoman serve only")
    adapter = database_adapter(settings.database)
    with ExitStack() as stack:
        settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if worker is None:
            stack.callback(os.close, lock_folder(settings.folder))
        folder_id = f"{_folder_id(settings.folder)}/{worker or 0}"
        stores = adapter.open_shared(settings.database, folder_id=folder_id, lease_s=settings.lease_s)
        stack.callback(stores.close)
        return _with_blobs(stores._replace(close=stack.pop_all().close), settings.blobs)


def open_stores_at(location: str, blobs: str | None = None) -> Stores:
    """Open stores that no server uses.

    Args:
        location: a data folder, or the address of a database.
        blobs: the address of the bucket with the blobs, if they are in one.

    Raises:
        StoreInUse, WrongVersion, SettingsError, StoreUnavailable: as in `open_stores`.
    """
    adapter = database_adapter(location) if is_database_url(location) else folder_adapter()
    return _with_blobs(adapter.open(location), blobs)


def open_snapshot(url: str, blobs: str | None) -> Stores:
    """Open a database as it is now, to read all of it. Servers may be running.

    Raises:
        WrongVersion: its schema is not this release's.
        SettingsError, StoreUnavailable: as in `open_stores`.
    """
    return _with_blobs(database_adapter(url).open_snapshot(url), blobs)


def open_for_restore(url: str, blobs: str | None) -> tuple[Stores, Callable[[], Awaitable[None]]]:
    """Open a database that is filled completely or not at all. Returns its stores and the final commit.

    Raises:
        StoreInUse, WrongVersion, SettingsError, StoreUnavailable: as in `open_stores`.
    """
    stores, commit = database_adapter(url).open_for_restore(url)
    return _with_blobs(stores, blobs), commit


def open_blobs(folder: Path, address: str | None) -> BlobStore:
    """Open the blobs of a data folder, or a bucket. Raises SettingsError if the bucket cannot be used."""
    return FolderBlobs(folder / "blobs") if address is None else _open_bucket(address)


async def watch_for_changes(stores: Stores, on_change: Callable[[], Awaitable[None]]) -> None:
    """Call `on_change` now and whenever keys or profiles have changed, until cancelled."""
    assert stores.accounts_version is not None, "another process can change them"
    last_version: int | None = None
    is_unavailable = False
    while True:
        try:
            version = await stores.accounts_version()
            if version != last_version:
                await on_change()
            last_version, is_unavailable = version, False
        except StoreUnavailable as error:
            if not is_unavailable:
                log.warning("cannot poll for changes of keys and profiles", cause=repr(error.__cause__))
            is_unavailable = True
        except Exception:  # the outer edge of a task that must continue
            log.exception("cannot poll for changes of keys and profiles")
        await asyncio.sleep(CHANGE_POLL_INTERVAL_S)


def _with_blobs(stores: Stores, address: str | None) -> Stores:
    """Replace the blob store by a bucket if one is configured. Closes the stores if that fails."""
    if address is None:
        return stores
    with ExitStack() as stack:
        stack.callback(stores.close)
        blobs = _open_bucket(address)
        stack.pop_all()
    return stores._replace(blobs=blobs)


def _open_bucket(address: str) -> BlobStore:
    try:
        with _requiring_driver("a bucket for blobs", extra="s3"):
            from dragoman.stores import s3_blobs

            return s3_blobs.open_bucket(address)
    except (ValueError, StoreUnavailable) as error:
        raise SettingsError(f"setting blobs: {error}") from error


@contextmanager
def _requiring_driver(what: str, *, extra: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise UnusableData(
            f"{what} is configured, but its driver is not installed: pip install 'dragoman[{extra}]', or in a checkout"
            f" make run EXTRAS={extra}"
        ) from error


def _folder_id(folder: Path) -> str:
    """An id of a data folder that differs between all folders, including copies of one."""
    random_id = load_or_create_key(folder / FOLDER_ID_FILE).hex()
    return f"{random_id}/{platform.node()}/{(folder / FOLDER_ID_FILE).stat().st_ino}"
