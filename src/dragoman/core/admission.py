"""What may enter a session: each function looks at the state and either refuses or tells the events to append. Pure.

The order of the checks is the protocols' promise: settings first, then whether the session is busy, then the answers.
A refusal changes nothing, because nothing is appended before all is checked.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, assert_never

import msgspec

from dragoman.core.answers import choice_from, denied_result, settle_call, settle_choice
from dragoman.core.content import (
    DEPTH_LIMIT,
    AssistantMessage,
    Call,
    Data,
    Image,
    InputBlock,
    Json,
    Message,
    Text,
    ToolMessage,
    UserMessage,
    is_too_deep,
)
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    CallKind,
    CallOpened,
    CallSettled,
    EncryptedValue,
    Event,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    RunQueued,
    RunStarted,
    SessionCreated,
    SessionSettings,
    SettingsChange,
    SettingsChanged,
)
from dragoman.core.ids import ROOT, CallId, MessageId, RunId
from dragoman.core.inputs import Answer, Choice, Create, Decision, Result, StoredImage, Submit, UserInput
from dragoman.core.refusals import (
    CallAlreadySettled,
    ClientToolsUnsupported,
    DuplicateToolName,
    ImageUnsupported,
    Invalid,
    InvalidAnswer,
    InvalidOptionValue,
    InvalidSeed,
    LimitExceeded,
    ResultsMissing,
    SessionBusy,
    UnknownCall,
    UnknownOption,
    UnknownTool,
)
from dragoman.core.session import OpenCall, SessionState, apply_change
from dragoman.core.tools import ASK_USER_QUESTION, FORK, AgentSpec, SecretOption, SelectOption, ToolGrant, ToolSpec
from dragoman.core.uploads import UPLOAD_SCHEME

OPTION_LIMIT = 64 * 1024
UNCHANGED_SECRET = "***"  # the placeholder that clients are shown
CANCELLED_BY_NEW_MESSAGE = "Tool call cancelled: a new user message arrived"
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DATA_IMAGE = re.compile(r"data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/]*={0,2}", re.IGNORECASE)

NewId = Callable[[], str]
EncryptFunction = Callable[[str], EncryptedValue]


class InputLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a session takes at once. The doors may be narrower (rulings, 27)."""

    text_chars: int = 1024 * 1024
    seeds: int = 1000
    messages: int = 1000
    """Of the user, in one request."""
    blocks: int = 1000
    """Of one message."""
    queued_runs: int = 100
    """Runs that wait in one session."""
    client_tools: int = 128
    schema_bytes: int = 64 * 1024


# --- which kind a call is -----------------------------------------------------------------------------------------


def kind_of_call(name: str, spec: AgentSpec, settings: SessionSettings, root: AgentSpec | None = None) -> CallKind:
    """Who has to act when the model calls a tool of that name, by the tools in force.

    Args:
        name: as the model has it.
        spec: the agent that plays.
        settings: the session's.
        root: the session's own agent, where `spec` is a sub-agent of it. Clients know, and switch on, the tools of the
            session's agent; about a tool that only the sub-agent has, its author alone decides.
    """
    if settings.mode == "planning" and not is_offered_while_planning(name, spec):
        return "missing"
    if any(tool.name == name for tool in settings.client_tools):
        return "client"
    if name == ASK_USER_QUESTION and name in spec.builtins:
        return "question"
    if name == FORK and name in spec.builtins:
        return "fork"
    tool = spec.tool(name)
    if tool is None:
        return "missing"
    if not tool.policy.exposed:
        return "inline"
    if settings.tools == "all" or (root is not None and root.tool(name) is None):
        return "permission" if tool.policy.needs_approval and name not in settings.trusted_tools else "inline"
    grant = next((grant for grant in settings.tools or () if grant.name == name), None)
    if grant is None:
        return "missing"
    return "inline" if grant.trust else "permission"


def is_offered_while_planning(name: str, spec: AgentSpec) -> bool:
    """Whether a session that only plans may use a tool: one that changes nothing, a question, or a sub-agent.

    What an application's own tools do is not known, so they are not offered. A sub-agent plans too.
    """
    tool = spec.tool(name)
    return name in spec.builtins if tool is None else tool.policy.reads_only


