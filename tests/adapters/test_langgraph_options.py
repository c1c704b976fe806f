"""What a wrapper says about a graph, and the forms that graphs come in besides agents."""

import asyncio
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

pytest.importorskip("langgraph", reason="the extra langgraph is not installed")
pytest.importorskip("langchain", reason="langchain is not installed")

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict

from dragoman.adapters.langgraph import LangGraphAgent
from dragoman.adapters.run_info import RunInfo
from dragoman.core.content import AssistantMessage, Image, Text
from dragoman.core.events import CallSettled
from dragoman.core.inputs import Choice, Decision
from dragoman.core.stream import START as BEGINNING
from dragoman.core.tools import SecretOption, TextOption
from tests.adapters.langgraph_models import ScriptedChatModel, calls, in_turn
from tests.agents.agent_harness import Session, agent_harness
from tests.asgi_client import DEADLINE_S

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Topic(TypedDict):
    topic: str


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def said(*answers: Any, **fields: Any) -> ScriptedChatModel:
    """A model that gives these answers in each turn."""
    made = [AIMessage(each) if isinstance(each, str) else each for each in answers]
    return ScriptedChatModel(script=in_turn(*made), **fields)


def read_all(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


async def lines_of(session: Session) -> list[str]:
    return [line.replace(" \n", "\n").strip() for line in await session.summary_lines()]


# --- context ----------------------------------------------------------------------------------------------------------


@dataclass
class Caller:
    user: str
    tone: str = "plain"


def greeting() -> StateGraph[Any, Any, Any, Any]:
    """A graph that reads its context."""

    def greet(state: MessagesState, runtime: Runtime[Caller]) -> Any:
        return {"messages": [AIMessage(f"Dear {runtime.context.user}, {runtime.context.tone}")]}

    return StateGraph(MessagesState, context_schema=Caller).add_node("greet", greet).add_edge(START, "greet")


async def test_a_context_whose_fields_have_defaults_needs_no_wrapper(tmp_path: Path) -> None:
    @dataclass
    class Tone:
        tone: str = "plain"

    def greet(state: MessagesState, runtime: Runtime[Tone]) -> Any:
        return {"messages": [AIMessage(f"Dear you, {runtime.context.tone}")]}

    graph = StateGraph(MessagesState, context_schema=Tone).add_node(greet).add_edge(START, "greet").compile()
    async with agent_harness(tmp_path, LangGraphAgent(graph, name="greeting")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("hello") == "end_turn"
        assert (await lines_of(session))[-1] == "assistant: Dear you, plain"


@pytest.mark.parametrize("kind", ["value", "function", "async function"])
async def test_a_graph_reads_the_context_that_its_wrapper_gives_it_for_the_run(tmp_path: Path, kind: str) -> None:
    async def find(info: RunInfo) -> Caller:
        return Caller(info.user, "warm")

    context: Any = {"value": Caller("ann", "warm"), "function": lambda info: Caller(info.user, "warm")}.get(kind, find)
    agent = LangGraphAgent(greeting().compile(), name="greeting", context=context)
    async with agent_harness(tmp_path, agent) as harness:
        session = await harness.session()
        assert await session.send_and_wait("hello") == "end_turn"
        assert await lines_of(session) == ["user: hello", "assistant: Dear ann, warm"]


@pytest.mark.parametrize("checkpointer", ["dragoman", "own"])
async def test_a_secret_option_reaches_the_graph_and_is_in_no_checkpoint(tmp_path: Path, checkpointer: Any) -> None:
    secret = "pin-7382-pin"
    configured: list[tuple[str | None, str]] = []

    def read(config: RunnableConfig) -> None:
        assert get_runtime(Caller).context.tone == secret
        configured.append((config["configurable"].get("pin"), config["configurable"]["tone"]))

    def inner(state: MessagesState, config: RunnableConfig) -> Any:
        read(config)
        return {"messages": [AIMessage(f"You said {interrupt('Sure?')}")]}

    def outer(state: MessagesState, config: RunnableConfig) -> Any:
        read(config)
        return {}

    part = StateGraph(MessagesState, context_schema=Caller).add_node(inner).add_edge(START, "inner").compile()
    whole = StateGraph(MessagesState, context_schema=Caller).add_node(outer).add_node("part", part)
    saver = InMemorySaver()
    agent = LangGraphAgent(
        whole.add_edge(START, "outer").add_edge("outer", "part").compile(checkpointer=saver),
        name="safe",
        checkpointer=checkpointer,
        options=[SecretOption(name="pin"), TextOption(name="tone", default="warm")],
        context=lambda info: Caller(info.user, info.options["pin"]),
    )
    async with agent_harness(tmp_path, agent) as harness:
        session = await harness.session(options={"pin": secret})
        assert await session.send_and_wait("hello") == "tool_use"
        files = read_all(tmp_path)
        assert await session.choose(custom_text="yes") == "end_turn"
        assert (await lines_of(session))[-1] == "assistant: You said yes"
        files += read_all(tmp_path)
        assert secret[::-1].encode() in files, "the option is stored encrypted: what is searched is the data"
        assert secret.encode() not in files
        assert secret not in repr([each.metadata async for each in saver.alist(None)])
        assert set(configured) == {(secret if checkpointer == "dragoman" else None, "warm")}


# --- words and pictures -----------------------------------------------------------------------------------------------


async def test_branches_that_speak_at_once_are_whole_messages_one_after_the_other(tmp_path: Path) -> None:
    meet = asyncio.Barrier(3)
    heard: list[Any] = []

    def branch(name: str) -> Any:
        class Meeting(ScriptedChatModel):
            async def _astream(self, *given: Any, **options: Any) -> Any:
                async for chunk in super()._astream(*given, **options):
                    if chunk.text:
                        await meet.wait()  # each word is said when all three branches are at it
                    yield chunk

        model = Meeting(script=lambda _: AIMessage(f"{name} one two"))

        async def speak(state: MessagesState) -> Any:
            return {"messages": [await model.ainvoke(state["messages"])]}

        return speak

    def collect(state: MessagesState) -> Any:
        heard.append([each.text.strip() for each in state["messages"]])
        return {}

    builder = StateGraph(MessagesState).add_node("collect", collect)
    for name in ("left", "middle", "right"):
        builder.add_node(name, branch(name))
        builder.add_edge(START, name)
        builder.add_edge(name, "collect")
    async with agent_harness(tmp_path, LangGraphAgent(builder.compile(), name="branches")) as harness:
        session = await harness.session()
        for _ in range(2):
            assert await session.send_and_wait("go") == "end_turn"
        lines = await lines_of(session)
        spoken = [f"assistant: {name} one two" for name in ("left", "middle", "right")]
        assert (lines[0], sorted(lines[1:4]), lines[4], sorted(lines[5:])) == ("user: go", spoken, "user: go", spoken)
        assert [len(each) for each in heard] == [4, 8]


async def test_an_answer_is_streamed_once_if_only_its_first_chunk_has_the_id_of_the_provider(tmp_path: Path) -> None:
    was_seen = asyncio.Event()

    class Waiting(ScriptedChatModel):
        async def _astream(self, *given: Any, **options: Any) -> Any:
            async for chunk in super()._astream(*given, **options):
                yield chunk
                if chunk.text == "Yes, ":
                    await was_seen.wait()

    script = in_turn(calls(("add", {"a": 1, "b": 2}), text="Let me see."), AIMessage("Yes, three."))
    model = Waiting(script=script, names_messages=True)
    async with agent_harness(tmp_path, LangGraphAgent(create_agent(model, [add]), name="agent")) as harness:
        session = await harness.session()
        await session.send("1 + 2")
        seen: list[Any] = []
        async with asyncio.timeout(DEADLINE_S):
            with harness.engine.follow(await session.live(), BEGINNING) as reader:
                while "Yes, " not in str(seen):
                    seen += await reader.next()
        was_seen.set()
        assert await session.wait_for_end() == "end_turn"
        shown = ['assistant: Let me see. add({"a":1,"b":2})', "tool: 3", "assistant: Yes, three."]
        assert await lines_of(session) == ["user: 1 + 2", *shown]


@pytest.mark.parametrize("form", [tuple, dict, AIMessage])
@pytest.mark.parametrize("speaks", [False, True], ids=["whole", "streamed"])
async def test_what_nodes_return_in_any_form_is_said_once(tmp_path: Path, form: Any, speaks: bool) -> None:
    """LangGraph's documentation returns messages as pairs and as objects, also those that a model has spoken."""
    model = said("It is noon.")

    async def answer(state: MessagesState) -> Any:
        text = (await model.ainvoke(state["messages"])).text if speaks else "It is noon."
        made = {tuple: ("assistant", text), dict: {"role": "assistant", "content": text}, AIMessage: AIMessage(text)}
        return {"messages": [made[form]]}

    graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").compile()
    async with agent_harness(tmp_path, LangGraphAgent(graph, name="clock")) as harness:
        session = await harness.session()
        for _ in range(2):
            assert await session.send_and_wait("What time is it?") == "end_turn"
        assert await lines_of(session) == 2 * ["user: What time is it?", "assistant: It is noon."]


async def test_a_graph_that_rewrites_its_input_answers_with_it(tmp_path: Path) -> None:
    def shout(state: Topic) -> Any:
        return {"topic": state["topic"].upper()}

    graph = StateGraph(Topic).add_node(shout).add_edge(START, "shout").compile()
    async with agent_harness(tmp_path, LangGraphAgent(graph, name="shout")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("hello") == "end_turn"
        assert (await lines_of(session))[-1] == "assistant: HELLO"


async def test_pictures_reach_the_model_and_pictures_of_the_model_are_shown(tmp_path: Path) -> None:
    picture = AIMessage(
        [{"type": "text", "text": "Here."}, {"type": "image", "base64": PIXEL, "mime_type": "image/png"}]
    )
    model = said(picture)
    async with agent_harness(tmp_path, LangGraphAgent(create_agent(model, []), name="painter")) as harness:
        session = await harness.session()
        shown = (Text("Like this?"), Image(f"data:image/png;base64,{PIXEL}"), Image("https://example.com/a.png"))
        assert await session.send_and_wait(shown) == "end_turn"
        assert model.asked[-1][0].content_blocks == [
            {"type": "text", "text": "Like this?"},
            {"type": "image", "base64": PIXEL, "mime_type": "image/png"},
            {"type": "image", "url": "https://example.com/a.png"},
        ]
        answer = (await session.messages())[-1]
        assert isinstance(answer, AssistantMessage)
        assert [type(each) for each in answer.content] == [Text, Image]
        assert await session.send_and_wait("again") == "end_turn"
        assert len([each for each in model.asked[-1][1].content_blocks if each["type"] == "image"]) == 1


async def test_only_the_nodes_that_speak_are_heard(tmp_path: Path) -> None:
    def node(words: str) -> Any:
        model = said(words)

        async def speak(state: MessagesState) -> Any:
            return {"messages": [await model.ainvoke(state["messages"][:1])]}

        return speak

    builder = StateGraph(MessagesState).add_node("plan", node("secret plan")).add_node("answer", node("The answer."))
    builder.add_node("note", lambda state: {"messages": [AIMessage("a note")]})
    builder.add_node("close", lambda state: {"messages": [AIMessage("Bye.")]})
    builder.add_edge(START, "plan").add_edge("plan", "answer").add_edge("answer", "note")
    builder.add_conditional_edges("note", lambda _: [Send("close", {"messages": []})])
    agent = LangGraphAgent(builder.compile(), name="planner", speaks=["answer", "close"])
    async with agent_harness(tmp_path, agent) as harness:
        session = await harness.session()
        assert await session.send_and_wait("go") == "end_turn"
        assert await lines_of(session) == ["user: go", "assistant: The answer.", "assistant: Bye."]


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asks", [True, False])
async def test_a_graph_may_keep_its_own_checkpointer(tmp_path: Path, asks: bool) -> None:
    saver = InMemorySaver()
    model = said(calls(("add", {"a": 1, "b": 2}), text="let me see"), "It is 3.")
    gate = HumanInTheLoopMiddleware(interrupt_on={"add": asks})
    agent = LangGraphAgent(
        create_agent(model, [add], middleware=[gate], checkpointer=saver), name="calc", checkpointer="own"
    )
    async with agent_harness(tmp_path, agent) as harness:
        session = await harness.session()
        for turn in (1, 2):
            assert await session.send_and_wait(f"turn {turn}") == ("tool_use" if asks else "end_turn")
            if asks:
                assert await session.allow() == "end_turn"
        expected = ['assistant: let me see add({"a":1,"b":2})', "tool: 3", "assistant: It is 3."]
        assert await lines_of(session) == ["user: turn 1", *expected, "user: turn 2", *expected]
        thread: Any = {"configurable": {"thread_id": session.id}}
        state = await create_agent(model, [add], checkpointer=saver).aget_state(thread)
        assert [each.type for each in state.values["messages"]] == ["human", "ai", "tool", "ai"] * 2
        await agent.forget(session.id)
        assert await saver.aget_tuple(thread) is None


@pytest.mark.parametrize(("keep", "checkpoints"), [("turns", 2), ("all", 10)])
async def test_the_checkpoints_inside_turns_stay_if_the_wrapper_says_so(
    tmp_path: Path, keep: Any, checkpoints: int
) -> None:
    graph = create_agent(said(calls(("add", {"a": 1, "b": 2})), "3"), [add])
    async with agent_harness(tmp_path, LangGraphAgent(graph, name="calc", keep_checkpoints=keep)) as harness:
        session = await harness.session()
        for _ in range(2):
            assert await session.send_and_wait("1 + 2") == "end_turn"
        kept = await harness.engine.index.kept(session.id, "lg/", None, 1000)  # type: ignore[attr-defined]  # one object
        assert [key.split("/")[3] for key in kept].count("c") == checkpoints


async def test_a_graph_that_a_node_invokes_in_a_thread_keeps_its_checkpoints(tmp_path: Path) -> None:
    class State(TypedDict):
        topic: str
        done: Annotated[list[str], operator.add]

    ran: list[str] = []

    def first(state: State) -> Any:
        ran.append("first")
        return {"done": ["first"]}

    def second(state: State) -> Any:
        return {"done": [interrupt("Sure?")]}

    inner = StateGraph(State).add_node(first).add_node(second).add_edge(START, "first").add_edge("first", "second")
    compiled = inner.compile()

    class Answer(TypedDict):
        topic: str
        answer: str

    def outer(state: Topic) -> Any:
        found = compiled.invoke({"topic": state["topic"], "done": []})
        return {"answer": " ".join(found["done"])}

    builder = StateGraph(Answer, input_schema=Topic).add_node(outer).add_edge(START, "outer")
    async with agent_harness(tmp_path, LangGraphAgent(builder.compile(), name="outer")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("tea") == "tool_use"
        await harness.restart()
        assert await session.choose(custom_text="yes") == "end_turn"
        assert (await lines_of(session))[-1] == "assistant: first yes"
        assert ran == ["first"], "the inner graph continued at its checkpoint"


# --- workflows, and stops between nodes -------------------------------------------------------------------------------


async def test_a_workflow_answers_with_its_result_and_its_tasks_run_once(tmp_path: Path) -> None:
    ran: list[str] = []

    @task
    def write(topic: str) -> str:
        ran.append(topic)
        return f"An essay about {topic}"

    @entrypoint()
    def essay(topic: str, *, previous: Any = None) -> Any:
        text = write(topic).result()
        answer = interrupt(f"Good? {text}")
        number = (previous or 0) + 1
        return entrypoint.final(value=f"{number}. {text}: {answer}", save=number)

    async with agent_harness(tmp_path, LangGraphAgent(essay, name="essay")) as harness:
        session = await harness.session()
        for number, topic in enumerate(("cats", "dogs"), 1):
            assert await session.send_and_wait(topic) == "tool_use"
            await harness.restart()
            assert await session.choose(custom_text="yes") == "end_turn"
            assert (await lines_of(session))[-1] == f"assistant: {number}. An essay about {topic}: yes"
        assert ran == ["cats", "dogs"]


@pytest.mark.parametrize("keeps", [False, True], ids=["stateless", "previous"])
async def test_a_workflow_that_takes_messages_gets_those_that_it_does_not_keep(tmp_path: Path, keeps: bool) -> None:
    model = said(calls(("add", {"a": 1, "b": 2})), "3")

    @task
    def ask(messages: list[BaseMessage]) -> AIMessage:
        return model.invoke(messages)

    @task
    def run_tool(made: Any) -> Any:
        return tool(add).invoke(made)

    @entrypoint(checkpointer=InMemorySaver() if keeps else None)
    def agent(messages: list[BaseMessage], *, previous: Any = None) -> list[BaseMessage]:
        if keeps:
            messages = [*(previous or []), *messages]
        while (answer := ask(messages).result()).tool_calls:
            messages = [*messages, answer, *(run_tool(each).result() for each in answer.tool_calls)]
        return [*messages, answer]

    async with agent_harness(tmp_path, LangGraphAgent(agent, name="agent")) as harness:
        session = await harness.session()
        for words in ("1 + 2", "again"):
            assert await session.send_and_wait(words) == "end_turn"
        shown = ['assistant: add({"a":1,"b":2})', "tool: 3", "assistant: 3"]
        assert await lines_of(session) == ["user: 1 + 2", *shown, "user: again", *shown]
    conversation = [each.content for each in model.asked[-1] if each.type == "human"]
    assert conversation == ["1 + 2", "again"]


async def test_a_graph_that_stops_after_a_node_asks_whether_to_continue(tmp_path: Path) -> None:
    graph = create_agent(said(calls(("add", {"a": 1, "b": 2})), "3"), [add], interrupt_after=["tools"])
    async with agent_harness(tmp_path, LangGraphAgent(graph, name="careful")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("1 + 2") == "tool_use"
        live = await session.live()
        (asked,) = live.state.waiting_calls()
        assert asked.shown().input["questions"][0]["question"] == "Go on with model?"
        assert (await lines_of(session))[2] == "tool: 3"
        await harness.restart()
        assert await session.choose(0) == "end_turn"
        assert (await lines_of(session))[-1] == "assistant: 3"


async def test_a_question_with_several_choices_is_answered_with_a_list(tmp_path: Path) -> None:
    class Chosen(TypedDict):
        topic: str
        answer: str

    def choose(state: Topic) -> Any:
        question = {"prompt": "Which?", "choices": [{"label": "a", "description": "A"}, "b", "c"], "multiple": True}
        return {"answer": repr(interrupt(question))}

    builder = StateGraph(Chosen, input_schema=Topic).add_node(choose).add_edge(START, "choose")
    async with agent_harness(tmp_path, LangGraphAgent(builder.compile(), name="chooser")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("letters") == "tool_use"
        several = Choice(call_id=await session.waiting_call_id(), selections={"0": [0, 2]})
        assert await session.answer(several) == "end_turn"
        assert (await lines_of(session))[-1] == "assistant: ['a', 'c']"


# --- trust ------------------------------------------------------------------------------------------------------------


async def test_what_the_session_trusts_runs_without_asking_and_the_rest_still_waits(tmp_path: Path) -> None:
    ran: list[str] = []

    def pay(amount: int) -> str:
        """Pay."""
        ran.append(f"pay {amount}")
        return f"paid {amount}"

    def book(hotel: str) -> str:
        """Book."""
        ran.append(f"book {hotel}")
        return f"booked {hotel}"

    both = calls(("pay", {"amount": 2}), ("book", {"hotel": "Ritz"}), ids="u")
    model = said(calls(("pay", {"amount": 1})), "paid")
    gate = HumanInTheLoopMiddleware(interrupt_on={"pay": True, "book": True})
    agent = LangGraphAgent(create_agent(model, [pay, book], middleware=[gate]), name="bank")
    async with agent_harness(tmp_path, agent) as harness:
        session = await harness.session()
        assert await session.send_and_wait("pay") == "tool_use"
        always = Decision(call_id=await session.waiting_call_id(), granted=True, remember=True)
        assert await session.answer(always) == "end_turn"
        assert await session.send_and_wait("again") == "end_turn"
        assert ran == ["pay 1", "pay 1"]
        model.script = in_turn(both, AIMessage("all done"))
        assert await session.send_and_wait("both") == "tool_use"
        assert await session.pending() == ["book"]
        assert await session.allow() == "end_turn"
        assert sorted(ran[2:]) == ["book Ritz", "pay 2"]  # in threads, side by side
        outcomes = [each.outcome for each in await session.events() if isinstance(each, CallSettled)]
        assert outcomes == ["done"] * 4


@pytest.mark.parametrize("granted", [True, False])
async def test_an_approval_that_no_model_announced_is_a_call_with_the_decision(tmp_path: Path, granted: bool) -> None:
    class State(TypedDict):
        topic: str
        answer: str

    def publish(state: State) -> Any:
        asked = interrupt({"action_requests": [{"name": "publish", "args": {"topic": state["topic"]}}]})
        return {"answer": asked["decisions"][0]["type"]}

    builder = StateGraph(State, input_schema=Topic).add_node(publish).add_edge(START, "publish")
    async with agent_harness(tmp_path, LangGraphAgent(builder.compile(), name="press")) as harness:
        session = await harness.session()
        assert await session.send_and_wait("tea") == "tool_use"
        assert await session.pending() == ["publish"]
        assert await (session.allow() if granted else session.deny()) == "end_turn"
        assert (await lines_of(session))[-1] == f"assistant: {'approve' if granted else 'reject'}"
        (settled,) = [each for each in await session.events() if isinstance(each, CallSettled)]
        assert (settled.outcome, settled.result.content) == (
            ("done", "Approved") if granted else ("denied", "Tool call denied")
        )
