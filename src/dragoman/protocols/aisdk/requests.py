"""A request of a page → input of the core: messages, tools, metadata, and answers to calls that wait. Pure.

Users are believed in what they say, never in what was said or done: of an assistant message only the answers to calls
count that the core recorded and that still wait. Source: specification of AI SDK, 2 to 4; shared rules, 13, 18 to 21.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import choice_from_value, result_content
from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import ROOT, CallId, MessageId
from dragoman.core.inputs import Answer, Decision, Result, UserInput
from dragoman.core.open_calls import OpenCall
from dragoman.core.resent_history import SentMessage
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.session import SessionState
from dragoman.core.tools import NO_PARAMETERS, ToolSpec
from dragoman.protocols.aisdk.errors import InputAltered
from dragoman.protocols.aisdk.history import parts_of
from dragoman.protocols.aisdk.wire import QUESTION_ID, ChatRequest, ClientTool, ClientVersion, UIMessage, question_id
from dragoman.protocols.kit.errors import InvalidBody

NewId = Callable[[], str]

# --- messages ---------------------------------------------------------------------------------------------------------


def user_input(message: UIMessage, path: str) -> UserInput:
    """A user message as input. Raises InvalidBody, naming the part that is wrong."""
    return UserInput(content=content_of(message, path), client_id=message.id, metadata=metadata_of(message))


def metadata_of(message: UIMessage) -> Json | msgspec.UnsetType:
    """What the page keeps with a message."""
    return msgspec.UNSET if message.metadata is None else message.metadata


def content_of(message: UIMessage, path: str) -> str | tuple[core.InputBlock, ...]:
    """The content of a user message: its texts and files. A single text is a string."""
    blocks = [
        block
        for index, part in enumerate(message.parts)
        if (block := _block(part, f"{path}.parts[{index}]")) is not None
    ]
    if len(blocks) == 1 and isinstance(blocks[0], core.Text):
        return blocks[0].text
    return tuple(blocks)


def _block(part: JsonObject, path: str) -> core.InputBlock | None:
    kind = _text(part, "type", path)
    if kind == "text":
        return core.Text(_text(part, "text", path))
    if kind != "file":
        return None
    url, media_type = _text(part, "url", path), _text(part, "mediaType", path)
    if not url.startswith(("https:", "data:")):
        raise InvalidBody("a file's url must begin with https: or data:", f"{path}.url")
    name = _text(part, "filename", path) if part.get("filename") is not None else None
    return core.image_or_file(url, media_type, name)


def _text(part: JsonObject, name: str, path: str) -> str:
    value = part.get(name)
    if not isinstance(value, str):
        raise InvalidBody("expected a string", f"{path}.{name}")
    return value


def has_content(message: UIMessage, stored: str | tuple[core.InputBlock, ...], path: str) -> bool:
    """Whether a page resends a message with the content that was stored, as it was sent or as it is shown.

    The names of files do not count: earlier releases did not store those of images.
    """
    content = content_of(message, path)
    sent, shown = ([{**part, "filename": None} for part in parts_of(each)] for each in (content, stored))
    return content == stored or sent == shown


def sent_messages(messages: Sequence[UIMessage]) -> list[SentMessage]:
    """The page's history, to be compared with the stored one."""
    return [
        SentMessage(each.id, True, core.text_of(content_of(each, path)), partial(has_content, each, path=path))
        if each.role == "user"
        else SentMessage(each.id)
        for each, path in ((each, f"messages[{index}]") for index, each in enumerate(messages))
    ]


def seeds_of(messages: Sequence[UIMessage], new_id: NewId) -> tuple[core.Message, ...]:
    """The history with which a page begins a chat: texts and settled calls. None of its calls is open."""
    seeds: list[core.Message] = []
    for index, message in enumerate(messages):
        message_id, path = MessageId(new_id()), f"messages[{index}]"
        if message.role == "user":
            content = content_of(message, path)
            seeds.append(
                core.UserMessage(id=message_id, content=content, client_id=message.id, metadata=metadata_of(message))
            )
        elif message.role == "system":
            texts = [part["text"] for part in message.parts if isinstance(part.get("text"), str)]
            seeds.append(core.SystemMessage(id=message_id, content="".join(texts)))
        else:
            seeds += _answer_seeds(message, message_id, path, new_id)
    return tuple(seeds)


def _answer_seeds(message: UIMessage, message_id: MessageId, path: str, new_id: NewId) -> list[core.Message]:
    blocks: list[core.Block] = []
    results: list[core.Message] = []
    for index, part in enumerate(message.parts):
        if (result := _settled_call(part, new_id)) is not None:
            call, found = result
            blocks.append(call)
            results.append(found)
        elif part.get("type") == "text" and (text := _text(part, "text", f"{path}.parts[{index}]")):
            blocks.append(core.Text(text))
    return [core.AssistantMessage(id=message_id, content=tuple(blocks)), *results] if blocks else []


