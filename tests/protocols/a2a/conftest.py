"""What A2A's tests stand on: a shared server, and clients in both versions and over both bindings."""

from collections.abc import AsyncIterator

import pytest

from tests.protocols.a2a.client import A2aClient
from tests.servers import AppServer, SocketServer, running_server, running_socket_server


@pytest.fixture(scope="session")
async def app_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppServer]:
    """A server that tests share: each works in sessions of its own."""
    async with running_server(tmp_path_factory.mktemp("a2a")) as server:
        yield server


@pytest.fixture(scope="session")
async def socket_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    """A server behind a real socket."""
    async with running_socket_server(tmp_path_factory.mktemp("a2a")) as server:
        yield server


@pytest.fixture
def alice(app_server: AppServer) -> A2aClient:
    """A client of alice's, in 1.0 over JSON-RPC."""
    return A2aClient(app_server.connection, app_server.key("alice"))
