"""What a turn over any protocol leaves behind is freed at once, not by the garbage collector.

The server's thresholds make collections of old objects rare, so that none stops it for long. So what is part of a
reference cycle may stay in memory for hours.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from types import CoroutineType, FrameType, FunctionType
from uuid import uuid4

import pytest

from tests.protocols.agui.endpoint import an_input
from tests.protocols.aisdk.client import user as page_message
from tests.servers import SocketServer
from tests.test_one_session import ProtocolClients

TURNS = 3
"""When the last one has been answered, the server is done with those before."""


@pytest.fixture(scope="module")
async def clients(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProtocolClients]:
    server = SocketServer(tmp_path_factory.mktemp("server"))
    await server.start()
    clients = ProtocolClients(server, "alice")
    await clients.tab.connect()
    yield clients
    await clients.tab.leave()
    await server.stop()


async def aap(clients: ProtocolClients) -> None:
    session = await clients.aap.create()
    await session.run("hello")
    await session.history()
    await clients.aap.get("/sessions")
    await clients.aap.get("/unknown")
    await clients.aap.request("DELETE", f"/sessions/{session.id}")


async def ag_ui(clients: ProtocolClients) -> None:
    thread = str(uuid4())
    await clients.ag_ui.run(an_input("hello", thread=thread))
    await clients.ag_ui.messages(thread)


async def run_service(clients: ProtocolClients) -> None:
    await clients.runs.play(str(uuid4()), "hello")


async def agent_api(clients: ProtocolClients) -> None:
    await clients.agentscope.run("hello", session_id=str(uuid4()))


async def openai(clients: ProtocolClients) -> None:
    await clients.openai.respond("hello")


async def ai_sdk(clients: ProtocolClients) -> None:
    await clients.ai_sdk.post(str(uuid4()), page_message("hello", "u1"))


async def a2a(clients: ProtocolClients) -> None:
    await clients.a2a.send("hello")


async def mcp(clients: ProtocolClients) -> None:
    await clients.mcp.said("hello")


async def blade(clients: ProtocolClients) -> None:
    session = await clients.blade.session()
    await clients.tab.send(session, "hello")
    await clients.blade.messages(session)


@pytest.mark.parametrize("play", [aap, ag_ui, run_service, agent_api, openai, ai_sdk, a2a, mcp, blade])
async def test_a_turn_leaves_no_reference_cycles(
    clients: ProtocolClients, play: Callable[[ProtocolClients], Awaitable[None]]
) -> None:
    await play(clients)  # what stays is made now
    assert [each for each in await garbage_of(clients, play) if is_the_servers(each)] == []


async def garbage_of(clients: ProtocolClients, play: Callable[[ProtocolClients], Awaitable[None]]) -> list[object]:
    """The objects that only the garbage collector frees after some turns."""
    gc.collect()
    gc.freeze()  # a server of an earlier test may become garbage meanwhile
    gc.disable()
    try:
        for _ in range(TURNS):
            await play(clients)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return list(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def is_the_servers(found: object) -> bool:
    """Whether an object is one of the server, not of a test's client."""
    match found:
        case FunctionType():
            file = found.__code__.co_filename
        case FrameType():
            file = found.f_code.co_filename
        case CoroutineType():
            file = found.cr_code.co_filename
        case asyncio.Task():
            return is_the_servers(found.get_coro())
        case _:
            module = type(found).__module__
            return module.startswith("dragoman.") and not module.startswith("dragoman.client")
    return "/dragoman/" in file and "/dragoman/client/" not in file
