"""A page whose server is killed: it says so, comes back by itself, and shows what the log has."""

from pathlib import Path

import pytest

from tests.browser import Browser
from tests.client.cutting_proxy import cutting_proxy
from tests.console.conftest import SCREENSHOTS
from tests.console.console_page import ConsolePage
from tests.conversations import script
from tests.servers import server_process

ANSWER_TEXT = "[...document.querySelectorAll('.assistant .markdown')].map((each) => each.innerText.trim().split(' '))"


@pytest.mark.slow
async def test_a_page_goes_on_after_its_server_was_killed(chromium: Browser, tmp_path: Path) -> None:
    async with server_process(tmp_path) as running, cutting_proxy(running.connection.url, lambda: None) as front:
        desk = ConsolePage(await chromium.page(), front.url, running.key("alice"), SCREENSHOTS)
        await desk.resize(1280, 860)
        await desk.open()
        words = [f"{number} " for number in range(60)]
        await desk.write("Message", script({"say": words, "every_ms": 25}, {"step": True}, {"say": "The end."}))
        await desk.page.press("Enter")
        await desk.wait_for_text("8 9 10", ".assistant")
        await running.crash()
        front.target = running.connection.url  # the page stays at its address
        await desk.wait_for_text("The end.", ".assistant")
        await desk.until("!document.querySelector('.chat-head [role=status]')")
        cut, whole, end = await desk.run(ANSWER_TEXT)
        assert cut == [str(number) for number in range(len(cut))]
        assert (whole, end) == ([str(number) for number in range(60)], ["The", "end."])
        await desk.wait_for_text("Interrupted by a server restart", ".ending")
        await desk.screenshot("after-a-crash")
        await desk.close()
