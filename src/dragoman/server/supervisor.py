"""Several processes that share a port, each a server of its own on one database, and the one that looks after them.

The port is opened once and inherited, so that no connection is lost with a process: another one accepts it. Who dies is
started again; a signal to stop goes to all, and who has not ended some seconds after its grace is killed.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn

import structlog

from dragoman.server.logging import configure_logging
from dragoman.server.runner import GRACEFUL_SHUTDOWN_TIMEOUT_S, CannotStart, Worker, bind_socket, serve_worker, url_of
from dragoman.server.stores import FOLDER_ID_FILE
from dragoman.settings import Settings
from dragoman.stores.encryption import load_or_create_key
from dragoman.stores.errors import StoreInUse
from dragoman.stores.sqlite.database import lock_folder

EXIT_CHECK_INTERVAL_S = 0.2
"""How often it is looked who has ended, besides when a signal tells."""
RESTART_DELAY_S = 1.0
"""How long it waits to start a process again that died at its start."""
CLOSE_TIMEOUT_S = 10.0
"""What a process gets to close its stores and to end, after its runs' grace and the last answers."""
KILL_TIMEOUT_S = 5.0
"""How long one that was killed is waited for: the system may hold it back, in a call to a disk that is gone."""
KEY_FILES = ("secrets.key", "links.key")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)

log = structlog.get_logger(__name__)


def run(settings: Settings, environ: Mapping[str, str]) -> None:
    """Serve with `settings.workers` processes until a signal ends them.

    Raises:
        CannotStart: it did not come to that.
    """
    configure_logging(settings.log_format, settings.log_level)
    settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        lock = lock_folder(settings.folder)  # inherited too: it is free when the last process has gone
    except StoreInUse as error:
        raise CannotStart(str(error)) from error
    for name in (FOLDER_ID_FILE, *KEY_FILES):
        load_or_create_key(settings.folder / name)  # before there are several who would make them
    listening = bind_socket(settings.host, settings.port, settings.stalled_reader_s)
    url = url_of(settings.host, listening.getsockname()[1])
    alive, own_end = os.pipe()
    told, report = os.pipe()

    def work(number: int) -> None:
        os.close(own_end)  # with the parent's the pipe ends, and the process sees it
        os.close(told)
        serve_worker(Worker(number, listening, alive, report), settings, environ)

    workers = _Supervisor(
        settings.workers, work, stop_timeout_s=settings.drain_s + GRACEFUL_SHUTDOWN_TIMEOUT_S + CLOSE_TIMEOUT_S
    )
    try:
        if workers.start(told):
            sys.stdout.write(f"ready {url}\n")
            sys.stdout.flush()
            log.info("serving", url=url, workers=settings.workers)
            workers.supervise()
        elif not workers.is_stopping:
            raise CannotStart("a worker could not start; what it said stands above")
    finally:
        workers.stop()
        listening.close()
        for descriptor in (alive, own_end, told, report, lock):
            os.close(descriptor)
    log.info("stopped")


class _Supervisor:
    """The processes by their numbers.

    Args:
        count: how many.
        work: what each does, in a process of its own.
        stop_s: how long it may take to stop.
    """

    def __init__(self, count: int, run_worker: Callable[[int], None], *, stop_timeout_s: float) -> None:
        self.is_stopping = False
        self._count = count
        self._run_worker = run_worker
        self._stop_timeout_s = stop_timeout_s
        self._number_by_pid: dict[int, int] = {}
        """By process."""
        self._started_at: dict[int, float] = {}

    def start(self, ready_pipe: int) -> bool:
        """Start all. False: one of them could not, or a signal came first."""
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
        """Start again who dies, until a signal comes."""
        while True:
            signalled = signal.sigwait(SIGNALS)
            if signalled != signal.SIGCHLD:
                self.is_stopping = True
                return
            for number in self._reap_exited():
                log.warning("a worker died, and is started again", worker=number)
                if time.monotonic() - self._started_at[number] < RESTART_DELAY_S:
                    time.sleep(RESTART_DELAY_S)
                self._fork(number)

    def stop(self) -> None:
        """Stop all, and wait for them. Another signal is handed on.

        Who does not stop in time is killed: nothing that it acknowledged is lost, and its runs are taken over.
        """
        self._send_signal(signal.SIGTERM)
        if not self._wait_until_exited(self._stop_timeout_s):
            log.error("workers did not stop in time, and are killed", workers=sorted(self._number_by_pid.values()))
            self._send_signal(signal.SIGKILL)
            self._wait_until_exited(KILL_TIMEOUT_S)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _wait_until_exited(self, timeout_s: float) -> bool:
        """Wait until all have ended, for so long."""
        until = time.monotonic() + timeout_s
        while self._number_by_pid and (left_s := until - time.monotonic()) > 0:
            signalled = signal.sigtimedwait(SIGNALS, min(EXIT_CHECK_INTERVAL_S, left_s))
            if signalled is not None and signalled.si_signo != signal.SIGCHLD:
                self._send_signal(signal.SIGTERM)
            self._reap_exited()
        return not self._number_by_pid

    def _fork(self, number: int) -> None:
        process = os.fork()
        if not process:
            self._run_child(number)
        self._number_by_pid[process] = number
        self._started_at[number] = time.monotonic()

    def _run_child(self, number: int) -> NoReturn:
        code = 1
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            self._run_worker(number)
            code = 0
        except CannotStart as error:
            sys.stderr.write(f"dragoman: {error}\n")
        except BaseException:  # the edge of a process
            log.exception("worker failed", worker=number)
        finally:
            sys.stderr.flush()
            os._exit(code)  # nothing of the parent's is to be ended here

    def _reap_exited(self) -> list[int]:
        """The numbers of those that have ended since the last call."""
        found: list[int] = []
        with suppress(ChildProcessError):
            while self._number_by_pid and (process := os.waitpid(-1, os.WNOHANG)[0]):
                found.append(self._number_by_pid.pop(process))
        return found

    def _send_signal(self, number: signal.Signals) -> None:
        for process in self._number_by_pid:
            with suppress(ProcessLookupError):
                os.kill(process, number)
