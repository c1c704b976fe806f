"""Agents of Pydantic AI, served unchanged: every row of what is mapped, as events of the log."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed")

from pydantic import BaseModel
from pydantic_ai import Agent as FrameworkAgent
from pydantic_ai import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    PromptedOutput,
    RunContext,
    TextOutput,
    ToolOutput,
    ToolReturn,
    UsageLimits,
)
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import SelectModel
from pydantic_ai.exceptions import ModelHTTPError, ToolFailed
from pydantic_ai.messages import (
    BinaryContent,
    CustomEvent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from dragoman.adapters.frameworks import Refused
from dragoman.adapters.pydantic_ai import PydanticAIAgent, as_agent
from dragoman.core.answers import compact_json
from dragoman.core.content import Data, Image, Text, text_of
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    CallOpened,
    CallParked,
    CallSettled,
    CallStarted,
    LoggedEvent,
    MessageClosed,
    RunStopped,
)
from dragoman.core.inputs import Choice, Decision, Result, Submit, UserInput
from dragoman.core.tools import ToolGrant, ToolSpec
from dragoman.engine.sessions.live_session import LiveSession
from tests.agents.agent_harness import agent_harness
from tests.engine.world import World, answer_request, open_session, play, send

Step = str | list[Any]
Script = Callable[[list[ModelMessage]], list[Step]]


def call(name: str, /, origin: str | None = None, **arguments: Any) -> tuple[str, str, str]:
    return name, compact_json(arguments), origin or f"call_{name}"


def scripted(*steps: list[Any], seen: list[list[ModelMessage]] | None = None) -> FunctionModel:
    """A model that streams one step after the other: texts, and calls; the next one follows from the messages."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if seen is not None:
            seen.append(list(messages))
        since = next(
            place
            for place in range(len(messages) - 1, -1, -1)
            if isinstance(messages[place], ModelRequest)
            and any(isinstance(part, UserPromptPart) for part in messages[place].parts)
        )
        done = sum(isinstance(each, ModelResponse) for each in messages[since:])
        calls = 0
        for part in steps[done]:
            if isinstance(part, tuple):
                yield {calls: DeltaToolCall(name=part[0], json_args=part[1], tool_call_id=part[2])}
                calls += 1
            elif isinstance(part, DeltaThinkingPart):
                yield {0: part}
            else:
                yield part

    return FunctionModel(stream_function=answer)


def short(events: list[LoggedEvent]) -> list[str]:
    """A short form of the events of a run."""
    found: list[str] = []
    for logged in events:
        match logged.event:
            case BlockClosed(block=block):
                found.append(f"{type(block).__name__.lower()}: {getattr(block, 'text', '…')}")
            case CallOpened(call=opened):
                found.append(f"call {opened.name} {compact_json(opened.input)}")
            case CallStarted():
                found.append("started")
            case CallParked(kind=kind):
                found.append(f"waits for {kind}")
            case AnswerGiven(granted=granted, result=result):
                found.append("answered" if result is not None else "granted" if granted else "denied")
            case CallSettled(outcome=outcome, result=result):
                found.append(f"{outcome}: {text_of(result.content)}")
            case MessageClosed():
                found.append("step")
            case RunStopped(reason=reason, code=code):
                found.append(str(code or reason))
    return found


async def talk(world: World, agent: Any, request: Any = "go", **session: Any) -> tuple[Any, LiveSession, list[str]]:
    """Serve an agent, and send one message."""
    world.agents["player"] = agent if isinstance(agent, PydanticAIAgent) else PydanticAIAgent(agent, name="player")
    engine = await world.start()
    live = await open_session(engine, **session)
    await play(engine, live, request)
    return engine, live, short(await world.events(live.state.session_id))


async def answer(world: World, engine: Any, live: LiveSession, make: Callable[[Any], Any]) -> list[str]:
    """Answer all calls that wait, and return what followed."""
    before = len(await world.events(live.state.session_id))
    waiting = [each.call.call_id for each in live.state.waiting_calls()]
    await play(engine, live, answer_request(*map(make, waiting)))
    return short((await world.events(live.state.session_id))[before:])


# --- speaking ---------------------------------------------------------------------------------------------------------


