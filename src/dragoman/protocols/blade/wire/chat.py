"""Blade's ids and chat objects on the wire. Pure: no server, no clock, no storage.

The server writes every field, absent ones as null. Unknown fields that clients send are ignored, because clients of
other releases send more. Source: seed 003; specification, sections 2, 3 and 6.
"""

import re
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import CallId, LoopId, RunId, SessionId, forking_call, parse_session_id

SessionStatus = Literal["created", "running", "completed", "failed", "interrupted", "waiting_for_input"]
TurnStatus = Literal["streaming", "completed", "paused", "failed", "interrupted"]
CallStatus = Literal["pending", "done", "error", "cancelled", "awaiting_answer"]
Position = Literal["before", "turn_end"]
Speed = Literal[1, 2, 5]
Variables = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=255)], Annotated[str, Meta(max_length=10_000)]],
    Meta(max_length=200),
]
"""Variables of a session or of a chat, by name."""

# --- ids: ours, with Blade's prefixes ---------------------------------------------------------------------------------

_SESSION_PREFIX, _CALL_PREFIX = "sess_", "tc_"
_PERMISSION_PREFIX = re.compile(r"perm(?:[2-9]|[1-9][0-9]+)?_")
_QUESTION_PREFIX = re.compile(r"ask[1-9][0-9]*_")
_CHECKPOINT_ID = re.compile(r"cp_([1-9][0-9]{0,14})")


def public_session_id(session_id: SessionId) -> str:
    """Return a session's id for clients."""
    return _SESSION_PREFIX + session_id


def parse_session_name(text: str) -> str:
    """Return a session's id or name without Blade's prefix; a UUID is accepted with and without it."""
    bare = text.removeprefix(_SESSION_PREFIX)
    return bare if parse_session_id(bare) is not None else text


def public_call_id(call_id: CallId) -> str:
    """Return a call's id for clients."""
    return _CALL_PREFIX + call_id


def permission_id(call_id: CallId, number: int = 1) -> str:
    """Return the id of the question whether a call may run; it may be asked several times, numbered from 1."""
    return f"perm{number if number > 1 else ''}_{call_id}"


def is_permission_id(text: str) -> bool:
    """Return whether an id is that of a question whether a call may run."""
    return _PERMISSION_PREFIX.match(text) is not None


def question_id(call_id: CallId, number: int) -> str:
    """Return the id of a question that a call asks while it runs; a call may ask several, numbered from 1."""
    return f"ask{number}_{call_id}"


def is_about_call(text: str) -> bool:
    """Return whether an id is that of a question about another call."""
    return is_permission_id(text) or _QUESTION_PREFIX.match(text) is not None


def parse_call_id(text: str) -> CallId:
    """Return the call with a public id, which may be that of a question about the call."""
    about = _QUESTION_PREFIX.match(text) or _PERMISSION_PREFIX.match(text)
    return CallId(text.removeprefix(_CALL_PREFIX) if about is None else text[about.end() :])


def parent_call_id(loop: LoopId) -> str | None:
    """Return the id of the call that started a loop, for clients; None for the root."""
    call_id = forking_call(loop)
    return None if call_id is None else public_call_id(call_id)


def public_loop_id(loop: LoopId) -> str:
    """Return a loop's id for clients: `root`, or `fork:` and the call that started it."""
    parent = parent_call_id(loop)
    return loop if parent is None else f"fork:{parent}"


def public_run_id(run_id: RunId) -> str:
    """Return a run's id for clients, which call it a chat."""
    return f"chat_{run_id}"


def parse_run_id(text: str) -> RunId:
    """Return the run of a chat."""
    return RunId(text.removeprefix("chat_"))


def public_turn_id(message_id: str) -> str:
    """Return the id of the turn that a message, or another entry, is shown as."""
    return f"turn_{message_id}"


def checkpoint_id(seq: int) -> str:
    """Return the id of the checkpoint before the user turn that event `seq` added."""
    return f"cp_{seq}"


def parse_checkpoint_id(text: str) -> int:
    """Return the event of a checkpoint's id, or 0 if the text is not such an id."""
    match = _CHECKPOINT_ID.fullmatch(text)
    return int(match[1]) if match else 0


def compaction_id(session_id: str, seq: int) -> str:
    """Return the id of the compaction that event `seq` of a session made; `session_id` is the one for clients."""
    return f"compaction_{session_id}-{seq}"


