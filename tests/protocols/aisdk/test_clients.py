"""What pages do, with the official clients of the last three major versions and the first release of 6."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from tests.asgi_client import DEADLINE_S
from tests.conversations import call, calls, script
from tests.protocols.aisdk.client import Pages
from tests.protocols.aisdk.official_clients import Message, OfficialChat, OfficialClients, Seen, Version
from tests.requirements import requirement
from tests.servers import SocketServer

Json = Any
VERSIONS: tuple[Version, ...] = ("5", "6.0", "6", "7")
PAINT = {"tools": {"paint": {"description": "Paint.", "inputSchema": {"type": "object"}}}}
STAMPING = script({"say": "Wait. "}, call("stamp", text="x"), {"say": "Then: {result}"})
SLOW = script({"say": "Now it begins.", "size": 1, "every_ms": 20}, {"wait_ms": 60_000})
VERSION_5 = {"x-ai-sdk-version": "5"}


class Browser:
    """Opens chats as pages do, each load with the history of the server."""

    def __init__(
        self, official: OfficialClients, server: SocketServer, version: Version, agent: str = "rehearsal"
    ) -> None:
        self.official, self.version, self.chat = official, version, f"chat {uuid4()}/ü"
        self._server, self._agent = server, agent
        self.headers = VERSION_5 if version in ("5.0", "5") else {}

    @property
    def pages(self) -> Pages:
        return Pages(self._server.connection, self._server.key("alice"), self._agent)

    async def history(self, query: str = "") -> list[Message]:
        return await self.pages.history(self.chat, query, self.headers)

    async def load(self, **options: Json) -> OfficialChat:
        url, key = self._server.connection.url, self._server.key("alice")
        defaults: Json = {
            "messages": await self.history(),
            "automatic": True,
            "headers": self.headers,
            "agent": self._agent,
        }
        options = defaults | options
        return await self.official.open(self.version, url, key, chat=self.chat, **options)

    async def check(self, seen: Seen) -> None:
        """What the page built from the streams is what a reload shows, and the library accepts it."""
        assert (seen.status, seen.error) == ("ready", None), seen
        history = await self.history()
        assert normal(seen.messages, self.version) == normal(history, self.version)
        await self.official.check(self.version, history)


def normal(messages: list[Message], version: Version) -> list[Message]:
    """Messages without what the clients of a version do not keep, or keep beside."""
    return [{**each, "parts": [normal_part(part, version) for part in each["parts"]]} for each in messages]


def normal_part(part: Json, version: Version) -> Json:
    left_out = {"rawInput", "preliminary", "title"}
    if part["type"] == "reasoning":
        left_out |= {"id"} if version in ("5.0", "5", "6.0") else set()
    if part["type"].startswith("tool-") and version == "6.0":
        left_out |= {"approval"}
    return {name: value for name, value in part.items() if name not in left_out and value not in (None, {})}


@pytest.fixture(params=VERSIONS)
def browser(request: pytest.FixtureRequest, official: OfficialClients, socket_server: SocketServer) -> Browser:
    return Browser(official, socket_server, request.param)


@pytest.fixture(params=("5.0", *VERSIONS))
def any_browser(request: pytest.FixtureRequest, official: OfficialClients, socket_server: SocketServer) -> Browser:
    """Of 5.0, too, which has tools of the page by other names, and sends again for ever after one of the server's."""
    return Browser(official, socket_server, request.param)


@requirement(
    "ai-sdk:send:new", "ai-sdk:stream:chunks", "ai-sdk:history:equal", "ai-sdk:edit:branch", "ai-sdk:regenerate:depth"
)
async def test_a_page_sends_edits_and_regenerates_and_a_reload_shows_the_same(any_browser: Browser) -> None:
    browser = any_browser
    page = await browser.load()
    seen = await page.send(script({"think": "Hm."}, {"say": "One."}, call("add", a=1, b=2), {"say": "So {result}."}))
    assert seen.text == "One.So 3."
    assert seen.requests[0]["run"] == seen.last["id"]
    await browser.check(seen)
    await page.send("second")
    seen = await page.send("third")
    assert seen.text == "You said: third"
    first, second = seen.messages[0]["id"], seen.messages[2]["id"]
    seen = await page.send("changed", second)
    assert [each["role"] for each in seen.messages] == ["user", "assistant", "user", "assistant"]
    assert (seen.messages[2]["id"], seen.text) == (second, "You said: changed")
    await browser.check(seen)
    old = seen.messages[1]["id"]
    seen = await page.do("regenerate", options={"messageId": old})
    assert [each["id"] == first for each in seen.messages] == [True, False]
    assert seen.last["id"] != old, "a new answer is a new message"
    await browser.check(seen)
    only_newest = await browser.load(only=1)
    seen = await only_newest.send("fourth")
    assert seen.text == "You said: fourth"
    await browser.check(seen)


