"""What may enter a session, and what is refused: a refusal changes nothing, and nobody answers what was not asked."""

from collections.abc import Iterable, Sequence
from itertools import count

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dragoman.core import admission
from dragoman.core.admission import Admission, kind_of_call, offered_tools
from dragoman.core.answers import RAW_LIMIT
from dragoman.core.content import (
    AssistantMessage,
    Call,
    Data,
    Json,
    Message,
    SystemMessage,
    Text,
    Thinking,
    ToolMessage,
    UserMessage,
)
from dragoman.core.events import (
    AnswerGiven,
    CallKind,
    CallOpened,
    CallSettled,
    EncryptedValue,
    Event,
    LoggedEvent,
    MessageAdded,
    RunStarted,
    SessionSettings,
    SettingsChange,
)
from dragoman.core.history import messages_of
from dragoman.core.ids import CallId, MessageId, SessionId
from dragoman.core.input_checks import InputLimits, check_change, check_content
from dragoman.core.inputs import Answer, Choice, Create, Decision, Result, Submit, UserInput
from dragoman.core.open_calls import OpenCall
from dragoman.core.refusals import (
    CallAlreadySettled,
    ClientToolsUnsupported,
    DuplicateToolName,
    Invalid,
    InvalidAnswer,
    InvalidOptionValue,
    InvalidSeed,
    LimitExceeded,
    Refused,
    ResultsMissing,
    SessionBusy,
    UnknownCall,
    UnknownOption,
    UnknownTool,
)
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.session import RunOptions, SessionState, fold, initial_state
from dragoman.core.tools import (
    ASK_USER_QUESTION,
    FORK,
    AgentSpec,
    SelectOption,
    TextOption,
    ToolGrant,
    ToolSpec,
)
from tests.core.log_generator import (
    ANN,
    LIMITS,
    PAINT,
    QUESTION,
    SPEC,
    LogGenerator,
    conversations,
    encrypt,
    right_answer,
    tool,
)
from tests.core.strategies import NOON, words


def state_after(events: Sequence[Event]) -> SessionState:
    logged = [LoggedEvent(seq, NOON, None, event) for seq, event in enumerate(events, 1)]
    return fold(initial_state(SessionId("s"), ANN, logged[0]), logged[1:])


def created(spec: AgentSpec = SPEC, **fields: Json) -> list[Event]:
    request = Create(**{"protocol": "test", "agent": spec.name, **fields})
    return admission.create(spec, request, encrypt, LIMITS)


def admitted(
    state: SessionState, request: Submit, *, spec: AgentSpec = SPEC, resolved: Iterable[CallId] = ()
) -> Admission:
    numbers = map("new-{}".format, count())
    change = check_change(spec, state.settings, request.change, encrypt, LIMITS)
    return admission.admit(
        state,
        spec,
        request,
        change,
        by="ann",
        resolved=set(resolved),
        new_id=lambda: next(numbers),
        limits=LIMITS,
    )


def session_waiting_for(*names: str, **fields: Json) -> SessionState:
    """A session whose last step asked for these tools."""
    calls = tuple(
        Call(call_id=CallId(f"{name}-{place}"), name=name, input=QUESTION if name == ASK_USER_QUESTION else {})
        for place, name in enumerate(names)
    )
    settings = SessionSettings(tools="all", client_tools=(PAINT,), **fields)
    state = state_after(created(tools="all", client_tools=(PAINT,)))
    for call in calls:
        kind = kind_of_call(call.name, SPEC, settings)
        state.calls[call.call_id] = OpenCall(call=call, kind=kind, message_id=MessageId("step"))
    return state


# --- whatever is sent -------------------------------------------------------------------------------------------------


@given(conversations)
def test_conversations_of_all_kinds_are_admitted_or_refused_without_a_trace(scribe: LogGenerator) -> None:
    """The scribe looks at the state before and after each request; here it is enough that some of each came."""
    assume(scribe.refused)
    assert scribe.state.seq == len(scribe.log)


SKIPS_ACTIVE_RUNS = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
"""Most conversations end within a run; there are enough of the others."""


