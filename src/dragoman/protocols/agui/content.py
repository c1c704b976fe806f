"""Messages, content, interrupts and outcomes of AG-UI, in requests and in events. Pure.

Optional fields are omitted, never null.
Source: the AG-UI 1.0 schema; specification of AG-UI, B.3.
"""

from typing import Literal

import msgspec

from dragoman.core.content import JsonObject


class WireStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An object of the protocol: camelCase, no nulls, unknown fields ignored."""


# --- parts ------------------------------------------------------------------------------------------------------------


class DataSource(WireStruct, frozen=True, kw_only=True, tag="data", tag_field="type"):
    """Inline bytes in base64."""

    value: str
    mime_type: str


class UrlSource(WireStruct, frozen=True, kw_only=True, tag="url", tag_field="type"):
    """Bytes at a URL."""

    value: str
    mime_type: str | None = None


class FileSource(WireStruct, frozen=True, kw_only=True, tag="file", tag_field="type"):
    """A file handle of a provider. Never fetched or parsed."""

    value: str
    provider: str | None = None
    mime_type: str | None = None


Source = DataSource | UrlSource | FileSource


class TextPart(WireStruct, frozen=True, kw_only=True, tag="text", tag_field="type"):
    """Text."""

    text: str


class _MediaPart(WireStruct, frozen=True, kw_only=True):
    source: Source


class ImagePart(_MediaPart, frozen=True, kw_only=True, tag="image", tag_field="type"):
    """An image."""


class AudioPart(_MediaPart, frozen=True, kw_only=True, tag="audio", tag_field="type"):
    """Audio."""


class VideoPart(_MediaPart, frozen=True, kw_only=True, tag="video", tag_field="type"):
    """Video."""


class DocumentPart(_MediaPart, frozen=True, kw_only=True, tag="document", tag_field="type"):
    """Any other file."""


FilePart = AudioPart | VideoPart | DocumentPart
Part = TextPart | ImagePart | FilePart
Content = str | tuple[Part, ...]

# --- messages ---------------------------------------------------------------------------------------------------------


class FunctionCall(WireStruct, frozen=True, kw_only=True):
    """The function of a call. `arguments` is JSON in a string."""

    name: str
    arguments: str


class ToolCall(WireStruct, frozen=True, kw_only=True):
    """A call in an assistant message."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class UserMessage(WireStruct, frozen=True, kw_only=True, tag="user", tag_field="role"):
    """A user message."""

    id: str
    content: Content
    name: str | None = None
    metadata: JsonObject | None = None


class AssistantMessage(WireStruct, frozen=True, kw_only=True, tag="assistant", tag_field="role"):
    """The text and the calls of one model step."""

    id: str
    content: str | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    subagent_run_id: str | None = None
    metadata: JsonObject | None = None


class ToolMessage(WireStruct, frozen=True, kw_only=True, tag="tool", tag_field="role"):
    """The result of a call."""

    id: str
    content: Content
    tool_call_id: str
    error: str | None = None
    subagent_run_id: str | None = None
    metadata: JsonObject | None = None


class SystemMessage(WireStruct, frozen=True, kw_only=True, tag="system", tag_field="role"):
    """Instructions of the system."""

    id: str
    content: str


class DeveloperMessage(WireStruct, frozen=True, kw_only=True, tag="developer", tag_field="role"):
    """Instructions of the application's developer."""

    id: str
    content: str


class ReasoningMessage(WireStruct, frozen=True, kw_only=True, tag="reasoning", tag_field="role"):
    """The model's thinking."""

    id: str
    content: str
    subagent_run_id: str | None = None


class ActivityMessage(WireStruct, frozen=True, kw_only=True, tag="activity", tag_field="role"):
    """Something shown beside the conversation, such as a plan."""

    id: str
    activity_type: str
    content: JsonObject
    subagent_run_id: str | None = None


Message = (
    UserMessage | AssistantMessage | ToolMessage | SystemMessage | DeveloperMessage | ReasoningMessage | ActivityMessage
)

# --- interrupts and outcomes ------------------------------------------------------------------------------------------


class Interrupt(WireStruct, frozen=True, kw_only=True):
    """A question to a person, which the thread waits for. Its id is the id of the call it is about."""

    id: str
    reason: Literal["tool_call", "input_required"]
    message: str
    tool_call_id: str
    response_schema: JsonObject
    subagent_run_id: str | None = None
    metadata: JsonObject | None = None


class Success(WireStruct, frozen=True, kw_only=True, tag="success", tag_field="type"):
    """The run has ended. `pending_tool_call_ids` are calls that the client has to run."""

    pending_tool_call_ids: tuple[str, ...] | None = None


class Interrupted(WireStruct, frozen=True, kw_only=True, tag="interrupt", tag_field="type"):
    """The run waits for a person."""

    interrupts: tuple[Interrupt, ...]


class Cancelled(WireStruct, frozen=True, kw_only=True, tag="cancelled", tag_field="type"):
    """The run was stopped."""


Outcome = Success | Interrupted | Cancelled


class TokenUsage(WireStruct, frozen=True, kw_only=True):
    """The tokens of a run. An unknown count is omitted, never zero."""

    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_input_tokens: int | None = None


class SubagentSuccess(WireStruct, frozen=True, kw_only=True, tag="success", tag_field="type"):
    """The sub-agent has finished."""


class SubagentSuspended(WireStruct, frozen=True, kw_only=True, tag="suspended", tag_field="type"):
    """The sub-agent waits: for its interrupts, its own sub-agent, or a call that the client has to run."""

    interrupt_ids: tuple[str, ...] | None = None


SubagentOutcome = SubagentSuccess | SubagentSuspended
