"""Agents with a model: the loop of model calls and tool calls, on the real engine."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from dragoman import Agent, AgentError, Capabilities, Run, SelectOption, TextOption, ToolContext, tool
from dragoman.core.content import AssistantMessage, Image, SystemMessage, Text, Thinking, Usage, UserMessage
from dragoman.core.events import RunStopped
from dragoman.core.ids import MessageId
from dragoman.core.inputs import Create, Submit, UserInput
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.tools import ASK_USER_QUESTION, FORK, ToolGrant, ToolSpec
from dragoman.engine.sessions.live_session import to_live_session
from dragoman.ports.models import ContextTooLong, Finished, ModelFailed, ModelUnavailable
from tests.agents.agent_harness import (
    ANN,
    DEADLINE_S,
    ModelGate,
    Part,
    ScriptedModel,
    agent_harness,
    arguments_of,
    call,
    end,
    thought,
)


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@tool(needs_approval=True)
def wipe(disk: str) -> str:
    """Wipe a disk."""
    return f"{disk} wiped"


@tool
def fail() -> None:
    """Fail."""
    raise ValueError("no such thing")


@tool(exposed=False)
def secret(context: ToolContext) -> str:
    """Look something up."""
    return f"for {context.user}"


ALERT = ToolSpec(name="alert", description="Show it.", parameters={"type": "object"})


async def test_a_forced_call_is_forced_once_and_instructions_of_the_run_follow_the_agents(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2)], "Three.", "Bye.")
    async with agent_harness(tmp_path, Agent("a", model=model, tools=[add], instructions="Be kind.")) as harness:
        session = await harness.session(tools="all")
        metadata = RunMetadata(instructions="Be brief.")
        await session.send("Hi", parameters={"tool_choice": "required", "seed": 1}, metadata=metadata)
        assert await session.wait_for_end() == "end_turn"
        assert await session.send_and_wait("Bye") == "end_turn"
    assert [(request.parameters, request.instructions) for request in model.requests] == [
        ({"tool_choice": "required", "seed": 1}, "Be kind.\n\nBe brief."),
        ({"seed": 1}, "Be kind.\n\nBe brief."),
        ({}, "Be kind."),
    ]


async def test_the_models_answer_is_the_agents_answer(tmp_path: Path) -> None:
    model = ScriptedModel([thought("Hm. "), thought("Yes."), "Hel", "lo!"])
    async with agent_harness(
        tmp_path, Agent("a", model=model, instructions="Be kind.", parameters={"temperature": 0})
    ) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Hi") == "end_turn"
        assert await session.summary_lines() == ["user: Hi", "assistant: Hello!"]
        (_, answer) = await session.messages()
        assert isinstance(answer, AssistantMessage)
        assert (answer.content, answer.model, answer.usage) == (
            (Thinking("Hm. Yes."), Text("Hello!")),
            "scripted",
            Usage(10, 5),
        )
    (request,) = model.requests
    assert (request.model, request.instructions, request.tools, request.parameters) == (
        "scripted",
        "Be kind.",
        [],
        {"temperature": 0},
    )
    assert (model.read(), model.closed) == (["user: Hi"], 1)


async def test_calls_of_a_step_run_in_parallel_and_their_results_keep_the_order(tmp_path: Path) -> None:
    both = asyncio.Barrier(2)

    @tool
    async def meet(name: str) -> str:
        """Wait for the other."""
        await both.wait()
        return f"{name} met"

    model = ScriptedModel(["Let me see.", call("meet", name="one"), call("meet", name="two")], "Done.")
    async with agent_harness(tmp_path, Agent("a", model=model, tools=[meet])) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "end_turn"
        history = await session.summary_lines()
    assert sorted(history[2:4]) == ["tool: one met", "tool: two met"]
    assert model.read() == [
        "user: Go",
        'assistant: Let me see. meet({"name":"one"}) meet({"name":"two"})',
        "tool: one met",
        "tool: two met",
    ]
    assert [spec.name for spec in model.requests[0].tools] == ["meet"]


async def test_a_tools_failure_is_a_result_for_the_model(tmp_path: Path) -> None:
    model = ScriptedModel([call("fail")], "I see.")
    async with agent_harness(tmp_path, Agent("a", model=model, tools=[fail])) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "end_turn"
    assert model.read()[-1] == "tool: Tool execution failed: no such thing"


@pytest.mark.parametrize(
    ("requested", "result", "expected_parts"),
    [
        (
            call("wipe", raw='{"disk": '),
            "Tool execution failed: the arguments are not a JSON object; call the tool again with valid JSON",
            {"_unreadable": '{"disk": '},
        ),
        (
            call("wipe", disk=7, why="x"),
            "Tool execution failed: disk: expected str, got 7; why: unknown argument (known arguments: disk)",
            {"disk": 7, "why": "x"},
        ),
        (call("wipe_all", disk="a"), "Tool not found: wipe_all", {"disk": "a"}),
        (
            call(ASK_USER_QUESTION, questions=[]),
            "Tool execution failed: Expected array of length >= 1 - at $.questions",
            {"questions": []},
        ),
        (
            call(FORK, agent="nobody", task="x"),
            "Tool execution failed: unknown agent 'nobody'; available agents: helper",
            {"agent": "nobody", "task": "x"},
        ),
    ],
)
async def test_invalid_arguments_reach_neither_tool_nor_user(
    tmp_path: Path, requested: Part, result: str, expected_parts: object
) -> None:
    model = ScriptedModel([requested], "Sorry.")
    helper = Agent("helper", model=ScriptedModel())
    async with agent_harness(
        tmp_path, Agent("a", model=model, tools=[wipe], ask_user=True, subagents=[helper])
    ) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "end_turn"
        assert arguments_of(await session.messages()) == [expected_parts]
    assert model.read()[-1] == f"tool: {result}"


async def test_a_call_that_needs_approval_waits_and_the_run_continues_with_the_answer(tmp_path: Path) -> None:
    model = ScriptedModel([call("wipe", disk="a"), call("add", a=1, b=2)], "Wiped.", [call("wipe", disk="b")], "Not.")
    async with agent_harness(tmp_path, Agent("a", model=model, tools=[wipe, add])) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Wipe a") == "tool_use"
        await harness.restart()
        assert await session.allow() == "end_turn"
        assert model.read()[2:] == ["tool: a wiped", "tool: 3"]
        assert await session.send_and_wait("And b") == "tool_use"
        assert await session.deny("too late") == "end_turn"
        assert model.read()[-1] == "tool: Tool call denied: too late"


async def test_a_result_directly_follows_its_call_even_if_a_message_came_first(tmp_path: Path) -> None:
    model = ScriptedModel([call("alert", text="now")], "Fine.")
    async with agent_harness(tmp_path, Agent("a", model=model, client_tools=True)) as harness:
        session = await harness.session(client_tools=(ALERT,))
        assert await session.send_and_wait("Warn me") == "tool_use"
        await session.send("Never mind")
        assert await session.wait_for_end() == "end_turn"
    assert model.read() == [
        "user: Warn me",
        'assistant: alert({"text":"now"})',
        "tool: Tool call cancelled: a new user message arrived",
        "user: Never mind",
    ]


async def test_applications_provide_tools_and_hidden_tools_need_no_approval(tmp_path: Path) -> None:
    model = ScriptedModel([call("secret"), call("alert", text="x")], "Done.")
    async with agent_harness(tmp_path, Agent("a", model=model, tools=[secret, wipe], client_tools=True)) as harness:
        session = await harness.session(client_tools=(ALERT,), tools=(ToolGrant("wipe"),))
        assert await session.send_and_wait("Go") == "tool_use"
        assert await session.pending() == ["alert"]
        assert await session.give_result("shown") == "end_turn"
    assert [spec.name for spec in model.requests[0].tools] == ["alert", "secret", "wipe"]
    assert model.read()[-2:] == ["tool: for ann", "tool: shown"]


# --- the built-in tools -----------------------------------------------------------------------------------------------


async def test_the_model_asks_the_user_and_reads_the_answer(tmp_path: Path) -> None:
    question = {"question": "Which?", "options": [{"label": "red"}, {"label": "blue"}]}
    model = ScriptedModel([call(ASK_USER_QUESTION, questions=[question])], "Blue it is.")
    async with agent_harness(tmp_path, Agent("a", model=model, ask_user=True)) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Paint") == "tool_use"
        assert await session.choose(1) == "end_turn"
    assert model.read()[-1] == 'tool: {"answers":[{"question":"Which?","labels":["blue"],"custom":null}]}'
    (spec,) = model.requests[0].tools
    assert (spec.name, spec.parameters["required"]) == (ASK_USER_QUESTION, ["questions"])


async def test_a_sub_agent_sees_only_its_task_and_returns_its_last_text(tmp_path: Path) -> None:
    inner = ScriptedModel([call("add", a=2, b=3)], "It is 5.")
    outer = ScriptedModel([call(FORK, agent="counter", task="2 and 3?")], "Five.")
    counter = Agent(
        "counter",
        model=inner,
        tools=[add],
        description="Counts.",
        options=[TextOption(name="base", default="10")],
        instructions=lambda run: f"Base {run.option('base')} for {run.text}",
    )
    async with agent_harness(tmp_path, Agent("a", model=outer, subagents=[counter], client_tools=True)) as harness:
        session = await harness.session(client_tools=(ALERT,))
        assert await session.send_and_wait("Count") == "end_turn"
        assert await session.summary_lines() == [
            "user: Count",
            'assistant: Agent({"agent":"counter","task":"2 and 3?"})',
            "tool: It is 5.",
            "assistant: Five.",
        ]
    assert inner.read() == ["user: 2 and 3?", 'assistant: add({"a":2,"b":3})', "tool: 5"]
    assert inner.requests[0].instructions == "Base 10 for 2 and 3?"
    assert [spec.name for spec in inner.requests[0].tools] == ["add"]
    (_, fork) = outer.requests[0].tools
    assert fork.name == FORK
    assert fork.description.endswith("- counter: Counts.")
    assert fork.parameters["properties"]["agent"] == {"type": "string", "enum": ["counter"]}


async def test_the_schema_of_an_answer_is_for_the_model_of_the_agent_and_not_of_its_sub_agents(tmp_path: Path) -> None:
    inner = ScriptedModel("Five.")
    outer = ScriptedModel([call(FORK, agent="counter", task="2 and 3?")], "5")
    counter = Agent("counter", model=inner)
    async with agent_harness(tmp_path, Agent("a", model=outer, subagents=[counter])) as harness:
        session = await harness.session()
        await session.send("Count", metadata=RunMetadata(output_schema={"type": "integer"}))
        assert await session.wait_for_end() == "end_turn"
    assert [each.output_schema for each in (*outer.requests, *inner.requests)] == [{"type": "integer"}] * 2 + [None]
    assert ["JSON" in each.instructions for each in (*outer.requests, *inner.requests)] == [True, True, False]


@pytest.mark.parametrize("tools", ["all", ()])
async def test_a_sub_agent_may_wait_for_the_user_in_its_own_loop(tmp_path: Path, tools: object) -> None:
    """Even if the session enables only the tools that its client named, because a client cannot name a sub-agent's."""
    inner = ScriptedModel([call("wipe", disk="a")], "Wiped it.")
    outer = ScriptedModel([call(FORK, agent="cleaner", task="Wipe a")], "All clean.")
    cleaner = Agent("cleaner", model=inner, tools=[wipe])
    async with agent_harness(tmp_path, Agent("a", model=outer, subagents=[cleaner])) as harness:
        session = await harness.session(tools=tools)
        assert await session.send_and_wait("Clean") == "tool_use"
        assert await session.pending() == ["wipe"]
        await harness.restart()
        assert await session.allow() == "end_turn"
    assert inner.read() == ["user: Wipe a", 'assistant: wipe({"disk":"a"})', "tool: a wiped"]
    assert outer.read()[-1] == "tool: Wiped it."


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["max_tokens", "refusal"])
async def test_an_interrupted_answer_ends_the_run_without_making_its_calls(tmp_path: Path, stop: str) -> None:
    model = ScriptedModel(["Well", call("wipe", disk="a"), end(stop)])  # type: ignore[arg-type]  # of two names
    async with agent_harness(tmp_path, Agent("a", model=model, tools=[wipe])) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == stop
        assert await session.summary_lines() == ["user: Go", "assistant: Well"]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ModelUnavailable("10.0.0.7 refused"), "model_unavailable", "The model is currently unavailable"),
        (ModelFailed("key sk-1 invalid"), "model_error", "The model failed to answer"),
        (ContextTooLong("8193 > 8192"), "context_too_long", "The conversation is too long for the model"),
    ],
)
async def test_a_models_failure_ends_the_run_without_the_providers_message(
    tmp_path: Path, error: ModelFailed, code: str, message: str
) -> None:
    model = ScriptedModel(["Half a", error], [error])
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "error"
        stopped = await session.stop()
        assert (stopped.code, stopped.message) == (code, message)
        assert await session.summary_lines() == ["user: Go", "assistant: Half a"]
    assert len(model.requests) == 1, "text that was sent cannot be taken back, so there is no retry"


