"""Runs the bundled PostgreSQL for the processes that use a data folder.

A process of its own, the guardian, starts PostgreSQL, restarts it if it crashes, and stops it when the last of these
processes has exited, also if all of them were killed: they inherit a pipe, whose end the guardian notices.
"""

import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import structlog

from dragoman.server.logging import Format, Level, configure_logging
from dragoman.settings import BUNDLED_DATABASE, Settings, UnusableData
from dragoman.stores.errors import StoreInUse
from dragoman.stores.postgres import bundled
from dragoman.stores.postgres.bundled import BundledPostgres, BundledPostgresError

LOCK_FILE = "postgres.lock"
LOCK_TIMEOUT_S = 30.0
"""How long to wait for another guardian of the same folder, which may be stopping PostgreSQL."""
CHECK_INTERVAL_S = 0.05
"""How often a starting PostgreSQL is asked whether it is ready."""
RESTART_DELAY_S = 1.0
FAILURE_DELAY_S = 5.0
"""How long a guardian that cannot run PostgreSQL stays, so that it is not restarted all the time."""
STOP_TIMEOUT_S = 60.0
"""How long PostgreSQL may take to stop before it is left to its guardian."""

log = structlog.get_logger(__name__)


def uses_bundled_database(settings: Settings) -> bool:
    """Whether the store is the bundled PostgreSQL: configured, needed by several workers, or there already."""
    if settings.database is not None:
        return settings.database == BUNDLED_DATABASE
    return settings.workers > 1 or bundled.exists(settings.folder)


class Guardian:
    """The guardian's process, as its parent sees it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lifeline, self._lifeline_end = os.pipe()  # children inherit the end, so the guardian outlives them
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The guardian's process ID, after `start`."""
        return None if self._process is None else self._process.pid

    def start(self) -> str:
        """Start PostgreSQL, and return its address once it accepts connections.

        Raises:
            UnusableData: it cannot be started, or the folder contains a SQLite database.
            StoreInUse: another process runs it.
        """
        folder = self._settings.folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (folder / "dragoman.db").exists() and not bundled.exists(folder):
            raise UnusableData(
                f"{folder} contains the SQLite database of a single process, which several workers cannot share. Carry"
                f" it over: dragoman backup FILE --data {folder}, then dragoman restore FILE --data NEW-FOLDER"
                f" --database {BUNDLED_DATABASE}, and serve NEW-FOLDER"
            )
        try:
            bundled.find_programs(folder)
        except BundledPostgresError as error:
            raise UnusableData(str(error)) from error
        self._process = self._spawn()
        kind, text = self._read_report()
        if kind == "ready":
            return text
        if kind == "busy":
            raise StoreInUse(text)
        raise UnusableData(text or "the guardian of PostgreSQL failed; its error is above")

    def restart(self) -> None:
        """Start a guardian in place of one that died, without waiting for PostgreSQL."""
        kind, text = self._read_report()
        log.error("the guardian of PostgreSQL died, restarting it", reason=text if kind != "ready" else "")
        self._close_report()
        self._process = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        settings = self._settings
        arguments = [settings.data, str(settings.workers), str(self._lifeline), settings.log_format, settings.log_level]
        return subprocess.Popen(  # noqa: S603  # this program
            [sys.executable, "-P", "-m", __name__, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=[self._lifeline],
            start_new_session=True,  # a Ctrl-C in the terminal is not for it
        )

    def stop(self) -> None:
        """Let PostgreSQL stop, and wait for it. No child may use it any more."""
        for descriptor in (self._lifeline, self._lifeline_end):
            os.close(descriptor)
        if self._process is not None:
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                log.warning("PostgreSQL has not stopped yet", folder=str(self._settings.folder))
            self._close_report()

    def _read_report(self) -> tuple[str, str]:
        """The guardian's next line: `ready` and the address, or why it cannot run PostgreSQL; empty if killed."""
        assert self._process is not None, "it was started"
        assert self._process.stdout is not None, "it is a pipe"
        kind, _, text = self._process.stdout.readline().decode().strip().partition(" ")
        return kind, text

    def _close_report(self) -> None:
        assert self._process is not None, "it was started"
        assert self._process.stdout is not None, "it is a pipe"
        self._process.stdout.close()


@contextmanager
def bundled_database_running(settings: Settings, *, creates: bool = False) -> Iterator[Settings]:
    """Run the bundled PostgreSQL for a command, if the settings select it and no server runs it.

    Args:
        settings: as loaded.
        creates: create the database if there is none.

    Yields:
        The settings with the database's address.

    Raises:
        UnusableData: it cannot be started.
        StoreInUse: another process starts or stops it.
    """
    if not uses_bundled_database(settings):
        yield settings
    elif not creates and not bundled.exists(settings.folder):
        raise UnusableData(f"{settings.folder} contains no data: name a data folder with --data")
    elif (url := bundled.running_url(settings.folder)) and _has_guardian(settings.folder):
        yield msgspec.structs.replace(settings, database=url)
    else:
        guardian = Guardian(settings)
        try:
            yield msgspec.structs.replace(settings, database=guardian.start())
        finally:
            guardian.stop()


def _has_guardian(folder: Path) -> bool:
    """Whether a process looks after the PostgreSQL of a data folder; one that was left behind is ended by the next."""
    descriptor = _open_lock(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _open_lock(folder: Path) -> int:
    return os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


# --- the guardian -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the guardian, with the arguments that `Guardian` passes to its process. It reports on standard output."""
    data, processes, lifeline, log_format, log_level = sys.argv[1:]
    folder = Path(data).expanduser()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it stops when the others have
    configure_logging(msgspec.convert(log_format, Format), msgspec.convert(log_level, Level))
    try:
        postgres = BundledPostgres(folder, processes=int(processes))
        lock = _lock(folder)
        if lock is None:
            _report(f"busy another process uses the PostgreSQL in {folder}: wait for it, or stop it")
            return
        postgres.end_leftovers()
        postgres.create()
        _Run(postgres, int(lifeline)).run()
    except (BundledPostgresError, OSError) as error:
        _report(f"failed {error}")
        select.select([int(lifeline)], [], [], FAILURE_DELAY_S)


def _lock(folder: Path) -> int | None:
    """Lock PostgreSQL's files for this process. Returns None if another one has them."""
    descriptor = _open_lock(folder)
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        if time.monotonic() > deadline:
            return None
        time.sleep(CHECK_INTERVAL_S)


def _report(text: str) -> None:
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), text.replace("\n", " ").encode() + b"\n")


