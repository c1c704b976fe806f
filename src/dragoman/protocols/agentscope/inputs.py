"""Maps a request to the core's inputs: which messages are already history, which are new, and what they answer. Pure.

The session keeps its history, so a client sends only new messages. Some clients send the whole conversation every
time: messages up to the last one that the session already has are skipped (section 2.1).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec

from dragoman.core import content as core
from dragoman.core.events import SettingsChange
from dragoman.core.ids import CallId, MessageId
from dragoman.core.inputs import Answer, Decision, Result, Submit, UserInput
from dragoman.core.open_calls import OpenCall
from dragoman.core.refusals import UnknownCall
from dragoman.core.run_metadata import RunMetadata
from dragoman.protocols.agentscope import wire
from dragoman.protocols.kit.decoding import convert_value
from dragoman.protocols.kit.errors import InvalidBody

PROTOCOL = "agentscope"
MESSAGE_ID_PREFIX = "msg_"
CALL_TYPES = frozenset({"function_call", "plugin_call", "component_call", "mcp_call"})
OUTPUT_TYPES = frozenset(f"{kind}_output" for kind in CALL_TYPES)
APPROVAL_TYPE = "mcp_approval_response"
_ANSWER_TYPES = OUTPUT_TYPES | {APPROVAL_TYPE}
_AGENT_ONLY_TYPES = CALL_TYPES | {"reasoning", "mcp_list_tools", "mcp_approval_request"}
"""Message types that only an agent sends, whatever their role."""
_IGNORED_TYPES = frozenset({"heartbeat", "error"})
"""The web client returns its own error bubbles as history."""
_PARAMETERS = ("temperature", "top_p", "max_tokens", "stop", "seed", "frequency_penalty", "presence_penalty")

T = TypeVar("T")


class ResponseOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a response is sent. Stored with its run, so that every replay of its events is the same.

    Args:
        response_id: the response id that the client chose.
        session_id: the id or name of the session as the client sent it.
        omits_deltas: each content is sent once, complete (`stream: false`).
        heartbeat: the client asked for heartbeat messages.
        is_task: the run was started as a background task.
        deadline: when the task times out.
    """

    response_id: str | None = None
    session_id: str | None = None
    omits_deltas: bool = msgspec.field(default=False, name="whole")
    heartbeat: bool = False
    is_task: bool = False
    deadline: datetime | None = None


def read_response_options(protocol: str, metadata: RunMetadata) -> ResponseOptions:
    """The options that are stored with a run; the defaults if another protocol started it."""
    return msgspec.convert(metadata.protocol if protocol == PROTOCOL else {}, ResponseOptions)


def response_options(
    request: wire.AgentRequest, *, is_task: bool = False, deadline: datetime | None = None
) -> ResponseOptions:
    """The options that a request asks for."""
    return ResponseOptions(
        response_id=request.client_response_id,
        session_id=request.session_id or None,
        omits_deltas=not request.stream,
        heartbeat=request.heartbeat,
        is_task=is_task,
        deadline=deadline,
    )


class ParsedInput(NamedTuple):
    """The new part of a request, each item by its path in the body.

    `seeds` are the messages of any role that a new session starts with.
    """

    seeds: Mapping[str, core.Message]
    messages: Mapping[str, UserInput]
    answers: Mapping[str, Answer]


def known_ids(message: wire.MessageIn) -> tuple[str, ...]:
    """The ids under which the session may have a message: as sent, and the UUID in `msg_` + UUID + `_` + index."""
    if not message.id:
        return ()
    return (message.id, message.id[4:40]) if message.id.startswith(MESSAGE_ID_PREFIX) else (message.id,)


def is_same_message(message: wire.MessageIn, stored: core.UserMessage | None) -> bool:
    """Whether a message with a known id is the session's (shared rules, 13).

    `stored` is None for an agent's message, whose text is never taken from a client.
    """
    return stored is None or (
        bool(message.content) and _compared(stored.content) == _compared(_contents(message, "input"))
    )


def _compared(content: str | tuple[core.InputBlock, ...]) -> list[core.InputBlock | str]:
    """Content without what this protocol does not show of a file that another one brought."""
    return [each.url if isinstance(each, core.Image | core.File) else each for each in core.blocks_of(content)]


