"""Fixtures of OpenAI's API's tests: a shared server, a server behind a socket, servers of a test's own."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.openai.agents import AGENTS
from tests.protocols.openai.client import OpenAiClient
from tests.servers import AppServer, AppServerFactory, SocketServer, running_server, running_socket_server


@pytest.fixture(scope="session")
async def app_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppServer]:
    """A server that tests share. Each test uses its own sessions and ends its runs."""
    async with running_server(tmp_path_factory.mktemp("server"), agents=AGENTS, default_agent="rehearsal") as server:
        yield server


@pytest.fixture(scope="session")
async def socket_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    """A server behind a real socket."""
    async with running_socket_server(tmp_path_factory.mktemp("socket")) as server:
        yield server


@pytest.fixture
def open_app_server(tmp_path_factory: pytest.TempPathFactory) -> AppServerFactory:
    """Starts servers for one test, each with a new data folder."""

    def start(**changes: Any) -> AbstractAsyncContextManager[AppServer]:
        return running_server(
            Path(tmp_path_factory.mktemp("own")), **{"agents": AGENTS, "default_agent": "rehearsal", **changes}
        )

    return start


@pytest.fixture
def alice(app_server: AppServer) -> OpenAiClient:
    """A client of the shared server with alice's key."""
    return OpenAiClient(app_server.connection, app_server.key("alice"))


@pytest.fixture
def bob(app_server: AppServer) -> OpenAiClient:
    """A client of the shared server with bob's key."""
    return OpenAiClient(app_server.connection, app_server.key("bob"))