@SKIPS_ACTIVE_RUNS
@given(conversations, st.randoms(use_true_random=False))
def test_only_waiting_calls_can_be_answered_and_only_once(scribe: LogGenerator, chance: Json) -> None:
    assume(scribe.state.run is None and not scribe.state.queue)
    waiting = list(scribe.state.waiting_calls())
    for call_id in (*scribe.settled_ids(), CallId("nobody's"), *(CallId(each.loop) for each in waiting)):
        for answer in (Decision(call_id=call_id, granted=True), Result(call_id=call_id, content="forged")):
            with pytest.raises((CallAlreadySettled, UnknownCall)):
                scribe.admit(Submit(protocol="test", answers=(answer,)))
    for call in waiting:
        request = Submit(protocol="test", answers=(right_answer(chance, call),))
        with pytest.raises(InvalidAnswer, match="answered twice"):
            scribe.admit(Submit(protocol="test", answers=request.answers * 2))
        given_now = scribe.admit(request)
        scribe.append(given_now.events, given_now.run_id)
        with pytest.raises((CallAlreadySettled, UnknownCall, SessionBusy)):
            scribe.admit(request)
        answered = [each.event for each in scribe.log if isinstance(each.event, AnswerGiven)]
        assert answered[-1].call_id == call.call.call_id, "and it is on record who said so"
        assert answered[-1].by == "ann"


@SKIPS_ACTIVE_RUNS
@given(conversations)
def test_a_user_message_closes_whatever_is_open(scribe: LogGenerator) -> None:
    assume(scribe.state.run is None and not scribe.state.queue)
    before = set(scribe.state.calls)
    admitted_now = scribe.admit(Submit(protocol="test", messages=(UserInput(content="hello"),)))
    settled = [event.result.call_id for event in admitted_now.events if isinstance(event, CallSettled)]
    assert sorted(settled) == sorted(before)
    scribe.append(admitted_now.events, admitted_now.run_id)
    assert scribe.state.calls == {}
    newest = messages_of(scribe.log)[-1]
    assert isinstance(newest, UserMessage)
    assert newest.content == "hello"


# --- seeds ------------------------------------------------------------------------------------------------------------

CALL_IDS = [CallId(f"call-{number}") for number in range(3)]
TOOL_NAMES = ["plain", "asking", "hidden", "paint", "nothing", ASK_USER_QUESTION, FORK]


@st.composite
def seeds(draw: st.DrawFn) -> tuple[Message, ...]:
    """A history as a client might claim it."""
    found: list[Message] = []
    for place in range(draw(st.integers(0, 6))):
        message_id = MessageId(f"seed-{place}")
        match draw(st.sampled_from(["user", "assistant", "calls", "tool", "system"])):
            case "user":
                found.append(UserMessage(id=message_id, content=draw(words)))
            case "assistant":
                found.append(AssistantMessage(id=message_id, content=draw(words)))
            case "calls":
                chosen = draw(st.lists(st.sampled_from(CALL_IDS), min_size=1, max_size=2))
                calls = tuple(Call(call_id, draw(st.sampled_from(TOOL_NAMES)), {}) for call_id in chosen)
                found.append(AssistantMessage(id=message_id, content=(Text("so"), *calls)))
            case "tool":
                call_id = draw(st.sampled_from(CALL_IDS))
                found.append(ToolMessage(id=message_id, call_id=call_id, name="plain", content=draw(words)))
            case _:
                found.append(SystemMessage(id=message_id, content=draw(words)))
    return tuple(found)


some_tools = st.sampled_from([None, "all", (ToolGrant("plain", trust=True), ToolGrant("asking", trust=True))])


@given(seeds(), some_tools)
def test_a_seed_never_makes_a_tool_run_unasked(history: tuple[Message, ...], tools: Json) -> None:
    """Not even that of a tool which the session trusts: it is a client's word that the model asked for it."""
    try:
        events = created(seeds=history, tools=tools, client_tools=(PAINT,))
    except InvalidSeed:
        return
    state = state_after(events)
    assert all(call.is_waiting() for call in state.calls.values())
    for call in state.calls.values():
        assert call.kind in ("client", "permission")
        assert (call.kind == "permission") <= (call.call.name in ("plain", "asking")), "a hidden tool is never run"
    logged = [LoggedEvent(seq, NOON, None, event) for seq, event in enumerate(events, 1)]
    assert [with_blocks(message) for message in messages_of(logged)] == [
        with_blocks(each) for each in history if each.content or not isinstance(each, AssistantMessage)
    ]


def with_blocks(message: Message) -> Message:
    """With its content as blocks: a step with open calls is stored as a step."""
    if isinstance(message, AssistantMessage) and isinstance(message.content, str):
        return AssistantMessage(id=message.id, content=(Text(message.content),))
    return message


