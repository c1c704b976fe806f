"""Agents that are functions, on the real engine."""

# Large: one file for the guarantees of function agents, which share their helpers.

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from dragoman import (
    Agent,
    AgentError,
    Data,
    Image,
    Plan,
    PlanStep,
    Run,
    Text,
    TextOption,
    Thinking,
    ToolContext,
    ToolFailed,
    agent,
    tool,
)
from dragoman.agents.function import FunctionAgent
from dragoman.agents.parameters import DeclarationError
from dragoman.core.content import AssistantMessage, ToolMessage, Usage
from dragoman.core.events import CardUpdated, PlanUpdated, StageChanged
from dragoman.core.inputs import Choice
from dragoman.core.tools import ASK_USER_QUESTION, FORK, Capabilities, ToolSpec
from tests.agents.agent_harness import DEADLINE_S, ModelGate, ScriptedModel, agent_harness, summarize


class Flight(msgspec.Struct):
    """A flight."""

    number: str
    price: int


@tool
def search(place: str, most: int = 2) -> list[Flight]:
    """Search flights."""
    return [Flight(f"{place} {number}", 100 * number) for number in range(1, most + 1)]


@tool(needs_approval=True)
def book(flight: str) -> str:
    """Book a flight."""
    return f"booked {flight}"


@tool
async def price(flight: Flight, *, currency: str = "EUR") -> dict[str, object]:
    """Tell a price."""
    return {"price": flight.price, "currency": currency}


@tool
def count() -> int:
    """Count."""
    return 7


@tool
def fail() -> None:
    """Fail."""
    raise ValueError("no luck")


# --- saying -----------------------------------------------------------------------------------------------------------


async def test_a_function_yields_its_answer(tmp_path: Path) -> None:
    @agent
    async def parrot(run: Run) -> AsyncIterator[Any]:
        """Says it again."""
        yield Thinking("What did they say? ")
        yield "You said: "
        yield run.text
        yield Image("https://a.example/b.png")
        yield Data({"a": 1})
        yield Text("Bye")
        yield Plan(status="done", steps=(PlanStep("speak", "done"),))
        run.card({"type": "text"})
        run.add_usage(input_tokens=3, output_tokens=4)

    async with agent_harness(tmp_path, parrot) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Polly") == "end_turn"
        answer = (await session.messages())[-1]
        assert isinstance(answer, AssistantMessage)
        assert answer.content == (
            Thinking("What did they say? "),
            Text("You said: Polly"),
            Image("https://a.example/b.png"),
            Data({"a": 1}),
            Text("Bye"),
        )
        assert answer.usage == Usage(3, 4)
        updates = [event for event in await session.events() if isinstance(event, PlanUpdated | CardUpdated)]
        assert updates == [
            PlanUpdated(status="done", steps=(PlanStep("speak", "done"),)),
            CardUpdated(card={"type": "text"}, message_id=answer.id),
        ]
    assert (parrot.spec.name, parrot.spec.description) == ("parrot", "Says it again.")


async def test_a_coroutine_returns_its_answer(tmp_path: Path) -> None:
    @agent("echo", client_tools=True)
    async def say_again(run: Run) -> str:
        if run.emit("So: "):
            await run.drain()
        return run.text

    async with agent_harness(tmp_path, say_again) as harness:
        session = await harness.session()
        await session.send_and_wait("Hi")
        assert await session.summary_lines() == ["user: Hi", "assistant: So: Hi"]
    assert say_again.spec.capabilities == Capabilities(client_tools=True)


async def test_a_function_that_says_nothing_leaves_no_message(tmp_path: Path) -> None:
    @agent
    async def mute(run: Run) -> AsyncIterator[str]:
        for _ in range(0):
            yield ""

    async with agent_harness(tmp_path, mute) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Hi") == "end_turn"
        assert await session.summary_lines() == ["user: Hi"]


async def test_yielding_an_invalid_value_fails_the_run(tmp_path: Path) -> None:
    @agent
    async def wrong(run: Run) -> AsyncIterator[Any]:
        yield "a"
        yield 5

    async with agent_harness(tmp_path, wrong) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Hi") == "error"
        assert (await session.stop()).code == "agent_error"
        assert await session.summary_lines() == ["user: Hi", "assistant: a"]


