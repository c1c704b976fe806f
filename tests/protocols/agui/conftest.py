"""What AG-UI's tests stand on: a shared server in process, one behind a socket, the official clients."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.agui.agents import AGENTS
from tests.protocols.agui.endpoint import Endpoint
from tests.protocols.agui.official_clients import Official, official_clients
from tests.servers import House, HouseMaker, SocketHouse, opened, opened_socket


@pytest.fixture(scope="session")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A server that tests share: each works in threads of its own and ends what it began."""
    async with opened(tmp_path_factory.mktemp("house"), agents=AGENTS) as house:
        yield house


@pytest.fixture(scope="session")
async def socket_house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketHouse]:
    """A server behind a real socket, for clients that run elsewhere."""
    async with opened_socket(tmp_path_factory.mktemp("socket"), agents=AGENTS) as house:
        yield house


@pytest.fixture
def open_house(tmp_path_factory: pytest.TempPathFactory) -> HouseMaker:
    """Opens servers of one's own, each on a new folder."""

    def maker(**changes: Any) -> AbstractAsyncContextManager[House]:
        return opened(Path(tmp_path_factory.mktemp("own")), **{"agents": AGENTS, **changes})

    return maker


@pytest.fixture(scope="session")
def endpoint(house: House) -> Endpoint:
    """The standard endpoint of the shared server as alice sees it."""
    return Endpoint(house.line, house.key("alice"))


@pytest.fixture(scope="session")
async def clients() -> AsyncIterator[Official]:
    """The process of the official clients; use `official`, which looks at its console."""
    async with official_clients() as official:
        yield official


@pytest.fixture
def official(clients: Official) -> Iterator[Official]:
    """The official clients, which have nothing to complain about."""
    clients.console.clear()
    yield clients
    assert clients.console == []
