"""AAP v3 on the wire: its types as structs, and how bodies are read and written. Pure: no server, no clock, no storage.

Source: seed 001 (the schema); fields keep its names. `null` for an optional field reads as absent and is never written.
"""

from typing import Literal

import msgspec

from dragoman.core.content import JsonObject
from dragoman.protocols.kit.decoding import decode_body
from dragoman.protocols.kit.errors import InvalidBody

VERSION = 3
StreamMode = Literal["delta", "message", "none"]
StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal", "error"]
HistoryType = Literal["full", "compacted"]


class _In(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What clients send: unknown fields are ignored."""


class _Out(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What we send: what is absent is left out."""


# --- content ------------------------------------------------------------------------------------------------------


class TextBlock(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    """Words."""

    text: str


class ThinkingBlock(msgspec.Struct, frozen=True, tag="thinking", tag_field="type"):
    """Reasoning."""

    thinking: str


class ToolUseBlock(msgspec.Struct, frozen=True, tag="tool_use", tag_field="type", rename="camel"):
    """A call."""

    tool_call_id: str
    name: str
    input: JsonObject


class ImageBlock(msgspec.Struct, frozen=True, tag="image", tag_field="type"):
    """A picture."""

    url: str


InputBlock = TextBlock | ImageBlock
AnswerBlock = TextBlock | ThinkingBlock | ToolUseBlock | ImageBlock


# --- messages -----------------------------------------------------------------------------------------------------


class MessageMeta(msgspec.Struct, frozen=True):
    """Our addition to a message: its step was cut off."""

    interrupted: bool


class SystemMessage(msgspec.Struct, frozen=True, tag="system", tag_field="role"):
    """Instructions; only seeds have them."""

    content: str


class UserMessage(msgspec.Struct, frozen=True, tag="user", tag_field="role"):
    """What the user said."""

    content: str | tuple[InputBlock, ...]


class AssistantMessage(msgspec.Struct, frozen=True, tag="assistant", tag_field="role", omit_defaults=True):
    """What the agent said and called."""

    content: str | tuple[AnswerBlock, ...]
    meta: MessageMeta | None = msgspec.field(name="_meta", default=None)


class ToolMessage(msgspec.Struct, frozen=True, tag="tool", tag_field="role", rename="camel"):
    """A call's result."""

    tool_call_id: str
    content: str | tuple[InputBlock, ...]


class ToolPermission(msgspec.Struct, frozen=True, tag="tool_permission", tag_field="role", rename="camel"):
    """The user allows or forbids a call. Never part of a history."""

    tool_call_id: str
    granted: bool
    reason: str | None = None


HistoryMessage = SystemMessage | UserMessage | AssistantMessage | ToolMessage
ApplicationMessage = UserMessage | ToolMessage | ToolPermission


# --- tools, options, agents ---------------------------------------------------------------------------------------


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as declared, by an application or in `/meta`."""

    name: str
    title: str | None = None
    description: str
    parameters: JsonObject


class ServerToolRef(msgspec.Struct, frozen=True, kw_only=True):
    """A server tool that is on. An absent `trust` reads as false."""

    name: str
    trust: bool | None = None


class ServerToolInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server tool that is on, as we show it."""

    name: str
    trust: bool = False


class AgentOption(_Out, frozen=True, kw_only=True):
    """An option as declared in `/meta`."""

    type: Literal["text", "secret", "select"]
    name: str
    title: str | None = None
    description: str | None = None
    options: tuple[str, ...] | None = None
    default: str


PresenceFlags = dict[str, JsonObject]
"""Leaves whose presence is the declaration."""


class Capabilities(_Out, frozen=True, kw_only=True):
    """What an agent lets its clients use."""

    history: PresenceFlags | None = None
    stream: PresenceFlags | None = None
    application: PresenceFlags | None = None
    image: PresenceFlags | None = None


class AgentInfo(_Out, frozen=True, kw_only=True):
    """An agent in `/meta`."""

    name: str
    title: str | None = None
    version: str
    description: str | None = None
    tools: tuple[ToolSpec, ...] | None = None
    options: tuple[AgentOption, ...] | None = None
    capabilities: Capabilities | None = None


class Meta(_Out, frozen=True, kw_only=True):
    """The answer of `GET /meta`. The version stands in every answer: clients refuse another."""

    version: Literal[3]
    agents: tuple[AgentInfo, ...]


# --- requests -----------------------------------------------------------------------------------------------------


class AgentConfig(_In, frozen=True, kw_only=True):
    """What a client sets when it makes a session."""

    name: str
    tools: tuple[ServerToolRef, ...] | None = None
    options: dict[str, str] | None = None


class AgentOverride(_In, frozen=True, kw_only=True):
    """What a client changes with a turn. A name is tolerated when it is the session's own."""

    name: str | None = None
    tools: tuple[ServerToolRef, ...] | None = None
    options: dict[str, str] | None = None


class PostSessions(_In, frozen=True, kw_only=True):
    """The body of `POST /sessions`."""

    agent: AgentConfig
    messages: tuple[HistoryMessage, ...] | None = None
    tools: tuple[ToolSpec, ...] | None = None


class PostTurn(_In, frozen=True, kw_only=True):
    """The body of `POST /sessions/:id/turns`."""

    messages: tuple[ApplicationMessage, ...]
    stream: StreamMode | None = None
    agent: AgentOverride | None = None
    tools: tuple[ToolSpec, ...] | None = None


# --- answers ------------------------------------------------------------------------------------------------------


class PostSessionsResponse(_Out, frozen=True, kw_only=True):
    """The answer of `POST /sessions`."""

    session_id: str


class SessionAgent(_Out, frozen=True, kw_only=True):
    """The agent of a session, secrets redacted."""

    name: str
    tools: tuple[ServerToolInfo, ...] | None = None
    options: dict[str, str] | None = None


class PendingCall(_Out, frozen=True, kw_only=True):
    """Our addition: a call that waits for the application."""

    tool_call_id: str
    name: str
    input: JsonObject
    kind: Literal["client", "permission"]


class SessionMeta(_Out, frozen=True, kw_only=True):
    """Our addition to a session."""

    created_at: str
    updated_at: str
    status: str
    pending: tuple[PendingCall, ...] = ()
    title: str | None = None
    labels: dict[str, str] | None = None


class SessionInfo(_Out, frozen=True, kw_only=True):
    """A session."""

    session_id: str
    agent: SessionAgent
    tools: tuple[ToolSpec, ...] | None = None
    meta: SessionMeta | None = msgspec.field(name="_meta", default=None)


class Sessions(_Out, frozen=True, kw_only=True):
    """A page of sessions. `next` is absent at the end."""

    sessions: tuple[SessionInfo, ...]
    next: str | None = None


class History(_Out, frozen=True, kw_only=True):
    """The answer of `GET /sessions/:id/history`: only the kind that was asked for."""

    history: dict[HistoryType, tuple[HistoryMessage, ...]]


class Usage(_Out, frozen=True, kw_only=True):
    """Tokens."""

    input_tokens: int
    output_tokens: int


class Problem(_Out, frozen=True, kw_only=True):
    """Why a turn ended with `error`."""

    code: str
    message: str


class TurnMeta(_Out, frozen=True, kw_only=True):
    """Our addition to a turn's end."""

    turn_id: str | None = None
    usage: Usage | None = None
    error: Problem | None = None


class TurnResponse(_Out, frozen=True, kw_only=True):
    """The answer of a turn in `none` mode."""

    stop_reason: StopReason
    messages: tuple[AssistantMessage | ToolMessage, ...]
    meta: TurnMeta | None = msgspec.field(name="_meta", default=None)


class StopResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Our addition: the answer of `POST /sessions/:id/stop`. False: nothing was running."""

    stopped: bool


# --- reading ------------------------------------------------------------------------------------------------------

_POST_SESSIONS = msgspec.json.Decoder(PostSessions)
_POST_TURN = msgspec.json.Decoder(PostTurn)


def decode_session(body: bytes) -> PostSessions:
    """Read the body of `POST /sessions`. Raises InvalidJson or InvalidBody."""
    return decode_body(_POST_SESSIONS, body)


def decode_turn(body: bytes) -> PostTurn:
    """Read the body of `POST /sessions/:id/turns`. Raises InvalidJson or InvalidBody."""
    turn = decode_body(_POST_TURN, body)
    if not turn.messages:
        raise InvalidBody("at least one message was expected", "messages")
    return turn
