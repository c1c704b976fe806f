"""The history that a session is created with, in AAP's form. Pure."""

from collections.abc import Iterable, Iterator

from dragoman.client.errors import Unsupported
from dragoman.client.events import Block, Image, Message, Question, Text, Thinking, ToolCall, ToolResult
from dragoman.client.pending import question_arguments
from dragoman.core.content import JsonObject
from dragoman.core.tools import ASK_USER_QUESTION


def seed_messages(history: Iterable[Message]) -> list[JsonObject]:
    """Encode messages, such as those of `session.history()`, for a new session; without those that were repeated."""
    return [seed for message in history if not message.cut for seed in _seeds_of(message)]


def _seeds_of(message: Message) -> Iterator[JsonObject]:
    if message.role == "system":
        yield {"role": "system", "content": message.text}
        return
    results = [block for block in message.blocks if isinstance(block, ToolResult)]
    for result in results:
        content: list[JsonObject] = [{"type": "text", "text": result.text}]
        content += [{"type": "image", "url": url} for url in result.images]
        yield {
            "role": "tool",
            "toolCallId": result.call_id,
            "content": content if result.images else result.text,
        }
    if not results:
        yield {"role": message.role, "content": [_to_seed_block(block) for block in message.blocks]}


def _to_seed_block(block: Block) -> JsonObject:
    match block:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Thinking(text=text):
            return {"type": "thinking", "thinking": text}
        case Image(url=url):
            return {"type": "image", "url": url}
        case ToolCall(id=call_id, name=name, arguments=arguments):
            return {"type": "tool_use", "toolCallId": call_id, "name": name, "input": arguments}
        case Question(call_id=call_id, questions=questions):
            arguments = question_arguments(questions)
            return {"type": "tool_use", "toolCallId": call_id, "name": ASK_USER_QUESTION, "input": arguments}
        case _:
            raise Unsupported(f"AAP cannot express a {type(block).__name__} in the history of a new session")