def answer_run_id(session_id: str, seq: int) -> str:
    """Return the id of the chat that event `seq` of a session, an answer that starts no run, begins and ends."""
    return f"answer_{session_id}-{seq}"


# --- what the server writes -------------------------------------------------------------------------------------------


class Attachment(msgspec.Struct, frozen=True):
    """What a note such as `[image image/png 48 KB]` stands for. `size` is in bytes, or 0 if unknown."""

    kind: Literal["image", "file", "audio", "video", "data"]
    name: str | None
    media_type: str | None
    size: int
    data: JsonObject | msgspec.UnsetType = msgspec.UNSET
    """The content, if it is data."""
    url: str | msgspec.UnsetType = msgspec.UNSET
    """Where the content can be read, if it is not data. A path of this server needs a key, like all of them."""


class Block(msgspec.Struct):
    """A content block."""

    type: str
    content: Json
    tool_call_id: str | None = None
    tool_name: str | None = None
    display_name: str | None = None
    attachment: Attachment | msgspec.UnsetType = msgspec.UNSET


class QuestionRef(msgspec.Struct, frozen=True):
    """The question that a call waits for. `repeat`, an extension: that call may have run already."""

    child_loop_name: str
    child_tool_call_id: str
    description: str | None = None
    repeat: bool | msgspec.UnsetType = msgspec.UNSET


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
    """The tokens that a model call reported."""

    input_tokens: int
    output_tokens: int


class MemoryRef(msgspec.Struct, frozen=True):
    """A memory that was injected into a turn."""

    id: int
    content_preview: str
    skill_name: str | None


class ChatEnd(msgspec.Struct, frozen=True):
    """How a chat without a complete answer ended. The code is the agent's, or that of the run's stop reason."""

    status: Literal["completed", "interrupted", "failed"]
    code: str | None
    message: str | None


class Alternative(msgspec.Struct, frozen=True):
    """A version of a message, and the checkpoint to switch to it."""

    checkpoint_id: str
    turn_id: str


class Turn(msgspec.Struct, kw_only=True):
    """A turn projection: one user input, one model call with its tool calls, or a system note."""

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
    cut: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    """Whether the server crashed during this model step. Its text is not part of the answer: the step is repeated."""
    chat_end: ChatEnd | msgspec.UnsetType = msgspec.UNSET
    alternatives: list[Alternative] | msgspec.UnsetType = msgspec.UNSET
    """All versions of an edited or repeated message, this one included, oldest first."""


class Patch(msgspec.Struct, frozen=True):
    """A patch envelope."""

    session_id: str
    sequence: int
    turn_id: str
    loop_id: str
    patch_type: str
    data: JsonObject
    stream_sequence: int | msgspec.UnsetType
    chat_run_id: str | None


class ReplayState(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a replay session. `position` counts the user turns that have begun, out of `total`."""

    source_session_id: str
    status: Literal["replaying", "waiting", "autonomous", "finished"]
    speed: Speed
    position: int
    total: int


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session, as in a list."""

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
    """The settings a session was created with."""

    mode: str
    disable_tools: list[str]


class SessionDetail(Session, frozen=True, kw_only=True):
    """A session with its details. Only the owner sees `env`."""

    solution: JsonObject | None
    primary_skill_snapshot: None = None
    session_setup: SessionSetup
    viewer_role: Literal["owner", "viewer"]
    env: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


# --- what clients send over the socket --------------------------------------------------------------------------------


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """Text."""

    text: str


class ImageUrl(msgspec.Struct, frozen=True):
    """The data or http URL of an image."""

    url: str


class ImagePart(msgspec.Struct, frozen=True, tag="image_url"):
    """An image."""

    image_url: ImageUrl


class FilePart(msgspec.Struct, frozen=True, tag="file"):
    """A file, encoded as base64."""

    name: str
    data: str


class AskUserAnswer(msgspec.Struct, frozen=True):
    """The answer to a question or a permission request. Keys are question numbers."""

    tool_call_id: str
    selections: dict[str, list[int]] | None = None
    custom: dict[str, str] | None = None


class Quote(msgspec.Struct, frozen=True):
    """A text quoted in a what-if."""

    text: str
    entry_id: str | None = None


class WhatIf(msgspec.Struct, frozen=True):
    """A request to continue the conversation from an earlier point."""

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
    runtime_env: Variables | None = None


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
