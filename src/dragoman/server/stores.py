"""The stores that the settings ask for, opened: SQLite in the data folder, or a PostgreSQL database; perhaps a bucket.

The data folder is there in all cases: it holds the key of the secrets, the first key and the socket of the command
line. The drivers of PostgreSQL and of buckets are imported only where one is named.
"""

import asyncio
import os
import platform
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog

from dragoman.core.refusals import StoreUnavailable
from dragoman.engine.instrumentation.unreadable import report_unreadable
from dragoman.ports.accounts import ApiKeyStore, MemoryStore, ProfileStore, ScheduleStore, ShareStore
from dragoman.ports.archive import StoreArchive
from dragoman.ports.blobs import BlobStore
from dragoman.ports.cluster import ClusterStore
from dragoman.ports.log import SessionStore
from dragoman.settings import Settings, SettingsError
from dragoman.stores.encryption import load_or_create_key
from dragoman.stores.folder_blobs import FolderBlobs
from dragoman.stores.sqlite.archive import SqliteArchive
from dragoman.stores.sqlite.database import Database, lock_folder
from dragoman.stores.sqlite.keys import SqliteKeys
from dragoman.stores.sqlite.log import SqliteLog
from dragoman.stores.sqlite.memories import SqliteMemories
from dragoman.stores.sqlite.profiles import SqliteProfiles
from dragoman.stores.sqlite.schedules import SqliteSchedules
from dragoman.stores.sqlite.shares import SqliteShares

if TYPE_CHECKING:
    from dragoman.stores.postgres.database import Access
    from dragoman.stores.postgres.database import Database as Postgres

FOLDER_ID_FILE = "home"
"""A file of random bytes, which tell a data folder from all others, wherever they are."""
CHANGE_POLL_INTERVAL_S = 1.0
"""How often a shared database is asked whether keys or profiles changed elsewhere."""

log = structlog.get_logger(__name__)


class Stores(NamedTuple):
    """All stores of a server."""

    log: SessionStore
    keys: ApiKeyStore
    profiles: ProfileStore
    memories: MemoryStore
    schedules: ScheduleStore
    shares: ShareStore
    blobs: BlobStore
    archive: StoreArchive
    cluster_store: ClusterStore | None
    """The other servers; None where there can be none."""
    database_url: str | None
    """How to reach the database that several servers share."""
    probe: Callable[[], Awaitable[object]]
    """Writes something that changes nothing. Raises StoreUnavailable."""
    accounts_version: Callable[[], Awaitable[int]] | None
    """A number that is another one when keys or profiles changed; None where nobody else can change them."""
    close: Callable[[], None]


def open_stores(settings: Settings, worker: int | None = None) -> Stores:
    """Open the stores for a server, and bring them up to date.

    Args:
        settings: where they are.
        worker: its number among those that share the data folder, which is locked for all of them already.

    Raises:
        InUse: another server has the folder, or another program the database.
        WrongVersion: they are from a newer release, or hold another program's tables.
        SettingsError: a driver is not installed, or the bucket of the blobs cannot be used.
        StoreUnavailable: they cannot be used now.
    """
    if settings.database is None:
        return _with_blobs(_open_sqlite_stores(settings), settings.blobs)
    with ExitStack() as stack:
        settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if worker is None:
            stack.callback(os.close, lock_folder(settings.folder))
        database = open_postgres(settings.database, use="shared")
        stack.callback(database.close)
        stores = _with_blobs(_postgres_stores(database, stack.pop_all().close), settings.blobs)
        home = f"{_folder_id(settings.folder)}/{worker or 0}"
        return stores._replace(cluster_store=open_cluster_store(database, home, settings.lease_s))


def open_cluster_store(database: "Postgres", folder_id: str, lease_s: float) -> ClusterStore:
    """The servers on a database; see `PostgresNodes`."""
    from dragoman.stores.postgres.cluster import PostgresCluster

    return PostgresCluster(database, folder_id=folder_id, lease_s=lease_s)


def open_stores_at(location: str, blobs: str | None = None) -> Stores:
    """Open the stores of a place while no server uses them: a data folder, or the address of a PostgreSQL database.

    Args:
        place: the one or the other.
        blobs: the address of the bucket where that place's blobs are, if they are in one.

    Raises as `open_stores` does.
    """
    if is_database_url(location):
        database = open_postgres(location)
        return _with_blobs(_postgres_stores(database, database.close), blobs)
    return _with_blobs(_open_sqlite_stores(Settings(data=location)), blobs)


