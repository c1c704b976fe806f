"""A tool that asks the user while it runs: every protocol shows the question and its choices."""

from pathlib import Path

from dragoman.agents.loading import load
from tests.protocols.agui.endpoint import an_input
from tests.servers import running_socket_server
from tests.test_one_session import ProtocolClients

APP = '''
from dragoman import Deferred, Run, ToolContext, agent, tool


@tool
def seat(train: str, context: ToolContext) -> str:
    """Reserve a seat."""
    if context.answer is None:
        question = {"question": "Where?", "options": [{"label": "window"}, {"label": "aisle"}]}
        raise Deferred("question", {"questions": [question]})
    return f"{context.answer} seat on {train}"


@agent("clerk", tools=[seat], history=True)
async def clerk(run: Run):
    yield await run.call(seat, train="R7")
'''


async def test_every_protocol_shows_the_question_that_a_tool_asks_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (clerk,) = load(str(tmp_path / "app.py"))
    async with running_socket_server(tmp_path / "data", agents=[clerk], rehearsal=False) as server:
        clients = ProtocolClients(server, "alice", agent="clerk")
        clients.ag_ui.agent = "clerk"
        session = await clients.aap.create("clerk", server_tools=[{"name": "seat", "trust": True}])
        await clients.tab.connect()
        await clients.tab.leave()
        shown = str(await clients.ag_ui.run(an_input("a seat", thread=session.id)))
        assert "input_required" in shown
        assert "Where?" in shown
        (pending,) = (await session.info())["_meta"]["pending"]
        assert (pending["name"], pending["kind"]) == ("AskUserQuestion", "question")
        assert [each["label"] for each in pending["input"]["questions"][0]["options"]] == ["window", "aisle"]
        blade = str(await clients.blade.messages(f"sess_{session.id}"))
        assert "Where?" in blade
        turn = await session.run([{"role": "tool", "toolCallId": pending["toolCallId"], "content": "aisle"}])
        assert turn.text == "aisle seat on R7"
        for answers in (await clients.histories_by_protocol(session.id)).values():
            assert any("aisle seat on R7" in each for each in answers)
        assert "aisle seat on R7" in str(await clients.blade.messages(f"sess_{session.id}"))
