"""Hints between servers over NATS core (no JetStream): a message without a current subscriber is lost.

Deltas are encrypted and authenticated with a key of the installation, so NATS cannot read and nobody else can forge
them. Only the server that a delta subject addresses subscribes to it.

The server never waits for NATS. Messages are delivered locally at once, and sent while there is a connection. A lost or
refused connection is retried for as long as the server runs.

    disconnected ──connected, subscribed──► connected ──closed, stalled──► disconnected, and again after a second
"""

import asyncio
import os
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import nats.errors
import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from nats.aio.client import Client
from nats.aio.msg import Msg

from dragoman.buses.local import LocalBus
from dragoman.buses.nats_credentials import read_credentials
from dragoman.ports.bus import DELTAS_SUBJECT_PREFIX, MAX_DELTAS_BYTES, MAX_HINT_BYTES

RETRY_DELAY_S = 1.0
"""Average pause between two attempts to connect, randomized so that servers do not reconnect all at once."""
CONNECT_TIMEOUT_S = 2
PING_INTERVAL_S = 5
"""Interval of pings; two missing replies end a connection."""
CLOSE_TIMEOUT_S = 1.0
"""Timeout of closing a connection."""
MAX_QUEUED_HINTS = 10_000
"""Maximum number of queued hints; beyond that the oldest are dropped."""
MAX_UNSENT_BYTES = 1024 * 1024
"""Maximum unsent data of a connection; further hints are dropped. At 2 MiB the driver would block."""

NONCE_BYTES = 12

log = structlog.get_logger(__name__)


class HintCounts(NamedTuple):
    """Number of hints since the start, by outcome."""

    sent: int
    received: int
    lost: int


class NatsBus:
    """`Bus` between all servers with the same NATS and subject prefix. Call `start` and `close`.

    `start` connects.

    Args:
        address: `nats://HOST:PORT`, or several separated by commas; may contain user and password or a token.
        subject: prefix of all subjects, which separates installations that share a NATS.
        key: the installation's secret for encrypting deltas; without one, deltas are not sent.
        credentials: a credentials file, see `nats_credentials`; read for each connection.

    Raises:
        ValueError: the address is invalid.
    """

    def __init__(
        self, address: str, *, subject: str = "dragoman", key: bytes | None = None, credentials: Path | None = None
    ) -> None:
        self.is_connected = False
        self.deltas_group: str | None = None
        """Identifies the servers with the same key."""
        self._cipher: AESGCM | None = None
        if key is not None:
            self.deltas_group = blake2b(key, digest_size=8, person=b"words, known by").hexdigest()
            self._cipher = AESGCM(blake2b(key, digest_size=32, person=b"words, sealed").digest())
        self._deltas_subjects: set[str] = set()
        """Subjects on which this server receives deltas."""
        self._subscribed_subjects: set[str] = set()
        """Those of them that are subscribed at NATS."""
        self._urls = parse_urls(address)
        self._credentials = credentials
        self._subject = subject
        self._local = LocalBus()
        self._queue: deque[tuple[str, str]] = deque()
        self._wake_event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sent = self._received = self._lost = 0
        self._last_error: Exception | None = None

    @property
    def hint_counts(self) -> HintCounts:
        """Number of hints since the start, by outcome."""
        return HintCounts(self._sent, self._received, self._lost)

    def start(self) -> None:
        """Start connecting in the background."""
        self._task = asyncio.create_task(self._keep_connected(), name="nats")

    async def close(self) -> None:
        """Send queued hints if possible, and close the connection."""
        task, self._task = self._task, None
        if task is None:
            return
        self._wake_event.set()
        if self.is_connected:
            await asyncio.wait([task], timeout=CLOSE_TIMEOUT_S)
        while not task.done():  # the driver sometimes swallows a cancellation
            task.cancel()
            await asyncio.wait([task], timeout=CLOSE_TIMEOUT_S)

    def publish(self, subject: str, payload: str) -> None:
        """Send a payload to every subscriber of the subject, on all servers. Never waits and never raises."""
        if not self.is_connected:
            self._lost += 1
        else:
            if len(self._queue) >= MAX_QUEUED_HINTS:
                self._queue.popleft()
                self._lost += 1
            self._queue.append((subject, payload))
            self._wake_event.set()
        self._local.publish(subject, payload)

    def subscribe(self, subject: str, handler: Callable[[str], None]) -> Callable[[], None]:
        """Call `handler` with each payload. Returns a function that ends the subscription."""
        if _is_deltas_subject(subject):
            self._deltas_subjects.add(subject)
            self._wake_event.set()
        return self._local.subscribe(subject, handler)

    # --- the connection -------------------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        is_logged = False
        for attempt, url in enumerate(cycle(self._urls)):
            client = Client()
            try:
                await self._connect(client, url)
                log.info("bus connected", server=display_url(url))
                is_logged = False
                self.is_connected = True
                await self._send_until_disconnected(client)
                if self._task is None:
                    return
                log.warning("bus connection lost", server=display_url(url), cause=repr(self._last_error))
                is_logged = True
            except (OSError, ValueError, nats.errors.Error, TimeoutError) as error:  # ValueError: invalid credentials
                if not is_logged and attempt >= len(self._urls) - 1:
                    log.warning("cannot reach the bus", server=display_url(url), cause=repr(self._last_error or error))
                    is_logged = True
            finally:  # also when the server stops
                self.is_connected = False
                self._lost += len(self._queue)
                self._queue.clear()
                await _close_client(client)
            await asyncio.sleep(RETRY_DELAY_S * random.uniform(0.5, 1.5))  # noqa: S311  # no secret

    async def _connect(self, client: Client, url: str) -> None:
        self._last_error = None
        who: dict[str, Any] = {}
        if self._credentials is not None:
            user = read_credentials(self._credentials)
            client._auth_configured = True  # the driver itself would want a library of its own for the keys
            client._public_nkey = user.public_key
            who["signature_cb"] = user.sign
            if user.jwt is not None:
                who["user_jwt_cb"] = user.jwt.encode
        await client.connect(
            url,
            **who,
            name="dragoman",
            no_echo=True,  # local subscribers have received it already
            allow_reconnect=False,  # the driver would buffer hints for minutes
            max_reconnect_attempts=1,
            reconnect_time_wait=1,
            connect_timeout=CONNECT_TIMEOUT_S,
            ping_interval=PING_INTERVAL_S,
            error_cb=self._record_error,
            closed_cb=self._wake,
        )
        await client.subscribe(f"{self._subject}.*", cb=self._receive, pending_msgs_limit=MAX_QUEUED_HINTS)
        self._subscribed_subjects = set()
        await self._subscribe_new_subjects(client)
        await _confirm(client)  # the subscriptions are active now

    async def _subscribe_new_subjects(self, client: Client) -> None:
        """Subscribe to the delta subjects that were added meanwhile."""
        for subject in self._deltas_subjects - self._subscribed_subjects:
            self._subscribed_subjects.add(subject)
            await client.subscribe(f"{self._subject}.{subject}", cb=self._receive, pending_msgs_limit=MAX_QUEUED_HINTS)

    async def _send_until_disconnected(self, client: Client) -> None:
        """Send queued hints until the connection is lost or the server stops."""
        while client.is_connected:
            await self._subscribe_new_subjects(client)
            await self._send_queued(client)
            if self._task is None:
                return
            self._wake_event.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake_event.wait(), RETRY_DELAY_S)

    async def _send_queued(self, client: Client) -> None:
        while self._queue:
            subject, payload = self._queue.popleft()
            written = self._encode(subject, payload)
            if client.pending_data_size > MAX_UNSENT_BYTES or len(written) > client.max_payload:
                self._lost += 1
            else:
                await client.publish(f"{self._subject}.{subject}", written)
                self._sent += 1

    async def _receive(self, message: Msg) -> None:
        subject = message.subject.removeprefix(f"{self._subject}.")
        try:
            payload = self._decode(subject, message.data)
        except (InvalidTag, ValueError):  # not from a server of this installation
            return
        self._received += 1
        self._local.publish(subject, payload)

    def _encode(self, subject: str, payload: str) -> bytes:
        if self._cipher is None or not _is_deltas_subject(subject):
            return payload.encode()
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, payload.encode(), subject.encode())

    def _decode(self, subject: str, sent: bytes) -> str:
        """Decode a payload. Raises ValueError or InvalidTag if it is not from a server of this installation."""
        if self._cipher is None or not _is_deltas_subject(subject):
            if len(sent) > MAX_HINT_BYTES:
                raise ValueError("too long for a hint")
            return sent.decode()
        if len(sent) > MAX_DELTAS_BYTES + 2 * NONCE_BYTES + 4:
            raise ValueError("too long for deltas")
        return self._cipher.decrypt(sent[:NONCE_BYTES], sent[NONCE_BYTES:], subject.encode()).decode()

    async def _record_error(self, fault: Exception) -> None:
        """Keep the driver's description of a failure: the exception that it raises later is less specific."""
        if not isinstance(fault, OSError | nats.errors.Error | TimeoutError):
            log.error("hint handler failed", exc_info=fault)
        elif not isinstance(fault, nats.errors.NoServersError):
            self._last_error = fault

    async def _wake(self) -> None:
        self._wake_event.set()