async def test_a_model_stream_without_a_stop_reason_is_a_failure(tmp_path: Path) -> None:
    class Cut(ScriptedModel):
        async def stream(self, request):  # type: ignore[no-untyped-def]  # as that of the class above
            async for event in super().stream(request):
                if not isinstance(event, Finished):
                    yield event

    async with agent_harness(tmp_path, Agent("a", model=Cut("Hello"))) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "error"
        assert (await session.stop()).code == "model_error"


async def test_a_run_ends_at_its_step_limit(tmp_path: Path) -> None:
    model = ScriptedModel(*[[call("add", a=1, b=1)]] * 5)
    async with agent_harness(tmp_path, Agent("a", model=model, tools=[add], max_steps=2)) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "max_steps"
        assert [line.split(":")[0] for line in await session.summary_lines()] == ["user", *["assistant", "tool"] * 2]


async def test_a_run_ends_at_its_token_limit(tmp_path: Path) -> None:
    model = ScriptedModel(*[[call("add", a=1, b=1)]] * 5)
    async with agent_harness(
        tmp_path, Agent("a", model=model, tools=[add], max_run_tokens=30, max_tokens=7)
    ) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "max_tokens"
        assert len(model.requests) == 2
        assert {request.max_tokens for request in model.requests} == {7}
        model.answers = [["Fine.", end("end_turn", Usage(100, 1))]]
        assert await session.send_and_wait("Go on") == "end_turn"


