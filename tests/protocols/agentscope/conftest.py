"""What the Agent API's tests stand on: a shared server, one behind a socket, one's own."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.agentscope.agents import AGENTS
from tests.protocols.agentscope.client import Runtime
from tests.servers import House, HouseMaker, SocketHouse, opened, opened_socket


@pytest.fixture(scope="session")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A server that tests share: each works in sessions of its own and ends what it began."""
    async with opened(tmp_path_factory.mktemp("house"), agents=AGENTS, default_agent="rehearsal") as house:
        yield house


@pytest.fixture(scope="session")
async def socket_house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketHouse]:
    """A server behind a real socket."""
    async with opened_socket(tmp_path_factory.mktemp("socket")) as house:
        yield house


@pytest.fixture
def open_house(tmp_path_factory: pytest.TempPathFactory) -> HouseMaker:
    """Opens servers of one's own, each on a new folder."""

    def maker(**changes: Any) -> AbstractAsyncContextManager[House]:
        return opened(
            Path(tmp_path_factory.mktemp("own")), **{"agents": AGENTS, "default_agent": "rehearsal", **changes}
        )

    return maker


@pytest.fixture
def alice(house: House) -> Runtime:
    """The shared server as alice sees it."""
    return Runtime(house.line, house.key("alice"))


@pytest.fixture
def bob(house: House) -> Runtime:
    """The shared server as bob sees it."""
    return Runtime(house.line, house.key("bob"))
