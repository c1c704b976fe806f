"""Blade's objects on the wire. Pure: no server, no clock, no storage.

What the server writes has every field, absent ones as null; what it reads ignores fields that it does not know,
because clients of other releases send more. Source: seed 003; specification, sections 2, 3 and 6.
"""

import re
from datetime import datetime
from typing import Literal, TypeVar

import msgspec

from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import CallId, LoopId, MessageId, RunId, SessionId, forking_call, parse_session_id
from dragoman.protocols.blade.rest.bodies import to_invalid

SessionStatus = Literal["created", "running", "completed", "failed", "interrupted", "waiting_for_input"]
TurnStatus = Literal["streaming", "completed", "paused", "failed", "interrupted"]
CallStatus = Literal["pending", "done", "error", "cancelled", "awaiting_answer"]
Position = Literal["before", "turn_end"]
Speed = Literal[1, 2, 5]
T = TypeVar("T")

# --- ids: ours with Blade's prefixes ----------------------------------------------------------------------------------

_SESSION_PREFIX = "sess_"
_CALL_PREFIX = "tc_"
_PERMISSION_PREFIX = "perm_"
_RUN_PREFIX = "chat_"
_CHECKPOINT_ID = re.compile(r"cp_([1-9][0-9]{0,14})")


def parse_session_name(text: str) -> str:
    """A session's name as our other protocols have it: Blade shows `sess_` and the UUID, and takes both."""
    bare = text.removeprefix(_SESSION_PREFIX)
    return bare if parse_session_id(bare) is not None else text


def public_session_id(session_id: SessionId) -> str:
    """A session's id for clients."""
    return _SESSION_PREFIX + session_id


def public_call_id(call_id: CallId) -> str:
    """A call's id for clients."""
    return _CALL_PREFIX + call_id


def permission_id(call_id: CallId) -> str:
    """The id of the question that asks whether a call may run."""
    return _PERMISSION_PREFIX + call_id


def is_permission_id(text: str) -> bool:
    """Whether an id is that of such a question."""
    return text.startswith(_PERMISSION_PREFIX)


def parse_call_id(text: str) -> CallId:
    """The call that an answer names, by its own id or by that of the question about it."""
    return CallId(text.removeprefix(_PERMISSION_PREFIX if is_permission_id(text) else _CALL_PREFIX))


def public_loop_id(loop: LoopId) -> str:
    """A loop for clients: `root`, or `fork:` and the call that started it."""
    call_id = forking_call(loop)
    return loop if call_id is None else f"fork:{public_call_id(call_id)}"


def public_run_id(run_id: RunId) -> str:
    """A run for clients, which they call a chat."""
    return _RUN_PREFIX + run_id


def entry_id(message_id: MessageId) -> str:
    """The id of a turn's entry."""
    return f"entry_{message_id}"


def turn_id(message_id: MessageId) -> str:
    """The client's key of a turn."""
    return f"turn_{message_id}"


def checkpoint_id(seq: int) -> str:
    """The checkpoint before the user turn that event `seq` added."""
    return f"cp_{seq}"


def compaction_id(seq: int) -> str:
    """The compaction that event `seq` made."""
    return f"compaction_{seq}"


def parse_checkpoint_id(text: str) -> int:
    """The inverse of `checkpoint_id`; 0 when it is none."""
    found = _CHECKPOINT_ID.fullmatch(text)
    return int(found[1]) if found else 0


# --- what the server writes -------------------------------------------------------------------------------------------


class Attachment(msgspec.Struct, frozen=True):
    """What stands behind a note such as `[image image/png 48 KB]`. `size` is in bytes, 0 where it is not known."""

    kind: Literal["image", "file", "audio", "video", "data"]
    name: str | None
    media_type: str | None
    size: int


class Block(msgspec.Struct):
    """A content block."""

    type: str
    content: Json
    tool_call_id: str | None = None
    tool_name: str | None = None
    display_name: str | None = None
    attachment: Attachment | msgspec.UnsetType = msgspec.UNSET


class QuestionRef(msgspec.Struct, frozen=True):
    """The question for whose answer a call waits."""

    child_loop_name: str
    child_tool_call_id: str
    description: str | None = None


class ToolCall(msgspec.Struct):
    """A tool call. `arguments` is JSON text."""

    id: str
    tool_name: str
    display_name: str
    arguments: str
    status: CallStatus
    result: Json = None
    duration_ms: int | None = None
    pending_question_ref: QuestionRef | None = None


class TokenUsage(msgspec.Struct, frozen=True):
    """What a model call reported."""

    input_tokens: int
    output_tokens: int


class MemoryRef(msgspec.Struct, frozen=True):
    """A memory that the agent was told of."""

    id: int
    content_preview: str
    skill_name: str | None


