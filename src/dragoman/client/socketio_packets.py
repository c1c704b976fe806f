"""Socket.IO over one WebSocket, as a client speaks it: packets as text. Pure.

Source: Engine.IO protocol 4, Socket.IO protocol 5; the default namespace, without binary attachments.
"""

from typing import Literal, NamedTuple

import msgspec

from dragoman.client.errors import Unreadable
from dragoman.core.content import Json

PATH = "/socket.io/?EIO=4&transport=websocket"
PONG = "3"

Kind = Literal["open", "connected", "refused", "ping", "event", "ack", "closed", "other"]


class Packet(NamedTuple):
    """What came. `body` is what it carries; of an event, its name and its payload."""

    kind: Kind
    body: Json = None
    ack_id: int = -1
    name: str = ""


def connect(auth: Json) -> str:
    """Log in."""
    return "40" + _json(auth)


def emit(name: str, payload: Json, ack_id: int) -> str:
    """Send an event that is to be acknowledged."""
    return f"42{ack_id}{_json([name, payload])}"


def read(text: str) -> Packet:
    """What a message says. Raises Unreadable."""
    match text[:2], text[:1]:
        case _, "0":
            return Packet("open", _value(text[1:]))
        case _, "2":
            return Packet("ping")
        case _, "1":
            return Packet("closed")
        case "40", _:
            return Packet("connected")
        case "41", _:
            return Packet("closed")
        case "44", _:
            return Packet("refused", _value(text[2:] or "null"))
        case (("42" | "43"), _):
            digits = text[2 : 2 + next((place for place, each in enumerate(text[2:]) if not each.isdigit()), 0)]
            values = _value(text[2 + len(digits) :])
            if not isinstance(values, list) or not values:
                raise Unreadable(f"a packet of Socket.IO was expected, got {text[:80]!r}")
            if text[1] == "3":
                return Packet("ack", values[0], int(digits or -1))
            return Packet("event", values[1] if len(values) > 1 else None, name=str(values[0]))
        case _:
            return Packet("other")


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _value(text: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreadable(f"a packet of Socket.IO was expected, got {text[:80]!r}") from error
