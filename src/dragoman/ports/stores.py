"""A kind of store as the server opens it: everything that it keeps, in one place. Pure: interfaces only."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

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


class KeyFingerprints(Protocol):
    """The fingerprints in a database, by the names of the files. The first server registers them."""

    async def find(self, name: str) -> str | None:
        """The registered fingerprint of a key."""

    async def register(self, name: str, fingerprint: str) -> str:
        """Register a fingerprint unless there is one. Returns the one that counts."""

    async def replace(self, name: str, fingerprint: str) -> None:
        """Register a fingerprint in place of the present one."""


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
    """The cluster's shared state; None if only one server can use the store."""
    database_url: str | None
    """The PostgreSQL database that several servers share, over which they also send messages; None with SQLite."""
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


class StoreAdapter(Protocol):
    """Opens stores of one kind.

    A location is a data folder or the address of a database. All methods raise StoreInUse if another process uses the
    store in a way that excludes them, WrongVersion if a newer release wrote it or it is another program's, and
    StoreUnavailable if it cannot be used at the moment.
    """

    def open(self, location: str) -> Stores:
        """Open and migrate a store that no other process uses."""

    def open_accounts(self, location: str) -> Stores:
        """Open and migrate a store to read and change keys and profiles, beside servers if it allows several."""

    def migrate(self, location: str) -> tuple[int, int]:
        """Migrate a store. Returns its schema version before and after."""

    def compact(self, location: str) -> tuple[int, int]:
        """Give the space of deleted data back. Returns the size in bytes before and after."""

    def accept_loss(self, location: str) -> None:
        """Open and migrate a store even if acknowledged commits can no longer be read. They are given up for good.

        Does nothing if the database recovers by itself.
        """


class DatabaseAdapter(StoreAdapter, Protocol):
    """Opens databases, which several servers can use, by their addresses."""

    def open_shared(self, location: str, *, folder_id: str, lease_s: float) -> Stores:
        """Open and migrate a database for a server among others.

        Args:
            location: its address.
            folder_id: identifies the server's data folder among all servers.
            lease_s: silence after which other servers take over this server's runs.
        """

    def open_snapshot(self, location: str) -> Stores:
        """Open a database as it is now, to read all of it. Servers may be running; an older schema is WrongVersion."""

    def open_for_restore(self, location: str) -> tuple[Stores, Callable[[], Awaitable[None]]]:
        """Open a database that is filled completely or not at all. Returns its stores and the final commit."""
