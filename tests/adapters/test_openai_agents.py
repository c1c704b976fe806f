"""Agents of the OpenAI Agents SDK: what becomes of each thing that they do, as events of the log."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    OutputGuardrail,
    RunContextWrapper,
    ToolGuardrailFunctionOutput,
    ToolOutputImage,
    function_tool,
    handoff,
    tool_output_guardrail,
)
from pydantic import BaseModel

from dragoman.adapters import RunInfo
from dragoman.adapters.openai_agents import OpenAIAgentsAgent
from dragoman.core.agent import AgentError
from dragoman.core.content import AssistantMessage, Image, Text, Usage
from dragoman.core.inputs import Answer, Decision, Result, Submit, UserInput
from dragoman.core.open_calls import OpenCall
from dragoman.core.tools import SecretOption, TextOption, ToolGrant, ToolSpec
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.live_session import LiveSession
from tests.adapters.log_shape import shape
from tests.adapters.openai_model import CallOf, Fail, Item, PlayedModel, Reason
from tests.engine.world import (
    PauseGate,
    World,
    answer_request,
    open_session,
    play,
    reload,
    running_world,
    send,
    wait_for_end,
)
from tests.stores.simulated import SimulatedLog

USAGE = Usage(input_tokens=3, output_tokens=2, cached_tokens=1, reasoning_tokens=1)

PAINT = ToolSpec(name="paint", description="Paints.", parameters={"type": "object", "properties": {}})


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@function_tool
def boom() -> str:
    """Fail."""
    raise ValueError("secret detail")


@function_tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def _is_much(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
    return bool(arguments["amount"] > 100)


@function_tool(needs_approval=_is_much)
def spend(amount: int) -> str:
    """Spend."""
    return f"spent {amount}"


class Talk:
    """A session with an agent, over an engine."""

    def __init__(self, world: World, engine: Engine, live: LiveSession, model: PlayedModel) -> None:
        self.world = world
        self.engine = engine
        self.live = live
        self.model = model

    async def say(self, request: str | Submit) -> list[str]:
        """Send something, wait for the run's end, and return what it added to the log."""
        seen = len(await self.shape())
        await play(self.engine, self.live, request)
        return (await self.shape())[seen:]

    async def answer(self, make: Callable[[OpenCall], Answer]) -> list[str]:
        """Answer all waiting calls."""
        return await self.say(answer_request(*map(make, list(self.live.state.waiting_calls()))))

    async def shape(self) -> list[str]:
        return shape(await self.world.events(self.live.state.session_id))


@asynccontextmanager
async def talk(
    scripts: Mapping[str, Any],
    session: Mapping[str, Any] | None = None,
    /,
    *,
    wrapper: Any = None,
    **fields: Any,
) -> AsyncIterator[Talk]:
    """A session with an agent that has these scripts and fields of the SDK's `Agent`."""
    model = PlayedModel(scripts)
    agent = fields.pop("agent", None) or (lambda model: Agent(name="Triage", model=model, **fields))
    async with running_world(SimulatedLog()) as world:
        served = OpenAIAgentsAgent(agent(model), name="player", **(wrapper or {}))
        world.agents["player"] = served
        await served.start()
        engine = await world.start()
        yield Talk(world, engine, await open_session(engine, **(session or {})), model)
        await served.close()


def grant(call: OpenCall) -> Answer:
    return Decision(call_id=call.call.call_id, granted=True)


def deny(call: OpenCall) -> Answer:
    return Decision(call_id=call.call.call_id, granted=False, reason="too much")


# --- words ------------------------------------------------------------------------------------------------------------


async def test_words_and_reasoning_are_streamed_and_the_next_turn_has_the_exact_items() -> None:
    async with talk({"hi": [[Reason("hm"), "Hel", "lo"]]}) as it:
        assert await it.say("hi") == ["user: hi", "thinking: hm", "text: Hello", "step", "end: end_turn"]
        message = (await it.world.history(it.live.state.session_id))[-1]
        assert isinstance(message, AssistantMessage)
        assert (message.model, message.usage) == ("played", USAGE)
        await it.say("again")
        reasoning, spoken = it.model.requests[1][1:3]
        assert (reasoning["type"], reasoning["encrypted_content"]) == ("reasoning", "secret")
        assert (spoken["role"], spoken["content"][0]["text"]) == ("assistant", "Hello")
        assert it.model.requests[1][3] == {"role": "user", "content": "again"}


