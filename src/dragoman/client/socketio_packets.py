"""Encodes and decodes Socket.IO packets on a WebSocket. Pure.

Source: Engine.IO protocol 4, Socket.IO protocol 5; the default namespace, without binary attachments.
"""

from typing import Literal, NamedTuple

import msgspec

from dragoman.client.errors import InvalidResponse
from dragoman.core.content import Json

PATH = "/socket.io/?EIO=4&transport=websocket"
PONG = "3"

PacketKind = Literal["open", "connected", "refused", "ping", "event", "ack", "closed", "other"]


class Packet(NamedTuple):
    """A decoded packet. For an event, `name` is its name and `body` its payload."""

    kind: PacketKind
    body: Json = None
    ack_id: int = -1
    name: str = ""


def encode_connect(auth: Json) -> str:
    """Encode the packet that connects and authenticates."""
    return "40" + _encode_json(auth)


def encode_event(name: str, payload: Json, ack_id: int) -> str:
    """Encode an event that asks for an acknowledgement."""
    return f"42{ack_id}{_encode_json([name, payload])}"


def decode_packet(text: str) -> Packet:
    """Decode a WebSocket message. Raises InvalidResponse."""
    match text[:2], text[:1]:
        case _, "0":
            return Packet("open", _decode_json(text[1:]))
        case _, "2":
            return Packet("ping")
        case _, "1":
            return Packet("closed")
        case "40", _:
            return Packet("connected")
        case "41", _:
            return Packet("closed")
        case "44", _:
            return Packet("refused", _decode_json(text[2:] or "null"))
        case (("42" | "43"), _):
            digits = text[2 : 2 + next((index for index, each in enumerate(text[2:]) if each not in "0123456789"), 0)]
            values = _decode_json(text[2 + len(digits) :])
            if not isinstance(values, list) or not values:
                raise InvalidResponse(f"expected a Socket.IO packet, got {text[:80]!r}")
            if text[1] == "3":
                return Packet("ack", values[0], int(digits or -1))
            return Packet("event", values[1] if len(values) > 1 else None, name=str(values[0]))
        case _:
            return Packet("other")


def _encode_json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _decode_json(text: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidResponse(f"expected a Socket.IO packet, got {text[:80]!r}") from error
