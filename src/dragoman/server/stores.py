"""Opens the configured stores: SQLite in the data folder, or PostgreSQL; optionally a bucket for blobs.

A data folder is used in all cases: it contains the encryption keys, the first key and the admin socket. The drivers for
PostgreSQL and buckets are imported only if needed.
"""

import asyncio
import os
import platform
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog

from dragoman.core.refusals import StoreUnavailable
from dragoman.engine.instrumentation.unreadable import report_unreadable
from dragoman.ports.accounts import (
    ApiKeyStore,
    AuditStore,
    MemoryStore,
    ProfileStore,
    ScheduleStore,
    ShareStore,
    TokenUsageStore,
)
from dragoman.ports.archive import StoreArchive
from dragoman.ports.blobs import BlobStore
from dragoman.ports.cluster import ClusterStore
from dragoman.ports.log import SessionStore
from dragoman.server.key_files import KeyFingerprints
from dragoman.settings import BUNDLED_DATABASE, Settings, SettingsError
from dragoman.stores.encryption import load_or_create_key
from dragoman.stores.folder_blobs import FolderBlobs
from dragoman.stores.postgres import bundled
from dragoman.stores.sqlite import health
from dragoman.stores.sqlite.archive import SqliteArchive
from dragoman.stores.sqlite.audit import SqliteAudit
from dragoman.stores.sqlite.compact import compact as compact_sqlite
from dragoman.stores.sqlite.database import Database, lock_folder
from dragoman.stores.sqlite.key_fingerprints import SqliteKeyFingerprints
from dragoman.stores.sqlite.keys import SqliteKeys
from dragoman.stores.sqlite.log import SqliteLog
from dragoman.stores.sqlite.memories import SqliteMemories
from dragoman.stores.sqlite.profiles import SqliteProfiles
from dragoman.stores.sqlite.schedules import SqliteSchedules
from dragoman.stores.sqlite.shares import SqliteShares
from dragoman.stores.sqlite.start_check import find_problems
from dragoman.stores.sqlite.token_usage import SqliteTokenUsage

if TYPE_CHECKING:
    from dragoman.stores.postgres.database import Access
    from dragoman.stores.postgres.database import Database as Postgres
    from dragoman.stores.postgres.transaction import TransactionDatabase, TransactionKind

FOLDER_ID_FILE = "home"
"""A file of random bytes that identify a data folder among all servers of a cluster."""
CHANGE_POLL_INTERVAL_S = 1.0
"""How often a shared database is polled for changes of keys and profiles."""

log = structlog.get_logger(__name__)


class Stores(NamedTuple):
    """The stores of a server."""

    log: SessionStore
    keys: ApiKeyStore
    audit: AuditStore
    token_usage: TokenUsageStore
    profiles: ProfileStore
    memories: MemoryStore
    schedules: ScheduleStore
    shares: ShareStore
    blobs: BlobStore
    archive: StoreArchive
    cluster_store: ClusterStore | None
    """The cluster's shared state; None with SQLite, which only one server can use."""
    database_url: str | None
    """The database that several servers share; None with SQLite."""
    probe: Callable[[], Awaitable[object]]
    """Performs a write without effect. Raises StoreUnavailable with the reason."""
    failure: Callable[[], str | None]
    """Returns why the store cannot be used, if that is known without a probe."""
    structure_problems: Callable[[], Awaitable[Sequence[str]]]
    """Checks the database's structure. Returns what is wrong."""
    key_fingerprints: KeyFingerprints
    """The fingerprints of the keys with which the data was written."""
    accounts_version: Callable[[], Awaitable[int]] | None
    """Returns a number that changes with keys and profiles; None if no other process can change them."""
    close: Callable[[], None]


