"""OpenAI's Chat Completions: encode a model request as the body of a POST. Pure.

Many servers implement this API (OpenAI, Ollama, vLLM, llama.cpp …), each with its own gaps; a `Dialect` describes them.
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

_MAX_ID_CHARS = 40  # OpenAI rejects longer call ids
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # and other user names
_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What a server supports, and the default parameters of its requests.

    Args:
        limit_name: the parameter that limits the answer's tokens; OpenAI's newer models accept only the long name.
        images: whether `image_url` parts are supported. If not, a note takes the place of the image.
        files: whether `file` and `input_audio` parts are supported. If not, a note takes the place of the file.
        tools: whether tools are supported.
        usage: whether `stream_options` is supported, which asks for the number of tokens.
        instructions: the system message of conversations that have none.
        defaults: parameters of requests that do not set them.
    """

    limit_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    images: bool = True
    files: bool = False
    tools: bool = True
    usage: bool = True
    instructions: str = ""
    defaults: JsonObject = msgspec.field(default_factory=dict)


def request_body(model: str, request: ModelRequest, dialect: Dialect) -> bytes:
    """Encode the body of a streaming request.

    Args:
        model: the server's name for the model; `request.model` is our own.
        request: the request. Its `parameters` cannot override the members that this function sets.
        dialect: what the server supports.
    """
    body: JsonObject = {**dialect.defaults, **request.parameters}
    if request.max_tokens is not None:
        body.pop("max_tokens", None)
        body.pop("max_completion_tokens", None)
        body[dialect.limit_name] = request.max_tokens
    body["model"] = model
    body["messages"] = wire_messages(request.instructions, request.messages, dialect)
    body["stream"] = True
    if dialect.usage:
        body["stream_options"] = {"include_usage": True}
    if request.tools and dialect.tools:
        body["tools"] = [_wire_tool(tool) for tool in request.tools]
    else:  # providers refuse them without tools
        body.pop("tool_choice", None)
        body.pop("parallel_tool_calls", None)
        if request.output_schema is not None:  # with tools, some servers apply it to calls as well
            schema = {"name": "answer", "schema": request.output_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return _encode(body)


def wire_messages(instructions: str, messages: Sequence[Message], dialect: Dialect) -> list[JsonObject]:
    """Translate a conversation.

    The instructions and the leading system messages become a single system message, because the chat templates of some
    models accept only one, at the beginning. Calls without a result are dropped.
    """
    lead = [instructions] if instructions else []
    wire: list[JsonObject] = []
    media: list[JsonObject] = []  # of results: `tool` messages accept only text, so the media follow as a user message
    for message in with_paired_calls(messages):
        if media and not isinstance(message, ToolMessage):
            wire.append({"role": "user", "content": media})
            media = []
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
                content, parts = _wire_result(message, dialect)
                wire.append({"role": "tool", "tool_call_id": _wire_id(message.call_id), "content": content})
                media += parts
            case _:
                assert_never(message)
    if media:
        wire.append({"role": "user", "content": media})
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
    if all(isinstance(block, Text) for block in content):  # some servers accept only a string
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
            return {"type": "text", "text": "[an image that you cannot see]"}
        case File():
            return (_wire_file(block) if dialect.files else None) or {"type": "text", "text": file_placeholder(block)}
        case _:
            assert_never(block)


def _wire_file(block: File) -> JsonObject | None:
    """The file as a part; None if it is not a data URI or there is no part for its type."""
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
    """The note for a model that takes the place of a file."""
    location = "" if block.url.startswith("data:") else f", at {block.url}"
    name, media_type = block.name or "without a name", block.media_type or "unknown type"
    return f"[{block.media} {name} ({media_type}){location}: not shown]"


def _wire_assistant(message: AssistantMessage) -> list[JsonObject]:
    """The text and calls of a step. Thinking is dropped, because this API has no place for it."""
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


def _wire_result(message: ToolMessage, dialect: Dialect) -> tuple[str, list[JsonObject]]:
    """The text of a result, and its other parts, preceded by the name of the tool."""
    if isinstance(message.content, str):
        return message.content, []
    parts = [_wire_part(block, dialect) for block in message.content]
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    media = [part for part in parts if part["type"] != "text"]
    if media:
        media.insert(0, {"type": "text", "text": f"From the tool {message.name}:"})
    return text or ("[see the next message]" if parts else ""), media


def _wire_tool(tool: ToolSpec) -> JsonObject:
    function: JsonObject = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _wire_id(call_id: str) -> str:
    """The call id, or a digest of it if another provider created one that is too long for OpenAI."""
    if len(call_id) <= _MAX_ID_CHARS:
        return call_id
    return f"call_{sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:32]}"


def _json_text(value: Json) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can escape but UTF-8 cannot encode
        return json.dumps(value)


def _encode(body: JsonObject) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # as above, but in text: replaced with "?"
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
