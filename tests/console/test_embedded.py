"""The console before a server as `make run` starts it: with the embedded model, which is a real one."""

from pathlib import Path

import pytest

from tests.browser import Browser
from tests.console.conftest import SCREENSHOTS
from tests.console.console_page import ConsolePage
from tests.servers import running_socket_server


@pytest.mark.slow
async def test_a_newcomer_gets_an_answer_of_a_real_model_and_its_title(chromium: Browser, tmp_path: Path) -> None:
    async with running_socket_server(tmp_path, rehearsal=False) as server:
        console_page = ConsolePage(await chromium.page(), server.connection.url, server.key("alice"), SCREENSHOTS)
        await console_page.resize(1280, 860)
        await console_page.open()
        await console_page.wait_for_text("It calls no tools", "[role=note]")
        assert await console_page.text(".agent code") == "embedded"
        await console_page.screenshot("embedded-start")
        await console_page.write("Message", "What is the capital of France?")
        await console_page.page.press("Enter")
        # A small model says what it likes, up to its limit of tokens, and a busy machine takes minutes for that:
        # the page is given up when the answer stops growing, not when it is long.
        written = 0
        while not await console_page.run("document.querySelector('.answer-foot') !== null"):
            length = "(document.querySelector('.assistant .markdown')?.innerText.length ?? 0)"
            written = await console_page.until(
                f"document.querySelector('.answer-foot') ? -1 : {length} > {written} && {length}"
            )
        assert await console_page.run("document.querySelector('.assistant .markdown').innerText.length") > 5
        assert await console_page.text(".chat-title") == "What is the capital of France?"
        assert "tokens" in await console_page.text(".answer-foot")
        await console_page.screenshot("embedded")
        assert console_page.console == []
        await console_page.close()
