"""Pages for memories, keys, schedules, attachments and the server's health."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.console.axe import serious_violations
from tests.console.console_page import ConsolePage, js_string
from tests.console.sessions import PICTURE, answer, play_session
from tests.servers import SocketServer

Json = Any


async def test_a_memory_is_created_found_changed_disabled_and_deleted(console_page: ConsolePage) -> None:
    await console_page.open("memories")
    await console_page.wait_for_text("No memories yet")
    for content, topic in (("Likes short answers.", "style"), ("The office is in Hamburg.", "places")):
        await console_page.press("New memory")
        await console_page.write("Content", content, "dialog")
        await console_page.write("Topic", topic, "dialog")
        await console_page.write("Reason", "Said so.", "dialog")
        await console_page.press("Create", "dialog")
        await console_page.wait_for_text(content, ".items")
    await console_page.wait_for_text("Reason: Said so.", ".item")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("memories-light")
    await console_page.write("Search memories", "hamb")
    await console_page.until("document.querySelectorAll('.item').length === 1")
    await console_page.press("Edit", ".item")
    await console_page.write("Content", "The office is in Bremen.", "dialog")
    await console_page.press("Save", "dialog")
    await console_page.wait_for_text("No matching memories")
    await console_page.write("Search memories", "")
    await console_page.wait_for_text("The office is in Bremen.", ".item")
    await console_page.press("Disable", ".item:first-child")
    await console_page.wait_for_text("Disabled", ".item:first-child .badge.warning")
    await console_page.choose("Status", "enabled")
    await console_page.until("document.querySelectorAll('.item').length === 1")
    await console_page.press("Delete", ".item")
    await console_page.press("Delete", "dialog")
    await console_page.wait_for_text("No matching memories")
    await console_page.choose("Status", "")
    await console_page.wait_for_text("The office is in Bremen.", ".item")


async def test_a_key_is_shown_once_works_and_is_refused_when_it_is_revoked(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    await console_page.open("keys")
    await console_page.wait_for_text("this browser", ".item")
    await console_page.press("New key")
    await console_page.write("Name", "laptop", "dialog")
    await console_page.press("Create", "dialog")
    await console_page.wait_for_text("It will not be shown again", "dialog")
    plain = await console_page.until("document.querySelector('.secret code')?.innerText")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("keys-made")
    await console_page.press("Done", "dialog")
    await console_page.wait_for_text("laptop", ".item")
    assert plain not in await console_page.run("document.documentElement.outerHTML")
    console_server.app_server.keys["laptop"] = plain
    await answer(console_server, "GET", "/api/auth/me", key="laptop")
    row = f".item[data-id={js_string(await console_page.run(ID_OF.replace('NAME', 'laptop')))}]"
    await console_page.press("Rename", row)
    await console_page.write("Name", "old laptop", "dialog")
    await console_page.press("Save", "dialog")
    await console_page.wait_for_text("old laptop", row)
    await console_page.press("Revoke", row)
    await console_page.press("Revoke", "dialog")
    await console_page.until(f"!document.querySelector({js_string(row)})")
    with pytest.raises(AssertionError, match="401"):
        await answer(console_server, "GET", "/api/auth/me", key="laptop")


async def test_an_admin_changes_the_budget_of_a_users_key_and_finds_it_in_the_audit_log(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    await console_page.open("keys")
    await console_page.wait_for_text("this browser", ".item")
    assert "Keys of all users" not in await console_page.text()
    await console_page.wait_for_text("dragoman keys create --name admin --scopes admin")
    assert "Audit log" not in await console_page.text("nav")
    console_page.key = console_server.key("admin")
    await console_page.open("keys")
    await console_page.wait_for_text("no token budget", ".of-all .item")
    await console_page.until("document.querySelector('.item [aria-label=Rename]')?.ariaDescription === 'admin'")
    await console_page.press("Token budget of “bob”", ".of-all")
    await console_page.write("Tokens per day", "5000000", "dialog")
    await console_page.press("Save", "dialog")
    await console_page.wait_for_text("5,000,000 tokens per day", ".of-all .item")
    await console_page.press("Token budget of the user “bob”", ".of-all")
    await console_page.write("Tokens per month", "70000", "dialog")
    await console_page.press("Save", "dialog")
    await console_page.wait_for_text("0 of 70,000 used", ".of-all .item")
    usage = json.loads(await answer(console_server, "GET", "/usage", key="bob"))
    assert [(each["holder"], each["limit"]) for each in usage["budgets"]] == [("user", 70_000), ("key", 5_000_000)]
    assert await serious_violations(console_page) == []
    await console_page.screenshot("keys-admin")
    await console_page.press("Token budget of the user “bob”", ".of-all")
    await console_page.write("Tokens per month", "", "dialog")
    await console_page.press("Save", "dialog")
    await console_page.until("!document.querySelector('.of-all meter')")
    await console_page.press("Audit log", "nav")
    await console_page.wait_for_text("Token budget of an API key changed", ".item")
    await console_page.wait_for_text("Token budget of a user changed", ".item")
    await console_page.write("User", "nobody")
    await console_page.wait_for_text("No entries")
    await console_page.write("User", "admin")
    await console_page.choose("Action", "key.limited")
    await console_page.until("document.querySelectorAll('.item').length === 1")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("audit")


ID_OF = "[...document.querySelectorAll('.item')].find((each) => each.innerText.includes('NAME')).dataset.id"


async def test_a_task_is_created_with_a_preview_and_is_in_the_calendar(
    console_page: ConsolePage,
) -> None:
    await console_page.open("schedules")
    await console_page.wait_for_text("No scheduled tasks yet")
    await console_page.press("New task")
    await console_page.write("Title", "Report", "dialog")
    await console_page.write("Prompt", "Sum up the day.", "dialog")
    await console_page.write("Cron expression", "0 0 31 2 *", "dialog")
    await console_page.wait_for_text("cron:", ".schedule-preview")
    console_page.console.clear()  # browsers note every 422
    await console_page.choose("Schedule", "0 9 * * mon-fri", "dialog")
    await console_page.choose("Agent", "rehearsal-bare", "dialog")
    await console_page.write("Time zone", "Asia/Tokyo", "dialog")
    await console_page.until("document.querySelectorAll('.schedule-preview li').length === 5")
    await console_page.wait_for_text("09:00", ".schedule-preview li")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("schedules-editor")
    await console_page.press("Create", "dialog")
    await console_page.wait_for_text("Report", ".item")
    await console_page.wait_for_text("Next: ", ".item")
    await console_page.wait_for_text("Rehearsal, bare", ".item .badge")
    await console_page.press("Calendar")
    await console_page.press("Next month")
    await console_page.until("document.querySelectorAll('.calendar-due').length > 15")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("schedules-calendar")
    await console_page.press("Tasks")
    await console_page.press("Disable", ".item")
    await console_page.wait_for_text("disabled", ".item .badge.warning")
    await console_page.press("Runs", ".item")
    await console_page.wait_for_text("No runs yet.", ".item")
    await console_page.press("Edit", ".item")
    await console_page.write("Title", "Evening report", "dialog")
    await console_page.press("Save", "dialog")
    await console_page.wait_for_text("Evening report", ".item h2")
    await console_page.press("Delete", ".item")
    await console_page.press("Delete", "dialog")
    await console_page.wait_for_text("No scheduled tasks yet")


async def test_a_picture_is_uploaded_shown_linked_and_deleted(console_page: ConsolePage, tmp_path: Path) -> None:
    file = tmp_path / "pixel.png"
    file.write_bytes(PICTURE)
    await console_page.open("attachments")
    await console_page.wait_for_text("No uploads yet")
    chooser = await console_page.page.send_command(
        "Runtime.evaluate", expression="document.querySelector('input[type=file]')"
    )
    await console_page.page.send_command(
        "DOM.setFileInputFiles", files=[str(file)], objectId=chooser["result"]["objectId"]
    )
    await console_page.until("document.querySelector('.picture img')?.naturalWidth === 1")
    await console_page.run(
        "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"
    )
    await console_page.press("Copy link", ".picture")
    assert await console_page.until("window.copied") == await console_page.run(
        "document.querySelector('.picture img').src"
    )
    assert await serious_violations(console_page) == []
    await console_page.screenshot("attachments")
    await console_page.press("Delete", ".picture")
    await console_page.press("Delete", "dialog")
    await console_page.wait_for_text("No uploads yet")


async def test_a_file_that_is_not_an_image_is_refused_with_the_reason(
    console_page: ConsolePage, tmp_path: Path
) -> None:
    file = tmp_path / "fake.png"
    file.write_bytes(b"no picture")
    await console_page.open("attachments")
    chooser = await console_page.page.send_command(
        "Runtime.evaluate", expression="document.querySelector('input[type=file]')"
    )
    await console_page.page.send_command(
        "DOM.setFileInputFiles", files=[str(file)], objectId=chooser["result"]["objectId"]
    )
    await console_page.wait_for_text("The file must be of its declared type", ".toast.error")
    console_page.console.clear()  # browsers note every 415


async def test_the_servers_health_is_reported_with_metrics_and_agents(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    await play_session(console_server, {"say": "Hello."})
    await console_page.open("health")
    await console_page.wait_for_text("Healthy")
    await console_page.wait_for_text("Active runs", ".figure")
    await console_page.wait_for_text("end_turn", ".parts")
    await console_page.wait_for_text("Does what your message tells it to", ".item")
    await play_session(console_server, {"say": "Hello again."})
    await console_page.reload()  # the metrics are read again, and the first reading is kept
    charted = "[...document.querySelectorAll('.chart strong')].map((each) => each.innerText)"
    rate, errors, commits, first_output = await console_page.until(f"({charted}[1] ?? '–') !== '–' && {charted}")
    assert rate.endswith("/min")
    assert not rate.startswith("0/")
    assert (errors, commits.endswith(" ms"), first_output) == ("0%", True, "–"), "there is no model"
    assert await console_page.run("document.querySelectorAll('.chart polyline').length") == 3
    assert await serious_violations(console_page) == []
    await console_page.screenshot("health")


async def test_all_pages_fit_a_phone_in_the_dark_and_in_chinese(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    await answer(console_server, "POST", "/api/memories", {"content": "Likes tea.", "write_reason": "Said so."})
    await answer(
        console_server, "POST", "/api/scheduled-tasks", {"title": "Report", "prompt": "Sum up.", "cron": "0 9 * * *"}
    )
    session = await play_session(console_server, {"say": "Hello."})
    await console_page.resize(400, 800)
    await console_page.open()
    await console_page.set(theme="dark", language="zh")
    await console_page.open()
    for place, name in PLACES.items():
        await console_page.run(f"location.hash = '#/{place}{f'/{session}' if place == 'lens' else ''}'")
        await console_page.wait_for_text(name, "h1")
        await console_page.until("document.querySelector('.item, .lens-row[data-moment=end], .empty')")
        assert await console_page.run("document.documentElement.scrollWidth") == 400
        assert await serious_violations(console_page) == []
        await console_page.screenshot(f"{place}-dark-narrow-zh")
    await console_page.set(theme="light", language="en")


PLACES = {
    "lens": "协议透镜",
    "memories": "记忆",
    "keys": "API 密钥",
    "schedules": "定时任务",
    "attachments": "附件",
    "health": "服务器状态",
}
