"""Words of runs on their way to servers where somebody reads them, over a bus that carries words.

    who reads      says each second which sessions it follows, and at which address it hears
    who commits    sends there what became durable, with the position behind which it comes

Nothing hangs on it. What comes fits the position that a follower has reached, or it is looked up in the log: a gap
shows itself, a repeat is known, and what is lost is found by the next look.
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
"""The subject on which is said who follows what: who can read what is sent, the address, ids of sessions."""
SUBSCRIBE_INTERVAL_S = 1.0
"""How often that is said."""
SUBSCRIPTION_TTL_S = 3.0
"""For how long it holds."""


class Update(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a commit added to a session behind a position, and how it left it; see `ports.News`."""

    session_id: SessionId
    seq: int
    piece_number: int
    node_id: str
    is_running: bool
    pieces: list[Piece]
    events: list[LoggedEvent]

    @property
    def after(self) -> Cursor:
        """The position behind which it comes."""
        return Cursor(self.seq, self.piece_number)

    def records(self) -> list[Record]:
        """All of it, in order."""
        if not self.events:
            return list(self.pieces)
        return sorted([*self.pieces, *self.events], key=cursor_of)


log = structlog.get_logger(__name__)
_UPDATES: msgspec.json.Decoder[list[Update]] = msgspec.json.Decoder(list[Update])
_encode = msgspec.json.Encoder().encode


def decode_updates(payload: str) -> Sequence[Update]:
    """What a server sent; nothing, when this release does not understand it."""
    with suppress(msgspec.DecodeError):
        return _UPDATES.decode(payload)
    return ()


class Subscriber:
    """Keeps what the last commit added to one session, for those servers that follow it."""

    __slots__ = ("_position", "_previous_position", "_records", "expiry_by_address", "live")

    def __init__(self, live: LiveSession) -> None:
        self.live = live
        self.expiry_by_address: dict[str, float] = {}
        """The addresses, and until when by the monotonic clock."""
        self._previous_position = self._position = live.durable_cursor
        self._records: Sequence[Record] = ()
        live.replay_buffer.add_follower(self)

    def receive(self, records: Sequence[Record]) -> None:
        """See `live.Follower`."""
        self._previous_position, self._position, self._records = self._position, self.live.durable_cursor, records

    def wake(self) -> None:
        """See `live.Follower`. What was durable is told already."""

    def encode_update(self, append: Append, node: str) -> bytes | None:
        """What a commit added, written; None: it was refused, or is too much to be carried."""
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
    """Both sides of it for one server: `follow` says what is read here, `send` serves those who said so."""

    def __init__(self, bus: Bus, sessions: SessionRegistry, address: str) -> None:
        """Args:
        bus: the way there. One that carries no words is never used.
        sessions: those in memory.
        address: this server's own, which no other one has.
        """
        self._bus = bus
        self._sessions = sessions
        self._address = address
        self._subscribers: dict[SessionId, Subscriber] = {}
        self._next_announcement_at = 0.0

    @property
    def subject(self) -> str:
        """Where this server hears what it follows."""
        return f"{DELTAS_SUBJECT_PREFIX}.{self._address}"

    def announce(self, session_ids: Sequence[SessionId]) -> None:
        """Tell the others which sessions are read here, if it is time to."""
        now = time.monotonic()
        if self._bus.deltas_group is None or now < self._next_announcement_at or not session_ids:
            return
        self._next_announcement_at = now + SUBSCRIBE_INTERVAL_S
        head = f"{self._bus.deltas_group} {self._address}"
        at_once = (MAX_HINT_BYTES - len(head)) // (max(map(len, session_ids)) + 1)
        for start in range(0, len(session_ids), at_once):
            self._bus.publish(SUBSCRIBE_SUBJECT, " ".join([head, *session_ids[start : start + at_once]]))

    def on_subscribe(self, payload: str) -> None:
        """Another server follows sessions."""
        words, _, rest = payload.partition(" ")
        address, *session_ids = rest.split(" ")
        if not session_ids:
            log.debug("hint not understood", subject=SUBSCRIBE_SUBJECT, length=len(payload))
            return
        if words != self._bus.deltas_group or address == self._address:
            return
        until = time.monotonic() + SUBSCRIPTION_TTL_S
        for each in session_ids:
            live = self._sessions.get_loaded(SessionId(each))
            if live is None:
                continue
            courier = self._subscribers.get(live.state.session_id)
            if courier is None or courier.live is not live:  # that one has left the memory meanwhile
                courier = self._subscribers[live.state.session_id] = Subscriber(live)
            courier.expiry_by_address[address] = until

    def drop_expired(self) -> None:
        """Serve those no more who have not asked for some time."""
        now = time.monotonic()
        for session_id, courier in list(self._subscribers.items()):
            courier.expiry_by_address = {
                address: until for address, until in courier.expiry_by_address.items() if until > now
            }
            if not courier.expiry_by_address:
                courier.live.replay_buffer.remove_follower(courier)
                del self._subscribers[session_id]

    def send(self, batch: Sequence[Append], node: str) -> list[SessionId]:
        """Send what was committed to those who follow it. Returns the sessions that nobody was sent."""
        if not self._subscribers:
            return [append.session_id for append in batch]
        left: list[SessionId] = []
        parcels: dict[str, list[bytes]] = {}
        for append in batch:
            courier = self._subscribers.get(append.session_id)
            share = None if courier is None else courier.encode_update(append, node)
            if courier is None or share is None:
                left.append(append.session_id)
                continue
            for address in courier.expiry_by_address:
                parcels.setdefault(address, []).append(share)
        for address, shares in parcels.items():
            for parcel in _batches(shares):
                self._bus.publish(f"{DELTAS_SUBJECT_PREFIX}.{address}", parcel)
        return left


def _batches(updates: Sequence[bytes]) -> list[str]:
    """Shares as lists that are short enough to be carried."""
    parcels: list[str] = []
    some: list[bytes] = []
    size = 0
    for share in updates:
        if size + len(share) >= MAX_DELTAS_BYTES:
            parcels.append(f"[{b','.join(some).decode()}]")
            some, size = [], 0
        some.append(share)
        size += len(share) + 1
    return [*parcels, f"[{b','.join(some).decode()}]"]
