"""A run request → input of the core: messages, tools, metadata, and answers to open calls. Pure.

The server owns the history, and a client's claims about it have no effect: only a call that the core recorded and that
still waits can be answered, by an entry of `resume` or by the result of the client's own tool.
Source: specification of AG-UI, B.3, B.8 to B.10; shared rules, 19 to 21.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import choice_from_value
from dragoman.core.ids import CallId, MessageId
from dragoman.core.input_checks import InputLimits, check_content
from dragoman.core.inputs import Answer, Decision, Result, UserInput
from dragoman.core.open_calls import OpenCall
from dragoman.core.refusals import Invalid, InvalidAnswer, ResultsMissing
from dragoman.core.run_metadata import ContextEntry, RunMetadata
from dragoman.core.session import SessionState
from dragoman.core.tools import NO_PARAMETERS, AgentSpec, ToolSpec
from dragoman.protocols.agui import content as agui_content
from dragoman.protocols.agui.messages import FILE_PARTS, OMITTED_FILE_TEXT, content_to_wire
from dragoman.protocols.agui.wire import RunInput, Tool

NewId = Callable[[], str]
FILE_MEDIA = {part: media for media, part in FILE_PARTS.items()}

# --- messages ---------------------------------------------------------------------------------------------------------


def user_input(message: agui_content.UserMessage) -> UserInput:
    """A user message as input."""
    return UserInput(content=content_of(message.content), client_id=message.id, name=message.name)


def content_of(content: agui_content.Content) -> str | tuple[core.InputBlock, ...]:
    """Content as blocks, without the parts whose source nobody here can fetch (specification, B.3)."""
    if isinstance(content, str):
        return content
    return tuple(block for part in content if (block := _block(part)) is not None)


def with_error(content: str | tuple[core.InputBlock, ...], error: str | None) -> str | tuple[core.InputBlock, ...]:
    """A result with the error beside it, unless it contains that: the model gets both."""
    if not error or error in core.text_of(content):
        return content
    if not content:
        return error
    return f"{content}\n\n{error}" if isinstance(content, str) else (*content, core.Text(error))


def unfetchable_parts(run: RunInput) -> list[str]:
    """The parts of messages that `content_of` leaves out, for the log."""
    contents = [
        each.content for each in run.messages if isinstance(each, agui_content.UserMessage | agui_content.ToolMessage)
    ]
    parts = [part for content in contents if not isinstance(content, str) for part in content]
    return [f"{type(part).__name__} without a source to fetch" for part in parts if _block(part) is None]


def seeds_of(messages: Sequence[agui_content.Message], new_id: NewId) -> Mapping[str, core.Message]:
    """The history that a client brings to a new thread, as closed messages, each by its path in the request.

    Calls without a result and results without a call are left out, so that the history leaves nothing open.
    """
    results = {
        message.tool_call_id: (f"messages[{index}]", message)
        for index, message in reversed(list(enumerate(messages)))  # the first one counts
        if isinstance(message, agui_content.ToolMessage)
    }
    seeds: dict[str, core.Message] = {}
    for index, message in enumerate(messages):
        message_id, path = MessageId(new_id()), f"messages[{index}]"
        match message:
            case agui_content.UserMessage(content=content, id=client_id, name=name):
                seeds[path] = core.UserMessage(
                    id=message_id, content=content_of(content), client_id=client_id, name=name
                )
            case agui_content.SystemMessage(content=text) | agui_content.DeveloperMessage(content=text):
                seeds[path] = core.SystemMessage(id=message_id, content=text)
            case agui_content.AssistantMessage(content=text, tool_calls=calls):
                answered = [(call, results.pop(call.id)) for call in calls or () if call.id in results]
                blocks = (*((core.Text(text),) if text else ()), *(_call(call) for call, _ in answered))
                if blocks:
                    seeds[path] = core.AssistantMessage(id=message_id, content=blocks)
                seeds |= {place: _result(result, call, new_id) for call, (place, result) in answered}
            case _:
                pass  # results follow their calls; reasoning and activities come from the server alone
    return seeds


def _call(call: agui_content.ToolCall) -> core.Call:
    arguments = core.parse_arguments(call.function.arguments)
    return core.Call(call_id=CallId(call.id), name=call.function.name, input=arguments)


def _result(message: agui_content.ToolMessage, call: agui_content.ToolCall, new_id: NewId) -> core.ToolMessage:
    return core.ToolMessage(
        id=MessageId(new_id()),
        call_id=CallId(call.id),
        name=call.function.name,
        content=with_error(content_of(message.content), message.error),
        is_error=message.error is not None,
    )


def _block(part: agui_content.Part) -> core.InputBlock | None:
    if isinstance(part, agui_content.TextPart):
        return core.Text(part.text)
    match part.source:
        case agui_content.DataSource(value=value, mime_type=media_type):
            url = f"data:{media_type};base64,{value}"
        case agui_content.UrlSource(value=value):
            url = value
        case _:
            return None  # the handle of another provider
    if not isinstance(part, agui_content.ImagePart):
        return core.File(url=url, media=FILE_MEDIA[type(part)], media_type=part.source.mime_type)
    return core.Image(url) if url.startswith(("https:", "http:", "data:")) else None


def is_same_content(content: agui_content.Content, stored: str | tuple[core.InputBlock, ...], spec: AgentSpec) -> bool:
    """Whether a client resends a message as it was stored or as it was shown."""
    if content == content_to_wire(stored):
        return True
    if isinstance(content, str):
        return False
    if agui_content.TextPart(text=OMITTED_FILE_TEXT) in content:
        return True  # the client never received all of it
    accepted = tuple(part for part in content if _is_accepted(part, spec))  # earlier releases left the others out
    return content_of(accepted) == stored


def _is_accepted(part: agui_content.Part, spec: AgentSpec) -> bool:
    if isinstance(part, agui_content.TextPart):
        return True
    try:
        check_content(spec, content_of((part,)), InputLimits())
    except Invalid:
        return False
    return True


# --- tools and metadata -----------------------------------------------------------------------------------------------


def tools_of(tools: Iterable[Tool]) -> tuple[ToolSpec, ...]:
    """The client's tools; of two with one name, the last."""
    return tuple(
        ToolSpec(name=tool.name, description=tool.description, parameters=tool.parameters or NO_PARAMETERS)
        for tool in {tool.name: tool for tool in tools}.values()
    )


