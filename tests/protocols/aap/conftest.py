"""Fixtures of the AAP tests: a shared server, separate servers, keys, gates."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.aap.agents import AGENTS, TOOL_GATES, ToolGates
from tests.protocols.aap.client import AapClient
from tests.servers import AppServer, AppServerFactory, SocketServer, running_server, running_socket_server


@pytest.fixture(scope="session")
async def app_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppServer]:
    """A server that tests share: each works in sessions of its own and ends what it began."""
    async with running_server(tmp_path_factory.mktemp("house"), agents=AGENTS) as server:
        yield server


@pytest.fixture(scope="session")
async def keyless_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppServer]:
    """A server without keys."""
    async with running_server(tmp_path_factory.mktemp("keyless"), auth=False) as server:
        yield server


@pytest.fixture(scope="session")
async def socket_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    """A server behind a real socket."""
    async with running_socket_server(tmp_path_factory.mktemp("socket")) as server:
        yield server


@pytest.fixture
def open_app_server(tmp_path_factory: pytest.TempPathFactory) -> AppServerFactory:
    """Opens separate servers, each on a new folder."""

    def maker(**changes: Any) -> AbstractAsyncContextManager[AppServer]:
        return running_server(Path(tmp_path_factory.mktemp("own")), **{"agents": AGENTS, **changes})

    return maker


@pytest.fixture(scope="session")
def aap_client(app_server: AppServer) -> AapClient:
    """The shared server as alice sees it."""
    return app_server.aap_client("alice")


@pytest.fixture(scope="session")
def tool_gates() -> ToolGates:
    """Where tools of the agent `gated` wait."""
    return TOOL_GATES
