"""What people do in front ends of CopilotKit and assistant-ui, with the examples of the documentation as they stand
there.

The pages run in Node: CopilotKit's core behind its runtime, and assistant-ui's runtime in React without a DOM.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pytest

from tests.conversations import call, script
from tests.nodejs import bundle
from tests.protocols.agui.agents import AGENTS
from tests.protocols.agui.endpoint import Endpoint
from tests.protocols.agui.official_clients import OfficialClients, official_clients
from tests.requirements import requirement
from tests.servers import ServerProcess, SocketServer, running_socket_server, server_process

Json = Any
Kind = Literal["copilotkit", "assistant-ui"]
KINDS: tuple[Kind, ...] = ("copilotkit", "assistant-ui")
ROOT = Path(__file__).parents[3]
FOLDER = Path(__file__).parent / "front_ends"
TWO_WORDS = {"emit": {"count": 2, "text": "w{i} "}}
HANG = {"wait_ms": 600_000}
_names = itertools.count(1)

both = pytest.mark.parametrize("kind", KINDS)


class Page:
    """A page of one front end, on one thread."""

    def __init__(self, driver: OfficialClients, kind: Kind) -> None:
        self._driver = driver
        self._name = f"page {next(_names)}"
        self.kind = kind
        self.shown: Json = None

    async def do(self, what: str, **how: Json) -> "Page":
        """Do something, wait for the run that it starts, and look at the page."""
        self.shown = await self._driver.send_command(what, page=self._name, **how)
        return self

    def begin(self, text: str) -> "asyncio.Task[Page]":
        """Say something, and come back at once."""
        return asyncio.create_task(self.do("send", text=text))

    async def wait_for_text(self, text: str) -> None:
        """Wait until an answer on the page contains a text."""
        await self._driver.send_command("until", page=self._name, text=text)

    @property
    def said(self) -> list[str]:
        """The texts of all messages with words."""
        texts = (text_of(each.get("content")) for each in self.shown["messages"] if each["role"] != "tool")
        return [each for each in texts if each]

    @property
    def results(self) -> list[str]:
        """The results of all calls."""
        if self.kind == "copilotkit":
            return [each["content"] for each in self.shown["messages"] if each["role"] == "tool"]
        return [each["result"] for each in self._parts("tool-call") if "result" in each]

    @property
    def added(self) -> list[str]:
        """The cards, files and data of the answers, as JSON."""
        if self.kind == "copilotkit":
            values = [{"name": each["name"], "data": each["value"]} for each in self.shown["custom"]]
        else:
            values = [{"name": each["name"], "data": each["data"]} for each in self._parts("data")]
        return sorted(json.dumps(each, sort_keys=True) for each in values)

    @property
    def is_last_incomplete(self) -> bool:
        """Whether the last answer is marked as failed, stopped or cut."""
        last = self.shown["messages"][-1]
        if self.kind == "copilotkit":
            return bool(last.get("metadata", {}).get("dragoman"))
        return bool(last["status"]["type"] == "incomplete")

    def _parts(self, kind: str) -> list[Json]:
        return [part for each in self.shown["messages"] for part in each["content"] if part["type"] == kind]


def text_of(content: Json) -> str:
    return content if isinstance(content, str) else "".join(each.get("text", "") for each in content or ())


class FrontEnds:
    """Opens pages on a server. Each page of CopilotKit has a runtime of its own."""

    def __init__(self, driver: OfficialClients, server: SocketServer | ServerProcess) -> None:
        self.driver = driver
        self.server = server

    async def open(self, kind: Kind, thread: str, *, agent: str = "rehearsal", tools: Json = None) -> Page:
        page = Page(self.driver, kind)
        url, key = f"{self.server.connection.url}/ag-ui/{agent}", self.server.key("alice")
        runtime = f"runtime {next(_names)}"
        if kind == "copilotkit":
            await self.driver.send_command("serve", name=runtime, url=url, key=key)
        where = {"runtime": runtime, "url": url, "key": key}
        return await page.do("open", kind=kind, threadId=thread, tools=tools, **where)

    async def stored(self, thread: str) -> list[str]:
        """The texts of the thread in the server."""
        endpoint = Endpoint(self.server.connection, self.server.key("alice"))
        return [text_of(each.get("content")) for each in await endpoint.messages(thread)]


@pytest.fixture(scope="module")
async def driver() -> AsyncIterator[OfficialClients]:
    async with official_clients(FOLDER) as process:
        yield process


@pytest.fixture(scope="module")
async def front_ends(driver: OfficialClients, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FrontEnds]:
    async with running_socket_server(tmp_path_factory.mktemp("front_ends"), agents=AGENTS) as server:
        yield FrontEnds(driver, server)


@both
@requirement("ag-ui-b:front-ends:branches", "ag-ui-b:front-ends:reload")
async def test_regenerated_and_edited_messages_are_what_the_model_gets(front_ends: FrontEnds, kind: Kind) -> None:
    page = await front_ends.open(kind, thread := str(uuid4()))
    await page.do("send", text="first", messageId="u1")
    await page.do("send", text="second", messageId="u2")
    before = page.shown["messages"][-1]["id"]
    await page.do("regenerate", place=3)
    assert page.said == ["first", "You said: first", "second", "You said: second"]
    assert page.shown["messages"][-1]["id"] != before
    await page.do("edit", place=2, text="edited", messageId="u2")
    assert (await page.do("send", text="recall")).said[-1] == "first | edited"
    await page.do("edit", place=2, text="edited again", messageId="u9")
    assert page.said == ["first", "You said: first", "edited again", "You said: edited again"]
    assert await front_ends.stored(thread) == page.said
    assert (await front_ends.open(kind, thread)).said == page.said


@both
@requirement("ag-ui-b:front-ends:branches")
async def test_the_only_message_is_edited_with_a_new_id(front_ends: FrontEnds, kind: Kind) -> None:
    page = await front_ends.open(kind, thread := str(uuid4()))
    await page.do("send", text="first", messageId="u1")
    await page.do("edit", place=0, text="edited", messageId="u9")
    assert page.said == ["edited", "You said: edited"]
    assert await front_ends.stored(thread) == page.said
    assert (await page.do("send", text="recall")).said[-1] == "edited"


@both
@requirement("ag-ui-b:front-ends:tools", "ag-ui-b:front-ends:reload")
async def test_a_tool_of_the_page_runs_and_the_run_continues_with_its_result(front_ends: FrontEnds, kind: Kind) -> None:
    page = await front_ends.open(kind, thread := str(uuid4()), tools={"paint": "it is blue"})
    await page.do("send", text=script(call("paint", colour="blue"), {"say": "Painted: {result}"}))
    await page.wait_for_text("Painted: it is blue")
    await page.do("show")
    reloaded = await front_ends.open(kind, thread)
    assert (page.results, reloaded.results, reloaded.said) == (["it is blue"], ["it is blue"], page.said)


@both
@requirement("ag-ui-b:front-ends:failed", "ag-ui-b:front-ends:reload")
async def test_a_failed_answer_is_marked_also_after_a_reload_and_can_be_retried(
    front_ends: FrontEnds, kind: Kind
) -> None:
    page = await front_ends.open(kind, thread := str(uuid4()))
    await page.do("send", text=script({"say": "half"}, {"fail": {"code": "broken", "message": "It broke"}}))
    reloaded = await front_ends.open(kind, thread)
    for each in (page, reloaded):
        assert (each.said[1:], each.is_last_incomplete) == (["half"], True)
    before = reloaded.shown["messages"][-1]["id"]
    await reloaded.do("regenerate", place=1)
    assert (reloaded.said[1:], reloaded.is_last_incomplete) == (["half"], True)
    assert reloaded.shown["messages"][-1]["id"] != before  # it was asked again
    assert "It broke" in str(reloaded.shown)


@both
@requirement("ag-ui-b:front-ends:stop", "ag-ui-b:front-ends:two-pages")
async def test_a_stopped_answer_is_marked_and_a_second_page_follows(front_ends: FrontEnds, kind: Kind) -> None:
    page = await front_ends.open(kind, thread := str(uuid4()))
    running = page.begin(script(TWO_WORDS, HANG))
    await page.wait_for_text("w0 w1 ")
    opening = asyncio.create_task(front_ends.open(kind, thread))
    if kind == "assistant-ui":  # which loads what is complete, and joins nothing
        assert len((await opening).said) == 1
    await page.do("stop")
    await running
    await opening
    reloaded = await front_ends.open(kind, thread)
    assert (reloaded.said[1:], reloaded.is_last_incomplete) == (["w0 w1 "], True)
    await page.do("send", text="hello")
    assert page.said[-1] == "Hello! I am the rehearsal agent."
    assert await front_ends.stored(thread) == page.said


@both
@requirement("ag-ui-b:front-ends:reload")
async def test_cards_pictures_and_data_are_the_same_after_a_reload(front_ends: FrontEnds, kind: Kind) -> None:
    page = await front_ends.open(kind, thread := str(uuid4()))
    blocks: list[dict[str, Json]] = [{"data": {"a": 1}}, {"image": "https://example.org/x.png"}]
    await page.do("send", text=script({"card": {"type": "text", "content": "hi"}}, *blocks, {"say": "here"}))
    reloaded = await front_ends.open(kind, thread)
    assert len(page.added) == 3
    assert (reloaded.added, reloaded.said) == (page.added, page.said)


@both
@requirement("ag-ui-b:front-ends:reload")
async def test_the_shared_state_is_the_same_after_a_reload(front_ends: FrontEnds, kind: Kind) -> None:
    page = await front_ends.open(kind, thread := str(uuid4()), agent="counting")
    await page.do("send", text="count")
    reloaded = await front_ends.open(kind, thread, agent="counting")
    assert reloaded.shown["state"] == page.shown["state"] == {"count": 2, "nothing": None}
    assert (await reloaded.do("send", text="count")).said[-1] == "3 4"


@both
@requirement("ag-ui-b:front-ends:approval", "ag-ui-b:front-ends:two-pages")
async def test_an_approval_survives_a_reload_and_two_pages_that_approve_run_the_tool_once(
    front_ends: FrontEnds, kind: Kind
) -> None:
    first = await front_ends.open(kind, thread := str(uuid4()))
    await first.do("send", text=script(call("stamp", text="x"), {"say": "Then: {result}"}))
    second = await front_ends.open(kind, thread)
    for page in (second, first):
        await page.do("approve", approved=True)
        assert page.results == ["stamped x"]
    assert await front_ends.stored(thread) == [*first.said[:1], "", "stamped x", "Then: stamped x"]


@requirement("ag-ui-b:front-ends:cut")
async def test_an_answer_that_a_crash_cut_off_is_marked_after_a_reload(driver: OfficialClients, tmp_path: Path) -> None:
    thread = str(uuid4())
    async with server_process(tmp_path) as server:
        before = FrontEnds(driver, server)
        page = await before.open("assistant-ui", thread)
        running = page.begin(script(TWO_WORDS, {"wait_ms": 2_000}, {"say": "and on"}))
        await page.wait_for_text("w0 w1 ")
        await server.crash()
        await running
        for kind in KINDS:
            reloaded = await before.open(kind, thread)
            while len(reloaded.said) < 3:
                reloaded = await before.open(kind, thread)
            assert reloaded.said[1:] == ["w0 w1 ", "w0 w1 and on"]
            cut, repeated = reloaded.shown["messages"][1:]
            if kind == "copilotkit":
                assert cut["metadata"] == {"dragoman": {"interrupted": True, "cut": True}}
            else:
                assert cut["status"] == {"type": "incomplete", "reason": "cancelled"}
                assert repeated["status"]["type"] == "complete"


@requirement("ag-ui-b:front-ends:examples")
@pytest.mark.parametrize("folder", KINDS)
async def test_the_pages_of_the_examples_can_be_built(tmp_path: Path, folder: str) -> None:
    """Without their packages, which are large: the pages were tried by hand in a browser."""
    page = ROOT / "examples" / folder / "page.jsx"
    await bundle(page, tmp_path / "page.js", FOLDER.parent / "clients", "--jsx=automatic", "--packages=external")
    assert "CopilotChat" in (built := (tmp_path / "page.js").read_text()) or "useAgUiRuntime" in built


@requirement("ag-ui-b:front-ends:examples")
@pytest.mark.parametrize("example", ["copilotkit/runtime.js", "assistant-ui/chat.jsx"])
def test_the_page_shows_the_examples_as_they_are(example: str) -> None:
    _, _, code = (ROOT / "examples" / example).read_text().partition("\n")
    assert code in (ROOT / "docs" / "protocols" / "ag-ui.md").read_text()