async def test_stopping_a_run_closes_the_models_stream(tmp_path: Path) -> None:
    gate = ModelGate()
    model = ScriptedModel(["One, ", gate, "two"])
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        session = await harness.session()
        await session.send("Count")
        await asyncio.wait_for(gate.reached.wait(), DEADLINE_S)
        await harness.engine.stop_run(await session.live())
        assert (gate.was_cancelled, model.closed) == (True, 1)
        assert await session.wait_for_end() == "cancelled"
        assert await session.summary_lines() == ["user: Count", "assistant: One, "]
        model.answers = ["Again."]
        assert await session.send_and_wait("Go on") == "end_turn"
    assert model.read() == ["user: Count", "assistant: One, ", "user: Go on"]


# --- crashes ----------------------------------------------------------------------------------------------------------


async def test_after_a_crash_the_interrupted_step_is_repeated(tmp_path: Path) -> None:
    gate = ModelGate()
    model = ScriptedModel([call("add", a=1, b=2)], ["The sum", gate], "The sum is 3.")
    async with agent_harness(tmp_path, Agent("a", model=model, tools=[add])) as harness:
        session = await harness.session()
        await session.send("1 + 2?")
        await asyncio.wait_for(gate.reached.wait(), DEADLINE_S)
        await harness.kill()
        assert await session.wait_for_end() == "end_turn"
        assert (await session.summary_lines())[-1] == "assistant: The sum is 3."
    assert model.read() == ["user: 1 + 2?", 'assistant: add({"a":1,"b":2})', "tool: 3"]