async def test_many_deltas_yield_to_other_tasks(tmp_path: Path) -> None:
    @agent
    async def flood(run: Run) -> AsyncIterator[str]:
        for number in range(100_000):
            yield f"{number},"

    async with agent_harness(tmp_path, flood) as harness:
        one, other = await harness.session(), await harness.session()
        await one.send("Go")
        await other.send("Go")
        assert (await one.wait_for_end(), await other.wait_for_end()) == ("end_turn", "end_turn")
        assert (await one.summary_lines())[-1] == "assistant: " + "".join(f"{number}," for number in range(100_000))


async def test_a_function_can_read_its_run_and_the_conversation(tmp_path: Path) -> None:
    @agent(options=[TextOption(name="tone", default="dry")])
    async def knows(run: Run) -> AsyncIterator[str]:
        earlier = [type(message).__name__[0] for message in await run.messages(limit=3)]
        assert run.message is not None
        yield f"{run.user} {run.option('tone')} {run.time_zone} {''.join(earlier)} {run.message.content}"

    async with agent_harness(tmp_path, knows) as harness:
        session = await harness.session(options={"tone": "kind"})
        await session.send_and_wait("One")
        await session.send_and_wait("Two")
        assert await session.summary_lines() == [
            "user: One",
            "assistant: ann kind UTC U One",
            "user: Two",
            "assistant: ann kind UTC UAU Two",
        ]


# --- calling ----------------------------------------------------------------------------------------------------------


async def test_calls_return_the_tools_results_with_their_types(tmp_path: Path) -> None:
    seen: list[object] = []

    @agent(tools=[search, price, count])
    async def traveller(run: Run) -> AsyncIterator[str]:
        flights = await run.call(search, "Rome", most=1)
        yield f"{flights[0].price}"
        seen.append(flights)
        seen.append(await run.call(price, flight=flights[0], currency="USD"))
        seen.append(await run.call("count"))
        seen.append(await run.call_all([(search, {"place": "Oslo"}), ("count", {}), ("price", {"flight": flights[0]})]))
        seen.append(await run.call_all([]))

    async with agent_harness(tmp_path, traveller) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "end_turn"
        assert seen == [
            [Flight("Rome 1", 100)],
            {"price": 100, "currency": "USD"},
            7,
            [[Flight("Oslo 1", 100), Flight("Oslo 2", 200)], 7, {"price": 100, "currency": "EUR"}],
            [],
        ]
        assert [line.split("(")[0] for line in await session.summary_lines() if line.startswith("assistant")] == [
            "assistant: search",
            "assistant: 100 price",
            "assistant: count",
            "assistant: search",
        ]


@tool
def digits() -> str:
    """Digits."""
    return "12"


@tool
def untyped():  # type: ignore[no-untyped-def]  # that is the point
    """Whatever."""
    return "12"


@tool
def picture() -> Image:
    """A picture."""
    return Image("https://a.example/b.png")


@pytest.mark.parametrize(
    ("called", "expected"), [(digits, "12"), (untyped, 12), (picture, Image("https://a.example/b.png"))]
)
async def test_the_return_annotation_determines_the_type_of_a_result(
    tmp_path: Path, called: Any, expected: object
) -> None:
    seen: list[object] = []

    @agent(tools=[called])
    async def caller(run: Run) -> None:
        seen.append(await run.call(called))

    async with agent_harness(tmp_path, caller) as harness:
        assert await (await harness.session()).send_and_wait("Go") == "end_turn"
    assert seen == [expected]


async def test_a_tools_failure_can_be_caught(tmp_path: Path) -> None:
    @agent(tools=[fail])
    async def careful(run: Run) -> AsyncIterator[str]:
        try:
            await run.call(fail)
        except ToolFailed as error:
            yield f"({error})"
        await run.call("nothing")

    async with agent_harness(tmp_path, careful) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "error"
        stopped = await session.stop()
        assert (stopped.code, stopped.message) == ("tool_failed", "Tool not found: nothing")
        assert (await session.summary_lines())[2:] == [
            "tool: Tool execution failed: no luck",
            "assistant: (Tool execution failed: no luck) nothing({})",
            "tool: Tool not found: nothing",
        ]