async def test_a_picture_of_the_user_reaches_the_model() -> None:
    url = "data:image/png;base64,aGk="
    async with talk({}) as it:
        await it.say(Submit(protocol="test", messages=(UserInput(content=(Text("what"), Image(url))),)))
        assert it.model.requests[0][0]["content"] == [
            {"type": "input_text", "text": "what"},
            {"type": "input_image", "image_url": url, "detail": "auto"},
        ]


async def test_a_conversation_that_was_seeded_is_rebuilt_from_its_blocks() -> None:
    seeds = (AssistantMessage(id="m1", content=(Text("Welcome"),)),)  # type: ignore[arg-type]
    async with talk({}, {"seeds": seeds}) as it:
        await it.say("hi")
        assert it.model.requests[0] == [
            {"role": "assistant", "content": "Welcome"},
            {"role": "user", "content": "hi"},
        ]


class Weather(BaseModel):
    city: str
    degrees: int


async def test_an_output_that_no_model_spoke_is_a_step_of_its_own() -> None:
    @function_tool
    def measure() -> Weather:
        """Measure."""
        return Weather(city="Bern", degrees=7)

    async with talk(
        {"hi": [[CallOf("measure")]]}, output_type=Weather, tools=[measure], tool_use_behavior="stop_on_first_tool"
    ) as it:
        assert (await it.say("hi"))[-3:] == ['text: {"city":"Bern","degrees":7}', "step", "end: end_turn"]


async def test_words_without_deltas_are_the_answer_too() -> None:
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    whole = Item({**message, "content": [{"type": "output_text", "text": "all at once", "annotations": []}]})
    async with talk({"hi": [[whole]]}) as it:
        assert await it.say("hi") == ["user: hi", "text: all at once", "step", "end: end_turn"]


# --- calls ------------------------------------------------------------------------------------------------------------


async def test_calls_run_in_parallel_and_a_failed_one_is_an_error_with_the_words_of_the_sdk() -> None:
    calls = [CallOf("add", {"a": 1, "b": 2}), CallOf("boom"), CallOf("add", '{"a":')]
    async with talk({"hi": [["so ", *calls], ["done"]]}, tools=[add, boom]) as it:
        lines = await it.say("hi")
        sorry = "An error occurred while running the tool. Please try again."
        assert lines[:6] == [
            "user: hi", "text: so ", "call: add {'a': 1, 'b': 2}", "call: boom {}",
            "call: add {'_raw': '{\"a\":'}", "step",
        ]  # fmt: skip
        assert sorted(lines[6:12]) == [
            "done: add 3", f"failed: add {sorry}", f"failed: boom {sorry}", "starts: add", "starts: add", "starts: boom"
        ]  # fmt: skip
        assert lines[12:] == ["text: done", "step", "end: end_turn"]
        outputs = [item["output"] for item in it.model.requests[1] if item.get("type") == "function_call_output"]
        assert outputs == ["3", sorry, sorry]


async def test_an_exception_that_the_tool_lets_through_ends_the_run() -> None:
    """Its text is in the server's log only, because it may contain what clients must not see."""

    @function_tool(failure_error_function=None)
    def crash() -> str:
        """Crash."""
        raise ValueError("broken")

    async with talk({"hi": [[CallOf("crash")]]}, tools=[crash]) as it:
        assert (await it.say("hi"))[-2:] == [
            "failed: crash Tool execution failed: ValueError",
            "end: error agent_error",
        ]


async def test_a_picture_that_a_tool_returns_is_a_block_and_is_sent_again_in_the_next_turn() -> None:
    @function_tool
    def draw() -> ToolOutputImage:
        """Draw."""
        return ToolOutputImage(image_url="data:image/png;base64,aGk=")

    async with talk({"hi": [[CallOf("draw")], ["there"]]}, tools=[draw]) as it:
        await it.say("hi")
        results = [each for each in await it.world.history(it.live.state.session_id) if hasattr(each, "call_id")]
        assert [each.content for each in results] == [(Image("data:image/png;base64,aGk="),)]
        await it.say("next")
        outputs = [item["output"] for item in it.model.requests[-1] if item.get("type") == "function_call_output"]
        assert outputs == [[{"type": "input_image", "image_url": "data:image/png;base64,aGk="}]]