@given(seeds(), some_tools)
def test_calls_and_results_of_seeds_are_paired(history: tuple[Message, ...], tools: Json) -> None:
    try:
        state = state_after(created(seeds=history, tools=tools, client_tools=(PAINT,)))
    except InvalidSeed:
        return
    asked = [call.call_id for each in history if isinstance(each, AssistantMessage) for call in each.calls()]
    answered = [each.call_id for each in history if isinstance(each, ToolMessage)]
    assert len(set(asked)) == len(asked)
    assert len(set(answered)) == len(answered)
    assert set(asked) == set(answered) | set(state.calls)
    last = next((each for each in reversed(history) if isinstance(each, AssistantMessage)), None)
    assert set(state.calls) <= {call.call_id for call in last.calls()} if last is not None else not state.calls


def an_answer(*call_ids: str, text: str = "so") -> AssistantMessage:
    calls = [Call(CallId(call_id), "plain", {}) for call_id in call_ids]
    return AssistantMessage(id=MessageId("a"), content=(Text(text), *calls))


def a_result(call_id: str) -> ToolMessage:
    return ToolMessage(id=MessageId("t"), call_id=CallId(call_id), name="plain", content="done")


@pytest.mark.parametrize(
    ("history", "path"),
    [
        ((an_answer("x", "x"),), "messages[0]"),
        ((an_answer("x"), a_result("x"), an_answer("x")), "messages[2]"),
        ((a_result("x"),), "messages[0].toolCallId"),
        ((an_answer("x"), a_result("x"), a_result("x")), "messages[2].toolCallId"),
        ((an_answer("x"), an_answer("y")), "messages[0]"),
        ((a_result("x"), an_answer("x")), "messages[0].toolCallId"),
    ],
    ids=["twice in a step", "twice", "result of nothing", "second result", "left open", "result first"],
)
def test_an_inconsistent_history_is_refused(history: tuple[Message, ...], path: str) -> None:
    with pytest.raises(InvalidSeed) as refused:
        created(seeds=history)
    assert refused.value.path == path


def test_of_a_seeded_step_only_the_calls_without_a_result_are_open() -> None:
    events = created(seeds=(an_answer("x", "y"), a_result("x")), tools="all")
    assert [event.call.call_id for event in events if isinstance(event, CallOpened)] == ["y"]
    assert list(state_after(events).calls) == ["y"]


def test_open_calls_that_a_client_claims_are_its_own_whatever_their_names() -> None:
    seeds = (AssistantMessage(id=MessageId("a"), content=(Call(CallId("c"), "asking", {}),)),)
    for is_claimed, kind in ((True, "client"), (False, "permission")):
        events = created(seeds=seeds, tools="all", claims_calls=is_claimed)
        assert [event.kind for event in events if isinstance(event, CallOpened)] == [kind]


def test_system_entries_of_a_request_come_before_its_messages() -> None:
    request = Submit(protocol="test", system=("be brief",), messages=(UserInput(content="hi"),))
    added = [
        event.message for event in admitted(state_after(created()), request).events if isinstance(event, MessageAdded)
    ]
    assert [(type(each), each.content) for each in added] == [(SystemMessage, "be brief"), (UserMessage, "hi")]


@pytest.mark.parametrize(("keeps", "kept"), [(True, {"seed": 1, "stop": "x"}), (False, {"stop": "x"})])
def test_a_run_that_continues_keeps_its_parameters_unless_the_request_says_all(keeps: bool, kept: Json) -> None:
    state = session_waiting_for("paint")
    state.asking_options = RunOptions(parameters={"seed": 1})
    answer = Result(call_id=CallId("paint-0"), content="blue")
    request = Submit(protocol="test", answers=(answer,), parameters={"stop": "x"}, keeps_parameters=keeps)
    (started,) = [event for event in admitted(state, request).events if isinstance(event, RunStarted)]
    assert started.parameters == kept


# --- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tools", "kinds"),
    [
        (None, "missing missing inline client question fork missing"),
        ((), "missing missing inline client question fork missing"),
        ("all", "inline permission inline client question fork missing"),
        ((ToolGrant("plain"),), "permission missing inline client question fork missing"),
        ((ToolGrant("plain", trust=True),), "inline missing inline client question fork missing"),
        ((ToolGrant("asking"),), "missing permission inline client question fork missing"),
        ((ToolGrant("asking", trust=True),), "missing inline inline client question fork missing"),
    ],
    ids=["unset", "none", "all", "plain", "plain, trusted", "asking", "asking, trusted"],
)
def test_who_has_to_act_on_a_call(tools: Json, kinds: str) -> None:
    settings = SessionSettings(tools=tools, client_tools=(PAINT,))
    names = ["plain", "asking", "hidden", "paint", ASK_USER_QUESTION, FORK, "nothing"]
    assert " ".join(kind_of_call(name, SPEC, settings) for name in names) == kinds
    offered = [spec.name for spec in offered_tools(SPEC, settings)]
    in_force = [name for name in names[:4] if kind_of_call(name, SPEC, settings) != "missing"]
    assert sorted(offered) == sorted(in_force), "a model gets the enabled tools"