def open_stores(settings: Settings, worker: int | None = None) -> Stores:
    """Open a server's stores and migrate them.

    Args:
        settings: where the stores are.
        worker: the number of the worker; the supervisor has locked the data folder for all workers.

    Raises:
        StoreInUse: another server uses the folder, or another program the database.
        WrongVersion: the stores are from a newer release, or contain another program's tables.
        SettingsError: a driver is not installed, or the bucket cannot be used.
        StoreUnavailable: a store cannot be used at the moment.
    """
    if settings.database is None:
        return _with_blobs(_open_sqlite_stores(settings), settings.blobs)
    if settings.database == BUNDLED_DATABASE:
        raise SettingsError("the bundled PostgreSQL is started by dragoman serve only")
    with ExitStack() as stack:
        settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if worker is None:
            stack.callback(os.close, lock_folder(settings.folder))
        database = open_postgres(settings.database, access="shared")
        stack.callback(database.close)
        stores = _with_blobs(_postgres_stores(database, stack.pop_all().close), settings.blobs)
        folder_id = f"{_folder_id(settings.folder)}/{worker or 0}"
        return stores._replace(cluster_store=open_cluster_store(database, folder_id, settings.lease_s))


def open_cluster_store(database: "Postgres", folder_id: str, lease_s: float) -> ClusterStore:
    """Open the cluster's shared state in a PostgreSQL database."""
    from dragoman.stores.postgres.cluster import PostgresCluster

    return PostgresCluster(database, folder_id=folder_id, lease_s=lease_s)


def open_stores_at(location: str, blobs: str | None = None) -> Stores:
    """Open stores that no server uses.

    Args:
        location: a data folder, or the address of a PostgreSQL database.
        blobs: the address of the bucket with the blobs, if they are in one.

    Raises:
        StoreInUse, WrongVersion, SettingsError, StoreUnavailable: as in `open_stores`.
    """
    if is_database_url(location):
        database = open_postgres(location)
        return _with_blobs(_postgres_stores(database, database.close), blobs)
    return _with_blobs(_open_sqlite_stores(Settings(data=location)), blobs)


def open_snapshot(url: str, blobs: str | None) -> Stores:
    """Open a PostgreSQL database as it is now, to read all of it. Servers may be running.

    Raises:
        WrongVersion: its schema is not this release's.
        SettingsError, StoreUnavailable: as in `open_stores`.
    """
    database = _open_transaction(url, "snapshot")
    return _with_blobs(_postgres_stores(database, database.close), blobs)


def open_for_restore(url: str, blobs: str | None) -> tuple[Stores, Callable[[], Awaitable[None]]]:
    """Open a PostgreSQL database that is filled completely or not at all. Returns its stores and the final commit.

    Raises:
        StoreInUse, WrongVersion, SettingsError, StoreUnavailable: as in `open_stores`.
    """
    database = _open_transaction(url, "restore")
    return _with_blobs(_postgres_stores(database, database.close), blobs), database.commit


def _open_transaction(url: str, kind: "TransactionKind") -> "TransactionDatabase":
    with _requiring_postgres_driver():
        from dragoman.stores.postgres.transaction import TransactionDatabase
    return TransactionDatabase(url, kind)


def compact(settings: Settings) -> tuple[int, int]:
    """Give the space of deleted data back. Returns the database's size in bytes before and after.

    Raises:
        StoreInUse, WrongVersion, SettingsError, StoreUnavailable: as in `open_stores`.
    """
    if settings.database is None:
        return compact_sqlite(settings.folder)
    with _requiring_postgres_driver():
        from dragoman.stores.postgres.compact import compact as compact_postgres
    return compact_postgres(settings.database)


def open_blobs(folder: Path, address: str | None) -> BlobStore:
    """Open the blobs of a data folder, or a bucket. Raises SettingsError if the bucket cannot be used."""
    return FolderBlobs(folder / "blobs") if address is None else _open_bucket(address)


def is_database_url(location: str) -> bool:
    """Whether a location is a database's address (`postgresql://…` or `host=… dbname=…`) and not a folder."""
    return "://" in location or "=" in location