async def _confirm(client: Client) -> None:
    """Wait until NATS has received everything so far.

    The driver writes the PING of a flush at once, and what it has queued, such as a SUB, only after it. When the first
    PONG arrives, the queue has been written, so that the second one confirms it.
    """
    for _ in range(2):
        await client.flush(CONNECT_TIMEOUT_S)


def _is_deltas_subject(subject: str) -> bool:
    return subject.startswith(f"{DELTAS_SUBJECT_PREFIX}.")


def parse_urls(address: str) -> tuple[str, ...]:
    """Parse an address into URLs. Raises ValueError if it is invalid."""
    urls = tuple(filter(None, (part.strip() for part in address.split(","))))
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("nats", "tls") or not parts.hostname or parts.path.strip("/"):
            raise ValueError("expected an address such as nats://127.0.0.1:4222, or several, separated by commas")
    if not urls:
        raise ValueError("expected an address such as nats://127.0.0.1:4222")
    return urls


def display_url(url: str) -> str:
    """An address without its password, for logs."""
    return urlsplit(url).netloc.rpartition("@")[2]


async def _close_client(client: Client) -> None:
    """Close a connection, even if the other side reads nothing any more.

    The driver's tasks may be closing it at the same time. They then fail because the connection is lost, and must be
    awaited here: nobody else retrieves their exceptions.
    """
    try:
        with suppress(OSError, nats.errors.Error, TimeoutError):
            await asyncio.wait_for(client.close(), CLOSE_TIMEOUT_S)
    finally:  # also when the server stops meanwhile
        writer: asyncio.StreamWriter | None = getattr(client._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()  # the driver itself would wait until everything is read
    tasks = [task for task in (client._reading_task, client._flusher_task, client._ping_interval_task) if task]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()
