"""Translate between our requests and events and those of Pydantic AI. No IO.

Slow to import; only `providers` does that, in a thread. Thinking is sent back only to the provider from which it came,
with the signatures that it demands (`provider_data`).
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Any, assert_never, cast

import msgspec
from pydantic_ai import messages as theirs
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelServerError,
    ModelUnavailableError,
    UserError,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from dragoman.core.content import (
    AssistantMessage,
    Call,
    Data,
    File,
    Image,
    InputBlock,
    JsonObject,
    SystemMessage,
    Text,
    ToolMessage,
    Usage,
    UserMessage,
)
from dragoman.models.openai_answer import parse_arguments
from dragoman.models.openai_wire import file_placeholder
from dragoman.models.provider_data import parts_with_data, provider_data_of
from dragoman.models.tool_call_pairing import with_paired_calls
from dragoman.ports.models import (
    CallRequested,
    ContextTooLong,
    Finished,
    ModelEvent,
    ModelFailed,
    ModelRequest,
    ModelStop,
    ModelUnavailable,
    TextDelta,
    ThinkingDelta,
)

ProviderError = AgentRunError | UserError
PROVIDER_ERRORS = (AgentRunError, UserError)
"""What Pydantic AI raises for a failed call, and for a request that it rejects itself."""

_UNAVAILABLE = (
    ModelConnectionError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelServerError,
    ModelUnavailableError,
)
_STOP_REASONS: dict[str, ModelStop] = {"length": "max_tokens", "content_filter": "refusal"}
_SETTING_NAMES = {
    "frequency_penalty": "frequency_penalty",
    "logit_bias": "logit_bias",
    "max_completion_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
    "presence_penalty": "presence_penalty",
    "reasoning_effort": "thinking",
    "seed": "seed",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
}
"""OpenAI's parameter names and their names in Pydantic AI. `stop` and `tool_choice` are handled separately. Other
parameters are sent in the body unchanged."""

Content = str | list[theirs.UserContent]


# --- requests ---------------------------------------------------------------------------------------------------------


def to_provider_messages(request: ModelRequest, provider: str = "") -> list[theirs.ModelMessage]:
    """The conversation for a provider. All messages between two answers form one request of Pydantic AI."""
    wire: list[theirs.ModelMessage] = []
    parts: list[theirs.ModelRequestPart] = []
    for message in with_paired_calls(request.messages):
        if not isinstance(message, AssistantMessage):
            parts.append(_request_part(message))
            continue
        answer: list[theirs.ModelResponsePart] = [*(parts_with_data(message, provider) or _answer_parts(message))]
        if answer:
            if parts:
                wire.append(theirs.ModelRequest(parts=parts))
                parts = []
            wire.append(theirs.ModelResponse(parts=answer))
    wire.append(theirs.ModelRequest(parts=parts, instructions=request.instructions or None))
    return wire


def to_provider_settings(request: ModelRequest) -> ModelSettings:
    """The model parameters under Pydantic AI's names."""
    settings: dict[str, Any] = {}
    rest: JsonObject = {}
    for name, value in request.parameters.items():
        if name in _SETTING_NAMES:
            settings[_SETTING_NAMES[name]] = value
        elif name == "tool_choice":
            if request.tools:
                settings["tool_choice"] = [value["function"]["name"]] if isinstance(value, dict) else value
        elif name == "stop":
            settings["stop_sequences"] = [value] if isinstance(value, str) else value
        else:
            rest[name] = value
    if rest:
        settings["extra_body"] = rest
    if request.max_tokens is not None:
        settings["max_tokens"] = request.max_tokens
    return cast("ModelSettings", settings)


def to_provider_parameters(request: ModelRequest) -> ModelRequestParameters:
    """The tools as Pydantic AI's request parameters."""
    tools = [
        ToolDefinition(
            name=tool.name, description=tool.description, parameters_json_schema=tool.parameters, strict=tool.strict
        )
        for tool in request.tools
    ]
    return ModelRequestParameters(function_tools=tools)


def _request_part(message: UserMessage | ToolMessage | SystemMessage) -> theirs.ModelRequestPart:
    match message:
        case SystemMessage():
            return theirs.SystemPromptPart(message.content)
        case UserMessage():
            return theirs.UserPromptPart(_content(message.content))
        case ToolMessage():
            return theirs.ToolReturnPart(
                tool_name=message.name,
                content=_content(message.content),
                tool_call_id=message.call_id,
                outcome="failed" if message.is_error else "success",
            )
        case _:
            assert_never(message)


