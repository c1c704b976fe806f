"""The history that a thread is created with, in AG-UI's form. Pure."""

from collections.abc import Iterable, Iterator
from uuid import uuid4

from dragoman.client.agui_content import to_wire_content
from dragoman.client.events import Image, Message, Question, Text, ToolCall, ToolResult
from dragoman.client.pending import question_arguments
from dragoman.core.answers import compact_json
from dragoman.core.content import JsonObject
from dragoman.core.tools import ASK_USER_QUESTION


def seed_messages(history: Iterable[Message]) -> list[JsonObject]:
    """Encode messages, such as those of `session.history()`, for a new thread; without those that were repeated.

    Reasoning is left out: servers of earlier versions of the protocol refuse it.
    """
    return [seed for message in history if not message.cut for seed in _seeds_of(message)]


def _seeds_of(message: Message) -> Iterator[JsonObject]:
    message_id = message.id or uuid4().hex
    if message.role in ("user", "system"):
        images = [block.url for block in message.blocks if isinstance(block, Image)]
        yield {"id": message_id, "role": message.role, "content": to_wire_content(message.text, images)}
        return
    results = [block for block in message.blocks if isinstance(block, ToolResult)]
    for index, result in enumerate(results):
        own_id = f"{message_id}:{index}" if index else message_id
        content = to_wire_content(result.text, result.images)
        yield {"id": own_id, "role": "tool", "toolCallId": result.call_id, "content": content}
    text = "".join(block.text for block in message.blocks if isinstance(block, Text))
    calls = [call for block in message.blocks for call in _calls_of(block)]
    if not results and (text or calls):
        seed: JsonObject = {"id": message_id, "role": "assistant"}
        yield seed | ({"content": text} if text else {}) | ({"toolCalls": calls} if calls else {})


def _calls_of(block: object) -> Iterator[JsonObject]:
    match block:
        case ToolCall(id=call_id, name=name, arguments=arguments):
            yield _call(call_id, name, arguments)
        case Question(call_id=call_id, questions=questions):
            yield _call(call_id, ASK_USER_QUESTION, question_arguments(questions))


def _call(call_id: str, name: str, arguments: JsonObject) -> JsonObject:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": compact_json(arguments)}}