def offered_tools(spec: AgentSpec, settings: SessionSettings, root: AgentSpec | None = None) -> list[ToolSpec]:
    """The tools in force, as a model is told of them. What is switched off is not among them."""
    own = (tool.spec for tool in spec.tools if kind_of_call(tool.spec.name, spec, settings, root) != "missing")
    return [*(() if settings.mode == "planning" else settings.client_tools), *own]


# --- settings -----------------------------------------------------------------------------------------------------


def check_change(
    spec: AgentSpec, settings: SessionSettings, change: SettingsChange, encrypt: EncryptFunction, limits: InputLimits
) -> SettingsChange:
    """Check what a client wants to set, and seal the secrets among it.

    A secret sent as `***` means unchanged: clients send back what they were shown.

    Raises:
        Invalid: one of its kinds, for the first thing that is wrong.
    """
    if change.client_tools is not None:
        check_client_tools(spec, change.client_tools, limits)
    if change.tools is not None and change.tools != "all":
        check_grants(spec, change.tools)
    options = check_options(spec, {name: str(value) for name, value in change.options.items()}, encrypt)
    checked = msgspec.structs.replace(change, options=options)
    return SettingsChange() if apply_change(settings, checked) == settings else checked


def check_client_tools(spec: AgentSpec, tools: Sequence[ToolSpec], limits: InputLimits) -> None:
    """Check the application's own tools: allowed at all, few enough, with names that no other tool has."""
    if tools and not spec.capabilities.client_tools:
        raise ClientToolsUnsupported(f"agent {spec.name!r} takes no tools of the application's")
    _check_client_tools(tools, {tool.spec.name for tool in spec.tools} | spec.builtins, limits)


def tools_of_run(
    spec: AgentSpec, tools: Sequence[ToolSpec], limits: InputLimits
) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
    """The tools that an application brings for one run, and the names of those that are left out.

    Left out, and not refused, is what the agent has itself or takes none of: front ends send their list to every agent.

    Raises:
        Invalid: one of its kinds, for a tool that no agent could take.
    """
    _check_client_tools(tools, set(), limits)
    own = {tool.spec.name for tool in spec.tools} | spec.builtins
    kept = tuple(tool for tool in tools if spec.capabilities.client_tools and tool.name not in own)
    return kept, tuple(tool.name for tool in tools if tool not in kept)


def _check_client_tools(tools: Sequence[ToolSpec], taken: set[str], limits: InputLimits) -> None:
    if len(tools) > limits.client_tools:
        raise LimitExceeded("the number of tools", limits.client_tools, path="tools")
    names = set(taken)
    for place, tool in enumerate(tools):
        if _TOOL_NAME.fullmatch(tool.name) is None:
            raise Invalid(
                f"a tool's name has 1 to 64 letters, digits, '_' or '-', got {tool.name[:80]!r}",
                path=f"tools[{place}].name",
            )
        _check_depth(tool.parameters, f"tools[{place}].parameters")
        if len(msgspec.json.encode(tool.parameters)) > limits.schema_bytes:
            raise LimitExceeded("a tool's schema", limits.schema_bytes, path=f"tools[{place}].parameters")
        if tool.name in names:
            raise DuplicateToolName(tool.name)
        names.add(tool.name)


def check_grants(spec: AgentSpec, grants: Iterable[ToolGrant]) -> None:
    """Check the server tools that are to be on: each exposed, each once."""
    exposed = {tool.spec.name for tool in spec.exposed()}
    seen: set[str] = set()
    for grant in grants:
        if grant.name not in exposed:
            raise UnknownTool(grant.name, [tool.spec.name for tool in spec.exposed()])
        if grant.name in seen:
            raise DuplicateToolName(grant.name)
        seen.add(grant.name)


