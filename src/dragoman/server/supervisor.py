"""Supervises several worker processes that share a port and a database.

The listening socket is opened once and inherited, so that pending connections survive the death of a worker. A worker
that dies is restarted. A signal to stop is passed on to all workers; those that do not exit in time are killed. If no
database is configured, the bundled PostgreSQL runs as long as the workers.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import NoReturn

import msgspec
import structlog

from dragoman.server.bootstrap_key import announce_ready
from dragoman.server.bundled_database import Guardian, uses_bundled_database
from dragoman.server.logging import configure_logging
from dragoman.server.runner import GRACEFUL_SHUTDOWN_TIMEOUT_S, CannotStart, Worker, bind_socket, serve_worker, url_of
from dragoman.server.stores import FOLDER_ID_FILE
from dragoman.settings import Settings, SettingsError, UnusableData
from dragoman.stores.encryption import KEY_FILES, load_or_create_key
from dragoman.stores.errors import StoreInUse
from dragoman.stores.sqlite.database import lock_folder

EXIT_CHECK_INTERVAL_S = 0.2
"""How often exited workers are looked for, in addition to each SIGCHLD."""
RESTART_DELAY_S = 1.0
"""Delay before a worker that died right after its start is restarted."""
CLOSE_TIMEOUT_S = 10.0
"""How long a worker may take to close its stores and exit, after the drain and the last responses."""
KILL_TIMEOUT_S = 5.0
"""How long to wait for a killed worker, which may be stuck in a system call, for example on a broken disk."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)

log = structlog.get_logger(__name__)


def run(settings: Settings, environ: Mapping[str, str]) -> None:
    """Serve with `settings.workers` processes until a signal stops them.

    Raises:
        CannotStart: the workers could not start.
    """
    configure_logging(settings.log_format, settings.log_level)
    with ExitStack() as stack:
        settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        guardian: Guardian | None = None
        try:
            lock = lock_folder(settings.folder)  # workers inherit it: it is released when the last process exits
            stack.callback(os.close, lock)
            if uses_bundled_database(settings):
                guardian = Guardian(settings)
                stack.callback(guardian.stop)
                settings = msgspec.structs.replace(settings, database=guardian.start())
        except (StoreInUse, UnusableData) as error:
            raise CannotStart(str(error)) from error
        for name in (FOLDER_ID_FILE, *KEY_FILES):
            load_or_create_key(settings.folder / name)  # now, so that workers do not race to create it
        _supervise(settings, environ, guardian)
    log.info("stopped")


def _supervise(settings: Settings, environ: Mapping[str, str], guardian: Guardian | None) -> None:
    listening = bind_socket(settings.host, settings.port, settings.stalled_reader_s)
    url = url_of(settings.host, listening.getsockname()[1])
    supervisor_pipe, supervisor_end = os.pipe()
    ready_reader, ready_pipe = os.pipe()

    def run_worker(number: int) -> None:
        os.close(supervisor_end)  # then the pipe ends when the supervisor exits
        os.close(ready_reader)
        serve_worker(Worker(number, listening, supervisor_pipe, ready_pipe), settings, environ)

    supervisor = _Supervisor(
        settings.workers,
        run_worker,
        stop_timeout_s=settings.drain_s + GRACEFUL_SHUTDOWN_TIMEOUT_S + CLOSE_TIMEOUT_S,
        guardian=guardian,
    )
    try:
        if supervisor.start(ready_reader):
            announce_ready(settings.folder, url)
            log.info("serving", url=url, workers=settings.workers)
            supervisor.supervise()
        elif not supervisor.is_stopping:
            raise CannotStart("a worker could not start; its error is above")
    finally:
        supervisor.stop()
        listening.close()
        for descriptor in (supervisor_pipe, supervisor_end, ready_reader, ready_pipe):
            os.close(descriptor)