REPLACES_ANSWER = "replaces_answer"
"""The member of a run's metadata that says that its client still shows an answer that the run replaces."""
CLOSED_CALLS = "closed_calls"
"""The member of a run's metadata that says how many calls, at most, its message closed."""


def run_metadata_from(
    run: RunInput,
    unknown_interrupts: Sequence[str] = (),
    *,
    resends_history: bool = False,
    replaces_answer: bool = False,
    closed_calls: int = 0,
) -> RunMetadata:
    """What the agent may read about the request, and what later replays of the run show of it."""
    forwarded = run.forwarded_props
    client_time = forwarded.get("client_time") if isinstance(forwarded, dict) else None
    stored: dict[str, core.Json] = {
        "parent_run_id": run.parent_run_id,
        "unknown_interrupts": list(unknown_interrupts) or None,
        REPLACES_ANSWER: replaces_answer or None,
        CLOSED_CALLS: closed_calls or None,
    }
    return RunMetadata(
        state=run.state,
        context=tuple(ContextEntry(each.description, each.value) for each in run.context),
        forwarded=msgspec.UNSET if forwarded is None or forwarded == {} else forwarded,
        client_time=client_time if isinstance(client_time, dict) else None,
        resends_history=resends_history,
        protocol={name: value for name, value in stored.items() if value is not None},
    )


# --- answers ----------------------------------------------------------------------------------------------------------


def unknown_interrupts(run: RunInput, state: SessionState) -> tuple[str, ...]:
    """The interrupts that the request answers although they are not open, each once."""
    if not run.resume:
        return ()
    open_calls = {each.call.call_id for each in state.waiting_calls()}
    answered = dict.fromkeys(entry.interrupt_id for entry in run.resume)
    return tuple(each for each in answered if each not in open_calls)


def answers_of(run: RunInput, state: SessionState, *, has_new_message: bool) -> tuple[Answer, ...]:
    """The answers of a request to the calls that wait. A new user message itself closes calls that are only cancelled.

    Raises:
        ResultsMissing: an open interrupt is not covered although the request continues the run.
        InvalidAnswer: a payload does not match the interrupt's schema.
    """
    open_calls = {each.call.call_id: each for each in state.waiting_calls()}
    if not open_calls:
        return ()
    entries = {each.interrupt_id: each for each in reversed(run.resume)}  # the first one counts
    results = {each.tool_call_id: each for each in reversed(run.messages) if isinstance(each, agui_content.ToolMessage)}
    answers: list[Answer] = []
    missing: list[CallId] = []
    for call_id, call in open_calls.items():
        if call.waits_for == "client":
            if (message := results.get(call_id)) is not None:
                content = with_error(content_of(message.content), message.error)
                answers.append(Result(call_id=call_id, content=content, is_error=message.error is not None))
        elif (entry_of_call := entries.get(call_id)) is None:
            missing.append(call_id)
        elif entry_of_call.status == "resolved":
            answers.append(_resume_answer(call, entry_of_call.payload))
        elif not has_new_message:
            answers.append(Decision(call_id=call_id, granted=False))
    if missing and (answers or has_new_message or entries.keys() & open_calls.keys()):
        raise ResultsMissing(tuple(missing))
    return tuple(answers)


def _resume_answer(call: OpenCall, payload: core.Json) -> Answer:
    """The answer in a payload. Raises InvalidAnswer if it does not match the interrupt's schema."""
    call_id = call.call.call_id
    if call.waits_for == "question":
        return choice_from_value(call, payload)
    if not isinstance(payload, dict) or not isinstance(payload.get("approved"), bool):
        raise InvalidAnswer('expected a payload of {"approved": true or false}')
    reason = payload.get("reason")
    if reason is not None and not isinstance(reason, str):
        raise InvalidAnswer("the payload's reason must be a string")
    edited = payload.get("editedArgs")
    if edited is not None and not isinstance(edited, dict):
        raise InvalidAnswer("the payload's editedArgs must be an object")
    return Decision(
        call_id=call_id,
        granted=payload["approved"],
        reason=reason or None,
        remember=payload.get("remember") is True,
        arguments=edited if payload["approved"] else None,
    )
