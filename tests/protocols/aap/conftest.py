"""What AAP's tests stand on: a shared server, one's own server, keys, gates."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.aap.agents import AGENTS, GATES, Gates
from tests.protocols.aap.client import Face
from tests.servers import House, HouseMaker, SocketHouse, opened, opened_socket


@pytest.fixture(scope="session")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A server that tests share: each works in sessions of its own and ends what it began."""
    async with opened(tmp_path_factory.mktemp("house"), agents=AGENTS) as house:
        yield house


@pytest.fixture(scope="session")
async def keyless(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A server without keys."""
    async with opened(tmp_path_factory.mktemp("keyless"), auth=False) as house:
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
        return opened(Path(tmp_path_factory.mktemp("own")), **{"agents": AGENTS, **changes})

    return maker


@pytest.fixture(scope="session")
def face(house: House) -> Face:
    """The shared server as alice sees it."""
    return house.face("alice")


@pytest.fixture(scope="session")
def gates() -> Gates:
    """Where tools of the agent `gated` wait."""
    return GATES
