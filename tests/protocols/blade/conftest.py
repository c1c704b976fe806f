"""Fixtures of the Blade tests: a server behind a socket that they share, and callers with their keys."""

from collections.abc import AsyncIterator

import pytest

from tests.protocols.blade.client import RestClient
from tests.protocols.blade.driver import url_of
from tests.servers import SocketServer, running_socket_server


@pytest.fixture(scope="session")
async def shared_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    """A server that tests share: each works in sessions of its own."""
    async with running_socket_server(tmp_path_factory.mktemp("blade")) as app_server:
        yield app_server


@pytest.fixture
def alice(shared_server: SocketServer) -> RestClient:
    return RestClient(url_of(shared_server), shared_server.key("alice"))


@pytest.fixture
def bob(shared_server: SocketServer) -> RestClient:
    return RestClient(url_of(shared_server), shared_server.key("bob"))