async def test_an_invalid_call_still_fails_after_a_crash(tmp_path: Path) -> None:
    """The tool that rejects the call is lost with the process, so the arguments alone must make it fail."""
    ran: list[str] = []

    @tool(needs_approval=True, idempotent=True)
    def delete(path: str = "everything") -> str:
        """Delete."""
        ran.append(path)
        return "deleted"

    @tool
    async def wait() -> None:
        """Wait."""
        await asyncio.Event().wait()

    model = ScriptedModel([call("delete", raw="{"), call("wait")], "Sorry.")
    async with agent_harness(tmp_path, Agent("a", model=model, tools=[delete, wait])) as harness:
        session = await harness.session()
        live = await session.live()
        await session.send("Go")
        async with asyncio.timeout(DEADLINE_S):
            while not live.state.calls:
                await to_live_session(live).next_commit()
        await harness.kill()
        assert await session.wait_for_end() == "end_turn"
    assert ran == []
    assert model.read()[2].startswith("tool: Tool execution failed: ")


async def test_a_complete_answer_is_not_repeated_after_a_crash(tmp_path: Path) -> None:
    class Dies(Agent):
        async def play(self, run):  # type: ignore[no-untyped-def]  # as that of the class above
            reason = await super().play(run)
            if not died.is_set():
                await run.drain()
                died.set()
                await asyncio.Event().wait()
            return reason

    died = asyncio.Event()
    model = ScriptedModel("All said.")
    async with agent_harness(tmp_path, Dies("a", model=model)) as harness:
        session = await harness.session()
        await session.send("Speak")
        await asyncio.wait_for(died.wait(), DEADLINE_S)
        live = await session.live()
        await live.until_durable(live.state.seq)
        await harness.kill()
        assert await session.wait_for_end() == "end_turn"
        assert await session.summary_lines() == ["user: Speak", "assistant: All said."]
    assert len(model.requests) == 1


