"""The example page in a real browser: `examples/use_chat`, with index.html and chat.jsx as they stand there."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.browser import Page, browser, web_site
from tests.conversations import call, script
from tests.nodejs import bundle
from tests.protocols.aisdk.official_clients import CLIENTS
from tests.requirements import requirement
from tests.servers import SocketServer

EXAMPLE = Path(__file__).parents[3] / "examples" / "use_chat"
SLOW = script({"say": "It begins. "}, {"wait_ms": 1500}, {"say": "It ends."})


@pytest.fixture
async def built(tmp_path: Path) -> Path:
    """The page, built as its README says, with the packages that the tests have."""
    await bundle(EXAMPLE / "chat.jsx", tmp_path / "dist" / "chat.js", CLIENTS, "--jsx=automatic")
    shutil.copy(EXAMPLE / "index.html", tmp_path)
    return tmp_path


@pytest.fixture
def site(built: Path) -> Iterator[str]:
    """Serve the page from another origin than Dragoman's."""
    with web_site(built) as url:
        yield f"{url}/index.html"


@pytest.fixture
async def page(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Page]:
    async with browser(tmp_path_factory.mktemp("profile")) as chromium:
        yield await chromium.page()


async def say(page: Page, text: str) -> None:
    """Type a message and send it, as React notices it."""
    await page.until("!!document.getElementById('stop')?.disabled")
    value = f"decodeURIComponent('{quote(text)}')"
    setter = "Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set"
    await page.run(
        f"((input) => ({setter}.call(input, {value}), input.dispatchEvent(new Event('input', {{bubbles: true}}))))"
        "(document.getElementById('text'))"
    )
    await page.until("!document.getElementById('send').disabled")
    await page.run("document.getElementById('send').click()")


async def wait_for_answer(page: Page, text: str) -> None:
    await page.until(f"[...document.querySelectorAll('.assistant')].at(-1)?.textContent.includes('{text}')")


@requirement("ai-sdk:resume:turn", "ai-sdk:answers:approval", "ai-sdk:answers:question", "ai-sdk:stop:durable")
async def test_the_example_page_streams_runs_tools_asks_stops_and_resumes(
    page: Page, site: str, socket_server: SocketServer
) -> None:
    settings = f"server={socket_server.connection.url}&agent=rehearsal&chat=page&key={socket_server.key('alice')}"
    await page.go(f"{site}#{settings}", "!!document.getElementById('send')")
    await say(page, script(call("color_page", color="rgb(1, 2, 3)"), {"say": "so: {result}"}))
    await wait_for_answer(page, "so: The page is rgb(1, 2, 3) now.")
    assert await page.run("document.body.style.background") == "rgb(1, 2, 3)"
    await say(page, script(call("stamp", text="x"), {"say": "Then: {result}"}))
    await page.until("document.querySelector('.assistant button')?.textContent === 'Allow stamp'")
    await page.run("document.querySelector('.assistant button').click()")
    await wait_for_answer(page, "Then: stamped x")
    await say(page, "ask me")
    await page.until("document.querySelector('.assistant button')?.textContent === 'staging'")
    assert await page.run("document.querySelector('.assistant form p').textContent") == "Which environment?"
    await page.run("document.querySelector('.assistant button').click()")
    await wait_for_answer(page, "You chose staging.")
    await say(page, SLOW)
    await wait_for_answer(page, "It begins.")
    await page.reload()
    await page.until("!!document.getElementById('send')")
    await wait_for_answer(page, "It ends.")
    await wait_for_answer(page, "It begins.")
    assert await page.run("document.querySelectorAll('.assistant').length") == 4
    await page.until("!document.getElementById('again').disabled")
    await page.run("document.getElementById('again').click()")
    await page.until("!document.getElementById('stop').disabled")
    await wait_for_answer(page, "It begins.")
    await page.run("document.getElementById('stop').click()")
    await page.until("!document.getElementById('again').disabled")
    await say(page, "hello")
    await wait_for_answer(page, "Hello! I am the rehearsal agent.")
