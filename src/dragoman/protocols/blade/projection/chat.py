"""What a chat is to Blade: its beginning, its end and why it ended. Pure. Source: specification, 6.2; rulings, 24."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from dragoman.core import content as core
from dragoman.core.content import JsonObject
from dragoman.core.events import RunStarted, SettingsChange, StopReason
from dragoman.core.run_metadata import NO_METADATA
from dragoman.core.session import SessionState
from dragoman.core.tools import FORK
from dragoman.protocols.blade.wire.chat import Attachment, MemoryRef, ReplayState, public_session_id

CHAT_OUTCOMES: Mapping[StopReason, tuple[str, str | None]] = {
    "end_turn": ("completed", "completed"),
    "tool_use": ("completed", "completed"),
    "max_tokens": ("completed", "completed"),
    "refusal": ("completed", "completed"),
    "max_steps": ("completed", "max_turns"),
    "cancelled": ("interrupted", None),
    "error": ("failed", None),
    "interrupted": ("interrupted", None),
}
"""A chat's status and finish reason (rulings, 24)."""
ANSWER_TEXT = "answer_text"
"""The property of a run under which the door notes what was said along with an answer."""
MODEL_CODES = frozenset({"model_error", "model_unavailable", "context_too_long"})


class Chat:
    """The run that is active, or was last. `first` is the number of its first event."""

    def __init__(self, run_id: str, first: int, started: RunStarted | None, seq: int) -> None:
        self.run_id = run_id
        self.first_number = first
        self.started_seq = seq
        metadata = NO_METADATA if started is None else started.metadata
        self.is_headless = metadata.headless
        self.schema = metadata.output_schema
        text = metadata.protocol.get(ANSWER_TEXT)
        self.answer_text = text if isinstance(text, str) else None
        """What was said along with an answer: it stands in the answer's turn, and has none of its own."""
        self.has_merged_answer_text = False
        """Whether it stands there, and the message is still to come."""
        self.attachments = iter(attachments_from_metadata(metadata.protocol))
        self.memories: list[MemoryRef] | None = None
        self.has_ended = False
        self.ended_at: datetime | None = None


def attachments_from_metadata(metadata: JsonObject) -> list[Attachment]:
    """What the door noted about the attachments of a run's input."""
    try:
        return msgspec.convert(metadata.get("attachments", []), list[Attachment])
    except msgspec.ValidationError:
        return []


def updated_fields(change: SettingsChange, state: SessionState) -> JsonObject:
    """The changed fields of a session, by Blade's names.

    Args:
        change: what changed.
        state: the session afterwards.
    """
    named = {
        "intent": change.title,
        "model": change.model,
        "is_pinned": change.pinned,
        "shared": change.shared,
        "memory_enabled": change.memory_enabled,
        "replay_state": None if change.replay is None else replay_state_of(state),
    }
    return {name: value for name, value in named.items() if value is not None}


def replay_state_of(state: SessionState) -> ReplayState | None:
    """How far a session is that shows a recording."""
    replay = state.settings.replay
    if replay is None:
        return None
    status: Literal["replaying", "waiting", "autonomous", "finished"] = "waiting"
    if not replay.is_on:
        status = "autonomous"
    elif state.run is not None:
        status = "replaying"
    elif replay.position >= replay.total:
        status = "finished"
    return ReplayState(
        source_session_id=public_session_id(replay.source),
        status=status,
        speed=replay.speed,
        position=replay.position,
        total=replay.total,
    )


def error_code(code: str | None) -> str:
    """The socket's word for why a chat failed (specification, section 15)."""
    if code in MODEL_CODES:
        return "model_error"
    return "tool_error" if code == "tool_error" else "internal"


def saved_ratio(before: int, after: int) -> float:
    """How much a compaction saved, to 4 digits."""
    return round(1 - after / before, 4) if before else 0.0


def fork_description(call: core.Call) -> str | None:
    """What a sub-agent was asked to do, in a few words."""
    if call.name != FORK:
        return None
    words = call.input.get("description") or call.input.get("agent")
    return words if isinstance(words, str) else None
