"""PostgreSQL as a kind of store: a database that several servers share."""

from collections.abc import Awaitable, Callable
from contextlib import closing

from dragoman.ports.stores import Stores
from dragoman.stores.decoding import ReportUnreadable
from dragoman.stores.postgres.archive import PostgresArchive
from dragoman.stores.postgres.audit import PostgresAudit
from dragoman.stores.postgres.blobs import PostgresBlobs
from dragoman.stores.postgres.cluster import PostgresCluster
from dragoman.stores.postgres.compact import compact
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.key_fingerprints import PostgresKeyFingerprints
from dragoman.stores.postgres.keys import PostgresKeys
from dragoman.stores.postgres.log import PostgresLog
from dragoman.stores.postgres.memories import PostgresMemories
from dragoman.stores.postgres.profiles import PostgresProfiles
from dragoman.stores.postgres.schedules import PostgresSchedules
from dragoman.stores.postgres.shares import PostgresShares
from dragoman.stores.postgres.token_usage import PostgresTokenUsage
from dragoman.stores.postgres.transaction import TransactionDatabase


class PostgresAdapter:
    """The `DatabaseAdapter` of PostgreSQL. Locations are addresses in any form that libpq accepts."""

    def __init__(self, report_unreadable: ReportUnreadable) -> None:
        self._report_unreadable = report_unreadable

    def open(self, location: str) -> Stores:
        """Open and migrate a database as its only server. Raises DatabaseInUse, WrongVersion, StoreUnavailable."""
        return self._stores(Database(location))

    def open_accounts(self, location: str) -> Stores:
        """Open and migrate a database without a lock, beside servers. Raises WrongVersion, StoreUnavailable."""
        return self._stores(Database(location, access="unlocked"))

    def open_shared(self, location: str, *, folder_id: str, lease_s: float) -> Stores:
        """Open and migrate a database for a server among others. Raises as `open`."""
        database = Database(location, access="shared")
        cluster_store = PostgresCluster(database, folder_id=folder_id, lease_s=lease_s)
        return self._stores(database)._replace(cluster_store=cluster_store)

    def open_snapshot(self, location: str) -> Stores:
        """Open a database as it is now, in one transaction. Raises WrongVersion, StoreUnavailable."""
        return self._stores(TransactionDatabase(location, "snapshot"))

    def open_for_restore(self, location: str) -> tuple[Stores, Callable[[], Awaitable[None]]]:
        """Open a database to fill it in one transaction. Returns its stores and the commit. Raises as `open`."""
        database = TransactionDatabase(location, "restore")
        return self._stores(database), database.commit

    def migrate(self, location: str) -> tuple[int, int]:
        """Migrate a database, on which servers of the previous release may keep running: migrations take a lock."""
        with closing(Database(location, access="unlocked")) as database:
            return database.schema_versions

    def compact(self, location: str) -> tuple[int, int]:
        """Give the space of deleted data back. Returns the tables' size in bytes before and after. Raises as `open`."""
        return compact(location)

    def accept_loss(self, location: str) -> None:
        """Do nothing: PostgreSQL recovers by itself."""

    def _stores(self, database: Database) -> Stores:
        return Stores(
            log=PostgresLog(database, self._report_unreadable),
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
            close=database.close,
        )
