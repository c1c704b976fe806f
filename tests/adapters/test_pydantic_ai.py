"""Agents of Pydantic AI, served unchanged: every row of what is mapped, as events of the log."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed")

from pydantic import BaseModel
from pydantic_ai import Agent as FrameworkAgent
from pydantic_ai import (
    ModelRetry,
    PromptedOutput,
    RunContext,
    TextOutput,
    ToolOutput,
    UsageLimits,
)
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import SelectModel
from pydantic_ai.exceptions import ModelHTTPError, ToolFailed
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from dragoman.adapters.frameworks import Refused
from dragoman.adapters.pydantic_ai import PydanticAIAgent, as_agent
from dragoman.core.answers import compact_json
from dragoman.core.content import Image, Text
from dragoman.core.events import (
    CallOpened,
    CallSettled,
    MessageClosed,
)
from dragoman.core.inputs import Decision, Submit, UserInput
from dragoman.core.tools import ToolGrant
from tests.adapters.pydantic_ai_models import answer, bank, call, noting, scripted, short, talk
from tests.agents.agent_harness import agent_harness
from tests.engine.world import World, open_session, play, send

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


@pytest.mark.parametrize(
    ("name", "arguments", "says"), [("fail", {"a": "x"}, "valid integer"), ("missing", {}, "Unknown tool name")]
)
async def test_a_call_that_the_framework_refuses_is_an_error_also_if_the_model_does_not_stream(
    world: World, name: str, arguments: dict[str, str], says: str
) -> None:
    def answer_(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart(name, arguments, "c") if len(messages) == 1 else TextPart("done")])

    agent = FrameworkAgent(FunctionModel(answer_))

    @agent.tool_plain
    def fail(a: int) -> str:
        return "never"

    _, _, log = await talk(world, agent)
    assert log[2].startswith("failed: ")
    assert says in log[2]
    assert log[3:] == ["text: done", "step", "end_turn"]


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
    assert log[3:5] == ["cancelled: Tool call cancelled while it ran: the run was stopped", "cancelled"]
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
