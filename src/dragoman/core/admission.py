"""Admission of requests: each function looks at a session's state and either refuses or returns events to append. Pure.

Protocols rely on the order of the checks: settings first, then whether the session is busy, then the answers. A refusal
changes nothing, because nothing is appended before everything is checked.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar, assert_never

import msgspec

from dragoman.core.answers import (
    choice_from,
    denied_result,
    not_found_result,
    settle_call,
    settle_cancelled,
    settle_choice,
    structured_answer,
)
from dragoman.core.content import (
    AssistantMessage,
    Call,
    Image,
    InputBlock,
    JsonObject,
    Message,
    SystemMessage,
    UserMessage,
    blocks_of,
)
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    CallKind,
    CallOpened,
    CallOutcome,
    CallSettled,
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
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, RunId, forking_call
from dragoman.core.input_checks import (
    EncryptFunction,
    InputLimits,
    check_client_tools,
    check_grants,
    check_options,
    tools_of_run,
)
from dragoman.core.inputs import Answer, Choice, Create, Decision, Result, StoredImage, Submit
from dragoman.core.json_schema import check_schema, validation_error
from dragoman.core.open_calls import OpenCall
from dragoman.core.refusals import (
    CallAlreadySettled,
    Invalid,
    InvalidAnswer,
    ResultsMissing,
    SessionBusy,
    UnknownCall,
)
from dragoman.core.seeds import check_seeds
from dragoman.core.session import SessionState, apply_change
from dragoman.core.tools import ASK_USER_QUESTION, FORK, AgentSpec, ToolGrant, ToolSpec
from dragoman.core.uploads import UPLOAD_SCHEME

CANCELLED_BY_NEW_MESSAGE = "Tool call cancelled: a new user message arrived"

NewId = Callable[[], str]


# --- kinds of calls ---------------------------------------------------------------------------------------------


def kind_of_call(name: str, spec: AgentSpec, settings: SessionSettings, root: AgentSpec | None = None) -> CallKind:
    """Who has to act when the model calls a tool of that name.

    Args:
        name: the name that the model used.
        spec: the agent that is executed.
        settings: the session's settings.
        root: the session's own agent, if `spec` is a sub-agent of it. Clients see and enable only the tools of the
            session's agent; the author of a sub-agent decides about the tools that only the sub-agent has.
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
    if not tool.policy.is_listed:
        return "inline"
    if settings.tools == "all" or (root is not None and root.tool(name) is None):
        return "permission" if tool.policy.needs_approval and name not in settings.trusted_tools else "inline"
    grant = next((grant for grant in settings.tools or () if grant.name == name), None)
    if grant is None:
        return "missing"
    return "inline" if grant.trust else "permission"


def is_offered_while_planning(name: str, spec: AgentSpec) -> bool:
    """Whether a tool may be used in planning mode: one that only reads, a question, or a sub-agent, which plans too.

    It is not known what an application's own tools do, so they are not offered.
    """
    tool = spec.tool(name)
    return name in spec.builtins if tool is None else tool.policy.reads_only


def offered_tools(spec: AgentSpec, settings: SessionSettings, root: AgentSpec | None = None) -> list[ToolSpec]:
    """The specifications of the enabled tools, as a model receives them."""
    own = (tool.spec for tool in spec.tools if kind_of_call(tool.spec.name, spec, settings, root) != "missing")
    return [*(() if settings.mode == "planning" else settings.client_tools), *own]


# --- new sessions -------------------------------------------------------------------------------------------------