class Turn(msgspec.Struct, kw_only=True):
    """A turn projection: one user input, one model call with its calls, or a note of the system."""

    id: str
    sequence: int
    turn_id: str
    loop_id: str
    kind: Literal["message", "compaction"] = "message"
    role: Literal["user", "assistant", "system"]
    status: TurnStatus = "completed"
    blocks: list[Block] = []
    tool_calls: list[ToolCall] = []
    model: str | None = None
    usage: TokenUsage | None = None
    duration_ms: int = 0
    started_at: datetime | None
    context_window: int = 0
    memory_refs: list[MemoryRef] | None = None
    parent_fork_tool_call_id: str | None = None
    compaction_id: str | None = None
    summary_preview: str | None = None
    summary_full: str | None = None
    archived_count: int | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    saved_ratio: float | None = None
    trigger: Literal["auto", "manual", "forced_retry"] | None = None
    failure_reason: str | None = None
    deprecated: bool = False
    archived: bool = False
    chat_run_id: str | None = None


class Patch(msgspec.Struct, frozen=True):
    """A patch envelope."""

    session_id: str
    sequence: int
    turn_id: str
    loop_id: str
    patch_type: Literal["add_content", "add_tool_call", "tool_result", "set_status", "set_tool_status"]
    data: JsonObject
    stream_sequence: int
    chat_run_id: str | None


class ReplayState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a session is that shows a recording. `position` counts the user's turns that were begun, of `total`."""

    source_session_id: str
    status: Literal["replaying", "waiting", "autonomous", "finished"]
    speed: Speed
    position: int
    total: int


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session in a list."""

    id: str
    intent: str
    status: SessionStatus
    created_at: datetime
    updated_at: datetime
    user_id: str
    solution_id: str | None
    biz_role_id: str | None
    model: str | None
    shared: bool
    is_pinned: bool
    memory_enabled: bool
    is_persistent: bool
    replay_state: ReplayState | None = None


class SessionSetup(msgspec.Struct, frozen=True):
    """How a session was set up."""

    mode: str
    disable_tools: list[str]


class SessionDetail(Session, frozen=True, kw_only=True):
    """A session by itself. Only its owner sees `env`."""

    solution: JsonObject | None
    primary_skill_snapshot: None = None
    session_setup: SessionSetup
    viewer_role: Literal["owner", "viewer"]
    env: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


# --- what clients send over the socket --------------------------------------------------------------------------------


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """Words."""

    text: str


class ImageUrl(msgspec.Struct, frozen=True):
    """Where an image is: a data or http URL."""

    url: str


class ImagePart(msgspec.Struct, frozen=True, tag="image_url"):
    """An image."""

    image_url: ImageUrl


class FilePart(msgspec.Struct, frozen=True, tag="file"):
    """A file, base64."""

    name: str
    data: str


class AskUserAnswer(msgspec.Struct, frozen=True):
    """The answer to a question, or to a permission request. Keys are question numbers."""

    tool_call_id: str
    selections: dict[str, list[int]] | None = None
    custom: dict[str, str] | None = None


class Quote(msgspec.Struct, frozen=True):
    """Text that a what-if quotes."""

    text: str
    entry_id: str | None = None


class WhatIf(msgspec.Struct, frozen=True):
    """Another course of the conversation."""

    from_step: int
    quotes: tuple[Quote, ...] | None = None
    deprecate_entry_ids: tuple[str, ...] | None = None


class ChatSend(msgspec.Struct, frozen=True, kw_only=True):
    """`chat:send`."""

    session_id: str
    message: str | tuple[TextPart | ImagePart | FilePart, ...]
    mode: Literal["planning", "executing"] | None = None
    askuser_answer: AskUserAnswer | None = None
    model: str | None = None
    headless: bool | None = None
    output_schema: Json = None
    whatif: WhatIf | None = None
    replay_decision: Literal["keep_replay", "continue_replay"] | None = None
    runtime_env: dict[str, str] | None = None


class Subscribe(msgspec.Struct, frozen=True, kw_only=True):
    """`session:subscribe`."""

    session_id: str
    after_sequence: int | None = None
    resume: bool | None = None
    event_format: Literal["raw"] | None = None


class SessionCommand(msgspec.Struct, frozen=True, kw_only=True):
    """`session:unsubscribe`, `chat:compact`."""

    session_id: str


class ChatStop(SessionCommand, frozen=True, kw_only=True):
    """`chat:stop`."""

    chat_run_id: str | None = None


def read_event(kind: type[T], data: Json) -> T:
    """Read an event's payload.

    Raises:
        Invalid: it is not of that shape.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise to_invalid(error) from error
