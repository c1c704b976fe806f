"""What the Agent API's tests stand on: a shared server, one behind a socket, one's own."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.agentscope.agents import AGENTS
from tests.protocols.agentscope.client import AgentScopeClient
from tests.servers import AppServer, AppServerFactory, SocketServer, running_server, running_socket_server


@pytest.fixture(scope="session")
async def app_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppServer]:
    """A server that tests share: each works in sessions of its own and ends what it began."""
    async with running_server(tmp_path_factory.mktemp("house"), agents=AGENTS, default_agent="rehearsal") as house:
        yield house


@pytest.fixture(scope="session")
async def socket_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    """A server behind a real socket."""
    async with running_socket_server(tmp_path_factory.mktemp("socket")) as house:
        yield house


@pytest.fixture
def open_app_server(tmp_path_factory: pytest.TempPathFactory) -> AppServerFactory:
    """Opens servers of one's own, each on a new folder."""

    def maker(**changes: Any) -> AbstractAsyncContextManager[AppServer]:
        return running_server(
            Path(tmp_path_factory.mktemp("own")), **{"agents": AGENTS, "default_agent": "rehearsal", **changes}
        )

    return maker


@pytest.fixture
def alice(app_server: AppServer) -> AgentScopeClient:
    """The shared server as alice sees it."""
    return AgentScopeClient(app_server.connection, app_server.key("alice"))


@pytest.fixture
def bob(app_server: AppServer) -> AgentScopeClient:
    """The shared server as bob sees it."""
    return AgentScopeClient(app_server.connection, app_server.key("bob"))