async def test_parallel_calls_belong_to_one_step(tmp_path: Path) -> None:
    meeting = asyncio.Barrier(2)

    @tool
    async def meet() -> None:
        """Wait for the other call."""
        async with asyncio.timeout(DEADLINE_S):
            await meeting.wait()

    @agent(tools=[meet])
    async def hasty(run: Run) -> None:
        await asyncio.gather(run.call(meet), run.call(meet))

    async with agent_harness(tmp_path, hasty) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "end_turn"
        assert await session.summary_lines() == ["user: Go", "assistant: meet({}) meet({})", "tool: null", "tool: null"]


async def test_a_function_can_call_the_applications_tools(tmp_path: Path) -> None:
    @agent(client_tools=True)
    async def guide(run: Run) -> AsyncIterator[str]:
        yield f"You are in {await run.call('location', precise=True)}."

    async with agent_harness(tmp_path, guide) as harness:
        location = ToolSpec(name="location", description="", parameters={"type": "object"})
        session = await harness.session(client_tools=(location,))
        assert await session.send_and_wait("Where am I?") == "tool_use"
        assert await session.give_result("Rome") == "end_turn"
        assert (await session.summary_lines())[-1] == "assistant: You are in Rome."


async def test_a_resumed_run_enters_the_stage_of_its_first_new_step(tmp_path: Path) -> None:
    @agent(client_tools=True)
    async def staged(run: Run) -> AsyncIterator[str]:
        run.stage("router")
        run.stage("worker")
        yield f"It is {await run.call('paint')}."
        run.stage(None)

    async with agent_harness(tmp_path, staged) as harness:
        session = await harness.session(client_tools=(ToolSpec(name="paint", description="", parameters={}),))
        assert await session.send_and_wait("Go") == "tool_use"
        assert await session.give_result("red") == "end_turn"
        entered = [event.stage for event in await session.events() if isinstance(event, StageChanged)]
        assert entered == ["router", "worker", "worker", None]


async def test_a_function_delegates_tasks_to_sub_agents(tmp_path: Path) -> None:
    @agent
    async def inner(run: Run) -> AsyncIterator[str]:
        answer = await run.ask("Sure?", ["yes", "no"])
        yield f"{run.text}: {answer}"

    modelled = Agent("modelled", model=ScriptedModel("I am one."))

    @agent(subagents=[inner, modelled])
    async def outer(run: Run) -> AsyncIterator[str]:
        yield await run.fork(inner, "do it")
        yield ", "
        yield await run.fork("modelled", "speak")

    async with agent_harness(tmp_path, outer) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "tool_use"
        await harness.restart()
        assert await session.choose(0) == "end_turn"
        assert await session.summary_lines() == [
            "user: Go",
            'assistant: Agent({"agent":"inner","task":"do it"})',
            "tool: do it: yes",
            'assistant: do it: yes,  Agent({"agent":"modelled","task":"speak"})',
            "tool: I am one.",
            "assistant: I am one.",
        ]
    assert outer.spec.builtins == {ASK_USER_QUESTION, FORK}


async def ask_in_a_task_group(run: Run) -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run.ask(question, ["yes", "no"])) for question in ("Tea?", "Cake?")]
    return [task.result() for task in tasks]


async def ask_with_gather(run: Run) -> list[str]:
    return list(await asyncio.gather(run.ask("Tea?", ["yes", "no"]), run.ask("Cake?", ["yes", "no"])))


