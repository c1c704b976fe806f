"""Prepare a conversation for a model: in the order that models require, and within the context window. Pure.

Token counts are estimates on the high side: an early summary is better than a rejected request.
"""

from collections.abc import Iterator, Sequence

import msgspec

from dragoman.core.content import (
    AssistantMessage,
    Block,
    Call,
    Data,
    File,
    Image,
    InputBlock,
    Json,
    Message,
    SystemMessage,
    Text,
    Thinking,
    ToolMessage,
    UserMessage,
)
from dragoman.core.ids import CallId
from dragoman.core.tokens import CHARS_PER_TOKEN, estimate_tokens
from dragoman.core.tools import Capabilities, ToolSpec

MESSAGE_TOKENS = 4
MEDIA_TOKENS = 1000
"""For an image or a file of any size, because models scale them."""
SHORTENING_LIMITS = (16_000, 4_000, 1_000, 300)
"""Maximum characters of each text, tried in this order until the conversation fits."""

_JSON = msgspec.json.Encoder()


# --- counting ---------------------------------------------------------------------------------------------------------


def tokens_of_json(value: Json) -> int:
    """Estimated tokens of a value as JSON."""
    try:
        return len(_JSON.encode(value)) // CHARS_PER_TOKEN + 1
    except UnicodeEncodeError:  # a lone surrogate
        return estimate_tokens(str(value))


def tokens_of(message: Message) -> int:
    """Estimated tokens of a message."""
    if isinstance(message.content, str):
        return MESSAGE_TOKENS + estimate_tokens(message.content)
    return MESSAGE_TOKENS + sum(map(_tokens_of_block, message.content))


def tokens_of_all(messages: Sequence[Message]) -> int:
    """Estimated tokens of all messages together."""
    return sum(map(tokens_of, messages))


def tokens_of_tools(tools: Sequence[ToolSpec]) -> int:
    """Estimated tokens of the tools' specifications."""
    return sum(tokens_of_json(tool) for tool in tools)


def _tokens_of_block(block: Block | InputBlock) -> int:
    match block:
        case Text(text=text) | Thinking(text=text):
            return estimate_tokens(text)
        case Image() | File():
            return MEDIA_TOKENS
        case Data(data=data):
            return tokens_of_json(data)
        case Call(name=name, input=arguments):
            return estimate_tokens(name) + tokens_of_json(arguments) + MESSAGE_TOKENS


# --- ordering ---------------------------------------------------------------------------------------------------------


def order_for_model(messages: Sequence[Message]) -> list[Message]:
    """The conversation with each step followed by its results, in the order of its calls.

    Calls without a result and results without a call are dropped, because models reject both.
    """
    results: dict[CallId, ToolMessage] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            results.setdefault(message.call_id, message)
    ordered: list[Message] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            continue
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
            blocks = tuple(each for each in message.content if not isinstance(each, Call) or each.call_id in results)
            if blocks:
                ordered.append(msgspec.structs.replace(message, content=blocks))
                ordered += [results.pop(block.call_id) for block in blocks if isinstance(block, Call)]
        elif message.content:
            ordered.append(message)
    return ordered


def cut_points(messages: Sequence[Message]) -> Iterator[int]:
    """The indexes before which a conversation can be cut without separating a call from its result.

    There is no cut point after a call that has no result.
    """
    result_index: dict[CallId, int] = {}
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            result_index.setdefault(message.call_id, index)
    last_result = -1
    for index, message in enumerate(messages):
        if index > last_result and not isinstance(message, ToolMessage):
            yield index
        if isinstance(message, AssistantMessage):
            for call in message.calls():
                last_result = max(last_result, result_index.get(call.call_id, len(messages)))


# --- fitting ----------------------------------------------------------------------------------------------------------


def fit_to_budget(messages: Sequence[Message], budget: int) -> list[Message]:
    """The newest part of an ordered conversation, with at most `budget` tokens if that is possible.

    Long results are shortened first. Then the oldest messages are dropped, except for leading system messages and
    everything from the last user message on. Finally, all long texts are shortened.
    """
    fitted = list(messages)
    if tokens_of_all(fitted) <= budget:
        return fitted
    fitted = [shorten(each, SHORTENING_LIMITS[0]) if isinstance(each, ToolMessage) else each for each in fitted]
    if tokens_of_all(fitted) > budget:
        fitted = _drop_oldest(fitted, budget)
    for max_chars in SHORTENING_LIMITS:
        if tokens_of_all(fitted) <= budget:
            break
        fitted = [shorten(each, max_chars) for each in fitted]
    return fitted


def _drop_oldest(messages: Sequence[Message], budget: int) -> list[Message]:
    first = next((index for index, each in enumerate(messages) if not isinstance(each, SystemMessage)), len(messages))
    lead, rest = messages[:first], messages[first:]
    remaining = budget - tokens_of_all(lead)
    last_user = max((index for index, each in enumerate(rest) if isinstance(each, UserMessage)), default=len(rest) - 1)
    cuts = [index for index in cut_points(rest) if index <= last_user]
    for cut in cuts:
        if isinstance(rest[cut], UserMessage) and tokens_of_all(rest[cut:]) <= remaining:
            return [*lead, *rest[cut:]]
    return [*lead, *rest[max(cuts, default=0) :]]


def shorten(message: Message, max_chars: int) -> Message:
    """The message with each text, and each string argument of a call, shortened to `max_chars`."""
    if isinstance(message, SystemMessage):
        return message
    if isinstance(message.content, str):
        return msgspec.structs.replace(message, content=shorten_text(message.content, max_chars))
    blocks = tuple(_shorten_block(block, max_chars) for block in message.content)
    return msgspec.structs.replace(message, content=blocks)


def shorten_text(text: str, max_chars: int) -> str:
    """The beginning and the end of a text, with a note in between that says how much is missing."""
    if len(text) <= max_chars:
        return text
    head = max_chars * 2 // 3
    tail = max_chars - head
    return f"{text[:head]}\n[… {len(text) - max_chars} characters omitted …]\n{text[-tail:]}"


def _shorten_block(block: Block | InputBlock, max_chars: int) -> Block | InputBlock:
    match block:
        case Text(text=text):
            return Text(shorten_text(text, max_chars))
        case Thinking(text=text):
            return Thinking(shorten_text(text, max_chars))
        case Call(input=arguments):
            short = {
                name: shorten_text(value, max_chars) if isinstance(value, str) else value
                for name, value in arguments.items()
            }
            return msgspec.structs.replace(block, input=short)
        case _:
            return block


# --- images -----------------------------------------------------------------------------------------------------------


def replace_unsupported_images(messages: Sequence[Message], capabilities: Capabilities) -> list[Message]:
    """The conversation with a note in place of each image that the agent does not accept."""
    if capabilities.image_http and capabilities.image_data:
        return list(messages)
    return [_replace_images(message, capabilities) for message in messages]


def _replace_images(message: Message, capabilities: Capabilities) -> Message:
    if isinstance(message.content, str) or not any(isinstance(block, Image) for block in message.content):
        return message
    blocks = tuple(
        Text("[an image that is not shown here]")
        if isinstance(block, Image)
        and not (capabilities.image_data if block.url.startswith("data:") else capabilities.image_http)
        else block
        for block in message.content
    )
    return msgspec.structs.replace(message, content=blocks)
