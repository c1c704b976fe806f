"""A data folder's database: its lock, its migrations, its one writer and its readers."""

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import structlog

from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.errors import StoreInUse
from dragoman.stores.errors import WrongVersion as WrongVersion  # re-exported for callers that catch them
from dragoman.stores.fair_threads import MAX_SEARCHES_PER_USER, SEARCH_THREADS, FairThreads
from dragoman.stores.sqlite.start_check import BackgroundCheck, check_wal
from dragoman.stores.sqlite.writer import Synchronous, Writer, is_damage

T = TypeVar("T")
_Lookup = tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]
READER_THREADS = 3
STEPS_BETWEEN_CHECKS = 20_000
"""Instructions of SQLite's virtual machine, of which a search executes about a million in 10 ms."""
FIRST_SAFE_SQLITE_VERSION = (3, 51, 3)
"""The first SQLite without the bug that can corrupt a WAL database with two writing connections."""

log = structlog.get_logger(__name__)


class FolderInUse(StoreInUse):
    """Another server uses the data folder."""


class Database:
    """An open data folder, locked for this process.

    Opening it locks the folder and migrates the database.

    Args:
        folder: the data folder; created if it does not exist.
        synchronous: what is synced to disk.
        accept_loss: open it even if acknowledged commits in its write-ahead log cannot be read.

    Raises:
        FolderInUse: another process has it.
        WrongVersion: its database is from a newer release or another program.
        StoreUnavailable: it cannot be read or written now.
    """

    def __init__(self, folder: Path, *, synchronous: Synchronous = "full", accept_loss: bool = False) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self._lock_descriptor = lock_folder(folder)
        try:
            path = folder / "dragoman.db"
            path.touch(mode=0o600)  # SQLite creates its other files with the same mode
            self._was_closed = check_wal(path, accept_loss=accept_loss or synchronous == "normal")
            self.writer = open_writer(path, synchronous)
        except BaseException:
            os.close(self._lock_descriptor)
            raise
        self._path = path
        self._read_failure: str | None = None
        self._check: BackgroundCheck | None = None
        self._readers = FairThreads(READER_THREADS, "dragoman-reader", connect=self._open_reader, run=self._read)
        self._searchers = FairThreads(
            SEARCH_THREADS,
            "dragoman-search",
            connect=self._open_reader,
            run=_search,
            limit_per_user=MAX_SEARCHES_PER_USER,
        )
        self._pending_lookups: list[_Lookup] = []
        """Lookups of this event loop iteration."""

    @property
    def schema_versions(self) -> tuple[int, int]:
        """The schema version before this start and now."""
        return self.writer.schema_versions

    @property
    def failure(self) -> str | None:
        """Why the database cannot be used, if the last read failed, or if it is damaged or deleted."""
        return self.writer.failure or self._read_failure

    def start(self) -> None:
        """Start accepting writes."""
        self.writer.start()
        if not self._was_closed:
            self._check = BackgroundCheck(self._path, self._note_problems)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read on one of the reading connections, in one snapshot of the database.

        Raises:
            StoreUnavailable: the database cannot be read.
        """
        return await self._readers.read(work)

    async def search(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a long read, for which other reads do not wait. It is interrupted if its caller is cancelled.

        Raises:
            LimitReached: the user has too many of them.
            StoreUnavailable: the database cannot be read.
        """
        return await self._searchers.read(work)

    async def look_up(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read of a few rows. Lookups of one event loop iteration share one thread switch.

        Raises:
            StoreUnavailable: the database cannot be read.
        """
        loop = asyncio.get_running_loop()
        if not self._pending_lookups:
            loop.call_soon(self._run_lookups)
        answer: asyncio.Future[T] = loop.create_future()
        self._pending_lookups.append((work, answer))
        return await answer

    def close(self) -> None:
        """Finish queued writes, close all connections, and release the folder."""
        if self._check is not None:
            self._check.stop()
        for threads in (self._readers, self._searchers):
            threads.shut_down()
            for connection in threads.connections:
                connection.close()
        self.writer.close()
        os.close(self._lock_descriptor)

    def _run_lookups(self) -> None:
        asked, self._pending_lookups = self._pending_lookups, []
        finish = partial(_resolve_lookups, asked)
        try:
            self._readers.submit(lambda connection: [work(connection) for work, _ in asked], finish)
        except StoreUnavailable as error:  # it was closed meanwhile
            finish(None, error)

    def _read(self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], _: object) -> T:
        try:
            value = _read(connection, work)
        except StoreUnavailable as error:
            self._note_failure(error.__cause__)
            raise
        self._read_failure = None
        return value

    def _note_failure(self, error: BaseException | None) -> None:
        if isinstance(error, sqlite3.Error):
            self._read_failure = f"the database cannot be read: {error}"
        if isinstance(error, UnicodeDecodeError) or (isinstance(error, sqlite3.Error) and is_damage(error)):
            self.writer.damage = f"the database is damaged: {error}"

    def _note_problems(self, problems: Sequence[str]) -> None:
        self.writer.damage = f"the database is damaged: {problems[0]}"

    def _open_reader(self) -> sqlite3.Connection:
        try:  # a deleted file is not created again
            address = f"file:{quote(str(self._path.absolute()))}?mode=rw"
            connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            self._note_failure(error)
            raise StoreUnavailable("the database cannot be read now") from error
        return connection


def _search(
    connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], is_abandoned: Callable[[], bool]
) -> T:
    """Run a search; its failures do not affect readiness. `interrupt` could come before the statement begins."""
    connection.set_progress_handler(is_abandoned, STEPS_BETWEEN_CHECKS)
    return _read(connection, work)


def _read(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    try:
        connection.execute("BEGIN")
        try:
            return work(connection)
        finally:
            connection.execute("COMMIT")
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the message of an error may name what is damaged
        raise StoreUnavailable("the database cannot be read now") from error


def _resolve_lookups(asked: Sequence[_Lookup], values: list[object] | None, failure: BaseException | None) -> None:
    for index, (_, answer) in enumerate(asked):
        if answer.done():
            continue  # its caller is gone
        if values is not None:
            answer.set_result(values[index])
        elif failure is not None:
            answer.set_exception(failure)


def open_writer(path: Path, synchronous: Synchronous) -> Writer:
    """Open a database for writing and bring it up to date.

    Raises:
        WrongVersion: it is from a newer release or another program.
        StoreUnavailable: it cannot be read or written now.
    """
    try:
        writer = Writer(path, synchronous)
        try:
            writer.schema_versions = migrate(writer)
        except BaseException:
            writer.close()
            raise
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(f"the database {path} cannot be opened: {error}") from error
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CORRUPT:
            raise StoreUnavailable(f"the database {path} is damaged: {error}: restore a backup") from error
        what_to_do = "restore a backup, or choose another folder with --data"
        raise WrongVersion(f"{path} is not a database of this program: {error}: {what_to_do}") from error
    except UnicodeDecodeError as error:
        raise StoreUnavailable(f"the database {path} is damaged: its schema is not text: restore a backup") from error
    return writer


def lock_folder(folder: Path) -> int:
    """Lock the folder for this process. The lock ends with the process.

    Raises:
        FolderInUse: another process has it.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise FolderInUse(
            f"another server uses the data folder {folder}: stop it, or choose another folder with --data"
        ) from error
    return descriptor


def migrate(writer: Writer) -> tuple[int, int]:
    """Migrate the schema, each step in its own transaction. Returns the versions before and after.

    Raises:
        WrongVersion: the database is from a newer release or another program.
    """
    folder = resources.files("dragoman.stores.sqlite").joinpath("migrations")
    scripts = {int(file.name[:4]): file for file in folder.iterdir() if file.name.endswith(".sql")}
    version = writer.run_now(lambda connection: int(connection.execute("PRAGMA user_version").fetchone()[0]))
    newest = max(scripts)
    if version > newest:
        raise WrongVersion(
            f"the database has schema {version}, this release knows {newest}: use the release that wrote it, or a newer"
        )
    if version < 0 or (
        version == 0 and writer.run_now(lambda connection: connection.execute("SELECT 1 FROM sqlite_schema").fetchone())
    ):
        raise WrongVersion("the database contains another program's tables")
    for number in range(version + 1, newest + 1):
        writer.run_now(partial(_apply_migration, scripts[number].read_text(encoding="utf-8"), number))
        if version:
            log.info("database migrated", schema=number, of=newest)
    return version, newest


def _apply_migration(script: str, number: int, connection: sqlite3.Connection) -> None:
    for statement in split_statements(script):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {number:d}")


def split_statements(script: str) -> list[str]:
    """Split a script into statements, because `executescript` would commit between them."""
    found, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found


def warn_about_old_sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    """Log a notice if the linked SQLite has the WAL bug, which one writing connection avoids."""
    if version >= FIRST_SAFE_SQLITE_VERSION:
        return False
    log.warning(
        "outdated version of SQLite",
        version=".".join(map(str, version)),
        fixed_in=".".join(map(str, FIRST_SAFE_SQLITE_VERSION)),
        note="never open this database for writing with another program while the server runs",
    )
    return True