def test_an_agent_without_the_built_in_tools_has_none() -> None:
    bare = AgentSpec(name="bare")
    kinds: list[CallKind] = [kind_of_call(name, bare, SessionSettings()) for name in (ASK_USER_QUESTION, FORK)]
    assert kinds == ["missing", "missing"]


def a_tool(name: str, **schema: Json) -> ToolSpec:
    return ToolSpec(name=name, description="", parameters=schema)


@pytest.mark.parametrize(
    ("tools", "refusal"),
    [
        ((a_tool("plain"),), DuplicateToolName),
        ((a_tool("hidden"),), DuplicateToolName),
        ((a_tool(ASK_USER_QUESTION),), DuplicateToolName),
        ((a_tool("paint"), a_tool("paint")), DuplicateToolName),
        ((a_tool(""),), Invalid),
        ((a_tool("a" * 65),), Invalid),
        ((a_tool("a b"),), Invalid),
        ((a_tool("a\n"),), Invalid),
        ((a_tool("é"),), Invalid),
        (tuple(a_tool(f"t{place}") for place in range(129)), LimitExceeded),
        ((a_tool("big", description="x" * 70_000),), LimitExceeded),
    ],
    ids=["server's", "hidden", "built in", "twice", "empty", "long", "space", "newline", "accent", "many", "big"],
)
def test_tools_of_the_applications_that_are_refused(tools: tuple[ToolSpec, ...], refusal: type[Refused]) -> None:
    with pytest.raises(refusal):
        created(client_tools=tools)
    with pytest.raises(refusal):
        check_change(SPEC, SessionSettings(), SettingsChange(client_tools=tools), encrypt, LIMITS)


def test_an_application_may_provide_tools_only_to_agents_that_accept_them() -> None:
    closed = AgentSpec(name="closed")
    with pytest.raises(ClientToolsUnsupported):
        created(closed, client_tools=(PAINT,))
    assert created(closed, client_tools=()), "an empty list asks for nothing"


@pytest.mark.parametrize(
    ("grants", "refusal"),
    [
        ((ToolGrant("nothing"),), UnknownTool),
        ((ToolGrant("hidden"),), UnknownTool),
        ((ToolGrant("paint"),), UnknownTool),
        ((ToolGrant("plain"), ToolGrant("plain", trust=True)), DuplicateToolName),
    ],
    ids=["unknown", "hidden", "the application's", "twice"],
)
def test_grants_that_are_refused(grants: tuple[ToolGrant, ...], refusal: type[Refused]) -> None:
    with pytest.raises(refusal):
        created(tools=grants)


# --- options ----------------------------------------------------------------------------------------------------------

CHOOSY = AgentSpec(name="choosy", options=(*SPEC.options, SelectOption(name="size", options=("s", "l"), default="s")))


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"nothing": "x"}, UnknownOption),
        ({"size": "xl"}, InvalidOptionValue),
        ({"size": ""}, InvalidOptionValue),
        ({"tone": "x" * 65_537}, InvalidOptionValue),
        ({"tone": "é" * 32_769}, InvalidOptionValue),
        ({"key": "x" * 65_537}, InvalidOptionValue),
    ],
    ids=["unknown", "none of them", "empty", "long", "long in bytes", "long secret"],
)
def test_options_that_are_refused(options: dict[str, str], refusal: type[Refused]) -> None:
    with pytest.raises(refusal) as refused:
        created(CHOOSY, options=options)
    assert "xxx" not in str(refused.value), "a message never contains the value"


def test_secrets_are_encrypted_and_three_asterisks_mean_unchanged() -> None:
    settings = state_after(created(CHOOSY, options={"key": "secret", "tone": "loud", "size": "l"})).settings
    assert settings.options == {"key": EncryptedValue("terces", 6), "tone": "loud", "size": "l"}
    unchanged = check_change(CHOOSY, settings, SettingsChange(options={"key": "***", "tone": "loud"}), encrypt, LIMITS)
    assert unchanged.is_empty(), "what changes nothing is not logged"
    change = check_change(CHOOSY, settings, SettingsChange(options={"key": "new", "tone": "***"}), encrypt, LIMITS)
    assert change.options == {"key": EncryptedValue("wen", 3), "tone": "***"}, "only a secret has a placeholder"


