"""A session's messages as Pydantic AI's: those stored with each step, or others made from what is visible.

With each step the messages since the step before are kept as a private value. A user's content is a reference in it,
so that no picture is stored twice. Calls are found again by `Call.origin`, the framework's own id.
"""

from collections.abc import Collection, Sequence
from typing import Any, TypeGuard

import msgspec
from pydantic import ValidationError
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.usage import RunUsage

from dragoman.adapters.frameworks import PYDANTIC_AI
from dragoman.core.answers import compact_json
from dragoman.core.content import (
    AssistantMessage,
    Call,
    Data,
    File,
    Image,
    InputBlock,
    Json,
    Message,
    SystemMessage,
    Text,
    ToolMessage,
    UserMessage,
    text_of,
)

PRIVATE_KEY = "pydantic_ai"
ASKING_KEY = "pydantic_ai_asking"
"""In the private value of a message that is no step of the model: the id of the call whose approval it asks for."""
_REFERENCE = "dragoman:user-message:"
_ANSWERED = "Final result processed."
"""What the framework itself says to a model about a call that was the answer."""

Prompt = str | Sequence[UserContent]


class History(msgspec.Struct, frozen=True):
    """The messages before the next model request.

    `prompt` is the user's newest content, unless a step has answered it already. `calls` are those of the last step,
    by the framework's id, each with its result if it has one.
    """

    messages: list[ModelMessage]
    prompt: Prompt | None
    prompt_id: str | None
    calls: dict[str, tuple[Call, ToolMessage | None]]
    unreadable: int
    """The number of steps whose exact messages could not be read."""

    @property
    def is_request_open(self) -> bool:
        """Whether the messages end with a request that no model has answered."""
        return bool(self.messages) and isinstance(self.messages[-1], ModelRequest)

    def usage(self) -> RunUsage:
        """What the turn has used so far, for limits that count it whole."""
        usage = RunUsage()
        for message in reversed(self.messages if self.prompt is None else ()):
            if isinstance(message, ModelRequest) and any(isinstance(part, UserPromptPart) for part in message.parts):
                break
            if isinstance(message, ModelResponse):
                usage.incr(message.usage)
                usage.requests += 1
                usage.tool_calls += len(message.tool_calls)
        return usage


def keep_messages(messages: Sequence[ModelMessage], prompt: Prompt | None, prompt_id: str | None) -> Json:
    """New messages as a private value, with a reference in place of the user's content."""
    dumped = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    if prompt is not None:
        for message, kept in zip(messages, dumped, strict=True):
            for part, kept_part in zip(message.parts, kept["parts"], strict=True):
                if isinstance(part, UserPromptPart) and part.content == prompt:
                    kept_part["content"] = f"{_REFERENCE}{prompt_id}"
    return {PRIVATE_KEY: {"version": PYDANTIC_AI.installed, "messages": dumped}}


def read_history(messages: Sequence[Message]) -> History:
    """The framework's messages for a session's, oldest first."""
    reader = _Reader()
    for message in messages:
        reader.feed(message)
    return reader.history()