async def test_a_tools_guardrail_decides_what_is_stored_as_its_result() -> None:
    @tool_output_guardrail
    def censor(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("censored")

    @function_tool(tool_output_guardrails=[censor])
    def leak() -> str:
        """Leak."""
        return "secret"

    async with talk({"hi": [[CallOf("leak")], ["ok"]]}, tools=[leak]) as it:
        assert "done: leak censored" in await it.say("hi")


async def test_the_caller_and_the_options_reach_the_tools() -> None:
    seen: list[object] = []

    @function_tool
    def look(context: RunContextWrapper[Any]) -> str:
        """Look."""
        seen.append(context.context)
        return "ok"

    script = {"hi": [[CallOf("look")], ["ok"]]}
    async with talk(script, tools=[look]) as it:
        await it.say("hi")

    async def make(info: RunInfo) -> tuple[str, str]:
        return info.user, info.options["tone"]

    wrapper = {"context": make, "options": [TextOption(name="tone", default="dry")]}
    async with talk(script, {"options": {"tone": "warm"}}, tools=[look], wrapper=wrapper) as it:
        await it.say("hi")
    assert seen == [{"user": "ann"}, ("ann", "warm")]


async def test_tools_that_the_session_does_not_enable_are_not_offered() -> None:
    async with talk({}, {"tools": (ToolGrant("add"),)}, tools=[add, pay]) as it:
        await it.say("hi")
        assert it.model.tools == [["add"]]


async def test_hosted_tools_are_recorded_with_their_results() -> None:
    search = Item(
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
    )
    remote = {"type": "mcp_call", "id": "mcp_1", "name": "find", "server_label": "docs", "arguments": '{"q": 1}'}
    script = {"hi": [[search, Item({**remote, "output": "found"}), "done"]]}
    async with talk(script) as it:
        assert await it.say("hi") == [
            "user: hi",
            "text: done",
            "call: web_search {'type': 'search', 'query': 'x'}",
            "call: find {'q': 1}",
            "step",
            "done: web_search completed",
            "done: find found",
            "end: end_turn",
        ]
        await it.say("next")
        assert [item.get("type") for item in it.model.requests[1]] == [
            None,
            "web_search_call",
            "mcp_call",
            "message",
            None,
        ]


# --- who has to act ---------------------------------------------------------------------------------------------------


async def test_a_call_that_needs_approval_waits_while_the_others_run() -> None:
    script = {"hi": [[CallOf("pay", {"amount": 5}), CallOf("add", {"a": 1, "b": 2})], ["done"]]}
    async with talk(script, tools=[pay, add]) as it:
        lines = await it.say("hi")
        assert lines[1:4] == ["call: pay {'amount': 5}", "call: add {'a': 1, 'b': 2}", "step"]
        assert sorted(lines[4:-1]) == ["done: add 3", "starts: add", "waits: pay permission"]
        assert lines[-1] == "end: tool_use"
        assert await it.answer(grant) == [
            "answer: pay True", "starts: pay", "done: pay paid 5", "text: done", "step", "end: end_turn"
        ]  # fmt: skip


async def test_a_denied_call_does_not_run_and_the_model_reads_the_reason() -> None:
    async with talk({"hi": [[CallOf("pay", {"amount": 5})], ["pity"]]}, tools=[pay]) as it:
        await it.say("hi")
        assert await it.answer(deny) == [
            "answer: pay False", "denied: pay Tool call denied: too much", "text: pity", "step", "end: end_turn"
        ]  # fmt: skip
        outputs = [item["output"] for item in it.model.requests[1] if item.get("type") == "function_call_output"]
        assert outputs == ["Tool call denied: too much"]


async def test_a_rule_about_arguments_is_asked_for_each_call() -> None:
    script = {"hi": [[CallOf("spend", {"amount": 5}), CallOf("spend", {"amount": 500})], ["done"]]}
    async with talk(script, tools=[spend]) as it:
        assert sorted((await it.say("hi"))[4:-1]) == ["done: spend spent 5", "starts: spend", "waits: spend permission"]


async def test_a_tool_that_the_session_trusts_runs_without_asking() -> None:
    grants = {"tools": (ToolGrant("pay", trust=True), ToolGrant("spend", trust=True))}
    script = {"hi": [[CallOf("pay", {"amount": 5}), CallOf("spend", {"amount": 500})], ["done"]]}
    async with talk(script, grants, tools=[pay, spend]) as it:
        lines = await it.say("hi")
        assert sorted(each for each in lines if each.startswith(("starts", "done", "waits"))) == [
            "done: pay paid 5", "done: spend spent 500", "starts: pay", "starts: spend"
        ]  # fmt: skip
        assert lines[-1] == "end: end_turn"


async def test_a_client_tool_waits_for_the_applications_result() -> None:
    async with talk(
        {"hi": [[CallOf("paint", {"what": "sky"})], ["nice"]]}, {"client_tools": (PAINT,)}, tools=[add]
    ) as it:
        assert await it.say("hi") == [
            "user: hi", "call: paint {'what': 'sky'}", "step", "waits: paint client", "end: tool_use"
        ]  # fmt: skip
        assert it.model.tools == [["add", "paint"]]
        assert await it.answer(lambda call: Result(call_id=call.call.call_id, content="blue")) == [
            "answer: paint True", "done: paint blue", "text: nice", "step", "end: end_turn"
        ]  # fmt: skip
        assert it.model.requests[1][-1]["output"] == "blue"


async def test_an_agent_that_is_a_tool_waits_for_the_approval_of_its_own_calls() -> None:
    def build(model: PlayedModel) -> Agent[Any]:
        cashier = Agent[Any](name="Cashier", model=model, tools=[pay])
        return Agent(name="Triage", model=model, tools=[cashier.as_tool("cashier", "Pays.")])

    inner = [[CallOf("pay", {"amount": 5})], ["paid"]]
    async with talk({"hi": [[CallOf("cashier", {"input": "inner"})], ["done"]], "inner": inner}, agent=build) as it:
        note = {"calls": [{"name": "pay", "input": {"amount": 5}}]}
        assert await it.say("hi") == [
            "user: hi", "call: cashier {'input': 'inner'}", "step", "starts: cashier",
            f"waits: cashier permission {note}", "end: tool_use",
        ]  # fmt: skip
        assert await it.answer(grant) == [
            "answer: cashier True", "starts: cashier", "done: cashier paid", "text: done", "step", "end: end_turn"
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("ids", "order", "restarts", "denied"),
    [
        (["1", "2", "3", "4"], ["a", "b"], True, ""),
        (["1", "2", "3", "4"], ["ab"], False, "a"),
        (["1", "2", "pay:0", "pay:0"], ["b", "a"], True, "a"),  # of providers that number the calls of a response
        (["0", "1", "0", "0"], ["ab"], True, ""),
    ],
)
async def test_two_agents_that_are_tools_wait_at_the_same_time_and_each_gets_its_answer(
    ids: list[str], order: list[str], restarts: bool, denied: str
) -> None:
    paid: list[int] = []

    @function_tool(needs_approval=True)
    def pay(context: RunContextWrapper[Any], amount: int) -> str:
        """Pay."""
        assert context.context == {"pin": "pin-7382"}
        paid.append(amount)
        return f"paid {amount}"

    def build(model: PlayedModel) -> Agent[Any]:
        cashier = Agent[Any](name="Cashier", model=model, tools=[pay])
        return Agent(name="Triage", model=model, tools=[cashier.as_tool("a", "Pays."), cashier.as_tool("b", "Pays.")])

    scripts = {
        "hi": [[CallOf("a", {"input": "one"}, ids[0]), CallOf("b", {"input": "two"}, ids[1])], ["done"]],
        "one": [[CallOf("pay", {"amount": 1}, ids[2])], ["a is done"]],
        "two": [[CallOf("pay", {"amount": 2}, ids[3])], ["b is done"]],
    }
    wrapper = {"options": [SecretOption(name="pin")], "context": lambda info: {"pin": info.options["pin"]}}
    async with talk(scripts, {"options": {"pin": "pin-7382"}}, agent=build, wrapper=wrapper) as it:
        lines = await it.say("hi")
        kept = await it.world.store.kept(it.live.state.session_id, "", None, 100)
        assert kept, "the state of the run is kept"
        assert b"pin-7382" not in b"".join(kept.values()), "the application's context is in no stored state"
        assert [line for line in lines if line.startswith("waits")] == [
            "waits: a permission {'calls': [{'name': 'pay', 'input': {'amount': 1}}]}",
            "waits: b permission {'calls': [{'name': 'pay', 'input': {'amount': 2}}]}",
        ]
        for names in order:
            if restarts:
                it.engine = await it.world.restart(it.engine)
                it.live = await reload(it.engine, it.live)
            waiting = {each.call.name: each for each in it.live.state.waiting_calls()}
            answers = [deny(waiting[name]) if name in denied else grant(waiting[name]) for name in names]
            lines = await it.say(answer_request(*answers))
            left = {each.call.name for each in it.live.state.waiting_calls()}
            assert left == {"a", "b"} - set("".join(order[: order.index(names) + 1]))
        assert lines[-3:] == ["text: done", "step", "end: end_turn"]
        done = [line for line in await it.shape() if line.startswith(("done", "failed", "denied"))]
        assert sorted(done) == ["done: a a is done", "done: b b is done"]
        assert sorted(paid) == [amount for amount, name in ((1, "a"), (2, "b")) if name not in denied]


@dataclass
class Customer:
    """The context of an application."""

    is_premium: bool


def _is_premium(context: RunContextWrapper[Customer], agent: Any) -> bool:
    return context.context.is_premium


@pytest.mark.parametrize("ids", [("0", "1", "2", "3"), ("0", "1", "0", "0")])
async def test_an_approved_call_runs_if_the_context_decides_which_tools_there_are(ids: tuple[str, ...]) -> None:
    cashed: list[str] = []

    @function_tool(needs_approval=True, is_enabled=_is_premium)
    def cash(context: RunContextWrapper[Customer], to: str) -> str:
        """Pay out."""
        assert context.context.is_premium
        cashed.append(to)
        return f"paid out to {to}"

    def build(model: PlayedModel) -> Agent[Any]:
        cashier = Agent[Any](name="Cashier", model=model, tools=[cash])
        tools = [cashier.as_tool(each, "Pays.", is_enabled=_is_premium) for each in ("a", "b")]
        return Agent(name="Triage", model=model, tools=[*tools, cash])

    scripts = {
        "hi": [[CallOf("a", {"input": "one"}, ids[0]), CallOf("b", {"input": "two"}, ids[1])], ["done"]],
        "one": [[CallOf("cash", {"to": "Ann"}, ids[2])], ["a is done"]],
        "two": [[CallOf("cash", {"to": "Bob"}, ids[3])], ["b is done"]],
        "me": [[CallOf("cash", {"to": "me"})], ["done"]],
    }
    async with talk(scripts, agent=build, wrapper={"context": lambda info: Customer(is_premium=True)}) as it:
        for prompt in ("me", "hi"):
            await it.say(prompt)
            assert (await it.answer(grant))[-3:] == ["text: done", "step", "end: end_turn"]
        results = [line for line in await it.shape() if line.startswith("done")]
        assert results == ["done: cash paid out to me", "done: a a is done", "done: b b is done"]
    assert cashed == ["me", "Ann", "Bob"]


async def test_a_remote_servers_request_for_approval_waits() -> None:
    from agents import HostedMCPTool

    docs = HostedMCPTool(tool_config={"type": "mcp", "server_label": "docs", "server_url": "https://docs.example"})
    request = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "name": "find",
        "server_label": "docs",
        "arguments": "{}",
    }
    async with talk({"hi": [[Item(request)], ["found"]]}, tools=[docs]) as it:
        assert (await it.say("hi"))[1:] == ["call: find {}", "step", "waits: find permission", "end: tool_use"]
        it.model.scripts = {"hi": [["found"]]}
        assert (await it.answer(grant))[:2] == ["answer: find True", "done: find approved"]
        assert it.model.requests[1][-1] == {
            "type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True
        }  # fmt: skip