def check_options(spec: AgentSpec, values: dict[str, str], encrypt: EncryptFunction) -> dict[str, str | EncryptedValue]:
    """Check option values against their declarations; secrets come back sealed."""
    checked: dict[str, str | EncryptedValue] = {}
    for name, value in values.items():
        option = spec.option(name)
        if option is None:
            raise UnknownOption(name, [option.name for option in spec.options])
        if len(value.encode("utf-8", "surrogatepass")) > OPTION_LIMIT:
            raise InvalidOptionValue(name, f"the value of option {name!r} is longer than {OPTION_LIMIT} bytes")
        if isinstance(option, SelectOption) and value not in option.options:
            raise InvalidOptionValue(
                name, f"option {name!r} takes one of {', '.join(option.options)}", allowed=option.options
            )
        if isinstance(option, SecretOption):
            if value != UNCHANGED_SECRET:
                checked[name] = encrypt(value)
        else:
            checked[name] = value
    return checked


# --- content ------------------------------------------------------------------------------------------------------


def check_content(
    spec: AgentSpec, content: str | Sequence[object], limits: InputLimits, path: str = "messages"
) -> None:
    """Check the size of texts, the number and depth of blocks, and whether the agent takes the images."""
    if not isinstance(content, str) and len(content) > limits.blocks:
        raise LimitExceeded("the number of a message's blocks", limits.blocks, path=path)
    texts = [content] if isinstance(content, str) else [block.text for block in content if isinstance(block, Text)]
    if sum(map(len, texts)) > limits.text_chars:
        raise LimitExceeded("a message's text", limits.text_chars, path=path)
    for place, block in enumerate(() if isinstance(content, str) else content):
        if isinstance(block, Image):
            check_image(spec, block)
        elif isinstance(block, StoredImage):
            _check_stored_image(spec)
        elif isinstance(block, Call):
            _check_depth(block.input, f"{path}.content[{place}].input")
        elif isinstance(block, Data):
            _check_depth(block.data, f"{path}.content[{place}].data")


def check_messages(spec: AgentSpec, messages: Sequence[UserInput], limits: InputLimits) -> None:
    """Check the user messages of a request."""
    if len(messages) > limits.messages:
        raise LimitExceeded("the number of messages", limits.messages, path="messages")
    for place, message in enumerate(messages):
        check_content(spec, message.content, limits, f"messages[{place}]")


def check_answer(spec: AgentSpec, answer: Answer, limits: InputLimits) -> None:
    """Check the content of an answer as that of a message."""
    if isinstance(answer, Result):
        check_content(spec, answer.content, limits)


def _check_depth(value: Json, path: str) -> None:
    if is_too_deep(value):
        raise Invalid(f"at most {DEPTH_LIMIT} levels of lists and objects were expected", path=path)


def check_image(spec: AgentSpec, image: Image) -> None:
    """Check that the agent takes an image of that form."""
    if image.url.startswith("https://"):
        taken = spec.capabilities.image_http
        form = "images by URL"
    elif _DATA_IMAGE.fullmatch(image.url):
        taken = spec.capabilities.image_data
        form = "images as data URIs"
    else:
        raise ImageUnsupported("an image's url is an https:// URL or a base64 data: URI of an image")
    if not taken:
        raise ImageUnsupported(f"agent {spec.name!r} takes no {form}")


def _check_stored_image(spec: AgentSpec) -> None:
    if not spec.capabilities.image_data:
        raise ImageUnsupported(f"agent {spec.name!r} takes no images as data URIs")


# --- new sessions -------------------------------------------------------------------------------------------------


def create(spec: AgentSpec, request: Create, encrypt: EncryptFunction, limits: InputLimits) -> list[Event]:
    """The events of a new session: its creation and its seeds.

    Raises:
        Invalid: one of its kinds.
    """
    check_client_tools(spec, request.client_tools, limits)
    if request.tools is not None and request.tools != "all":
        check_grants(spec, request.tools)
    options = check_options(spec, request.options, encrypt)
    settings = SessionSettings(
        tools=request.tools,
        options=options,
        client_tools=request.client_tools,
        labels=request.labels,
        memory_enabled=request.memory_enabled,
    )
    settings = apply_change(settings, request.change)
    events: list[Event] = [SessionCreated(agent=spec.name, settings=settings, protocol=request.protocol)]
    if len(request.seeds) > limits.seeds:
        raise LimitExceeded("the number of messages", limits.seeds, path="messages")
    for place, message in enumerate(request.seeds):
        check_content(spec, message.content, limits, f"messages[{place}]")
    still_open = _check_seed_calls(request.seeds)
    for message in request.seeds:
        if isinstance(message, AssistantMessage) and any(call.call_id in still_open for call in message.calls()):
            events += _open_seed_events(message, still_open, spec, settings)
        else:
            events.append(MessageAdded(message=message))
    return events


