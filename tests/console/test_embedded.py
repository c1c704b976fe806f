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
        # A small model says what it likes, up to its limit of tokens, and a busy machine takes minutes for that:
        # the page is given up when the answer stops growing, not when it is long.
        written = 0
        while not await desk.run("document.querySelector('.answer-foot') !== null"):
            length = "(document.querySelector('.assistant .markdown')?.innerText.length ?? 0)"
            written = await desk.until(
                f"document.querySelector('.answer-foot') ? -1 : {length} > {written} && {length}"
            )
        assert await desk.run("document.querySelector('.assistant .markdown').innerText.length") > 5
        assert await desk.text(".chat-title") == "What is the capital of France?"
        assert "tokens" in await desk.text(".answer-foot")
        await desk.screenshot("embedded")
        assert desk.console == []
        await desk.close()