def is_database_url(location: str) -> bool:
    """Whether a place is a database's address, not a folder: `postgresql://…`, or `host=… dbname=…`."""
    return "://" in location or "=" in location


def open_postgres(url: str, *, use: "Access" = "alone") -> "Postgres":
    """A PostgreSQL database; see its `Database`. Raises also SettingsError: the driver is not installed."""
    try:
        from dragoman.stores.postgres.database import Database as Postgres
    except ModuleNotFoundError as error:
        raise SettingsError(
            "a PostgreSQL database is named, but its driver is not installed: make run EXTRAS=postgres, or"
            " pip install '.[postgres]'"
        ) from error
    return Postgres(url, access=use)


async def watch_for_changes(stores: Stores, on_change: Callable[[], Awaitable[None]]) -> None:
    """Call `changed` now and each time when keys or profiles changed, here or elsewhere; until it is cancelled."""
    assert stores.accounts_version is not None, "somebody else can change them"
    seen: int | None = None
    is_away = False
    while True:
        try:
            count = await stores.accounts_version()
            if count != seen:
                await on_change()
            seen, is_away = count, False
        except StoreUnavailable as error:
            if not is_away:
                log.warning("keys and profiles not looked after", cause=repr(error.__cause__))
            is_away = True
        except Exception:  # the root of a task that must go on
            log.exception("keys and profiles not looked after")
        await asyncio.sleep(CHANGE_POLL_INTERVAL_S)


def _open_sqlite_stores(settings: Settings) -> Stores:
    database = Database(settings.folder, synchronous=settings.synchronous)
    database.start()
    return Stores(
        log=SqliteLog(database, report_unreadable),
        keys=SqliteKeys(database),
        profiles=SqliteProfiles(database),
        memories=SqliteMemories(database),
        schedules=SqliteSchedules(database),
        shares=SqliteShares(database),
        blobs=FolderBlobs(settings.folder / "blobs"),
        archive=SqliteArchive(database),
        probe=lambda: database.writer.run(
            lambda connection: connection.execute("UPDATE meta SET value = value WHERE name = 'epoch'")
        ),
        accounts_version=None,
        cluster_store=None,
        database_url=None,
        close=database.close,
    )


def _postgres_stores(database: "Postgres", close: Callable[[], None]) -> Stores:
    from dragoman.stores.postgres.archive import PostgresArchive
    from dragoman.stores.postgres.blobs import PostgresBlobs
    from dragoman.stores.postgres.keys import PostgresKeys
    from dragoman.stores.postgres.log import PostgresLog
    from dragoman.stores.postgres.memories import PostgresMemories
    from dragoman.stores.postgres.profiles import PostgresProfiles
    from dragoman.stores.postgres.schedules import PostgresSchedules
    from dragoman.stores.postgres.shares import PostgresShares

    return Stores(
        log=PostgresLog(database, report_unreadable),
        keys=PostgresKeys(database),
        profiles=PostgresProfiles(database),
        memories=PostgresMemories(database),
        schedules=PostgresSchedules(database),
        shares=PostgresShares(database),
        blobs=PostgresBlobs(database),
        archive=PostgresArchive(database),
        probe=database.probe,
        accounts_version=database.accounts_version,
        cluster_store=None,
        database_url=database.conninfo,
        close=close,
    )


def _with_blobs(stores: Stores, address: str | None) -> Stores:
    """The stores with their blobs in a bucket, if there is one; closed, if that does not work."""
    if address is None:
        return stores
    with ExitStack() as stack:
        stack.callback(stores.close)
        try:
            from dragoman.stores import s3_blobs

            blobs = s3_blobs.open_bucket(address)
        except ModuleNotFoundError as error:
            raise SettingsError(
                "blobs are to be kept in a bucket, but what speaks S3 is not installed: make run EXTRAS=s3, or"
                " pip install '.[s3]'"
            ) from error
        except (ValueError, StoreUnavailable) as error:
            raise SettingsError(f"setting blobs: {error}") from error
        stack.pop_all()
    return stores._replace(blobs=blobs)


def _folder_id(folder: Path) -> str:
    """What tells a data folder from all others, wherever they are, its copies included."""
    known = load_or_create_key(folder / FOLDER_ID_FILE).hex()
    return f"{known}/{platform.node()}/{(folder / FOLDER_ID_FILE).stat().st_ino}"
