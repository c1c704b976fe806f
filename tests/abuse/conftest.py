"""What the abuse cases stand on: servers that they may share, and servers of their own."""

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
from tests.abuse.raw_client import Listening, listening
from tests.protocols.aap.agents import AGENTS, GATES, Gates
from tests.protocols.aap.client import Face
from tests.servers import House, HouseMaker, opened


class ServerMaker(Protocol):
    """Opens a server behind a socket of its own; settings by name."""

    def __call__(self, **settings: Any) -> AbstractAsyncContextManager[Listening]: ...


@pytest.fixture(scope="session")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A server that the cases share: each works in sessions of its own."""
    async with opened(tmp_path_factory.mktemp("abused"), agents=[*AGENTS, *wild.agents()]) as house:
        yield house


@pytest.fixture(scope="session")
def face(house: House) -> Face:
    """The shared server as alice sees it."""
    return house.face("alice")


@pytest.fixture(scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Listening]:
    """A server behind a socket that the cases share."""
    folder = tmp_path_factory.mktemp("listening")
    async with listening(folder, agents=[*AGENTS, *wild.agents()], body_bytes=1024 * 1024) as server:
        yield server


@pytest.fixture
def open_house(tmp_path_factory: pytest.TempPathFactory) -> HouseMaker:
    """Opens servers of one's own in process, each on a new folder."""

    def maker(**changes: Any) -> AbstractAsyncContextManager[House]:
        given = {"agents": [*AGENTS, *wild.agents()], **changes}
        return opened(Path(tmp_path_factory.mktemp("own")), **given)

    return maker


@pytest.fixture
def open_server(tmp_path_factory: pytest.TempPathFactory) -> ServerMaker:
    """Opens servers of one's own behind a socket, each on a new folder."""

    def maker(**changes: Any) -> AbstractAsyncContextManager[Listening]:
        given = {"agents": [*AGENTS, *wild.agents()], **changes}
        return listening(Path(tmp_path_factory.mktemp("own")), **given)

    return maker


@pytest.fixture(scope="session")
def gates() -> Gates:
    """Where tools wait."""
    return GATES


@pytest.fixture(autouse=True)
def logged() -> Iterator[StringIO]:
    """Everything that is logged while the case runs, as the server logs it."""
    root = logging.getLogger()
    handlers, level, out = root.handlers[:], root.level, StringIO()
    server_logging.set_up("json", "debug", stream=out)
    yield out
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
