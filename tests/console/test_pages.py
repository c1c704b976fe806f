"""The pages about what belongs to a user, and to the server."""

from pathlib import Path
from typing import Any

import pytest

from tests.console.axe import faults
from tests.console.console_page import Desk, quoted
from tests.console.sessions import PICTURE, answer, played
from tests.servers import SocketHouse

Json = Any


async def test_a_memory_is_written_found_corrected_switched_off_and_removed(desk: Desk) -> None:
    await desk.open("memories")
    await desk.sees("Nothing is remembered yet")
    for content, topic in (("Likes short answers.", "style"), ("The office is in Hamburg.", "places")):
        await desk.press("New memory")
        await desk.write("What is to be remembered", content, "dialog")
        await desk.write("Topic", topic, "dialog")
        await desk.write("Reason", "Said so.", "dialog")
        await desk.press("Create", "dialog")
        await desk.sees(content, ".items")
    await desk.sees("Because: Said so.", ".item")
    assert await faults(desk) == []
    await desk.picture("memories-light")
    await desk.write("Search memories", "hamb")
    await desk.until("document.querySelectorAll('.item').length === 1")
    await desk.press("Edit", ".item")
    await desk.write("What is to be remembered", "The office is in Bremen.", "dialog")
    await desk.press("Save", "dialog")
    await desk.sees("No memory fits")
    await desk.write("Search memories", "")
    await desk.sees("The office is in Bremen.", ".item")
    await desk.press("Switch off", ".item:first-child")
    await desk.sees("Off", ".item:first-child .badge.warning")
    await desk.choose("State", "enabled")
    await desk.until("document.querySelectorAll('.item').length === 1")
    await desk.press("Delete", ".item")
    await desk.press("Delete", "dialog")
    await desk.sees("No memory fits")
    await desk.choose("State", "")
    await desk.sees("The office is in Bremen.", ".item")


async def test_a_key_is_shown_once_works_and_is_refused_when_it_is_revoked(
    desk: Desk, console_house: SocketHouse
) -> None:
    await desk.open("keys")
    await desk.sees("this browser", ".item")
    await desk.press("New key")
    await desk.write("Name", "laptop", "dialog")
    await desk.press("Create", "dialog")
    await desk.sees("it is not shown again", "dialog")
    plain = await desk.until("document.querySelector('.secret code')?.innerText")
    assert await faults(desk) == []
    await desk.picture("keys-made")
    await desk.press("I have it", "dialog")
    await desk.sees("laptop", ".item")
    assert plain not in await desk.run("document.documentElement.outerHTML")
    console_house.house._keys["laptop"] = plain
    await answer(console_house, "GET", "/api/auth/me", key="laptop")
    row = f".item[data-id={quoted(await desk.run(ID_OF.replace('NAME', 'laptop')))}]"
    await desk.press("Rename", row)
    await desk.write("Name", "old laptop", "dialog")
    await desk.press("Save", "dialog")
    await desk.sees("old laptop", row)
    await desk.press("Revoke", row)
    await desk.press("Revoke", "dialog")
    await desk.until(f"!document.querySelector({quoted(row)})")
    with pytest.raises(AssertionError, match="401"):
        await answer(console_house, "GET", "/api/auth/me", key="laptop")


ID_OF = "[...document.querySelectorAll('.item')].find((each) => each.innerText.includes('NAME')).dataset.id"


