"""What an official client shows is what the model gets: random conversations in two tabs.

Messages are edited, regenerated and said behind earlier answers, also over OpenAI's API; runs wait for tools of the
page and for approvals, fail, and are stopped; pages are loaded again. Source: shared rules, 13, 15, 19, 20.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any
from uuid import uuid4

import pytest

from dragoman import Agent, tool
from dragoman.core.content import AssistantMessage, Message, ToolMessage, UserMessage, text_of
from dragoman.ports.models import CallRequested, Finished, ModelEvent, ModelFailed, ModelRequest, TextDelta
from tests.extent import extent
from tests.protocols.agui import official_clients as official
from tests.protocols.agui.official_clients import VERSIONS, OfficialClients, Version, user
from tests.protocols.openai.client import OpenAiClient
from tests.requirements import requirement
from tests.servers import SocketServer, running_socket_server

Json = Any
Shown = list[official.Message]
Said = list[tuple[str, ...]]
"""The messages of a conversation: role, text, and the names of the called tools."""
PAINT = {"name": "paint", "description": "Paint", "parameters": {"type": "object"}}
IMAGE = {"type": "image", "source": {"type": "url", "value": "https://example.org/x.png"}}
ORDERS = ("say", "say", "fail", "hang", "paint", "stamp", "both")
"""What a message asks the model to do: its first word."""


@tool(needs_approval=True)
def stamp(text: str) -> str:
    """Stamp a text."""
    return f"stamped {text}"


class NotingModel:
    """Does what the newest message asks for, and notes the conversation that it got, and its answer."""

    context_window = None
    accepts_images = True

    def __init__(self) -> None:
        self.got: Sequence[Message] = ()
        self.answer = ""
        self.count = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Answer (`Model`)."""
        self.count += 1
        newest = request.messages[-1]
        order = "say" if isinstance(newest, ToolMessage) else text_of(newest.content).partition(" ")[0]
        self.got, self.answer = request.messages, f"answer {self.count}"
        yield TextDelta(self.answer)
        if order == "fail":
            raise ModelFailed("it broke")
        if order == "hang":
            await asyncio.Event().wait()
        names = [name for name in ("paint", "stamp") if order in (name, "both")]
        for name in names:
            yield CallRequested(id=f"{name}-{self.count}", name=name, input={"text": name}, raw="")
        yield Finished(stop="tool_use" if names else "end_turn")


ROLES: dict[type[Message], str] = {UserMessage: "user", AssistantMessage: "assistant", ToolMessage: "tool"}


def said_to_model(messages: Sequence[Message]) -> Said:
    calls = [each.calls() if isinstance(each, AssistantMessage) else () for each in messages]
    return [
        (ROLES[type(each)], text_of(each.content), *(call.name for call in own))
        for each, own in zip(messages, calls, strict=True)
    ]


def said_on_page(messages: Shown) -> Said:
    return [
        (each["role"], words(each.get("content")), *(call["function"]["name"] for call in each.get("toolCalls", ())))
        for each in messages
        if each["role"] in ROLES.values()
    ]


def words(content: Json) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


class Tab:
    """A page with the thread, and what it shows."""

    def __init__(self, agent: official.Agent) -> None:
        self.agent = agent
        self.shown: Shown = []
        self.interrupts: list[Json] = []

    def open_calls(self, name: str | None = None) -> list[str]:
        """The ids of the calls without a result, of one tool or of all."""
        answered = {each["toolCallId"] for each in self.shown if each["role"] == "tool"}
        calls = [call for each in self.shown for call in each.get("toolCalls", ())]
        return [each["id"] for each in calls if each["id"] not in answered and name in (None, each["function"]["name"])]