def create(spec: AgentSpec, request: Create, encrypt: EncryptFunction, limits: InputLimits) -> list[Event]:
    """The events of a new session: its creation and its seeds.

    Raises:
        Invalid: the request does not fit the agent or the limits.
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
    events: list[Event] = [
        SessionCreated(agent=spec.name, settings=settings, protocol=request.protocol, name=request.name)
    ]
    still_open = check_seeds(spec, request.seeds, limits)
    for message in request.seeds:
        if isinstance(message, AssistantMessage) and any(call.call_id in still_open for call in message.calls()):
            events += _open_seed_events(message, still_open, None if request.claims_calls else spec, settings)
        else:
            events.append(MessageAdded(message=message))
    return events


def _open_seed_events(
    message: AssistantMessage, still_open: Collection[CallId], spec: AgentSpec | None, settings: SessionSettings
) -> list[Event]:
    """A seed with open calls, as the events of a step. Only the enabled tools decide what its calls may do.

    Without an agent (`spec`) all of them are the application's own.

    A seed is a client's claim and never makes a tool run unasked: the call of an exposed tool waits for permission,
    even if the tool is trusted or disabled, and the call of any other tool can only be answered.
    """
    events: list[Event] = [MessageOpened(message_id=message.id)]
    for index, block in enumerate(blocks_of(message.content)):
        if not isinstance(block, Call) or block.call_id not in still_open:
            events.append(BlockClosed(message_id=message.id, index=index, block=block))
            continue
        tool = None if spec is None else spec.tool(block.name)
        is_clients = any(each.name == block.name for each in settings.client_tools)
        kind: CallKind = "permission" if tool is not None and tool.policy.is_listed and not is_clients else "client"
        events.append(CallOpened(message_id=message.id, index=index, call=block, kind=kind))
    events.append(MessageClosed(message_id=message.id))
    return events


# --- requests -----------------------------------------------------------------------------------------------------


class Admission(NamedTuple):
    """What a request leads to: events, and the run that starts or is queued. No run: more answers are needed."""

    events: list[Event]
    run_id: RunId | None
    is_queued: bool = False


def is_busy(state: SessionState) -> bool:
    """Whether a run is active or queued."""
    return state.run is not None or bool(state.queue)


def check_settings_change(state: SessionState, change: SettingsChange) -> None:
    """Check that no run is affected by a change of settings. Raises SessionBusy.

    The title, the labels, the pin, sharing, listing and the pace of a replay can be changed at any time.
    """
    free = dict.fromkeys(("title", "labels", "pinned", "shared", "replay", "unlisted", "lifetime", "deleted_runs"))
    affecting = msgspec.structs.replace(change, **free)
    if is_busy(state) and not affecting.is_empty():
        raise SessionBusy


def with_listing(settings: SessionSettings, request: Submit, change: SettingsChange) -> SettingsChange:
    """The request's change of settings, extended by the listing of an unlisted session that is used again."""
    if settings.unlisted and not request.keeps_unlisted and not settings.is_ephemeral:
        return msgspec.structs.replace(change, unlisted=False)
    return change


def queue_run(
    state: SessionState, spec: AgentSpec, request: Submit, change: SettingsChange, new_id: NewId, limits: InputLimits
) -> Admission:
    """Queue the request's messages and its change after the active run.

    Raises:
        SessionBusy: the request has answers, which cannot wait, or too many runs are queued.
    """
    if request.answers or not request.messages:
        raise SessionBusy
    if len(state.queue) >= limits.queued_runs:
        raise SessionBusy(f"{limits.queued_runs} runs of this session are already queued")
    run_id = RunId(new_id())
    own_tools, _ = tools_of_run(spec, request.client_tools or (), limits)
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
    """Admit a request to a session without an active run.

    Three steps: resolve which calls the answers mean, settle these calls, and start the run. No run starts while calls
    are left that wait for an answer, unless the request has a message; then these calls are cancelled.

    Args:
        state: the session.
        spec: its agent.
        request: the input.
        change: the request's change of settings, as `check_change` returned it.
        by: the user who answers, for the record.
        resolved: the call ids in the answers that are already settled in the log.
        new_id: makes ids.
        limits: of the run's tools.

    Raises:
        SessionBusy: a run is active.
        UnknownCall, CallAlreadySettled, ResultsMissing, InvalidAnswer: the answers do not fit the open calls.
        LimitExceeded, DuplicateToolName, Invalid: a tool of the run is wrong, or there is no input.
    """
    own_tools, dropped_tools = tools_of_run(spec, request.client_tools or (), limits)
    parameters, asking = request.parameters, state.asking_options
    if asking is not None and request.answers:  # the run that continues keeps what the application does not name
        own_tools = asking.client_tools if request.client_tools is None else own_tools
        parameters = {**asking.parameters, **parameters} if request.keeps_parameters else parameters
    if is_busy(state):
        raise SessionBusy
    if not request.messages and not request.answers:
        raise Invalid("there is neither a message nor an answer", path="messages")
    settled, answered = _Settled([], has_calls_to_run=False), set[CallId]()
    if request.answers:
        targets = _resolve(state, request, resolved)
        change = _with_trust(state.settings, change, targets, request.answers)
        settled = _settle(targets, request.answers, spec, state.settings, change, by=by, new_id=new_id)
        answered = {call.call.call_id for call in targets}
    events: list[Event] = [] if change.is_empty() else [SettingsChanged(change=change)]
    has_calls_to_run = settled.has_calls_to_run
    if state.calls:
        if request.messages:
            open_calls = [call for call in state.calls.values() if not _is_answered(state, call, answered)]
            events += _cancel_calls(state, open_calls, CANCELLED_BY_NEW_MESSAGE, new_id)
        elif any(call.call.call_id not in answered for call in state.waiting_calls()):
            return Admission([*events, *settled.events], None)
        has_calls_to_run = has_calls_to_run or any(
            call.kind == "fork" and _is_answered(state, call, answered) for call in state.calls.values()
        )
    run_id, messages = RunId(new_id()), _user_messages(request, new_id)
    started = RunStarted(
        run_id=run_id,
        protocol=request.protocol,
        inputs=messages if has_calls_to_run else (),  # they enter the history after the results of these calls
        client_run_id=request.client_run_id,
        client_tools=own_tools,
        dropped_tools=dropped_tools,
        parameters=parameters,
        metadata=request.metadata,
    )
    system: list[Message] = [SystemMessage(id=MessageId(new_id()), content=text) for text in request.system]
    added = [MessageAdded(message=message) for message in (*system, *(() if has_calls_to_run else messages))]
    return Admission([*events, started, *settled.events, *added], run_id)


