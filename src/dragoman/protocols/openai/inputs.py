"""Maps the items of a request to the core's inputs: a session's past, new messages, and answers to calls. Pure.

What a client claims that an agent said or called is the past of a new session at most, and never makes a tool run.
"""

import mimetypes
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from dragoman.core import content as core
from dragoman.core.ids import CallId, MessageId, RunId
from dragoman.core.inputs import Answer, Decision, Result, Submit, UserInput
from dragoman.core.question_text import answers_from_text
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.session import SessionState
from dragoman.core.tools import ASK_USER_QUESTION, NO_PARAMETERS, ToolSpec
from dragoman.protocols.openai import ids, requests
from dragoman.protocols.openai.errors import InvalidParameter
from dragoman.protocols.openai.requests import CreateResponse, InputItem, RunFields
from dragoman.protocols.openai.translate import PROTOCOL

INSTRUCTIONS = ("system", "developer")
"""The roles of messages that instruct the agent."""
Content = str | tuple[core.InputBlock, ...]


class NewInput(NamedTuple):
    """What a request adds to a session, and the path of each part in the request's body.

    Attributes:
        seeds: the past of a new session, each message by the path of the item where it begins.
        system: system entries, before the messages.
        messages: new messages of the user.
        answers: answers to calls.
        paths: the places of the messages (`messages[0]`) and answers (`answers[0]`) in the body.
    """

    seeds: Mapping[str, core.Message] = MappingProxyType({})
    system: tuple[str, ...] = ()
    messages: tuple[UserInput, ...] = ()
    answers: tuple[Answer, ...] = ()
    paths: Mapping[str, str] = MappingProxyType({})


def new_input(items: Sequence[InputItem], start: int = 0, open_calls: Sequence[CallId] = ()) -> NewInput:
    """What a request adds to an existing session.

    Args:
        items: all items of the request.
        start: the index of the first item that the session does not have yet.
        open_calls: the calls that wait for an answer. An answer to one of them is new at any index.
    """
    system: list[str] = []
    messages: list[UserInput] = []
    answers: list[Answer] = []
    paths: dict[str, str] = {}
    for index, item in enumerate(items):
        path = f"input[{index}]"
        answer = _answer(item, path)
        if answer is not None and (index >= start or answer.call_id in open_calls):
            name = "call_id" if isinstance(answer, Result) else "approval_request_id"
            paths[f"answers[{len(answers)}]"] = f"{path}.{name}"
            answers.append(answer)
        elif isinstance(item, requests.Message) and index >= start:
            if item.role == "user":
                paths[f"messages[{len(messages)}]"] = path
                messages.append(UserInput(content=content_from(item.content, path)))
            elif item.role != "assistant":
                system.append(core.text_of(content_from(item.content, path)))
    return NewInput({}, tuple(system), tuple(messages), tuple(answers), paths)


def seeds_and_input(items: Sequence[InputItem], new_id: Callable[[], str]) -> NewInput:
    """What a request starts a new session with: its last user message or the results after it, and the seeds before.

    If all messages are instructions, the last one is the user's: OpenAI's models answer them, too.

    Raises:
        InvalidParameter: there is nothing to run, or an answer to a call that the request does not have.
    """
    if {_role(item) for item in items} <= {None, *INSTRUCTIONS} and _role(items[-1]) is not None:
        items = (*items[:-1], msgspec.structs.replace(items[-1], role="user"))
    places = (index for index in range(len(items) - 1, -1, -1) if _role(items[index]) == "user")
    last = next(places, -1)
    calls = {item.call_id for item in items if isinstance(item, requests.FunctionCall)}
    following = list(enumerate(items))[last + 1 :]
    for index, item in following:
        answer = _answer(item, f"input[{index}]")
        if isinstance(answer, Decision) or (
            isinstance(item, requests.FunctionCallOutput) and item.call_id not in calls
        ):
            name = "approval_request_id" if isinstance(answer, Decision) else "call_id"
            raise InvalidParameter("no_pending_call", "nothing waits for this answer", f"input[{index}].{name}")
    if any(isinstance(item, requests.FunctionCallOutput) for _, item in following):
        return _reopen(seeds_from(items, new_id))
    if last < 0:
        raise InvalidParameter("nothing_new", "expected a message of the user", "input")
    found = new_input([items[last], *(item for _, item in following if _role(item) in INSTRUCTIONS)])
    return found._replace(seeds=seeds_from(items[:last], new_id), paths={"messages[0]": f"input[{last}]"})


def _role(item: InputItem) -> str | None:
    return item.role if isinstance(item, requests.Message) else None


def _reopen(seeds: Mapping[str, core.Message]) -> NewInput:
    """A past whose last calls are open, and their results as answers."""
    messages = list(seeds.values())
    end = 1 + max(index for index, each in enumerate(messages) if isinstance(each, core.AssistantMessage))
    results = [each for each in messages[end:] if isinstance(each, core.ToolMessage)]
    if not results:
        raise InvalidParameter("nothing_new", "expected a message of the user", "input")
    return NewInput(
        dict(list(seeds.items())[:end]),
        system=tuple(each.content for each in messages[end:] if isinstance(each, core.SystemMessage)),
        answers=tuple(Result(call_id=each.call_id, content=each.content) for each in results),
    )


