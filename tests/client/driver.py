"""The conversation suite through the client library: one driver for the four protocols, because it has one vocabulary.

The library is left alone with what happens: connections are cut under it, and servers end and start again, and the
driver goes on iterating as if nothing had been.
"""

from collections.abc import Iterable
from typing import Any, Literal

from dragoman.client import (
    Allow,
    AsyncClient,
    AsyncRun,
    AsyncSession,
    Choice,
    Deny,
    Ended,
    Message,
    NotFound,
    Notice,
    Question,
    Text,
    Thinking,
    Timeouts,
    Tool,
    ToolCall,
    ToolResult,
)
from dragoman.client import Result as ToolAnswer
from dragoman.client.transports import ProtocolName
from tests import conversations as c
from tests.asgi_client import DEADLINE_S
from tests.client.cutting_proxy import Cutter

ASK = "AskUserQuestion"
TIMEOUTS = Timeouts(connect_s=DEADLINE_S, idle_s=DEADLINE_S, run_s=3 * DEADLINE_S, lost_s=2 * DEADLINE_S)
EVERYTHING: frozenset[c.Feature] = frozenset(
    {"client tools", "permissions", "questions", "sub-agents", "delete", "stop", "rejoin", "history"}
)
FEATURES: dict[ProtocolName, frozenset[c.Feature]] = {
    "aap": EVERYTHING,
    "ag-ui": EVERYTHING - {"delete"},
    "agentscope": EVERYTHING - {"delete", "history"},
    "blade": EVERYTHING - {"client tools"},
}
SHOWS: dict[ProtocolName, frozenset[type]] = {
    "aap": frozenset({c.Heard, c.Said, c.Thought, c.Called, c.Settled}),
    "ag-ui": frozenset({c.Heard, c.Said, c.Thought, c.Called, c.Settled, c.Planned}),
    "agentscope": frozenset({c.Heard, c.Said, c.Thought, c.Called, c.Settled, c.Planned}),
    "blade": frozenset({c.Heard, c.Said, c.Thought, c.Called, c.Settled, c.Planned}),
}


class ClientDriver:
    """One session through one protocol, over a proxy that cuts."""

    stops: dict[c.Stop, c.Stop] = {}  # noqa: RUF012  # a constant of the class

    def __init__(self, protocol: ProtocolName, cutter: Cutter) -> None:
        self.features = FEATURES[protocol]
        self.shows = SHOWS[protocol]
        self.reconnected = 0
        self._protocol: ProtocolName = protocol
        self._cutter = cutter
        self._client: AsyncClient | None = None
        self._session: AsyncSession
        self._run: AsyncRun
        self._seen: list[c.Seen] = []
        self._calls: dict[str, str] = {}

    def connect(self, server: c.Server) -> None:
        self._cutter.target = server.line.url
        if self._client is None:
            self._client = AsyncClient(
                self._cutter.url, key=server.key("alice"), protocol=self._protocol, timeouts=TIMEOUTS
            )

    async def close(self) -> None:
        await self.client.close()

    @property
    def client(self) -> AsyncClient:
        assert self._client is not None, "the driver was not connected"
        return self._client

    async def begin(self, setup: c.Setup) -> None:
        tools = [Tool(name=name, parameters={"type": "object"}) for name in setup.client_tools]
        wishes: dict[str, Any] = {} if self._protocol == "blade" else {"tools": tools}
        if self._protocol == "aap":
            wishes |= {"use": [*setup.trusted, *setup.asking], "trust": setup.trusted}
        self._session = await self.client.create("rehearsal", **wishes)

    async def run(self, does: c.Input) -> c.Outcome:
        self._begin(does)
        return await self._rest()

    async def start(self, does: c.Tell, once_said: str) -> None:
        self._begin(does)
        said = ""
        while said != once_said:
            event = await anext(self._run)
            self._take(event)
            said += event.text if isinstance(event, Text) else ""
            assert once_said.startswith(said), said

    async def rejoin(self) -> c.Outcome:
        return await self._rest()

    async def cut(self, how: Literal["delete", "stop"]) -> c.Outcome:
        if how == "stop":
            await self._session.stop()
            return await self._rest()
        await self._session.delete()
        try:
            return await self._rest()
        except NotFound:  # the connection was cut before the end came, and then there was nothing to go on with
            return c.Outcome(self._seen, "cancelled")

    async def history(self) -> list[c.Seen]:
        return [seen for message in await self._session.history() for seen in self._told(message)]

    async def is_gone(self) -> bool:
        try:
            await self.client.open(self._session.id)
        except NotFound:
            return True
        return False

    # --- inside -----------------------------------------------------------------------------------------------------

    def _begin(self, does: c.Input) -> None:
        self._seen = []
        match does:
            case c.Tell(text):
                self._run = self._session.run(text)
            case c.Answers(answers):
                self._run = self._session.answer(*map(self._answer, answers))

    def _answer(self, answer: c.Answer) -> Allow | Deny | Choice | ToolAnswer:
        match answer:
            case c.Result(name, text):
                return ToolAnswer(call_id=self._calls[name], text=text)
            case c.Allow(name):
                return Allow(call_id=self._calls[name])
            case c.Refuse(name, reason):
                return Deny(call_id=self._calls[name], reason=reason or "")
            case c.Choose(selections, custom):
                return Choice.of(*selections, custom=custom or "")

    async def _rest(self) -> c.Outcome:
        async with self._run as run:
            events = [event async for event in run]
        for event in events:
            self._take(event)
        ended = events[-1]
        assert isinstance(ended, Ended)
        assert [event for event in events[:-1] if isinstance(event, Ended)] == []
        stop: Any = ended.reason
        return c.Outcome(self._seen, stop)

    def _take(self, event: object) -> None:
        self.reconnected += isinstance(event, Notice) and event.kind == "reconnecting"
        self._seen += self._shown([event])

    def _told(self, message: Message) -> Iterable[c.Seen]:
        if message.role == "user":
            return [c.Heard(message.text)]
        return self._shown(message.blocks)

    def _shown(self, items: Iterable[object]) -> Iterable[c.Seen]:
        for item in items:
            match item:
                case Text(text=text, loop=""):
                    yield c.Said(text)
                case Thinking(text=text, loop=""):
                    yield c.Thought(text)
                case ToolCall(name=name, loop=""):
                    self._calls[name] = item.id
                    yield c.Called(name, item.arguments)
                case Question(loop=""):
                    yield c.Called(ASK)
                case ToolResult(name=name, text=text, loop=""):
                    yield c.Settled(name, text)
                case Notice(kind="plan"):
                    yield c.Planned(tuple(step["title"] for step in item.content["steps"]))