# Resolve: which calls do the answers mean?


def _resolve(state: SessionState, request: Submit, resolved: Collection[CallId]) -> list[OpenCall]:
    """The waiting call that each answer of the request means; no two mean the same."""
    answerable = state.answerable_calls()
    targets: dict[CallId, OpenCall] = {}
    for index, answer in enumerate(request.answers):
        call = answerable.get(answer.call_id) or _undecided_call(state, answer)
        if call is None:
            raise CallAlreadySettled(answer.call_id) if answer.call_id in resolved else UnknownCall(answer.call_id)
        if call.call.call_id in targets:
            raise InvalidAnswer(f"tool call {answer.call_id!r} is answered twice", path=f"answers[{index}]")
        if call.call.call_id != answer.call_id and isinstance(answer, Decision) and answer.granted:
            raise InvalidAnswer(
                f"tool call {answer.call_id!r} waits for {call.call.name!r} of its sub-agent: "
                f"tool call {call.call.call_id!r} is granted or denied",
                path=f"answers[{index}]",
            )
        targets[call.call.call_id] = call
    if request.requires_all_answers and request.answers:
        missing = tuple(id_ for call in state.waiting_calls() if (id_ := call.call.call_id) not in targets)
        if missing:
            raise ResultsMissing(missing)
    return list(targets.values())


def _undecided_call(state: SessionState, answer: Answer) -> OpenCall | None:
    """The call that an answer decides about although nobody was asked, and that its agent has not begun.

    Clients that answer each call without a result, as over AAP, decide about it with those that wait beside it.
    """
    call = state.calls.get(answer.call_id)
    is_undecided = call is not None and call.recorded and not call.started and call.granted is None
    return call if is_undecided and isinstance(answer, Decision) else None


def _is_answered(state: SessionState, call: OpenCall, answered: Collection[CallId]) -> bool:
    """Whether a call is answered, or a call of its sub-agent is, so that the sub-agent continues."""
    if call.call.call_id in answered:
        return True
    return call.kind == "fork" and any(
        each.call.call_id in answered and _is_below(state, each, call) for each in state.calls.values()
    )


def _is_below(state: SessionState, call: OpenCall, above: OpenCall) -> bool:
    parent = state.parent_call(call.loop)
    return parent is not None and (parent is above or _is_below(state, parent, above))


# Settle: what does each answer do to its call?


def _with_trust(
    settings: SessionSettings, change: SettingsChange, targets: Sequence[OpenCall], answers: Sequence[Answer]
) -> SettingsChange:
    """The change, extended by the tools that the user allows from now on (shared rules, 17).

    Who allows a repeat has decided about this call alone.
    """
    names = {
        call.call.name
        for call, answer in zip(targets, answers, strict=True)
        if isinstance(answer, Decision) and answer.granted and answer.remember and not call.is_repeat
    }
    if not names:
        return change
    tools = settings.tools if change.tools is None else change.tools
    if tools == "all" or tools is None:
        return msgspec.structs.replace(change, trusted_tools=tuple(sorted({*settings.trusted_tools, *names})))
    grants = tuple(ToolGrant(grant.name, grant.trust or grant.name in names) for grant in tools)
    return msgspec.structs.replace(change, tools=grants)