def seeds_from(
    items: Sequence[InputItem],
    new_id: Callable[[], str],
    *,
    open_calls: Mapping[str, str] | None = None,
    name: str = "input",
) -> dict[str, core.Message]:
    """The messages of a past, each by the path of the item where it begins.

    Args:
        items: the items.
        new_id: makes the ids of the messages.
        open_calls: the names of earlier calls without a result, for a past that is added item by item. By default the
            past is whole: calls without a result, and results without a call, are left out.
        name: the member of the request that has the items.
    """
    kept = {item.call_id for item in items if isinstance(item, requests.FunctionCallOutput)}
    if open_calls is not None:
        kept |= {item.call_id for item in items if isinstance(item, requests.FunctionCall)}
    names = dict(open_calls or {})
    seeds: dict[str, core.Message] = {}
    blocks: list[tuple[str, core.Block]] = []

    def flush() -> None:
        if blocks:
            content = tuple(block for _, block in blocks)
            seeds[blocks[0][0]] = core.AssistantMessage(id=MessageId(new_id()), content=content)
            blocks.clear()

    for index, item in enumerate(items):
        path = f"{name}[{index}]"
        match item:
            case requests.FunctionCall(call_id=call_id) if call_id in kept and call_id not in names:
                names[call_id] = item.name
                blocks.append((path, core.Call(CallId(call_id), item.name, core.parse_arguments(item.arguments))))
            case requests.FunctionCallOutput(call_id=call_id) if call_id in names and call_id in kept:
                flush()
                kept.discard(call_id)
                content = _joined(content_from(item.output, path))
                seeds[path] = core.ToolMessage(
                    id=MessageId(new_id()), call_id=CallId(call_id), name=names[call_id], content=content
                )
            case requests.Compaction(encrypted_content=summary):
                flush()
                seeds[path] = core.SystemMessage(id=MessageId(new_id()), content=summary)
            case requests.Message(role="assistant"):
                flush()
                blocks.append((path, core.Text(core.text_of(content_from(item.content, path)))))
            case requests.Message(role="user"):
                flush()
                seeds[path] = core.UserMessage(id=MessageId(new_id()), content=content_from(item.content, path))
            case requests.Message():
                flush()
                text = core.text_of(content_from(item.content, path))
                seeds[path] = core.SystemMessage(id=MessageId(new_id()), content=text)
    flush()
    return seeds


def open_calls_of(messages: Sequence[core.Message]) -> dict[str, str]:
    """The names of the calls without a result, by id."""
    answered = {each.call_id for each in messages if isinstance(each, core.ToolMessage)}
    calls = [call for each in messages if isinstance(each, core.AssistantMessage) for call in each.calls()]
    return {call.call_id: call.name for call in calls if call.call_id not in answered}


def _answer(item: InputItem, path: str) -> Answer | None:
    match item:
        case requests.FunctionCallOutput(call_id=call_id, output=output):
            return Result(call_id=ids.call_of(call_id), content=_joined(content_from(output, path)))
        case requests.McpApprovalResponse(approval_request_id=request_id, approve=approve, reason=reason):
            return Decision(call_id=ids.call_of(request_id), granted=approve, reason=reason)
        case _:
            return None


def content_from(content: str | tuple[requests.Part, ...], path: str) -> Content:
    """The content of a message or a result."""
    if isinstance(content, str):
        return content
    return tuple(_block(part, f"{path}.content[{index}]") for index, part in enumerate(content))


def _joined(content: Content) -> Content:
    """The content of a result: one text if there is nothing else."""
    is_text = not isinstance(content, str) and all(isinstance(block, core.Text) for block in content)
    return core.text_of(content) if is_text else content


def _block(part: requests.Part, path: str) -> core.InputBlock:
    match part:
        case requests.TextPart(text=text):
            return core.Text(text)
        case requests.RefusalPart(refusal=text):
            return core.Text(text)
        case requests.ImagePart(image_url=str() as url):
            return core.Image(url)
        case requests.FilePart(file_url=str() as url, filename=name):
            return core.File(url, name=name)
        case requests.FilePart(file_data=str() as data, filename=name):
            media_type = mimetypes.guess_type(name or "")[0] or "application/octet-stream"
            url = data if data.startswith("data:") else f"data:{media_type};base64,{data}"
            return core.File(url, media_type=url[5:].partition(";")[0], name=name)
        case _:
            raise InvalidParameter("missing_required_parameter", "expected a URL or the data", path)


