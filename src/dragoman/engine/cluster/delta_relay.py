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

from dragoman.core.events import Logged
from dragoman.core.ids import SessionId
from dragoman.core.stream import Cursor, Piece, Record, cursor_of
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import Sessions
from dragoman.ports import PAYLOAD_BYTES, WORDS, WORDS_BYTES, Append, Bus

FOLLOWS = "follows"
"""The subject on which is said who follows what: who can read what is sent, the address, ids of sessions."""
AGAIN_S = 1.0
"""How often that is said."""
WANTED_S = 3.0
"""For how long it holds."""


class Share(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a commit added to a session behind a position, and how it left it; see `ports.News`."""

    session_id: SessionId
    seq: int
    place: int
    node: str
    is_running: bool
    pieces: list[Piece]
    events: list[Logged]

    @property
    def after(self) -> Cursor:
        """The position behind which it comes."""
        return Cursor(self.seq, self.place)

    def records(self) -> list[Record]:
        """All of it, in order."""
        if not self.events:
            return list(self.pieces)
        return sorted([*self.pieces, *self.events], key=cursor_of)


log = structlog.get_logger(__name__)
_SHARES: msgspec.json.Decoder[list[Share]] = msgspec.json.Decoder(list[Share])
_encode = msgspec.json.Encoder().encode


def read(payload: str) -> Sequence[Share]:
    """What a server sent; nothing, when this release does not understand it."""
    with suppress(msgspec.DecodeError):
        return _SHARES.decode(payload)
    return ()


class Courier:
    """Keeps what the last commit added to one session, for those servers that follow it."""

    __slots__ = ("_after", "_at", "_records", "live", "wanted")

    def __init__(self, live: LiveSession) -> None:
        self.live = live
        self.wanted: dict[str, float] = {}
        """The addresses, and until when by the monotonic clock."""
        self._after = self._at = live.durable
        self._records: Sequence[Record] = ()
        live.follow(self)

    def take(self, records: Sequence[Record]) -> None:
        """See `live.Follower`."""
        self._after, self._at, self._records = self._at, self.live.durable, records

    def wake(self) -> None:
        """See `live.Follower`. What was durable is told already."""

    def share(self, append: Append, node: str) -> bytes | None:
        """What a commit added, written; None: it was refused, or is too much to be carried."""
        records, self._records = self._records, ()
        if not records:
            return None
        pieces: list[Piece] = []
        events: list[Logged] = []
        for record in records:
            if type(record) is Piece:
                pieces.append(record)
            elif type(record) is Logged:
                events.append(record)
        share = _encode(Share(append.session_id, *self._after, node, append.head is None, pieces, events))
        return share if len(share) < WORDS_BYTES else None


class Carrying:
    """Both sides of it for one server: `follow` says what is read here, `send` serves those who said so."""

    def __init__(self, bus: Bus, sessions: Sessions, address: str) -> None:
        """Args:
        bus: the way there. One that carries no words is never used.
        sessions: those in memory.
        address: this server's own, which no other one has.
        """
        self._bus = bus
        self._sessions = sessions
        self._address = address
        self._couriers: dict[SessionId, Courier] = {}
        self._due = 0.0

    @property
    def subject(self) -> str:
        """Where this server hears what it follows."""
        return f"{WORDS}.{self._address}"

    def follow(self, session_ids: Sequence[SessionId]) -> None:
        """Tell the others which sessions are read here, if it is time to."""
        now = time.monotonic()
        if self._bus.words is None or now < self._due or not session_ids:
            return
        self._due = now + AGAIN_S
        head = f"{self._bus.words} {self._address}"
        at_once = (PAYLOAD_BYTES - len(head)) // (max(map(len, session_ids)) + 1)
        for start in range(0, len(session_ids), at_once):
            self._bus.publish(FOLLOWS, " ".join([head, *session_ids[start : start + at_once]]))

    def hear(self, payload: str) -> None:
        """Another server follows sessions."""
        words, _, rest = payload.partition(" ")
        address, *session_ids = rest.split(" ")
        if not session_ids:
            log.debug("hint not understood", subject=FOLLOWS, length=len(payload))
            return
        if words != self._bus.words or address == self._address:
            return
        until = time.monotonic() + WANTED_S
        for each in session_ids:
            live = self._sessions.at_hand(SessionId(each))
            if live is None:
                continue
            courier = self._couriers.get(live.state.session_id)
            if courier is None or courier.live is not live:  # that one has left the memory meanwhile
                courier = self._couriers[live.state.session_id] = Courier(live)
            courier.wanted[address] = until

    def forget(self) -> None:
        """Serve those no more who have not asked for some time."""
        now = time.monotonic()
        for session_id, courier in list(self._couriers.items()):
            courier.wanted = {address: until for address, until in courier.wanted.items() if until > now}
            if not courier.wanted:
                courier.live.unfollow(courier)
                del self._couriers[session_id]

    def send(self, batch: Sequence[Append], node: str) -> list[SessionId]:
        """Send what was committed to those who follow it. Returns the sessions that nobody was sent."""
        if not self._couriers:
            return [append.session_id for append in batch]
        left: list[SessionId] = []
        parcels: dict[str, list[bytes]] = {}
        for append in batch:
            courier = self._couriers.get(append.session_id)
            share = None if courier is None else courier.share(append, node)
            if courier is None or share is None:
                left.append(append.session_id)
                continue
            for address in courier.wanted:
                parcels.setdefault(address, []).append(share)
        for address, shares in parcels.items():
            for parcel in _parcels(shares):
                self._bus.publish(f"{WORDS}.{address}", parcel)
        return left


def _parcels(shares: Sequence[bytes]) -> list[str]:
    """Shares as lists that are short enough to be carried."""
    parcels: list[str] = []
    some: list[bytes] = []
    size = 0
    for share in shares:
        if size + len(share) >= WORDS_BYTES:
            parcels.append(f"[{b','.join(some).decode()}]")
            some, size = [], 0
        some.append(share)
        size += len(share) + 1
    return [*parcels, f"[{b','.join(some).decode()}]"]