def _answer_parts(message: AssistantMessage) -> Iterator[theirs.ModelResponsePart]:
    if isinstance(message.content, str):
        yield theirs.TextPart(message.content)
        return
    for block in message.content:
        if isinstance(block, Text) and block.text:
            yield theirs.TextPart(block.text)
        elif isinstance(block, Call):
            yield theirs.ToolCallPart(block.name, block.input, tool_call_id=block.call_id)


def _content(content: str | Sequence[InputBlock]) -> Content:
    if isinstance(content, str):
        return content
    if all(isinstance(block, Text) for block in content):
        return "".join(block.text for block in content if isinstance(block, Text))
    return [_part(block) for block in content]


def _part(block: InputBlock) -> theirs.UserContent:
    match block:
        case Text():
            return block.text
        case Data():
            return msgspec.json.encode(block.data).decode()
        case Image():
            return _binary(block.url, None) or theirs.ImageUrl(block.url)
        case File():
            return _binary(block.url, block.media_type) or _file_url(block)
        case _:
            assert_never(block)


def _binary(url: str, media_type: str | None) -> theirs.BinaryContent | None:
    head, marker, encoded = url.partition(";base64,")
    if not head.startswith("data:") or not marker:
        return None
    try:
        content = base64.b64decode(encoded)
    except binascii.Error as error:
        raise ModelFailed("expected a base64 data URI, got one that cannot be decoded") from error
    uri_type = head.removeprefix("data:").partition(";")[0]
    return theirs.BinaryContent(content, media_type=media_type or uri_type or "application/octet-stream")


def _file_url(block: File) -> theirs.UserContent:
    if not block.url.startswith("https://"):
        return file_placeholder(block)
    match block.media:
        case "audio":
            return theirs.AudioUrl(block.url, media_type=block.media_type)
        case "video":
            return theirs.VideoUrl(block.url, media_type=block.media_type)
        case "file":
            return theirs.DocumentUrl(block.url, media_type=block.media_type)
        case _:
            assert_never(block.media)


# --- answers ----------------------------------------------------------------------------------------------------------


def to_model_event(event: theirs.ModelResponseStreamEvent) -> ModelEvent | None:
    """The text or thinking of an event, if it has any. Calls are returned as a whole by `to_final_events`."""
    if isinstance(event, theirs.PartDeltaEvent):
        match event.delta:
            case theirs.TextPartDelta(content_delta=text) if text:
                return TextDelta(text)
            case theirs.ThinkingPartDelta(content_delta=text) if text:
                return ThinkingDelta(text)
    elif isinstance(event, theirs.PartStartEvent):
        match event.part:
            case theirs.TextPart(content=text) if text:
                return TextDelta(text)
            case theirs.ThinkingPart(content=text) if text:
                return ThinkingDelta(text)
    return None


def to_final_events(response: theirs.ModelResponse, provider: str = "") -> list[ModelEvent]:
    """The calls of a provider's finished answer, and its end.

    Raises:
        ModelFailed: the answer was interrupted.
    """
    if response.finish_reason == "error" or response.state != "complete":
        raise ModelFailed(f"the answer was interrupted ({response.finish_reason or response.state})")
    calls = [_to_call_requested(part) for part in response.parts if isinstance(part, theirs.ToolCallPart)]
    stop = _STOP_REASONS.get(response.finish_reason or "", "end_turn")
    if stop != "end_turn" and calls and not (calls[-1].raw and calls[-1].input is not None):
        calls.pop()  # truncated; the earlier calls are complete
    if stop == "end_turn" and calls:
        stop = "tool_use"
    usage = usage_of(response)
    data = provider_data_of(provider, response.parts)
    return [*calls, Finished(stop=stop, usage=usage if usage != Usage() else None, provider_data=data)]


def usage_of(response: theirs.ModelResponse) -> Usage:
    """The tokens that a provider reported."""
    used = response.usage
    return Usage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cache_read_tokens,
        reasoning_tokens=used.output_reasoning_tokens,
    )


def to_model_error(error: ProviderError) -> ModelFailed:
    """Convert an error of Pydantic AI."""
    text = f"{type(error).__name__}: {error}"[:1000]
    if isinstance(error, ModelContextWindowExceededError):
        return ContextTooLong(text)
    if isinstance(error, _UNAVAILABLE):
        return ModelUnavailable(text)
    return ModelFailed(text)


def _to_call_requested(part: theirs.ToolCallPart) -> CallRequested:
    raw = part.args if isinstance(part.args, str) else msgspec.json.encode(part.args or {}).decode()
    return CallRequested(id=part.tool_call_id, name=part.tool_name, input=parse_arguments(raw), raw=raw)