def without_resent(
    items: Sequence[InputItem], calls: Collection[CallId], turn: Sequence[core.Message]
) -> tuple[InputItem, ...]:
    """The items without those before the last answer to one of `calls` that the turn already has.

    The tool loops of the AI SDK name the same conversation or response at every step, and send the whole turn again.
    """
    results = {each.call_id for each in turn if isinstance(each, core.ToolMessage)}
    said = [(type(each), each.content) for each in turn if isinstance(each, core.UserMessage | core.SystemMessage)]
    kept = list(items)
    end = max(index for index, item in enumerate(items) if _answers_one_of(item, calls))
    for index, item in enumerate(items[:end]):
        if isinstance(item, requests.Message):
            content = content_from(item.content, f"input[{index}]")
            sent = (core.UserMessage, content) if item.role == "user" else (core.SystemMessage, core.text_of(content))
            is_known = sent in said
        else:
            is_known = _answers_one_of(item, results)
        if is_known:
            kept[index] = requests.OtherItem()
    return tuple(kept)


def may_resend(items: Sequence[InputItem], calls: Collection[CallId]) -> bool:
    """Whether anything else comes before an answer to one of these calls."""
    are_answers = (_answers_one_of(item, calls) for item in items)
    return not all(are_answers) and any(are_answers)  # `all` reads up to the first one that is none


def answers_any(items: Sequence[InputItem], calls: Collection[CallId]) -> bool:
    """Whether a history answers one of these calls."""
    return bool(calls) and any(_answers_one_of(item, calls) for item in items)


def _answers_one_of(item: InputItem, calls: Collection[CallId]) -> bool:
    answer = _answer(item, "input")
    return answer is not None and answer.call_id in calls


def has_agent_items(items: Sequence[InputItem]) -> bool:
    """Whether there are messages or calls of an agent."""
    return any(_role(item) == "assistant" or isinstance(item, requests.FunctionCall) for item in items)


def run_named_by(item: InputItem) -> RunId | None:
    """The run that an item's id leads to, or the id of its call."""
    named = [getattr(item, name, None) for name in ("call_id", "approval_request_id", "id")]
    return next((run_id for each in named if each and (run_id := ids.run_of(each)) is not None), None)


def with_question_answered(given: NewInput, state: SessionState) -> NewInput:
    """The input with its first message as the answer to a question that waits: clients show a question as text."""
    answers = answers_from_text(state.waiting_calls(), given.messages[0].content) if given.messages else ()
    return given._replace(messages=given.messages[1:], answers=answers) if answers else given


# --- runs -------------------------------------------------------------------------------------------------------------


def submit_from(fields: CreateResponse, given: NewInput, *, keeps_unlisted: bool = False) -> Submit:
    """Translate a request. `given` is what it adds to its session."""
    return Submit(
        protocol=PROTOCOL,
        system=given.system,
        messages=given.messages,
        answers=given.answers,
        client_tools=_offered_tools(fields),
        parameters=_parameters(fields),
        keeps_parameters=False,
        keeps_unlisted=keeps_unlisted,
        metadata=RunMetadata(
            user=fields.user or fields.safety_identifier,
            instructions=fields.instructions,
            max_calls=fields.max_tool_calls,
            output_schema=_output_schema(fields),
            protocol=msgspec.to_builtins(msgspec.convert(fields, RunFields, from_attributes=True)),
        ),
    )


def _offered_tools(fields: CreateResponse) -> tuple[ToolSpec, ...]:
    """The tools that the model may call, as far as `tool_choice` limits them.

    A declared `AskUserQuestion` without parameters only says that the client shows questions itself.
    """
    choice = fields.tool_choice
    allowed = {tool.name for tool in fields.tools}
    if choice == "none":
        allowed = set()
    elif isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = {each["name"] for each in choice["tools"]}
    return tuple(
        ToolSpec(
            name=tool.name,
            description=tool.description or "",
            parameters=tool.parameters or NO_PARAMETERS,
            strict=tool.strict,
        )
        for tool in fields.tools
        if tool.name in allowed and not (tool.name == ASK_USER_QUESTION and tool.parameters is None)
    )


def _parameters(fields: CreateResponse) -> core.JsonObject:
    """The model parameters, by the names of Chat Completions."""
    choice = fields.tool_choice
    if isinstance(choice, dict):
        is_named = choice["type"] == "function"
        choice = {"type": "function", "function": {"name": choice["name"]}} if is_named else choice.get("mode", "auto")
    given = {
        "temperature": fields.temperature,
        "top_p": fields.top_p,
        "presence_penalty": fields.presence_penalty,
        "frequency_penalty": fields.frequency_penalty,
        "max_tokens": fields.max_output_tokens,
        "parallel_tool_calls": fields.parallel_tool_calls,
        "reasoning_effort": fields.reasoning.effort,
        "verbosity": fields.text.verbosity,
        "tool_choice": choice,
    }
    return {name: value for name, value in given.items() if value is not None}


def _output_schema(fields: CreateResponse) -> core.Json:
    """The schema that the answer has to match; None if it is free text."""
    wanted = fields.text.format or {}
    if wanted.get("type") not in ("json_object", "json_schema"):
        return None
    return wanted.get("schema") or {"type": "object"}
