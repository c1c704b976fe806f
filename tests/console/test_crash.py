"""A page whose server is killed: it reconnects by itself, and what the crash cut off is never taken for the answer."""

from pathlib import Path

import pytest

from tests.browser import Browser
from tests.client.cutting_proxy import cutting_proxy
from tests.console.axe import serious_violations
from tests.console.conftest import SCREENSHOTS
from tests.console.console_page import ConsolePage
from tests.conversations import script
from tests.servers import server_process

CUT = "document.querySelector('.cut-text')?.innerText.trim().split(' ')"
WHOLE = "[...document.querySelectorAll('.assistant > .markdown')].map((each) => each.innerText.trim().split(' '))"
STARTS_OVER = "Interrupted by a server restart. The answer starts over below."
LOST = "The server restarted before the answer was complete."
WORDS = [f"{number} " for number in range(60)]
FORGETFUL = """
import asyncio
from dragoman import agent


@agent(resumable=False)
async def forgetful(run):
    yield "I had an idea: "
    await asyncio.sleep(3600)
"""


@pytest.mark.slow
async def test_after_a_crash_the_cut_text_and_its_replacement_are_told_apart_live_and_after_a_reload(
    chromium: Browser, tmp_path: Path
) -> None:
    async with server_process(tmp_path) as running, cutting_proxy(running.connection.url, lambda: None) as front:
        desk = ConsolePage(await chromium.page(), front.url, running.key("alice"), SCREENSHOTS)
        await desk.resize(1280, 860)
        await desk.open()
        await desk.write("Message", script({"say": WORDS, "every_ms": 25}, {"step": True}, {"say": "The end."}))
        await desk.page.press("Enter")
        await desk.wait_for_text("8 9 10", ".assistant")
        await running.crash()
        front.target = running.connection.url  # the page stays at its address
        await desk.wait_for_text("The end.", ".assistant")
        await desk.until("!document.querySelector('.chat-head [role=status]')")
        for is_reloaded in (False, True):
            if is_reloaded:
                await desk.page.send_command("Page.reload")
            await desk.wait_for_text("The end.", ".assistant")
            cut = await desk.until(CUT)
            assert cut == [str(number) for number in range(len(cut))]
            assert await desk.run(WHOLE) == [[str(number) for number in range(60)], ["The", "end."]]
            assert await desk.text(".ending") == STARTS_OVER
        assert await serious_violations(desk) == []
        await desk.screenshot("after-a-crash")
        await desk.page.send_command("Browser.grantPermissions", permissions=["clipboardReadWrite"])
        await desk.press("Copy answer")
        copied = str(await desk.until("navigator.clipboard.readText()"))
        assert copied == "".join(WORDS) + "\n\nThe end."
        await desk.set(theme="dark")
        await desk.resize(400, 860)
        await desk.page.send_command("Page.reload")
        await desk.until(CUT)
        assert await serious_violations(desk) == []
        await desk.screenshot("after-a-crash-narrow-dark")
        await desk.set(theme="light")
        await desk.close()


@pytest.mark.slow
async def test_a_run_that_cannot_continue_after_a_crash_says_so_and_can_be_tried_again(
    chromium: Browser, tmp_path: Path
) -> None:
    app = tmp_path / "app.py"
    app.write_text(FORGETFUL, encoding="utf-8")
    async with (
        server_process(tmp_path / "data", agents=app) as running,
        cutting_proxy(running.connection.url, lambda: None) as front,
    ):
        desk = ConsolePage(await chromium.page(), front.url, running.key("alice"), SCREENSHOTS)
        await desk.resize(1280, 860)
        await desk.open()
        await desk.write("Message", "Any ideas?")
        await desk.page.press("Enter")
        await desk.wait_for_text("I had an idea:", ".assistant")
        await running.crash()
        front.target = running.connection.url
        await desk.wait_for_text(f"{LOST}\ninterrupted", ".ending")
        await desk.page.send_command("Page.reload")
        await desk.wait_for_text(f"{LOST}\ninterrupted", ".ending")
        await desk.screenshot("lost-in-a-crash")
        await desk.press("Try again")
        await desk.until("!document.querySelector('.ending') && document.querySelector('.assistant .markdown')")
        await desk.press("Stop")
        await desk.wait_for_text("Stopped", ".ending")
        await desk.close()
