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
from tests.till import open_till

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
PAYING = """
from dragoman import agent, tool


@tool(on_restart="ask")
async def pay(who: str) -> str:
    return await take(who)


@agent(tools=[pay], history=True)
async def shop(run):
    yield await run.call(pay, who="Bob")
"""
RUN_AGAIN = "The server restarted while pay ran, so it may have run already. Run it again?"


@pytest.mark.slow
async def test_after_a_crash_the_cut_text_and_its_replacement_are_distinguished_live_and_after_a_reload(
    chromium: Browser, tmp_path: Path
) -> None:
    async with server_process(tmp_path) as running, cutting_proxy(running.connection.url, lambda: None) as front:
        console_page = ConsolePage(await chromium.page(), front.url, running.key("alice"), SCREENSHOTS)
        await console_page.resize(1280, 860)
        await console_page.open()
        await console_page.write("Message", script({"say": WORDS, "every_ms": 25}, {"step": True}, {"say": "The end."}))
        await console_page.page.press("Enter")
        await console_page.wait_for_text("8 9 10", ".assistant")
        await running.crash()
        front.target = running.connection.url  # the page stays at its address
        await console_page.wait_for_text("The end.", ".assistant")
        await console_page.until("!document.querySelector('.chat-head [role=status]')")
        for is_reloaded in (False, True):
            if is_reloaded:
                await console_page.reload()
            await console_page.wait_for_text("The end.", ".assistant")
            cut = await console_page.until(CUT)
            assert cut == [str(number) for number in range(len(cut))]
            assert await console_page.run(WHOLE) == [[str(number) for number in range(60)], ["The", "end."]]
            assert await console_page.text(".ending") == STARTS_OVER
        assert await serious_violations(console_page) == []
        await console_page.screenshot("after-a-crash")
        await console_page.page.send_command("Browser.grantPermissions", permissions=["clipboardReadWrite"])
        await console_page.press("Copy answer")
        copied = str(await console_page.until("navigator.clipboard.readText()"))
        assert copied == "".join(WORDS) + "\n\nThe end."
        await console_page.set(theme="dark")
        await console_page.resize(400, 860)
        await console_page.reload()
        await console_page.until(CUT)
        assert await serious_violations(console_page) == []
        await console_page.screenshot("after-a-crash-narrow-dark")
        await console_page.set(theme="light")
        await console_page.close()


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
        console_page = ConsolePage(await chromium.page(), front.url, running.key("alice"), SCREENSHOTS)
        await console_page.resize(1280, 860)
        await console_page.open()
        await console_page.write("Message", "Any ideas?")
        await console_page.page.press("Enter")
        await console_page.wait_for_text("I had an idea:", ".assistant")
        other = ConsolePage(await chromium.page(), front.url, running.key("alice"), SCREENSHOTS)
        await other.open("memories")
        await running.crash()
        await other.run("location.hash = '#/conversations'")
        await other.wait_for_text("Cannot reach the server.")
        front.target = running.connection.url
        await other.wait_for_text("forgetful", ".agent")
        await other.close()
        await console_page.wait_for_text(f"{LOST}\ninterrupted", ".ending")
        await console_page.reload()
        await console_page.wait_for_text(f"{LOST}\ninterrupted", ".ending")
        await console_page.screenshot("lost-in-a-crash")
        await console_page.press("Try again")
        await console_page.until("!document.querySelector('.ending') && document.querySelector('.assistant .markdown')")
        await console_page.press("Stop")
        await console_page.wait_for_text("Stopped", ".ending")
        await console_page.close()


@pytest.mark.slow
async def test_whether_a_call_runs_again_after_a_crash_is_no_first_approval(chromium: Browser, tmp_path: Path) -> None:
    async with (
        open_till(tmp_path, PAYING) as till,
        server_process(tmp_path / "data", agents=till.app) as running,
        cutting_proxy(running.connection.url, lambda: None) as front,
    ):
        console_page = ConsolePage(await chromium.page(), front.url, running.key("alice"), SCREENSHOTS)
        await console_page.open()
        await console_page.write("Message", "Pay Bob.")
        await console_page.page.press("Enter")
        await console_page.wait_for_text("running", ".call-state")
        await till.until(Bob=1)
        await running.crash()
        front.target = running.connection.url
        await console_page.wait_for_text(RUN_AGAIN, "form.asking")
        buttons = "[...document.querySelectorAll('form.asking button')].map((each) => each.innerText)"
        assert await console_page.run(buttons) == ["Run again", "Deny…"]
        assert await serious_violations(console_page) == []
        await console_page.screenshot("run-again")
        await console_page.press("Run again")
        await console_page.wait_for_text("paid Bob", ".assistant")
        await console_page.wait_for_text(f"{RUN_AGAIN} Run again", ".answered")
        await console_page.close()