def _check_seed_calls(seeds: Sequence[Message]) -> set[CallId]:
    """Match seeds' results with their calls; give the calls without one. Those may only be in the last answer."""
    asked: dict[CallId, int] = {}
    answered: set[CallId] = set()
    last_answer = -1
    for place, message in enumerate(seeds):
        if isinstance(message, AssistantMessage):
            last_answer = place
            for call in message.calls():
                if call.call_id in asked:
                    raise InvalidSeed(f"call id {call.call_id!r} is used twice", path=f"messages[{place}]")
                asked[call.call_id] = place
        elif isinstance(message, ToolMessage):
            if message.call_id not in asked or message.call_id in answered:
                raise InvalidSeed(
                    f"no open call {message.call_id!r} comes before this result", path=f"messages[{place}].toolCallId"
                )
            answered.add(message.call_id)
    for call_id, place in asked.items():
        if call_id not in answered and place != last_answer:
            raise InvalidSeed(f"call {call_id!r} has no result", path=f"messages[{place}]")
    return {call_id for call_id in asked if call_id not in answered}


def _open_seed_events(
    message: AssistantMessage, still_open: Collection[CallId], spec: AgentSpec, settings: SessionSettings
) -> list[Event]:
    """A seed with open calls, as the events of a step. What its calls may do comes from the tools in force alone.

    A seed is a client's word: it never makes a tool run unasked, so even a trusted tool's call waits for permission,
    and a hidden tool's can only be answered.
    """
    events: list[Event] = [MessageOpened(message_id=message.id)]
    blocks = (Text(message.content),) if isinstance(message.content, str) else message.content
    for index, block in enumerate(blocks):
        if not isinstance(block, Call) or block.call_id not in still_open:
            events.append(BlockClosed(message_id=message.id, index=index, block=block))
            continue
        tool = spec.tool(block.name)
        runnable = tool is not None and tool.policy.exposed
        kind = kind_of_call(block.name, spec, settings)
        kind = "permission" if runnable and kind in ("inline", "permission") else "client"
        events.append(CallOpened(message_id=message.id, index=index, call=block, kind=kind))
    events.append(MessageClosed(message_id=message.id))
    return events


# --- going on -----------------------------------------------------------------------------------------------------


class Admission(NamedTuple):
    """What a request does: the events, and the run that starts or waits. No run: more answers are needed."""

    events: list[Event]
    run_id: RunId | None
    is_queued: bool = False


def is_busy(state: SessionState) -> bool:
    """Whether a run is active or queued."""
    return state.run is not None or bool(state.queue)


def queue_run(
    state: SessionState, spec: AgentSpec, request: Submit, change: SettingsChange, new_id: NewId, limits: InputLimits
) -> Admission:
    """Let the request's messages and its change wait for the active run's end.

    Raises:
        SessionBusy: answers cannot wait, or too many runs wait already.
    """
    if request.answers or not request.messages:
        raise SessionBusy("a run of this session is active")
    if len(state.queue) >= limits.queued_runs:
        raise SessionBusy(f"{limits.queued_runs} runs of this session wait already")
    run_id = RunId(new_id())
    own_tools, _ = tools_of_run(spec, request.client_tools, limits)
    queued = RunQueued(
        run_id=run_id,
        protocol=request.protocol,
        inputs=_user_messages(request, new_id),
        change=change,
        client_run_id=request.client_run_id,
        client_tools=own_tools,
        parameters=request.parameters,
        metadata=request.metadata,
    )
    return Admission([queued], run_id, is_queued=True)


