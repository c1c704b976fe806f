"""What the console loads again, and what it knows from events."""

import json

from tests.browser import Json
from tests.console.console_page import ConsolePage, js_string
from tests.console.sessions import answer, play_session
from tests.console.test_conversations import DONE, start_conversation
from tests.console.test_versions import until_messages
from tests.servers import SocketServer

RECORD_LOADS = """(() => {
    const ask = window.fetch;
    window.loads = [];
    window.fetch = (address, options) => {
        if ((options?.method ?? "GET") === "GET") window.loads.push(new URL(address).pathname);
        return ask(address, options);
    };
})()"""
"""Notes the path of every GET request."""
NEWEST_SESSION = "document.querySelector('.sessions-list .session')"


async def loads_of(console_page: ConsolePage, path: str) -> int:
    """How often the page has loaded this path since the recording began."""
    return int(await console_page.run(f"window.loads.filter((each) => each === {js_string(path)}).length"))


async def test_the_run_of_another_conversation_is_shown_in_the_list_without_loading_it(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    other = await play_session(console_server, {"say": "Hello."})
    shown = await play_session(console_server, {"say": "Hello."})
    await console_page.open("conversations", shown)
    await console_page.until(DONE)
    # A search loads the list at once, in place of a load that is still to come: none is when it was cleared.
    await console_page.write("Search conversations", "nothing like this")
    await console_page.wait_for_text("No matching conversations.", ".sessions")
    await console_page.write("Search conversations", "")
    await console_page.until(f"{NEWEST_SESSION}?.href.includes({js_string(shown)})")
    await console_page.run(RECORD_LOADS)

    words = [f"{number} " for number in range(40)]
    steps: list[Json] = [{"say": words, "every_ms": 30}, {"fail": {"code": "quota", "message": "No."}}]
    text = json.dumps({"script": steps})
    body = {"session_id": other, "input": [{"role": "user", "content": [{"type": "text", "text": text}]}]}
    await answer(console_server, "POST", "/process", body)

    newest = f"{NEWEST_SESSION}?.href.includes({js_string(other)})"
    await console_page.until(f"{newest} && {NEWEST_SESSION}.querySelector('.badge.danger')")
    assert await loads_of(console_page, "/api/sessions") == 0


async def test_an_edited_message_loads_the_messages_for_the_new_branch_and_for_its_versions(
    console_page: ConsolePage,
) -> None:
    session = await start_conversation(console_page, "one")
    await console_page.until(DONE)
    await console_page.run(RECORD_LOADS)
    await console_page.press("Edit message")
    await console_page.write("Edit message", "one, better")
    await console_page.page.press("Enter")
    await until_messages(console_page, "one, better", version="2/2")
    messages = f"/api/sessions/{session}/messages"
    assert await loads_of(console_page, messages) == 2
    await console_page.press("Previous version")
    await until_messages(console_page, "one", version="1/2")
    assert await loads_of(console_page, messages) == 3
