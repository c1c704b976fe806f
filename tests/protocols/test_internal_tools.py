"""Calls of internal tools are seen by the agent and nobody else: in no stream, history or hydration of a protocol."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from dragoman import Run, agent, tool
from dragoman.agents.parameters import DeclarationError
from tests.protocols.aap.client import Session
from tests.protocols.aisdk.client import user
from tests.protocols.openai.chat_client import ChatClient
from tests.requirements import requirement
from tests.servers import SocketServer, running_socket_server
from tests.test_one_session import ProtocolClients, conversation_of

SECRETS = ("consult", "the oracle's question", "the oracle's answer")


@tool(internal=True)
async def consult(question: str) -> str:
    """Ask the oracle."""
    return f"the oracle's answer to {question}"


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"looked at {at}"


@agent("rehearsal", tools=[consult, look], history=True)
async def seer(run: Run) -> None:
    """Consults an oracle before and beside its answer."""
    known = await run.call(consult, question="the oracle's question 1")
    run.emit("One. ")
    both = await run.call_all([("consult", {"question": "the oracle's question 2"}), ("look", {"at": "the sky"})])
    run.emit(f"Two: {len(str(known))} {len(str(both[0]))} {both[1]}")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[SocketServer]:
    async with running_socket_server(tmp_path, agents=[seer], rehearsal=False) as started:
        yield started


def assert_hidden(seen: object) -> None:
    text = seen.decode() if isinstance(seen, bytes) else json.dumps(seen, ensure_ascii=False, default=str)
    assert [each for each in SECRETS if each in text] == []


@requirement("aap:undeclared:internal-tool")
async def test_calls_of_internal_tools_are_unseen_on_every_protocol(server: SocketServer) -> None:
    clients = ProtocolClients(server, "alice")
    session = await clients.aap.create(server_tools=[{"name": "look", "trust": True}])
    for mode in ("delta", "message", "none"):
        turn = await session.run("tell me", mode)
        assert (turn.stop, [each.name for each in turn.calls]) == ("end_turn", ["look"])
        assert turn.text == "One. Two: 46 46 looked at the sky"
        assert_hidden(turn.raw)
    assert_hidden(await session.history())
    assert_hidden((await clients.aap.get("/meta")).body)

    thread = str(uuid4())
    ran = await clients.ag_ui.run({**_input(thread), "runId": "r-1"})
    assert "".join(each["delta"] for each in ran.events if each["type"] == "TEXT_MESSAGE_CONTENT").endswith("the sky")
    assert_hidden(ran.body)
    assert_hidden(await clients.ag_ui.messages(session.id))

    frames = await clients.runs.play(str(uuid4()), "tell me")
    assert [each.event["toolCallName"] for each in frames if each.type == "TOOL_CALL_START"] == ["look"]
    assert_hidden([each.event for each in frames])
    assert_hidden((await clients.runs.get(f"/history?threadId={session.id}")).json)

    response = await clients.agentscope.run("tell me", session_id=str(uuid4()), model=None)
    assert [each["type"] for each in response["output"]] == ["message", "plugin_call", "plugin_call_output", "message"]
    assert_hidden(response)

    turns = await clients.blade.messages(f"sess_{session.id}")
    assert_hidden(turns)
    assert all(each["blocks"] for each in turns)
    await clients.tab.connect()
    assert_hidden(await clients.tab.send(f"sess_{session.id}", "tell me"))
    await clients.tab.leave()

    stream = await clients.openai.stream("tell me", model="rehearsal")
    said = await stream.end()
    assert [each["type"] for each in said["output"]] == ["message", "mcp_call", "message"]
    assert_hidden(said)
    assert_hidden(await clients.openai.get(f"/conversations/{conversation_of(session.id)}/items"))
    assert_hidden(await ChatClient(clients.openai).complete({"role": "user", "content": "tell me"}))

    assert_hidden((await clients.ai_sdk.post(str(uuid4()), user("tell me", "m-1"))).chunks)
    assert_hidden(await clients.ai_sdk.history(session.id))
    assert_hidden(await clients.a2a.send("tell me"))
    assert_hidden(await clients.mcp.call("tell me"))


@requirement("aap:undeclared:internal-tool")
async def test_an_agent_reads_its_internal_calls_after_a_restart(tmp_path: Path) -> None:
    async with running_socket_server(tmp_path, agents=[seer], rehearsal=False) as server:
        session = await ProtocolClients(server, "alice").aap.create(server_tools=[{"name": "look"}])
        first = await session.run("tell me")
        (look_call,) = first.calls
        assert first.stop == "tool_use"
        await server.restart()
        again = Session(ProtocolClients(server, "alice").aap, session.id)
        granted = {"role": "tool_permission", "toolCallId": look_call.id, "granted": True}
        end = await again.run([granted])
        assert (end.stop, end.text) == ("end_turn", "Two: 46 46 looked at the sky")
        assert_hidden(await again.history())


@requirement("aap:undeclared:internal-tool")
@pytest.mark.parametrize("options", [{"needs_approval": True}, {"on_restart": "ask"}])
def test_users_cannot_be_asked_about_internal_tools(options: dict[str, object]) -> None:
    with pytest.raises(DeclarationError, match="internal"):
        tool(internal=True, **options)(look.function)  # type: ignore[call-overload]  # options of any type


def _input(thread: str) -> dict[str, object]:
    message = {"id": "m-1", "role": "user", "content": "tell me"}
    return {"threadId": thread, "protocolVersion": "1.0", "messages": [message]}