async def test_a_task_is_made_with_its_next_times_in_sight_and_stands_in_the_calendar(desk: Desk) -> None:
    await desk.open("schedules")
    await desk.sees("There is no scheduled task")
    await desk.press("New task")
    await desk.write("Title", "Report", "dialog")
    await desk.write("Prompt", "Sum up the day.", "dialog")
    await desk.write("Cron", "0 0 31 2 *", "dialog")
    await desk.sees("cron:", ".schedule-preview")
    desk.console.clear()  # browsers note every 422
    await desk.choose("When", "0 9 * * mon-fri", "dialog")
    await desk.write("Time zone", "Asia/Tokyo", "dialog")
    await desk.until("document.querySelectorAll('.schedule-preview li').length === 5")
    await desk.sees("09:00", ".schedule-preview li")
    assert await faults(desk) == []
    await desk.picture("schedules-editor")
    await desk.press("Create", "dialog")
    await desk.sees("Report", ".item")
    await desk.sees("next: ", ".item")
    await desk.press("Calendar")
    await desk.press("Month after")
    await desk.until("document.querySelectorAll('.calendar-due').length > 15")
    assert await faults(desk) == []
    await desk.picture("schedules-calendar")
    await desk.press("Tasks")
    await desk.press("Switch off", ".item")
    await desk.sees("off", ".item .badge.warning")
    await desk.press("Runs", ".item")
    await desk.sees("It has not been due yet.", ".item")
    await desk.press("Edit", ".item")
    await desk.write("Title", "Evening report", "dialog")
    await desk.press("Save", "dialog")
    await desk.sees("Evening report", ".item h2")
    await desk.press("Delete", ".item")
    await desk.press("Delete", "dialog")
    await desk.sees("There is no scheduled task")


async def test_a_picture_is_uploaded_shown_linked_to_and_removed(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "pixel.png"
    file.write_bytes(PICTURE)
    await desk.open("attachments")
    await desk.sees("Nothing is uploaded")
    chooser = await desk.page.ask("Runtime.evaluate", expression="document.querySelector('input[type=file]')")
    await desk.page.ask("DOM.setFileInputFiles", files=[str(file)], objectId=chooser["result"]["objectId"])
    await desk.until("document.querySelector('.picture img')?.naturalWidth === 1")
    await desk.run("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    await desk.press("Copy the link", ".picture")
    assert await desk.until("window.copied") == await desk.run("document.querySelector('.picture img').src")
    assert await faults(desk) == []
    await desk.picture("attachments")
    await desk.press("Delete", ".picture")
    await desk.press("Delete", "dialog")
    await desk.sees("Nothing is uploaded")


async def test_a_file_that_is_no_picture_is_refused_with_the_reason(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "fake.png"
    file.write_bytes(b"no picture")
    await desk.open("attachments")
    chooser = await desk.page.ask("Runtime.evaluate", expression="document.querySelector('input[type=file]')")
    await desk.page.ask("DOM.setFileInputFiles", files=[str(file)], objectId=chooser["result"]["objectId"])
    await desk.sees("a file that is what it is declared to be", ".toast.error")
    desk.console.clear()  # browsers note every 415


async def test_the_servers_health_is_told_with_what_it_counts_and_serves(
    desk: Desk, console_house: SocketHouse
) -> None:
    await played(console_house, {"say": "Hello."})
    await desk.open("health")
    await desk.sees("The server takes work")
    await desk.sees("Runs now", ".figure")
    await desk.sees("end_turn", ".parts")
    await desk.sees("Plays what the message says", ".item")
    assert await faults(desk) == []
    await desk.picture("health")


async def test_all_pages_fit_a_telephone_in_the_dark_and_in_chinese(desk: Desk, console_house: SocketHouse) -> None:
    await answer(console_house, "POST", "/api/memories", {"content": "Likes tea.", "write_reason": "Said so."})
    await answer(
        console_house, "POST", "/api/scheduled-tasks", {"title": "Report", "prompt": "Sum up.", "cron": "0 9 * * *"}
    )
    session = await played(console_house, {"say": "Hello."})
    await desk.resize(400, 800)
    await desk.open()
    await desk.set(theme="dark", language="zh")
    await desk.open()
    for place, name in PLACES.items():
        await desk.run(f"location.hash = '#/{place}{f'/{session}' if place == 'lens' else ''}'")
        await desk.sees(name, "h1")
        await desk.until("document.querySelector('.item, .lens-row[data-moment=end], .empty')")
        assert await desk.run("document.documentElement.scrollWidth") == 400
        assert await faults(desk) == []
        await desk.picture(f"{place}-dark-narrow-zh")
    await desk.set(theme="light", language="en")


PLACES = {
    "lens": "协议透镜",
    "memories": "记忆",
    "keys": "API 密钥",
    "schedules": "定时任务",
    "attachments": "附件",
    "health": "服务器状态",
}
