"""Checks of a database that was not closed: its write-ahead log before it is opened, the rest in the background."""

import shutil
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.sqlite.wal import HEADER_BYTES, inspect_wal

MAX_CHECKED_BYTES = 1024 * 1024 * 1024
"""Databases up to this size are checked in the background after a crash: about a second for 300 MiB."""
MAX_PROBLEMS = 20
STEPS_BETWEEN_CHECKS = 100_000

log = structlog.get_logger(__name__)


def check_wal(path: Path, *, accept_loss: bool) -> bool:
    """Check the write-ahead log of a database. Returns whether the database was closed by its last user.

    Raises:
        StoreUnavailable: commits that were acknowledged cannot be read, and that loss is not accepted.
    """
    wal = path.with_name(f"{path.name}-wal")
    if not wal.exists() or wal.stat().st_size <= HEADER_BYTES:
        return True
    report = inspect_wal(wal)
    if not report.lost_commits and not report.is_header_damaged:
        return False
    lost = "all commits in it" if report.is_header_damaged else f"its last {report.lost_commits} commits"
    if not accept_loss and (report.is_header_damaged or report.lost_commits > 1):
        raise StoreUnavailable(
            f"the write-ahead log {wal} is damaged, and {lost} cannot be read: restore a backup, or continue without"
            f" them with: dragoman check --accept-loss --data {path.parent}"
        )
    kept = wal.with_name(f"{wal.name}.damaged")
    shutil.copyfile(wal, kept)
    log.error("the write-ahead log is damaged", lost=lost, copy=str(kept), hint="the last commit may be unacknowledged")
    return False


def find_problems(connection: sqlite3.Connection, *, is_thorough: bool) -> list[str]:
    """What SQLite finds wrong with a database's structure; nothing if it is intact."""
    pragma = "integrity_check" if is_thorough else "quick_check"
    found = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}({MAX_PROBLEMS})")]
    return [] if found == ["ok"] else found


class BackgroundCheck:
    """Checks a database's structure on a thread, once."""

    def __init__(self, path: Path, on_problems: Callable[[Sequence[str]], None]) -> None:
        self._path = path
        self._on_problems = on_problems
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="dragoman-check", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the check if it is still running."""
        self._is_stopped = True
        self._thread.join()

    def _run(self) -> None:
        if self._path.stat().st_size > MAX_CHECKED_BYTES:
            log.info("the database was not closed; it is too large to check while serving", hint="dragoman check")
            return
        connection = sqlite3.connect(self._path)
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.set_progress_handler(lambda: self._is_stopped, STEPS_BETWEEN_CHECKS)
            problems = find_problems(connection, is_thorough=False)
        except sqlite3.DatabaseError as error:
            problems = [] if self._is_stopped else [str(error)]
        finally:
            connection.close()
        if problems:
            log.critical(
                "the database is damaged",
                problems=problems,
                hint="stop the server, run dragoman check, restore a backup",
            )
            self._on_problems(problems)
