"""What a request asks of a session: which of its messages are new, what it answers, what opens a branch. Pure.

Clients of AG-UI resend everything that they hold. The server owns the history: it takes what it has not, and believes
nothing else. Only a call that the core recorded and that still waits can be answered, by an entry of `resume` or by the
result of the client's own tool; whatever else a history claims has no effect.
Source: specification of the face, B.3, B.8 to B.10; rulings, 13, 15, 19 to 21.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from dragoman.core import content as core
from dragoman.core.admission import check_image
from dragoman.core.answers import choice_from, compact_json
from dragoman.core.ids import CallId, MessageId
from dragoman.core.inputs import Answer, Decision, Result, UserInput
from dragoman.core.refusals import ImageUnsupported, InvalidAnswer, ResultsMissing
from dragoman.core.session import OpenCall, SessionState
from dragoman.core.tools import AgentSpec, ToolSpec
from dragoman.protocols.agui import content as wire
from dragoman.protocols.agui.messages import OMITTED_FILE_TEXT, content_to_wire
from dragoman.protocols.agui.translate import PendingCall
from dragoman.protocols.agui.wire import ResumeEntry, RunInput

NewId = Callable[[], str]
NO_PARAMETERS: core.JsonObject = {"type": "object", "properties": {}}

# --- messages ---------------------------------------------------------------------------------------------------------


def new_user_messages(messages: Iterable[wire.Message], known: Collection[str]) -> list[wire.UserMessage]:
    """The user's messages that the session does not hold yet, in order and each once."""
    new = {each.id: each for each in messages if isinstance(each, wire.UserMessage) and each.id not in known}
    return list(new.values())


def last_user_message(messages: Sequence[wire.Message]) -> wire.UserMessage | None:
    """The newest message of the user that the client holds."""
    return next((each for each in reversed(messages) if isinstance(each, wire.UserMessage)), None)


def split_opening_input(messages: Sequence[wire.Message]) -> tuple[Sequence[wire.Message], Sequence[wire.UserMessage]]:
    """A new thread's messages: what was before, and what the user says now."""
    inputs: list[wire.UserMessage] = []
    for message in reversed(messages):
        if not isinstance(message, wire.UserMessage):
            break
        inputs.insert(0, message)
    return messages[: len(messages) - len(inputs)], inputs


class InputMapper:
    """Takes up what clients send for an agent, and notes what of it that agent cannot use."""

    def __init__(self, spec: AgentSpec) -> None:
        self.spec = spec
        self.dropped: list[str] = []

    def user_input(self, message: wire.UserMessage) -> UserInput:
        """A message of the user's."""
        return UserInput(content=self.content(message.content), client_id=message.id, name=message.name)

    def content(self, content: wire.Content) -> str | tuple[core.InputBlock, ...]:
        """A content in blocks, without what the agent cannot use."""
        if isinstance(content, str):
            return content
        blocks = (self._block(part) for part in content)
        return tuple(block for block in blocks if block is not None)

    def seeds(self, messages: Sequence[wire.Message], new_id: NewId) -> tuple[core.Message, ...]:
        """What was before on a thread that is new here, as a history that opens nothing.

        Calls without a result, and results without a call, are left out.
        """
        asked = {
            call.id for each in messages if isinstance(each, wire.AssistantMessage) for call in each.tool_calls or ()
        }
        results: dict[str, wire.ToolMessage] = {}
        for each in messages:
            if isinstance(each, wire.ToolMessage) and each.tool_call_id in asked:
                results.setdefault(each.tool_call_id, each)
        found: list[core.Message] = []
        told: set[str] = set()
        for message in messages:
            own = MessageId(new_id())
            match message:
                case wire.UserMessage(content=content, id=client_id, name=name):
                    taken = self.content(content)
                    found.append(core.UserMessage(id=own, content=taken, client_id=client_id, name=name))
                case wire.SystemMessage(content=text) | wire.DeveloperMessage(content=text):
                    found.append(core.SystemMessage(id=own, content=text))
                case wire.AssistantMessage(content=said, tool_calls=calls):
                    answered = [call for call in calls or () if call.id in results and call.id not in told]
                    told.update(call.id for call in answered)
                    words = (core.Text(said),) if said else ()
                    blocks = (*words, *map(_call, answered))
                    if blocks:
                        found.append(core.AssistantMessage(id=own, content=blocks))
                    found += [self._result(results[call.id], call, new_id) for call in answered]
                case _:
                    pass  # results follow their calls; thinking and activities are the server's to tell
        return tuple(found)

    def _result(self, message: wire.ToolMessage, call: wire.ToolCall, new_id: NewId) -> core.ToolMessage:
        return core.ToolMessage(
            id=MessageId(new_id()),
            call_id=CallId(call.id),
            name=call.function.name,
            content=self.content(message.content),
            is_error=message.error is not None,
        )

    def _block(self, part: wire.Part) -> core.InputBlock | None:
        if isinstance(part, wire.TextPart):
            return core.Text(part.text)
        url, mime = _url(part.source), part.source.mime_type
        if url is None:
            self.dropped.append("a file of another provider")
            return None
        match part:
            case wire.ImagePart():
                try:
                    check_image(self.spec, core.Image(url))
                except ImageUnsupported as error:
                    self.dropped.append(str(error))
                    return None
                return core.Image(url)
            case wire.AudioPart():
                return core.File(url=url, media="audio", media_type=mime)
            case wire.VideoPart():
                return core.File(url=url, media="video", media_type=mime)
            case _:
                return core.File(url=url, media_type=mime)