# --- handoffs ---------------------------------------------------------------------------------------------------------


async def test_a_handoff_is_a_call_and_a_stage_and_the_next_turn_begins_with_the_agent_that_answered() -> None:
    handed_over: list[str] = []

    def build(model: PlayedModel) -> Agent[Any]:
        billing = Agent[Any](name="Billing", model=model, tools=[add])
        return Agent(
            name="Triage",
            model=model,
            handoffs=[handoff(billing, on_handoff=lambda context: handed_over.append("handed"))],
        )

    script = {"hi": [["one moment ", CallOf("transfer_to_billing")], [CallOf("add", {"a": 1, "b": 2})], ["3"]]}
    async with talk(script, agent=build) as it:
        assert await it.say("hi") == [
            "user: hi", "stage: Triage", "text: one moment ", "call: transfer_to_billing {}", "step",
            "starts: transfer_to_billing", 'done: transfer_to_billing {"assistant": "Billing"}', "stage: Billing",
            "call: add {'a': 1, 'b': 2}", "step", "starts: add", "done: add 3", "text: 3", "step", "end: end_turn",
        ]  # fmt: skip
        assert (await it.say("more"))[1] == "stage: Billing"
        assert (it.model.tools, handed_over) == (
            [["transfer_to_billing"], ["add"], ["add"], ["add"]],
            ["handed"],
        )


