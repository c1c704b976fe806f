"""The program with a file of LangGraph: the examples as a user serves them, and kill -9 in the middle of a tool."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph", reason="the extra langgraph is not installed")
pytest.importorskip("langchain", reason="langchain is not installed")

from dragoman.agents.loading import LoadError, load
from tests.protocols.aap.client import AapClient
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.servers import running_socket_server, server_process

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


APP = '''
import asyncio, pathlib
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from tests.adapters.langgraph_models import ScriptedChatModel, calls, in_turn

FOLDER = pathlib.Path({folder!r})


async def pay(amount: int) -> str:
    """Pay."""
    with (FOLDER / "paid").open("a") as paid:
        paid.write(f"{{amount}} ")
    if amount == 2:
        (FOLDER / "entered").touch()
        await asyncio.sleep(3600)
    return f"paid {{amount}}"


script = in_turn(calls(("pay", {{"amount": 1}}), ("pay", {{"amount": 2}}), text="paying"), AIMessage("All paid."))
bank = create_agent(ScriptedChatModel(script=script), [pay])
'''


async def test_no_payment_is_made_twice_when_the_server_is_killed_in_the_middle(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP.format(folder=str(tmp_path)), encoding="utf-8")
    async with server_process(tmp_path / "data", agents=app) as server:
        session = await AapClient(server.connection, server.key("alice")).create("bank")
        watching = asyncio.ensure_future(session.post([{"role": "user", "content": "pay both"}]))
        async with asyncio.timeout(60):
            while not (tmp_path / "entered").exists():  # noqa: ASYNC110  # another process touches it
                await asyncio.sleep(0.05)
        watching.cancel()
        await asyncio.wait([watching])
        await server.crash()
        session = session.as_client(AapClient(server.connection, server.key("alice")))
        async with asyncio.timeout(60):
            history: list[Any] = []
            while not history or "All paid." not in str(history[-1]):
                history = await session.history()
        assert (tmp_path / "paid").read_text() == "1 2 "
        results = [str(each["content"]) for each in history if each["role"] == "tool"]
        assert [any(text in each for each in results) for text in ("paid 1", "interrupted")] == [True, True]
        assert [each["role"] for each in history].count("user") == 1


TWO_FIELDS = """
from typing_extensions import TypedDict
class State(TypedDict):
    topic: str
    depth: int
builder = StateGraph(State).add_node("n", lambda state: state).add_edge(START, "n")
pipeline = builder.compile()
"""
UNFINISHED = 'pipeline = StateGraph(MessagesState).add_node("n", lambda state: state)'


@pytest.mark.parametrize(
    ("graph", "fault"),
    [
        (TWO_FIELDS, r"pipeline takes \{topic, depth\}: wrap it, LangGraphAgent\(pipeline, input=…\)"),
        (UNFINISHED, "pipeline does not compile"),
    ],
)
def test_a_graph_that_cannot_be_served_is_refused_with_the_way_out(tmp_path: Path, graph: str, fault: str) -> None:
    app = tmp_path / f"refused_{len(graph)}.py"
    app.write_text(f"from langgraph.graph import START, MessagesState, StateGraph\n{graph}\n", encoding="utf-8")
    with pytest.raises(LoadError, match=fault):
        load(f"{app}:pipeline")
