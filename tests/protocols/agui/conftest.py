"""Fixtures of the AG-UI tests: a shared server in process, one behind a socket, the official clients."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.agui.agents import AGENTS
from tests.protocols.agui.endpoint import Endpoint
from tests.protocols.agui.official_clients import OfficialClients, official_clients
from tests.servers import AppServer, AppServerFactory, SocketServer, running_server, running_socket_server


@pytest.fixture(scope="session")
async def app_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppServer]:
    """A server that tests share: each works in threads of its own and ends what it began."""
    async with running_server(tmp_path_factory.mktemp("data"), agents=AGENTS) as server:
        yield server


@pytest.fixture(scope="session")
async def socket_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    """A server behind a real socket, for clients that run elsewhere."""
    async with running_socket_server(tmp_path_factory.mktemp("socket"), agents=AGENTS) as server:
        yield server


@pytest.fixture
def open_app_server(tmp_path_factory: pytest.TempPathFactory) -> AppServerFactory:
    """Opens separate servers, each on a new folder."""

    def maker(**changes: Any) -> AbstractAsyncContextManager[AppServer]:
        return running_server(Path(tmp_path_factory.mktemp("own")), **{"agents": AGENTS, **changes})

    return maker


@pytest.fixture(scope="session")
def endpoint(app_server: AppServer) -> Endpoint:
    """The standard endpoint of the shared server as alice sees it."""
    return Endpoint(app_server.connection, app_server.key("alice"))


@pytest.fixture(scope="session")
async def clients() -> AsyncIterator[OfficialClients]:
    """The process of the official clients; use `official`, which looks at its console."""
    async with official_clients() as official:
        yield official


@pytest.fixture
def agui_clients(clients: OfficialClients) -> Iterator[OfficialClients]:
    """The official clients, which have nothing to complain about."""
    clients.console.clear()
    yield clients
    assert clients.console == []
