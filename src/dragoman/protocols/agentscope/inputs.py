"""A request's messages, in the core's words: what is history already, what is said, what is answered. Pure.

A session keeps its history itself, so a client sends what is new. Some clients send everything every time: messages
up to the last one that the session holds are history that came back, and what follows them is new (section 2.1).
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

import msgspec

from dragoman.core import content as core
from dragoman.core.content import JsonObject
from dragoman.core.ids import CallId, MessageId
from dragoman.core.inputs import Answer, Create, Decision, Result, Submit, UserInput
from dragoman.core.refusals import Invalid, UnknownCall
from dragoman.core.session import OpenCall
from dragoman.core.tools import ToolSpec
from dragoman.protocols.agentscope import wire

PROTOCOL = "agentscope"
MESSAGE_ID_PREFIX = "msg_"
OUTPUT_TYPES = frozenset({"function_call_output", "plugin_call_output", "component_call_output", "mcp_call_output"})
CALL_TYPES = frozenset({"function_call", "plugin_call", "component_call", "mcp_call"})
APPROVAL_TYPE = "mcp_approval_response"
_AGENT_ONLY_TYPES = CALL_TYPES | {"reasoning", "mcp_list_tools", "mcp_approval_request"}
"""What only an agent says, whatever role a message of it has."""
_IGNORED_TYPES = frozenset({"heartbeat", "error"})
"""The web client returns its own error bubbles as history."""
_CORE_PATH = re.compile(r"(?P<kind>messages|answers|tools)\[(?P<place>\d+)\](?P<rest>.*)")
"""A field as the core calls it."""
_PARAMETERS = ("temperature", "top_p", "max_tokens", "stop", "seed", "frequency_penalty", "presence_penalty")


class RunMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What this door notes about a run in the log, so that its events are told the same way for ever.

    Args:
        response_id: the client's own id for the response.
        session_id: what the client calls the session.
        whole: contents are told once, complete (`stream: false`).
        heartbeat: the client asked for heartbeat messages.
        is_task: it was started as a background task.
        deadline: when the task has used up its time.
    """

    response_id: str | None = None
    session_id: str | None = None
    omits_deltas: bool = msgspec.field(default=False, name="whole")
    heartbeat: bool = False
    is_task: bool = False
    deadline: datetime | None = None


def read_run_metadata(protocol: str, metadata: JsonObject) -> RunMetadata:
    """What was noted about a run; nothing, when it came through another door."""
    return (
        msgspec.convert(metadata[PROTOCOL], RunMetadata)
        if protocol == PROTOCOL and PROTOCOL in metadata
        else RunMetadata()
    )


class ParsedInput(NamedTuple):
    """The new part of a request: messages of any role to open a session with, the user's messages, and answers.

    `seed_paths` and the others tell of each where in the request's body it stands.
    """

    seeds: tuple[core.Message, ...]
    messages: tuple[UserInput, ...]
    answers: tuple[Answer, ...]
    seed_paths: tuple[str, ...] = ()
    message_paths: tuple[str, ...] = ()
    answer_paths: tuple[str, ...] = ()


def core_id(message_id: str) -> str:
    """The core's id in one of ours: `msg_` + UUID + `_` + the place of its first block. Any other id stays as it is."""
    if not message_id.startswith(MESSAGE_ID_PREFIX):
        return message_id
    return message_id.removeprefix(MESSAGE_ID_PREFIX)[:36]


def ids_of(request: wire.AgentRequest) -> set[str]:
    """The ids by which the session may know messages of a request."""
    return {known for each in request.input if each.id for known in (each.id, core_id(each.id))}


def is_same_message(message: wire.MessageIn, stored: core.UserMessage | None) -> bool:
    """Whether a message with a known id is the one that the session holds (rulings, 13).

    Args:
        message: as the client sent it.
        held: what the session holds; None: a message of ours, whose words are never taken from a client.
    """
    return stored is None or (bool(message.content) and _blocks(stored.content) == _blocks(_contents(message, "input")))


