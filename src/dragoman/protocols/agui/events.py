"""AG-UI's events, as they stand in a stream. Pure.

Source: the AG-UI 1.0 schema; specification of the face, B.5. A timestamp is an integer of milliseconds since 1970.
"""

from typing import Literal

import msgspec

from dragoman.core.content import Json, JsonObject
from dragoman.protocols.agui.content import (
    Content,
    Message,
    Outcome,
    State,
    SubagentOutcome,
    TokenUsage,
    WireStruct,
)


class _Event(WireStruct, frozen=True, kw_only=True):
    timestamp: int | None = None
    metadata: JsonObject | None = None


class _AgentEvent(_Event, frozen=True, kw_only=True):
    subagent_run_id: str | None = None


# --- the run ----------------------------------------------------------------------------------------------------------


class RunStarted(_Event, frozen=True, kw_only=True, tag="RUN_STARTED", tag_field="type"):
    """A run begins."""

    thread_id: str
    run_id: str
    protocol_version: str | None = None
    parent_run_id: str | None = None


class RunFinished(_Event, frozen=True, kw_only=True, tag="RUN_FINISHED", tag_field="type"):
    """A run is over. The thread takes the next one."""

    thread_id: str
    run_id: str
    outcome: Outcome
    usage: tuple[TokenUsage, ...] | None = None


class RunError(_Event, frozen=True, kw_only=True, tag="RUN_ERROR", tag_field="type"):
    """A run failed, or never began."""

    message: str
    code: str
    usage: tuple[TokenUsage, ...] | None = None


class StepStarted(_AgentEvent, frozen=True, kw_only=True, tag="STEP_STARTED", tag_field="type"):
    """A stage of the agent begins."""

    step_name: str


class StepFinished(_AgentEvent, frozen=True, kw_only=True, tag="STEP_FINISHED", tag_field="type"):
    """A stage of the agent is over."""

    step_name: str


# --- text and thinking ------------------------------------------------------------------------------------------------


class TextMessageStart(_AgentEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_START", tag_field="type"):
    """A text begins."""

    message_id: str
    role: Literal["assistant", "user"]


class TextMessageContent(_AgentEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_CONTENT", tag_field="type"):
    """The next words of a text."""

    message_id: str
    delta: str


class TextMessageEnd(_AgentEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_END", tag_field="type"):
    """A text is complete."""

    message_id: str


class ReasoningStart(_AgentEvent, frozen=True, kw_only=True, tag="REASONING_START", tag_field="type"):
    """A span of thinking begins."""

    message_id: str


class ReasoningMessageStart(_AgentEvent, frozen=True, kw_only=True, tag="REASONING_MESSAGE_START", tag_field="type"):
    """The words of a span of thinking begin."""

    message_id: str
    role: Literal["reasoning"]


class ReasoningMessageContent(
    _AgentEvent, frozen=True, kw_only=True, tag="REASONING_MESSAGE_CONTENT", tag_field="type"
):
    """The next words of a thinking."""

    message_id: str
    delta: str


class ReasoningMessageEnd(_AgentEvent, frozen=True, kw_only=True, tag="REASONING_MESSAGE_END", tag_field="type"):
    """The words of a span of thinking are complete."""

    message_id: str


class ReasoningEnd(_AgentEvent, frozen=True, kw_only=True, tag="REASONING_END", tag_field="type"):
    """A span of thinking is complete."""

    message_id: str


# --- tools ------------------------------------------------------------------------------------------------------------


class ToolCallStart(_AgentEvent, frozen=True, kw_only=True, tag="TOOL_CALL_START", tag_field="type"):
    """A call begins."""

    tool_call_id: str
    tool_call_name: str
    parent_message_id: str


class ToolCallArgs(_AgentEvent, frozen=True, kw_only=True, tag="TOOL_CALL_ARGS", tag_field="type"):
    """A part of a call's arguments, which are JSON as text."""

    tool_call_id: str
    delta: str


class ToolCallEnd(_AgentEvent, frozen=True, kw_only=True, tag="TOOL_CALL_END", tag_field="type"):
    """A call is complete. Its tool runs after that."""

    tool_call_id: str


class ToolCallResult(_AgentEvent, frozen=True, kw_only=True, tag="TOOL_CALL_RESULT", tag_field="type"):
    """What a call gave."""

    message_id: str
    tool_call_id: str
    content: Content
    role: Literal["tool"]


# --- state, messages, activities, the rest ----------------------------------------------------------------------------


class StateSnapshot(_AgentEvent, frozen=True, kw_only=True, tag="STATE_SNAPSHOT", tag_field="type"):
    """The whole state of the thread."""

    snapshot: State


class MessagesSnapshot(_Event, frozen=True, kw_only=True, tag="MESSAGES_SNAPSHOT", tag_field="type"):
    """All messages of the thread."""

    messages: tuple[Message, ...]


class ActivitySnapshot(_AgentEvent, frozen=True, kw_only=True, tag="ACTIVITY_SNAPSHOT", tag_field="type"):
    """Something to be shown beside the conversation. It replaces what the same id showed before."""

    message_id: str
    activity_type: str
    content: JsonObject
    replace: Literal[True]


class Custom(_AgentEvent, frozen=True, kw_only=True, tag="CUSTOM", tag_field="type"):
    """What the protocol has no event for."""

    name: str
    value: Json


class SubagentStarted(_Event, frozen=True, kw_only=True, tag="SUBAGENT_STARTED", tag_field="type"):
    """A sub-agent begins, or goes on."""

    subagent_run_id: str
    name: str
    description: str | None = None
    parent_subagent_run_id: str | None = None
    parent_tool_call_id: str | None = None
    parent_message_id: str | None = None


class SubagentFinished(_Event, frozen=True, kw_only=True, tag="SUBAGENT_FINISHED", tag_field="type"):
    """A sub-agent is done, or waits."""

    subagent_run_id: str
    outcome: SubagentOutcome
    result: Json | msgspec.UnsetType = msgspec.UNSET


class SubagentError(_Event, frozen=True, kw_only=True, tag="SUBAGENT_ERROR", tag_field="type"):
    """A sub-agent failed."""

    subagent_run_id: str
    message: str
    code: str | None = None


Event = (
    RunStarted
    | RunFinished
    | RunError
    | StepStarted
    | StepFinished
    | TextMessageStart
    | TextMessageContent
    | TextMessageEnd
    | ReasoningStart
    | ReasoningMessageStart
    | ReasoningMessageContent
    | ReasoningMessageEnd
    | ReasoningEnd
    | ToolCallStart
    | ToolCallArgs
    | ToolCallEnd
    | ToolCallResult
    | StateSnapshot
    | MessagesSnapshot
    | ActivitySnapshot
    | Custom
    | SubagentStarted
    | SubagentFinished
    | SubagentError
)

_ENCODE = msgspec.json.Encoder().encode


def encode(event: Event) -> bytes:
    """An event as JSON, on one line."""
    return _ENCODE(event)
