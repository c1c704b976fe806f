"""Hints between servers through their database: `NOTIFY` from one batcher, `LISTEN` on a connection of its own.

Inside the transactions that write, `NOTIFY` would make them wait for one another: it takes a lock until each has
committed. Here a thread sends what gathered in a few milliseconds, beside the commits. What is sent while the database
is away is lost, as hints may be.
"""

import asyncio
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import psycopg
import structlog

from dragoman.buses.local import LocalBus

GATHER_S = 0.004
"""For how long hints gather, to go out together."""
MOST_WAITING = 10_000
"""Hints kept for a database that does not answer; later ones are lost."""
AGAIN_S = 0.5
"""Until the next attempt to connect. The address says how long one takes, and when a silent connection is given up."""
LOOK_S = 0.5
"""How often the listener looks whether it is to end."""
_ESCAPED = re.compile("\1([\1\2])")
_NAME = "SELECT 'dragoman_' || substr(md5(current_schema()), 1, 16)"
_SEND = "SELECT pg_notify(%s, hint) FROM unnest(%s::text[]) AS hint"

log = structlog.get_logger(__name__)


class PostgresBus:
    """`Bus` over a database. Within the process a hint is heard at once, elsewhere after some milliseconds."""

    words: str | None = None
    """See `Bus.words`: the database has them already, and a `NOTIFY` has no room for them."""

    def __init__(self, conninfo: str) -> None:
        self.is_connected = False
        """Whether hints of other servers are heard."""
        self._conninfo = conninfo
        self._own = uuid.uuid4().hex
        self._local = LocalBus()
        self._waiting: deque[str] = deque()
        self._is_wanted = threading.Event()
        self._is_over = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = [
            threading.Thread(target=self._send, name="dragoman-notify", daemon=True),
            threading.Thread(target=self._listen, name="dragoman-listen", daemon=True),
        ]

    def start(self) -> None:
        """Connect; called on the loop."""
        self._loop = asyncio.get_running_loop()
        for thread in self._threads:
            thread.start()

    async def close(self) -> None:
        """Send what waits, and end."""
        self._is_over.set()
        self._is_wanted.set()
        for thread in self._threads:
            await asyncio.to_thread(thread.join, 2 * LOOK_S)

    def publish(self, subject: str, payload: str) -> None:
        """See `Bus.publish`."""
        self._local.publish(subject, payload)
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(f"{self._own} {subject} {_written(payload)}")
            self._is_wanted.set()

    def subscribe(self, subject: str, heard: Callable[[str], None]) -> Callable[[], None]:
        """See `Bus.subscribe`."""
        return self._local.subscribe(subject, heard)

    # --- on the threads -------------------------------------------------------------------------------------------

    def _send(self) -> None:
        connection: psycopg.Connection | None = None
        channel = ""
        while self._waiting or not self._is_over.is_set():
            self._is_wanted.wait()
            self._is_wanted.clear()
            time.sleep(GATHER_S)  # on a thread of the bus's, never the loop's
            hints = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if not hints:
                continue
            try:
                if connection is None:
                    connection, channel = self._connected()
                connection.execute(_SEND, (channel, hints))
            except psycopg.Error as error:
                log.debug("hints lost", cause=repr(error))
                _closed(connection)
                connection = None
                if self._is_over.wait(AGAIN_S):
                    return
        _closed(connection)

    def _listen(self) -> None:
        connection: psycopg.Connection | None = None
        while not self._is_over.is_set():
            try:
                if connection is None:
                    connection, channel = self._connected()
                    connection.execute(f'LISTEN "{channel}"'.encode())
                    self.is_connected = True
                for notice in connection.notifies(timeout=LOOK_S, stop_after=100):
                    self._heard(notice.payload)
            except psycopg.Error as error:
                log.debug("hints not heard", cause=repr(error))
                self.is_connected = False
                _closed(connection)
                connection = None
                self._is_over.wait(AGAIN_S)
        _closed(connection)

    def _connected(self) -> tuple[psycopg.Connection, str]:
        connection = psycopg.connect(self._conninfo, autocommit=True)
        row = connection.execute(_NAME).fetchone()
        assert row is not None, "it always answers"
        return connection, str(row[0])

    def _heard(self, hint: str) -> None:
        sender, _, said = hint.partition(" ")
        subject, has_payload, payload = said.partition(" ")
        if not has_payload:  # not from one of us
            log.debug("hint not understood", length=len(hint))
        elif sender != self._own and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._local.publish, subject, _read(payload))


def _written(payload: str) -> str:
    """A text without NUL, which PostgreSQL does not have."""
    return payload.replace("\1", "\1\1").replace("\0", "\1\2")


def _read(written: str) -> str:
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "\2" else "\1", written)


def _closed(connection: psycopg.Connection | None) -> None:
    if connection is not None:
        with suppress(psycopg.Error):
            connection.close()
