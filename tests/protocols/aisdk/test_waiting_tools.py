"""Calls that begin to wait while they run, in pages on the official clients: they are answered as any others."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dragoman import Deferred, NeedsApproval, Run, ToolContext, ToolFailed, agent, tool
from tests.protocols.aisdk.official_clients import OfficialClients, Seen, Version
from tests.protocols.aisdk.test_clients import VERSIONS, Browser
from tests.requirements import requirement
from tests.servers import SocketServer, running_socket_server

Json = Any


@tool
def seat(train: str, context: ToolContext) -> str:
    """Reserve a seat."""
    if context.answer in (None, "elsewhere"):
        question = {"question": "Where?", "options": [{"label": "window"}, {"label": "aisle"}, {"label": "elsewhere"}]}
        raise Deferred("question", {"questions": [question]})
    return f"{context.answer} seat on {train}"


@tool
def refund(order: str, context: ToolContext) -> str:
    """Refund an order."""
    if not context.granted:
        raise NeedsApproval({"age": "90 days"})
    return f"refunded {order}"


@tool
def locate(place: str, context: ToolContext) -> str:
    """Find a place with the help of the page."""
    if context.answer is None:
        raise Deferred("client")
    return f"{place} is at {context.answer}"


TOOLS = {"seat": {"train": "R7"}, "refund": {"order": "old-1"}, "locate": {"place": "Ulm"}}


@agent("clerk", tools=[seat, refund, locate], history=True)
async def clerk(run: Run) -> AsyncIterator[str]:
    """Call the tool that the user names."""
    name, _, then = run.text.partition(" and ")
    yield "Let me see. "
    try:
        yield str(await run.call(name, **TOOLS[name]))
    except ToolFailed as failed:
        yield f"{failed}."
    if then == "wait":
        await asyncio.Event().wait()


@pytest.fixture(scope="module")
async def clerk_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    async with running_socket_server(tmp_path_factory.mktemp("clerk"), agents=[clerk], rehearsal=False) as server:
        yield server


@pytest.fixture(params=VERSIONS)
def browser(request: pytest.FixtureRequest, official: OfficialClients, clerk_server: SocketServer) -> Browser:
    return Browser(official, clerk_server, request.param, agent="clerk")


def approve(seen: Seen, version: Version, *, approved: bool = True) -> tuple[str, Json]:
    part = seen.part("tool-refund")
    if version == "5":
        return "output", {"tool": "refund", "toolCallId": part["toolCallId"], "output": {"approved": approved}}
    assert part["state"] == "approval-requested"
    return "approve", {"id": part["approval"]["id"], "approved": approved}


def choose(seen: Seen, version: Version, label: str = "aisle") -> tuple[str, Json]:
    part = seen.part("tool-AskUserQuestion")
    assert (part["state"], part["input"]["questions"][0]["question"]) == ("input-available", "Where?")
    return "output", {"tool": "AskUserQuestion", "toolCallId": part["toolCallId"], "output": label}


def find(seen: Seen, version: Version) -> tuple[str, Json]:
    part = seen.part("tool-locate")
    assert (part["state"], part["input"]) == ("input-available", {"place": "Ulm"})
    return "output", {"tool": "locate", "toolCallId": part["toolCallId"], "output": "the Danube"}


ANSWERS: dict[str, tuple[Callable[[Seen, Version], tuple[str, Json]], str]] = {
    "refund": (approve, "refunded old-1"),
    "seat": (choose, "aisle seat on R7"),
    "locate": (find, "Ulm is at the Danube"),
}


@requirement("ai-sdk:answers:waiting", "ai-sdk:history:waiting")
@pytest.mark.parametrize("reloads", [False, True])
@pytest.mark.parametrize("name", ANSWERS)
async def test_a_tool_that_asks_while_it_runs_is_answered_in_the_same_message(
    browser: Browser, name: str, reloads: bool
) -> None:
    answer, text = ANSWERS[name]
    page = await browser.load()
    seen = await page.send(name)
    await browser.check(seen)
    if reloads:
        page = await browser.load()
        seen = await page.do("show")
    do, options = answer(seen, browser.version)
    seen = await page.do(do, options=options)
    assert (seen.text, seen.statuses, len(seen.messages)) == (f"Let me see. {text}", [200], 2)
    await browser.check(seen)


@requirement("ai-sdk:answers:waiting")
async def test_a_tool_that_is_denied_while_it_runs_does_not_continue(browser: Browser) -> None:
    page = await browser.load()
    do, options = approve(await page.send("refund"), browser.version, approved=False)
    seen = await page.do(do, options=options)
    assert (seen.text, seen.statuses) == ("Let me see. Tool call denied.", [200])
    await browser.check(seen)


@requirement("ai-sdk:answers:waiting")
async def test_a_tool_that_asks_again_gets_the_answer_to_its_last_question(browser: Browser) -> None:
    page = await browser.load()
    do, options = choose(await page.send("seat"), browser.version, "elsewhere")
    seen = await page.do(do, options=options)
    assert (seen.text, seen.statuses) == ("Let me see. ", [200])
    await browser.check(seen)
    do, options = choose(seen, browser.version)
    seen = await page.do(do, options=options)
    chosen = [
        part["output"]["answers"][0]["labels"] for part in seen.last["parts"] if part["type"] == "tool-AskUserQuestion"
    ]
    assert (chosen, seen.text) == ([["elsewhere"], ["aisle"]], "Let me see. aisle seat on R7")
    await browser.check(seen)


@requirement("ai-sdk:answers:waiting")
async def test_a_question_of_a_tool_can_be_declined_or_left(browser: Browser) -> None:
    page = await browser.load()
    question = (await page.send("seat")).part("tool-AskUserQuestion")
    named = {"tool": "AskUserQuestion", "toolCallId": question["toolCallId"]}
    seen = await page.do("output", options={**named, "state": "output-error", "errorText": "No time"})
    assert (seen.text, seen.status) == ("Let me see. Tool call denied: No time.", "ready")
    await browser.check(seen)
    await page.send("seat")
    seen = await page.send("refund")
    assert seen.part("tool-refund")["toolCallId"]
    states = [part["state"] for each in await browser.history() for part in each["parts"] if "toolCallId" in part]
    assert set(states[:-1]) == {"output-error"}


@requirement("ai-sdk:answers:waiting", "ai-sdk:resume:settled")
async def test_a_page_that_joins_later_does_not_run_again_what_a_tool_asked_of_the_page(browser: Browser) -> None:
    page = await browser.load(tools={"locate": "the Danube"})
    sending = page.begin("send", message={"text": "locate and wait"})
    await page.wait_for_text("Ulm is at the Danube")
    reloaded = await browser.load(tools={"locate": "the Rhine"})
    resuming = reloaded.begin("resume")
    await reloaded.wait_for_text("Ulm is at the Danube")
    path = f"/{browser.chat.replace('/', '%2F').replace(' ', '%20')}/stop"
    assert (await browser.pages.request("POST", path)).json == {"stopped": True}
    first, second = await sending, await resuming
    assert (first.calls, second.calls) == (["locate"], [])
    await browser.check(first)
    await browser.check(second)
