"""Servers with nothing but the standard: histories are sent again, and what cannot be resumed says so."""

from collections.abc import AsyncIterator

import pytest

from dragoman import RemoteAgent
from dragoman.client import AsyncClient, Result, Text, Tool
from dragoman.client.connection import Timeouts
from dragoman.client.transports import ClientProtocol
from tests.client.cutting_proxy import cutting_proxy
from tests.client.standard_only_server import standard_only_server
from tests.conversations import call, script
from tests.servers import SocketServer, running_socket_server

PROTOCOLS: tuple[ClientProtocol, ...] = ("aap", "ag-ui", "agentscope", "openai", "openai-chat")
PAINT = Tool(name="paint", parameters={"type": "object"})


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    async with (
        standard_only_server(tmp_path_factory.mktemp("remote")) as (url, key),
        cutting_proxy("http://127.0.0.1:9", lambda: None) as proxy,
    ):
        agents = [
            RemoteAgent(
                protocol,
                url + ("/ag-ui/rehearsal" if protocol == "ag-ui" else ""),
                agent="rehearsal",
                key=key,
                name=protocol,
            )
            for protocol in PROTOCOLS
        ]
        agents.append(RemoteAgent("openai-chat", proxy.url, key=key, name="late", timeouts=Timeouts(reconnect_s=0.1)))
        folder = tmp_path_factory.mktemp("gateway")
        async with running_socket_server(folder, agents=agents, rehearsal=False) as server:
            proxy.target = url
            yield server


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_conversation_with_a_tool_of_the_application_continues(
    gateway: SocketServer, protocol: ClientProtocol
) -> None:
    async with AsyncClient(gateway.connection.url, key=gateway.key("alice")) as client:
        session = await client.create(protocol, tools=[PAINT])
        assert (await session.ask("hello")).text == "Hello! I am the rehearsal agent."
        reply = await session.ask(script(call("paint", colour="red"), {"say": "It is {result}."}))
        assert reply.end.reason == "tool_use"
        async with session.answer(Result(call_id=session.pending[0].call_id, text="wet")) as run:
            events = [event async for event in run]
        assert "".join(each.text for each in events if isinstance(each, Text)) == "It is wet."
        assert (await session.ask(script({"recall": "user"}))).text == "hello"


async def test_a_server_that_starts_after_ours_is_asked_for_its_model_then(gateway: SocketServer) -> None:
    """It was down when ours asked which models it has, and refuses requests that name none."""
    async with AsyncClient(gateway.connection.url, key=gateway.key("alice")) as client:
        session = await client.create("late")
        assert (await session.ask("hello")).text == "Hello! I am the rehearsal agent."
