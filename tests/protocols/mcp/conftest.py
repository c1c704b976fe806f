"""What MCP's tests stand on: a shared server, and clients with a session."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.protocols.mcp.client import FORMS, McpClient
from tests.servers import AppServer, SocketServer, running_server, running_socket_server

MakeClient = Callable[..., Awaitable[McpClient]]


@pytest.fixture(scope="session")
async def app_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppServer]:
    """A server that tests share: each works in sessions of its own."""
    async with running_server(tmp_path_factory.mktemp("mcp")) as server:
        yield server


@pytest.fixture(scope="session")
async def socket_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    """A server behind a real socket."""
    async with running_socket_server(tmp_path_factory.mktemp("mcp")) as server:
        yield server


@pytest.fixture
async def alice(app_server: AppServer) -> McpClient:
    """A client of alice's without forms, of the newest version with sessions."""
    client = McpClient(app_server.connection, app_server.key("alice"))
    await client.initialize()
    return client


@pytest.fixture
async def alice_at_host(app_server: AppServer) -> McpClient:
    """The same at a host that shows forms."""
    client = McpClient(app_server.connection, app_server.key("alice"), capabilities=FORMS)
    await client.initialize()
    return client
