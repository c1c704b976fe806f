"""Hints between servers over NATS, without its streams: what nobody hears at that moment is gone, and is not missed.

Words go there sealed, with a key of the installation's: NATS does not see them, and nobody else can make any up. They
have subjects that only those servers subscribe to that hear there.

The server never waits for NATS. What is published here is heard here at once, and goes out when a connection is there.
One that breaks, or never came, is made again for as long as the server lives.

    away ──connected, subscribed──► there ──closed, stalled──► away, and again after a second
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
"""Between two attempts to connect, more or less: servers that lost NATS together do not come back in one moment."""
CONNECT_TIMEOUT_S = 2
PING_INTERVAL_S = 5
"""How often NATS is asked whether it lives; two answers missing end a connection."""
CLOSE_TIMEOUT_S = 1.0
"""How long NATS may take to be told goodbye."""
MAX_QUEUED_HINTS = 10_000
"""Hints that wait for their turn; of more, the oldest are lost."""
MAX_UNSENT_BYTES = 1024 * 1024
"""What a connection may hold that NATS does not take; hints beyond that are lost. With 2 MiB the driver would wait."""

NONCE_BYTES = 12

log = structlog.get_logger(__name__)


class HintCounts(NamedTuple):
    """What became of hints, since the start."""

    sent: int
    received: int
    lost: int


class NatsBus:
    """`Bus` between all servers that use one NATS and one subject. `start` begins it, `close` ends it."""

    def __init__(
        self, address: str, *, subject: str = "dragoman", key: bytes | None = None, credentials: Path | None = None
    ) -> None:
        """Nothing is connected yet.

        Args:
            address: `nats://HOST:PORT`, several with commas; with user and password or a token, if NATS asks for them.
            subject: begins all of NATS's own subjects, so that installations that share a NATS are apart.
            key: the installation's secret, which words are sealed with; without one there are none.
            credentials: a file that says who this is, see `nats_credentials`; read for each connection.

        Raises:
            ValueError: the address is none.
        """
        self.is_connected = False
        self.deltas_group: str | None = None
        """See `Bus.words`: servers with the same key."""
        self._cipher: AESGCM | None = None
        if key is not None:
            self.deltas_group = blake2b(key, digest_size=8, person=b"words, known by").hexdigest()
            self._cipher = AESGCM(blake2b(key, digest_size=32, person=b"words, sealed").digest())
        self._deltas_subjects: set[str] = set()
        """Where words are heard here."""
        self._subscribed_subjects: set[str] = set()
        """Those of them that NATS knows of."""
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
        """What became of hints, since the start."""
        return HintCounts(self._sent, self._received, self._lost)

    def start(self) -> None:
        """Begin to connect. NATS need not be there."""
        self._task = asyncio.create_task(self._keep_connected(), name="nats")

    async def close(self) -> None:
        """Send what waits, if NATS takes it, and end the connection."""
        task, self._task = self._task, None
        if task is None:
            return
        self._wake_event.set()
        if self.is_connected:
            await asyncio.wait([task], timeout=CLOSE_TIMEOUT_S)
        while not task.done():  # the driver swallows a cancellation here and there
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
        is_told = False
        for attempt, url in enumerate(cycle(self._urls)):
            client = Client()
            try:
                await self._connect(client, url)
                log.info("bus connected", server=display_url(url))
                is_told = False
                self.is_connected = True
                await self._send_until_disconnected(client)
                if self._task is None:
                    return
                log.warning("bus lost", server=display_url(url), cause=repr(self._last_error))
                is_told = True
            except (OSError, ValueError, nats.errors.Error, TimeoutError) as error:  # the second: of the credentials
                if not is_told and attempt >= len(self._urls) - 1:
                    log.warning("bus not reached", server=display_url(url), cause=repr(self._last_error or error))
                    is_told = True
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
            no_echo=True,  # what was published here was heard here
            allow_reconnect=False,  # the driver would keep hints for minutes that are stale by then
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
        await client.flush(CONNECT_TIMEOUT_S)  # from here on nothing is missed

    async def _subscribe_new_subjects(self, client: Client) -> None:
        """Hear words at the addresses that were named meanwhile."""
        for subject in self._deltas_subjects - self._subscribed_subjects:
            self._subscribed_subjects.add(subject)
            await client.subscribe(f"{self._subject}.{subject}", cb=self._receive, pending_msgs_limit=MAX_QUEUED_HINTS)

    async def _send_until_disconnected(self, client: Client) -> None:
        """Send what there is to send, until the connection is gone or the server stops."""
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
        except (InvalidTag, ValueError):  # what is not from one of us
            return
        self._received += 1
        self._local.publish(subject, payload)

    def _encode(self, subject: str, payload: str) -> bytes:
        if self._cipher is None or not _is_deltas_subject(subject):
            return payload.encode()
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, payload.encode(), subject.encode())

    def _decode(self, subject: str, sent: bytes) -> str:
        """What was sent. Raises ValueError (UnicodeDecodeError is one) or InvalidTag when it is not from one of us."""
        if self._cipher is None or not _is_deltas_subject(subject):
            if len(sent) > MAX_HINT_BYTES:
                raise ValueError("too long for a hint")
            return sent.decode()
        if len(sent) > MAX_DELTAS_BYTES + 2 * NONCE_BYTES + 4:
            raise ValueError("too long for words")
        return self._cipher.decrypt(sent[:NONCE_BYTES], sent[NONCE_BYTES:], subject.encode()).decode()

    async def _record_error(self, fault: Exception) -> None:
        """Keep what the driver says of a failure: what it raises later is only that there is no server."""
        if not isinstance(fault, OSError | nats.errors.Error | TimeoutError):
            log.error("a hint was not taken", exc_info=fault)
        elif not isinstance(fault, nats.errors.NoServersError):
            self._last_error = fault

    async def _wake(self) -> None:
        self._wake_event.set()


def _is_deltas_subject(subject: str) -> bool:
    return subject.startswith(f"{DELTAS_SUBJECT_PREFIX}.")


def parse_urls(address: str) -> tuple[str, ...]:
    """The servers that an address names. Raises ValueError when it is none."""
    urls = tuple(filter(None, (part.strip() for part in address.split(","))))
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("nats", "tls") or not parts.hostname or parts.path.strip("/"):
            raise ValueError("expected an address such as nats://127.0.0.1:4222, or several with commas")
    if not urls:
        raise ValueError("expected an address such as nats://127.0.0.1:4222")
    return urls


def display_url(url: str) -> str:
    """An address as it may be shown: without its password."""
    return urlsplit(url).netloc.rpartition("@")[2]


async def _close_client(client: Client) -> None:
    """Close a connection, even if the other side reads nothing any more.

    The driver's tasks may be closing it at the same time. They then fail because the connection is lost, and must be
    awaited here: nobody else retrieves their exceptions.
    """
    with suppress(OSError, nats.errors.Error, TimeoutError):
        await asyncio.wait_for(client.close(), CLOSE_TIMEOUT_S)
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