# --- content ----------------------------------------------------------------------------------------------------------


def deep(levels: int) -> dict[str, Json]:
    value: dict[str, Json] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "content",
    [
        "x" * 101,
        (Text("x" * 60), Text("x" * 41)),
        (Text("x" * 60), Thinking("x" * 41)),
        (Text("x"),) * 11,
        (Data(deep(10_000)),),
        (Call(CallId("c"), "t", deep(10_000)),),
        (Call(CallId("c"), "t", {"x": "x" * RAW_LIMIT}),),
        (Call(CallId("c"), "t" * 257, {}),),
    ],
    ids=["text", "texts", "reasoning", "blocks", "deep", "deep arguments", "long arguments", "name of a tool"],
)
def test_content_over_the_limits_is_refused(content: Json) -> None:
    limits = InputLimits(text_chars=100, blocks=10)
    with pytest.raises(Invalid):
        check_content(SPEC, content, limits, "messages[3]")
    check_content(SPEC, "x" * 100, limits)
    check_content(SPEC, (Text("x"),) * 10, limits)
    check_content(SPEC, (Data(deep(5)),), limits)


def test_too_many_seeds_are_refused() -> None:
    one = UserMessage(id=MessageId("m"), content="x")
    with pytest.raises(LimitExceeded):
        created(seeds=(one,) * 1001)


# --- answers ----------------------------------------------------------------------------------------------------------


