"""The npm package `@dragoman/ai-sdk` (`web/packages/ai-sdk`) in pages on the official client."""

from pathlib import Path
from typing import Any

import pytest

from tests.conversations import call, script
from tests.protocols.aisdk.official_clients import Message, OfficialChat, OfficialClients, Version
from tests.protocols.aisdk.test_clients import PAINT, SLOW, Browser
from tests.requirements import requirement
from tests.servers import SocketServer

Json = Any
PACKAGE = Path(__file__).parents[3] / "web" / "packages" / "ai-sdk" / "index.js"
VERSIONS: tuple[Version, ...] = ("5", "6", "7")


@pytest.fixture(params=VERSIONS)
def browser(request: pytest.FixtureRequest, official: OfficialClients, socket_server: SocketServer) -> Browser:
    return Browser(official, socket_server, request.param)


async def load(browser: Browser, **options: Json) -> OfficialChat:
    """A page that uses the package: it loads its messages itself."""
    return await browser.load(messages=None, module=str(PACKAGE), **options)


async def is_running(browser: Browser) -> bool:
    chats = (await browser.pages.request("GET", "")).json
    return next(bool(each["running"]) for each in chats if each["id"] == browser.chat)


def texts(messages: list[Message]) -> list[str]:
    return ["".join(part.get("text", "") for part in each["parts"]) for each in messages]


@requirement("ai-sdk:package:stops")
async def test_stop_stops_the_run_for_everybody_and_the_next_message_is_answered(browser: Browser) -> None:
    page = await load(browser)
    sending = page.begin("send", message={"text": SLOW})
    await page.wait_for_text("Now")
    other = await browser.load()
    watching = other.begin("resume")
    await other.wait_for_text("Now it")
    stopping = page.begin("stop")
    following = page.begin("send", message={"text": "next"})
    watched = await watching
    assert (watched.status, watched.text[:6]) == ("ready", "Now it")
    for each in (sending, stopping, following):
        await each
    assert texts(await browser.history()) == [SLOW, watched.text, "next", "You said: next"]


@requirement("ai-sdk:package:stops")
async def test_a_stop_before_the_answer_begins_is_not_lost(browser: Browser) -> None:
    page = await load(browser, stopsAtOnce=True)
    seen = await page.send(SLOW)
    requests = [each["url"].rpartition("/")[2] for each in seen.requests]
    assert requests == ["messages", "rehearsal", "stop"]
    assert not await is_running(browser)


@requirement("ai-sdk:package:stops")
async def test_what_waits_after_an_answer_and_lost_connections_are_not_stopped(browser: Browser) -> None:
    page = await load(browser, body=PAINT, automatic=None)
    seen = await page.send(script(call("paint", c=1), {"say": "{result}"}))
    await page.do("stop")
    assert (await browser.history())[-1]["parts"][-1]["state"] == "input-available"
    output = {"tool": "paint", "toolCallId": seen.part("tool-paint")["toolCallId"], "output": "red"}
    await page.do("output", options=output)
    assert (await page.send()).text == "red"
    await page.cut(300)
    lost = await page.do("send", message={"text": SLOW})
    assert (lost.status, await is_running(browser)) == ("error", True)
    assert await page.halt()


@requirement("ai-sdk:package:helps")
async def test_a_page_loads_its_chat_stops_what_it_resumed_and_sends_the_newest_message_alone(browser: Browser) -> None:
    first = await load(browser)
    assert (await first.do("show")).messages == []
    sending = first.begin("send", message={"text": SLOW})
    await first.wait_for_text("Now")
    page = await load(browser, only=1, body=PAINT)
    resuming = page.begin("resume")
    await page.wait_for_text("Now it begins.")
    assert await page.halt()
    assert not await page.halt()
    for each in (await resuming, await sending):
        await browser.check(each)
    seen = await page.send("second")
    seen = await page.send(script(call("paint", c=1)), seen.messages[2]["id"])
    assert (seen.part("tool-paint")["state"], len(seen.messages)) == ("input-available", 4)
    await browser.check(seen)
