"""Files with graphs, as a user serves them, and those that are refused."""

from pathlib import Path

import pytest

pytest.importorskip("langgraph", reason="the extra langgraph is not installed")
pytest.importorskip("langchain", reason="langchain is not installed")

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage

from dragoman.adapters.langgraph import LangGraphAgent
from dragoman.client import AsyncClient, Permission
from dragoman.server.loading import LoadError, load
from tests.adapters.langgraph_models import ScriptedChatModel, calls, in_turn
from tests.protocols.aap.client import AapClient
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.servers import running_socket_server

ROOT = Path(__file__).parent.parent.parent
REHEARSED = ROOT / "examples" / "langgraph" / "rehearsed.py"


async def test_the_example_books_after_an_approval_and_asks_before_it_sends(tmp_path: Path) -> None:
    async with running_socket_server(tmp_path, agents=load(str(REHEARSED)), rehearsal=False) as server:
        client = AapClient(server.connection, server.key("alice"))
        session = await client.create("travel")
        turn = await session.run("two nights in Rome")
        assert (turn.stop, [each.name for each in turn.calls]) == ("tool_use", ["find_hotels", "book_hotel"])
        turn = await session.run([{"role": "tool_permission", "toolCallId": turn.calls[1].id, "granted": True}])
        assert (turn.stop, turn.text) == ("end_turn", "Hotel Rome: 2 nights booked")
        letters = Endpoint(server.connection, server.key("alice"), agent="letters")
        asked = await letters.run(an_input("tea", thread="letter"))
        (interrupt,) = asked.events[-1]["outcome"]["interrupts"]
        assert interrupt["message"] == "Send this? Dear reader, this is about tea."


@pytest.mark.parametrize("names", [["pay"], ["pay", "look"]])
@pytest.mark.parametrize("granted", [True, False])
async def test_over_aap_a_person_is_asked_about_one_call_of_a_step_and_may_answer_the_others_too(
    tmp_path: Path, names: list[str], granted: bool
) -> None:
    ran: list[str] = []

    def pay(amount: int) -> str:
        """Pay."""
        ran.append("pay")
        return f"paid {amount}"

    def look(at: str) -> str:
        """Look."""
        ran.append("look")
        return f"saw {at}"

    model = ScriptedChatModel(script=in_turn(calls(("pay", {"amount": 1}), ("look", {"at": "it"})), AIMessage("ok")))
    graph = create_agent(model, [pay, look], middleware=[HumanInTheLoopMiddleware(interrupt_on={"pay": True})])
    agents = [LangGraphAgent(graph, name="bank")]
    async with (
        running_socket_server(tmp_path, agents=agents, rehearsal=False) as server,
        AsyncClient(server.connection.url, key=server.key("alice")) as client,
    ):
        session = await client.create("bank")
        asked = await session.ask("pay")
        ids = {each.name: each.id for each in asked.calls}
        assert [each.name for each in session.pending if isinstance(each, Permission)] == ["pay"]
        answers = [{"role": "tool_permission", "toolCallId": ids[each], "granted": granted} for each in names]
        raw = AapClient(server.connection, server.key("alice"))
        turn = (await raw.post(f"/sessions/{session.id}/turns", {"messages": answers})).json
        assert (turn["stopReason"], turn["messages"][-1]["content"][-1]["text"]) == ("end_turn", "ok")
        assert sorted(ran) == sorted({"pay", "look"} - (set() if granted else set(names)))


TWO_FIELDS = """
from typing_extensions import TypedDict
class State(TypedDict):
    topic: str
    depth: int
builder = StateGraph(State).add_node("n", lambda state: state).add_edge(START, "n")
pipeline = builder.compile()
"""
UNCOMPILED = TWO_FIELDS.replace("builder", "pipeline").replace("pipeline = pipeline.compile()", "")
NUMBER_INPUT = """
from langgraph.func import entrypoint
@entrypoint()
def pipeline(number: int) -> str:
    return "done"
"""
UNFINISHED = 'pipeline = StateGraph(MessagesState).add_node("n", lambda state: state)'


@pytest.mark.parametrize(
    ("graph", "fault"),
    [
        (TWO_FIELDS, r'pipeline takes \{topic, depth\}: wrap it, LangGraphAgent\(pipeline, name="pipeline", input=…\)'),
        (
            UNCOMPILED,
            r'py: pipeline takes \{topic, depth\}: wrap it, LangGraphAgent\(pipeline, name="pipeline", input=…\)',
        ),
        (
            NUMBER_INPUT,
            r'pipeline takes input of the type integer: wrap it, LangGraphAgent\(pipeline, name="pipeline", inp',
        ),
        (UNFINISHED, "pipeline does not compile"),
    ],
)
def test_a_graph_that_cannot_be_served_is_refused_with_the_way_out(tmp_path: Path, graph: str, fault: str) -> None:
    app = tmp_path / f"refused_{len(graph)}.py"
    app.write_text(f"from langgraph.graph import START, MessagesState, StateGraph\n{graph}\n", encoding="utf-8")
    with pytest.raises(LoadError, match=fault):
        load(f"{app}:pipeline")
