"""AAP v3 on the wire: its types as structs, and the decoding of request bodies. Pure.

Source: seed 001 (the schema), whose field names are kept. A null for an optional field reads as absent; nulls are
never written.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta as Limits

from dragoman.core.content import JsonObject
from dragoman.core.events import WaitKind
from dragoman.protocols.kit.decoding import decode_body
from dragoman.protocols.kit.errors import InvalidBody

StreamMode = Literal["delta", "message", "none"]
StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal", "error"]
HistoryType = Literal["full", "compacted"]
LabelValue = Annotated[str, Limits(max_length=256)]


class _In(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Part of a request; unknown fields are ignored."""


class _Out(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Part of a response; absent values are omitted."""


# --- content ------------------------------------------------------------------------------------------------------


class TextBlock(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    """Text."""

    text: str


class ThinkingBlock(msgspec.Struct, frozen=True, tag="thinking", tag_field="type"):
    """The model's reasoning."""

    thinking: str


class ToolUseBlock(msgspec.Struct, frozen=True, tag="tool_use", tag_field="type", rename="camel"):
    """A tool call."""

    tool_call_id: str
    name: str
    input: JsonObject


class ImageBlock(msgspec.Struct, frozen=True, tag="image", tag_field="type"):
    """An image, by URL or as a data URI."""

    url: str


InputBlock = TextBlock | ImageBlock
AnswerBlock = TextBlock | ThinkingBlock | ToolUseBlock | ImageBlock


# --- messages -----------------------------------------------------------------------------------------------------


class MessageMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """Our extension of a message: whether a stop or a crash interrupted it, and whether its step was repeated."""

    interrupted: bool
    cut: bool = False


class SystemMessage(msgspec.Struct, frozen=True, tag="system", tag_field="role"):
    """Instructions; only in the history that a session is created with."""

    content: str


class UserMessage(msgspec.Struct, frozen=True, tag="user", tag_field="role"):
    """A message of the user."""

    content: str | tuple[InputBlock, ...]


class AssistantMessage(msgspec.Struct, frozen=True, tag="assistant", tag_field="role", omit_defaults=True):
    """A message of the agent: one model step."""

    content: str | tuple[AnswerBlock, ...]
    meta: MessageMeta | None = msgspec.field(name="_meta", default=None)


class ToolMessage(msgspec.Struct, frozen=True, tag="tool", tag_field="role", rename="camel"):
    """The result of a tool call."""

    tool_call_id: str
    content: str | tuple[InputBlock, ...]


class ToolPermission(msgspec.Struct, frozen=True, tag="tool_permission", tag_field="role", rename="camel"):
    """The user's decision about a tool call. Never part of a history."""

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
    """A server tool that is enabled. An absent `trust` reads as false."""

    name: str
    trust: bool | None = None


class ServerToolInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server tool that is enabled, as responses show it."""

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
"""Empty objects whose presence declares a capability."""


class Capabilities(_Out, frozen=True, kw_only=True):
    """What an agent supports."""

    history: PresenceFlags | None = None
    stream: PresenceFlags | None = None
    application: PresenceFlags | None = None
    image: PresenceFlags | None = None


class AgentMeta(_Out, frozen=True, kw_only=True):
    """What this server says of an agent beyond the specification."""

    starters: tuple[str, ...] = ()
    model: str = ""
    embedded_model: bool = False


class AgentInfo(_Out, frozen=True, kw_only=True):
    """An agent in `/meta`."""

    name: str
    title: str | None = None
    version: str
    description: str | None = None
    tools: tuple[ToolSpec, ...] | None = None
    options: tuple[AgentOption, ...] | None = None
    capabilities: Capabilities | None = None
    meta: AgentMeta | None = msgspec.field(default=None, name="_meta")
    """Not of the specification."""


class Meta(_Out, frozen=True, kw_only=True):
    """The response of `GET /meta`. Clients refuse any other version."""

    version: Literal[3]
    agents: tuple[AgentInfo, ...]


# --- requests -----------------------------------------------------------------------------------------------------


class AgentOverride(_In, frozen=True, kw_only=True):
    """What a client changes with a turn. `name` must be that of the session's agent."""

    name: str | None = None
    tools: tuple[ServerToolRef, ...] | None = None
    options: dict[str, str] | None = None


class AgentConfig(AgentOverride, frozen=True, kw_only=True):
    """What a client sets when it creates a session."""

    name: str


class SessionNames(_In, frozen=True, kw_only=True):
    """Our extension of a new session: how people and applications call it, and whether tools ask as they declare."""

    title: Annotated[str, Limits(max_length=1000)] | None = None
    labels: Annotated[dict[str, LabelValue], Limits(max_length=64)] | None = None
    tools: Literal["all"] | None = None


class PostSessions(_In, frozen=True, kw_only=True):
    """The body of `POST /sessions`."""

    agent: AgentConfig
    messages: tuple[HistoryMessage, ...] | None = None
    tools: tuple[ToolSpec, ...] | None = None
    meta: SessionNames | None = msgspec.field(name="_meta", default=None)


class PostTurn(_In, frozen=True, kw_only=True):
    """The body of `POST /sessions/:id/turns`."""

    messages: tuple[ApplicationMessage, ...]
    stream: StreamMode | None = None
    agent: AgentOverride | None = None
    tools: tuple[ToolSpec, ...] | None = None


# --- answers ------------------------------------------------------------------------------------------------------


class PostSessionsResponse(_Out, frozen=True, kw_only=True):
    """The response of `POST /sessions`."""

    session_id: str


class SessionAgent(_Out, frozen=True, kw_only=True):
    """The agent of a session, with secrets redacted."""

    name: str
    tools: tuple[ServerToolInfo, ...] | None = None
    options: dict[str, str] | None = None


class PendingCall(_Out, frozen=True, kw_only=True):
    """Our extension: a call that waits for the application. `repeat`: it may have run already (shared rules, 20)."""

    tool_call_id: str
    name: str
    input: JsonObject
    kind: WaitKind
    repeat: bool = False


class SessionMeta(_Out, frozen=True, kw_only=True):
    """Our extension of a session."""

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
    """A page of sessions. `next` is absent on the last page."""

    sessions: tuple[SessionInfo, ...]
    next: str | None = None


class History(_Out, frozen=True, kw_only=True):
    """The response of `GET /sessions/:id/history`; holds only the requested type."""

    history: dict[HistoryType, tuple[HistoryMessage, ...]]


class Usage(_Out, frozen=True, kw_only=True):
    """The tokens that a turn used."""

    input_tokens: int
    output_tokens: int


class Problem(_Out, frozen=True, kw_only=True):
    """Why a turn ended with `error`."""

    code: str
    message: str


class TurnMeta(_Out, frozen=True, kw_only=True):
    """Our extension of a turn's end.

    `pending`: calls of tools that ask while they run, with what they ask. `not_waiting`: the IDs of calls without a
    result about which nobody is asked.
    """

    turn_id: str | None = None
    usage: Usage | None = None
    error: Problem | None = None
    pending: tuple[PendingCall, ...] = ()
    not_waiting: tuple[str, ...] = ()


class TurnResponse(_Out, frozen=True, kw_only=True):
    """The response of a turn in `none` mode."""

    stop_reason: StopReason
    messages: tuple[AssistantMessage | ToolMessage, ...]
    meta: TurnMeta | None = msgspec.field(name="_meta", default=None)


class MessageCut(msgspec.Struct, frozen=True):
    """Our extension: an event of a stream. A crash cut off the message with this content, and its step is repeated."""

    content: tuple[AnswerBlock, ...]


class StopResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Our extension: the response of `POST /sessions/:id/stop`. False if nothing was running."""

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
        raise InvalidBody("expected at least one message", "messages")
    return turn
