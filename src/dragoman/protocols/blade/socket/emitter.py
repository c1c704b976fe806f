"""Blade's events as they go out: numbered in the order of their making, encoded once for all readers. Pure."""

from typing import NamedTuple

import msgspec

from dragoman.core.content import JsonObject
from dragoman.protocols.blade.projection.turns import Change, Growing
from dragoman.protocols.blade.wire import chat

_ENCODER = msgspec.json.Encoder()


class Emitted(NamedTuple):
    """An event of the server's. `number` is its `stream_sequence`, `payload` its JSON.

    One that repeats others, in a snapshot, has the number 0. `to_viewers` is the payload for those who only read the
    session, where it is another: what is remembered belongs to its owner.
    """

    name: str
    number: int
    payload: bytes
    to_viewers: bytes | None = None

    def seen_by_viewers(self) -> "Emitted":
        """The event without what is the owner's alone."""
        return self if self.to_viewers is None else Emitted(self.name, self.number, self.to_viewers)


class Telling:
    """Makes a session's events.

    Args:
        session_id: the session's id for clients.
    """

    def __init__(self, session_id: str) -> None:
        self.number = 0
        """The number of the last event."""
        self.is_quiet = False
        """Whether events are only counted."""
        self.head = _ENCODER.encode({"session_id": session_id})[:-1]
        """Begins every payload."""
        self._session_id = session_id
        self._made: list[Emitted] = []

    def taken(self) -> list[Emitted]:
        """What was made since the last time."""
        made, self._made = self._made, []
        return made

    def patch(self, growing: Growing, change: Change, run_id: str | None) -> None:
        """A change of a turn."""
        growing.patches += 1
        self.number += 1
        if self.is_quiet:
            return
        turn = growing.turn
        kind, data = change
        patch = chat.Patch(
            self._session_id,
            growing.patches,
            turn.turn_id,
            turn.loop_id,
            kind,  # type: ignore[arg-type]  # one of the five
            data,
            self.number,
            run_id,
        )
        self._made.append(Emitted("turn:patch", self.number, _ENCODER.encode(patch)))

    def event(self, name: str, told: JsonObject, run_id: str | None, to_viewers: JsonObject | None = None) -> None:
        """An event of the session, or of the chat that goes on."""
        self.number += 1
        if not self.is_quiet:
            others = None if to_viewers is None else self._payload(to_viewers, run_id)
            self._made.append(Emitted(name, self.number, self._payload(told, run_id), others))

    def turn(self, name: str, growing: Growing) -> None:
        """A whole turn."""
        self.number += 1
        if not self.is_quiet:
            self._made.append(self.turn_event(name, growing, self.number))

    def turn_event(self, name: str, growing: Growing, number: int) -> Emitted:
        """The event of a whole turn; with the number 0 it repeats another."""
        turn = growing.turn
        head = self.head + b',"patch_sequence":%d,' % growing.patches
        if number:
            head += b'"stream_sequence":%d,' % number
        others = None
        if turn.memory_refs is not None:
            others = head + _ENCODER.encode(msgspec.structs.replace(turn, memory_refs=None))[1:]
        return Emitted(name, number, head + _ENCODER.encode(turn)[1:], others)

    def sync_event(self, growing: Growing) -> Emitted:
        """A turn that grows, as a patch that repeats it whole."""
        turn = growing.turn
        told: JsonObject = {
            "session_id": self._session_id,
            "sequence": growing.patches,
            "turn_id": turn.turn_id,
            "loop_id": turn.loop_id,
            "patch_type": "sync",
            "chat_run_id": turn.chat_run_id,
        }
        hidden = {"turn": msgspec.structs.replace(turn, memory_refs=None)}
        others = None if turn.memory_refs is None else _ENCODER.encode({**told, "data": hidden})
        return Emitted("turn:patch", 0, _ENCODER.encode({**told, "data": {"turn": turn}}), others)

    def repeated_start(self, run_id: str) -> Emitted:
        """The beginning of the chat that goes on, for who comes later."""
        return Emitted("chat:start", 0, self.head + b',"chat_run_id":' + _ENCODER.encode(run_id) + b"}")

    def _payload(self, told: JsonObject, run_id: str | None) -> bytes:
        payload = {"session_id": self._session_id, **told, "stream_sequence": self.number}
        if run_id is not None:
            payload["chat_run_id"] = run_id
        return _ENCODER.encode(payload)
