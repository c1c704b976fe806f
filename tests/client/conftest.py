"""What the client library's tests stand on: a shared server behind a socket, and clients in no mood to wait."""

from collections.abc import AsyncIterator

import pytest

from dragoman.client.connection import Backoff
from tests.servers import SocketServer, running_socket_server


@pytest.fixture(scope="session")
async def socket_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    """A server behind a real socket."""
    async with running_socket_server(tmp_path_factory.mktemp("house")) as house:
        yield house


@pytest.fixture(autouse=True)
def _short_retry_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts are the rule here: what waits after each is the machine's time only."""
    monkeypatch.setattr(Backoff, "INITIAL_DELAY_S", 0.01)
    monkeypatch.setattr(Backoff, "MAX_DELAY_S", 0.05)