def admit(
    state: SessionState,
    spec: AgentSpec,
    request: Submit,
    change: SettingsChange,
    *,
    by: str,
    resolved: Collection[CallId],
    new_id: NewId,
    limits: InputLimits,
) -> Admission:
    """Let a request into a session that is not running.

    Args:
        change: what `check_change` made of the request's change.
        by: who answers, for the record.
        resolved: of the ids that answers name, those that the log knows as settled.

    Raises:
        SessionBusy: a run is active.
        UnknownCall, CallResolved, ResultsMissing, InvalidAnswer: the answers do not fit the open calls.
        LimitExceeded, DuplicateToolName, Invalid: a tool of the run's is wrong.
    """
    own_tools, dropped = tools_of_run(spec, request.client_tools, limits)
    if is_busy(state):
        raise SessionBusy("a run of this session is active")
    if not request.messages and not request.answers:
        raise Invalid("there is neither a message nor an answer", path="messages")
    targets = _match_answers(state, request.answers, resolved)
    roots = {_root_id(state, call) for call in targets}
    left = [call for call in state.pending_root_calls() if call.call.call_id not in roots]
    if request.requires_all_answers and request.answers and left:
        raise ResultsMissing(tuple(call.call.call_id for call in left))

    events: list[Event] = []
    change = _with_trust(state.settings, change, targets, request.answers)
    if not change.is_empty():
        events.append(SettingsChanged(change=change))
    settings = apply_change(state.settings, change)
    brought: list[Event] = []
    decided: list[Event] = []
    to_run = False
    for place, (call, answer) in enumerate(zip(targets, request.answers, strict=True)):
        try:
            answer_events, runs = _answer_events(call, answer, spec, settings, by=by, new_id=new_id)
        except InvalidAnswer as error:
            raise InvalidAnswer(str(error), path=f"answers[{place}]") from error
        (brought if isinstance(answer, Result) else decided).extend(answer_events)
        to_run = to_run or runs
    answered = brought + decided  # the application's own results first, whatever the order (AAP, section 6, steps 1, 2)
    given = {call.call.call_id for call in targets}
    if request.messages:
        open_still = [call for call in state.calls.values() if not _is_answered(state, call, given)]
        events += [
            settle_call(call, "cancelled", CANCELLED_BY_NEW_MESSAGE, new_id)
            for call in deepest_first(state, open_still)
        ]
    elif any(call.call.call_id not in given for call in state.waiting_calls()):
        return Admission([*events, *answered], None)

    run_id = RunId(new_id())
    messages = _user_messages(request, new_id)
    to_run = to_run or any(call.kind == "fork" and _is_answered(state, call, given) for call in state.calls.values())
    started = RunStarted(
        run_id=run_id,
        protocol=request.protocol,
        inputs=messages if to_run else (),
        client_run_id=request.client_run_id,
        client_tools=own_tools,
        dropped_tools=dropped,
        parameters=request.parameters,
        metadata=request.metadata,
    )
    added = [] if to_run else [MessageAdded(message=message) for message in messages]
    return Admission([*events, started, *answered, *added], run_id)


def _with_trust(
    settings: SessionSettings, change: SettingsChange, targets: Sequence[OpenCall], answers: Sequence[Answer]
) -> SettingsChange:
    """The change, and with it the tools that the user allows from here on (rulings, 17)."""
    names = {
        call.call.name
        for call, answer in zip(targets, answers, strict=True)
        if isinstance(answer, Decision) and answer.granted and answer.remember and call.kind == "permission"
    }
    if not names:
        return change
    tools = settings.tools if change.tools is None else change.tools
    if tools == "all" or tools is None:
        return msgspec.structs.replace(change, trusted_tools=tuple(sorted({*settings.trusted_tools, *names})))
    grants = tuple(ToolGrant(grant.name, grant.trust or grant.name in names) for grant in tools)
    return msgspec.structs.replace(change, tools=grants)


def _user_messages(request: Submit, new_id: NewId) -> tuple[UserMessage, ...]:
    return tuple(
        UserMessage(
            id=MessageId(new_id()), content=_to_stored_content(each.content), client_id=each.client_id, name=each.name
        )
        for each in request.messages
    )


def _to_stored_content(content: str | tuple[InputBlock | StoredImage, ...]) -> str | tuple[InputBlock, ...]:
    """The content as the log holds it. What a client writes into a URL itself never names an uploaded object."""
    if isinstance(content, str):
        return content
    return tuple(Image(UPLOAD_SCHEME + block.path) if isinstance(block, StoredImage) else block for block in content)


