"""The conversation suite's driver for the client library: one for all protocols.

Connections are cut and servers restart underneath; the driver just keeps iterating.
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
    Permission,
    Question,
    Text,
    Thinking,
    Timeouts,
    Tool,
    ToolCall,
    ToolResult,
)
from dragoman.client import Result as ToolAnswer
from dragoman.client.transports import ClientProtocol
from tests import conversations as c
from tests.asgi_client import DEADLINE_S
from tests.client.cutting_proxy import CuttingProxy

ASK = "AskUserQuestion"
TIMEOUTS = Timeouts(connect_s=DEADLINE_S, idle_s=20, run_s=DEADLINE_S, reconnect_s=DEADLINE_S)
EVERYTHING: frozenset[c.Feature] = frozenset(
    {"client tools", "permissions", "questions", "sub-agents", "delete", "stop", "rejoin", "history"}
)
FEATURES: dict[ClientProtocol, frozenset[c.Feature]] = {
    "aap": EVERYTHING,
    "ag-ui": EVERYTHING - {"delete"},
    "agentscope": EVERYTHING - {"delete", "history"},
    "blade": EVERYTHING - {"client tools"},
    "openai": EVERYTHING,
    "a2a": frozenset({"permissions", "questions", "sub-agents", "stop", "rejoin"}),
    "run-service": EVERYTHING - {"history"},
}
OBSERVABLE: dict[ClientProtocol, frozenset[type]] = {
    "aap": frozenset({c.ObservedPrompt, c.ObservedText, c.ObservedThinking, c.ObservedCall, c.ObservedResult}),
    "ag-ui": frozenset(
        {c.ObservedPrompt, c.ObservedText, c.ObservedThinking, c.ObservedCall, c.ObservedResult, c.ObservedPlan}
    ),
    "agentscope": frozenset(
        {c.ObservedPrompt, c.ObservedText, c.ObservedThinking, c.ObservedCall, c.ObservedResult, c.ObservedPlan}
    ),
    "blade": frozenset(
        {c.ObservedPrompt, c.ObservedText, c.ObservedThinking, c.ObservedCall, c.ObservedResult, c.ObservedPlan}
    ),
    "openai": frozenset({c.ObservedPrompt, c.ObservedText, c.ObservedThinking, c.ObservedCall, c.ObservedResult}),
    "a2a": frozenset({c.ObservedPrompt, c.ObservedText}),
    "run-service": frozenset({c.ObservedPrompt, c.ObservedText, c.ObservedThinking, c.ObservedCall, c.ObservedResult}),
}


class ClientDriver:
    """One session over one protocol, through a proxy that cuts connections."""

    stops: dict[c.Stop, c.Stop] = {}  # noqa: RUF012  # a constant of the class

    def __init__(self, protocol: ClientProtocol, proxy: CuttingProxy) -> None:
        self.features = FEATURES[protocol]
        self.observable = OBSERVABLE[protocol]
        self.reconnected = 0
        self._protocol: ClientProtocol = protocol
        self._proxy = proxy
        self._client: AsyncClient | None = None
        self._session: AsyncSession
        self._run: AsyncRun
        self._observed: list[c.Observation] = []
        self._calls: dict[str, str] = {}

    def connect(self, server: c.Server) -> None:
        self._proxy.target = server.connection.url
        if self._client is None:
            self._client = AsyncClient(
                self._proxy.url, key=server.key("alice"), protocol=self._protocol, timeouts=TIMEOUTS
            )

    async def close(self) -> None:
        await self.client.close()

    @property
    def client(self) -> AsyncClient:
        assert self._client is not None, "the driver was not connected"
        return self._client

    async def begin(self, setup: c.Setup) -> None:
        arguments: dict[str, Any] = {} if self._protocol in ("blade", "a2a") else {"tools": self.declared(setup)}
        if self._protocol == "aap":
            arguments |= {"server_tools": [*setup.trusted, *setup.untrusted], "trusted_tools": setup.trusted}
        self._session = await self.client.create("rehearsal", **arguments)

    def declared(self, setup: c.Setup) -> list[Tool]:
        return [Tool(name=name, parameters={"type": "object"}) for name in setup.client_tools]

    async def run(self, user_input: c.Input) -> c.Outcome:
        self._begin(user_input)
        return await self._read_to_end()

    async def start(self, user_input: c.Prompt, after_text: str) -> None:
        self._begin(user_input)
        text = ""
        while text != after_text:
            event = await anext(self._run)
            self._take(event)
            text += event.text if isinstance(event, Text) else ""
            assert after_text.startswith(text), text

    async def rejoin(self) -> c.Outcome:
        return await self._read_to_end()

    async def interrupt(self, how: Literal["delete", "stop"]) -> c.Outcome:
        if how == "stop":
            await self._session.stop()
            return await self._read_to_end()
        await self._session.delete()
        try:
            return await self._read_to_end()
        except NotFound:  # the connection was cut before the end, and the session is gone
            return c.Outcome(self._observed, "cancelled")

    async def history(self) -> list[c.Observation]:
        return [item for message in await self._session.history() for item in self._observed_message(message)]

    async def is_gone(self) -> bool:
        try:
            await self.client.open(self._session.id)
        except NotFound:
            return True
        return False

    # --- inside -----------------------------------------------------------------------------------------------------

    def _begin(self, user_input: c.Input) -> None:
        self._observed = []
        match user_input:
            case c.Prompt(text):
                self._run = self._session.run(text)
            case c.Answers(answers):
                self._run = self._session.answer(*map(self._answer, answers))

    def _answer(self, answer: c.Answer) -> Allow | Deny | Choice | ToolAnswer:
        match answer:
            case c.Result(name, text):
                return ToolAnswer(call_id=self._calls[name], text=text)
            case c.Allow(name):
                return Allow(call_id=self._calls[name])
            case c.Deny(name, reason):
                return Deny(call_id=self._calls[name], reason=reason or "")
            case c.Choose(selections, custom):
                return Choice.of(*selections, custom=custom or "")

    async def _read_to_end(self) -> c.Outcome:
        async with self._run as run:
            events = [event async for event in run]
        for event in events:
            self._take(event)
        ended = events[-1]
        assert isinstance(ended, Ended)
        assert [event for event in events[:-1] if isinstance(event, Ended)] == []
        stop: Any = ended.reason
        return c.Outcome(self._observed, stop)

    def _take(self, event: object) -> None:
        self.reconnected += isinstance(event, Notice) and event.kind == "reconnecting"
        self._observed += self._observed_items([event])

    def _observed_message(self, message: Message) -> Iterable[c.Observation]:
        if message.role == "user":
            return [c.ObservedPrompt(message.text)]
        return self._observed_items(message.blocks)

    def _observed_items(self, items: Iterable[object]) -> Iterable[c.Observation]:
        for item in items:
            match item:
                case Text(text=text, loop=""):
                    yield c.ObservedText(text)
                case Thinking(text=text, loop=""):
                    yield c.ObservedThinking(text)
                case ToolCall(name=name, loop=""):
                    self._calls[name] = item.id
                    yield c.ObservedCall(name, item.arguments)
                case Permission(name=name):  # of an agent that shows no calls
                    self._calls[name] = item.call_id
                case Question(loop=""):
                    yield c.ObservedCall(ASK)
                case ToolResult(name=name, text=text, loop=""):
                    yield c.ObservedResult(name, text)
                case Notice(kind="plan"):
                    yield c.ObservedPlan(tuple(step["title"] for step in item.content["steps"]))
