"""Relays deltas to the servers whose readers follow a session, over a bus that carries users' text.

    subscribing server    announces every second which sessions it follows, and its address
    committing server     sends what became durable to those addresses, with the position that it follows

The relay is an optimization only. A subscriber applies an update that continues its position and reads the log
otherwise, so gaps and repeats are detected and losses are repaired by the next read.
"""

import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec
import structlog

from dragoman.core.events import LoggedEvent
from dragoman.core.ids import SessionId
from dragoman.core.stream import Cursor, Piece, Record, cursor_of
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.ports.bus import DELTAS_SUBJECT_PREFIX, MAX_DELTAS_BYTES, MAX_HINT_BYTES, Bus
from dragoman.ports.log import Append

SUBSCRIBE_SUBJECT = "follows"
"""Subject of announcements: the deltas group, the subscriber's address, session ids."""
SUBSCRIBE_INTERVAL_S = 1.0
"""How often subscriptions are announced."""
SUBSCRIPTION_TTL_S = 3.0
"""How long an announcement is valid."""


class Update(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a commit added to a session after a position, and the session's status after it."""

    session_id: SessionId
    seq: int
    piece_number: int
    node_id: str
    is_running: bool
    pieces: list[Piece]
    events: list[LoggedEvent]

    @property
    def after(self) -> Cursor:
        """The position that the records follow."""
        return Cursor(self.seq, self.piece_number)

    def records(self) -> list[Record]:
        """All records of the commit, in order."""
        if not self.events:
            return list(self.pieces)
        return sorted([*self.pieces, *self.events], key=cursor_of)


log = structlog.get_logger(__name__)
_UPDATES: msgspec.json.Decoder[list[Update]] = msgspec.json.Decoder(list[Update])
_encode = msgspec.json.Encoder().encode


def decode_updates(payload: str) -> Sequence[Update]:
    """Decode a server's updates. Returns none if this release does not understand them."""
    with suppress(msgspec.DecodeError):
        return _UPDATES.decode(payload)
    return ()


class Subscriber:
    """Keeps the records of one session's last commit for the servers that follow the session."""

    __slots__ = ("_position", "_previous_position", "_records", "expiry_by_address", "live")

    def __init__(self, live: LiveSession) -> None:
        self.live = live
        self.expiry_by_address: dict[str, float] = {}
        """When each address expires, by the monotonic clock."""
        self._previous_position = self._position = live.durable_cursor
        self._records: Sequence[Record] = ()
        live.replay_buffer.add_follower(self)

    def receive(self, records: Sequence[Record]) -> None:
        """Take the next records."""
        self._previous_position, self._position, self._records = self._position, self.live.durable_cursor, records

    def wake(self) -> None:
        """Do nothing: everything durable has been received."""

    def encode_update(self, append: Append, node: str) -> bytes | None:
        """Encode what a commit added. None: the commit was refused, or the update is too large to send."""
        records, self._records = self._records, ()
        if not records:
            return None
        pieces: list[Piece] = []
        events: list[LoggedEvent] = []
        for record in records:
            if type(record) is Piece:
                pieces.append(record)
            elif type(record) is LoggedEvent:
                events.append(record)
        share = _encode(Update(append.session_id, *self._previous_position, node, append.head is None, pieces, events))
        return share if len(share) < MAX_DELTAS_BYTES else None


class DeltaRelay:
    """Both sides for one server: `announce` subscribes it to sessions, `send` serves the subscribers.

    Args:
        bus: carries the updates, unless it cannot carry users' text.
        sessions: the sessions in memory.
        address: this server's unique address.
    """

    def __init__(self, bus: Bus, sessions: SessionRegistry, address: str) -> None:
        self._bus = bus
        self._sessions = sessions
        self._address = address
        self._subscribers: dict[SessionId, Subscriber] = {}
        self._next_announcement_at = 0.0

    @property
    def subject(self) -> str:
        """The subject on which this server receives updates."""
        return f"{DELTAS_SUBJECT_PREFIX}.{self._address}"

    def announce(self, session_ids: Sequence[SessionId]) -> None:
        """Announce which sessions are read here, if an announcement is due."""
        now = time.monotonic()
        if self._bus.deltas_group is None or now < self._next_announcement_at or not session_ids:
            return
        self._next_announcement_at = now + SUBSCRIBE_INTERVAL_S
        head = f"{self._bus.deltas_group} {self._address}"
        at_once = (MAX_HINT_BYTES - len(head)) // (max(map(len, session_ids)) + 1)
        for start in range(0, len(session_ids), at_once):
            self._bus.publish(SUBSCRIBE_SUBJECT, " ".join([head, *session_ids[start : start + at_once]]))

    def on_subscribe(self, payload: str) -> None:
        """Handle the announcement of another server."""
        words, _, rest = payload.partition(" ")
        address, *session_ids = rest.split(" ")
        if not session_ids:
            log.debug("invalid hint", subject=SUBSCRIBE_SUBJECT, length=len(payload))
            return
        if words != self._bus.deltas_group or address == self._address:
            return
        until = time.monotonic() + SUBSCRIPTION_TTL_S
        for each in session_ids:
            live = self._sessions.get_loaded(SessionId(each))
            if live is None:
                continue
            subscriber = self._subscribers.get(live.state.session_id)
            if subscriber is None or subscriber.live is not live:  # that session object has been unloaded meanwhile
                subscriber = self._subscribers[live.state.session_id] = Subscriber(live)
            subscriber.expiry_by_address[address] = until

    def drop_expired(self) -> None:
        """Drop subscribers whose announcement has expired."""
        now = time.monotonic()
        for session_id, subscriber in list(self._subscribers.items()):
            subscriber.expiry_by_address = {
                address: until for address, until in subscriber.expiry_by_address.items() if until > now
            }
            if not subscriber.expiry_by_address:
                subscriber.live.replay_buffer.remove_follower(subscriber)
                del self._subscribers[session_id]

    def send(self, batch: Sequence[Append], node: str) -> list[SessionId]:
        """Send a commit to its subscribers. Returns the sessions for which nothing was sent."""
        if not self._subscribers:
            return [append.session_id for append in batch]
        left: list[SessionId] = []
        updates_by_address: dict[str, list[bytes]] = {}
        for append in batch:
            subscriber = self._subscribers.get(append.session_id)
            update = None if subscriber is None else subscriber.encode_update(append, node)
            if subscriber is None or update is None:
                left.append(append.session_id)
                continue
            for address in subscriber.expiry_by_address:
                updates_by_address.setdefault(address, []).append(update)
        for address, updates in updates_by_address.items():
            for payload in _batches(updates):
                self._bus.publish(f"{DELTAS_SUBJECT_PREFIX}.{address}", payload)
        return left


def _batches(updates: Sequence[bytes]) -> list[str]:
    """Group updates into lists that are short enough to be sent."""
    batches: list[str] = []
    some: list[bytes] = []
    size = 0
    for update in updates:
        if size + len(update) >= MAX_DELTAS_BYTES:
            batches.append(f"[{b','.join(some).decode()}]")
            some, size = [], 0
        some.append(update)
        size += len(update) + 1
    return [*batches, f"[{b','.join(some).decode()}]"]
