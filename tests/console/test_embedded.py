"""The console before a server as `make run` starts it: with the embedded model, which is a real one."""

from pathlib import Path

import pytest

from tests.browser import Browser
from tests.console.conftest import SCREENSHOTS
from tests.console.console_page import ConsolePage
from tests.servers import running_socket_server


@pytest.mark.slow
async def test_a_newcomer_gets_an_answer_of_a_real_model_and_its_title(chromium: Browser, tmp_path: Path) -> None:
    async with running_socket_server(tmp_path, rehearsal=False) as house:
        desk = ConsolePage(await chromium.page(), house.connection.url, house.key("alice"), SCREENSHOTS)
        await desk.resize(1280, 860)
        await desk.open()
        await desk.write("Message", "What is the capital of France?")
        await desk.page.press("Enter")
        words = "document.querySelector('.assistant .markdown')?.innerText.length"
        await desk.until(
            f"{words} > 5"
        )  # a busy machine loads the model for a while, and a small model says what it likes
        await desk.until("document.querySelector('.answer-foot')")
        assert await desk.text(".chat-title") == "What is the capital of France?"
        assert "tokens" in await desk.text(".answer-foot")
        await desk.screenshot("embedded")
        assert desk.console == []
        await desk.close()
