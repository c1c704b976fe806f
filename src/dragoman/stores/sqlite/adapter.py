"""SQLite as a kind of store: everything is in the data folder."""

from contextlib import closing
from functools import partial
from pathlib import Path

from dragoman.ports.stores import Stores
from dragoman.stores.decoding import ReportUnreadable
from dragoman.stores.folder_blobs import FolderBlobs
from dragoman.stores.sqlite import health
from dragoman.stores.sqlite.archive import SqliteArchive
from dragoman.stores.sqlite.audit import SqliteAudit
from dragoman.stores.sqlite.compact import compact
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.key_fingerprints import SqliteKeyFingerprints
from dragoman.stores.sqlite.keys import SqliteKeys
from dragoman.stores.sqlite.log import SqliteLog
from dragoman.stores.sqlite.memories import SqliteMemories
from dragoman.stores.sqlite.profiles import SqliteProfiles
from dragoman.stores.sqlite.schedules import SqliteSchedules
from dragoman.stores.sqlite.shares import SqliteShares
from dragoman.stores.sqlite.start_check import find_problems
from dragoman.stores.sqlite.token_usage import SqliteTokenUsage
from dragoman.stores.sqlite.writer import Synchronous


class SqliteAdapter:
    """The `StoreAdapter` of data folders, which one process uses at a time."""

    def __init__(self, report_unreadable: ReportUnreadable, *, synchronous: Synchronous = "full") -> None:
        self._report_unreadable = report_unreadable
        self._synchronous: Synchronous = synchronous

    def open(self, location: str) -> Stores:
        """Open and migrate the store of a data folder. Raises FolderInUse, WrongVersion, StoreUnavailable."""
        return self._open(location)

    def open_accounts(self, location: str) -> Stores:
        """Open and migrate the store of a data folder, which no server may use. Raises as `open`."""
        return self._open(location)

    def migrate(self, location: str) -> tuple[int, int]:
        """Migrate the store. Returns its schema version before and after. Raises as `open`."""
        with closing(Database(Path(location).expanduser())) as database:
            return database.schema_versions

    def compact(self, location: str) -> tuple[int, int]:
        """Give the space of deleted data back. Returns the file's size in bytes before and after. Raises as `open`."""
        return compact(Path(location).expanduser())

    def accept_loss(self, location: str) -> None:
        """Give up what cannot be read of the write-ahead log. Raises as `open`."""
        Database(Path(location).expanduser(), accept_loss=True).close()

    def _open(self, location: str) -> Stores:
        folder = Path(location).expanduser()
        database = Database(folder, synchronous=self._synchronous)
        database.start()
        return Stores(
            log=SqliteLog(database, self._report_unreadable),
            keys=SqliteKeys(database),
            audit=SqliteAudit(database),
            token_usage=SqliteTokenUsage(database),
            profiles=SqliteProfiles(database),
            memories=SqliteMemories(database),
            schedules=SqliteSchedules(database),
            shares=SqliteShares(database),
            blobs=FolderBlobs(folder / "blobs"),
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