def _settled_call(part: JsonObject, new_id: NewId) -> tuple[core.Call, core.ToolMessage] | None:
    """The call and the result of a part. The ids are ours: those of another server's calls mean nothing here."""
    name, arguments = _tool_name(part), part.get("input")
    if name is None or not isinstance(part.get("toolCallId"), str):
        return None
    is_error = part.get("state") == "output-error"
    if not is_error and part.get("state") != "output-available":
        return None
    call = core.Call(
        call_id=CallId(new_id()), name=name, input=arguments if isinstance(arguments, dict) else {"input": arguments}
    )
    value = part.get("errorText") if is_error else part.get("output")
    content = result_content(value)
    return call, core.ToolMessage(
        id=MessageId(new_id()),
        call_id=call.call_id,
        name=name,
        content=content,
        is_error=is_error,
        raw=msgspec.UNSET if isinstance(value, str) else value,
    )


def _tool_name(part: JsonObject) -> str | None:
    """The tool of a part; None if it is not a call."""
    kind = part.get("type")
    if kind == "dynamic-tool" and isinstance(part.get("toolName"), str):
        return str(part["toolName"])
    return kind.removeprefix("tool-") if isinstance(kind, str) and kind.startswith("tool-") else None


# --- tools and metadata -----------------------------------------------------------------------------------------------


def tools_of(request: ChatRequest) -> tuple[ToolSpec, ...] | None:
    """The page's own tools; None if the request does not say."""
    if request.tools is None:
        return None
    named: Iterable[tuple[str, ClientTool]]
    if isinstance(request.tools, dict):
        named = request.tools.items()
    else:
        named = ((each.name, each) for each in request.tools)
    return tuple(
        ToolSpec(
            name=name,
            description=tool.description,
            parameters=tool.parameters or tool.input_schema or NO_PARAMETERS,
        )
        for name, tool in dict(named).items()
    )


def run_metadata_of(request: ChatRequest, extra: JsonObject) -> RunMetadata:
    """What is stored with the run: what the application added to the body, for the agent, and what it may not say."""
    own = {"system": request.system, "callSettings": request.call_settings, "config": request.config}
    return RunMetadata(
        forwarded=extra or msgspec.UNSET,
        protocol={name: value for name, value in own.items() if value is not None},
    )


# --- answers ----------------------------------------------------------------------------------------------------------


def answers_of(messages: Iterable[UIMessage], state: SessionState, client_version: ClientVersion) -> tuple[Answer, ...]:
    """The answers to calls that wait, in the order of their parts.

    Raises:
        InputAltered: an approval came with other arguments than those of its call.
        InvalidAnswer: an answer to a question has another form.
    """
    waiting = {_part_id(call): call for call in state.waiting_calls()}
    answers: list[Answer] = []
    for part in _calls_in(messages):
        call = waiting.get(part["toolCallId"])
        answer = None if call is None else _answer(call, part, client_version)
        if answer is not None:
            answers.append(answer)
            del waiting[part["toolCallId"]]
    return tuple(answers)


def last_call_of(messages: Sequence[UIMessage]) -> CallId | None:
    """The call that a continuation ends on."""
    calls = [part["toolCallId"] for part in _calls_in(messages)]
    return CallId(re.sub(QUESTION_ID, "", calls[-1])) if calls else None


def _part_id(call: OpenCall) -> str:
    """The id of the part in which a waiting call is answered."""
    is_asked_by_tool = call.loop == ROOT and call.shown() is not call.call
    return question_id(call.call.call_id, call.answered_seq) if is_asked_by_tool else call.call.call_id


def _calls_in(messages: Iterable[UIMessage]) -> Iterable[JsonObject]:
    for message in messages:
        if message.role == "assistant":
            for part in message.parts:
                if _tool_name(part) is not None and isinstance(part.get("toolCallId"), str):
                    yield part


def _answer(call: OpenCall, part: JsonObject, client_version: ClientVersion) -> Answer | None:
    """The answer in a part; None if it has none that its call takes."""
    call_id, state, output = call.call.call_id, part.get("state"), part.get("output")
    if call.waits_for == "permission":
        return _decision(call, part, client_version)
    if state == "output-error":
        text = part.get("errorText")
        text = text if isinstance(text, str) else "The tool failed"
        if call.kind == "question":
            return Decision(call_id=call_id, granted=False, reason=text)
        return Result(call_id=call_id, content=text, is_error=True)
    if state != "output-available":
        return None
    if call.kind != "question":
        raw = msgspec.UNSET if isinstance(output, str) else output
        return Result(call_id=call_id, content=result_content(output), raw=raw)
    return choice_from_value(call, output)


def _decision(call: OpenCall, part: JsonObject, client_version: ClientVersion) -> Decision | None:
    state = part.get("state")
    if state == "approval-responded":
        given = part.get("approval")
        if not isinstance(given, dict) or given.get("id") != call.call.call_id:
            return None
    elif state == "output-available" and client_version == 5:
        given = part.get("output")
    else:
        return None
    if not isinstance(given, dict) or not isinstance(given.get("approved"), bool):
        return None
    if "input" in part and not is_same_json(part["input"], call.call.input):
        raise InputAltered
    reason = given.get("reason")
    return Decision(
        call_id=call.call.call_id, granted=given["approved"], reason=reason if isinstance(reason, str) else None
    )


def is_same_json(left: Json, right: Json) -> bool:
    """Whether two values are the same in JavaScript, which holds all numbers as doubles."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_same_json(value, right[name]) for name, value in left.items())
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(is_same_json, left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return _double(left) == _double(right)
    return type(left) is type(right) and bool(left == right)


def _double(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
