"""Notices a database that has stopped answering although its connections stay open, such as a suspended machine.

Nothing reports such a database: a statement just does not end. Deadlines for statements would also end those that are
only slow. So when a connection has been busy for a while, a new connection is opened to see whether the database
answers. If it does not, all connections are interrupted, and work is refused until a connection succeeds.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

import psycopg
import structlog
from psycopg.conninfo import conninfo_to_dict, make_conninfo

CHECK_INTERVAL_S = 0.5
BUSY_THRESHOLD_S = 1.0
"""Work that takes longer raises the question whether the database answers."""
ANSWER_TIMEOUT_S = 3
"""How long a new connection may take. All three are together shorter than `connect_timeout`, so that nothing that is
still connecting begins again."""
RECOVERY_TIMEOUT_S = 30
"""How long each later attempt waits for an answer. One that waits succeeds as soon as the database continues."""
_FIND_BACKEND_SQL = (
    "SELECT pid || ' ' || extract(epoch FROM backend_start) FROM pg_stat_activity WHERE pid = pg_backend_pid()"
)
_END_BACKENDS_SQL = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE pid || ' ' || extract(epoch FROM backend_start) = ANY (%s)"
    " AND usename = current_user AND pid <> pg_backend_pid()"
)
"""Process IDs alone are used again, above all when a container with the database restarts."""

_CONNECTING_ERRORS = (psycopg.Error, OSError, MemoryError)
"""The last two if this machine has no file descriptor or no memory left. The watchdog outlives all of them."""

log = structlog.get_logger(__name__)


class Interruptible(Protocol):
    """A connection that executes one piece of work at a time."""

    @property
    def busy_since(self) -> float | None:
        """When its current work began, by the monotonic clock."""

    @property
    def address(self) -> str | None:
        """The server that it is connected to, as a part of a connection string; None if it is not connected."""

    def interrupt(self) -> str | None:
        """Fail its current work at once. Returns the database's process that served it, for `end_backends`."""


class DatabaseWatchdog:
    """Watches the connections of one database on a thread of its own."""

    def __init__(self, conninfo: str, connections: Callable[[], Iterable[Interruptible]]) -> None:
        self.is_answering = True
        """False: all work is refused."""
        self._conninfo = conninfo
        self._connections = connections
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="dragoman-watchdog", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching. The thread ends by itself."""
        self._stop_event.set()

    def _watch(self) -> None:
        pause_s = CHECK_INTERVAL_S
        while not self._stop_event.wait(pause_s):
            pause_s = CHECK_INTERVAL_S
            stuck = {each.address for each in self._connections() if self._is_stuck(each)}
            if not stuck:
                continue
            if all(self._answers(address) for address in stuck):
                pause_s = BUSY_THRESHOLD_S
            else:
                self._refuse_until_answer()

    @staticmethod
    def _is_stuck(connection: Interruptible) -> bool:
        busy_since = connection.busy_since
        return busy_since is not None and time.monotonic() - busy_since > BUSY_THRESHOLD_S

    def _answers(self, address: str | None) -> bool:
        """Whether the database answers, or reports an error, which its connections then notice by themselves.

        Of several hosts only the one of a stuck connection is asked: another one may answer, or refuse, at once.
        """
        try:
            self._connect(ANSWER_TIMEOUT_S, address).close()
        except psycopg.errors.ConnectionTimeout:
            return False
        except _CONNECTING_ERRORS:
            return True
        return True

    def _refuse_until_answer(self) -> None:
        self.is_answering = False
        begun = time.monotonic()
        log.error("the database does not answer")
        backends: set[str] = set()
        while not self._stop_event.is_set():
            backends |= {found for each in self._connections() if (found := each.interrupt()) is not None}
            try:
                with self._connect(RECOVERY_TIMEOUT_S) as connection:
                    end_backends(connection, backends)
            except _CONNECTING_ERRORS:
                self._stop_event.wait(CHECK_INTERVAL_S)  # also if it is down now
                continue
            self.is_answering = True
            log.warning("the database answers again", after_s=round(time.monotonic() - begun, 1))
            return

    def _connect(self, timeout_s: int, address: str | None = None) -> psycopg.Connection:
        changes = conninfo_to_dict(address or "", connect_timeout=timeout_s)
        return psycopg.connect(make_conninfo(self._conninfo, **changes), autocommit=True)


class Interrupter:
    """Ends a connection from any thread, over a duplicate of its socket, whose number no other connection can get."""

    def __init__(self, connection: psycopg.Connection) -> None:
        info = connection.info
        only = {"hostaddr": info.hostaddr} if info.hostaddr else {}  # a socket in a folder has none
        self.address = make_conninfo("", host=info.host, port=info.port, target_session_attrs="any", **only)
        """The server, as a part of a connection string."""
        self.backend: str | None = None
        """The database's process for the connection, once it is known. Before, nothing was written."""
        self._lock = threading.Lock()
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))

    def interrupt(self) -> None:
        """Break the connection: its statement fails at once, and nothing more can be sent."""
        with self._lock, suppress(OSError):  # it is broken, or closed
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give up the duplicate."""
        with self._lock:
            self._socket.close()


def find_backend(connection: psycopg.Connection) -> str | None:
    """The database's process for a connection. What `info.backend_pid` says may be a pooler's invention."""
    found = connection.execute(_FIND_BACKEND_SQL).fetchone()
    return None if found is None else str(found[0])


def end_backends(connection: psycopg.Connection, backends: Iterable[str]) -> None:
    """End what interrupted connections have left, and wait for its end: a commit that it received may still happen."""
    connection.execute(_END_BACKENDS_SQL, (list(backends),))
