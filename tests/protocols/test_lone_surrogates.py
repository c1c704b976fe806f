"""Half of a character, which JavaScript clients send when they cut a string: every protocol reads it as U+FFFD."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from tests.protocols.agentscope.client import AgentScopeClient, texts, user
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.run_service import RunServiceClient, new_thread, run_input
from tests.protocols.blade.client import RestClient
from tests.protocols.blade.driver import url_of
from tests.requirements import requirement
from tests.servers import AppServer, running_server, running_socket_server

CUT = "Great \ud83d"
READ = "Great \ufffd"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AppServer]:
    async with running_server(tmp_path) as server:
        yield server


@requirement("aap:transport:json-utf8")
async def test_over_aap_half_of_a_character_is_replaced(server: AppServer) -> None:
    session = await server.aap_client("alice").create()
    assert READ in (await session.run(CUT)).text
    assert (await session.history())[0]["content"] == READ


@requirement("ag-ui-b:hydrate:snapshot")
async def test_over_ag_ui_half_of_a_character_is_replaced(server: AppServer) -> None:
    alice = Endpoint(server.connection, server.key("alice"))
    assert READ in (await alice.run(an_input(CUT))).text


@requirement("runs:errors:problem")
async def test_over_the_run_service_half_of_a_character_is_replaced(server: AppServer) -> None:
    alice = RunServiceClient(server.connection, server.key("alice"))
    thread = new_thread()
    await alice.submit(run_input(thread, CUT))
    await alice.events(thread, "r-1")
    assert READ in str(await alice.history(thread))


@requirement("agentscope:request:invalid-json")
async def test_over_the_agent_api_half_of_a_character_is_replaced(server: AppServer) -> None:
    alice = AgentScopeClient(server.connection, server.key("alice"))
    assert READ in texts(await alice.run(user(CUT)))


@requirement("blade:abuse:events")
async def test_over_blade_half_of_a_character_is_replaced(tmp_path: Path) -> None:
    async with running_socket_server(tmp_path) as server:
        alice = RestClient(url_of(server), server.key("alice"))
        memory = await alice.request("POST", "memories", raw=json.dumps({"content": CUT, "type": "user"}).encode())
        assert "not JSON" not in str(memory.body), "the body was read"
        session = await alice.session()
        url = alice.url.replace("http://", "ws://") + "/socket.io/?EIO=4&transport=websocket"
        async with asyncio.timeout(60), connect(url) as ws:
            await ws.send("40" + json.dumps({"token": alice.key}))
            await ws.send("427" + json.dumps(["chat:send", {"session_id": session, "message": CUT}]))
            while not (frame := str(await ws.recv())).startswith("437"):
                pass
        assert '"error"' not in frame
        assert READ in str(await alice.messages(session))
