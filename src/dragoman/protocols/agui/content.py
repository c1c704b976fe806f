"""AG-UI's messages and what they are made of, as they stand in requests and in snapshots. Pure.

Source: the AG-UI 1.0 schema; specification of the face, B.3. Optional fields are left out, never null.
"""

from typing import Literal

import msgspec

from dragoman.core.content import Json, JsonObject


class WireStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the protocol's own objects have in common: camelCase, no nulls, unknown fields ignored."""


# --- parts ------------------------------------------------------------------------------------------------------------


class DataSource(WireStruct, frozen=True, kw_only=True, tag="data", tag_field="type"):
    """Bytes that travel along, in base64."""

    value: str
    mime_type: str


class UrlSource(WireStruct, frozen=True, kw_only=True, tag="url", tag_field="type"):
    """Bytes at an address."""

    value: str
    mime_type: str | None = None


class FileSource(WireStruct, frozen=True, kw_only=True, tag="file", tag_field="type"):
    """A handle that some provider issued. Never fetched, never parsed."""

    value: str
    provider: str | None = None
    mime_type: str | None = None


Source = DataSource | UrlSource | FileSource


class TextPart(WireStruct, frozen=True, kw_only=True, tag="text", tag_field="type"):
    """Words."""

    text: str


class ImagePart(WireStruct, frozen=True, kw_only=True, tag="image", tag_field="type"):
    """A picture."""

    source: Source


class AudioPart(WireStruct, frozen=True, kw_only=True, tag="audio", tag_field="type"):
    """A sound."""

    source: Source


class VideoPart(WireStruct, frozen=True, kw_only=True, tag="video", tag_field="type"):
    """A film."""

    source: Source


class DocumentPart(WireStruct, frozen=True, kw_only=True, tag="document", tag_field="type"):
    """Any other file."""

    source: Source


Part = TextPart | ImagePart | AudioPart | VideoPart | DocumentPart
Content = str | tuple[Part, ...]

# --- messages ---------------------------------------------------------------------------------------------------------


class FunctionCall(WireStruct, frozen=True, kw_only=True):
    """What a call asks for. `arguments` is JSON as text, as the model wrote it."""

    name: str
    arguments: str


class ToolCall(WireStruct, frozen=True, kw_only=True):
    """A call in an assistant message."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class UserMessage(WireStruct, frozen=True, kw_only=True, tag="user", tag_field="role"):
    """What a person said."""

    id: str
    content: Content
    name: str | None = None
    metadata: JsonObject | None = None


class AssistantMessage(WireStruct, frozen=True, kw_only=True, tag="assistant", tag_field="role"):
    """What the agent said and called in one step."""

    id: str
    content: str | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    subagent_run_id: str | None = None
    metadata: JsonObject | None = None


class ToolMessage(WireStruct, frozen=True, kw_only=True, tag="tool", tag_field="role"):
    """A call's result."""

    id: str
    content: Content
    tool_call_id: str
    error: str | None = None
    subagent_run_id: str | None = None
    metadata: JsonObject | None = None


class SystemMessage(WireStruct, frozen=True, kw_only=True, tag="system", tag_field="role"):
    """Instructions."""

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
    """Something to be shown beside the conversation, such as a plan."""

    id: str
    activity_type: str
    content: JsonObject
    subagent_run_id: str | None = None


Message = (
    UserMessage | AssistantMessage | ToolMessage | SystemMessage | DeveloperMessage | ReasoningMessage | ActivityMessage
)

# --- interrupts and ends ----------------------------------------------------------------------------------------------


class Interrupt(WireStruct, frozen=True, kw_only=True):
    """A question to the person that the thread waits with. Its id is that of the call it is about."""

    id: str
    reason: Literal["tool_call", "input_required"]
    message: str
    tool_call_id: str
    response_schema: JsonObject
    subagent_run_id: str | None = None


class Success(WireStruct, frozen=True, kw_only=True, tag="success", tag_field="type"):
    """The run did what it could. `pending_tool_call_ids` are calls that the client has to run."""

    pending_tool_call_ids: tuple[str, ...] | None = None


class Interrupted(WireStruct, frozen=True, kw_only=True, tag="interrupt", tag_field="type"):
    """The run waits for a person."""

    interrupts: tuple[Interrupt, ...]


class Cancelled(WireStruct, frozen=True, kw_only=True, tag="cancelled", tag_field="type"):
    """Somebody stopped the run."""


Outcome = Success | Interrupted | Cancelled


class TokenUsage(WireStruct, frozen=True, kw_only=True):
    """Tokens of a run. An unknown count is absent, never zero."""

    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None


class SubagentSuccess(WireStruct, frozen=True, kw_only=True, tag="success", tag_field="type"):
    """A sub-agent finished."""


class SubagentSuspended(WireStruct, frozen=True, kw_only=True, tag="suspended", tag_field="type"):
    """A sub-agent waits. Without interrupts: one of those below it does, or the client has to run a call."""

    interrupt_ids: tuple[str, ...] | None = None


SubagentOutcome = SubagentSuccess | SubagentSuspended
State = Json
