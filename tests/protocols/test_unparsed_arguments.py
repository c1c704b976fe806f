"""Arguments of a model that are no JSON object: their text is shown, live and later, and the tool never runs."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from dragoman import Agent, tool
from tests.agents.agent_harness import ScriptedModel, call
from tests.conversations import Json
from tests.protocols.aap.client import AapClient
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.run_service import RunServiceClient
from tests.protocols.blade.client import RestClient, socket_client
from tests.protocols.blade.driver import url_of
from tests.requirements import requirement
from tests.servers import SocketServer, running_socket_server

TEXT = '{"disk": '
SHOWN = {"_unreadable": TEXT}


@tool(needs_approval=True)
async def wipe(disk: str) -> str:
    """Wipe a disk."""
    pytest.fail(f"{disk} was wiped")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[SocketServer]:
    model = ScriptedModel(*([call("wipe", raw=TEXT)], "Sorry.") * 4)
    agents = [Agent("rehearsal", model=model, tools=[wipe], history=True)]
    async with running_socket_server(tmp_path, agents=agents, rehearsal=False) as server:
        yield server


@requirement("aap:calls:unparsed")
async def test_aap_and_ag_ui_show_the_text_as_an_argument(server: SocketServer) -> None:
    key = server.key("alice")
    session = await AapClient(server.connection, key).create(server_tools=[{"name": "wipe"}])
    turn = await session.run("go", "delta")
    assert ([each.input for each in turn.calls], turn.stop, turn.text) == ([SHOWN], "end_turn", "Sorry.")
    asked = (await session.history())[1]["content"]
    assert [each["input"] for each in asked] == [SHOWN]
    endpoint = Endpoint(server.connection, key)
    assert arguments((await endpoint.run(an_input("go", thread=str(uuid4())))).events) == SHOWN
    (asking,) = [each for each in await endpoint.messages(session.id) if each.get("toolCalls")]
    assert json.loads(asking["toolCalls"][0]["function"]["arguments"]) == SHOWN
    frames = await RunServiceClient(server.connection, key).play(str(uuid4()), "go")
    assert arguments([each.event for each in frames]) == SHOWN


@requirement("ag-ui-b:history:unparsed")
async def test_so_are_those_of_a_history_that_ag_ui_brings(server: SocketServer) -> None:
    endpoint, thread = Endpoint(server.connection, server.key("alice")), str(uuid4())
    asking = {"id": "c", "type": "function", "function": {"name": "wipe", "arguments": TEXT}}
    messages = [
        {"id": "1", "role": "user", "content": "go"},
        {"id": "2", "role": "assistant", "toolCalls": [asking]},
        {"id": "3", "role": "tool", "toolCallId": "c", "content": "no"},
        {"id": "4", "role": "user", "content": "again"},
    ]
    await endpoint.run(an_input(thread=thread, messages=messages))
    (asking, _) = [each for each in await endpoint.messages(thread) if each.get("toolCalls")]
    assert json.loads(asking["toolCalls"][0]["function"]["arguments"]) == SHOWN


def arguments(events: list[Json]) -> Json:
    return json.loads("".join(each["delta"] for each in events if each["type"] == "TOOL_CALL_ARGS"))


@requirement("blade:turns:unparsed")
async def test_blade_shows_the_text_itself(server: SocketServer) -> None:
    alice = RestClient(url_of(server), server.key("alice"))
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        events = await socket.send(session, "go")
    for turns in ([turn for name, turn in events if name == "turn:end"], await alice.messages(session)):
        (turn,) = [each for each in turns if each["tool_calls"]]
        (made,) = turn["tool_calls"]
        assert (made["arguments"], made["status"]) == (TEXT, "error")
        assert [each["content"] for each in turn["blocks"] if each["type"] == "tool_use"] == [{"_raw": TEXT}]
