"""What Chat Completions sends and receives. Pure."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dragoman.core.content import Json, JsonObject
from dragoman.protocols.openai.requests import Metadata, Penalty

FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of `POST /chat/completions`."""

    model: str
    messages: tuple[JsonObject, ...]
    store: bool = False
    stream: bool = False
    stream_options: JsonObject | None = None
    tools: tuple[JsonObject, ...] = ()
    tool_choice: Json = None
    parallel_tool_calls: bool | None = None
    response_format: JsonObject | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    n: int = 1
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stop: str | Annotated[tuple[str, ...], Meta(max_length=4)] | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    metadata: Metadata = {}
    user: str | None = None
    safety_identifier: Annotated[str, Meta(max_length=64)] | None = None


class FunctionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the application, and its arguments as JSON text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the application executes."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionFacts


class AnswerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's message."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: tuple[ToolCall, ...] | msgspec.UnsetType = msgspec.UNSET


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The only choice."""

    index: int = 0
    message: AnswerMessage
    logprobs: None = None
    finish_reason: FinishReason


class PromptDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of the prompt's tokens."""

    cached_tokens: int = 0
    audio_tokens: int = 0


class CompletionDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of the answer's tokens."""

    reasoning_tokens: int = 0
    audio_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class ChatUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of all model calls of the run."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails = PromptDetails()
    completion_tokens_details: CompletionDetails = CompletionDetails()


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer as JSON."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[Choice, ...]
    usage: ChatUsage
    service_tier: str = "default"
    system_fingerprint: None = None