class _Run:
    """Runs PostgreSQL until the other end of the lifeline is closed everywhere."""

    def __init__(self, postgres: BundledPostgres, lifeline: int) -> None:
        self._postgres = postgres
        self._lifeline = lifeline
        self._was_ready = False
        self._is_stopping = False
        self._last_lines: Sequence[str] = []
        """What PostgreSQL has logged last."""

    def run(self) -> None:
        """Start PostgreSQL, and start it again if it exits, until it is no longer needed."""
        while True:
            process = self._postgres.start()
            self._watch(process)
            code = process.wait()
            if self._is_stopping:
                return
            reason = next((line for line in self._last_lines if line.startswith(("FATAL", "PANIC"))), "")
            if not self._was_ready:
                raise BundledPostgresError(f"PostgreSQL cannot start: {reason or f'it exited with {code}'}")
            log.error("PostgreSQL exited, restarting it", exit_code=code, reason=reason)
            if select.select([self._lifeline], [], [], RESTART_DELAY_S)[0]:
                return

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Log what PostgreSQL logs until all of its processes have exited."""
        assert process.stdout is not None, "it is a pipe"
        rest = b""
        is_ready = False
        while True:
            awaited = [process.stdout.fileno(), *([] if self._is_stopping else [self._lifeline])]
            readable, _, _ = select.select(awaited, [], [], None if is_ready else CHECK_INTERVAL_S)
            if self._lifeline in readable:
                self._is_stopping = True
                self._postgres.stop(process)
            if process.stdout.fileno() in readable:
                read = bundled.read_lines(process.stdout, rest)
                if read is None:
                    return
                lines, rest = read
                self._log(lines)
            if not is_ready and self._postgres.is_ready(process):
                is_ready = True
                self._announce()

    def _announce(self) -> None:
        if not self._was_ready:
            self._was_ready = True
            _report(f"ready {self._postgres.url}")

    def _log(self, lines: Sequence[str]) -> None:
        self._last_lines = [*self._last_lines, *lines][-20:]
        for line in lines:
            level = "debug" if self._is_stopping else bundled.log_level_of(line)
            getattr(log, level)("PostgreSQL", line=line)


if __name__ == "__main__":
    main()