@requirement("ai-sdk:tools:client", "ai-sdk:answers:result", "ai-sdk:tools:flags", "ai-sdk:stream:ids")
async def test_a_tool_of_the_page_is_run_and_its_value_is_kept(browser: Browser) -> None:
    page = await browser.load(tools={"paint": {"colour": "red", "size": [1]}}, body=PAINT)
    seen = await page.send(script({"say": "First. "}, call("paint", c=1), call("paint", c=2), {"say": "{result}"}))
    assert (seen.calls, seen.statuses) == (["paint", "paint"], [200, 200, 200])
    assert (seen.text, len(seen.messages)) == ('First. {"colour":"red","size":[1]}', 2)
    assert seen.part("tool-paint")["output"] == {"colour": "red", "size": [1]}
    await browser.check(seen)
    seen = await page.send(script(call("add", a=1, b=2)))
    assert seen.statuses == [200], "a run that ends with a tool of the server's is not sent again"
    await browser.check(seen)


@requirement("ai-sdk:stream:chunks", "ai-sdk:history:equal")
async def test_a_call_of_an_mcp_server_has_a_result_in_every_version(browser: Browser) -> None:
    """`ai` 5 looks for its part among those of the agent's own tools if the result is not marked, too."""
    page = await browser.load()
    found = {"mcp": {"server": "maps", "name": "find", "input": {"q": "x"}, "output": {"n": 2}}}
    seen = await page.send(script(found, {"say": "Found."}))
    assert (seen.error, seen.text, seen.part("dynamic-tool")["output"]) == (None, "Found.", {"n": 2})
    await browser.check(seen)


@requirement("ai-sdk:answers:approval", "ai-sdk:version:5", "ai-sdk:history:waiting")
@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_is_asked_for_and_obeyed_even_after_a_reload(browser: Browser, approved: bool) -> None:
    page = await browser.load()
    await page.send(STAMPING)
    await browser.check(await page.do("show"))
    page = await browser.load()
    stamp = (await page.do("show")).part("tool-stamp")
    if browser.version == "5":
        options = {"tool": "stamp", "toolCallId": stamp["toolCallId"], "output": {"approved": approved}}
        seen = await page.do("output", options=options)
    else:
        assert stamp["state"] == "approval-requested"
        seen = await page.do("approve", options={"id": stamp["approval"]["id"], "approved": approved})
    expected = "stamped x" if approved else "Tool call denied"
    assert (seen.text, seen.statuses) == (f"Wait. Then: {expected}", [200])
    await browser.check(seen)


@requirement("ai-sdk:answers:several", "ai-sdk:stream:taken")
async def test_answers_are_taken_one_by_one(browser: Browser) -> None:
    page = await browser.load(automatic=None, body=PAINT)
    both = calls(("paint", {"c": 1}), ("paint", {"c": 2}))
    seen = await page.send(script(both, {"say": "{results}"}))
    waiting = [part["toolCallId"] for part in seen.last["parts"] if part["type"] == "tool-paint"]
    for call_id, colour, text in zip(waiting, ("red", "blue"), ("", "red, blue"), strict=True):
        await page.do("output", options={"tool": "paint", "toolCallId": call_id, "output": colour})
        seen = await page.send()
        assert (seen.text, len(seen.messages)) == (text, 2)
    await browser.check(seen)


@requirement("ai-sdk:answers:question")
@pytest.mark.parametrize("output", [{"selections": {"0": ["staging"]}}, "staging"])
async def test_a_question_is_a_tool_of_the_page(
    official: OfficialClients, socket_server: SocketServer, output: Json
) -> None:
    browser = Browser(official, socket_server, "7")
    page = await browser.load()
    seen = await page.send("ask me")
    part = seen.part("tool-AskUserQuestion")
    assert part["state"] == "input-available"
    options = {"tool": "AskUserQuestion", "toolCallId": part["toolCallId"], "output": output}
    seen = await page.do("output", options=options)
    assert seen.text == "You chose staging."
    await browser.check(seen)


