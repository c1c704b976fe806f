"""What the client library's tests stand on: a shared server behind a socket, and clients in no mood to wait."""

from collections.abc import AsyncIterator

import pytest

from dragoman.client.connection import Backoff
from tests.servers import SocketHouse, opened_socket


@pytest.fixture(scope="session")
async def socket_house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketHouse]:
    """A server behind a real socket."""
    async with opened_socket(tmp_path_factory.mktemp("house")) as house:
        yield house


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts are the rule here: what waits after each is the machine's time only."""
    monkeypatch.setattr(Backoff, "FIRST_S", 0.01)
    monkeypatch.setattr(Backoff, "MOST_S", 0.05)