def _blocks(content: str | tuple[core.InputBlock, ...]) -> tuple[core.InputBlock, ...]:
    return (core.Text(content),) if isinstance(content, str) else content


def parse_input(
    messages: Sequence[wire.MessageIn],
    start: int = 0,
    answerable: Collection[str] = (),
    *,
    new_id: Callable[[], str] | None = None,
) -> ParsedInput:
    """What the new messages of a request bring along.

    Args:
        messages: all of them.
        start: how many of them are history that came back.
        waiting: the calls that the session waits for: what answers one of them is new wherever it stands, because a
            client that lets a person decide sends the question back before the answer.
        new_id: makes ids for the seeds of a new session; None: the session exists, and keeps its history itself, so
            that messages of other roles than the user's change nothing.

    Raises:
        Invalid: a message cannot be read.
    """
    new = [
        (f"input[{place}]", each)
        for place, each in enumerate(messages)
        if place >= start or _answered_call(each) in answerable
    ]
    shown = [(path, each) for path, each in new if each.kind not in _IGNORED_TYPES]
    last = len(shown)
    while last and _is_new_input(shown[last - 1][1]):
        last -= 1
    seeds = () if new_id is None else _seeds(shown[:last], new_id)
    said: dict[str, UserInput] = {}
    answers: dict[str, Answer] = {}
    for path, message in shown if new_id is None else shown[last:]:
        if message.kind in OUTPUT_TYPES:
            answers[path] = _result(message, path)
        elif message.kind == APPROVAL_TYPE:
            answers[path] = _decision(message, path)
        elif _is_user_message(message):
            said[path] = UserInput(content=_contents(message, path), client_id=message.id or None)
    return ParsedInput(
        seeds=tuple(seed for _, seed in seeds),
        messages=tuple(said.values()),
        answers=tuple(answers.values()),
        seed_paths=tuple(path for path, _ in seeds),
        message_paths=tuple(said),
        answer_paths=tuple(answers),
    )


@contextmanager
def translate_error_paths(request: wire.ParsedRequest, parsed: ParsedInput, *, is_new: bool = False) -> Iterator[None]:
    """Let refusals of the core name the field of the request's body, where they name one of what it was given.

    Args:
        asked: the request.
        brought: what the core is given of its messages.
        is_new: its seeds are what the core calls messages.
    """
    try:
        yield
    except Invalid as refused:
        messages = parsed.seed_paths if is_new else parsed.message_paths
        kept = {"messages": messages, "answers": parsed.answer_paths, "tools": request.tool_paths}
        refused.path = _request_path(refused.path, kept, is_new=is_new)
        raise


def _request_path(path: str, request_paths: Mapping[str, Sequence[str]], *, is_new: bool) -> str:
    found = _CORE_PATH.fullmatch(path)
    if found is None:
        return path.replace("messages", "input")
    own = request_paths[found["kind"]][int(found["place"])]
    return own if is_new else own + found["rest"]  # a seed may be several messages: its inside says nothing


def _answered_call(message: wire.MessageIn) -> CallId | None:
    """The call that a message answers, as far as that can be read."""
    name = "approval_request_id" if message.kind == APPROVAL_TYPE else "call_id"
    if (message.kind in OUTPUT_TYPES or message.kind == APPROVAL_TYPE) and isinstance(message.content, tuple):
        for content in message.content:
            if (
                isinstance(content, wire.DataIn)
                and content.data is not None
                and isinstance(content.data.get(name), str)
            ):
                return CallId(content.data[name])
    return None


def _is_user_message(message: wire.MessageIn) -> bool:
    return message.role in (None, "user") and message.kind not in _AGENT_ONLY_TYPES


def _is_new_input(message: wire.MessageIn) -> bool:
    return _is_user_message(message) or message.kind in OUTPUT_TYPES or message.kind == APPROVAL_TYPE


