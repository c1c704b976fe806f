"""Messages and answers of our log as values of the client library. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from dragoman.client import events as remote
from dragoman.client.codec import UserInput
from dragoman.client.pending import choice_from_answers, parse_question
from dragoman.core.answers import compact_json
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
    ToolMessage,
    UserMessage,
    text_of,
)
from dragoman.core.ids import CallId
from dragoman.core.inputs import Decision
from dragoman.core.tools import ASK_USER_QUESTION, Option, SecretOption, SelectOption, TextOption


def to_history(messages: Sequence[Message]) -> tuple[remote.Message, ...]:
    """The messages of a session as another server gets them, with the calls under the ids that it knows.

    What a crash or a lost connection cut off is left out, because its step is repeated, and so are results whose calls
    are older than the messages.
    """
    origins = {
        call.call_id: call.origin or call.call_id
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.calls()
    }
    return tuple(
        _to_message(message, origins)
        for message in messages
        if not (isinstance(message, AssistantMessage) and message.status == "cut")
        and not (isinstance(message, ToolMessage) and message.call_id not in origins)
    )


def _to_message(message: Message, origins: Mapping[CallId, str]) -> remote.Message:
    match message:
        case UserMessage():
            return remote.Message(role="user", id=message.id, blocks=tuple(_to_blocks(message.content, origins)))
        case SystemMessage():
            return remote.Message(role="system", id=message.id, blocks=(remote.Text(text=message.content),))
        case AssistantMessage():
            interrupted = message.status != "completed"
            blocks = tuple(_to_blocks(message.content, origins))
            return remote.Message(role="assistant", id=message.id, blocks=blocks, interrupted=interrupted)
        case ToolMessage():
            result = remote.ToolResult(
                call_id=origins[message.call_id],
                name=message.name,
                text=text_of(message.content),
                images=images_in(message.content),
            )
            return remote.Message(role="tool", id=message.id, blocks=(result,))


def _to_blocks(
    content: str | tuple[InputBlock, ...] | tuple[Block, ...], origins: Mapping[CallId, str]
) -> Iterator[remote.Block]:
    """Text, images and calls. Reasoning belongs to the server that thought."""
    if isinstance(content, str):
        yield remote.Text(text=content)
        return
    for block in content:
        match block:
            case Text(text=text):
                yield remote.Text(text=text)
            case Image(url=url):
                yield remote.Image(url=url)
            case Data(data=data):
                yield remote.Text(text=compact_json(data))
            case File(url=url) if not url.startswith("data:"):
                yield remote.Text(text=url)
            case Call(call_id=call_id, name=name, input=arguments):
                origin = origins[call_id]
                if name == ASK_USER_QUESTION:
                    yield parse_question(origin, arguments)
                else:
                    yield remote.ToolCall(id=origin, name=name, arguments=arguments)


def images_in(content: str | tuple[InputBlock, ...]) -> tuple[str, ...]:
    """The URLs of the images in a content."""
    return () if isinstance(content, str) else tuple(block.url for block in content if isinstance(block, Image))


def to_user_input(messages: Sequence[Message]) -> UserInput:
    """New messages as one: their texts, separated by empty lines, and their images."""
    texts: list[str] = []
    images: list[str] = []
    for message in messages:
        blocks = list(_to_blocks(message.content, {}))
        texts.append("".join(block.text for block in blocks if isinstance(block, remote.Text)))
        images += (block.url for block in blocks if isinstance(block, remote.Image))
    return UserInput(text="\n\n".join(filter(None, texts)), images=tuple(images))


def with_transcript(
    history: Sequence[remote.Message], user_input: UserInput, *, max_chars: int | None = None
) -> UserInput:
    """A message that begins with the conversation so far, for servers that cannot be given a history.

    Of a conversation that is too long for `max_chars` the beginning is left out.
    """
    spoken = (message for message in history if message.role in ("user", "assistant") and message.text)
    lines = [f"{message.role}: {message.text}" for message in spoken]
    while lines:
        text = "\n\n".join(("The conversation so far:", *lines, "The new message:", user_input.text))
        if max_chars is None or len(text) <= max_chars:
            return msgspec.structs.replace(user_input, text=text)
        del lines[0]
    return user_input


def to_answer(pending: remote.Pending, answer: ToolMessage | Decision) -> remote.Answer:
    """The answer of our user or application, for what the other server waits for."""
    match answer:
        case Decision(granted=True):
            return remote.Allow(call_id=pending.call_id)
        case Decision(reason=reason):
            return remote.Deny(call_id=pending.call_id, reason=reason or "")
        case ToolMessage(raw={"answers": answers}) if isinstance(pending, remote.Question):
            return choice_from_answers(pending.call_id, answers)
        case ToolMessage() if isinstance(pending, remote.Question):
            return remote.Choice.of(custom=text_of(answer.content), call_id=pending.call_id)
        case ToolMessage(content=content):
            return remote.Result(call_id=pending.call_id, text=text_of(content), images=images_in(content))


def to_result(result: remote.ToolResult) -> Json:
    """The result of a call as the log holds it: a string, or blocks if there are images."""
    if not result.images:
        return result.text
    text: Iterable[InputBlock] = (Text(result.text),) if result.text else ()
    return (*text, *(Image(url) for url in result.images))


def to_option(option: remote.AgentOption) -> Option:
    """An option of a remote agent as one of ours."""
    description = option.description or None
    match option.kind:
        case "select":
            return SelectOption(
                name=option.name, options=option.choices, default=option.default, description=description
            )
        case "secret":
            return SecretOption(name=option.name, description=description)
        case "text":
            return TextOption(name=option.name, default=option.default, description=description)
