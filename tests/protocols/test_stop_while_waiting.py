"""Stopping a session that only waits for its user: the calls end as cancelled, and the answer says that it stopped."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.protocols.aap.client import AapClient, Session, call, enabled_tools, script
from tests.protocols.agentscope.client import AgentScopeClient
from tests.protocols.agui.endpoint import Endpoint
from tests.protocols.blade.client import socket_client
from tests.protocols.blade.driver import url_of
from tests.requirements import requirement
from tests.servers import SocketServer, running_socket_server

Json = Any


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    async with running_socket_server(tmp_path_factory.mktemp("waiting")) as server:
        yield server


async def stop_over_aap(server: SocketServer, session: str) -> Json:
    client = AapClient(server.connection, server.key("alice"))
    return (await client.post(f"/sessions/{session}/stop", {})).json["stopped"]


async def stop_over_ag_ui(server: SocketServer, session: str) -> Json:
    endpoint = Endpoint(server.connection, server.key("alice"))
    return (await endpoint.request("POST", f"rehearsal/stop/{session}", {})).json["stopped"]


async def stop_over_agent_api(server: SocketServer, session: str) -> Json:
    return await AgentScopeClient(server.connection, server.key("alice")).stop(session_id=session)


async def stop_over_blade(server: SocketServer, session: str) -> Json:
    async with socket_client(url_of(server), server.key("alice")) as socket:
        return (await socket.call("chat:stop", {"session_id": f"sess_{session}"}))["status"] == "stopped"


@requirement("aap:stop:waiting")
@pytest.mark.parametrize("stop", [stop_over_aap, stop_over_ag_ui, stop_over_agent_api, stop_over_blade])
async def test_stopping_a_session_that_waits_cancels_its_calls_and_says_so(
    server: SocketServer, stop: Callable[[SocketServer, str], Awaitable[Json]]
) -> None:
    client = AapClient(server.connection, server.key("alice"))
    session: Session = await client.create(server_tools=enabled_tools("stamp", trust=False))
    assert (await session.run(script(call("stamp", text="x"), {"say": "{result}"}))).stop == "tool_use"
    assert await stop(server, session.id) is True
    assert (await session.info())["_meta"]["status"] == "idle"
    assert (await session.history())[-1]["content"] == "Tool call cancelled: the run was stopped"
    assert await stop(server, session.id) is False, "there is nothing left to stop"
