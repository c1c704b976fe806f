"""Blade's chats: how one begins and ends, and what sessions report about themselves. Pure.

Source: specification, 6.2; shared rules, 24.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from dragoman.core.content import JsonObject
from dragoman.core.events import RunStopped, SettingsChange, StopReason
from dragoman.core.json_schema import parse_json
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.session import SessionState
from dragoman.protocols.blade.wire.chat import Attachment, MemoryRef, ReplayState, public_session_id


class ChatOutcome(NamedTuple):
    """How a chat ended."""

    status: Literal["completed", "interrupted", "failed"]
    finish_reason: str | None


CHAT_OUTCOMES: Mapping[StopReason, ChatOutcome] = {
    "end_turn": ChatOutcome("completed", "completed"),
    "tool_use": ChatOutcome("completed", "completed"),
    "max_tokens": ChatOutcome("completed", "completed"),
    "refusal": ChatOutcome("completed", "completed"),
    "max_steps": ChatOutcome("completed", "max_turns"),
    "cancelled": ChatOutcome("interrupted", None),
    "error": ChatOutcome("failed", None),
    "interrupted": ChatOutcome("interrupted", None),
}
"""The outcome of a chat for each reason why a run stops (shared rules, 24)."""
ANSWER_TEXT = "answer_text"
"""The run's metadata that holds the text sent together with an answer."""
AGENT_FAILED_MESSAGE = "The agent failed"
MODEL_CODES = frozenset({"model_error", "model_unavailable", "context_too_long"})


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
        self.attachments = attachments_from_metadata(metadata.protocol)
        self.memories: list[MemoryRef] | None = None
        self.ended_at: datetime | None = None

    def headless_result(self, status: str, stopped: RunStopped, text: str) -> JsonObject | None:
        """Return the result of a headless chat whose last turn has this text (specification, 8.6), else None."""
        if not self.is_headless:
            return None
        if status != "completed":
            default = "The chat was stopped" if status == "interrupted" else AGENT_FAILED_MESSAGE
            return {"err_msg": stopped.message or default}
        if self.schema is None:
            return {"output": text, "result": text}
        try:
            output = parse_json(text)
        except ValueError:
            return {"err_msg": "the answer is not JSON"}
        fields = output if isinstance(output, dict) else {}
        extra = {name: value for name, value in fields.items() if name not in ("output", "schema", "err_msg")}
        return {"output": output, "schema": self.schema, **extra}


def attachments_from_metadata(metadata: JsonObject) -> Iterator[Attachment]:
    """Iterate over the attachments of a run's input, as its metadata describes them."""
    try:
        return iter(msgspec.convert(metadata.get("attachments", []), list[Attachment]))
    except msgspec.ValidationError:
        return iter(())


def updated_fields(change: SettingsChange, state: SessionState) -> JsonObject:
    """Return the fields of a session that a change has changed, under Blade's names; `state` is the state after it."""
    fields = {
        "intent": change.title,
        "model": change.model,
        "is_pinned": change.pinned,
        "shared": change.shared,
        "memory_enabled": change.memory_enabled,
        "replay_state": None if change.replay is None else replay_state_of(state),
    }
    return {name: value for name, value in fields.items() if value is not None}


def replay_state_of(state: SessionState) -> ReplayState | None:
    """Return the progress of a replay session; None if it is not one."""
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
    """Return the socket's code for the failure of a chat (specification, section 15)."""
    if code in MODEL_CODES:
        return "model_error"
    return "tool_error" if code == "tool_error" else "internal"


def saved_ratio(before: int, after: int) -> float:
    """Return the share of tokens that a compaction saved, from 0 to 1, rounded to 4 digits."""
    return max(0.0, round(1 - after / before, 4)) if before else 0.0
