"""OpenAI's Chat Completions on the wire, outwards: a model request as the body of a POST. Pure.

Many servers speak it (OpenAI, Ollama, vLLM, llama.cpp …), each with its own gaps; a `Dialect` names them.
Source: the OpenAI API reference, "Create chat completion".
"""

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal, assert_never

import msgspec

from dragoman.core.content import (
    AssistantMessage,
    Call,
    Data,
    File,
    Image,
    InputBlock,
    Json,
    JsonObject,
    Message,
    SystemMessage,
    Text,
    ToolMessage,
    UserMessage,
    text_of,
)
from dragoman.core.tools import ToolSpec
from dragoman.models.tool_call_pairing import with_paired_calls
from dragoman.ports.models import ModelRequest

_MAX_ID_CHARS = 40  # OpenAI refuses longer ids of calls
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # and names of people that look otherwise
_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What a server understands, and what it is sent unless a request says otherwise.

    Args:
        limit_name: the name of the limit on the answer's tokens; OpenAI's newer models know the long one only.
        images: it takes `image_url` parts. If not, the model is told that there was a picture.
        files: it takes `file` and `input_audio` parts. If not, the model is told that there was a file.
        tools: it takes tools.
        instructions: the system message of a conversation that has none.
        defaults: parameters for requests that do not set them.
    """

    limit_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    images: bool = True
    files: bool = False
    tools: bool = True
    instructions: str = ""
    defaults: JsonObject = msgspec.field(default_factory=dict)


def request_body(model: str, request: ModelRequest, dialect: Dialect) -> bytes:
    """Write the body of a streaming request.

    Args:
        model: the server's name for the model; `request.model` is the caller's.
        request: its `parameters` cannot change what this function writes itself.
        dialect: what the server understands.
    """
    body: JsonObject = {**dialect.defaults, **request.parameters}
    if request.max_tokens is not None:
        body.pop("max_tokens", None)
        body.pop("max_completion_tokens", None)
        body[dialect.limit_name] = request.max_tokens
    body["model"] = model
    body["messages"] = wire_messages(request.instructions, request.messages, dialect)
    body["stream"] = True
    body["stream_options"] = {"include_usage": True}
    if request.tools and dialect.tools:
        body["tools"] = [_wire_tool(tool) for tool in request.tools]
    return _encode(body)


def wire_messages(instructions: str, messages: Sequence[Message], dialect: Dialect) -> list[JsonObject]:
    """Translate a conversation.

    Instructions and the system messages before the first other one become a single system message, because some
    models' templates take only one, at the beginning. Calls go out with their results or not at all.
    """
    lead = [instructions] if instructions else []
    wire: list[JsonObject] = []
    pictures: list[JsonObject] = []  # of results: a `tool` message takes text only, so they follow as a user's
    for message in with_paired_calls(messages):
        if pictures and not isinstance(message, ToolMessage):
            wire.append({"role": "user", "content": pictures})
            pictures = []
        match message:
            case SystemMessage():
                if wire:
                    wire.append({"role": "system", "content": message.content})
                else:
                    lead.append(message.content)
            case UserMessage():
                wire.append(_wire_user(message, dialect))
            case AssistantMessage():
                wire.extend(_wire_assistant(message))
            case ToolMessage():
                wire.append(_wire_result(message, dialect))
                pictures += _pictures(message, dialect)
            case _:
                assert_never(message)
    if pictures:
        wire.append({"role": "user", "content": pictures})
    system = "\n\n".join(lead) or dialect.instructions
    return [{"role": "system", "content": system}, *wire] if system else wire


def _wire_user(message: UserMessage, dialect: Dialect) -> JsonObject:
    wire: JsonObject = {"role": "user", "content": _wire_content(message.content, dialect)}
    if message.name is not None and _NAME.fullmatch(message.name):
        wire["name"] = message.name
    return wire


def _wire_content(content: str | tuple[InputBlock, ...], dialect: Dialect) -> str | list[JsonObject]:
    if isinstance(content, str):
        return content
    if all(isinstance(block, Text) for block in content):  # some servers take nothing but a string
        return text_of(content)
    return [_wire_part(block, dialect) for block in content]


def _wire_part(block: InputBlock, dialect: Dialect) -> JsonObject:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Data():
            return {"type": "text", "text": _json_text(block.data)}
        case Image():
            if dialect.images:
                return {"type": "image_url", "image_url": {"url": block.url}}
            return {"type": "text", "text": "[a picture that you cannot see]"}
        case File():
            return (_wire_file(block) if dialect.files else None) or {"type": "text", "text": file_placeholder(block)}
        case _:
            assert_never(block)


def _wire_file(block: File) -> JsonObject | None:
    """The file as a part, if it came whole and is of a kind that there is a part for."""
    head, _, encoded = block.url.partition(";base64,")
    if not head.startswith("data:") or not encoded:
        return None
    media_type = block.media_type or head.removeprefix("data:").partition(";")[0]
    if media_type in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": _AUDIO[media_type]}}
    if block.media == "file":
        return {"type": "file", "file": {"filename": block.name or "file", "file_data": block.url}}
    return None


def file_placeholder(block: File) -> str:
    """What a model is told of a file that it cannot be given."""
    where = "" if block.url.startswith("data:") else f", at {block.url}"
    return f"[{block.media} {block.name or 'without a name'} ({block.media_type or 'unknown type'}){where}: not shown]"


def _wire_assistant(message: AssistantMessage) -> list[JsonObject]:
    """The words and calls of a step. Its reasoning stays here: this protocol has no place for it."""
    text = text_of(message.content)
    calls = message.calls()
    if not text and not calls:
        return []
    wire: JsonObject = {"role": "assistant", "content": text or None}
    if calls:
        wire["tool_calls"] = [_wire_call(call) for call in calls]
    return [wire]


def _wire_call(call: Call) -> JsonObject:
    function = {"name": call.name, "arguments": _json_text(call.input)}
    return {"id": _wire_id(call.call_id), "type": "function", "function": function}


def _wire_result(message: ToolMessage, dialect: Dialect) -> JsonObject:
    if isinstance(message.content, str):
        content = message.content
    else:
        shown = [_wire_part(block, dialect) for block in message.content]
        texts = [part["text"] for part in shown if part["type"] == "text"]
        content = "\n".join(texts) or ("[see the next message]" if shown else "")
    return {"role": "tool", "tool_call_id": _wire_id(message.call_id), "content": content}


def _pictures(message: ToolMessage, dialect: Dialect) -> list[JsonObject]:
    """What a result shows apart from text, under a line that says whose it is."""
    if isinstance(message.content, str):
        return []
    shown = [_wire_part(block, dialect) for block in message.content]
    parts = [part for part in shown if part["type"] != "text"]
    return [{"type": "text", "text": f"From the tool {message.name}:"}, *parts] if parts else []


def _wire_tool(tool: ToolSpec) -> JsonObject:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _wire_id(call_id: str) -> str:
    """The id as it came from the model, or a digest where another provider made a longer one than OpenAI takes."""
    if len(call_id) <= _MAX_ID_CHARS:
        return call_id
    return f"call_{sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:32]}"


def _json_text(value: Json) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # a lone surrogate: JSON can escape it, UTF-8 cannot hold it
        return json.dumps(value)


def _encode(body: JsonObject) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # as above, in text this time: "?" stands for it
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
