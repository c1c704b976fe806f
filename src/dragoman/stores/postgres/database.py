"""A PostgreSQL database: its connections, its migrations, and who may write its log.

All work is a closure over a connection that runs on a thread, completely or not at all, even if its caller gives up.
The isolation level is READ COMMITTED: what must be consistent is one statement, and what may conflict is locked.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import resources
from typing import Any, Literal, LiteralString, TypeVar

import psycopg
import structlog
from psycopg import Connection, IsolationLevel
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dragoman.core.refusals import OutcomeUnknown, StoreUnavailable
from dragoman.stores.errors import StoreInUse
from dragoman.stores.errors import WrongVersion as WrongVersion  # who opens a database names what it raises
from dragoman.stores.fair_threads import MAX_SEARCHES_PER_USER, SEARCH_THREADS, FairThreads
from dragoman.stores.postgres import arrays
from dragoman.stores.postgres.watchdog import DatabaseWatchdog, Interrupter, find_backend

T = TypeVar("T")
Work = Callable[[Connection], T]
Search = Callable[[Connection, Callable[[], bool]], T]

MIN_SERVER_VERSION = 14
"""The oldest supported PostgreSQL."""
POOL_SIZE = 4
"""Number of connections, not counting the one for writes to the log."""
RETRY_TIMEOUT_S = 5.0
"""How long to wait for a database that is unavailable."""
RETRY_DELAY_S = 0.05
HANDOVER_S = 0.5
"""How long a start waits for the lock of a server that has just ended: PostgreSQL releases it a moment later."""
ADVISORY_LOCK_NAMESPACE = 0x64726167
"""First half of the advisory lock's key; the second is that of the schema, so several can share a database."""
_MIGRATION_LOCK, _WRITER_LOCK = 1, 2
_LOCK_SQL: LiteralString = "SELECT {}(%s, hashtext(current_schema()) # %s)"
Access = Literal["exclusive", "shared", "unlocked"]
_LOCK_FUNCTIONS: dict[Access, LiteralString] = {
    "exclusive": "pg_try_advisory_lock",
    "shared": "pg_try_advisory_lock_shared",
}

CONNECTION_DEFAULTS = {
    "application_name": "dragoman",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "target_session_attrs": "read-write",
}
"""Defaults for the address: an unresponsive database is noticed within seconds."""
SESSION_SETUP: LiteralString = (
    "SET timezone = 'UTC'; SET lock_timeout = '10s';"
    " SET idle_in_transaction_session_timeout = '10s';"  # a server that was stopped in the middle holds nobody up
    " SET jit = off"  # what is compiled for a tenth of a second runs for a thousandth
)
_CONNECTION_ERRORS = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)
"""Errors of the database or its connection; all others belong to the statement."""

log = structlog.get_logger(__name__)


class DatabaseInUse(StoreInUse):
    """Another server writes to the database."""