class _Settled(NamedTuple):
    """The events of answers, and whether the run has calls to run before the agent continues."""

    events: list[Event]
    has_calls_to_run: bool


def _settle(
    targets: Sequence[OpenCall],
    answers: Sequence[Answer],
    spec: AgentSpec,
    settings: SessionSettings,
    change: SettingsChange,
    *,
    by: str,
    new_id: NewId,
) -> _Settled:
    """The events of all answers: the application's own results first, in any order of the answers (AAP, section 6)."""
    results: list[Event] = []
    decisions: list[Event] = []
    has_calls_to_run = False
    for index, (call, answer) in enumerate(zip(targets, answers, strict=True)):
        try:
            settled = _settle_call(call, answer, spec, settings, change, by=by, new_id=new_id)
        except InvalidAnswer as error:
            raise InvalidAnswer(str(error), path=f"answers[{index}]") from error
        (results if isinstance(answer, Result) else decisions).extend(settled.events)
        has_calls_to_run |= settled.has_calls_to_run
    return _Settled(results + decisions, has_calls_to_run)


def _settle_call(
    call: OpenCall,
    answer: Answer,
    spec: AgentSpec,
    settings: SessionSettings,
    change: SettingsChange,
    *,
    by: str,
    new_id: NewId,
) -> _Settled:
    """The events of one answer. A permission and a denial of a server tool's call are left to the run to settle.

    A granted tool that is not enabled does not run: if the same request disables it, the call is denied; otherwise its
    result is that of every call of a disabled tool.
    """
    call_id = call.call.call_id
    _check_kind_of_answer(call, answer)
    if call.keeps_answer or call.recorded:
        return _Settled([_kept_answer(call, answer, spec, by, new_id)], True)
    match answer:
        case Result(content=content, is_error=is_error, raw=raw):
            record = AnswerGiven(call_id=call_id, granted=not is_error, by=by, reason="answered by the application")
            if call.kind == "question":
                choice = choice_from(call, content)
                own_text = content if structured_answer(content) is None else None  # a model cannot read indices
                answered = settle_choice(call, choice, new_id, content=own_text, by_client=True)
                return _Settled([record, answered], False)
            outcome: CallOutcome = "failed" if is_error else "done"
            return _Settled([record, settle_call(call, outcome, content, new_id, raw=raw, by_client=True)], False)
        case Choice():
            record = AnswerGiven(call_id=call_id, granted=True, by=by)
            return _Settled([record, settle_choice(call, answer, new_id)], False)
        case Decision(granted=False, reason=reason):
            record = AnswerGiven(call_id=call_id, granted=False, by=by, reason=reason)
            if call.kind in ("client", "question"):
                return _Settled([record, settle_call(call, "denied", denied_result(reason), new_id)], False)
            return _Settled([record], True)
        case Decision(reason=reason, arguments=arguments):
            edited = _check_edited(call, arguments, spec)
            record = AnswerGiven(call_id=call_id, granted=True, by=by, reason=reason, arguments=edited)
            is_own = call.loop == ROOT or spec.tool(call.call.name) is not None  # see `kind_of_call`
            changed = apply_change(settings, change)
            if not is_own or call.parked or kind_of_call(call.call.name, spec, changed) != "missing":
                return _Settled([record], True)
            if kind_of_call(call.call.name, spec, settings) == "missing":
                result = not_found_result(call.call.name)
                return _Settled([record, settle_call(call, "failed", result, new_id)], False)
            return _Settled([AnswerGiven(call_id=call_id, granted=False, by=by, reason="tool is disabled")], True)
        case _ as never:
            assert_never(never)


def _check_edited(call: OpenCall, arguments: JsonObject | None, spec: AgentSpec) -> JsonObject | None:
    """The arguments with which a call is allowed, if the user edited them.

    Tools check their arguments again when they run. That is the only check for a tool that only a sub-agent has, and
    for one whose parameters have a schema that is not supported here.

    Raises:
        InvalidAnswer: the server does not ask for permission for this call, or the tool does not accept the arguments.
    """
    if arguments is None or arguments == call.call.input:
        return None
    if not call.can_be_edited:
        raise InvalidAnswer(f"the arguments of tool call {call.call.call_id!r} cannot be edited")
    tool = spec.tool(call.call.name)
    if tool is not None and (error := _mismatch(tool.spec.parameters, arguments)) is not None:
        raise InvalidAnswer(f"the edited arguments do not match the tool's parameters: {error}")
    return arguments