@pytest.mark.parametrize("ask", [ask_in_a_task_group, ask_with_gather])
async def test_questions_of_several_tasks_are_asked_together_and_answered_one_by_one(
    tmp_path: Path, ask: Callable[[Run], Awaitable[list[str]]]
) -> None:
    @agent(tools=[search])
    async def host(run: Run) -> AsyncIterator[str]:
        answers = await ask(run)
        async with asyncio.TaskGroup() as group:
            found = [group.create_task(run.call(search, place)) for place in ("Rome", "Oslo")]
        yield f"{', '.join(answers)}: {found[0].result()[0].number}, {found[1].result()[0].number}"

    async with agent_harness(tmp_path, host) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "tool_use"
        waiting = list((await session.live()).state.waiting_calls())
        assert [call.call.input["questions"][0]["question"] for call in waiting] == ["Tea?", "Cake?"]
        await harness.restart()
        for call, chosen in zip(waiting, (0, 1), strict=True):
            await session.answer(Choice(call_id=call.call.call_id, selections={"0": [chosen]}))
        assert (await session.summary_lines())[-1] == "assistant: yes, no: Rome 1, Oslo 1"


async def test_a_question_beside_a_call_in_progress_is_asked_when_the_call_has_ended(tmp_path: Path) -> None:
    @agent(tools=[search])
    async def busy(run: Run) -> AsyncIterator[str]:
        async def ask_later() -> str:
            await run.call(search, "Rome")
            return await run.ask("Sure?", ["yes"])

        async with asyncio.TaskGroup() as group:
            early, late = group.create_task(run.call(search, "Oslo")), group.create_task(ask_later())
        yield f"{early.result()[0].number}, {late.result()}"

    async with agent_harness(tmp_path, busy) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "tool_use"
        assert await session.choose(0) == "end_turn"
        assert (await session.summary_lines())[-1] == "assistant: Oslo 1, yes"


async def test_asking_and_forking_must_be_declared(tmp_path: Path) -> None:
    @agent(ask_user=False)
    async def shy(run: Run) -> AsyncIterator[str]:
        for attempt in (run.ask("Who?"), run.fork("nobody", "x")):
            with pytest.raises(RuntimeError) as error:
                await attempt
            yield f"{error.value}; "

    async with agent_harness(tmp_path, shy) as harness:
        session = await harness.session()
        await session.send_and_wait("Go")
        assert (await session.summary_lines())[-1] == (
            "assistant: agent shy cannot ask questions: it was created with ask_user=False; "
            "agent shy has no sub-agents; "
        )


# --- waiting, and doing it again --------------------------------------------------------------------------------------


def traveller_of(metadata: list[str]) -> FunctionAgent:
    @agent(tools=[search, book])
    async def traveller(run: Run) -> AsyncIterator[str]:
        metadata.append("begun")
        yield f"To {run.text}. "
        flights = await run.call(search, run.text)
        choice = await run.ask(
            "Which?", [(flight.number, f"{flight.price} EUR") for flight in flights], header="Flight"
        )
        yield f"So {choice}. "
        receipt = await run.call(book, flight=choice)
        metadata.append("booked")
        yield f"{receipt}."

    return traveller


ITINERARY = [
    "user: Rome",
    'assistant: To Rome.  search({"place":"Rome"})',
    'tool: [{"number":"Rome 1","price":100},{"number":"Rome 2","price":200}]',
    (
        'assistant: AskUserQuestion({"questions":[{"question":"Which?","options":['
        '{"label":"Rome 1","description":"100 EUR"},{"label":"Rome 2","description":"200 EUR"}],"header":"Flight"}]})'
    ),
    'tool: {"answers":[{"question":"Which?","labels":["Rome 2"],"custom":null}]}',
    'assistant: So Rome 2.  book({"flight":"Rome 2"})',
    "tool: booked Rome 2",
    "assistant: booked Rome 2.",
]