async def test_a_run_of_an_agent_that_cannot_resume_ends_as_interrupted(tmp_path: Path) -> None:
    gate = ModelGate()
    async with agent_harness(tmp_path, Agent("a", model=ScriptedModel(["One", gate]), resumable=False)) as harness:
        session = await harness.session()
        await session.send("Count")
        await asyncio.wait_for(gate.reached.wait(), DEADLINE_S)
        await harness.kill()
        assert await session.wait_for_end() == "interrupted"


# --- requests to the model --------------------------------------------------------------------------------------------


async def test_instructions_can_depend_on_the_run(tmp_path: Path) -> None:
    async def instructions(run: Run) -> str:
        return f"Answer {run.user} in {run.option('language')}, by {run.time_zone} time: {run.text}"

    model = ScriptedModel("Hallo.")
    language = SelectOption(name="language", options=("English", "German"), default="English")
    async with agent_harness(
        tmp_path, Agent("a", model=model, instructions=instructions, options=[language])
    ) as harness:
        session = await harness.session(options={"language": "German"})
        await session.send_and_wait("Hi")
    assert model.requests[0].instructions == "Answer ann in German, by UTC time: Hi"


async def test_an_instructions_function_cannot_answer(tmp_path: Path) -> None:
    def instructions(run: Run) -> str:
        run.emit("I am the agent now")
        return ""

    async with agent_harness(tmp_path, Agent("a", model=ScriptedModel(), instructions=instructions)) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Hi") == "error"
        assert (await session.stop()).code == "agent_error"
        assert await session.summary_lines() == ["user: Hi"]


