"""Fixtures of the client tests: a shared server behind a socket, and short retry delays."""

from collections.abc import AsyncIterator

import pytest

from dragoman.client import AsyncClient
from dragoman.client.connection import Backoff
from dragoman.client.transports import ClientProtocol
from tests.servers import SocketServer, running_socket_server


@pytest.fixture(scope="session")
async def socket_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    """A server behind a real socket."""
    async with running_socket_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
async def client(socket_server: SocketServer, protocol: ClientProtocol) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(socket_server.connection.url, key=socket_server.key("alice"), protocol=protocol) as client:
        yield client


@pytest.fixture(autouse=True)
def _short_retry_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests cut connections all the time."""
    monkeypatch.setattr(Backoff, "INITIAL_DELAY_S", 0.01)
    monkeypatch.setattr(Backoff, "MAX_DELAY_S", 0.05)
