"""Blade's events as they go out: numbered in the order of their making, encoded once for all readers. Pure."""

from typing import NamedTuple

import msgspec

from dragoman.core.content import JsonObject
from dragoman.protocols.blade.projection.turns import PatchContent, TurnBuilder
from dragoman.protocols.blade.wire import chat

_ENCODER = msgspec.json.Encoder()


class OutgoingEvent(NamedTuple):
    """An event of the server's. `number` is its `stream_sequence`, `payload` its JSON.

    One that repeats others, in a snapshot, has the number 0. `to_viewers` is the payload for those who only read the
    session, where it is another: what is remembered belongs to its owner.
    """

    name: str
    number: int
    payload: bytes
    viewer_payload: bytes | None = None

    def for_viewers(self) -> "OutgoingEvent":
        """The event without what is the owner's alone."""
        return self if self.viewer_payload is None else OutgoingEvent(self.name, self.number, self.viewer_payload)


class Emitter:
    """Makes a session's events.

    Args:
        session_id: the session's id for clients.
    """

    def __init__(self, session_id: str) -> None:
        self.number = 0
        """The number of the last event."""
        self.is_quiet = False
        """Whether events are only counted."""
        self.payload_prefix = _ENCODER.encode({"session_id": session_id})[:-1]
        """Begins every payload."""
        self._session_id = session_id
        self._events: list[OutgoingEvent] = []

    def take_events(self) -> list[OutgoingEvent]:
        """What was made since the last time."""
        made, self._events = self._events, []
        return made

    def emit_patch(self, builder: TurnBuilder, change: PatchContent, run_id: str | None) -> None:
        """A change of a turn."""
        builder.patch_count += 1
        self.number += 1
        if self.is_quiet:
            return
        turn = builder.turn
        kind, data = change
        patch = chat.Patch(
            self._session_id,
            builder.patch_count,
            turn.turn_id,
            turn.loop_id,
            kind,  # type: ignore[arg-type]  # one of the five
            data,
            self.number,
            run_id,
        )
        self._events.append(OutgoingEvent("turn:patch", self.number, _ENCODER.encode(patch)))

    def emit_event(
        self, name: str, payload: JsonObject, run_id: str | None, viewer_payload: JsonObject | None = None
    ) -> None:
        """An event of the session, or of the chat that goes on."""
        self.number += 1
        if not self.is_quiet:
            others = None if viewer_payload is None else self._encode_payload(viewer_payload, run_id)
            self._events.append(OutgoingEvent(name, self.number, self._encode_payload(payload, run_id), others))

    def emit_turn(self, name: str, builder: TurnBuilder) -> None:
        """A whole turn."""
        self.number += 1
        if not self.is_quiet:
            self._events.append(self.make_turn_event(name, builder, self.number))

    def make_turn_event(self, name: str, builder: TurnBuilder, number: int) -> OutgoingEvent:
        """The event of a whole turn; with the number 0 it repeats another."""
        turn = builder.turn
        head = self.payload_prefix + b',"patch_sequence":%d,' % builder.patch_count
        if number:
            head += b'"stream_sequence":%d,' % number
        others = None
        if turn.memory_refs is not None:
            others = head + _ENCODER.encode(msgspec.structs.replace(turn, memory_refs=None))[1:]
        return OutgoingEvent(name, number, head + _ENCODER.encode(turn)[1:], others)

    def make_sync_event(self, builder: TurnBuilder) -> OutgoingEvent:
        """A turn that grows, as a patch that repeats it whole."""
        turn = builder.turn
        told: JsonObject = {
            "session_id": self._session_id,
            "sequence": builder.patch_count,
            "turn_id": turn.turn_id,
            "loop_id": turn.loop_id,
            "patch_type": "sync",
            "chat_run_id": turn.chat_run_id,
        }
        hidden = {"turn": msgspec.structs.replace(turn, memory_refs=None)}
        others = None if turn.memory_refs is None else _ENCODER.encode({**told, "data": hidden})
        return OutgoingEvent("turn:patch", 0, _ENCODER.encode({**told, "data": {"turn": turn}}), others)

    def make_snapshot_start(self, run_id: str) -> OutgoingEvent:
        """The beginning of the chat that goes on, for who comes later."""
        return OutgoingEvent("chat:start", 0, self.payload_prefix + b',"chat_run_id":' + _ENCODER.encode(run_id) + b"}")

    def _encode_payload(self, fields: JsonObject, run_id: str | None) -> bytes:
        payload = {"session_id": self._session_id, **fields, "stream_sequence": self.number}
        if run_id is not None:
            payload["chat_run_id"] = run_id
        return _ENCODER.encode(payload)
