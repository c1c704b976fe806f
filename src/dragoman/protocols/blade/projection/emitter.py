"""Blade's events as they are sent, and the chat that they belong to. Pure.

Events are numbered in the order of their making, and encoded once for all readers.
"""

from datetime import datetime
from typing import NamedTuple

import msgspec

from dragoman.core.content import JsonObject
from dragoman.core.json_memory import JsonEncoder
from dragoman.core.run_metadata import RunMetadata
from dragoman.protocols.blade.wire.chat import Attachment, MemoryRef, Patch, Turn

ANSWER_TEXT = "answer_text"
"""The run's metadata that holds the text sent together with an answer."""
_ENCODER = JsonEncoder()


class Chat:
    """A run, or an answer that starts none. Its first event has `first_number` here and `started_seq` in the log."""

    def __init__(self, run_id: str, first_number: int, started_seq: int, metadata: RunMetadata) -> None:
        self.run_id = run_id
        self.first_number = first_number
        self.started_seq = started_seq
        self.is_headless = metadata.headless
        self.schema = metadata.output_schema
        text = metadata.protocol.get(ANSWER_TEXT)
        self.answer_text = text if isinstance(text, str) else None
        """The text sent together with an answer. It is shown in the answer's turn, not in a separate one."""
        self.has_merged_answer_text = False
        """Whether that text is shown, and its message is still to come."""
        try:
            attachments = msgspec.convert(metadata.protocol.get("attachments", []), list[Attachment])
        except msgspec.ValidationError:
            attachments = []
        self.attachments = iter(attachments)
        """What is known of the attachments of its input that are still to come."""
        self.memories: list[MemoryRef] | None = None
        self.ended_at: datetime | None = None


class PatchOptions(NamedTuple):
    """How growing turns are sent to sockets.

    Attributes:
        repeats_content: every patch of a text contains all of it so far. If not, only some of a long text do.
        sync_interval_s: how often growing turns are also sent whole, as `sync` patches; 0 for never.
    """

    repeats_content: bool = False
    sync_interval_s: float = 0.0


class OutgoingEvent(NamedTuple):
    """An event of the server.

    Attributes:
        name: the event's name.
        number: its `stream_sequence`; 0 if it repeats others, as in a snapshot.
        payload: its JSON.
        viewer_payload: what viewers of a shared session get instead, because memories are only for the owner.
    """

    name: str
    number: int
    payload: bytes
    viewer_payload: bytes | None = None

    def for_viewers(self) -> "OutgoingEvent":
        """Return the event as viewers get it."""
        return self if self.viewer_payload is None else OutgoingEvent(self.name, self.number, self.viewer_payload)


class Emitter:
    """Makes the events of a session, whose id is `session_id` for clients."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.chat: Chat | None = None
        """The chat that runs, or ran last."""
        self.number = 0
        """The number of the last event."""
        self.is_quiet = False
        """Whether events are counted but not made."""
        self.repeats_content = False
        """Whether every patch of a growing text contains all of it so far."""
        self.payload_prefix = _ENCODER.encode({"session_id": session_id})[:-1]
        """The beginning of every payload."""
        self._events: list[OutgoingEvent] = []

    @property
    def running_chat(self) -> Chat | None:
        """The chat that runs; None between chats."""
        return None if self.chat is None or self.chat.ended_at is not None else self.chat

    def take_events(self) -> list[OutgoingEvent]:
        """Return the events made since the last call."""
        events, self._events = self._events, []
        return events

    def emit(self, name: str, fields: JsonObject, viewer_fields: JsonObject | None = None) -> None:
        """Emit an event of the session, or of the chat that runs."""
        self.number += 1
        if not self.is_quiet:
            for_viewers = None if viewer_fields is None else self._encode_payload(viewer_fields)
            self._events.append(OutgoingEvent(name, self.number, self._encode_payload(fields), for_viewers))

    def _encode_payload(self, fields: JsonObject) -> bytes:
        payload = {"session_id": self.session_id, **fields, "stream_sequence": self.number}
        if (chat := self.running_chat) is not None:
            payload["chat_run_id"] = chat.run_id
        return _ENCODER.encode(payload)

    def emit_patch(self, turn: Turn, sequence: int, patch_type: str, data: JsonObject) -> None:
        """Emit a change of a turn; `sequence` counts the turn's patches."""
        self.number += 1
        if not self.is_quiet:
            run_id = None if self.chat is None else self.chat.run_id
            text = data.get("content", data["text_delta"]) if "text_delta" in data else None
            patch = Patch(self.session_id, sequence, turn.turn_id, turn.loop_id, patch_type, data, self.number, run_id)
            self._events.append(OutgoingEvent("turn:patch", self.number, _ENCODER.encode(patch, text)))

    def emit_turn(self, name: str, turn: Turn, patch_count: int) -> None:
        """Emit a whole turn."""
        self.number += 1
        if not self.is_quiet:
            self._events.append(self.make_turn_event(name, turn, patch_count, self.number))

    def make_turn_event(self, name: str, turn: Turn, patch_count: int, number: int = 0) -> OutgoingEvent:
        """Return an event with a whole turn; without a number it repeats another one."""
        head = self.payload_prefix + b',"patch_sequence":%d,' % patch_count
        if number:
            head += b'"stream_sequence":%d,' % number
        for_viewers = None
        if turn.memory_refs is not None:
            for_viewers = head + _ENCODER.encode(msgspec.structs.replace(turn, memory_refs=None))[1:]
        return OutgoingEvent(name, number, head + _ENCODER.encode(turn)[1:], for_viewers)

    def make_sync_event(self, turn: Turn, patch_count: int) -> OutgoingEvent:
        """Return a `sync` patch, which repeats a growing turn whole."""
        key = (self.session_id, patch_count, turn.turn_id, turn.loop_id, "sync")
        payloads = [
            _ENCODER.encode(Patch(*key, {"turn": each}, msgspec.UNSET, turn.chat_run_id))
            for each in (turn, msgspec.structs.replace(turn, memory_refs=None))
        ]
        return OutgoingEvent("turn:patch", 0, payloads[0], None if turn.memory_refs is None else payloads[1])

    def make_snapshot_start(self, run_id: str) -> OutgoingEvent:
        """Return the beginning of the chat that runs, for a reader who joins later."""
        return OutgoingEvent("chat:start", 0, self.payload_prefix + b',"chat_run_id":' + _ENCODER.encode(run_id) + b"}")