def _contents(message: wire.MessageIn, path: str) -> str | tuple[core.InputBlock, ...]:
    content = message.content
    if isinstance(content, str):
        return content
    blocks = tuple(_block(each, f"{path}.content[{place}]") for place, each in enumerate(content or ()))
    if not blocks:
        raise Invalid("at least one content was expected", path=f"{path}.content")
    return blocks


def _block(content: wire.ContentIn, path: str) -> core.InputBlock:
    match content:
        case wire.TextIn(text=text):
            return core.Text(text or "")
        case wire.RefusalIn(refusal=refusal):
            return core.Text(refusal or "")
        case wire.DataIn(data=data):
            return core.Data(data or {})
        case wire.ImageIn(image_url=str(url)) if url:
            return core.Image(url)
        case wire.AudioIn(data=str(sound)) if sound:
            media_type = f"audio/{content.format or 'wav'}"
            return core.File(_data_uri(sound, media_type), media="audio", media_type=media_type)
        case wire.VideoIn(video_url=str(url)) if url:
            return core.File(url, media="video")
        case wire.FileIn(file_url=url, file_data=inside) if url or inside:
            name = content.filename or content.file_name
            return core.File(url or _data_uri(inside or "", "application/octet-stream"), name=name)
        case _:
            raise Invalid("a URL, or the content itself, was expected", path=path)


def _data_uri(given: str, media_type: str) -> str:
    """A URL or `data:` URI as it is; base64 alone as a `data:` URI."""
    return given if ":" in given[:32] else f"data:{media_type};base64,{given}"


def _payload(message: wire.MessageIn, path: str) -> JsonObject:
    """The single object of a call, an output or an answer."""
    content = message.content
    if isinstance(content, tuple) and len(content) == 1 and isinstance(content[0], wire.DataIn):
        return content[0].data or {}
    raise Invalid("one content of type 'data' was expected", path=f"{path}.content")


def _required_text(payload: JsonObject, name: str, path: str) -> str:
    value = payload.get(name)
    if not isinstance(value, str) or not value:
        raise Invalid("a text was expected", path=f"{path}.content[0].data.{name}")
    return value


def _result(message: wire.MessageIn, path: str) -> Result:
    payload = _payload(message, path)
    output = payload.get("output")
    if not isinstance(output, str):  # some clients send the structure itself
        output = "" if output is None else msgspec.json.encode(output).decode()
    return Result(call_id=CallId(_required_text(payload, "call_id", path)), content=output)


def _decision(message: wire.MessageIn, path: str) -> Decision:
    payload = _payload(message, path)
    approve, reason = payload.get("approve"), payload.get("reason")
    if not isinstance(approve, bool):
        raise Invalid("true or false was expected", path=f"{path}.content[0].data.approve")
    if reason is not None and not isinstance(reason, str):
        raise Invalid("a text was expected", path=f"{path}.content[0].data.reason")
    call_id = CallId(_required_text(payload, "approval_request_id", path))
    return Decision(call_id=call_id, granted=approve, reason=reason or None)


# --- the history that a new session is opened with ----------------------------------------------------------------


def _seeds(
    history: Sequence[tuple[str, wire.MessageIn]], new_id: Callable[[], str]
) -> Sequence[tuple[str, core.Message]]:
    """Messages of any role as the history of a new session, each with the place where it begins. Steps that follow
    each other without a word of somebody else are one model step, as the package splits it; approvals are none of a
    history's affair.
    """
    found: list[tuple[str, core.Message]] = []
    step: list[tuple[str, core.Block]] = []
    names: dict[str, str] = {}

    def close() -> None:
        if step:
            blocks = tuple(block for _, block in step)
            found.append((step[0][0], core.AssistantMessage(id=MessageId(new_id()), content=blocks)))
            step.clear()

    def add(path: str, message: core.Message) -> None:
        close()
        found.append((path, message))

    for path, message in history:
        if message.kind in CALL_TYPES:
            call = _call(_payload(message, path), path)
            names[call.call_id] = call.name
            step.append((path, call))
        elif message.kind in OUTPUT_TYPES:
            given = _result(message, path)
            name = names.get(given.call_id, "")
            result = core.ToolMessage(id=MessageId(new_id()), call_id=given.call_id, name=name, content=given.content)
            add(path, result)
        elif _is_user_message(message) and message.kind != APPROVAL_TYPE:
            content = _contents(message, path)
            add(path, core.UserMessage(id=MessageId(new_id()), content=content, client_id=message.id or None))
        elif message.role == "system":
            add(path, core.SystemMessage(id=MessageId(new_id()), content=core.text_of(_contents(message, path))))
        elif message.role == "assistant" and message.kind == "message":
            step += [(path, block) for block in _blocks(_contents(message, path))]
    close()
    return found


