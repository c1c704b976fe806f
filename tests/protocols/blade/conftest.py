"""What Blade's tests stand on: a server behind a socket that they share, and callers with their keys."""

from collections.abc import AsyncIterator

import pytest

from tests.protocols.blade.client import Caller
from tests.protocols.blade.driver import url_of
from tests.servers import SocketHouse, opened_socket


@pytest.fixture(scope="session")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketHouse]:
    """A server that tests share: each works in sessions of its own."""
    async with opened_socket(tmp_path_factory.mktemp("blade")) as house:
        yield house


@pytest.fixture
def alice(shared: SocketHouse) -> Caller:
    return Caller(url_of(shared), shared.key("alice"))


@pytest.fixture
def bob(shared: SocketHouse) -> Caller:
    return Caller(url_of(shared), shared.key("bob"))
