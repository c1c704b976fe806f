"""A whole database in one transaction: a backup reads one moment of it, a restore writes all of it or nothing."""

import asyncio
from collections.abc import Callable
from typing import Literal, LiteralString, TypeVar

import psycopg

from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.postgres.database import Database, Search, Work, connect

T = TypeVar("T")
TransactionKind = Literal["snapshot", "restore"]
_BEGIN: dict[TransactionKind, LiteralString] = {
    "snapshot": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "restore": "BEGIN",
}


class TransactionDatabase(Database):
    """A database that is used by one caller, over one connection, in one transaction.

    Args:
        url: as for `Database`.
        kind: "snapshot" reads what is committed now, while servers may run; "restore" writes, and is undone unless
            `commit` is called.

    Raises:
        DatabaseInUse: a server runs on the database that is to be restored.
        WrongVersion, StoreUnavailable: as for `Database`.
    """

    def __init__(self, url: str, kind: TransactionKind) -> None:
        is_restored = kind == "restore"
        super().__init__(url, access="exclusive" if is_restored else "unlocked", is_migrated=is_restored)
        try:
            self._connection = connect(self.conninfo)
            self._connection.execute("SET idle_in_transaction_session_timeout = 0")  # files are read in between
            self._connection.execute(_BEGIN[kind])
        except psycopg.Error as error:
            super().close()
            raise StoreUnavailable(f"the database {self.display_url} cannot be used: {error}") from error

    async def read(self, work: Work[T]) -> T:
        """Run a read in the transaction. Raises StoreUnavailable."""
        return await self._run(lambda: work(self._connection))

    async def search(self, work: Search[T]) -> T:
        """Run a search in the transaction. Raises StoreUnavailable."""
        return await self._run(lambda: work(self._connection, lambda: False))

    async def write(self, work: Work[T]) -> T:
        """Run a write as a part of the transaction. Raises StoreUnavailable."""
        return await self._run(lambda: work(self._connection))

    async def write_log(self, work: Work[T]) -> T:
        """Write to the log as a part of the transaction. Raises StoreUnavailable."""
        return await self.write(work)

    async def commit(self) -> None:
        """Make everything durable that was written. Raises StoreUnavailable."""
        await self._run(lambda: self._connection.execute("COMMIT"))

    def close(self) -> None:
        """End the transaction, which undoes what was not committed, and close all connections."""
        self._connection.close()
        super().close()

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
            raise StoreUnavailable(f"the database {self.display_url} failed: {error}") from error
