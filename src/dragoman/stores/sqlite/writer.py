"""The one writing connection of a data folder, on a thread of its own, with group commit.

A job is a closure over the connection: it runs whole or not at all, so a caller that is cancelled meanwhile leaves
nothing half done. Jobs that came in while a commit was under way share the next one, each under a savepoint, so that
the failure of one does not undo its neighbours.

Exactly one connection writes and checkpoints: SQLite before 3.51.3 can corrupt a database in WAL mode when two do.
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

T = TypeVar("T")
log = structlog.get_logger(__name__)
_JOB_ERRORS = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.DataError)
"""Errors of a job's own; all others of SQLite's are the disk's or the file's."""
Synchronous = Literal["full", "normal"]
"""`full` syncs each commit to the disk; with `normal` a power cut may take the last ones (never a process's death)."""


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
        self._connection = self._connect()
        self._is_closed = False
        self.schema_versions = (0, 0)
        """The schema's number before it was opened and now."""
        self.commits = 0
        """Commits so far, for the metrics."""
        self._wal_path = path.with_name(f"{path.name}-wal")
        self._needs_reopen = False
        """Whether the disk failed under the connection: what it says of its next commit is worth nothing."""
        self._wal_inode: int | None = None
        """The write-ahead log's file, by its number; 0 once another one, or none, stands in its place."""

    def start(self) -> None:
        """Begin to take jobs."""
        self._thread.start()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job in a transaction; returns its value once the commit is durable.

        Raises:
            StoreUnavailable: the database did not take it (full disk, I/O error), or is closed; nothing of the job was
                written.
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
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            return work(self._connection)

    def close(self) -> None:
        """Finish the queued jobs and close the connection."""
        self._is_closed = True
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()
        self._connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=5
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA cache_size = -16384")
        except sqlite3.Error:
            connection.close()  # the file is no database, or is locked
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
        """Run the jobs in one transaction and tell their callers, who wait for the commit."""
        results: list[tuple[Any, BaseException | None]] = []
        try:
            if self._needs_reopen:
                self._reopen()
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            results = [self._run_job(job, alone=len(jobs) == 1) for job in jobs]
            connection.execute("COMMIT")
            if not self._has_wal():
                self._checkpoint()
            self.commits += 1
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_IOERR:
                self._needs_reopen = True
            failure = StoreUnavailable("the database takes no writes now")
            failure.__cause__ = error
            results = [(None, failure)] * len(jobs)
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Job, tuple[Any, BaseException | None]]]] = {}
        for job, result in zip(jobs, results, strict=True):
            by_loop.setdefault(job.loop, []).append((job, result))
        for loop, told in by_loop.items():
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_resolve_jobs, told)

    def _reopen(self) -> None:
        """Go on with another connection: the system tells of a sync that failed once, and not again."""
        fresh = self._connect()
        self._connection.close()
        self._connection, self._needs_reopen, self._wal_inode = fresh, False, None

    def _has_wal(self) -> bool:
        """Whether the write-ahead log that is written to is the one in the folder."""
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
        """Keep in the database itself what was committed to a log that will go with the process."""
        ((is_blocked, *_),) = self._connection.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        if is_blocked:
            raise sqlite3.OperationalError("the write-ahead log was deleted, and what is in it cannot be kept now")

    def _run_job(self, job: _Job, *, alone: bool) -> tuple[Any, BaseException | None]:
        connection = self._connection
        if not alone:
            connection.execute("SAVEPOINT job")
        try:
            value = job.work(connection)
        except sqlite3.Error as error:
            if not isinstance(error, _JOB_ERRORS):
                raise  # the disk or the file, not the job
            return None, self._roll_back(error, alone=alone)
        except Exception as error:  # noqa: BLE001  # a job's own failure goes to its caller, its neighbours go on
            return None, self._roll_back(error, alone=alone)
        if not alone:
            connection.execute("RELEASE job")
        return value, None

    def _roll_back(self, error: Exception, *, alone: bool) -> Exception:
        """Take back what a job did before it failed. A savepoint costs something, so one that is alone has none."""
        for statement in ("ROLLBACK", "BEGIN IMMEDIATE") if alone else ("ROLLBACK TO job", "RELEASE job"):
            self._connection.execute(statement)
        return error


def _resolve_jobs(results: list[tuple[_Job, tuple[Any, BaseException | None]]]) -> None:
    for job, (value, error) in results:
        if job.done.done():
            continue
        if error is None:
            job.done.set_result(value)
        else:
            job.done.set_exception(error)
