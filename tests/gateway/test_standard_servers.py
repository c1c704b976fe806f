"""Servers with nothing but the standard: histories are sent again, and what cannot be resumed says so."""

from collections.abc import AsyncIterator

import pytest

from dragoman import RemoteAgent
from dragoman.client import AsyncClient, Ended, Result, Text, Tool
from dragoman.client.connection import Timeouts
from dragoman.client.transports import ClientProtocol
from tests.client.cutting_proxy import CuttingProxy, cutting_proxy
from tests.client.standard_only_server import standard_only_server
from tests.conversations import call, script
from tests.gateway.crashed_gateway import after_a_crash
from tests.servers import SocketServer, running_socket_server

PROTOCOLS: tuple[ClientProtocol, ...] = ("aap", "ag-ui", "agentscope", "openai", "openai-chat")
CUT = script({"emit": {"count": 2, "text": "ab"}}, {"wait_ms": 60_000})
PAINT = Tool(name="paint", parameters={"type": "object"})


@pytest.fixture(scope="module")
async def remote(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, str]]:
    """The server's address and a key."""
    async with standard_only_server(tmp_path_factory.mktemp("remote")) as address_and_key:
        yield address_and_key


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[CuttingProxy]:
    async with cutting_proxy("http://127.0.0.1:9", lambda: None) as proxy:
        yield proxy


def remote_agent(protocol: ClientProtocol, url: str, key: str, name: str) -> RemoteAgent:
    path = "/ag-ui/rehearsal" if protocol == "ag-ui" else ""
    return RemoteAgent(protocol, url + path, agent="rehearsal", key=key, name=name, timeouts=Timeouts(reconnect_s=0.1))


@pytest.fixture(scope="module")
async def gateway(
    remote: tuple[str, str], proxy: CuttingProxy, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SocketServer]:
    url, key = remote
    agents = [remote_agent(protocol, url, key, protocol) for protocol in PROTOCOLS]
    agents += [remote_agent(protocol, proxy.url, key, f"cut-{protocol}") for protocol in PROTOCOLS]
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


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_answer_whose_server_dies_is_lost_and_the_next_message_is_answered(
    gateway: SocketServer, proxy: CuttingProxy, protocol: ClientProtocol
) -> None:
    async with AsyncClient(gateway.connection.url, key=gateway.key("alice")) as client:
        session = await client.create(f"cut-{protocol}")
        run, said = session.run(CUT), ""
        while said != "abab":
            event = await anext(run)
            said += event.text if isinstance(event, Text) else ""
        await proxy.close()
        async with run:
            end = [event async for event in run][-1]
        assert isinstance(end, Ended)
        assert end.problem is not None
        assert end.problem.code == "remote_lost"
        assert [each.text for each in await session.history()] == [CUT, "abab"]
        assert (await session.ask("hello")).end.reason == "end_turn"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_answer_that_cannot_be_read_again_is_lost_in_a_crash_of_ours(
    remote: tuple[str, str], protocol: ClientProtocol
) -> None:
    served = remote_agent(protocol, *remote, "player")
    outcome, whole, cut = await after_a_crash(served, CUT, "abab", lambda: None)
    assert (outcome, whole, cut) == ("remote_lost", [], ["abab"])