def parse_input(
    messages: Sequence[wire.MessageIn],
    start: int = 0,
    answerable: Collection[str] = (),
    *,
    new_id: Callable[[], str] | None = None,
) -> ParsedInput:
    """Parse the new messages of a request.

    Args:
        messages: all messages of the request.
        start: the index of the first message that the session does not have yet.
        answerable: the calls that wait for an answer. An answer to one of them is new at any index, because a client
            that asks a person resends the approval request in front of the answer.
        new_id: generates the ids of a new session's seeds. None if the session exists: it keeps its own history, so
            messages of other roles than the user's are ignored.

    Raises:
        InvalidBody: a message is malformed.
    """
    new = [
        (f"input[{index}]", message)
        for index, message in enumerate(messages)
        if message.kind not in _IGNORED_TYPES and (index >= start or _answered_call(message) in answerable)
    ]
    seed_count = 0 if new_id is None else len(new)
    while seed_count and ((last := new[seed_count - 1][1]).kind in _ANSWER_TYPES or _is_user_message(last)):
        seed_count -= 1
    user_messages: dict[str, UserInput] = {}
    answers: dict[str, Answer] = {}
    for path, message in new[seed_count:]:
        if message.kind in OUTPUT_TYPES:
            answers[path] = _result(message, path)
        elif message.kind == APPROVAL_TYPE:
            data = _data(message, path, wire.ApprovalData)
            call_id = CallId(data.approval_request_id)
            answers[path] = Decision(call_id=call_id, granted=data.approve, reason=data.reason or None)
        elif _is_user_message(message):
            user_messages[path] = UserInput(content=_contents(message, path), client_id=message.id or None)
    seeds = {} if new_id is None else _parse_seeds(new[:seed_count], new_id)
    return ParsedInput(seeds, user_messages, answers)


def _answered_call(message: wire.MessageIn) -> CallId | None:
    """The call that a message answers, if it can be read."""
    if message.kind not in _ANSWER_TYPES:
        return None
    name = "approval_request_id" if message.kind == APPROVAL_TYPE else "call_id"
    for content in message.content if isinstance(message.content, tuple) else ():
        if isinstance(content, wire.DataIn) and isinstance(call_id := (content.data or {}).get(name), str):
            return CallId(call_id)
    return None


def _is_user_message(message: wire.MessageIn) -> bool:
    return message.role in (None, "user") and message.kind not in _AGENT_ONLY_TYPES


# --- contents -----------------------------------------------------------------------------------------------------


def _contents(message: wire.MessageIn, path: str) -> str | tuple[core.InputBlock, ...]:
    if isinstance(message.content, str):
        return message.content
    if not message.content:
        raise InvalidBody("at least one content is required", f"{path}.content")
    return tuple(_block(content, f"{path}.content[{index}]") for index, content in enumerate(message.content))


def _block(content: wire.ContentIn, path: str) -> core.InputBlock:
    match content:
        case wire.TextIn(text=text) | wire.RefusalIn(refusal=text):
            return core.Text(text or "")
        case wire.DataIn(data=data):
            return core.Data(data or {})
        case wire.ImageIn(image_url=str(url)) if url:
            return core.Image(url)
        case wire.AudioIn(data=str(audio)) if audio:
            media_type = f"audio/{content.format or 'wav'}"
            return core.File(_data_uri(audio, media_type), media="audio", media_type=media_type)
        case wire.VideoIn(video_url=str(url)) if url:
            return core.File(url, media="video")
        case wire.FileIn(file_url=url, file_data=file_data) if url or file_data:
            name = content.filename or content.file_name
            return core.File(url or _data_uri(file_data or "", "application/octet-stream"), name=name)
        case _:
            raise InvalidBody("a URL or the content itself is required", path)


def _data_uri(value: str, media_type: str) -> str:
    """A URL or `data:` URI as it is; plain base64 as a `data:` URI."""
    return value if ":" in value[:32] else f"data:{media_type};base64,{value}"


def _data(message: wire.MessageIn, path: str, kind: type[T]) -> T:
    """The data of a call, an output or an approval."""
    content = message.content
    if not isinstance(content, tuple) or len(content) != 1 or not isinstance(content[0], wire.DataIn):
        raise InvalidBody("exactly one content of type 'data' is required", f"{path}.content")
    return convert_value(content[0].data or {}, kind, f"{path}.content[0].data")


def _result(message: wire.MessageIn, path: str) -> Result:
    data = _data(message, path, wire.OutputData)
    output = data.output
    if output is None:
        raise InvalidBody("expected a text or any other JSON value, got null", f"{path}.content[0].data.output")
    text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
    return Result(call_id=CallId(data.call_id), content=text)


# --- the history of a new session ---------------------------------------------------------------------------------


