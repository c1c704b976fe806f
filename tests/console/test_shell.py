"""The console's frame: its key, its places, its themes and its languages."""

from pathlib import Path

import pytest

from tests.browser import Browser
from tests.console.axe import faults
from tests.console.console_page import Desk
from tests.servers import SocketHouse, opened_socket

HERE = "document.querySelector('.conversations')"
NAMES = {
    "conversations": "Conversations",
    "lens": "Protocol lens",
    "memories": "Memories",
    "keys": "API keys",
    "schedules": "Scheduled tasks",
    "attachments": "Attachments",
    "health": "Server health",
}


async def test_a_key_is_asked_for_once_and_kept(desk: Desk) -> None:
    key, desk.key = desk.key, None
    await desk.open()
    await desk.sees("Enter your API key")
    await desk.write("API key", "sk-dragoman-wrong")
    await desk.press("Use this key")
    await desk.sees("The server does not know this key.")
    assert await faults(desk) == []
    await desk.picture("key")
    assert key is not None
    await desk.write("API key", key)
    await desk.press("Use this key")
    await desk.until(HERE)
    desk.console.clear()  # browsers note every 401
    await desk.page.go(f"{desk.url}/", HERE)


async def test_another_key_shows_nothing_of_the_one_before(desk: Desk, console_house: SocketHouse) -> None:
    await desk.open()
    await desk.write("Message", "a secret of mine")
    await desk.page.press("Enter")
    await desk.sees("a secret of mine", ".session")
    await desk.press("Forget the key")
    await desk.write("API key", console_house.key("bob"))
    await desk.press("Use this key")
    await desk.sees("No conversations yet.")
    assert "secret" not in await desk.text("body")
    desk.console.clear()  # browsers note every 401


async def test_a_key_in_the_address_is_kept_and_leaves_the_address_at_once(desk: Desk) -> None:
    await desk.page.go(f"{desk.url}/healthz")
    await desk.run("localStorage.clear()")
    await desk.page.go(f"{desk.url}/#key={desk.key}", HERE)
    assert await desk.run("location.href") == f"{desk.url}/"
    assert await desk.run("localStorage.getItem('dragoman.key')") == desk.key


async def test_a_server_without_keys_asks_for_none(
    chromium: Browser, console_house: SocketHouse, tmp_path: Path
) -> None:
    async with opened_socket(tmp_path, auth=False) as house:
        desk = Desk(await chromium.page(), house.line.url, None, tmp_path)
        await desk.open()
        await desk.until(HERE)
        assert not await desk.run("!!document.querySelector('[aria-label=\"Forget the key\"]')")
        await desk.close()


async def test_every_place_is_reached_in_both_languages_and_both_themes(desk: Desk) -> None:
    await desk.open()
    for place, name in NAMES.items():
        await desk.press(name, ".rail")
        await desk.until(f"location.hash === '#/{place}' && document.querySelector('.rail [aria-current=page]')")
        assert await desk.text(".rail [aria-current=page]") == name
        await desk.until(f"document.title === '{name} · Dragoman'")
    before = await desk.run("getComputedStyle(document.body).backgroundColor")
    await desk.press("Theme: as the system", ".rail")
    await desk.press("Theme: light", ".rail")
    await desk.until("document.documentElement.dataset.theme === 'dark'")
    assert await desk.run("getComputedStyle(document.body).backgroundColor") != before
    await desk.press("中文, switch to Chinese", ".rail")
    await desk.sees("服务器状态", ".rail")
    assert await desk.run("document.documentElement.lang") == "zh-CN"
    await desk.open("memories")
    assert await desk.text(".rail [aria-current=page]") == "记忆"
    await desk.set(theme="light", language="en")


async def test_at_400_pixels_nothing_is_cut_off_and_the_places_are_in_a_menu(desk: Desk) -> None:
    await desk.resize(400, 800)
    await desk.open()
    await desk.press("Menu", ".rail")
    await desk.sees("Server health", ".rail")
    assert await desk.run("document.documentElement.scrollWidth") == 400
    await desk.press("Conversations", ".rail")
    assert await desk.run("document.querySelector('.rail.open')") is None


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_the_first_page_has_no_serious_fault_for_those_who_do_not_see_it(desk: Desk, theme: str) -> None:
    await desk.open()
    await desk.set(theme=theme)
    await desk.open()
    await desk.until("document.querySelector('.start')")
    await desk.picture(f"start-{theme}")
    assert await faults(desk) == []
    await desk.set(theme="light")