class Database:
    """An open database. Reads and small writes go over a few connections, the log's writes over one of their own.

    Opening it migrates the schema and locks the database according to `access`.

    Args:
        url: `postgresql://…`, or any other form that libpq accepts.
        access: "exclusive" to write the log as the only server, "shared" with other servers, or "unlocked" without
            writing the log, while servers may run.
        is_migrated: migrate the schema; otherwise only a database of this release's schema is accepted.

    Raises:
        DatabaseInUse: another server has it.
        WrongVersion: it is from a newer release, or holds another program's tables.
        StoreUnavailable: it cannot be reached, or does not let this user in.
    """

    def __init__(self, url: str, *, access: Access = "exclusive", is_migrated: bool = True) -> None:
        self.display_url = display_url(url)
        self.conninfo = build_conninfo(url)
        self.node_id: str | None = None
        """The id under which this server writes, if there are several."""
        self.watchdog = DatabaseWatchdog(self.conninfo, self._all_connections)
        """Notices that the database does not answer."""
        self.writer = ReconnectingConnection(self.conninfo, self.watchdog, access=access)
        """The connection of `write_log`."""
        try:
            with connect(self.conninfo) as connection:
                self.schema_versions = migrate(connection) if is_migrated else require_current(connection)
                """The schema version before this start and now."""
            if access != "unlocked":
                self.writer.open_first()
        except (psycopg.OperationalError, psycopg.errors.InsufficientPrivilege) as error:
            raise StoreUnavailable(f"the database {self.display_url} cannot be used: {error}") from error
        self._writer_thread = ThreadPoolExecutor(1, "dragoman-writer")
        self._pool = FairThreads(POOL_SIZE, "dragoman-database", connect=self._new_connection, run=_call)
        self._searchers = FairThreads(
            SEARCH_THREADS,
            "dragoman-search",
            connect=self._new_connection,
            run=_search,
            limit_per_user=MAX_SEARCHES_PER_USER,
        )
        self.watchdog.start()

    async def write_log(self, work: Work[T]) -> T:
        """Write to the log in a transaction. Writes are executed in order.

        Raises:
            OutcomeUnknown: the connection broke during the commit.
            StoreUnavailable: nothing was written.
        """
        try:
            job = asyncio.get_running_loop().run_in_executor(self._writer_thread, lambda: self.writer.write(work))
        except RuntimeError as error:
            raise StoreUnavailable("the database is closed") from error
        return await job

    async def read(self, work: Work[T]) -> T:
        """Run a read. Each statement sees what was committed before it began.

        Raises:
            StoreUnavailable: the database cannot be read.
        """
        return await self._pool.read(lambda line: line.read(work))

    async def search(self, work: Search[T]) -> T:
        """Run a long read, for which other reads do not wait. It is given a function that tells when to give up.

        Raises:
            LimitReached: the user has too many of them.
            StoreUnavailable: the database cannot be read.
        """
        return await self._searchers.read(work)

    async def write(self, work: Work[T]) -> T:
        """Run a write in its own transaction.

        Raises:
            OutcomeUnknown, StoreUnavailable: as for `write_log`.
        """
        return await self._pool.read(lambda line: line.write(work))

    async def probe(self) -> None:
        """Make a write to the log that changes nothing. Raises StoreUnavailable."""
        await self.write_log(lambda connection: connection.execute("UPDATE changes SET count = count"))

    async def structure_problems(self) -> list[str]:
        """Nothing: PostgreSQL's own tools check its files."""
        return []

    async def accounts_version(self) -> int:
        """A number that changes whenever any server changes keys or profiles."""
        row = await self.read(lambda connection: connection.execute("SELECT count FROM changes").fetchone())
        return 0 if row is None else int(row[0])

    def close(self) -> None:
        """Finish queued work, and close all connections."""
        self._pool.shut_down()
        self._searchers.shut_down()
        self._writer_thread.shutdown()
        self.watchdog.stop()  # until here it fails work that a database does not answer
        for line in self._all_connections():
            line.close()

    def _new_connection(self) -> "ReconnectingConnection":
        return ReconnectingConnection(self.conninfo, self.watchdog)

    def _all_connections(self) -> "list[ReconnectingConnection]":
        return [*self._pool.connections, *self._searchers.connections, self.writer]


def _call(line: "ReconnectingConnection", work: Callable[["ReconnectingConnection"], T], _: object) -> T:
    return work(line)


def _search(line: "ReconnectingConnection", work: Search[T], is_abandoned: Callable[[], bool]) -> T:
    return line.read(lambda connection: work(connection, is_abandoned))


