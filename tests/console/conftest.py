"""The console in a real browser, with a real server that has the rehearsal agents."""

from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from dragoman.asgi.console import FOLDER
from tests.browser import Browser, browser, http_server
from tests.console.console_page import ConsolePage
from tests.servers import SocketServer, running_socket_server

SCREENSHOTS = Path(__file__).parents[2] / "build" / "console"


@pytest.fixture(scope="module")
async def chromium(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """One browser for all tests of a file."""
    async with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
async def console_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    """One server for all tests of a file."""
    if not (FOLDER / "index.html").is_file():
        pytest.skip("the console is not built: run `make console`")
    async with running_socket_server(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture
async def console_page(chromium: Browser, console_server: SocketServer) -> AsyncIterator[ConsolePage]:
    """A window of the console with a user's key."""
    window = ConsolePage(await chromium.page(), console_server.connection.url, console_server.key("alice"), SCREENSHOTS)
    await window.resize(1280, 860)
    await window.forget("theme", "language")  # which an earlier test may have chosen
    try:
        yield window
    finally:
        await window.close()
    assert window.console == []


class ForeignOrigin:
    """Another origin that records requests. Hostile content names it and must not reach it."""

    def __init__(self, url: str, requests: list[str]) -> None:
        self.url = url
        self.requests = requests


@pytest.fixture
def foreign_origin() -> Iterator[ForeignOrigin]:
    requests: list[str] = []
    with http_server(_recording(requests.append)) as url:
        yield ForeignOrigin(url, requests)


def _recording(record: Callable[[str], None]) -> type[BaseHTTPRequestHandler]:
    class Recording(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # its name there
            record(self.path)
            self.send_response(204)
            self.end_headers()

        do_POST = do_GET  # noqa: N815  # its name there

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
            pass

    return Recording
