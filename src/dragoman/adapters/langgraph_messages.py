"""LangChain's messages and results in the forms of the log, and back. Pure."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import msgspec
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, convert_to_messages
from langchain_core.messages import ToolMessage as LangChainResult
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command

from dragoman.core.content import (
    AssistantMessage,
    Block,
    Data,
    File,
    Image,
    InputBlock,
    Json,
    Message,
    Text,
    ToolMessage,
    Usage,
    UserMessage,
    encode_json,
    text_of,
)

TextOfKind = tuple[Literal["text", "thinking"], str]


def texts_of(message: AIMessage) -> Iterator[TextOfKind]:
    """The text and the visible reasoning of a message or a chunk, in order."""
    reasoning = message.additional_kwargs.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        yield "thinking", reasoning
    content = message.content
    if isinstance(content, str):
        if content:
            yield "text", _plain(content)
        return
    for block in content:
        if isinstance(block, str):
            yield "text", _plain(block)
        elif block.get("type") == "text" and block.get("text"):
            yield "text", _plain(block["text"])
        elif block.get("type") in ("reasoning", "thinking"):
            thought = block.get("reasoning") or block.get("thinking") or ""
            if isinstance(thought, str) and thought:
                yield "thinking", _plain(thought)


def images_of(message: AIMessage) -> Iterator[Image]:
    """The pictures in a message."""
    if isinstance(message.content, list):
        for block in message.content_blocks:
            if block["type"] != "image":
                continue
            if url := block.get("url"):
                yield Image(url)
            elif data := block.get("base64"):
                yield Image(f"data:{block.get('mime_type', 'image/png')};base64,{data}")


def usage_of(message: AIMessage) -> Usage | None:
    """What a model reported of its tokens."""
    found = message.usage_metadata
    return found and Usage(
        input_tokens=found["input_tokens"],
        output_tokens=found["output_tokens"],
        cached_tokens=found.get("input_token_details", {}).get("cache_read") or 0,
        reasoning_tokens=found.get("output_token_details", {}).get("reasoning") or 0,
    )


def to_human(message: UserMessage) -> HumanMessage:
    """A user's message as a graph gets it, with its id."""
    return HumanMessage(content=_content(message.content), id=message.id)


def to_langchain(messages: Iterable[Message]) -> list[BaseMessage]:
    """A history as a graph gets it that has no checkpoint of it."""
    found: list[BaseMessage] = []
    for message in messages:
        match message:
            case UserMessage():
                found.append(to_human(message))
            case AssistantMessage():
                calls = [
                    {"name": call.name, "args": call.input, "id": call.call_id, "type": "tool_call"}
                    for call in message.calls()
                ]
                found.append(AIMessage(content=text_of(message.content), tool_calls=calls, id=message.id))
            case ToolMessage():
                found.append(
                    LangChainResult(
                        content=text_of(message.content),
                        tool_call_id=message.call_id,
                        name=message.name,
                        status="error" if message.is_error else "success",
                    )
                )
            case _:
                found.append(SystemMessage(content=message.content))
    return found


def _content(content: str | Sequence[Block]) -> Any:  # noqa: ANN401  # a list of several types of blocks
    if isinstance(content, str):
        return content
    return [_block(each) for each in content]


def _block(block: Block) -> dict[str, Any]:
    match block:
        case Image(url=url):
            return {"type": "image", **_source(url)}
        case File(url=url, media=media, media_type=media_type):
            source = _source(url)
            return {"type": media, **source, **({"mime_type": media_type} if media_type else {})}
        case Data(data=data):
            return {"type": "text", "text": encode_json(data).decode()}
        case _:
            return {"type": "text", "text": text_of((block,))}


def _source(url: str) -> dict[str, str]:
    if not url.startswith("data:"):
        return {"url": url}
    head, _, data = url.partition(",")
    return {"base64": data, "mime_type": head.removeprefix("data:").partition(";")[0]}


# --- results of tools -------------------------------------------------------------------------------------------------


def result_of(value: object, call_id: str) -> tuple[str | tuple[InputBlock, ...], bool]:
    """What a tool's result says to the model, and whether it is an error."""
    messages = chain(messages_in(value), _results_as_dicts(value))
    message = next((each for each in messages if _answers(each, call_id)), value)
    if isinstance(message, LangChainResult):
        return result_content(message), message.status == "error"
    return "" if isinstance(message, Command | list) else str(message), False


def _results_as_dicts(value: object) -> Iterator[BaseMessage]:
    """The results among a command's messages that have the form of a dict."""
    update = value.update if isinstance(value, Command) else None
    messages = update.get("messages", ()) if isinstance(update, Mapping) else ()
    for each in messages if isinstance(messages, list) else ():
        if isinstance(each, Mapping) and each.get("role") == "tool":
            yield from convert_to_messages([dict(each)])


def _answers(message: BaseMessage, call_id: str) -> bool:
    return isinstance(message, LangChainResult) and message.tool_call_id == call_id


def result_content(message: LangChainResult) -> str | tuple[InputBlock, ...]:
    """The content of a result as the log holds it."""
    if isinstance(message.content, str):
        return _plain(message.content)
    blocks: list[InputBlock] = []
    for block in message.content:
        if isinstance(block, str):
            blocks.append(Text(_plain(block)))
        elif block.get("type") == "text":
            blocks.append(Text(_plain(block["text"])))
        elif block.get("type") == "image" and (block.get("url") or block.get("base64")):
            data = f"data:{block.get('mime_type', 'image/png')};base64,{block.get('base64')}"
            blocks.append(Image(block.get("url") or data))
        else:
            blocks.append(Text(json.dumps(block, default=str)))
    return tuple(blocks)


def messages_in(value: object) -> Iterator[BaseMessage]:
    """The messages in what a node or a tool returned, or in what a task wrote."""
    if isinstance(value, BaseMessage):
        yield value
    elif isinstance(value, Command):
        yield from messages_in(value.update)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from messages_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from messages_in(each)


def dump_result(serializer: JsonPlusSerializer, value: object) -> Json:
    """A tool's result as a private value; None if the visible result says everything."""
    if isinstance(value, LangChainResult) and isinstance(value.content, str) and value.artifact is None:
        return None
    kind, data = serializer.dumps_typed(value)
    return {"kind": kind, "data": b64encode(data).decode()}


def load_result(serializer: JsonPlusSerializer, message: ToolMessage, origin: str) -> Any:  # noqa: ANN401  # of a tool
    """A tool's result as it was given, from the log."""
    private = message.private
    if isinstance(private, dict) and "kind" in private:
        return serializer.loads_typed((private["kind"], b64decode(private["data"])))
    return LangChainResult(
        content=text_of(message.content),
        name=message.name,
        tool_call_id=origin,
        status="error" if message.is_error else "success",
    )


def is_json_object(text: str) -> bool:
    """Whether a text is a JSON object."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except msgspec.DecodeError:
        return False


def output_text(value: object) -> str:
    """A structured output as compact JSON."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    try:
        return encode_json(msgspec.to_builtins(value, str_keys=True)).decode()
    except (TypeError, ValueError):
        return json.dumps(value, default=str, separators=(",", ":"))


def _plain(text: str) -> str:
    """Words without the class that LangChain gives them, which the log's encoder does not know."""
    return "".join((text,)) if type(text) is not str else text
