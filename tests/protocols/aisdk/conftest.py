"""What the tests of the AI SDK stand on: a server in process, one behind a socket, the official clients."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.protocols.agui.agents import AGENTS
from tests.protocols.aisdk.client import Pages
from tests.protocols.aisdk.official_clients import OfficialClients, official_clients
from tests.servers import AppServer, SocketServer, running_server, running_socket_server


@pytest.fixture(scope="session")
async def app_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppServer]:
    """A server that tests share: each works in chats of its own and ends what it began."""
    async with running_server(tmp_path_factory.mktemp("data"), agents=AGENTS) as server:
        yield server


@pytest.fixture(scope="session")
def pages(app_server: AppServer) -> Pages:
    """The shared server as alice sees it."""
    return Pages(app_server.connection, app_server.key("alice"))


@pytest.fixture(scope="session")
async def socket_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    """A server behind a real socket, for clients in other processes."""
    async with running_socket_server(tmp_path_factory.mktemp("socket")) as server:
        yield server


@pytest.fixture(scope="session")
async def clients() -> AsyncIterator[OfficialClients]:
    """The process of the official clients."""
    async with official_clients() as official:
        yield official


@pytest.fixture
def official(clients: OfficialClients) -> Iterator[OfficialClients]:
    """The official clients, which have nothing to complain about."""
    clients.console.clear()
    yield clients
    assert clients.console == []