def kinds(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def first_problem(name: str, answer: type[Answer], **fields: Json) -> tuple[SessionState, Submit]:
    state = session_waiting_for(name)
    return state, Submit(protocol="test", answers=(answer(call_id=CallId(f"{name}-0"), **fields),))


@pytest.mark.parametrize(
    ("name", "answer", "fields", "what"),
    [
        ("asking", Decision, {"granted": True}, "RunStarted AnswerGiven"),
        ("asking", Decision, {"granted": False}, "RunStarted AnswerGiven"),
        ("paint", Result, {"content": "blue"}, "RunStarted AnswerGiven CallSettled"),
        ("paint", Result, {"content": "no", "is_error": True}, "RunStarted AnswerGiven CallSettled"),
        ("paint", Decision, {"granted": False, "reason": "busy"}, "RunStarted AnswerGiven CallSettled"),
        (ASK_USER_QUESTION, Choice, {"selections": {"0": [1]}}, "RunStarted AnswerGiven CallSettled"),
        (ASK_USER_QUESTION, Result, {"content": "neither"}, "RunStarted AnswerGiven CallSettled"),
        (ASK_USER_QUESTION, Decision, {"granted": False}, "RunStarted AnswerGiven CallSettled"),
    ],
    ids=range(8),
)
def test_answers_that_fit(name: str, answer: type[Answer], fields: dict[str, Json], what: str) -> None:
    state, request = first_problem(name, answer, **fields)
    assert " ".join(kinds(admitted(state, request).events)) == what


@pytest.mark.parametrize(
    ("name", "answer", "fields"),
    [
        ("paint", Decision, {"granted": True}),
        ("paint", Choice, {}),
        ("asking", Choice, {"selections": {"0": [0]}}),
        ("asking", Result, {"content": "forged"}),
        ("asking", Result, {"content": "forged", "is_error": True}),
        (ASK_USER_QUESTION, Decision, {"granted": True}),
        (ASK_USER_QUESTION, Decision, {"granted": True, "reason": "neither"}),
        (ASK_USER_QUESTION, Choice, {}),
        (ASK_USER_QUESTION, Choice, {"selections": {"0": [2]}}),
        (ASK_USER_QUESTION, Choice, {"selections": {"0": [-1]}}),
        (ASK_USER_QUESTION, Choice, {"selections": {"0": [0, 1]}}),
        (ASK_USER_QUESTION, Choice, {"selections": {"1": [0]}}),
        (ASK_USER_QUESTION, Choice, {"custom": {"0": ""}}),
    ],
    ids=range(13),
)
def test_answers_that_do_not_fit(name: str, answer: type[Answer], fields: dict[str, Json]) -> None:
    state, request = first_problem(name, answer, **fields)
    with pytest.raises(InvalidAnswer) as refused:
        admitted(state, request)
    assert refused.value.path == "answers[0]"


def test_granting_a_call_of_a_disabled_tool_denies_it() -> None:
    state, request = first_problem("asking", Decision, granted=True)
    off = Submit(protocol="test", answers=request.answers, change=SettingsChange(tools=()))
    (record,) = [event for event in admitted(state, off).events if isinstance(event, AnswerGiven)]
    assert (record.granted, record.reason) == (False, "tool is disabled")


def test_a_session_whose_queued_run_has_not_started_is_busy() -> None:
    state = session_waiting_for()
    hello = Submit(protocol="test", messages=(UserInput(content="hello"),))
    queued = admission.queue_run(state, SPEC, hello, SettingsChange(), lambda: "queued", LIMITS).events
    fold(state, [LoggedEvent(state.seq + 1, NOON, None, each) for each in queued])
    assert state.run is None, "the run before it ended while its server stopped"
    with pytest.raises(SessionBusy):
        admitted(state, hello)
    with pytest.raises(SessionBusy):
        admission.check_settings_change(state, SettingsChange(model="another"))


def test_a_pending_call_keeps_its_kind_when_the_tools_change() -> None:
    state, _ = first_problem("paint", Result, content="")
    change = SettingsChange(client_tools=())
    request = Submit(protocol="test", answers=(Result(call_id=CallId("paint-0"), content="blue"),), change=change)
    assert kinds(admitted(state, request).events) == ["SettingsChanged", "RunStarted", "AnswerGiven", "CallSettled"]


def test_a_protocol_that_requires_all_answers_learns_which_are_missing() -> None:
    state = session_waiting_for("paint", "asking", ASK_USER_QUESTION)
    some = Submit(
        protocol="test", answers=(Result(call_id=CallId("paint-0"), content="blue"),), requires_all_answers=True
    )
    with pytest.raises(ResultsMissing) as refused:
        admitted(state, some)
    assert refused.value.missing == ("asking-1", f"{ASK_USER_QUESTION}-2")
    message_only = Submit(protocol="test", messages=(UserInput(content="never mind"),), requires_all_answers=True)
    assert admitted(state, message_only).run_id is not None, "a message alone closes them all"


def test_partial_answers_start_no_run() -> None:
    state = session_waiting_for("paint", "asking")
    result = admitted(state, Submit(protocol="test", answers=(Result(call_id=CallId("paint-0"), content="blue"),)))
    assert (result.run_id, kinds(result.events)) == (None, ["AnswerGiven", "CallSettled"])


def test_a_settled_call_and_one_that_never_was_are_distinguished() -> None:
    state = session_waiting_for("paint")
    for call_id, resolved, refusal in (("x", [], UnknownCall), ("x", ["x"], CallAlreadySettled)):
        request = Submit(protocol="test", answers=(Result(call_id=CallId(call_id), content=""),))
        with pytest.raises(refusal):
            admitted(state, request, resolved=[CallId(each) for each in resolved])


def test_an_empty_request_is_refused() -> None:
    with pytest.raises(Invalid, match="neither a message nor an answer"):
        admitted(state_after(created()), Submit(protocol="test"))


def test_a_message_enters_the_history_when_it_is_admitted_and_keeps_its_form() -> None:
    inputs = (UserInput(content="a", client_id="mine", name="Ann"), UserInput(content=(Text("b"),)))
    result = admitted(
        state_after(created()),
        Submit(protocol="test", messages=inputs, client_run_id="r", metadata=RunMetadata(protocol={"a": 1})),
    )
    run, *added = result.events
    assert result.run_id is not None
    assert run == RunStarted(
        run_id=result.run_id, protocol="test", client_run_id="r", metadata=RunMetadata(protocol={"a": 1})
    )
    assert [event.message for event in added if isinstance(event, MessageAdded)] == [
        UserMessage(id=MessageId("new-1"), content="a", client_id="mine", name="Ann"),
        UserMessage(id=MessageId("new-2"), content=(Text("b"),)),
    ]


def test_tools_with_approval_ask_unless_the_session_trusts_them() -> None:
    spec = AgentSpec(name="a", tools=(tool("one", needs_approval=True), tool("two")), options=(TextOption(name="o"),))
    trusting = SessionSettings(tools=(ToolGrant("one", trust=True), ToolGrant("two")))
    assert [kind_of_call(name, spec, trusting) for name in ("one", "two")] == ["inline", "permission"]
