"""Fixtures of the abuse cases: shared servers, and servers of a test's own."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from io import StringIO
from pathlib import Path
from typing import Any, Protocol

import pytest
import structlog

from dragoman.server import logging as server_logging
from tests.abuse import misbehaving_agents as wild
from tests.abuse.raw_client import ListeningServer, listening_server
from tests.protocols.aap.agents import AGENTS, TOOL_GATES, ToolGates
from tests.protocols.aap.client import AapClient
from tests.servers import AppServer, AppServerFactory, running_server


class ServerMaker(Protocol):
    """Starts a server behind a socket; takes settings by name."""

    def __call__(self, **settings: Any) -> AbstractAsyncContextManager[ListeningServer]: ...


@pytest.fixture(scope="session")
async def app_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppServer]:
    """A server that the cases share. Each case uses its own sessions."""
    async with running_server(tmp_path_factory.mktemp("abused"), agents=[*AGENTS, *wild.agents()]) as server:
        yield server


@pytest.fixture(scope="session")
def aap_client(app_server: AppServer) -> AapClient:
    """A client of the shared server with alice's key."""
    return app_server.aap_client("alice")


@pytest.fixture(scope="session")
async def socket_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ListeningServer]:
    """A server behind a socket that the cases share."""
    folder = tmp_path_factory.mktemp("listening")
    async with listening_server(folder, agents=[*AGENTS, *wild.agents()], body_bytes=1024 * 1024) as server:
        yield server


@pytest.fixture
def open_app_server(tmp_path_factory: pytest.TempPathFactory) -> AppServerFactory:
    """Starts in-process servers for one test, each with a new data folder."""

    def start(**changes: Any) -> AbstractAsyncContextManager[AppServer]:
        settings = {"agents": [*AGENTS, *wild.agents()], **changes}
        return running_server(Path(tmp_path_factory.mktemp("own")), **settings)

    return start


@pytest.fixture
def open_socket_server(tmp_path_factory: pytest.TempPathFactory) -> ServerMaker:
    """Starts servers behind a socket for one test, each with a new data folder."""

    def start(**changes: Any) -> AbstractAsyncContextManager[ListeningServer]:
        settings = {"agents": [*AGENTS, *wild.agents()], **changes}
        return listening_server(Path(tmp_path_factory.mktemp("own")), **settings)

    return start


@pytest.fixture(scope="session")
def tool_gates() -> ToolGates:
    """The gates at which tools wait."""
    return TOOL_GATES


@pytest.fixture(autouse=True)
def log_records() -> Iterator[StringIO]:
    """Everything that the server logs during the case."""
    root = logging.getLogger()
    handlers, level, out = root.handlers[:], root.level, StringIO()
    server_logging.configure_logging("json", "debug", stream=out)
    yield out
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