class ReconnectingConnection:
    """A connection that reconnects. Only one thread at a time may use it; any thread may interrupt it.

    It waits for a database that is briefly unavailable, unless something may have been committed.

    It connects on first use.

    Args:
        conninfo: the address.
        watchdog: knows whether the database answers.
        access: the advisory lock to hold while connected; after a reconnection it must be acquired again.
    """

    def __init__(self, conninfo: str, watchdog: DatabaseWatchdog, *, access: Access = "unlocked") -> None:
        self._conninfo = conninfo
        self._watchdog = watchdog
        self._lock_function: LiteralString | None = _LOCK_FUNCTIONS.get(access)
        self._interrupter: Interrupter | None = None
        self.connection: Connection | None = None
        self.busy_since: float | None = None
        """When its current work began, by the monotonic clock."""

    def open(self) -> Connection:
        """Return the connection, reconnecting if necessary. Raises DatabaseInUse, or psycopg's errors."""
        if self.connection is not None and not self.connection.closed:
            return self.connection
        if self._interrupter is not None:
            self._interrupter.close()
        connection = _connect(self._conninfo)
        try:
            self._interrupter = interrupter = Interrupter(connection)
        except OSError as error:  # no file descriptor is left
            connection.close()
            raise psycopg.OperationalError("the connection's socket cannot be duplicated") from error
        try:
            configure(connection)
            interrupter.backend = find_backend(connection)
            self._lock(connection)
        except BaseException:
            connection.close()
            interrupter.close()
            raise
        self.connection = connection
        return connection

    def _lock(self, connection: Connection) -> None:
        if self._lock_function is None:
            return
        sql = _LOCK_SQL.format(self._lock_function)
        if connection.execute(sql, (ADVISORY_LOCK_NAMESPACE, _WRITER_LOCK)).fetchone() != (True,):
            raise DatabaseInUse(
                "another program uses this database alone: wait for it, stop it, or choose another database or"
                " schema with --database"
            )

    def open_first(self) -> None:
        """Connect for the first time. Raises as `open` does."""
        deadline = time.monotonic() + HANDOVER_S
        while True:
            try:
                self.open()
                return
            except DatabaseInUse:
                if time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_DELAY_S)

    def read(self, work: Work[T]) -> T:
        """Run a read."""
        return self._with_retries(lambda: work(self.open()))

    def write(self, work: Work[T]) -> T:
        """Run a write in a transaction. Returns its result once the commit is durable."""
        return self._with_retries(lambda: self._write(work))

    @property
    def address(self) -> str | None:
        """The server that it is connected to, as a part of a connection string; None if it is not connected."""
        return None if self._interrupter is None else self._interrupter.address

    def interrupt(self) -> str | None:
        """Break the connection, so that its current work fails. Returns the database's process that served it."""
        interrupter = self._interrupter
        if interrupter is None:
            return None
        interrupter.interrupt()
        return interrupter.backend

    def close(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            self.connection.close()
        if self._interrupter is not None:
            self._interrupter.close()

    def _with_retries(self, attempt: Callable[[], T]) -> T:
        self.busy_since = time.monotonic()
        deadline = self.busy_since + RETRY_TIMEOUT_S
        failure: Exception | None = None
        try:
            while self._watchdog.is_answering:
                try:
                    return attempt()
                except (*_CONNECTION_ERRORS, DatabaseInUse) as error:
                    failure = error
                if time.monotonic() > deadline:
                    break
                time.sleep(RETRY_DELAY_S)  # on a thread of the store, never of the event loop
            reason = "cannot be used now" if self._watchdog.is_answering else "does not answer"
            raise StoreUnavailable(f"the database {reason}") from failure
        finally:
            self.busy_since = failure = None  # breaks the reference cycle through its traceback

    def _write(self, work: Work[T]) -> T:
        connection = self.open()
        try:
            connection.execute("BEGIN")
            value = work(connection)
        except BaseException as error:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
                if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                    connection.close()  # another server has become the primary
            raise
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            with suppress(psycopg.Error):
                connection.close()
            raise OutcomeUnknown from error
        return value


def build_conninfo(url: str) -> str:
    """Add the defaults to an address. Raises StoreUnavailable if it is invalid."""
    try:
        given = {name: value for name, value in conninfo_to_dict(url).items() if isinstance(value, str)}
    except psycopg.ProgrammingError:
        raise StoreUnavailable("expected an address such as postgresql://user@host/database") from None
    return make_conninfo("", **{**CONNECTION_DEFAULTS, **given})


def connect(conninfo: str) -> Connection:
    """Open a connection. Raises psycopg.Error."""
    connection = _connect(conninfo)
    configure(connection)
    return connection


def _connect(conninfo: str) -> Connection:
    try:
        return psycopg.connect(conninfo, autocommit=True)
    except OSError as error:  # no file descriptor is left
        raise psycopg.OperationalError(f"no connection can be opened: {error}") from error


def configure(connection: Connection) -> None:
    """Set up a new connection."""
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    arrays.register(connection)
    connection.execute(SESSION_SETUP)


def display_url(url: str) -> str:
    """An address without its password, for logs."""
    try:
        known = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return "?"
    user = f"{known['user']}@" if known.get("user") else ""
    port = f":{known['port']}" if known.get("port") else ""
    return f"postgresql://{user}{known.get('host', '')}{port}/{known.get('dbname', '')}"


# --- schema -----------------------------------------------------------------------------------------------------------


def migrations() -> dict[int, LiteralString]:
    """The migration scripts by the version that they produce."""
    folder = resources.files("dragoman.stores.postgres").joinpath("migrations")
    scripts = {file.name: file for file in folder.iterdir() if file.name.endswith(".sql")}
    return {int(name[:4]): file.read_text(encoding="utf-8") for name, file in scripts.items()}


def migrate(connection: Connection) -> tuple[int, int]:
    """Migrate the schema, each step in its own transaction. Returns the versions before and after.

    If several servers start at once, one migrates and the others wait.

    Raises:
        WrongVersion: the database is from a newer release, or holds another program's tables.
    """
    _check_server(connection)
    steps = migrations()
    newest = max(steps)
    first: int | None = None
    while True:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = 0")
            connection.execute(_LOCK_SQL.format("pg_advisory_xact_lock"), (ADVISORY_LOCK_NAMESPACE, _MIGRATION_LOCK))
            version = schema_version(connection)
            first = version if first is None else first
            if version > newest:
                raise WrongVersion(
                    f"the database has schema {version}, this release knows {newest}: use the release that wrote it,"
                    " or a newer"
                )
            if version == newest:
                return first, newest
            connection.execute(steps[version + 1])
            connection.execute("DELETE FROM schema_version")
            connection.execute("INSERT INTO schema_version VALUES (%s)", (version + 1,))
        if first:
            log.info("database migrated", schema=version + 1, of=newest)


def require_current(connection: Connection) -> tuple[int, int]:
    """Check that the schema is this release's, without changing anything. Returns its version twice, as `migrate` does.

    Raises:
        WrongVersion: it is another one.
    """
    _check_server(connection)
    newest = max(migrations())
    row = connection.execute("SELECT to_regclass('schema_version') IS NOT NULL").fetchone()
    version = schema_version(connection) if row == (True,) else 0
    if version == 0:
        raise WrongVersion("the database contains no data of this program: check the address")
    if version != newest:
        raise WrongVersion(f"the database has schema {version}, this release {newest}: use the release that serves it")
    return version, newest


def _check_server(connection: Connection) -> None:
    found = connection.info.server_version // 10_000
    if found < MIN_SERVER_VERSION:
        raise WrongVersion(f"PostgreSQL {MIN_SERVER_VERSION} or newer is needed, and this is {found}")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise WrongVersion(f"the database has the encoding {encoding}: create one with UTF8")


def schema_version(connection: Connection) -> int:
    """Return the schema version; 0 in an empty database, in which the version table is created."""
    row: tuple[Any, ...] | None = connection.execute(
        "SELECT to_regclass('schema_version') IS NOT NULL,"
        " EXISTS (SELECT FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r')"
    ).fetchone()
    assert row is not None, "it always answers"
    is_ours, is_used = row
    if is_ours:
        found = connection.execute("SELECT version FROM schema_version").fetchone()
        return 0 if found is None else int(found[0])
    if is_used:
        raise WrongVersion("the database contains another program's tables: name another database or schema")
    connection.execute("CREATE TABLE schema_version (version integer NOT NULL)")
    return 0
