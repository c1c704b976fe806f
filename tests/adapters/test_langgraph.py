"""Graphs of LangGraph and agents of LangChain, run on the real engine: what the log has of them."""

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph", reason="the extra langgraph is not installed")
pytest.importorskip("langchain", reason="langchain is not installed")

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, SummarizationMiddleware
from langchain.agents.structured_output import ProviderStrategy
from langchain_core.messages import AIMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

from dragoman.adapters.langgraph import LangGraphAgent
from dragoman.core.content import AssistantMessage, Data, Thinking, text_of
from dragoman.core.events import BlockClosed, CallSettled, CallStarted, StageChanged
from dragoman.core.inputs import Choice, Decision
from tests.adapters.langgraph_models import ScriptedChatModel, calls, in_turn
from tests.agents.agent_harness import Session, agent_harness


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def said(*answers: Any, **fields: Any) -> ScriptedChatModel:
    """A model that gives these answers in each turn."""
    made = [AIMessage(each) if isinstance(each, str) else each for each in answers]
    return ScriptedChatModel(script=in_turn(*made), **fields)


async def events_of(session: Session, *kinds: type) -> list[Any]:
    return [each for each in await session.events() if isinstance(each, kinds)]


# --- words, calls, results --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [True, False])
async def test_an_agent_answers_with_a_tool_and_remembers_the_conversation(tmp_path: Path, streams: bool) -> None:
    model = said(calls(("add", {"a": 1, "b": 2}), text="let me see"), "It is 3.", streams=streams)
    async with agent_harness(tmp_path, LangGraphAgent(create_agent(model, [add]), name="calc")) as harness:
        session = await harness.session()
        for turn in (1, 2):
            assert await session.send_and_wait(f"turn {turn}") == "end_turn"
        lines = [line.replace(" \n", "\n").strip() for line in await session.summary_lines()]
        expected = ['assistant: let me see add({"a":1,"b":2})', "tool: 3", "assistant: It is 3."]
        assert lines == ["user: turn 1", *expected, "user: turn 2", *expected]
        kinds = [type(each).__name__ for each in await events_of(session, CallStarted, CallSettled)]
        assert kinds == ["CallStarted", "CallSettled"] * 2
        stages = [each.stage for each in await events_of(session, StageChanged)]
        assert stages == ["model", "tools", "model", None] * 2
        step = (await session.messages())[1]
        assert isinstance(step, AssistantMessage)
        assert (step.usage and step.usage.input_tokens, step.calls()[0].origin) == (7, "t1")
        assert [message.type for message in model.asked[-1]] == ["human", "ai", "tool", "ai", "human", "ai", "tool"]