class _Reader:
    def __init__(self) -> None:
        self._messages: list[ModelMessage] = []
        self._users: dict[str, Prompt] = {}
        self._open: list[tuple[str, ModelRequestPart]] = []
        """What came since the last step, by the message's id."""
        self._calls: dict[str, tuple[Call, ToolMessage | None]] = {}
        self._unreadable = 0

    def feed(self, message: Message) -> None:
        match message:
            case UserMessage(id=own):
                self._users[own] = prompt_of(message)
                self._open.append((own, UserPromptPart(self._users[own])))
            case SystemMessage(id=own, content=content, origin="notice"):
                self._users[own] = content
                self._open.append((own, UserPromptPart(content)))
            case SystemMessage(id=own, content=content):
                self._open.append((own, SystemPromptPart(content)))
            case ToolMessage(call_id=call_id):
                for key, (call, _) in self._calls.items():
                    if call.call_id == call_id:
                        self._calls[key] = call, message
            case AssistantMessage() if message.status != "cut":
                self._add_step(message)

    def _add_step(self, message: AssistantMessage) -> None:
        if isinstance(message.private, dict) and ASKING_KEY in message.private:
            return
        kept, sent = self._kept_messages(message.private)
        if not kept:
            made = _response_of(message)
            if not made.parts:  # what a tool has shown while it ran, such as its progress
                return
            kept = [made]
        answered = {part.tool_call_id for each in kept for part in each.parts if isinstance(part, ToolReturnPart)}
        self._close_request(without=sent | answered)
        self._messages += kept
        self._open = []
        self._calls = {call.origin or call.call_id: (call, None) for call in message.calls()}

    def _kept_messages(self, private: Json | msgspec.UnsetType) -> tuple[list[ModelMessage], set[str]]:
        """The exact messages of a step, and the user's messages among them; empty if there are none to be read."""
        kept = private.get(PRIVATE_KEY) if isinstance(private, dict) else None
        if not isinstance(kept, dict):
            return [], set()
        try:
            messages = ModelMessagesTypeAdapter.validate_python(kept["messages"])
        except (ValidationError, KeyError):  # of another version
            self._unreadable += 1
            return [], set()
        sent = set()
        for message in messages:
            for part in message.parts:
                if isinstance(part, UserPromptPart) and isinstance(part.content, str):
                    prefix, _, own = part.content.partition(_REFERENCE)
                    if not prefix and own in self._users:
                        part.content = self._users[own]
                        sent.add(own)
        return messages, sent

    def _close_request(self, *, without: Collection[str] = ()) -> None:
        """Write what came since the last step as a request, except for the results and messages with these ids."""
        results = [part for part in self._results() if part.tool_call_id not in without]
        parts = [*results, *(part for own, part in self._open if own not in without)]
        if parts:
            self._messages.append(ModelRequest(parts=parts))

    def _results(self) -> list[ToolReturnPart]:
        """The results of the last step's calls, also of those that only gave the answer."""
        last = self._messages[-1] if self._messages else None
        if not isinstance(last, ModelResponse):
            return []
        found: list[ToolReturnPart] = []
        for part in last.tool_calls:
            _, result = self._calls.get(part.tool_call_id, (None, None))
            value = _ANSWERED if result is None else value_of(result)
            outcome: Any = "failed" if result is not None and result.is_error else "success"
            found.append(ToolReturnPart(part.tool_name, value, part.tool_call_id, outcome=outcome))
        return found

    def history(self) -> History:
        """What was read, ready for the next request."""
        prompts = [own for own, _ in self._open if own in self._users]
        if not prompts:
            return History(self._messages, None, None, self._calls, self._unreadable)
        prompt_id = prompts[-1]
        self._close_request(without={prompt_id})
        return History(self._messages, self._users[prompt_id], prompt_id, {}, self._unreadable)


def value_of(result: ToolMessage) -> Any:  # noqa: ANN401  # whatever the tool returned
    """What a tool returned, as far as the log holds it."""
    if result.raw is not msgspec.UNSET:
        return result.raw
    if isinstance(result.content, str):
        return result.content
    return [_content_of(block) for block in result.content]


def prompt_of(message: UserMessage) -> Prompt:
    """A user's message as a prompt."""
    if isinstance(message.content, str):
        return message.content
    if all(isinstance(block, Text) for block in message.content):
        return text_of(message.content)
    return [_content_of(block) for block in message.content]


def _content_of(block: InputBlock) -> UserContent:
    match block:
        case Text(text=text):
            return text
        case Image(url=url) | File(url=url) if url.startswith("data:"):
            return BinaryContent.from_data_uri(url)
        case Image(url=url):
            return ImageUrl(url)
        case File(url=url, media="audio"):
            return AudioUrl(url)
        case File(url=url, media="video"):
            return VideoUrl(url)
        case File(url=url):
            return DocumentUrl(url)
        case Data(data=data):
            return compact_json(data)


def blocks_of(value: object) -> Json:
    """What a tool returned, as the log holds it: pictures as blocks, everything else as it is."""
    parts = value if isinstance(value, list | tuple) else [value]
    if not any(map(_is_picture, parts)):
        return value
    return [
        Image(part.data_uri) if _is_picture(part) else Text(part if isinstance(part, str) else str(part))
        for part in parts
    ]


def _is_picture(value: object) -> TypeGuard[BinaryContent]:
    return isinstance(value, BinaryContent) and value.is_image


def _response_of(message: AssistantMessage) -> ModelResponse:
    """A step made from what is visible of it. Reasoning is left out: it is nothing without its signature."""
    blocks = (Text(message.content),) if isinstance(message.content, str) else message.content
    parts: list[ModelResponsePart] = []
    for block in blocks:
        if isinstance(block, Text) and block.text:
            parts.append(TextPart(block.text))
        elif isinstance(block, Call):
            parts.append(ToolCallPart(block.name, block.input, block.origin or block.call_id))
    return ModelResponse(parts=parts, model_name=message.model)
