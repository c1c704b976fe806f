"""The example page in a real browser: `examples/ag-ui-web`, with index.html and chat.jsx as they stand there."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.browser import Page, browser, web_site
from tests.conversations import call, script
from tests.nodejs import bundle, require_package
from tests.protocols.agui.official_clients import CLIENTS
from tests.requirements import requirement
from tests.servers import SocketServer

EXAMPLE = Path(__file__).parents[3] / "examples" / "ag-ui-web"
HELLO = "Hello! I am the rehearsal agent."
REACT = Path(__file__).parents[1] / "aisdk" / "clients"
CONNECTED = "!!document.querySelector('#send:not(:disabled)')"


@pytest.fixture(scope="module")
async def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page, built as its README says, with the packages that the tests have."""
    folder = tmp_path_factory.mktemp("page")
    require_package(CLIENTS, "markdown-to-jsx")
    react = [f"--alias:{name}={require_package(REACT, name)}" for name in ("react", "react-dom")]
    options = ("--jsx=automatic", "--alias:@ag-ui/client=ag-ui-1", *react)
    await bundle(EXAMPLE / "chat.jsx", folder / "dist" / "chat.js", CLIENTS, *options)
    shutil.copy(EXAMPLE / "index.html", folder)
    return folder


@pytest.fixture(scope="module")
def site(built: Path) -> Iterator[str]:
    """Serve the page from another origin than Dragoman's."""
    with web_site(built) as url:
        yield f"{url}/index.html"


@pytest.fixture(scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Page]:
    async with browser(tmp_path_factory.mktemp("profile")) as chromium:
        yield await chromium.page()


async def open_page(page: Page, url: str, server: SocketServer) -> None:
    """Load the page and fill in its form."""
    await page.go(url, "!!document.querySelector('#settings')")
    for name, value in (("server", server.connection.url), ("agent", "rehearsal"), ("key", server.key("alice"))):
        await page.run(f"document.getElementById('{name}').value = '{value}'")
    await page.run("document.getElementById('settings').requestSubmit()")
    await page.until(CONNECTED)


async def reload_page(page: Page) -> None:
    """Load it again as a person does, which breaks off what it was reading."""
    await page.reload()
    await page.until("!!document.querySelector('#log')")


async def say(page: Page, text: str) -> None:
    await page.until("!document.getElementById('send').disabled")
    await page.run(f"document.getElementById('text').value = decodeURIComponent('{quote(text)}')")
    await page.run("document.getElementById('say').requestSubmit()")


async def wait_for_message(page: Page, kind: str, text: str) -> None:
    """Wait until a message of that kind with that text is there."""
    await page.until(f"[...document.querySelectorAll('.{kind}')].some((each) => each.textContent === '{text.strip()}')")


@requirement("ag-ui-b:page")
async def test_the_example_page_streams_runs_tools_asks_stops_and_resumes(
    page: Page, site: str, socket_server: SocketServer
) -> None:
    await open_page(page, site, socket_server)
    await say(page, "hello")
    await wait_for_message(page, "assistant", HELLO)
    await say(page, script(call("color_page", color="rgb(1, 2, 3)"), {"say": "so: {result}"}))
    await wait_for_message(page, "assistant", "so: The page is rgb(1, 2, 3) now.")
    assert await page.run("document.body.style.background") == "rgb(1, 2, 3)"
    await say(page, script(call("stamp", text="x"), {"say": "Then: {result}"}))
    await page.until("!!document.querySelector('.interrupt button')")
    await page.run("document.querySelector('.interrupt button').click()")
    await wait_for_message(page, "assistant", "Then: stamped x")
    await say(page, "**bold** <b>raw</b>")
    await page.until("!!document.querySelector('.assistant strong')")
    assert await page.run("document.querySelector('.assistant b')") is None
    await say(page, "ask me")
    await page.until("document.querySelector('.interrupt button')?.textContent === 'staging'")
    await page.run("document.querySelector('.interrupt input').value = 'neither'")
    await page.run("document.querySelector('.interrupt .primary').click()")
    await wait_for_message(page, "assistant", "You chose neither.")
    await say(page, script({"say": "on and on"}, {"wait_ms": 600_000}))
    await wait_for_message(page, "assistant", "on and on")
    await page.run("document.getElementById('stop').click()")
    await say(page, "add 1 and 2")
    await wait_for_message(page, "assistant", "The sum is 3.")
    await say(page, script({"say": "half"}, {"fail": "internal"}))
    await wait_for_message(page, "error", "The agent failed")
    await say(page, script({"emit": {"count": 60, "text": "w{i} ", "every_ms": 20}}))
    await page.until("document.getElementById('log').textContent.includes('w5 ')")
    await reload_page(page)
    await wait_for_message(page, "assistant", "".join(f"w{place} " for place in range(60)))
    assert await page.run("document.querySelectorAll('.error').length") == 0
    await page.until("!document.getElementById('send').disabled")
    before = await page.run("document.getElementById('log').textContent")
    await reload_page(page)
    await wait_for_message(page, "assistant", "The sum is 3.")
    await page.until("!document.getElementById('send').disabled")
    after = await page.run("document.getElementById('log').textContent")
    assert after == before
    assert page.console == []
