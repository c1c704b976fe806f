"""Hints between servers through their database: `NOTIFY` from one batcher, `LISTEN` on a connection of its own.

Within the writing transactions, `NOTIFY` would serialize them, because it holds a lock until the commit. Here a
separate thread sends the hints that were collected within a few milliseconds. Hints are lost while the database is
unavailable.
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

BATCH_INTERVAL_S = 0.004
"""How long hints are collected before they are sent together."""
MAX_QUEUED_HINTS = 10_000
"""Maximum number of queued hints; later ones are dropped."""
RETRY_DELAY_S = 0.5
"""Pause before the next attempt to connect. Timeouts are part of the address."""
STOP_CHECK_INTERVAL_S = 0.5
"""How often the listener checks whether to stop."""
_ESCAPED = re.compile("\1([\1\2])")
_CHANNEL_SQL = "SELECT 'dragoman_' || substr(md5(current_schema()), 1, 16)"
_NOTIFY_SQL = "SELECT pg_notify(%s, hint) FROM unnest(%s::text[]) AS hint"

_ERRORS = (psycopg.Error, OSError)
"""The second if this machine has no file descriptor left."""

log = structlog.get_logger(__name__)


class PostgresBus:
    """`Bus` over a database. A hint is delivered locally at once, and to other servers after milliseconds."""

    deltas_group: str | None = None
    """None: deltas are in the database already, and too large for `NOTIFY`."""

    def __init__(self, conninfo: str) -> None:
        self.is_connected = False
        """Whether hints of other servers are received."""
        self._conninfo = conninfo
        self._sender_id = uuid.uuid4().hex
        self._local = LocalBus()
        self._queue: deque[str] = deque()
        self._wake_event = threading.Event()
        self._stop_event = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = [
            threading.Thread(target=self._send_queued, name="dragoman-notify", daemon=True),
            threading.Thread(target=self._listen, name="dragoman-listen", daemon=True),
        ]

    def start(self) -> None:
        """Start connecting. Call on the event loop."""
        self._loop = asyncio.get_running_loop()
        for thread in self._threads:
            thread.start()

    async def close(self) -> None:
        """Send queued hints and stop."""
        self._stop_event.set()
        self._wake_event.set()
        for thread in self._threads:
            await asyncio.to_thread(thread.join, 2 * STOP_CHECK_INTERVAL_S)

    def publish(self, subject: str, payload: str) -> None:
        """Send a payload to every subscriber of the subject, on all servers. Never waits and never raises."""
        self._local.publish(subject, payload)
        if len(self._queue) < MAX_QUEUED_HINTS:
            self._queue.append(f"{self._sender_id} {subject} {_escape(payload)}")
            self._wake_event.set()

    def subscribe(self, subject: str, handler: Callable[[str], None]) -> Callable[[], None]:
        """Call `handler` with each payload. Returns a function that ends the subscription."""
        return self._local.subscribe(subject, handler)

    # --- on the threads -------------------------------------------------------------------------------------------

    def _send_queued(self) -> None:
        connection: psycopg.Connection | None = None
        channel = ""
        while self._queue or not self._stop_event.is_set():
            self._wake_event.wait()
            self._wake_event.clear()
            time.sleep(BATCH_INTERVAL_S)  # on a thread of the bus's, never the loop's
            hints = [self._queue.popleft() for _ in range(len(self._queue))]
            if not hints:
                continue
            try:
                if connection is None:
                    connection, channel = self._connect()
                connection.execute(_NOTIFY_SQL, (channel, hints))
            except _ERRORS as error:
                log.debug("hints lost", cause=repr(error))
                _close(connection)
                connection = None
                if self._stop_event.wait(RETRY_DELAY_S):
                    return
        _close(connection)

    def _listen(self) -> None:
        connection: psycopg.Connection | None = None
        while not self._stop_event.is_set():
            try:
                if connection is None:
                    connection, channel = self._connect()
                    connection.execute(f'LISTEN "{channel}"'.encode())
                    self.is_connected = True
                for notice in connection.notifies(timeout=STOP_CHECK_INTERVAL_S, stop_after=100):
                    self._receive(notice.payload)
            except _ERRORS as error:
                log.debug("cannot listen for hints", cause=repr(error))
                self.is_connected = False
                _close(connection)
                connection = None
                self._stop_event.wait(RETRY_DELAY_S)
        _close(connection)

    def _connect(self) -> tuple[psycopg.Connection, str]:
        connection = psycopg.connect(self._conninfo, autocommit=True)
        row = connection.execute(_CHANNEL_SQL).fetchone()
        assert row is not None, "it always answers"
        return connection, str(row[0])

    def _receive(self, hint: str) -> None:
        sender, _, said = hint.partition(" ")
        subject, has_payload, payload = said.partition(" ")
        if not has_payload:  # not from a server of this installation
            log.debug("invalid hint", length=len(hint))
        elif sender != self._sender_id and self._loop is not None:
            with suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(self._local.publish, subject, _unescape(payload))


def _escape(payload: str) -> str:
    """Remove NUL characters, which PostgreSQL cannot store."""
    return payload.replace("\1", "\1\1").replace("\0", "\1\2")


def _unescape(written: str) -> str:
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "\2" else "\1", written)


def _close(connection: psycopg.Connection | None) -> None:
    if connection is not None:
        with suppress(psycopg.Error):
            connection.close()
