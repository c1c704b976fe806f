"""Messages and their content. Pure values; every protocol translates to and from these.

An assistant message is one model step. Its calls are blocks; the result of a call is a message of its own.
"""

from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from dragoman.core.ids import ROOT, CallId, LoopId, MessageId
from dragoman.core.json_memory import JsonEncoder

Json = Any
"""A JSON value from a user, a model or a tool. It is opaque: the core only stores and forwards it."""

JsonObject = dict[str, Any]
B = TypeVar("B")

DEPTH_LIMIT = 100
"""Maximum nesting of lists and objects in a value. Encoders and decoders recurse on their caller's stack, so a deeper
value could be encoded in one place of the program and fail to decode in another."""
TOO_DEEP = f"expected at most {DEPTH_LIMIT} levels of lists and objects"


def is_too_deep(value: Json) -> bool:
    """Whether a value is nested more deeply than `DEPTH_LIMIT`. Not recursive."""
    level = [value] if isinstance(value, (dict, list, tuple)) else []
    for _ in range(DEPTH_LIMIT + 1):
        if not level:
            return False
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, (dict, list, tuple))
        ]
    return bool(level)


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Text. In answers it is streamed in pieces."""

    text: str


class Thinking(msgspec.Struct, frozen=True, tag="thinking"):
    """The model's reasoning, if it is visible."""

    text: str


class Image(msgspec.Struct, frozen=True, omit_defaults=True, tag="image"):
    """An image: a URL with `http` or `https`, or a base64 `data:` URI. `name` is that of its file, if it had one."""

    url: str
    name: str | None = None


class File(msgspec.Struct, frozen=True, tag="file"):
    """Audio, video or any other file, by URL or `data:` URI."""

    url: str
    media: Literal["audio", "video", "file"] = "file"
    media_type: str | None = None
    name: str | None = None


def image_or_file(url: str, media_type: str, name: str | None = None) -> Image | File:
    """An image or a file, according to its media type. Audio and video are marked."""
    kind = media_type.partition("/")[0].lower()
    if kind == "image":
        return Image(url, name)
    kinds: dict[str, Literal["audio", "video"]] = {"audio": "audio", "video": "video"}
    return File(url=url, media=kinds.get(kind, "file"), media_type=media_type, name=name)


class Data(msgspec.Struct, frozen=True, tag="data"):
    """A JSON object for the application."""

    data: JsonObject


class DataUri(NamedTuple):
    """The parts of a `data:` URI. The type has no parameters, and may be empty; `data` is base64."""

    media_type: str
    data: str


def parse_data_uri(url: str) -> DataUri | None:
    """The parts of a `data:` URI in base64; None for any other URL."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    return DataUri(head.removeprefix("data:").partition(";")[0].strip(), data)


UNPARSED_ARGUMENTS = "_unreadable"
"""The argument that holds the raw text of arguments that are not a JSON object (shared rules, 18). No tool takes it."""


def parse_arguments(text: str) -> JsonObject:
    """The arguments of a call, which a model or a client wrote as JSON."""
    try:
        value = msgspec.json.decode(text or "{}")
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {UNPARSED_ARGUMENTS: text}


class Call(msgspec.Struct, frozen=True, omit_defaults=True, tag="call"):
    """A tool call of the model. `input` is the parsed JSON object.

    `origin` is the id that the agent's framework has for the call, which may repeat from turn to turn. Clients see
    `call_id`.
    """

    call_id: CallId
    name: str
    input: JsonObject
    origin: str | None = None


InputBlock = Text | Image | File | Data
Block = Text | Thinking | Image | File | Data | Call
StreamedBlockKind = Literal["text", "thinking"]
"""The kinds of blocks that are streamed in pieces."""

MessageStatus = Literal["completed", "interrupted", "failed", "cut"]
"""How a model step ended: completely, stopped by a client, with an error, or cut off by a crash of the server."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Token usage that model calls reported.

    Of the input, `cached_tokens` came from the provider's cache; of the output, `reasoning_tokens` were thinking.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


class UserMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="user"):
    """A message of a person. `content` keeps the form in which it was sent: a string or blocks.

    `client_id` is the client's own id for the message, which need not be unique (shared rules, 13). `metadata` is what
    the application stores with the message; no agent reads it.
    """

    id: MessageId
    content: str | tuple[InputBlock, ...]
    loop: LoopId = ROOT
    client_id: str | None = None
    name: str | None = None
    metadata: Json | msgspec.UnsetType = msgspec.UNSET


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="assistant"):
    """One model step: its text, reasoning and calls.

    A message that is `cut` stays in the history as it was seen, but its step is repeated (shared rules, 25).
    `provider_data` is opaque: what the model's provider needs back with the message, such as signatures of reasoning.
    `private` is the agent's own value, which no client ever sees.
    """

    id: MessageId
    content: str | tuple[Block, ...]
    loop: LoopId = ROOT
    status: MessageStatus = "completed"
    model: str | None = None
    usage: Usage | None = None
    provider_data: JsonObject | None = None
    private: Json | msgspec.UnsetType = msgspec.UNSET

    def calls(self) -> tuple[Call, ...]:
        """The calls of this step, in order."""
        if isinstance(self.content, str):
            return ()
        return tuple(block for block in self.content if isinstance(block, Call))


class ToolMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tool"):
    """The result of a call, as the model sees it. The `content` of a client's result keeps the form it was sent in.

    `raw` is the tool's return value if it contains more than `content` (shared rules, 18). `repeated_by` is the call
    that asks the user again, after a crash interrupted this one (shared rules, 20). `private` is the tool's or the
    agent's own value, which neither the model nor any client ever sees.
    """

    id: MessageId
    call_id: CallId
    name: str
    content: str | tuple[InputBlock, ...]
    loop: LoopId = ROOT
    is_error: bool = False
    raw: Json | msgspec.UnsetType = msgspec.UNSET
    repeated_by: CallId | None = None
    private: Json | msgspec.UnsetType = msgspec.UNSET


class SystemMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="system"):
    """Instructions or a notice. `origin` is `seed` if a client sent it when it created the session."""

    id: MessageId
    content: str
    loop: LoopId = ROOT
    origin: Literal["seed", "notice"] = "seed"


Message = UserMessage | AssistantMessage | ToolMessage | SystemMessage


def to_plain_value(value: object) -> object:
    """The `str`, `int` or `float` in a value of a class derived from it, which msgspec does not encode by itself.

    Raises:
        TypeError: it is none of them.
    """
    if isinstance(value, str):
        return "".join((value,))
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be written as JSON")


_ENCODER = JsonEncoder(enc_hook=to_plain_value)


def encode_json(value: Json) -> bytes:
    """The value as compact JSON; values of derived classes as those of their bases. Raises TypeError."""
    return _ENCODER.encode(value)


def blocks_of(content: str | tuple[B, ...]) -> tuple[B | Text, ...]:
    """Content as blocks: a string is one text."""
    return (Text(content),) if isinstance(content, str) else content


def text_of(content: str | tuple[Block, ...] | tuple[InputBlock, ...]) -> str:
    """The plain text of a message: its text blocks, joined without separators."""
    if isinstance(content, str):
        return content
    return "".join(block.text for block in content if isinstance(block, Text))
