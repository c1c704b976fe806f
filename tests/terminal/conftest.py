"""Fixtures of the terminal tests: a shared server behind a socket."""

from collections.abc import AsyncIterator

import pytest

from tests.servers import SocketServer, running_socket_server


@pytest.fixture(scope="session")
async def socket_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    """A server behind a real socket."""
    async with running_socket_server(tmp_path_factory.mktemp("server")) as server:
        yield server
