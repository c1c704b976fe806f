"""What of a conversation is sent to a model: in the order that models want, and no more than they take. Pure.

Tokens are estimated. The estimate is kind to nobody: better a summary too early than a request that is refused.
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
"""Of a picture or a file, whatever its size: models scale them."""
SHORTENING_LIMITS = (16_000, 4_000, 1_000, 300)
"""Characters to which texts are shortened, one after the other, until the whole fits."""

_JSON = msgspec.json.Encoder()


# --- counting ---------------------------------------------------------------------------------------------------------


def tokens_of_json(value: Json) -> int:
    """About how many tokens a value has as JSON."""
    try:
        return len(_JSON.encode(value)) // CHARS_PER_TOKEN + 1
    except UnicodeEncodeError:  # a lone surrogate
        return estimate_tokens(str(value))


def tokens_of(message: Message) -> int:
    """About how many tokens a message has."""
    if isinstance(message.content, str):
        return MESSAGE_TOKENS + estimate_tokens(message.content)
    return MESSAGE_TOKENS + sum(map(_tokens_of_block, message.content))


def tokens_of_all(messages: Sequence[Message]) -> int:
    """About how many tokens the messages have together."""
    return sum(map(tokens_of, messages))


def tokens_of_tools(tools: Sequence[ToolSpec]) -> int:
    """About how many tokens it takes to tell a model of its tools."""
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
    """The conversation with each step's results right behind it, in the order of its calls.

    A result without its call, and a call without its result, are left out: models refuse both.
    """
    results: dict[CallId, ToolMessage] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            results.setdefault(message.call_id, message)
    found: list[Message] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            continue
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
            kept = tuple(block for block in message.content if not isinstance(block, Call) or block.call_id in results)
            if kept:
                found.append(message if len(kept) == len(message.content) else _with_content(message, kept))
                found += [results.pop(block.call_id) for block in kept if isinstance(block, Call)]
        elif message.content:
            found.append(message)
    return found


def cut_points(messages: Sequence[Message]) -> Iterator[int]:
    """The places before which a conversation may be cut, so that no call is parted from its result.

    A call without a result is never before a cut.
    """
    last: dict[CallId, int] = {}
    for place, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            last.setdefault(message.call_id, place)
    reach = -1
    for place, message in enumerate(messages):
        if place > reach and not isinstance(message, ToolMessage):
            yield place
        if isinstance(message, AssistantMessage):
            reach = max(reach, *(last.get(call.call_id, len(messages)) for call in message.calls()), -1)


def _with_content(message: AssistantMessage, blocks: tuple[Block, ...]) -> AssistantMessage:
    return msgspec.structs.replace(message, content=blocks)


# --- fitting ----------------------------------------------------------------------------------------------------------


def fit_to_budget(messages: Sequence[Message], budget: int) -> list[Message]:
    """The newest part of an arranged conversation that has at most so many tokens, as far as that can be done.

    Long results are shortened first, then the oldest messages go (not the system's at the beginning, nor what follows
    the last user message), then every long text is shortened.
    """
    kept = list(messages)
    if tokens_of_all(kept) <= budget:
        return kept
    kept = [shorten(each, SHORTENING_LIMITS[0]) if isinstance(each, ToolMessage) else each for each in kept]
    if tokens_of_all(kept) > budget:
        kept = _newest(kept, budget)
    for cap in SHORTENING_LIMITS:
        if tokens_of_all(kept) <= budget:
            break
        kept = [shorten(each, cap) for each in kept]
    return kept


def _newest(messages: Sequence[Message], budget: int) -> list[Message]:
    first = next((place for place, each in enumerate(messages) if not isinstance(each, SystemMessage)), len(messages))
    lead, rest = messages[:first], messages[first:]
    left = budget - tokens_of_all(lead)
    last_user = max((place for place, each in enumerate(rest) if isinstance(each, UserMessage)), default=len(rest) - 1)
    places = [place for place in cut_points(rest) if place <= last_user]
    for place in places:
        if isinstance(rest[place], UserMessage) and tokens_of_all(rest[place:]) <= left:
            return [*lead, *rest[place:]]
    return [*lead, *rest[max(places, default=0) :]]


def shorten(message: Message, cap: int) -> Message:
    """The message with each of its texts, and each argument of its calls, at most so many characters long."""
    if isinstance(message, SystemMessage):
        return message
    if isinstance(message.content, str):
        return msgspec.structs.replace(message, content=shorten_text(message.content, cap))
    return msgspec.structs.replace(message, content=tuple(_shorten_block(block, cap) for block in message.content))


def shorten_text(text: str, cap: int) -> str:
    """Beginning and end of a text, with a note of what is missing between."""
    if len(text) <= cap:
        return text
    head = cap * 2 // 3
    tail = cap - head
    return f"{text[:head]}\n[… {len(text) - cap} characters left out …]\n{text[-tail:]}"


def _shorten_block(block: Block | InputBlock, cap: int) -> Block | InputBlock:
    match block:
        case Text(text=text):
            return Text(shorten_text(text, cap))
        case Thinking(text=text):
            return Thinking(shorten_text(text, cap))
        case Call(input=arguments):
            short = {
                name: shorten_text(value, cap) if isinstance(value, str) else value for name, value in arguments.items()
            }
            return msgspec.structs.replace(block, input=short)
        case _:
            return block


# --- pictures ---------------------------------------------------------------------------------------------------------


def replace_unsupported_images(messages: Sequence[Message], capabilities: Capabilities) -> list[Message]:
    """The conversation with a note in place of each picture that the agent does not declare to take."""
    if capabilities.image_http and capabilities.image_data:
        return list(messages)
    return [_replace_images(message, capabilities) for message in messages]


def _replace_images(message: Message, capabilities: Capabilities) -> Message:
    if isinstance(message.content, str) or not any(isinstance(block, Image) for block in message.content):
        return message
    blocks = tuple(
        Text("[a picture that is not shown here]")
        if isinstance(block, Image)
        and not (capabilities.image_data if block.url.startswith("data:") else capabilities.image_http)
        else block
        for block in message.content
    )
    return msgspec.structs.replace(message, content=blocks)