# --- the end ----------------------------------------------------------------------------------------------------------


async def _trip(context: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)


async def test_guardrails_end_the_run_as_a_refusal() -> None:
    before = InputGuardrail(guardrail_function=_trip, run_in_parallel=False)
    async with talk({}, input_guardrails=[before]) as it:
        assert await it.say("hi") == ["user: hi", "end: refusal"]
    async with talk({"hi": [["words"]]}, output_guardrails=[OutputGuardrail(guardrail_function=_trip)]) as it:
        assert await it.say("hi") == ["user: hi", "text: words", "step", "end: refusal"]


class APIStatusError(Exception):
    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text)
        self.status_code = status


class APIConnectionError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (APIConnectionError(), "error model_unavailable"),
        (APIStatusError(429), "error model_unavailable"),
        (APIStatusError(400, "context_length_exceeded"), "error context_too_long"),
        (APIStatusError(401), "error model_error"),
        (AgentError("no_credit", "No credit left"), "error no_credit"),
        (ValueError("key sk-123"), "error agent_error"),
    ],
)
async def test_a_models_failure_has_a_code(error: Exception, end: str) -> None:
    async with talk({"hi": [[Fail(error)]]}) as it:
        assert (await it.say("hi"))[-1] == f"end: {end}"


async def test_a_call_of_a_tool_that_does_not_exist_is_no_usable_answer() -> None:
    async with talk({"hi": [["so ", CallOf("nothing")]]}) as it:
        assert (await it.say("hi"))[-1] == "end: error model_error"


async def test_a_run_has_a_limit_of_model_steps() -> None:
    script = {"hi": [[CallOf("add", {"a": 1, "b": 2})]] * 5}
    async with talk(script, tools=[add], wrapper={"max_steps": 2}) as it:
        assert (await it.say("hi"))[-1] == "end: max_steps"


async def test_a_stopped_run_stops_its_tool_and_the_next_turn_continues() -> None:
    gate = PauseGate()

    @function_tool
    async def wait() -> str:
        """Wait."""
        await gate()
        return "never"

    async with talk({"hi": [["so ", CallOf("wait")], ["done"]]}, tools=[wait]) as it:
        await send(it.engine, it.live, "hi")
        await asyncio.wait_for(gate.entered.wait(), 10)
        await it.engine.stop_run(it.live, None)
        await wait_for_end(it.live)
        assert gate.cancelled.is_set()
        stopped = "cancelled: wait Tool call cancelled while it ran: the run was stopped"
        assert (await it.shape())[-2:] == [stopped, "end: cancelled"]
        assert (await it.say("next"))[-1] == "end: end_turn"