class Conversation:
    """A user with two tabs. The same seed does the same, as far as the conversation does not differ."""

    def __init__(
        self, clients: OfficialClients, server: SocketServer, model: NotingModel, version: Version, seed: int
    ) -> None:
        self.clients, self.server, self.model, self.version = clients, server, model, version
        self.chance = random.Random(seed)
        self.says_complete = seed % 2 == 0
        """Whether the page says that it sends its whole history: only then an only message is always what is shown."""
        self.thread = str(uuid4())
        self.tabs: dict[str, Tab] = {}
        self.newest: Tab | None = None
        """The tab that shows the thread as it is."""
        self.earlier: list[Shown] = []
        """What tabs have shown before, nothing of it open."""
        self.count = 0
        self.log: list[str] = []

    async def step(self) -> None:
        """Let the user do something in one of the tabs."""
        name = self.chance.choice(("left", "right"))
        tab = self.tabs.get(name)
        if tab is None or (tab.open_calls() and tab is not self.newest):  # the other tab may have answered them
            return await self.load(name)
        if self.count and not tab.shown and not self.says_complete:  # loaded before the thread began (see decision 11)
            return await self.load(name)
        if tab.interrupts:
            return await self.chance.choice((self.decide, self.decide, self.respond))(tab)
        actions = [self.say, self.say]
        if self.count:
            actions += [self.regenerate, self.edit, self.respond]
        if self.earlier:
            actions += [self.go_back]
        if tab.open_calls("paint"):
            actions += [self.paint] * 4
        if self.chance.random() < 0.1:
            return await self.load(name)
        return await self.chance.choice(actions)(tab)

    # --- what the user does ---------------------------------------------------------------------------------------

    async def load(self, name: str) -> None:
        """Open the page, or load it again: where the thread was used last, it shows the same."""
        url, key = f"{self.server.connection.url}/ag-ui/noting", self.server.key("alice")
        before = self.tabs.get(name)
        headers = {"x-message-history": "complete"} if self.says_complete else None
        agent = await self.clients.open(self.version, url, thread=self.thread, key=key, headers=headers)
        tab = self.tabs[name] = Tab(agent)
        self.log.append(f"{name} is loaded")
        if self.count:
            ran = await tab.agent.run()
            tab.shown, tab.interrupts = ran.messages, ran.interrupts
        if before is not None and before is self.newest:
            assert said_on_page(tab.shown) == said_on_page(before.shown), "\n".join(self.log)
        self.newest = tab

    async def say(self, tab: Tab) -> None:
        await self.run(tab, [*tab.shown, self.new_message()])

    async def regenerate(self, tab: Tab) -> None:
        if (place := self.place_of_user(tab)) is not None:
            await self.run(tab, tab.shown[: place + 1])

    async def edit(self, tab: Tab) -> None:
        """Edit a message, also under a new id."""
        if (place := self.place_of_user(tab)) is not None:
            keeps_id = (place == 0 and not self.says_complete) or self.chance.random() < 0.5
            edited = self.new_message(tab.shown[place]["id"] if keeps_id else None)
            await self.run(tab, [*tab.shown[:place], edited])

    async def go_back(self, tab: Tab) -> None:
        await self.run(tab, [*self.chance.choice(self.earlier), self.new_message()])

    async def paint(self, tab: Tab) -> None:
        await self.run(tab, [*tab.shown, *self.painted(tab)])

    async def decide(self, tab: Tab) -> None:
        """Answer all approvals in one way, with or without the results of the page's own tools."""
        payloads: list[Json] = [
            {"approved": True},
            {"approved": False},
            {"approved": True, "editedArgs": {"text": "x"}},
        ]
        answer: Json = {"status": "cancelled"}
        if payload := self.chance.choice([None, *payloads]):
            answer = {"status": "resolved", "payload": payload}
        results = self.painted(tab) if self.chance.random() < 0.5 else []
        resume = [{"interruptId": each["id"], **answer} for each in tab.interrupts]
        await self.run(tab, [*tab.shown, *results], resume=resume)

    async def respond(self, tab: Tab) -> None:
        """Say something behind any response of the thread, over OpenAI's API: the calls behind it may have ended."""
        client = OpenAiClient(self.server.connection, self.server.key("alice"))
        items = (await client.get(f"/conversations/conv_{self.thread.replace('-', '')}/items?limit=100"))["data"]
        runs = [each["id"].split("_")[1] for each in items if each.get("role") == "assistant"]
        if not runs:
            return
        self.count += 1
        run, text = self.chance.choice(runs), f"say {self.count}"
        self.log.append(f"{text} behind {run}")
        await client.respond(text, model="noting", previous_response_id=f"resp_{run}")
        got = said_to_model(self.model.got)
        self.newest = None
        if not tab.open_calls() and self.chance.random() < 0.5:
            return  # and the page goes on with what it shows
        name = next(name for name, each in self.tabs.items() if each is tab)
        await self.load(name)
        loaded = self.tabs[name]
        assert said_on_page(loaded.shown) == [*got, ("assistant", self.model.answer)], "\n".join(self.log)
        assert not loaded.open_calls(), self.log

    # --- what happens ---------------------------------------------------------------------------------------------

    def new_message(self, message_id: str | None = None) -> official.Message:
        self.count += 1
        text = f"{self.chance.choice(ORDERS)} {self.count}"
        return user([{"type": "text", "text": text}, IMAGE] if self.chance.random() < 0.1 else text, message_id)

    def place_of_user(self, tab: Tab) -> int | None:
        places = [place for place, each in enumerate(tab.shown) if each["role"] == "user"]
        return self.chance.choice(places) if places else None

    def painted(self, tab: Tab) -> Shown:
        return [
            {"id": str(uuid4()), "role": "tool", "toolCallId": call_id, "content": f"painted {self.count}"}
            for call_id in tab.open_calls("paint")
        ]

    async def run(self, tab: Tab, shown: Shown, **parameters: Json) -> None:
        """Run with these messages shown. What the model got is what the client shows in front of its answer."""
        before = self.model.count
        self.log.append(f"{said_on_page(shown)} {parameters}")
        await tab.agent.show(*shown)
        running = tab.agent.begin(tools=[PAINT], **parameters)
        if words(shown[-1]["content"]).startswith("hang"):
            answering = asyncio.create_task(tab.agent.wait_for_text("answer"))
            await asyncio.wait([running, answering], return_when=asyncio.FIRST_COMPLETED)
            answering.cancel()
            await tab.agent.abort()
        ran = await running
        assert ran.refused is None, (ran.refused, self.log)
        tab.shown, tab.interrupts, self.newest = ran.messages, ran.interrupts, tab
        if (ran.run_error or {}).get("code") == "interrupt_unanswered":  # that of the other tab
            self.newest = None
            return await self.load(next(name for name, each in self.tabs.items() if each is tab))
        if self.model.count > before:
            page = said_on_page(tab.shown)
            place = max(place for place, each in enumerate(page) if each[:2] == ("assistant", self.model.answer))
            assert page[:place] == said_to_model(self.model.got), "\n".join(self.log)
        if not tab.open_calls():
            self.earlier.append(tab.shown)
        return None


@pytest.fixture(scope="module")
def model() -> NotingModel:
    return NotingModel()


@pytest.fixture(scope="module")
async def server(model: NotingModel, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    noting = Agent("noting", model=model, tools=[stamp], client_tools=True, images=True)
    async with running_socket_server(tmp_path_factory.mktemp("noting"), agents=[noting]) as server:
        yield server


@pytest.mark.parametrize("version", VERSIONS)
@requirement("ag-ui-b:branch:shown", "ag-ui-b:hydrate:as-live", "ag-ui-b:tools:closed")
async def test_the_model_gets_what_two_tabs_show_in_random_conversations(
    agui_clients: OfficialClients, server: SocketServer, model: NotingModel, version: Version
) -> None:
    for seed in range(extent(full=100, sample=2)):
        conversation = Conversation(agui_clients, server, model, version, seed)
        for _ in range(12):
            await conversation.step()
    agui_clients.console.clear()  # a client says there that its run failed
