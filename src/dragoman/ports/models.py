"""Language models and transcription."""

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol

import msgspec

from dragoman.core.content import Json, JsonObject, Message, Usage
from dragoman.core.tools import ToolSpec


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model.

    `messages` start with the conversation's oldest message. Each call of an assistant message is answered by a tool
    message before the next user or assistant message. `instructions` take precedence over all messages.
    """

    model: str
    messages: Sequence[Message]
    instructions: str = ""
    tools: Sequence[ToolSpec] = ()
    max_tokens: int | None = None
    parameters: JsonObject = msgspec.field(default_factory=dict)
    """Further settings such as `temperature`, by their OpenAI names."""
    output_schema: Json = None
    """The JSON Schema that the answer has to match, for models that can enforce one. `instructions` contain it too."""


class TextDelta(msgspec.Struct, frozen=True):
    """The next part of the answer; never empty."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    """The next part of the reasoning; never empty."""

    text: str


class CallRequested(msgspec.Struct, frozen=True, kw_only=True):
    """A call with complete arguments. `input` is None if the text in `raw` is not a JSON object."""

    id: str
    name: str
    input: JsonObject | None
    raw: str


ModelStop = Literal["end_turn", "tool_use", "max_tokens", "refusal"]


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The last event of a model call. A call cut off by the token limit has been dropped."""

    stop: ModelStop
    usage: Usage | None = None
    model: str | None = None
    """The model that answered, if it is another one than the request names."""
    provider_data: JsonObject | None = None
    """What the provider needs back with this answer; see `AssistantMessage`."""


ModelEvent = TextDelta | ThinkingDelta | CallRequested | Finished


class Model(Protocol):
    """A language model.

    Its optional attributes `accepts_images` and `accepts_files` are False if it cannot get them.
    """

    @property
    def context_window(self) -> int | None:
        """Maximum number of tokens of a request and its answer together; None if unknown."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Call the model. Closing the stream early cancels the call.

        Raises:
            ModelUnavailable: the model cannot be reached or has no capacity; a retry may help.
            ModelFailed: the model refused the request or broke off its answer; a retry will not help.
            ContextTooLong: the request has more tokens than the model accepts.
        """


class ModelFailed(Exception):
    """A model call failed. The message is for the log; `code` is for clients."""

    code = "model_error"
    shown_message: str | None = None
    """The message for clients; None: a general one, because the other may contain details of the installation."""


class ModelUnavailable(ModelFailed):
    """The model cannot be reached now.

    Args:
        text: the message for the log.
        retry_after_s: the delay that the model's server asks for before a retry.
        may_retry: False if the server may still be working on the call, so that a retry would double its load.
    """

    code = "model_unavailable"

    def __init__(self, text: str, *, retry_after_s: float | None = None, may_retry: bool = True) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
        self.may_retry = may_retry


class ContextTooLong(ModelFailed):
    """The request does not fit into the model's context window."""

    code = "context_too_long"


class Transcriber(Protocol):
    """Converts speech to text."""

    async def transcribe(self, audio: bytes) -> str:
        """Transcribe a WAV recording.

        Raises:
            TranscriptionFailed: there is no transcript; the message is for the log.
        """

    async def aclose(self) -> None:
        """Release all resources."""


class TranscriptionFailed(Exception):
    """A recording could not be transcribed."""