def open_postgres(url: str, *, access: "Access" = "exclusive") -> "Postgres":
    """Open a PostgreSQL database. Raises SettingsError if the driver is not installed."""
    with _requiring_postgres_driver():
        from dragoman.stores.postgres.database import Database as Postgres
    return Postgres(url, access=access)


@contextmanager
def _requiring_postgres_driver() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise SettingsError(
            "a PostgreSQL database is configured, but its driver is not installed: pip install 'dragoman[postgres]', or"
            " in a checkout make run EXTRAS=postgres"
        ) from error


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


def _open_sqlite_stores(settings: Settings) -> Stores:
    if bundled.exists(settings.folder):
        raise SettingsError(
            f"the data of {settings.folder} is in the bundled PostgreSQL, which only dragoman serve starts: use that,"
            " or name another data folder"
        )
    database = Database(settings.folder, synchronous=settings.synchronous)
    database.start()
    return Stores(
        log=SqliteLog(database, report_unreadable),
        keys=SqliteKeys(database),
        audit=SqliteAudit(database),
        token_usage=SqliteTokenUsage(database),
        profiles=SqliteProfiles(database),
        memories=SqliteMemories(database),
        schedules=SqliteSchedules(database),
        shares=SqliteShares(database),
        blobs=FolderBlobs(settings.folder / "blobs"),
        archive=SqliteArchive(database),
        probe=partial(health.probe, database),
        failure=partial(health.failure_of, database),
        structure_problems=lambda: database.search(partial(find_problems, is_thorough=True)),
        key_fingerprints=SqliteKeyFingerprints(database),
        accounts_version=None,
        cluster_store=None,
        database_url=None,
        close=database.close,
    )


def _postgres_stores(database: "Postgres", close: Callable[[], None]) -> Stores:
    from dragoman.stores.postgres.archive import PostgresArchive
    from dragoman.stores.postgres.audit import PostgresAudit
    from dragoman.stores.postgres.blobs import PostgresBlobs
    from dragoman.stores.postgres.key_fingerprints import PostgresKeyFingerprints
    from dragoman.stores.postgres.keys import PostgresKeys
    from dragoman.stores.postgres.log import PostgresLog
    from dragoman.stores.postgres.memories import PostgresMemories
    from dragoman.stores.postgres.profiles import PostgresProfiles
    from dragoman.stores.postgres.schedules import PostgresSchedules
    from dragoman.stores.postgres.shares import PostgresShares
    from dragoman.stores.postgres.token_usage import PostgresTokenUsage

    return Stores(
        log=PostgresLog(database, report_unreadable),
        keys=PostgresKeys(database),
        audit=PostgresAudit(database),
        token_usage=PostgresTokenUsage(database),
        profiles=PostgresProfiles(database),
        memories=PostgresMemories(database),
        schedules=PostgresSchedules(database),
        shares=PostgresShares(database),
        blobs=PostgresBlobs(database),
        archive=PostgresArchive(database),
        probe=database.probe,
        failure=lambda: None,
        structure_problems=database.structure_problems,
        key_fingerprints=PostgresKeyFingerprints(database),
        accounts_version=database.accounts_version,
        cluster_store=None,
        database_url=database.conninfo,
        close=close,
    )


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
        from dragoman.stores import s3_blobs

        return s3_blobs.open_bucket(address)
    except ModuleNotFoundError as error:
        raise SettingsError(
            "a bucket for blobs is configured, but its driver is not installed: pip install 'dragoman[s3]', or"
            " in a checkout make run EXTRAS=s3"
        ) from error
    except (ValueError, StoreUnavailable) as error:
        raise SettingsError(f"setting blobs: {error}") from error


def _folder_id(folder: Path) -> str:
    """An id of a data folder that differs between all folders, including copies of one."""
    random_id = load_or_create_key(folder / FOLDER_ID_FILE).hex()
    return f"{random_id}/{platform.node()}/{(folder / FOLDER_ID_FILE).stat().st_ino}"