async def test_code_after_a_wait_continues_with_the_answer(tmp_path: Path) -> None:
    noted: list[str] = []
    async with agent_harness(tmp_path, traveller_of(noted)) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Rome") == "tool_use"
        await harness.restart()
        assert await session.choose(1) == "tool_use"
        await harness.kill()
        assert await session.allow() == "end_turn"
        assert await session.summary_lines() == ITINERARY
    assert noted == ["begun", "begun", "begun", "booked"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_question_that_is_asked_again_is_the_same_question(tmp_path: Path, *, restarts: bool) -> None:
    async with agent_harness(tmp_path, traveller_of([])) as harness:
        session = await harness.session()
        await session.send_and_wait("Rome")
        if restarts:
            await harness.restart()
        with capture_logs() as logs:
            await session.choose(1)
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == []


async def test_free_text_answers_and_denials_reach_the_function(tmp_path: Path) -> None:
    async with agent_harness(tmp_path, traveller_of([])) as harness:
        session = await harness.session()
        await session.send_and_wait("Rome")
        assert await session.choose(custom_text="the night train") == "tool_use"
        assert await session.deny("too expensive") == "error"
        stopped = await session.stop()
        assert (stopped.code, stopped.message) == ("tool_failed", "Tool call denied: too expensive")


async def test_a_new_message_starts_the_function_over(tmp_path: Path) -> None:
    async with agent_harness(tmp_path, traveller_of([])) as harness:
        session = await harness.session()
        await session.send_and_wait("Rome")
        assert await session.send_and_wait("Oslo") == "tool_use"
        assert await session.choose(0) == "tool_use"
        assert await session.allow() == "end_turn"
        assert (await session.summary_lines())[-1] == "assistant: booked Oslo 1."


async def test_the_conversation_is_the_same_when_a_function_is_called_again(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    @agent
    async def looks_back(run: Run) -> AsyncIterator[str]:
        seen.append(summarize(await run.messages()))
        yield await run.ask("Sure?", ["yes"])

    async with agent_harness(tmp_path, looks_back) as harness:
        session = await harness.session()
        await session.send_and_wait("One")
        await session.choose(0)
        await session.send_and_wait("Two")
        await session.choose(0)
    assert seen[0] == seen[1] == ["user: One"]
    assert seen[2] == seen[3]
    assert (seen[2][0], seen[2][-1], len(seen[2])) == ("user: One", "user: Two", 5)


async def test_after_a_crash_a_function_continues_from_its_last_complete_step(tmp_path: Path) -> None:
    gate = ModelGate()
    ran: list[str] = []

    @tool
    def act(name: str) -> str:
        """Act."""
        ran.append(name)
        return name.upper()

    @agent(tools=[act])
    async def steps(run: Run) -> AsyncIterator[str]:
        yield await run.call(act, "a")
        yield await run.call(act, "b")
        yield " and"
        if not gate.opened.is_set():
            await gate.pass_through()
        yield " c"

    async with agent_harness(tmp_path, steps) as harness:
        session = await harness.session()
        await session.send("Go")
        await asyncio.wait_for(gate.reached.wait(), DEADLINE_S)
        gate.opened.set()
        gate.opened = asyncio.Event()
        gate.opened.set()
        await harness.kill()
        assert await session.wait_for_end() == "end_turn"
        assert (await session.summary_lines())[-1] == "assistant: B and c"
    assert ran == ["a", "b"]


async def test_a_function_whose_end_is_recorded_repeats_nothing(tmp_path: Path) -> None:
    died = asyncio.Event()

    class Dies(FunctionAgent):
        async def play(self, run):  # type: ignore[no-untyped-def]  # as that of the class above
            reason = await super().play(run)
            if not died.is_set():
                died.set()
                await asyncio.Event().wait()
            return reason

    async def speak(run: Run) -> AsyncIterator[str]:
        yield "All "
        yield "said."

    async with agent_harness(tmp_path, Dies(speak)) as harness:
        session = await harness.session()
        await session.send("Go")
        await asyncio.wait_for(died.wait(), DEADLINE_S)
        live = await session.live()
        await live.until_durable(live.state.seq)
        await harness.kill()
        assert await session.wait_for_end() == "end_turn"
        assert await session.summary_lines() == ["user: Go", "assistant: All said."]


async def test_a_function_that_takes_different_steps_fails_the_run(tmp_path: Path) -> None:
    turns = iter(["count", "search"])

    @agent(tools=[search, count, book])
    async def fickle(run: Run) -> None:
        name = next(turns)
        await run.call(name, **({"place": "Rome"} if name == "search" else {}))
        await run.call(book, flight="x")

    async with agent_harness(tmp_path, fickle) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "tool_use"
        assert await session.allow() == "error"
        stopped = await session.stop()
        assert (stopped.code, stopped.message) == ("replay_mismatch", "The agent did not repeat its earlier steps")
        results = [each for each in await session.messages() if isinstance(each, ToolMessage)]
        assert [each.name for each in results] == ["count", "book"]


async def test_a_function_that_catches_base_exceptions_still_waits(tmp_path: Path) -> None:
    noted: list[str] = []

    @agent(tools=[book])
    async def grabby(run: Run) -> AsyncIterator[str]:
        try:
            yield await run.call(book, flight="x")
        except BaseException as error:  # noqa: BLE001  # that is the point
            noted.append(type(error).__name__)
            yield "never said"
        finally:
            noted.append("finally")

    async with agent_harness(tmp_path, grabby) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "tool_use"
        assert (await session.summary_lines())[-1] == 'assistant: book({"flight":"x"})'
        assert await session.allow() == "end_turn"
        assert (await session.summary_lines())[-1] == "assistant: booked x"
    assert noted == ["Paused", "finally", "finally"]


async def test_except_exception_does_not_catch_a_pause(tmp_path: Path) -> None:
    @agent(tools=[book])
    async def cautious(run: Run) -> AsyncIterator[str]:
        try:
            yield await run.call(book, flight="x")
        except Exception as error:  # noqa: BLE001  # that is the point
            yield f"failed: {error}"

    async with agent_harness(tmp_path, cautious) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "tool_use"
        assert await session.deny() == "end_turn"
        assert (await session.summary_lines())[-1] == "assistant: failed: Tool call denied"


async def test_stopping_a_run_cancels_the_function_and_runs_its_finally(tmp_path: Path) -> None:
    gate = ModelGate()
    noted: list[str] = []

    @agent
    async def patient(run: Run) -> AsyncIterator[str]:
        try:
            yield "One, "
            await gate.pass_through()
        finally:
            noted.append("finally")

    async with agent_harness(tmp_path, patient) as harness:
        session = await harness.session()
        await session.send("Go")
        await asyncio.wait_for(gate.reached.wait(), DEADLINE_S)
        await harness.engine.stop_run(await session.live())
        assert await session.summary_lines() == ["user: Go", "assistant: One, "]
    assert (noted, gate.was_cancelled) == (["finally"], True)


async def test_an_agent_error_is_for_the_client_and_any_other_is_not(tmp_path: Path) -> None:
    @agent
    async def closed(run: Run) -> AsyncIterator[str]:
        yield "We are "
        if run.text == "own":
            raise AgentError("closed", "Come back on Monday")
        raise ValueError("the password is 123")

    async with agent_harness(tmp_path, closed) as harness:
        session = await harness.session()
        assert await session.send_and_wait("own") == "error"
        stopped = await session.stop()
        assert (stopped.code, stopped.message) == ("closed", "Come back on Monday")
        assert await session.send_and_wait("other") == "error"
        stopped = await session.stop()
        assert (stopped.code, stopped.message) == ("agent_error", "The agent failed")


# --- declaring --------------------------------------------------------------------------------------------------------


def test_an_invalid_agent_function_is_refused_with_the_reason() -> None:
    def plain(run: Run) -> str:
        return ""

    async def two(run: Run, more: int) -> str:
        return ""

    cases: list[tuple[Callable[..., Any], str]] = [
        (plain, "agent plain: expected an async generator function (`async def` with `yield`)"),
        (two, "agent two: the function must take exactly one parameter, the run"),
    ]
    for function, message in cases:
        with pytest.raises(DeclarationError) as refused:
            agent(function)
        assert str(refused.value) == message


def test_callers_do_not_pass_a_tools_context() -> None:
    @tool
    def who(context: ToolContext, greeting: str) -> str:
        return f"{greeting} {context.user}"

    assert who.bind_arguments(greeting="Hi") == {"greeting": "Hi"}
