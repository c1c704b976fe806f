"""A session's messages as input items of the OpenAI Agents SDK, and its output items as private values of messages.

Pure: the translation in both directions. The exact output items of a step, with the provider's ids and encrypted
reasoning, are the private value of its message. A step without them, such as one of a seeded history, is rebuilt from
its visible blocks.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from dragoman.core.answers import INTERRUPTED_RESULT
from dragoman.core.content import (
    AssistantMessage,
    Block,
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
    Thinking,
    ToolMessage,
    UserMessage,
    encode_json,
    text_of,
)
from dragoman.core.ids import CallId

T = TypeVar("T")

Item = dict[str, Any]
"""An input item of the Responses API."""


class StepValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """The private value of a step: the agent that spoke, and its exact output items."""

    agent: str
    items: tuple[Item, ...] = ()


class ResultValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """The private value of a call's result.

    Args:
        agent: the agent that a handoff chose.
        output: what a function tool returned, if it is more than text.
        item: the output item of a tool that is not a function; None for a tool that the provider ran.
        native: the tool is not a function.
    """

    agent: str | None = None
    output: tuple[Item, ...] | None = None
    item: Item | None = None
    native: bool = False


def step_value(message: AssistantMessage) -> StepValue | None:
    """The private value of a step; None if it has none that this release can read."""
    return _decode(message.private, StepValue)


def result_value(message: ToolMessage) -> ResultValue:
    """The private value of a result."""
    return _decode(message.private, ResultValue) or ResultValue()


def last_agent(messages: Sequence[Message]) -> str | None:
    """The name of the agent that answered last, or that a handoff chose since; None if nobody did."""
    for message in reversed(messages):
        if isinstance(message, ToolMessage) and (agent := result_value(message).agent) is not None:
            return agent
        if isinstance(message, AssistantMessage) and (value := step_value(message)) is not None:
            return value.agent
    return None


def input_items(messages: Iterable[Message]) -> list[Item]:
    """A conversation as input items. A call without a result gets one, since providers refuse it otherwise."""
    items: list[Item] = []
    origins: dict[CallId, str] = {}
    for message in messages:
        match message:
            case UserMessage():
                items.append({"role": "user", "content": _input_content(message.content)})
            case SystemMessage():
                items.append({"role": "system", "content": message.content})
            case AssistantMessage():
                origins |= {call.call_id: call.origin or call.call_id for call in message.calls()}
                value = step_value(message)
                items += _items_of_blocks(message.content, origins) if value is None else value.items
            case ToolMessage():
                items += _items_of_result(message, origins)
    return _with_all_outputs(items)


def arguments_of(text: str | None) -> JsonObject:
    """The arguments of a call as an object; what is none is the value of `_raw`."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"_raw": text or ""}


def result_blocks(output: Iterable[Item]) -> tuple[InputBlock, ...]:
    """A structured output of a function tool as blocks."""
    return tuple(map(_block_of, output))


def to_tool_output(message: ToolMessage) -> str | list[Item]:
    """A result on record as a tool would return it, so that the model reads the same."""
    value = result_value(message)
    output = _output_content(message.content) if value.output is None else list(value.output)
    return output if isinstance(output, str) else [_returned_part(part) for part in output]


def _returned_part(part: Item) -> Item:
    """An input part in the form in which a tool returns it."""
    return {**part, "type": str(part["type"]).removeprefix("input_")}


def _decode(value: Json, kind: type[T]) -> T | None:
    if value is msgspec.UNSET or value is None:
        return None
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def _input_content(content: str | Sequence[InputBlock]) -> str | list[Item]:
    return content if isinstance(content, str) else [_part_of(block) for block in content]


def _part_of(block: InputBlock) -> Item:
    match block:
        case Text(text=text):
            return {"type": "input_text", "text": text}
        case Image(url=url):
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        case File(url=url, name=name):
            if url.startswith("data:"):
                return {"type": "input_file", "filename": name or "file", "file_data": url}
            return {"type": "input_file", "file_url": url}
        case Data(data=data):
            return {"type": "input_text", "text": encode_json(data).decode()}


def _items_of_blocks(content: str | Sequence[Block], origins: dict[CallId, str]) -> list[Item]:
    text = text_of(content if isinstance(content, str) else tuple(content))
    items: list[Item] = [{"role": "assistant", "content": text}] if text else []
    items.extend(
        {
            "type": "function_call",
            "call_id": origins[block.call_id],
            "name": block.name,
            "arguments": encode_json(block.input).decode(),
        }
        for block in (() if isinstance(content, str) else content)
        if isinstance(block, Call)
    )
    return items


def _items_of_result(message: ToolMessage, origins: dict[CallId, str]) -> list[Item]:
    value = result_value(message)
    if value.native:
        return [] if value.item is None else [value.item]
    output: str | list[Item]
    if value.output is not None:
        output = list(value.output)
    else:
        output = _output_content(message.content)
    call_id = origins.get(message.call_id, message.call_id)
    return [{"type": "function_call_output", "call_id": call_id, "output": output}]


def _output_content(content: str | Sequence[InputBlock]) -> str | list[Item]:
    if isinstance(content, str) or all(isinstance(block, Text | Thinking) for block in content):
        return text_of(content if isinstance(content, str) else tuple(content))
    return [_part_of(block) for block in content]


def _block_of(part: Item) -> InputBlock:
    match part:
        case {"type": "input_text", "text": str(text)}:
            return Text(text)
        case {"type": "input_image", "image_url": str(url)}:
            return Image(url)
        case {"type": "input_file", "file_data": str(url)} | {"type": "input_file", "file_url": str(url)}:
            return File(url=url, name=part.get("filename"))
        case _:
            return Data(part)


def _with_all_outputs(items: Sequence[Item]) -> list[Item]:
    called = {item["call_id"] for item in items if item.get("type") == "function_call"}
    answered = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
    complete: list[Item] = []
    for item in items:
        kind, call_id = item.get("type"), item.get("call_id")
        if kind == "function_call_output" and call_id not in called:  # its call is before the part that is sent
            continue
        complete.append(item)
        if kind == "function_call" and call_id not in answered:
            complete.append({"type": "function_call_output", "call_id": call_id, "output": INTERRUPTED_RESULT})
    return complete