async def test_parallel_calls_of_a_plain_tool_node_each_start_and_settle(tmp_path: Path) -> None:
    async def fail(why: str) -> str:
        """Fail."""
        raise ValueError(why)

    model = said(calls(("add", {"a": 1, "b": 1}), ("fail", {"why": "no"}), ("add", {"a": 2, "b": 2})), "done")
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([add, fail], handle_tool_errors=True))
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    builder.add_edge(START, "agent")
    async with agent_harness(tmp_path, LangGraphAgent(builder.compile(), name="plain")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("go") == "end_turn"
        outcomes = {each.result.name + str(each.result.is_error) for each in await events_of(session, CallSettled)}
        assert outcomes == {"addFalse", "failTrue"}
        assert len(await events_of(session, CallStarted)) == 3
        assert (await session.summary_lines())[-1].strip() == "assistant: done"


async def test_reasoning_custom_events_and_a_structured_answer_are_shown(tmp_path: Path) -> None:
    class Weather(BaseModel):
        city: str
        degrees: int

    @tool
    def measure(city: str) -> str:
        """Measure."""
        from langgraph.config import get_stream_writer

        get_stream_writer()({"progress": city})
        return "21"

    thinking: list[Any] = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "One moment."}]
    first = calls(("measure", {"city": "Rome"}))
    first.content = thinking
    model = said(first, calls(("Weather", {"city": "Rome", "degrees": 21}), ids="w"))
    agent = create_agent(model, [measure], response_format=Weather)
    async with agent_harness(tmp_path, LangGraphAgent(agent, name="weather")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Rome?") == "end_turn"
        blocks = [each.block for each in await events_of(session, BlockClosed)]
        assert Thinking("hm") in blocks
        assert Data({"progress": "Rome"}) in blocks
        assert (await session.summary_lines())[-1] == 'assistant: {"city":"Rome","degrees":21}'


async def test_a_graph_without_messages_gets_the_words_and_answers_with_its_output(tmp_path: Path) -> None:
    class Topic(TypedDict):
        topic: str

    class Joke(TypedDict):
        topic: str
        joke: str

    builder = StateGraph(Joke, input_schema=Topic, output_schema=Joke)
    builder.add_node("write", lambda state: {"joke": f"A {state['topic']} walks into a bar."})
    builder.add_edge(START, "write")
    async with agent_harness(tmp_path, LangGraphAgent(builder.compile(), name="jokes")) as harness:
        session = await harness.session()
        for topic in ("graph", "node"):
            assert await session.send_and_wait(topic) == "end_turn"
        assert (await session.summary_lines())[1::2] == [
            f"assistant: A {each} walks into a bar." for each in ("graph", "node")
        ]


# --- waiting for people -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [True, False])
async def test_calls_that_the_middleware_asks_about_wait_for_permission(tmp_path: Path, allowed: bool) -> None:
    ran: list[int] = []

    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return f"paid {amount}"

    model = said(calls(("pay", {"amount": 1}), ("pay", {"amount": 2})), "ok")
    graph = create_agent(model, [pay], middleware=[HumanInTheLoopMiddleware(interrupt_on={"pay": True})])
    async with agent_harness(tmp_path, LangGraphAgent(graph, name="bank")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("pay") == "tool_use"
        assert await session.pending() == ["pay", "pay"]
        await harness.restart()
        assert ran == []
        live = await session.live()
        first, second = [call.call.call_id for call in live.state.waiting_calls()]
        reason = await session.answer(Decision(call_id=first, granted=allowed), Decision(call_id=second, granted=True))
        assert reason == "end_turn"
        assert sorted(ran) == ([1, 2] if allowed else [2]), "LangGraph runs the calls of a step side by side"
        assert [each.outcome for each in await events_of(session, CallSettled)].count("denied") == (not allowed)
        assert (await session.summary_lines())[-1].strip() == "assistant: ok"


def asking_graph(seen: list[Any], *questions: Any) -> Any:
    """A graph whose nodes each ask a question, at the same time."""

    class State(TypedDict):
        topic: str
        answers: Annotated[list[Any], operator.add]

    def ask(given: dict[str, Any]) -> Any:
        seen.append("begun")
        return {"answers": [interrupt(given["question"])]}

    builder = StateGraph(State)
    builder.add_node("ask", ask)  # type: ignore[arg-type]  # what `Send` gives is not the state
    builder.add_conditional_edges(START, lambda _: [Send("ask", {"question": each}) for each in questions])
    return builder.compile(checkpointer=InMemorySaver())


async def test_an_interrupt_is_a_question_whose_answer_resumes_the_node_from_its_beginning(tmp_path: Path) -> None:
    seen: list[Any] = []
    graph = asking_graph(
        seen, {"question": "Which way?", "options": ["left", "right"]}, "Your name?", {"any": ["json"]}
    )
    agent = LangGraphAgent(
        graph,
        name="asking",
        input=lambda message, _: {"topic": "t", "answers": []},
        output=lambda values: repr(values["answers"]),
    )
    async with agent_harness(tmp_path, agent) as harness:
        session = await harness.session()
        assert await session.send_and_wait("go") == "tool_use"
        live = await session.live()
        asked = list(live.state.waiting_calls())
        assert [call.shown().input["questions"][0]["question"] for call in asked] == [
            "Which way?",
            "Your name?",
            '{"any": ["json"]}',
        ]
        await harness.restart()
        assert len(seen) == 3
        ids = [call.call.call_id for call in asked]
        await session.answer(Choice(call_id=ids[0], selections={"0": [1]}))
        await session.answer(Choice(call_id=ids[1], custom={"0": "Ann"}))
        assert await session.answer(Choice(call_id=ids[2], custom={"0": "[1, 2]"})) == "end_turn"
        assert (await session.summary_lines())[-1] == "assistant: ['right', 'Ann', [1, 2]]"
        assert len(seen) == 6
        assert [each.outcome for each in await events_of(session, CallSettled)] == ["done"] * 3


async def test_an_interrupt_in_a_tool_lets_its_own_call_wait(tmp_path: Path) -> None:
    def book(hotel: str) -> str:
        """Book."""
        return f"{hotel}: {interrupt('How many nights?')} nights"

    graph = create_agent(said(calls(("book", {"hotel": "Ritz"})), "booked"), [book])
    async with agent_harness(tmp_path, LangGraphAgent(graph, name="travel")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("book") == "tool_use"
        await harness.restart()
        assert await session.choose(custom_text="three") == "end_turn"
        (settled,) = await events_of(session, CallSettled)
        assert (settled.result.name, settled.result.content) == ("book", "Ritz: three nights")


async def test_a_graph_that_stops_before_a_node_asks_whether_to_continue(tmp_path: Path) -> None:
    graph = create_agent(said(calls(("add", {"a": 1, "b": 2})), "3"), [add], interrupt_before=["tools"])
    async with agent_harness(tmp_path, LangGraphAgent(graph, name="careful")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("1 + 2") == "tool_use"
        assert await session.choose(0) == "end_turn"
        assert (await session.summary_lines())[-1].strip() == "assistant: 3"
        assert await session.send_and_wait("once more") == "tool_use"
        assert await session.choose(1) == "end_turn"
        assert (await session.summary_lines())[-1].strip() != "assistant: 3"


# --- the session's history --------------------------------------------------------------------------------------------


async def test_a_new_message_while_something_waits_closes_the_open_calls(tmp_path: Path) -> None:
    model = said(calls(("add", {"a": 1, "b": 2})), "3")
    graph = create_agent(model, [add], middleware=[HumanInTheLoopMiddleware(interrupt_on={"add": True})])
    async with agent_harness(tmp_path, LangGraphAgent(graph, name="calc")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("1 + 2") == "tool_use"
        model.script = in_turn(AIMessage("never mind"))
        assert await session.send_and_wait("forget it") == "end_turn"
        assert (await session.summary_lines())[-1].strip() == "assistant: never mind"
        assert [each.type for each in model.asked[-1]] == ["human", "ai", "tool", "human"]


async def test_an_edited_message_continues_from_the_checkpoint_before_it(tmp_path: Path) -> None:
    model = ScriptedChatModel(script=lambda messages: AIMessage(f"heard {len(messages)}"))
    async with agent_harness(tmp_path, LangGraphAgent(create_agent(model, []), name="chat")) as harness:
        session = await harness.session()
        for text in ("one", "two", "three"):
            await session.send_and_wait(text)
        live = await session.live()
        messages = await session.messages()
        for text, kept in (("two, edited", 2), ("first, edited", 0), ("and on", 2)):
            live = await session.live()
            if text != "and on":
                seq = await place_of(session, messages[kept].id)
                await harness.engine.rewind(live, seq)
            assert await session.send_and_wait(text) == "end_turn"
            assert [message.content for message in model.asked[-1] if message.type == "human"][-1] == text
            assert len(model.asked[-1]) == kept + 1


async def place_of(session: Session, message_id: str) -> int:
    """The number of the event that added a user's message."""
    for seq, event in enumerate(await session.events(), 1):
        if getattr(getattr(event, "message", None), "id", None) == message_id:
            return seq
    raise AssertionError(message_id)


async def test_a_stopped_run_leaves_its_calls_closed_and_the_next_message_continues(tmp_path: Path) -> None:
    entered = asyncio.Event()

    async def hang() -> str:
        """Hang."""
        entered.set()
        await asyncio.sleep(3600)
        return ""

    model = said(calls(("hang", {})), "never")
    async with agent_harness(tmp_path, LangGraphAgent(create_agent(model, [hang]), name="slow")) as harness:
        session = await harness.session()
        await session.send("go")
        async with asyncio.timeout(60):
            await entered.wait()
        await harness.engine.stop_run(await session.live())
        assert (await session.stop()).reason == "cancelled"
        model.script = in_turn(AIMessage("here again"))
        assert await session.send_and_wait("still there?") == "end_turn"
        assert (await session.summary_lines())[-1].strip() == "assistant: here again"
        assert [each.type for each in model.asked[-1]] == ["human", "ai", "tool", "human"]


async def test_the_checkpoints_inside_finished_turns_are_dropped(tmp_path: Path) -> None:
    model = said(calls(("add", {"a": 1, "b": 2})), "3")
    async with agent_harness(tmp_path, LangGraphAgent(create_agent(model, [add]), name="calc")) as harness:
        session = await harness.session()
        for turn in range(3):
            assert await session.send_and_wait(f"turn {turn}") == "end_turn"
        kept = await harness.engine.index.kept(session.id, "lg/", None, 1000)  # type: ignore[attr-defined]  # one object
        kinds = [key.split("/")[3] for key in kept]
        assert (kinds.count("c"), kinds.count("w")) == (3, 0)
        assert len(model.asked[-1]) == 11, "nothing of the conversation is lost"


async def test_the_state_of_a_graph_with_subgraphs_is_whole_in_the_next_turn(tmp_path: Path) -> None:
    class Team(MessagesState):
        active: str

    seen: list[str | None] = []

    def choose(state: Team) -> dict[str, str]:
        seen.append(state.get("active"))
        return {"active": "bob"}

    bob = StateGraph(MessagesState).add_node("say", lambda state: {"messages": [AIMessage("I am Bob")]})
    builder = StateGraph(Team).add_node("choose", choose).add_node("bob", bob.add_edge(START, "say").compile())
    graph = builder.add_edge(START, "choose").add_edge("choose", "bob").compile()
    async with agent_harness(tmp_path, LangGraphAgent(graph, name="team")) as harness:
        session = await harness.session()
        for prompt in ("one", "two"):
            assert await session.send_and_wait(prompt) == "end_turn"
    assert seen == [None, "bob"]


async def test_a_failing_tool_and_a_failing_model_end_the_run_with_their_own_codes(tmp_path: Path) -> None:
    def explode() -> str:
        """Explode."""
        raise LookupError("secret details")

    class APIConnectionError(Exception):
        """As provider packages name it."""

    model = said(calls(("explode", {})), "never")
    async with agent_harness(tmp_path, LangGraphAgent(create_agent(model, [explode]), name="bad")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("go") == "error"
        stopped = await session.stop()
        assert (stopped.code, "secret" in str(stopped.message)) == ("agent_error", False)
        (settled,) = await events_of(session, CallSettled)
        assert settled.outcome == "failed"
        model.script = lambda _: APIConnectionError("secret host")
        assert await session.send_and_wait("again") == "error"
        assert (await session.stop()).code == "model_unavailable"


async def test_what_middleware_asks_a_model_for_itself_is_no_part_of_the_answer(tmp_path: Path) -> None:
    counted = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    summarizer = said(AIMessage("a summary", usage_metadata=counted))
    agent = create_agent(
        said(AIMessage("the answer", usage_metadata=counted)),
        [add],
        middleware=[SummarizationMiddleware(summarizer, trigger=("messages", 2), keep=("messages", 1))],
    )
    async with agent_harness(tmp_path, LangGraphAgent(agent, name="chat")) as harness:
        session = await harness.session()
        for turn in ("one", "two"):
            assert await session.send_and_wait(turn) == "end_turn"
        lines = [line.strip() for line in await session.summary_lines()]
        assert lines == ["user: one", "assistant: the answer", "user: two", "assistant: the answer"]
        assert len(summarizer.asked) == 1
        first, _, second = (await session.messages())[1:]
        tokens = [
            isinstance(each, AssistantMessage) and each.usage and each.usage.input_tokens for each in (first, second)
        ]
        assert tokens == [7, 14]


async def test_a_structured_answer_that_the_model_spoke_is_not_repeated(tmp_path: Path) -> None:
    class Weather(BaseModel):
        city: str
        degrees: int = 21

    agent = create_agent(said('{ "city": "Rome" }'), [], response_format=ProviderStrategy(Weather))
    async with agent_harness(tmp_path, LangGraphAgent(agent, name="weather")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Rome?") == "end_turn"
        assert await session.summary_lines() == ["user: Rome?", 'assistant: { "city": "Rome" }']


async def test_an_exception_that_ends_the_run_is_the_result_of_the_call_that_raised_it(tmp_path: Path) -> None:
    has_begun = asyncio.Event()

    async def wait() -> None:
        """Wait."""
        has_begun.set()
        await asyncio.Event().wait()

    async def explode() -> str:
        """Explode."""
        await has_begun.wait()
        raise LookupError("secret details")

    agent = create_agent(said(calls(("wait", {}), ("explode", {}))), [wait, explode])
    async with agent_harness(tmp_path, LangGraphAgent(agent, name="bad")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("go") == "error"
        results = [(each.outcome, each.result.content) for each in await events_of(session, CallSettled)]
        assert sorted(results) == [
            ("cancelled", "Tool call cancelled while it ran: the run failed"),
            ("failed", "Tool execution failed: LookupError"),
        ]


async def test_a_handoff_to_another_agent_shows_the_result_that_its_tool_wrote(tmp_path: Path) -> None:
    @tool
    def hand_off(tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Hand off."""
        result = {"role": "tool", "content": "handed off", "name": "hand_off", "tool_call_id": tool_call_id}
        return Command(goto="helper", update={"messages": [result]}, graph=Command.PARENT)

    builder = StateGraph(MessagesState)
    builder.add_node("desk", create_agent(said(calls(("hand_off", {}))), [hand_off]), destinations=("helper",))
    builder.add_node("helper", create_agent(said("It is 3."), [add]))
    builder.add_edge(START, "desk")
    async with agent_harness(tmp_path, LangGraphAgent(builder.compile(), name="desk")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("go") == "end_turn"
        lines = [line.strip() for line in await session.summary_lines()]
        assert lines == ["user: go", "assistant: hand_off({})", "tool: handed off", "assistant: It is 3."]


async def test_the_words_of_an_agent_in_a_tool_are_the_tools_work_and_no_part_of_the_answer(tmp_path: Path) -> None:
    counted = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    inner = create_agent(said(calls(("add", {"a": 1, "b": 2}), ids="i"), AIMessage("3", usage_metadata=counted)), [add])

    async def research(question: str) -> str:
        """Research."""
        found = await inner.ainvoke({"messages": [{"role": "user", "content": question}]})
        return f"found: {found['messages'][-1].text}"

    agent = create_agent(said(calls(("research", {"question": "1 + 2?"})), "It is 3."), [research])
    async with agent_harness(tmp_path, LangGraphAgent(agent, name="boss")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("go") == "end_turn"
        messages = await session.messages()
        answers = [text_of(each.content) for each in messages if isinstance(each, AssistantMessage)]
        assert [each for each in answers if each] == ["It is 3."]
        assert "tool: found: 3" in [line.strip() for line in await session.summary_lines()]
        used = [each.usage.input_tokens for each in messages if isinstance(each, AssistantMessage) and each.usage]
        assert sum(used) == 21, "three answers with usage"


async def test_the_result_of_a_tool_that_returns_directly_is_the_answer(tmp_path: Path) -> None:
    @tool(return_direct=True)
    def look_up(word: str) -> str:
        """Look up."""
        return f"{word}: a word"

    agent = create_agent(said(calls(("look_up", {"word": "tree"})), "never"), [look_up])
    async with agent_harness(tmp_path, LangGraphAgent(agent, name="lexicon")) as harness:
        session = await harness.session()
        for _ in range(2):
            assert await session.send_and_wait("tree?") == "end_turn"
        lines = [line.strip() for line in await session.summary_lines()]
        asked = ["user: tree?", 'assistant: look_up({"word":"tree"})', "tool: tree: a word", "assistant: tree: a word"]
        assert lines == asked * 2


async def test_a_subgraphs_words_are_the_answer_and_its_nodes_are_stages(tmp_path: Path) -> None:
    inner = create_agent(said(calls(("add", {"a": 1, "b": 2})), "It is 3."), [add])
    builder = StateGraph(MessagesState)
    builder.add_node("helper", inner)
    builder.add_edge(START, "helper")
    async with agent_harness(tmp_path, LangGraphAgent(builder.compile(), name="outer")) as harness:
        session = await harness.session()
        for _ in range(2):
            assert await session.send_and_wait("1 + 2?") == "end_turn"
        lines = [line.strip() for line in await session.summary_lines()]
        assert lines == ["user: 1 + 2?", 'assistant: add({"a":1,"b":2})', "tool: 3", "assistant: It is 3."] * 2
        stages = [each.stage for each in await events_of(session, StageChanged)]
        assert stages[:5] == ["helper", "helper/model", "helper/tools", "helper/model", None]
