"""Tools that have to be allowed, and then ask the user while they run."""

from pathlib import Path

from dragoman import Agent, Deferred, ToolContext, tool
from dragoman.testing import Scripted, call
from tests.protocols.blade.client import RestClient, socket_client
from tests.protocols.blade.driver import url_of
from tests.requirements import requirement
from tests.servers import running_socket_server

SEATS = {"questions": [{"question": "Which seat?", "options": [{"label": "window"}, {"label": "aisle"}]}]}
MEALS = {"questions": [{"question": "Which meal?", "options": [{"label": "soup"}, {"label": "salad"}]}]}


@tool(needs_approval=True)
def trip(train: str, context: ToolContext) -> str:
    """Book a trip. It asks for the meal after the seat: the newest answer is the one that it has."""
    if context.answer is None:
        raise Deferred("question", SEATS)
    if context.answer in ("window", "aisle"):
        raise Deferred("question", MEALS)
    return f"{train} with {context.answer}"


@requirement("blade:questions:of-tools")
async def test_a_tool_that_was_allowed_asks_with_questions_of_their_own(tmp_path: Path) -> None:
    clerk = Agent("clerk", model=Scripted([call("trip", train="R7"), "Booked."]), tools=[trip])
    async with running_socket_server(tmp_path, agents=[clerk], rehearsal=False) as server:
        alice = RestClient(url_of(server), server.key("alice"))
        session = await alice.session()
        asked: list[tuple[str, str]] = []
        async with socket_client(alice.url, alice.key) as socket:
            await socket.send(session, "Go")
            for selection in (0, 1, 1):  # allow, aisle, salad
                [booking, *questions] = (await alice.messages(session))[1]["tool_calls"]
                assert booking["pending_question_ref"]["child_tool_call_id"] == questions[-1]["id"]
                assert [each["status"] for each in questions] == ["done"] * (len(questions) - 1) + ["awaiting_answer"]
                asked.append((questions[-1]["id"], questions[-1]["arguments"]))
                answer = {"tool_call_id": questions[-1]["id"], "selections": {"0": [selection]}, "custom": {}}
                await socket.send(session, "", askuser_answer=answer)
        turns = await alice.messages(session)
        assert turns[1]["tool_calls"][0]["result"] == "R7 with salad"
    ids = [each for each, _ in asked]
    assert len(set(ids)) == 3
    assert [each.startswith("perm_") for each in ids] == [True, False, False]
    assert [
        text.count(word) for (_, text), word in zip(asked, ("Allow trip?", "Which seat?", "Which meal?"), strict=True)
    ] == [1] * 3
