"""What the terminal's tests stand on: a shared server behind a socket, and a person's empty home."""

from collections.abc import AsyncIterator

import pytest

from tests.servers import SocketHouse, opened_socket


@pytest.fixture(scope="session")
async def socket_house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketHouse]:
    """A server behind a real socket."""
    async with opened_socket(tmp_path_factory.mktemp("house")) as house:
        yield house