async def test_seed_messages_are_part_of_the_conversation(tmp_path: Path) -> None:
    seeds = (
        SystemMessage(id=MessageId("1"), content="Rhyme."),
        UserMessage(id=MessageId("2"), content="Cat?"),
        AssistantMessage(id=MessageId("3"), content="Hat."),
    )
    model = ScriptedModel("House.")
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        session = await harness.session(seeds=seeds)
        await session.send_and_wait("Mouse?")
    assert model.read() == ["system: Rhyme.", "user: Cat?", "assistant: Hat.", "user: Mouse?"]


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        (Capabilities(image_http=True, image_data=True), [Image("https://a.example/b.png")]),
        (Capabilities(image_data=True), [Text("[an image that is not shown here]")]),
        (Capabilities(), [Text("[an image that is not shown here]")]),
    ],
)
async def test_a_model_receives_images_only_if_the_agent_accepts_them(
    tmp_path: Path, capabilities: Capabilities, expected: Sequence[object]
) -> None:
    @tool
    def look() -> Image:
        """Look."""
        return Image("https://a.example/b.png")

    model = ScriptedModel([call("look")], "Nice.")
    async with agent_harness(tmp_path, Agent("a", model=model, tools=[look], capabilities=capabilities)) as harness:
        session = await harness.session()
        await session.send_and_wait("What is there?")
    assert list(model.requests[-1].messages[-1].content) == expected


# --- models -----------------------------------------------------------------------------------------------------------


def test_the_server_resolves_the_models_of_agents_and_sub_agents() -> None:
    own = ScriptedModel()
    inner = Agent("inner", model="openai:gpt-x")
    outer = Agent("outer", subagents=[inner, Agent("third", model=own)])
    resolved: list[str] = []

    def resolve(name: str) -> ScriptedModel:
        resolved.append(name)
        return ScriptedModel()

    outer.bind(resolve, default="ollama:tiny")
    assert (resolved, outer.model_name, inner.model_name) == (
        ["openai:gpt-x", "ollama:tiny"],
        "ollama:tiny",
        "openai:gpt-x",
    )
    assert not outer.spec.uses_embedded_model
    outer.bind(resolve, default="embedded")
    assert (outer.model_name, outer.spec.model, outer.spec.uses_embedded_model) == ("embedded", "embedded", True)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("openai-compatible:qwen3@http://10.0.0.7:8080/v1", "openai-compatible:qwen3"),
        ("embedded:/srv/ann@home/qwen3.gguf", "embedded:qwen3.gguf"),
    ],
)
def test_the_description_of_an_agent_names_its_model_without_an_address_or_a_folder(name: str, shown: str) -> None:
    agent = Agent("a", model=name)
    agent.bind(lambda _: ScriptedModel())
    assert agent.spec.model == shown


async def test_a_missing_model_is_reported_in_the_log(tmp_path: Path) -> None:
    async with agent_harness(tmp_path, Agent("a")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Hi") == "error"
        stopped = await session.stop()
        assert stopped == RunStopped(
            run_id=stopped.run_id, reason="error", code="agent_error", message="The agent failed"
        )


async def test_an_agent_error_is_sent_to_the_client(tmp_path: Path) -> None:
    def instructions(run: Run) -> str:
        raise AgentError("closed", "We are closed on Sundays")

    async with agent_harness(tmp_path, Agent("a", model=ScriptedModel(), instructions=instructions)) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Hi") == "error"
        stopped = await session.stop()
        assert (stopped.code, stopped.message) == ("closed", "We are closed on Sundays")


async def test_many_sessions_are_answered_concurrently(tmp_path: Path) -> None:
    everyone = asyncio.Barrier(20)

    class Together(ScriptedModel):
        async def stream(self, request):  # type: ignore[no-untyped-def]  # as that of the class above
            await everyone.wait()
            async for event in super().stream(request):
                yield event

    async with agent_harness(tmp_path, Agent("a", model=Together(*["Hello."] * 20))) as harness:
        lives = [await harness.engine.create(ANN, Create(protocol="test", agent="a", tools="all")) for _ in range(20)]
        for live in lives:
            await harness.engine.start_run(live, Submit(protocol="test", messages=(UserInput(content="Hi"),)), by=ANN)
        async with asyncio.timeout(DEADLINE_S):
            for live in lives:
                while live.state.run is not None:
                    await to_live_session(live).next_commit()
        assert {live.state.last_stop for live in lives} == {"end_turn"}
