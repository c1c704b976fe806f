"""What clients store for the server: the id of an MCP session, and the ids of a stream's events. Pure.

A session's id is a signed token, so nothing is stored: it is valid on every server of a database and after a restart.
The id of an event is a position in the log, with what is needed to continue the request that it belongs to.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence

import msgspec

from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import RunId, UserId, parse_session_id
from dragoman.core.stream import Cursor
from dragoman.protocols.kit.json_rpc import RequestId
from dragoman.protocols.mcp.wire import OLD_VERSIONS, Client

LIFETIME_S = 30 * 24 * 3600
_NONCE_BYTES = 16
_MAC_BYTES = 16
_PAYLOAD_BYTES = 1 + 1 + 5 + _NONCE_BYTES


class SessionTokens:
    """Makes session ids with the first of the keys, and reads those of all."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = [hashlib.sha256(b"mcp session\n" + key).digest() for key in keys]

    def make(self, owner: UserId, version: str, has_forms: bool, now_s: int, nonce: bytes) -> str:
        """The id of a new session.

        Args:
            owner: the user.
            version: the negotiated version.
            has_forms: whether the client shows forms.
            now_s: seconds since 1970.
            nonce: 16 random bytes.
        """
        payload = bytes((OLD_VERSIONS.index(version), has_forms)) + now_s.to_bytes(5) + nonce
        return _encode(payload + _mac(self._keys[0], payload, owner))

    def read(self, token: str, owner: UserId, now_s: int) -> Client | None:
        """Read a session's id; None if it is not one of the owner's, or too old."""
        raw = _decode(token)
        if raw is None or len(raw) != _PAYLOAD_BYTES + _MAC_BYTES:
            return None
        payload, mac = raw[:_PAYLOAD_BYTES], raw[_PAYLOAD_BYTES:]
        is_known = any(hmac.compare_digest(mac, _mac(key, payload, owner)) for key in self._keys)
        if not is_known or now_s - int.from_bytes(payload[2:7]) > LIFETIME_S:
            return None
        return Client(OLD_VERSIONS[payload[0]], has_forms=bool(payload[1]), session=payload[7:].hex())


def _mac(key: bytes, payload: bytes, owner: UserId) -> bytes:
    return hmac.new(key, payload + owner.encode(), hashlib.sha256).digest()[:_MAC_BYTES]


class EventPosition(msgspec.Struct, frozen=True, array_like=True):
    """The position of a stream's event: the run that began the turn, and the request that is answered."""

    run_id: str
    seq: int
    pieces: int
    request_id: RequestId
    token: RequestId | None = None


class EventIds:
    """Makes the event ids of one request's stream."""

    def __init__(self, run_id: RunId, request_id: RequestId, token: RequestId | None) -> None:
        self._head = b'["%b",' % run_id.encode()
        self._tail = b",%b,%b]" % (msgspec.json.encode(request_id), msgspec.json.encode(token))

    def at(self, cursor: Cursor) -> bytes:
        """The id of an event after a position, as a line of the stream."""
        return b"id: %b\n" % urlsafe_b64encode(b"%b%d,%d%b" % (self._head, *cursor, self._tail)).rstrip(b"=")


_POSITION = msgspec.json.Decoder(EventPosition)


def parse_event_id(event_id: str) -> EventPosition | None:
    """Read an event's id; None if it is none of ours."""
    raw = _decode(event_id)
    try:
        position = None if raw is None else _POSITION.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return position if position is not None and parse_session_id(position.run_id) == position.run_id else None


class RequestState(msgspec.Struct, frozen=True, array_like=True):
    """What a client of the new version sends back with answers: the run that began the turn, and a digest of the call.

    It is not signed: it names a run that only its owner finds, and answers only what waits there. `asked_again`: the
    user has once sent a form without an answer.
    """

    run_id: str
    digest: str
    asked_again: bool = False

    def encode(self) -> str:
        """The state as text."""
        return _encode(msgspec.json.encode(self))


_STATE = msgspec.json.Decoder(RequestState)


def parse_request_state(text: Json) -> RequestState | None:
    """Read a state; None if it is none of ours."""
    raw = _decode(text) if isinstance(text, str) else None
    try:
        return None if raw is None else _STATE.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def request_digest(params: JsonObject) -> str:
    """A digest of a call: its tool and its arguments."""
    call = [params.get("name"), params.get("arguments")]
    return hashlib.sha256(msgspec.json.encode(call, order="sorted")).hexdigest()[:32]


def _encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes | None:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
