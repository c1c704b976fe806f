"""A tool that has to be allowed and then asks: the user sees first the one, then the other."""

import json
from pathlib import Path

from dragoman import Agent, Deferred, ToolContext, tool
from dragoman.testing import Scripted, call
from tests.browser import Browser
from tests.console.conftest import SCREENSHOTS
from tests.console.console_page import ConsolePage
from tests.console.sessions import answer
from tests.requirements import requirement
from tests.servers import running_socket_server

SEATS = {"questions": [{"question": "Which seat?", "options": [{"label": "window"}, {"label": "aisle"}]}]}
CHOOSE = "[...document.querySelectorAll('main label')].find((each) => each.innerText.includes('aisle')).click()"


@tool(needs_approval=True)
def trip(train: str, context: ToolContext) -> str:
    """Book a trip."""
    if context.answer is None:
        raise Deferred("question", SEATS)
    return f"{train}: {context.answer}"


@requirement("blade:questions:of-tools")
async def test_a_tool_that_was_allowed_shows_the_options_of_its_question(chromium: Browser, tmp_path: Path) -> None:
    clerk = Agent("clerk", model=Scripted([call("trip", train="R7"), "Booked."]), tools=[trip])
    async with running_socket_server(tmp_path, agents=[clerk], rehearsal=False) as server:
        go = {"input": [{"role": "user", "content": [{"type": "text", "text": "Go"}]}]}
        events = (await answer(server, "POST", "/process", go)).split(b"data: ")
        session = json.loads(events[-1])["session_id"]
        page = ConsolePage(await chromium.page(), server.connection.url, server.key("alice"), SCREENSHOTS)
        try:
            await page.open("conversations", session)
            await page.press("Allow once")
            await page.wait_for_text("Which seat?")
            await page.run(CHOOSE)
            await page.screenshot("question-of-a-tool")
            assert "parallel calls" not in await page.run("document.querySelector('main').innerText")
            await page.press("Submit")
            await page.wait_for_text("Booked.")
        finally:
            await page.close()