def _call(payload: JsonObject, path: str) -> core.Call:
    arguments = payload.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        raise Invalid("a JSON object as text was expected", path=f"{path}.content[0].data.arguments")
    return core.Call(
        call_id=CallId(_required_text(payload, "call_id", path)),
        name=_required_text(payload, "name", path),
        input=arguments,
    )


# --- what the engine takes ----------------------------------------------------------------------------------------


def create_from(parsed_request: wire.ParsedRequest, agent: str, parsed: ParsedInput) -> Create:
    """A new session, without the id or the name that the client may have chosen."""
    user_id = parsed_request.request.user_id
    return Create(
        protocol=PROTOCOL,
        agent=agent,
        tools="all",
        labels={"user_id": user_id} if user_id else {},
        seeds=parsed.seeds,
    )


def submit_from(parsed_request: wire.ParsedRequest, parsed: ParsedInput, run_metadata: RunMetadata) -> Submit:
    """A request to go on with a session.

    Without answers to all open calls there would be no run, and a task is one. And a session that a client opens with
    calls would wait for a word about them that it never asked for.
    """
    request = parsed_request.request
    chosen = {name: getattr(request, name) for name in _PARAMETERS}
    props: JsonObject = {PROTOCOL: msgspec.to_builtins(run_metadata)}
    if request.user_id:
        props["user"] = request.user_id
    if extra := parsed_request.extra_fields():
        props["extra"] = extra
    return Submit(
        protocol=PROTOCOL,
        messages=parsed.messages,
        answers=parsed.answers,
        client_run_id=request.client_response_id,
        requires_all_answers=run_metadata.is_task or bool(parsed.seeds),
        client_tools=tuple(
            ToolSpec(name=tool.name, description=tool.description or "", parameters=tool.parameters)
            for tool in parsed_request.tools
        ),
        parameters={name: _tuple_to_list(value) for name, value in chosen.items() if value is not None},
        metadata=props,
    )


def _tuple_to_list(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def require_new_input(parsed: ParsedInput, *, is_new: bool) -> None:
    """Check that a request asks for anything at all.

    Raises:
        Invalid: there is nothing in it that the session does not hold.
        UnknownCall: it answers, and the session is only about to be made.
    """
    for answer in parsed.answers if is_new else ():
        if isinstance(answer, Decision) or not parsed.seeds:
            raise UnknownCall(answer.call_id)
    if not parsed.messages and not parsed.answers:
        raise Invalid("the input ends with no message of the user's, and with no answer", path="input")


def require_matching_answers(answers: Sequence[Answer], calls: Mapping[CallId, OpenCall]) -> None:
    """Check that each answer is what its call asks for: a word about what needs one, an output of what the application
    runs. Elsewhere an application may give the result of a server's tool itself; here that would forge what the tool
    did, and no client does it (sections 5.3 and 5.5).

    Args:
        answers: what a request answers.
        calls: the session's open calls; answers to others are the core's affair.

    Raises:
        UnknownCall: the session waits for no such answer.
    """
    for answer in answers:
        call = calls.get(answer.call_id)
        if call is None:
            continue
        needs_word, is_word = call.parked or call.kind == "permission", isinstance(answer, Decision)
        if not call.is_waiting() or needs_word != is_word:
            raise UnknownCall(answer.call_id, "approval" if is_word else "output")
