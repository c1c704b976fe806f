"""Files with graphs, as a user serves them, and those that are refused."""

from pathlib import Path

import pytest

pytest.importorskip("langgraph", reason="the extra langgraph is not installed")
pytest.importorskip("langchain", reason="langchain is not installed")

from dragoman.server.loading import LoadError, load
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