@requirement("ai-sdk:resume:turn", "ai-sdk:resume:open", "ai-sdk:stop:durable", "ai-sdk:ends:abort")
async def test_a_reload_in_the_middle_resumes_and_a_stop_ends_it_for_all(any_browser: Browser) -> None:
    browser = any_browser
    page = await browser.load()
    sending = page.begin("send", message={"text": SLOW})
    await page.wait_for_text("Now")
    history = await browser.history()
    assert [each["role"] for each in history] == ["user"], "the answer that runs is left to the stream"
    reloaded = await browser.load()
    resuming = reloaded.begin("resume")
    await reloaded.wait_for_text("Now it begins.")
    path = f"/{browser.chat.replace('/', '%2F').replace(' ', '%20')}/stop"
    assert (await browser.pages.request("POST", path)).json == {"stopped": True}
    assert (await browser.pages.request("POST", path)).json == {"stopped": False}
    for seen in (await sending, await resuming):
        await browser.check(seen)
    nothing = await reloaded.do("resume")
    assert (nothing.statuses, nothing.status) == ([204], "ready")
    seen = await reloaded.send("and now")
    assert seen.text == "You said: and now"


@requirement("ai-sdk:busy:left")
async def test_stop_and_a_new_message_never_fail_in_one_tab(browser: Browser) -> None:
    page = await browser.load()
    sending = page.begin("send", message={"text": SLOW})
    await page.wait_for_text("Now")
    await page.do("stop")
    await sending
    seen = await page.send("next")
    assert (seen.statuses, seen.text) == ([200], "You said: next")


@requirement("ai-sdk:resume:settled")
async def test_a_resumed_turn_of_several_runs_has_all_of_it_and_runs_no_tool_again(browser: Browser) -> None:
    page = await browser.load(tools={"paint": "red"}, body=PAINT)
    text = script({"say": "One. "}, call("paint", c=1), {"say": "Two {result}. "}, {"wait_ms": 60_000})
    sending = page.begin("send", message={"text": text})
    await page.wait_for_text("Two red.")
    reloaded = await browser.load(tools={"paint": "blue"}, body=PAINT)
    resuming = reloaded.begin("resume")
    await reloaded.wait_for_text("One. Two red.")
    path = f"/{browser.chat.replace('/', '%2F').replace(' ', '%20')}/stop"
    await browser.pages.request("POST", path)
    first, second = await sending, await resuming
    assert second.calls == []
    assert normal(first.messages, browser.version) == normal(second.messages, browser.version)
    await browser.check(second)


@requirement("ai-sdk:ends:error", "ai-sdk:errors:text")
async def test_errors_are_sentences_and_what_was_said_stays(browser: Browser) -> None:
    page = await browser.load()
    seen = await page.send(script({"say": "Half. "}, {"fail": {"code": "no_more", "message": "No more paper"}}))
    assert (seen.status, seen.error["message"], seen.text) == ("error", "No more paper", "Half. ")
    assert normal(seen.messages, browser.version)[:-1] == normal(await browser.history(), browser.version)[:-1]
    seen = await page.do("regenerate", options={})
    assert seen.text == "Half. ", "it was asked again"
    wrong = await browser.load(agent="nobody", messages=[])
    seen = await wrong.send("hello")
    assert seen.statuses == [404]
    assert seen.error["message"] == "no agent named 'nobody' is served here; there are 'rehearsal', 'rehearsal-bare'"


@requirement("ai-sdk:answers:nothing")
async def test_a_page_that_always_sends_again_ends(official: OfficialClients, socket_server: SocketServer) -> None:
    for version in VERSIONS:
        browser = Browser(official, socket_server, version)
        page = await browser.load(automatic="always")
        seen = await page.send("hello")
        assert seen.statuses == [200, 409]
        assert seen.status == "error"


@requirement("ai-sdk:position:workflow")
async def test_the_workflow_transport_survives_a_response_that_is_cut_anywhere(
    clients: OfficialClients, socket_server: SocketServer
) -> None:
    """The transport writes each broken connection to the console."""
    browser = Browser(clients, socket_server, "7")
    text = script({"think": "Hm."}, {"say": "Hello there.", "size": 3}, call("add", a=1, b=2), {"say": "So {result}."})
    for after in range(260, 2500, 350):
        browser.chat = f"cut {after}"
        page = await browser.load(workflow=True)
        await page.cut(after)
        seen = await page.send(text)
        assert seen.text == "Hello there.So 3.", after
        await browser.check(seen)


@requirement("ai-sdk:stream:chunks")
async def test_nothing_is_left_open_at_the_end(official: OfficialClients, socket_server: SocketServer) -> None:
    browser = Browser(official, socket_server, "6")
    page = await browser.load()
    async with asyncio.timeout(DEADLINE_S):
        seen = await page.send(script({"say": "As much as"}, {"stop": "max_tokens"}))
    assert seen.finished["finishReason"] == "length"
    assert seen.last["parts"][-1]["state"] == "done"
    await browser.check(seen)