class _Supervisor:
    """Starts, restarts and stops the workers.

    Args:
        count: the number of workers.
        run_worker: runs a worker by its number, in a forked process.
        stop_timeout_s: how long workers may take to stop.
        guardian: runs the workers' database, if it is the bundled one.
    """

    def __init__(
        self,
        count: int,
        run_worker: Callable[[int], None],
        *,
        stop_timeout_s: float,
        guardian: Guardian | None = None,
    ) -> None:
        self.is_stopping = False
        self._count = count
        self._run_worker = run_worker
        self._stop_timeout_s = stop_timeout_s
        self._guardian = guardian
        self._number_by_pid: dict[int, int] = {}
        self._started_at: dict[int, float] = {}

    def start(self, ready_pipe: int) -> bool:
        """Start all workers. Returns False if one could not start or a signal arrived first."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        for number in range(self._count):
            self._fork(number)
        ready = 0
        while ready < self._count:
            if select.select([ready_pipe], [], [], 0.05)[0]:
                ready += len(os.read(ready_pipe, self._count))
            signalled = signal.sigtimedwait(SIGNALS, 0)
            if signalled is not None and (signalled.si_signo != signal.SIGCHLD or self._reap_exited()):
                self.is_stopping = signalled.si_signo != signal.SIGCHLD
                return False
        return True

    def supervise(self) -> None:
        """Restart workers that die, until a signal arrives."""
        while True:
            signalled = signal.sigwait(SIGNALS)
            if signalled != signal.SIGCHLD:
                self.is_stopping = True
                return
            for number in self._reap_exited():
                log.warning("worker died, restarting it", worker=number)
                if time.monotonic() - self._started_at[number] < RESTART_DELAY_S:
                    time.sleep(RESTART_DELAY_S)
                self._fork(number)

    def stop(self) -> None:
        """Stop all workers and wait for them. Further signals are passed on.

        A worker that does not stop in time is killed. Nothing that it acknowledged is lost, and other servers take over
        its runs.
        """
        self._send_signal(signal.SIGTERM)
        if not self._wait_until_exited(self._stop_timeout_s):
            log.error("workers did not stop in time, killing them", workers=sorted(self._number_by_pid.values()))
            self._send_signal(signal.SIGKILL)
            self._wait_until_exited(KILL_TIMEOUT_S)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _wait_until_exited(self, timeout_s: float) -> bool:
        """Wait until all workers have exited. Returns False on timeout."""
        until = time.monotonic() + timeout_s
        while self._number_by_pid and (left_s := until - time.monotonic()) > 0:
            signalled = signal.sigtimedwait(SIGNALS, min(EXIT_CHECK_INTERVAL_S, left_s))
            if signalled is not None and signalled.si_signo != signal.SIGCHLD:
                self._send_signal(signal.SIGTERM)
            self._reap_exited()
        return not self._number_by_pid

    def _fork(self, number: int) -> None:
        pid = os.fork()
        if not pid:
            self._run_child(number)
        self._number_by_pid[pid] = number
        self._started_at[number] = time.monotonic()

    def _run_child(self, number: int) -> NoReturn:
        code = 1
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            self._run_worker(number)
            code = 0
        except (CannotStart, SettingsError) as error:
            sys.stderr.write(f"dragoman: {error}\n")
        except BaseException:  # the outer edge of a process
            log.exception("worker failed", worker=number)
        finally:
            sys.stderr.flush()
            os._exit(code)  # without the parent's exit handlers

    def _reap_exited(self) -> list[int]:
        """Return the numbers of the workers that have exited since the last call."""
        numbers: list[int] = []
        with suppress(ChildProcessError):
            while self._number_by_pid and (pid := os.waitpid(-1, os.WNOHANG)[0]):
                if pid in self._number_by_pid:
                    numbers.append(self._number_by_pid.pop(pid))
                elif self._guardian is not None and pid == self._guardian.pid and not self.is_stopping:
                    self._guardian.restart()
        return numbers

    def _send_signal(self, number: signal.Signals) -> None:
        for pid in self._number_by_pid:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
