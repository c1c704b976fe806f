"""What messages are made of. Pure values; every protocol translates to and from these.

An assistant message is one model step. Its calls are blocks of it; the result of a call is a message of its own.
"""

from typing import Any, Literal

import msgspec

from dragoman.core.ids import ROOT, CallId, LoopId, MessageId

Json = Any
"""A JSON value of a user's, a model's or a tool's making. Opaque: the core stores it and hands it on."""

JsonObject = dict[str, Any]

DEPTH_LIMIT = 100
"""Levels of lists and objects within one another that a value may have. What is deeper could be written from one place
of the program and not be read from another, because both take their recursion from one stack."""


def is_too_deep(value: Json) -> bool:
    """Whether a value has more levels than `DEPTH_LIMIT`. Needs no stack itself."""
    level = [value]
    for _ in range(DEPTH_LIMIT + 1):
        inner: list[Json] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(each.values())
            elif isinstance(each, (list, tuple)):
                inner.extend(each)
        level = [each for each in inner if isinstance(each, (dict, list, tuple))]
        if not level:
            return False
    return True


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Words for the reader. In answers they arrive piece by piece."""

    text: str


class Thinking(msgspec.Struct, frozen=True, tag="thinking"):
    """The model's reasoning, where it shows it."""

    text: str


class Image(msgspec.Struct, frozen=True, tag="image"):
    """A picture: an `https://` URL or a base64 `data:` URI."""

    url: str


class File(msgspec.Struct, frozen=True, tag="file"):
    """Audio, video or any other file, by URL or `data:` URI."""

    url: str
    media: Literal["audio", "video", "file"] = "file"
    media_type: str | None = None
    name: str | None = None


class Data(msgspec.Struct, frozen=True, tag="data"):
    """A JSON object for the application."""

    data: JsonObject


class Call(msgspec.Struct, frozen=True, tag="call"):
    """A use of a tool that the model asked for. `input` is the parsed JSON object."""

    call_id: CallId
    name: str
    input: JsonObject


InputBlock = Text | Image | File | Data
Block = Text | Thinking | Image | File | Data | Call
StreamedBlockKind = Literal["text", "thinking"]
"""The kinds of block that arrive in pieces."""

MessageStatus = Literal["completed", "interrupted", "failed", "cut"]
"""How a model step ended: whole, stopped by a client, broken off by an error, cut off by the server's death."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens that model calls reported."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


class UserMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="user"):
    """What a person said. `content` keeps the form in which it was sent, a string or blocks.

    `client_id` is the id that the client gave it: kept, but it identifies nothing alone (shared rules, 13).
    """

    id: MessageId
    content: str | tuple[InputBlock, ...]
    loop: LoopId = ROOT
    client_id: str | None = None
    name: str | None = None


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="assistant"):
    """One model step: what it said, thought and called.

    One that is `cut` stays in the history as it was seen, but its step is played again (shared rules, 25).
    """

    id: MessageId
    content: str | tuple[Block, ...]
    loop: LoopId = ROOT
    status: MessageStatus = "completed"
    model: str | None = None
    usage: Usage | None = None

    def calls(self) -> tuple[Call, ...]:
        """The calls of this step, in order."""
        if isinstance(self.content, str):
            return ()
        return tuple(block for block in self.content if isinstance(block, Call))


class ToolMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tool"):
    """The result of a call, as the model sees it. `content` of a client's result keeps the form it was sent in.

    `raw` is the tool's own return value where that says more than `content` (shared rules, 18).
    """

    id: MessageId
    call_id: CallId
    name: str
    content: str | tuple[InputBlock, ...]
    loop: LoopId = ROOT
    is_error: bool = False
    raw: Json | msgspec.UnsetType = msgspec.UNSET


class SystemMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="system"):
    """Instructions or a note. `origin` is `seed` for what a client sent when it made the session."""

    id: MessageId
    content: str
    loop: LoopId = ROOT
    origin: Literal["seed", "notice"] = "seed"


Message = UserMessage | AssistantMessage | ToolMessage | SystemMessage


def text_of(content: str | tuple[Block, ...] | tuple[InputBlock, ...]) -> str:
    """The plain text of a message: its text blocks, joined with nothing between."""
    if isinstance(content, str):
        return content
    return "".join(block.text for block in content if isinstance(block, Text))