def _match_answers(state: SessionState, answers: Sequence[Answer], resolved: Collection[CallId]) -> list[OpenCall]:
    """The waiting call that each answer is meant for."""
    answerable = state.answerable_calls()
    targets: dict[CallId, OpenCall] = {}
    for place, answer in enumerate(answers):
        call = answerable.get(answer.call_id)
        if call is None:
            raise CallAlreadySettled(answer.call_id) if answer.call_id in resolved else UnknownCall(answer.call_id)
        if call.call.call_id in targets:
            raise InvalidAnswer(f"tool call {answer.call_id!r} is answered twice", path=f"answers[{place}]")
        targets[call.call.call_id] = call
    return list(targets.values())


def _root_id(state: SessionState, call: OpenCall) -> CallId:
    return state.root_call(call).call.call_id


def _is_answered(state: SessionState, call: OpenCall, answered: Collection[CallId]) -> bool:
    """Whether a call is answered, or a call below it is, so that its sub-agent goes on."""
    if call.call.call_id in answered:
        return True
    return call.kind == "fork" and any(
        each.call.call_id in answered and _is_below(state, each, call) for each in state.calls.values()
    )


def _is_below(state: SessionState, call: OpenCall, above: OpenCall) -> bool:
    parent = state.parent_call(call.loop)
    return parent is not None and (parent is above or _is_below(state, parent, above))


def _answer_events(
    call: OpenCall, answer: Answer, spec: AgentSpec, settings: SessionSettings, *, by: str, new_id: NewId
) -> tuple[list[Event], bool]:
    """The events of one answer, and whether the run has something to do about it before the agent plays."""
    call_id = call.call.call_id
    match answer:
        case Result(content=content, is_error=is_error):
            record = AnswerGiven(call_id=call_id, granted=not is_error, by=by, reason="answered by the application")
            if call.kind == "question":
                choice = choice_from(call, content)
                return [record, settle_choice(call, choice, new_id, content=content)], False
            return [record, settle_call(call, "failed" if is_error else "done", content, new_id, by_client=True)], False
        case Choice():
            if call.kind != "question":
                raise InvalidAnswer(f"tool call {call_id!r} asks no question")
            record = AnswerGiven(call_id=call_id, granted=True, by=by)
            return [record, settle_choice(call, answer, new_id)], False
        case Decision(granted=False, reason=reason):
            record = AnswerGiven(call_id=call_id, granted=False, by=by, reason=reason)
            if call.kind in ("client", "question"):
                return [record, settle_call(call, "denied", denied_result(reason), new_id)], False
            return [record], True
        case Decision(reason=reason):
            if call.kind == "client":
                raise InvalidAnswer(f"tool call {call_id!r} is the application's own: the server cannot run it")
            if call.kind == "question":
                record = AnswerGiven(call_id=call_id, granted=True, by=by, reason=reason)
                return [record, settle_choice(call, choice_from(call, reason or "yes"), new_id)], False
            is_own = call.loop == ROOT or spec.tool(call.call.name) is not None  # see `kind_of_call`
            if is_own and not call.parked and kind_of_call(call.call.name, spec, settings) == "missing":
                return [AnswerGiven(call_id=call_id, granted=False, by=by, reason="tool is disabled")], True
            return [AnswerGiven(call_id=call_id, granted=True, by=by, reason=reason)], True
        case _ as never:
            assert_never(never)


def cancel_open_calls(state: SessionState, text: str, new_id: NewId) -> list[CallSettled]:
    """Settle every open call as cancelled."""
    return [settle_call(call, "cancelled", text, new_id) for call in deepest_first(state, state.calls.values())]


def deepest_first(state: SessionState, calls: Iterable[OpenCall]) -> list[OpenCall]:
    """The calls of sub-agents before those that started them; those of one loop in the order of their making."""
    return sorted(calls, key=lambda call: -_depth(state, call))


def _depth(state: SessionState, call: OpenCall) -> int:
    parent = state.parent_call(call.loop)
    return 0 if parent is None else 1 + _depth(state, parent)