def _parse_seeds(
    history: Sequence[tuple[str, wire.MessageIn]], new_id: Callable[[], str]
) -> Mapping[str, core.Message]:
    """Parse messages of any role as the history of a new session, each by the path where it begins.

    Adjacent messages of the agent become one model step, because the package splits a step into several messages.
    Approvals are skipped.
    """
    seeds: dict[str, core.Message] = {}
    step: list[tuple[str, core.Block]] = []
    names: dict[str, str] = {}

    def close_step() -> None:
        if step:
            blocks = tuple(block for _, block in step)
            seeds[step[0][0]] = core.AssistantMessage(id=MessageId(new_id()), content=blocks)
            step.clear()

    def add(path: str, seed: core.Message) -> None:
        close_step()
        seeds[path] = seed

    for path, message in history:
        if message.kind in CALL_TYPES:
            call = _call(message, path)
            names[call.call_id] = call.name
            step.append((path, call))
        elif message.kind in OUTPUT_TYPES:
            output = _result(message, path)
            name = names.get(output.call_id, "")
            add(
                path,
                core.ToolMessage(id=MessageId(new_id()), call_id=output.call_id, name=name, content=output.content),
            )
        elif _is_user_message(message) and message.kind != APPROVAL_TYPE:
            user = core.UserMessage(
                id=MessageId(new_id()), content=_contents(message, path), client_id=message.id or None
            )
            add(path, user)
        elif message.role == "system":
            add(path, core.SystemMessage(id=MessageId(new_id()), content=core.text_of(_contents(message, path))))
        elif message.role == "assistant" and message.kind == "message":
            step += [(path, block) for block in core.blocks_of(_contents(message, path))]
    close_step()
    return seeds


def _call(message: wire.MessageIn, path: str) -> core.Call:
    data = _data(message, path, wire.CallData)
    arguments = data.arguments
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = ""
    if not isinstance(arguments, dict):
        raise InvalidBody("a JSON object as text is required", f"{path}.content[0].data.arguments")
    return core.Call(call_id=CallId(data.call_id), name=data.name, input=arguments)


# --- the core's inputs --------------------------------------------------------------------------------------------


def submit_from(
    parsed_request: wire.ParsedRequest, parsed: ParsedInput, options: ResponseOptions, labels: Mapping[str, str]
) -> Submit:
    """The core's input for a run in a session with these labels.

    A task must be one run, so it has to answer all open calls. So does the first request of a session that a client
    starts with open calls, which would otherwise wait for decisions that nobody asked for.
    """
    request = parsed_request.request
    change = SettingsChange()
    if request.user_id and "user_id" not in labels:
        change = SettingsChange(labels={**labels, "user_id": request.user_id})
    return Submit(
        protocol=PROTOCOL,
        messages=tuple(parsed.messages.values()),
        answers=tuple(parsed.answers.values()),
        change=change,
        client_run_id=request.client_response_id,
        requires_all_answers=options.is_task or bool(parsed.seeds),
        client_tools=None if request.tools is None else tuple(parsed_request.tools.values()),
        parameters={name: value for name in _PARAMETERS if (value := getattr(request, name)) is not None},
        metadata=RunMetadata(
            user=request.user_id or None,
            forwarded=parsed_request.extra_fields() or msgspec.UNSET,
            protocol=msgspec.to_builtins(options),
        ),
    )


def require_new_input(parsed: ParsedInput, *, is_new: bool) -> None:
    """Check that a request asks for anything at all.

    Raises:
        InvalidBody: the session already has everything in it.
        UnknownCall: it answers a call of a session that does not exist yet.
    """
    for answer in parsed.answers.values() if is_new else ():
        if isinstance(answer, Decision) or not parsed.seeds:
            raise UnknownCall(answer.call_id)
    if not parsed.messages and not parsed.answers:
        raise InvalidBody("the input must end with a user message or an answer that is new", "input")


def require_matching_answers(answers: Collection[Answer], calls: Mapping[CallId, OpenCall]) -> None:
    """Check that each answer fits its call: a decision for an approval request, an output for a client's tool.

    Other protocols let the client give the result of a server's tool. Here that would forge the tool's result, and no
    client does it (sections 5.3 and 5.5).

    The core checks answers to calls that are not open.

    Raises:
        UnknownCall: the call does not wait for that kind of answer.
    """
    for answer in answers:
        call = calls.get(answer.call_id)
        if call is None:
            continue
        is_decision = isinstance(answer, Decision)
        if not call.is_waiting() or (call.waits_for == "permission") != is_decision:
            raise UnknownCall(answer.call_id, "approval" if is_decision else "output")