async def test_text_and_reasoning_are_streamed(world: World) -> None:
    agent = FrameworkAgent(scripted([DeltaThinkingPart(content="hm"), DeltaThinkingPart(content="m"), "Hel", "lo"]))
    _, live, log = await talk(world, agent)
    assert log == ["thinking: hmm", "text: Hello", "step", "end_turn"]
    (closed,) = [
        each.event for each in await world.events(live.state.session_id) if isinstance(each.event, MessageClosed)
    ]
    assert closed.usage is not None
    assert closed.usage.output_tokens > 0
    assert closed.model == "function::answer"
    assert closed.private is not None


async def test_a_model_that_does_not_stream_answers_whole(world: World) -> None:
    def whole(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("all at once")])

    _, _, log = await talk(world, FrameworkAgent(FunctionModel(whole)))
    assert log == ["text: all at once", "step", "end_turn"]


async def test_a_second_turn_gets_the_exact_messages_of_the_first(world: World) -> None:
    seen: list[list[ModelMessage]] = []
    agent = FrameworkAgent(scripted([call("add", a=1)], ["two"], seen=seen), system_prompt="Be brief.")

    @agent.tool_plain
    def add(a: int) -> int:
        return a + 1

    engine, live, _ = await talk(world, agent, "first")
    await play(engine, live, "second")
    parts = [[type(part).__name__ for part in message.parts] for message in seen[2]]
    assert parts == [
        ["SystemPromptPart", "UserPromptPart"],
        ["ToolCallPart"],
        ["ToolReturnPart"],
        ["TextPart"],
        ["UserPromptPart"],
    ]
    assert [part.content for message in seen[2] for part in message.parts if isinstance(part, UserPromptPart)] == [
        "first",
        "second",
    ]


async def test_pictures_of_the_user_reach_the_model_and_are_kept_once(world: World) -> None:
    seen: list[list[ModelMessage]] = []
    content = (Text("what is this?"), Image("data:image/png;base64,iVBORw0KGgo="), Image("https://example.org/a.png"))
    request = Submit(protocol="test", messages=(UserInput(content=content),))
    engine, live, log = await talk(world, FrameworkAgent(scripted(["a dot"], seen=seen)), request)
    assert log[0] == "text: a dot"
    await play(engine, live, "sure?")
    for messages in seen:
        (prompt, *_) = messages[0].parts
        assert isinstance(prompt, UserPromptPart)
        text, inline, linked = list(prompt.content)
        assert text == "what is this?"
        assert isinstance(inline, BinaryContent)
        assert linked == ImageUrl("https://example.org/a.png")
    closed = [each.event for each in await world.events(live.state.session_id) if isinstance(each.event, MessageClosed)]
    assert "iVBOR" not in compact_json(closed[0].private)


# --- tools ------------------------------------------------------------------------------------------------------------


async def test_a_call_is_in_the_log_before_it_runs_and_has_its_result(world: World) -> None:
    agent = FrameworkAgent(scripted(["so ", call("add", a=1), call("add", "again", a=2)], ["done"]))

    @agent.tool_plain(sequential=True)
    def add(a: int) -> dict[str, int]:
        return {"sum": a + 1}

    _, live, log = await talk(world, agent)
    assert log == [
        "text: so ", 'call add {"a":1}', 'call add {"a":2}', "step",
        "started", 'done: {"sum":2}', "started", 'done: {"sum":3}', "text: done", "step", "end_turn",
    ]  # fmt: skip
    events = [each.event for each in await world.events(live.state.session_id)]
    assert [each.call.origin for each in events if isinstance(each, CallOpened)] == ["call_add", "again"]


async def test_a_failing_tool_and_one_that_asks_for_a_retry_are_errors_that_the_model_reads(world: World) -> None:
    agent = FrameworkAgent(scripted([call("fail", a=1)], [call("again")], [call("fail", a="x")], ["done"]), retries=3)

    @agent.tool_plain
    def fail(a: int) -> str:
        raise ToolFailed("no such account")

    @agent.tool_plain
    def again() -> str:
        raise ModelRetry("name the month")

    _, _, log = await talk(world, agent)
    failed = [line for line in log if line.startswith("failed")]
    assert failed[:2] == ["failed: no such account", "failed: name the month"]
    assert "valid integer" in failed[2]
    assert log[-1] == "end_turn"