def _mismatch(parameters: JsonObject, arguments: JsonObject) -> str | None:
    try:
        check_schema(parameters)
    except Invalid:
        return None
    return validation_error(parameters, arguments)


def _kept_answer(call: OpenCall, answer: Answer, spec: AgentSpec, by: str, new_id: NewId) -> AnswerGiven:
    """The record of an answer that is kept for whoever asked, and does not settle the call. Raises InvalidAnswer."""
    call_id = call.call.call_id
    if isinstance(answer, Decision):
        _check_edited(call, answer.arguments, spec)
        return AnswerGiven(call_id=call_id, granted=answer.granted, by=by, reason=answer.reason)
    if isinstance(answer, Choice):
        settled = settle_choice(call, answer, new_id)
    elif call.kind == "question":
        settled = settle_choice(call, choice_from(call, answer.content), new_id)
    else:
        outcome: CallOutcome = "failed" if answer.is_error else "done"
        settled = settle_call(call, outcome, answer.content, new_id, raw=answer.raw)
    return AnswerGiven(call_id=call_id, granted=True, by=by, result=settled.result)


def _check_kind_of_answer(call: OpenCall, answer: Answer) -> None:
    """Check that the call accepts this kind of answer, over any protocol. Every call that waits can be denied.

    A permission is granted. A question is answered and never granted. A client tool's call gets a result or an error.
    A call about which nobody is asked is denied only if its agent can leave it out.

    Raises:
        InvalidAnswer: the call waits for something else.
    """
    call_id = call.call.call_id
    match answer:
        case Result() if call.waits_for == "permission":
            raise InvalidAnswer(f"tool call {call_id!r} waits for permission: it is granted or denied")
        case Choice() if call.waits_for != "question":
            raise InvalidAnswer(f"tool call {call_id!r} asks no question")
        case Decision(granted=True) if call.waits_for == "client":
            raise InvalidAnswer(f"tool call {call_id!r} is the application's own: the server cannot run it")
        case Decision(granted=True) if call.waits_for == "question":
            raise InvalidAnswer(f"tool call {call_id!r} asks a question: it can be answered or denied, not granted")
        case Decision(granted=False) if call.recorded and not (call.is_waiting() or call.deniable):
            raise InvalidAnswer(
                f"tool call {call_id!r} cannot be denied: nobody is asked about it, and its agent runs it all the same"
            )
        case _:
            pass


def cancel_open_calls(state: SessionState, text: str, new_id: NewId) -> list[CallSettled]:
    """Settle every open call as cancelled, those of sub-agents first."""
    return _cancel_calls(state, state.calls.values(), text, new_id)


def _cancel_calls(state: SessionState, calls: Iterable[OpenCall], text: str, new_id: NewId) -> list[CallSettled]:
    return [settle_cancelled(call, text, new_id) for call in deepest_first(calls, state.calls)]


class _InLoop(Protocol):
    @property
    def loop(self) -> LoopId: ...


_C = TypeVar("_C", bound=_InLoop)


def deepest_first(calls: Iterable[_C], open_calls: Mapping[CallId, _C]) -> list[_C]:
    """The calls of sub-agents before those that started them; those of one loop in the order they were made."""
    return sorted(calls, key=lambda call: -nesting_depth(call, open_calls))


def nesting_depth(call: _C, open_calls: Mapping[CallId, _C]) -> int:
    """The number of sub-agents around a call: 0 for a call of the session's agent."""
    forking = forking_call(call.loop)
    parent = None if forking is None else open_calls.get(forking)
    return 0 if parent is None else 1 + nesting_depth(parent, open_calls)


# Start: what does the run begin with?


def _user_messages(request: Submit, new_id: NewId) -> tuple[UserMessage, ...]:
    return tuple(
        UserMessage(
            id=MessageId(new_id()),
            content=_to_stored_content(each.content),
            client_id=each.client_id,
            name=each.name,
            metadata=each.metadata,
        )
        for each in request.messages
    )


def _to_stored_content(content: str | tuple[InputBlock | StoredImage, ...]) -> str | tuple[InputBlock, ...]:
    """The content as the log stores it. A URL that a client writes never names an uploaded object."""
    if isinstance(content, str):
        return content
    return tuple(Image(UPLOAD_SCHEME + block.path) if isinstance(block, StoredImage) else block for block in content)