def is_same_content(content: wire.Content, stored: str | tuple[core.InputBlock, ...], spec: AgentSpec) -> bool:
    """Whether a client sends a message as it was stored, or as it was shown."""
    if wire.TextPart(text=OMITTED_FILE_TEXT) in (content if isinstance(content, tuple) else ()):
        return True  # it never had the whole of it
    return content == content_to_wire(stored) or InputMapper(spec).content(content) == stored


def _url(source: wire.Source) -> str | None:
    match source:
        case wire.DataSource(value=value, mime_type=mime):
            return f"data:{mime};base64,{value}"
        case wire.UrlSource(value=value):
            return value
        case wire.FileSource():
            return None


def _call(call: wire.ToolCall) -> core.Call:
    try:
        arguments = msgspec.json.decode(call.function.arguments)
    except (ValueError, RecursionError):
        arguments = None
    known = arguments if isinstance(arguments, dict) else {"arguments": call.function.arguments}
    return core.Call(call_id=CallId(call.id), name=call.function.name, input=known)


def tools_of(run: RunInput) -> tuple[ToolSpec, ...]:
    """The client's tools, each once."""
    tools = {tool.name: tool for tool in run.tools}
    return tuple(
        ToolSpec(name=tool.name, description=tool.description, parameters=tool.parameters or NO_PARAMETERS)
        for tool in tools.values()
    )


def run_metadata_from(run: RunInput, unknown_interrupts: Sequence[str] = ()) -> core.JsonObject:
    """What the agent may know about the request, and what is told again about the run."""
    props: core.JsonObject = {}
    if run.state is not msgspec.UNSET and run.state != {}:  # which is how clients say that there is none
        props["state"] = run.state
    if run.context:
        props["context"] = [{"description": each.description, "value": each.value} for each in run.context]
    if run.forwarded_props is not None and run.forwarded_props != {}:
        props["forwarded_props"] = run.forwarded_props
    if isinstance(run.forwarded_props, dict) and isinstance(run.forwarded_props.get("client_time"), dict):
        props["client_time"] = run.forwarded_props["client_time"]
    if run.parent_run_id is not None:
        props["parent_run_id"] = run.parent_run_id
    if unknown_interrupts:
        props["unknown_interrupts"] = list(unknown_interrupts)
    return props


# --- answers ----------------------------------------------------------------------------------------------------------


def pending_calls(state: SessionState) -> tuple[PendingCall, ...]:
    """The session's calls that wait for the application, in order."""
    return tuple(
        PendingCall(each.call.call_id, each.kind, each.loop, each.call, each.parked) for each in state.waiting_calls()
    )


class ParsedAnswers(NamedTuple):
    """What a request answers. `unknown` are entries of `resume` that nothing waits for."""

    answers: tuple[Answer, ...]
    unknown_interrupts: tuple[str, ...]


def answers_of(run: RunInput, state: SessionState, mapper: InputMapper, *, has_new_message: bool) -> ParsedAnswers:
    """The answers of a request to the calls that wait.

    Args:
        brings_message: the user says something new with it. Then what is only cancelled is closed by that message.

    Raises:
        ResultsMissing: an interrupt is open that the request says nothing about, although it goes on.
        InvalidAnswer: a payload does not match the interrupt's schema.
    """
    open_calls = {each.call.call_id: each for each in state.waiting_calls()}
    entries: dict[str, ResumeEntry] = {}
    for entry in run.resume:
        entries.setdefault(entry.interrupt_id, entry)
    results: dict[str, wire.ToolMessage] = {}
    for message in run.messages:
        if isinstance(message, wire.ToolMessage):
            results.setdefault(message.tool_call_id, message)
    answers: list[Answer] = []
    missing: list[CallId] = []
    for call_id, call in open_calls.items():
        if call.kind == "client" and not call.parked:
            if call_id in results:
                answers.append(_client_result(call_id, results[call_id], mapper))
        elif (found := entries.get(call_id)) is None:
            missing.append(call_id)
        elif found.status == "resolved":
            answers.append(_resume_answer(call, found.payload))
        elif not has_new_message:
            answers.append(Decision(call_id=call_id, granted=False))
    if missing and (answers or has_new_message or entries.keys() & open_calls.keys()):
        raise ResultsMissing(tuple(missing))
    return ParsedAnswers(tuple(answers), tuple(each for each in entries if each not in open_calls))


def _client_result(call_id: CallId, message: wire.ToolMessage, mapper: InputMapper) -> Result:
    content = mapper.content(message.content) or message.error or ""
    return Result(call_id=call_id, content=content, is_error=message.error is not None)


def _resume_answer(call: OpenCall, payload: core.Json) -> Answer:
    """The answer in an entry's payload. Raises InvalidAnswer when it does not match the interrupt's schema.

    Arguments cannot be edited here. What is approved with others than the call's own is not what would run.
    """
    call_id = call.call.call_id
    if call.kind == "question" and not call.parked:
        if isinstance(payload, str):
            return choice_from(call, compact_json({"custom": payload}))
        if not isinstance(payload, dict) or not payload or not payload.keys() <= {"selections", "custom"}:
            raise InvalidAnswer('a payload of {"selections", "custom"} or a text was expected')
        return choice_from(call, compact_json(payload))
    if not isinstance(payload, dict) or not isinstance(payload.get("approved"), bool):
        raise InvalidAnswer('a payload of {"approved": true or false} was expected')
    reason = payload.get("reason")
    if reason is not None and not isinstance(reason, str):
        raise InvalidAnswer("the payload's reason is a text")
    if payload["approved"] and payload.get("editedArgs") not in (None, call.call.input):
        raise InvalidAnswer("the arguments of this call cannot be edited")
    remember = payload.get("remember") is True
    return Decision(call_id=call_id, granted=payload["approved"], reason=reason or None, remember=remember)