async def test_an_exception_settles_the_call_and_ends_the_run(world: World) -> None:
    agent = FrameworkAgent(scripted([call("crash")], ["never"]))

    @agent.tool_plain
    def crash() -> str:
        raise OSError("secret path")

    _, _, log = await talk(world, agent)
    assert log == ["call crash {}", "step", "started", "failed: Tool execution failed: OSError", "agent_error"]


async def test_tools_that_are_off_are_not_offered(world: World) -> None:
    seen: list[list[str]] = []

    async def answer_(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        seen.append([tool.name for tool in info.function_tools])
        yield "ok"

    agent = FrameworkAgent(FunctionModel(stream_function=answer_))
    for name in ("one", "two"):
        agent.tool_plain(name=name)(noting([], name))
    await talk(world, agent, tools=(ToolGrant("two"),))
    assert seen == [["two"]]


# --- waiting ----------------------------------------------------------------------------------------------------------


def bank(executed: list[str]) -> FrameworkAgent[Any, Any]:
    agent = FrameworkAgent(scripted([call("pay", amount=90), call("balance")], ["paid"]))

    @agent.tool_plain(requires_approval=True)
    def pay(amount: int) -> str:
        executed.append("pay")
        return f"paid {amount}"

    @agent.tool_plain
    def balance() -> int:
        executed.append("balance")
        return 100

    return agent


async def test_a_tool_that_requires_approval_waits_and_runs_when_it_is_granted(any_world: World) -> None:
    executed: list[str] = []
    engine, live, log = await talk(any_world, bank(executed))
    assert log == [
        'call pay {"amount":90}', "call balance {}", "step", "started", "done: 100", "waits for permission", "tool_use"
    ]  # fmt: skip
    assert executed == ["balance"]
    log = await answer(any_world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True))
    assert log == ["granted", "started", "done: paid 90", "text: paid", "step", "end_turn"]
    assert executed == ["balance", "pay"]


async def test_a_tool_may_ask_for_approval_by_its_arguments_and_a_trusting_session_gives_it(world: World) -> None:
    agent = FrameworkAgent(scripted([call("pay", amount=90)], ["paid"]))

    @agent.tool
    def pay(ctx: RunContext[Any], amount: int) -> str:
        if amount > 50 and not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"limit": 50})
        return "ok"

    engine, live, log = await talk(world, agent)
    assert log[-2:] == ["waits for permission", "tool_use"]
    (waiting,) = live.state.waiting_calls()
    assert waiting.note == {"limit": 50}
    log = await answer(world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True, remember=True))
    assert log == ["granted", "started", "done: ok", "text: paid", "step", "end_turn"]
    before = len(await world.events(live.state.session_id))
    await play(engine, live, "once more")
    log = short((await world.events(live.state.session_id))[before:])
    assert log[-4:] == ["done: ok", "text: paid", "step", "end_turn"]
    assert "waits for permission" not in log


async def test_what_a_tool_returned_beside_its_result_reaches_the_model_after_another_call_was_approved(
    world: World,
) -> None:
    seen: list[list[ModelMessage]] = []
    agent = FrameworkAgent(scripted([call("look"), call("pay", a=5)], ["done"], seen=seen))

    @agent.tool_plain
    def look() -> ToolReturn:
        return ToolReturn(
            "seen",
            content=["the screen:", BinaryContent(b"GIF89a", media_type="image/gif")],
            metadata={"width": 80, "icon": b"\xff"},
        )

    @agent.tool_plain(requires_approval=True)
    def pay(a: int) -> str:
        return f"paid {a}"

    engine, live, _ = await talk(world, agent)
    await answer(world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True))
    (beside,) = [part for part in seen[1][-1].parts if isinstance(part, UserPromptPart)]
    words, picture = list(beside.content)
    assert isinstance(picture, BinaryContent)
    assert (words, picture.data, picture.media_type) == ("the screen:", b"GIF89a", "image/gif")
    (look_result,) = [
        part for part in seen[1][-1].parts if isinstance(part, ToolReturnPart) and part.tool_name == "look"
    ]
    assert (look_result.content, look_result.metadata) == ("seen", {"width": 80, "icon": "_w=="})


