"""The console's shell: key, navigation, themes and languages."""

import json
from pathlib import Path

import pytest

from tests.browser import Browser
from tests.console.axe import serious_violations
from tests.console.console_page import ConsolePage
from tests.console.sessions import answer, play_session
from tests.servers import SocketServer, running_socket_server

CONVERSATIONS_PANE = "document.querySelector('.conversations')"
NAMES = {
    "conversations": "Conversations",
    "lens": "Protocol lens",
    "memories": "Memories",
    "keys": "API keys",
    "schedules": "Scheduled tasks",
    "attachments": "Attachments",
    "health": "Server health",
}


async def test_a_key_is_asked_for_once_and_kept(console_page: ConsolePage) -> None:
    key, console_page.key = console_page.key, None
    await console_page.open()
    await console_page.wait_for_text("Enter your API key")
    await console_page.write("API key", "sk-dragoman-wrong")
    await console_page.press("Continue")
    await console_page.wait_for_text("The server rejected this key.")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("key")
    assert key is not None
    await console_page.write("API key", key)
    await console_page.press("Continue")
    await console_page.until(CONVERSATIONS_PANE)
    console_page.console.clear()  # browsers note every 401
    await console_page.page.go(f"{console_page.url}/", CONVERSATIONS_PANE)


async def test_another_key_shows_nothing_of_the_previous_one(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    await console_page.open()
    await console_page.write("Message", "a secret of mine")
    await console_page.page.press("Enter")
    await console_page.wait_for_text("a secret of mine", ".session")
    await console_page.press("Sign out")
    await console_page.write("API key", console_server.key("bob"))
    await console_page.press("Continue")
    await console_page.wait_for_text("No conversations yet.")
    assert "secret" not in await console_page.text("body")
    console_page.console.clear()  # browsers note every 401


async def test_a_key_that_can_only_read_is_offered_no_message_field(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    session = await play_session(console_server, {"say": "Hello!"})
    console_page.key = console_server.key("alice_reads")
    await console_page.open()
    await console_page.wait_for_text("This key can only read.")
    assert await serious_violations(console_page) == []
    await console_page.open("conversations", session)
    await console_page.wait_for_text("Hello!", ".assistant")
    await console_page.wait_for_text("use a key with the scope “use”", ".composer-frame")
    assert await console_page.run("document.querySelector('textarea, [aria-label=\"Edit message\"]')") is None
    assert "Try again" not in await console_page.text()
    await console_page.screenshot("read-only")


BUTTONS = "[...document.querySelectorAll('main button')].map((each) => each.ariaLabel ?? each.innerText)"
"""The names of the buttons in the main part of the page."""


async def test_a_key_that_can_only_read_is_offered_nothing_that_it_may_not_change(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    memory = {"content": "Likes short answers", "type": "feedback"}
    schedule = {"title": "Report", "prompt": "Report", "cron": "0 7 * * *", "timezone": "UTC", "enabled": False}
    made = json.loads(await answer(console_server, "POST", "/api/memories", memory))
    await answer(console_server, "POST", "/api/scheduled-tasks", schedule)
    await answer(console_server, "POST", "/api/user/api-keys/", {"name": "program"})
    waiting = await play_session(console_server, {"call": {"name": "stamp", "input": {"text": "x"}}})
    console_page.key = console_server.key("alice_reads")
    for page, shown in [("memories", "Likes short answers"), ("schedules", "Report"), ("keys", "program")]:
        await console_page.open(page)
        await console_page.wait_for_text(shown, ".item")
        await console_page.wait_for_text("This key can only read. To make changes", ".page-head")
        assert (
            await console_page.run(f"{BUTTONS}.filter((each) => /new|edit|delete|able|re(name|voke)/i.test(each))")
            == []
        )
        assert await serious_violations(console_page) == []
        await console_page.screenshot(f"read-only-{page}")
    await console_page.open("attachments")
    await console_page.wait_for_text("This key can only read. To make changes", ".page-head")
    assert "Upload" not in await console_page.run(BUTTONS)
    await console_page.open("conversations", waiting)
    await console_page.wait_for_text("waiting for you", ".call")
    assert await console_page.run("document.querySelector('form.asking, [aria-label=\"New conversation\"]')") is None
    await console_page.screenshot("read-only-waiting")
    await console_page.open("lens", waiting)
    await console_page.until("document.querySelector('[role=grid], .lens-grid, table')")
    assert await console_page.run("document.querySelector('.lens-say')") is None
    await answer(console_server, "DELETE", f"/api/memories/{made['id']}")  # another test expects none


async def test_a_viewer_of_a_shared_conversation_is_offered_no_approval(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    waiting = await play_session(console_server, {"call": {"name": "stamp", "input": {"text": "x"}}})
    await answer(console_server, "PATCH", f"/api/sessions/{waiting}/sharing", {"shared": True})
    console_page.key = console_server.key("bob")
    await console_page.open("conversations", waiting)
    await console_page.wait_for_text("You have read-only access", ".composer-frame")
    await console_page.wait_for_text("waiting for you", ".call")
    assert await console_page.run("document.querySelector('form.asking')") is None


async def test_a_key_in_the_address_is_kept_and_leaves_the_address_at_once(console_page: ConsolePage) -> None:
    await console_page.page.go(f"{console_page.url}/healthz")
    await console_page.run("localStorage.clear()")
    await console_page.page.go(f"{console_page.url}/#key={console_page.key}", CONVERSATIONS_PANE)
    assert await console_page.run("location.href") == f"{console_page.url}/"
    assert await console_page.run("localStorage.getItem('dragoman.key')") == console_page.key


async def test_a_server_without_keys_asks_for_none(
    chromium: Browser, console_server: SocketServer, tmp_path: Path
) -> None:
    async with running_socket_server(tmp_path, auth=False) as server:
        console_page = ConsolePage(await chromium.page(), server.connection.url, None, tmp_path)
        await console_page.open()
        await console_page.until(CONVERSATIONS_PANE)
        assert not await console_page.run("!!document.querySelector('[aria-label=\"Sign out\"]')")
        await console_page.close()


async def test_a_page_that_cannot_be_loaded_says_that_the_server_is_away_and_opens_when_it_is_back(
    console_page: ConsolePage,
) -> None:
    await console_page.open("keys")
    await console_page.page.send_command("Network.enable")
    offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    await console_page.page.send_command("Network.emulateNetworkConditions", offline=True, **offline)
    await console_page.press("Memories", "nav")
    await console_page.wait_for_text("Cannot reach the server.")
    await console_page.press("Try again", "main")
    await console_page.wait_for_text("Cannot reach the server.")
    assert "CSS" not in await console_page.text()
    await console_page.screenshot("server-away")
    await console_page.page.send_command("Network.emulateNetworkConditions", offline=False, **offline)
    await console_page.press("Try again", "main")
    await console_page.wait_for_text("New memory")
    console_page.console.clear()  # the browser reports the requests that failed


async def test_every_page_opens_in_both_languages_and_both_themes(console_page: ConsolePage) -> None:
    await console_page.open()
    for place, name in NAMES.items():
        await console_page.press(name, ".rail")
        await console_page.until(
            f"location.hash === '#/{place}' && document.querySelector('.rail [aria-current=page]')"
        )
        assert await console_page.text(".rail [aria-current=page]") == name
        await console_page.until(f"document.title === '{name} · Dragoman'")
    before = await console_page.run("getComputedStyle(document.body).backgroundColor")
    await console_page.press("Theme: system", ".rail")
    await console_page.press("Theme: light", ".rail")
    await console_page.until("document.documentElement.dataset.theme === 'dark'")
    assert await console_page.run("getComputedStyle(document.body).backgroundColor") != before
    await console_page.press("中文 (switch to Chinese)", ".rail")
    await console_page.wait_for_text("服务器状态", ".rail")
    assert await console_page.run("document.documentElement.lang") == "zh-CN"
    await console_page.open("memories")
    assert await console_page.text(".rail [aria-current=page]") == "记忆"
    await console_page.set(theme="light", language="en")


async def test_at_400_pixels_nothing_is_cut_off_and_the_navigation_is_in_a_menu(console_page: ConsolePage) -> None:
    await console_page.resize(400, 800)
    await console_page.open()
    await console_page.press("Menu", ".rail")
    await console_page.wait_for_text("Server health", ".rail")
    assert await console_page.run("document.documentElement.scrollWidth") == 400
    await console_page.press("Conversations", ".rail")
    assert await console_page.run("document.querySelector('.rail.open')") is None


async def test_on_a_phone_the_message_field_is_in_view_however_many_agents_there_are(console_page: ConsolePage) -> None:
    await console_page.resize(400, 560)
    await console_page.open()
    await console_page.until("document.querySelectorAll('.agent').length >= 2")
    await console_page.run("document.querySelector('.start').scrollTop = 0")
    bottom = await console_page.run("document.querySelector('.start .composer').getBoundingClientRect().bottom")
    assert bottom <= await console_page.run("innerHeight")
    await console_page.screenshot("phone-start")


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_the_first_page_has_no_serious_accessibility_violation(console_page: ConsolePage, theme: str) -> None:
    await console_page.open()
    await console_page.set(theme=theme)
    await console_page.open()
    await console_page.until("document.querySelector('.start')")
    await console_page.screenshot(f"start-{theme}")
    assert await serious_violations(console_page) == []
    await console_page.set(theme="light")
