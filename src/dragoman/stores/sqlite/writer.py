"""The one writing connection of a data folder, on its own thread, with group commit.

A job is a closure over the connection that runs completely or not at all, even if its caller is cancelled. Jobs that
arrive during a commit share the next one. Each has a savepoint, so that a failing job does not undo the others.

Exactly one connection writes and checkpoints: SQLite before 3.51.3 can corrupt a database in WAL mode if two do.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, NamedTuple, TypeVar

import structlog

from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.sqlite.open_file import OpenFile

T = TypeVar("T")
log = structlog.get_logger(__name__)
_JOB_ERRORS = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.DataError)
"""Errors of the job itself; all other SQLite errors come from the disk or the file."""
Synchronous = Literal["full", "normal"]
"""`full` syncs each commit to disk. With `normal` a power failure, but no crash, may lose the last commits."""


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error says that the file is damaged."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class _Job(NamedTuple):
    work: Callable[[sqlite3.Connection], Any]
    done: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class Writer:
    """Runs jobs on the writing connection, in the order in which they were given."""

    def __init__(self, path: Path, synchronous: Synchronous) -> None:
        self._path = path
        self._synchronous = synchronous
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run_jobs, name="dragoman-writer", daemon=True)
        self.connection = self._connect()
        """For jobs, which get it as their argument; from `start` on, only the writer's thread uses it."""
        self._is_closed = False
        self.schema_versions = (0, 0)
        """The schema's number before it was opened and now."""
        self.commits = 0
        """Commits so far, for the metrics."""
        self._wal_path = path.with_name(f"{path.name}-wal")
        self._needs_reopen = False
        """Whether the disk failed, so that this connection's next commit cannot be trusted."""
        self._file = OpenFile(path)
        self._is_deletion_logged = False
        self.damage: str | None = None
        """What is damaged, once that was found."""
        self._wal_inode: int | None = None
        """The inode of the write-ahead log; 0 once the file was replaced or deleted."""

    @property
    def failure(self) -> str | None:
        """Why the database cannot be used, if it is damaged or was deleted."""
        return "the data folder was removed" if self._file.is_deleted() else self.damage

    def start(self) -> None:
        """Start accepting jobs."""
        self._thread.start()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job in a transaction; returns its value once the commit is durable.

        Raises:
            StoreUnavailable: the commit failed (full disk, I/O error) or the database is closed; nothing of the job
                was written.
            Exception: whatever the job raised; nothing of it was written.
        """
        if self._is_closed:
            raise StoreUnavailable("the database is closed")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._jobs.put(_Job(work, done, loop))
        return await done

    def run_now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job before `start`, on the caller's thread: migrations, and the command line on a folder at rest."""
        with self.connection:
            self.connection.execute("BEGIN IMMEDIATE")
            return work(self.connection)

    def close(self) -> None:
        """Finish the queued jobs and close the connection."""
        self._is_closed = True
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()
        self.connection.close()
        self._file.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=5
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA cache_size = -16384")
        except BaseException:
            connection.close()  # not a database, damaged, or locked
            raise
        return connection

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs = [job]
            stop = False
            while not self._jobs.empty():
                if (another := self._jobs.get()) is None:
                    stop = True
                    break
                jobs.append(another)
            self._commit(jobs)
            if stop:
                return

    def _commit(self, jobs: list[_Job]) -> None:
        """Run the jobs in one transaction, and report to their callers after the commit."""
        results: list[tuple[Any, BaseException | None]] = []
        try:
            self._require_file()
            if self._needs_reopen:
                self._reopen()
            connection = self.connection
            connection.execute("BEGIN IMMEDIATE")
            results = [self._run_job(job, alone=len(jobs) == 1) for job in jobs]
            connection.execute("COMMIT")
            self._require_file()
            if not self._has_wal():
                self._checkpoint()
            self.commits += 1
        except (sqlite3.Error, MemoryError) as error:
            with suppress(sqlite3.Error, MemoryError):
                self.connection.execute("ROLLBACK")
            is_io_error = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_IOERR
            if is_io_error or isinstance(error, MemoryError):
                self._needs_reopen = True
            if isinstance(error, sqlite3.Error) and is_damage(error):
                self.damage = f"the database is damaged: {error}"
            failure = StoreUnavailable("cannot write to the database now")
            failure.__cause__ = error
            results = [(None, failure)] * len(jobs)
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Job, tuple[Any, BaseException | None]]]] = {}
        for job, result in zip(jobs, results, strict=True):
            by_loop.setdefault(job.loop, []).append((job, result))
        for loop, finished in by_loop.items():
            with suppress(RuntimeError):  # the event loop is closed, nobody waits
                loop.call_soon_threadsafe(_resolve_jobs, finished)

    def _reopen(self) -> None:
        """Open a new connection: the system reports a failed sync only once."""
        fresh = self._connect()
        self.connection.close()
        self.connection, self._needs_reopen, self._wal_inode = fresh, False, None

    def _require_file(self) -> None:
        """Raise sqlite3.OperationalError if the file was deleted: what is written now ends with the process."""
        if not self._file.is_deleted():
            return
        if not self._is_deletion_logged:
            self._is_deletion_logged = True
            with suppress(sqlite3.Error):  # so that one file contains everything
                self._checkpoint()
            log.critical(
                "the data folder was removed",
                path=str(self._path),
                note="no more work is accepted, and all conversations are lost when this process ends",
                hint=f"before stopping it: {self._file.rescue_command()}; then start the server with --data RESCUED",
            )
        raise sqlite3.OperationalError("the data folder was removed")

    def _has_wal(self) -> bool:
        """Whether the open write-ahead log is still the file in the folder."""
        try:
            found = self._wal_path.stat().st_ino
        except FileNotFoundError:
            found = 0
        if self._wal_inode is None:
            self._wal_inode = found
        elif self._wal_inode != found and self._wal_inode:
            self._wal_inode = 0
            log.error("the database's write-ahead log was deleted", path=str(self._wal_path), hint="restart the server")
        return self._wal_inode != 0

    def _checkpoint(self) -> None:
        """Copy commits from a deleted write-ahead log, which ends with the process, into the database file."""
        ((is_blocked, *_),) = self.connection.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        if is_blocked:
            raise sqlite3.OperationalError("the write-ahead log was deleted, and what is in it cannot be kept now")

    def _run_job(self, job: _Job, *, alone: bool) -> tuple[Any, BaseException | None]:
        connection = self.connection
        if not alone:
            connection.execute("SAVEPOINT job")
        try:
            value = job.work(connection)
        except sqlite3.Error as error:
            if not isinstance(error, _JOB_ERRORS):
                raise  # the disk or the file, not the job
            return None, self._roll_back(error, alone=alone)
        except MemoryError:
            raise  # SQLite's, after which it may have ended the transaction, or Python's
        except Exception as error:  # noqa: BLE001  # passed on to the job's caller; the other jobs continue
            return None, self._roll_back(error, alone=alone)
        if not alone:
            connection.execute("RELEASE job")
        return value, None

    def _roll_back(self, error: Exception, *, alone: bool) -> Exception:
        """Undo what a failed job did. A single job has no savepoint, which would cost time."""
        for statement in ("ROLLBACK", "BEGIN IMMEDIATE") if alone else ("ROLLBACK TO job", "RELEASE job"):
            self.connection.execute(statement)
        return error


def _resolve_jobs(results: list[tuple[_Job, tuple[Any, BaseException | None]]]) -> None:
    for job, (value, error) in results:
        if job.done.done():
            continue
        if error is None:
            job.done.set_result(value)
        else:
            job.done.set_exception(error)