async def test_a_large_document_that_a_tool_returned_beside_its_result_reaches_the_model_in_later_turns(
    world: World,
) -> None:
    document = bytes(range(256)) * 16 * 1024
    seen: list[list[ModelMessage]] = []
    agent = FrameworkAgent(scripted([call("scan"), call("pay")], ["done"], seen=seen))

    @agent.tool_plain
    def scan() -> ToolReturn:
        return ToolReturn("scanned", content=[BinaryContent(document, media_type="application/pdf")])

    @agent.tool_plain(requires_approval=True)
    def pay() -> str:
        return "paid"

    engine, live, _ = await talk(world, agent)
    await answer(world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True))
    await play(engine, live, "and again")
    for messages in seen[1:3]:
        beside = [part.content for part in messages[2].parts if isinstance(part, UserPromptPart)]
        scanned = beside[0][0]
        assert isinstance(scanned, BinaryContent)
        assert (scanned.data == document, scanned.media_type) == (True, "application/pdf")


@dataclass(kw_only=True)
class Progress(CustomEvent):
    thumbnail: bytes


async def test_bytes_of_the_author_are_base64_wherever_they_are_shown(world: World) -> None:
    async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield {0: DeltaToolCall(name="ask", json_args="{}", tool_call_id="c")}
        else:
            yield {0: DeltaToolCall(name=info.output_tools[0].name, json_args="{}", tool_call_id="d")}

    def picture() -> dict[str, bytes]:
        """The answer."""
        return {"png": b"\xff"}

    agent = FrameworkAgent(FunctionModel(stream_function=speak), output_type=picture)

    @agent.tool
    async def ask(ctx: RunContext[Any]) -> str:
        if not ctx.tool_call_approved:
            await ctx.emit(Progress(thumbnail=b"\xfe"))
            raise ApprovalRequired(metadata={"icon": b"\xfd"})
        return "asked"

    engine, live, _ = await talk(world, agent)
    (waiting,) = live.state.waiting_calls()
    assert waiting.note == {"icon": "_Q=="}
    log = await answer(world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True))
    assert log[-3:] == ['text: {"png":"_w=="}', "step", "end_turn"]
    shown = [
        each.event.block for each in await world.events(live.state.session_id) if isinstance(each.event, BlockClosed)
    ]
    assert [each.data["thumbnail"] for each in shown if isinstance(each, Data) and isinstance(each.data, dict)] == [
        "_g=="
    ]


async def test_a_tool_that_shows_its_progress_and_then_asks_for_approval_runs_when_it_is_granted(world: World) -> None:
    seen: list[list[ModelMessage]] = []
    agent = FrameworkAgent(scripted([call("pay")], ["paid"], seen=seen))

    @agent.tool
    async def pay(ctx: RunContext[Any]) -> str:
        await ctx.emit(Progress(thumbnail=b"1"))
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return "ok"

    engine, live, log = await talk(world, agent)
    assert log == ["call pay {}", "step", "started", "data: …", "waits for permission", "step", "tool_use"]
    log = await answer(world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True))
    assert [each for each in log if each != "data: …"] == [
        "granted", "started", "done: ok", "text: paid", "step", "end_turn"
    ]  # fmt: skip
    assert [len(message.parts) for message in seen[1]] == [1, 1, 1]


