"""The events of an AG-UI stream. Pure.

A timestamp is an integer of milliseconds since 1970.
Source: the AG-UI 1.0 schema; specification of AG-UI, B.5.
"""

from typing import Literal

import msgspec

from dragoman.core.content import Json, JsonObject
from dragoman.protocols.agui.content import Content, Message, Outcome, SubagentOutcome, TokenUsage, WireStruct


class _Event(WireStruct, frozen=True, kw_only=True):
    timestamp: int | None = None
    metadata: JsonObject | None = None


class _LoopEvent(_Event, frozen=True, kw_only=True):
    subagent_run_id: str | None = None


# --- the run ----------------------------------------------------------------------------------------------------------


class RunStarted(_Event, frozen=True, kw_only=True, tag="RUN_STARTED", tag_field="type"):
    """The run starts."""

    thread_id: str
    run_id: str
    protocol_version: str | None = None
    parent_run_id: str | None = None


class RunFinished(_Event, frozen=True, kw_only=True, tag="RUN_FINISHED", tag_field="type"):
    """The run has ended. The thread accepts the next one. Clients of 0.x get no outcome while calls are pending."""

    thread_id: str
    run_id: str
    outcome: Outcome | None = None
    usage: tuple[TokenUsage, ...] | None = None


class RunError(_Event, frozen=True, kw_only=True, tag="RUN_ERROR", tag_field="type"):
    """The run failed or was refused."""

    message: str
    code: str
    usage: tuple[TokenUsage, ...] | None = None


class _StepEvent(_LoopEvent, frozen=True, kw_only=True):
    step_name: str


class StepStarted(_StepEvent, frozen=True, kw_only=True, tag="STEP_STARTED", tag_field="type"):
    """A stage of the agent starts."""


class StepFinished(_StepEvent, frozen=True, kw_only=True, tag="STEP_FINISHED", tag_field="type"):
    """A stage of the agent has ended."""


# --- text and reasoning -----------------------------------------------------------------------------------------------


class _MessageEvent(_LoopEvent, frozen=True, kw_only=True):
    message_id: str


class _ContentEvent(_MessageEvent, frozen=True, kw_only=True):
    delta: str


class TextMessageStart(_MessageEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_START", tag_field="type"):
    """A text starts."""

    role: Literal["assistant", "user"]


class TextMessageContent(_ContentEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_CONTENT", tag_field="type"):
    """The next part of a text."""


class TextMessageEnd(_MessageEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_END", tag_field="type"):
    """A text is complete."""


class ReasoningStart(_MessageEvent, frozen=True, kw_only=True, tag="REASONING_START", tag_field="type"):
    """A span of reasoning starts."""


class ReasoningMessageStart(_MessageEvent, frozen=True, kw_only=True, tag="REASONING_MESSAGE_START", tag_field="type"):
    """The text of a span of reasoning starts."""

    role: Literal["reasoning"]


class ReasoningMessageContent(
    _ContentEvent, frozen=True, kw_only=True, tag="REASONING_MESSAGE_CONTENT", tag_field="type"
):
    """The next part of the text of a span of reasoning."""


class ReasoningMessageEnd(_MessageEvent, frozen=True, kw_only=True, tag="REASONING_MESSAGE_END", tag_field="type"):
    """The text of a span of reasoning is complete."""


class ReasoningEnd(_MessageEvent, frozen=True, kw_only=True, tag="REASONING_END", tag_field="type"):
    """A span of reasoning is complete."""


# --- tools ------------------------------------------------------------------------------------------------------------


class _CallEvent(_LoopEvent, frozen=True, kw_only=True):
    tool_call_id: str


class ToolCallStart(_CallEvent, frozen=True, kw_only=True, tag="TOOL_CALL_START", tag_field="type"):
    """A call starts."""

    tool_call_name: str
    parent_message_id: str


class ToolCallArgs(_CallEvent, frozen=True, kw_only=True, tag="TOOL_CALL_ARGS", tag_field="type"):
    """The next part of a call's arguments, which are JSON in a string."""

    delta: str


class ToolCallEnd(_CallEvent, frozen=True, kw_only=True, tag="TOOL_CALL_END", tag_field="type"):
    """A call is complete. Its tool runs after this."""


class ToolCallResult(_MessageEvent, frozen=True, kw_only=True, tag="TOOL_CALL_RESULT", tag_field="type"):
    """The result of a call."""

    tool_call_id: str
    content: Content
    role: Literal["tool"]


# --- state, messages, activities, sub-agents --------------------------------------------------------------------------


class StateSnapshot(_LoopEvent, frozen=True, kw_only=True, tag="STATE_SNAPSHOT", tag_field="type"):
    """The whole state of the thread."""

    snapshot: Json


class StateDelta(_LoopEvent, frozen=True, kw_only=True, tag="STATE_DELTA", tag_field="type"):
    """What changed in the state, as a JSON Patch."""

    delta: list[JsonObject]


class MessagesSnapshot(_Event, frozen=True, kw_only=True, tag="MESSAGES_SNAPSHOT", tag_field="type"):
    """All messages of the thread."""

    messages: tuple[Message, ...]


class ActivitySnapshot(_MessageEvent, frozen=True, kw_only=True, tag="ACTIVITY_SNAPSHOT", tag_field="type"):
    """Something shown beside the conversation. It replaces an earlier activity with the same id."""

    activity_type: str
    content: JsonObject
    replace: Literal[True]


class Custom(_LoopEvent, frozen=True, kw_only=True, tag="CUSTOM", tag_field="type"):
    """Something that the protocol has no event for."""

    name: str
    value: Json


class SubagentStarted(_Event, frozen=True, kw_only=True, tag="SUBAGENT_STARTED", tag_field="type"):
    """A sub-agent starts or continues."""

    subagent_run_id: str
    name: str
    description: str | None = None
    parent_subagent_run_id: str | None = None
    parent_tool_call_id: str | None = None
    parent_message_id: str | None = None


class SubagentFinished(_Event, frozen=True, kw_only=True, tag="SUBAGENT_FINISHED", tag_field="type"):
    """A sub-agent has finished or waits."""

    subagent_run_id: str
    outcome: SubagentOutcome
    result: Json | msgspec.UnsetType = msgspec.UNSET


class SubagentError(_Event, frozen=True, kw_only=True, tag="SUBAGENT_ERROR", tag_field="type"):
    """A sub-agent failed."""

    subagent_run_id: str
    message: str
    code: str | None = None


RunEvent = RunStarted | RunFinished | RunError | StepStarted | StepFinished
TextEvent = TextMessageStart | TextMessageContent | TextMessageEnd
ReasoningEvent = ReasoningStart | ReasoningMessageStart | ReasoningMessageContent | ReasoningMessageEnd | ReasoningEnd
ToolEvent = ToolCallStart | ToolCallArgs | ToolCallEnd | ToolCallResult
SideEvent = StateSnapshot | StateDelta | MessagesSnapshot | ActivitySnapshot | Custom
SubagentEvent = SubagentStarted | SubagentFinished | SubagentError
Event = RunEvent | TextEvent | ReasoningEvent | ToolEvent | SideEvent | SubagentEvent