async def test_a_question_of_a_deferred_call_is_asked_with_its_choices(world: World) -> None:
    agent = FrameworkAgent(scripted([call("colour")], ["nice"]))

    @agent.tool_plain
    def colour() -> str:
        raise CallDeferred(metadata={"question": "Which colour?", "options": ["red", "blue"]}, kind="question")

    engine, live, log = await talk(world, agent)
    assert log[-2:] == ["waits for question", "tool_use"]
    (waiting,) = live.state.waiting_calls()
    assert waiting.shown().input == {
        "questions": [{"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}]
    }
    log = await answer(world, engine, live, lambda call_id: Choice(call_id=call_id, selections={"0": [1]}))
    assert log == ["answered", "done: blue", "text: nice", "step", "end_turn"]


async def test_the_applications_tools_are_offered_and_wait_for_its_result(world: World) -> None:
    paint = ToolSpec(name="paint", description="Paint.", parameters={"type": "object", "properties": {}})
    seen: list[list[ModelMessage]] = []
    agent = FrameworkAgent(scripted([call("paint", what="sky")], ["painted"], seen=seen))
    engine, live, log = await talk(world, agent, client_tools=(paint,))
    assert log == ['call paint {"what":"sky"}', "step", "waits for client", "tool_use"]
    log = await answer(world, engine, live, lambda call_id: Result(call_id=call_id, content="blue"))
    assert log == ["answered", "done: blue", "text: painted", "step", "end_turn"]
    (result,) = [part for part in seen[1][-1].parts if isinstance(part, ToolReturnPart)]
    assert result.content == "blue"


# --- output, dependencies, errors -------------------------------------------------------------------------------------


class City(BaseModel):
    name: str
    people: int


async def test_structured_output_is_json_text_and_the_next_turn_continues(world: World) -> None:
    agent = FrameworkAgent(TestModel(custom_output_args={"name": "Oslo", "people": 700}), output_type=City)
    engine, live, log = await talk(world, agent)
    assert log == ['text: {"name":"Oslo","people":700}', "step", "end_turn"]
    await play(engine, live, "and again")
    assert short(await world.events(live.state.session_id))[3:] == log


def shout(name: str) -> str:
    """Shout a name."""
    return name.upper()


@pytest.mark.parametrize(
    ("model", "output_type", "log"),
    [
        (TestModel(custom_output_args={"name": "oslo"}), shout, ["text: OSLO", "step", "end_turn"]),
        (TestModel(custom_output_args="oslo"), ToolOutput(str), ["text: oslo", "step", "end_turn"]),
        (
            scripted(['{"name": "Oslo", ', '"people": 700}']),
            PromptedOutput(City),
            ['text: {"name": "Oslo", "people": 700}', "step", "end_turn"],
        ),
        (scripted(["oslo"]), TextOutput(shout), ["text: oslo", "step", "end_turn"]),
    ],
    ids=["function", "tool", "prompted", "text"],
)
async def test_the_output_is_in_the_log_once(world: World, model: Any, output_type: Any, log: list[str]) -> None:
    """Either as the text that the model has streamed, or as what its call of an output tool has given."""
    assert (await talk(world, FrameworkAgent(model, output_type=output_type)))[2] == log


async def test_a_picture_that_a_tool_returns_is_an_image_of_its_result(world: World) -> None:
    agent = FrameworkAgent(scripted([call("look")], ["seen"]))

    @agent.tool_plain
    def look() -> BinaryContent:
        return BinaryContent(b"png", media_type="image/png")

    _, live, _ = await talk(world, agent)
    (settled,) = [
        each.event for each in await world.events(live.state.session_id) if isinstance(each.event, CallSettled)
    ]
    assert settled.result.content == (Image("data:image/png;base64,cG5n"),)


@pytest.mark.parametrize("is_wrapped", [False, True], ids=["agent", "wrapper"])
async def test_an_output_validator_has_the_model_answer_again_and_calls_may_still_wait(
    world: World, is_wrapped: bool
) -> None:
    async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        answers = sum(isinstance(each, ModelResponse) for each in messages)
        spoken = ({0: DeltaToolCall(name="pay", json_args="{}", tool_call_id="c")}, "no", "yes")
        yield spoken[answers]

    agent = FrameworkAgent(FunctionModel(stream_function=speak))

    @agent.tool_plain(requires_approval=True)
    def pay() -> str:
        return "paid"

    @agent.output_validator
    def check(output: str) -> str:
        if output == "no":
            raise ModelRetry("Say yes.")
        return output

    engine, live, log = await talk(world, WrapperAgent(agent) if is_wrapped else agent)
    assert log == ["call pay {}", "step", "waits for permission", "tool_use"]
    log = await answer(world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True))
    assert log == ["granted", "started", "done: paid", "text: no", "step", "text: yes", "step", "end_turn"]


@dataclass
class Deps:
    user: str


async def test_dependencies_are_made_for_each_run_from_what_is_known_of_it(world: World) -> None:
    agent = FrameworkAgent(scripted([call("who")], ["done"]), deps_type=Deps)

    @agent.tool
    def who(ctx: RunContext[Deps]) -> str:
        return f"{ctx.deps.user} {(ctx.metadata or {})['user']} {(ctx.metadata or {})['forwarded']}"

    async def deps(info: Any) -> Deps:
        return Deps(user=f"{info.user} {info.forwarded}")

    _, _, log = await talk(world, PydanticAIAgent(agent, name="player", deps=deps))
    assert "done: ann None ann None" in log


@pytest.mark.parametrize(
    ("limits", "end"), [(UsageLimits(request_limit=1), "max_steps"), (UsageLimits(total_tokens_limit=1), "max_tokens")]
)
async def test_a_limit_of_usage_ends_the_run(world: World, limits: UsageLimits, end: str) -> None:
    agent = FrameworkAgent(scripted([call("add")], ["done"]))
    agent.tool_plain(name="add")(noting([], "add"))
    _, _, log = await talk(world, PydanticAIAgent(agent, name="player", usage_limits=limits))
    assert log[-1] == end


async def test_the_errors_of_models_have_codes_and_no_details(world: World) -> None:
    ends = []
    for status in (401, 429, 503):

        async def fail(messages: list[ModelMessage], info: AgentInfo, status: int = status) -> AsyncIterator[str]:
            if status:
                raise ModelHTTPError(status, "gpt", body="key sk-1")
            yield ""

        _, live, log = await talk(world, FrameworkAgent(FunctionModel(stream_function=fail)))
        ends.append(log[-1])
        stops = [each.event for each in await world.events(live.state.session_id)]
        assert "sk-1" not in str(stops[-1])
    assert ends == ["model_error", "model_unavailable", "model_unavailable"]


async def test_a_stopped_run_is_continued_by_the_next_message(world: World) -> None:
    entered, gate = asyncio.Event(), asyncio.Event()
    agent = FrameworkAgent(scripted([call("slow")], ["fine"]))

    @agent.tool_plain
    async def slow() -> str:
        entered.set()
        await gate.wait()
        return "late"

    world.agents["player"] = PydanticAIAgent(agent, name="player")
    engine = await world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    await entered.wait()
    await engine.stop_run(live, None)
    gate.set()
    await play(engine, live, "go on")
    log = short(await world.events(live.state.session_id))
    assert log[3:5] == ["cancelled: Tool call cancelled: the run was stopped", "cancelled"]
    assert log[-1] == "end_turn"


# --- recognition ------------------------------------------------------------------------------------------------------


def test_an_agent_is_recognized_with_its_tools() -> None:
    agent = bank([])
    agent.name = "Bank"
    served = as_agent(agent, "support")
    assert served is not None
    assert (served.spec.name, served.spec.title) == ("support", "Bank")
    assert [(tool.spec.name, tool.policy.needs_approval) for tool in served.spec.tools] == [
        ("pay", True),
        ("balance", False),
    ]
    assert as_agent("no agent", "x") is None


async def test_a_capability_can_select_the_model(tmp_path: Path) -> None:
    agent = FrameworkAgent(capabilities=[SelectModel(lambda context: TestModel(custom_output_text="Selected."))])
    async with agent_harness(tmp_path, PydanticAIAgent(agent, name="support")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("hello") == "end_turn"
        assert await session.summary_lines() == ["user: hello", "assistant: Selected."]


@pytest.mark.parametrize(
    ("agent", "sentence"),
    [
        (FrameworkAgent(), 'support has no model: Agent("openai:gpt-5-mini", …)'),
        (
            FrameworkAgent(TestModel(), deps_type=Deps),
            (
                'support needs deps of type Deps: wrap it, PydanticAIAgent(support, name="support", deps=…)'
                " from dragoman.adapters.pydantic_ai"
            ),
        ),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_way_out(agent: Any, sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        as_agent(agent, "support")
    assert str(refused.value) == sentence


# --- helpers --------------------------------------------------------------------------------------------------------


def noting(executed: list[str], name: str) -> Callable[[], str]:
    def do() -> str:
        executed.append(name)
        return f"{name} ok"

    return do
