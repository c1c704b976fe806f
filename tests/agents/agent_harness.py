"""A harness for agents: the real engine over a real database, with a scripted model.

Tests use only the engine's interface, and so see what protocols see.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from dragoman.agents import serving
from dragoman.agents.compaction import INSTRUCTIONS
from dragoman.buses.local import LocalBus
from dragoman.core.agent import Agent
from dragoman.core.content import AssistantMessage, InputBlock, JsonObject, Message, Usage, text_of
from dragoman.core.events import CompactionMade, Event, RunStopped, StopReason
from dragoman.core.history import messages_of
from dragoman.core.ids import ROOT, CallId, LoopId, UserId
from dragoman.core.inputs import Answer, Choice, Create, Decision, Result, Submit, UserInput
from dragoman.engine.parts import EngineOptions, EngineServices, EngineStores, Environment
from dragoman.engine.services.memories import MemoryService
from dragoman.engine.services.served_agents import ServedAgents
from dragoman.engine.sessions.live_session import to_live_session
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.models import (
    CallRequested,
    Finished,
    ModelEvent,
    ModelFailed,
    ModelRequest,
    ModelStop,
    TextDelta,
    ThinkingDelta,
)
from dragoman.server.clock_and_ids import RandomIds, SystemClock
from dragoman.stores.folder_blobs import FolderBlobs
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.log import SqliteLog
from dragoman.stores.sqlite.memories import SqliteMemories
from tests.engine.engine_under_test import EngineUnderTest, no_budgets

DEADLINE_S = 60.0
ANN = UserId("ann")

# --- the model --------------------------------------------------------------------------------------------------------


class ModelGate:
    """Pauses the model in the middle of an answer until the test opens it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.was_cancelled = False

    async def pass_through(self) -> None:
        self.reached.set()
        try:
            await self.opened.wait()
        except (asyncio.CancelledError, GeneratorExit):
            self.was_cancelled = True
            raise


Part = str | ModelEvent | ModelGate | ModelFailed
ScriptedAnswer = Sequence[Part] | str | Callable[[ModelRequest], Sequence[Part] | str]


class ScriptedModel:
    """A `Model` that returns the given answers in order, and records the requests.

    Requests for a summary get one of `summaries` each; the last one is repeated.
    """

    def __init__(
        self,
        *answers: ScriptedAnswer,
        summaries: Sequence[ScriptedAnswer] = (),
        context_window: int | None = None,
        name: str = "scripted",
    ) -> None:
        self.name = name
        self.summaries = list(summaries)
        self.context_window = context_window
        self.answers = list(answers)
        self.requests: list[ModelRequest] = []
        self.closed = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        if request.instructions == INSTRUCTIONS:
            answer = self.summaries.pop(0) if len(self.summaries) > 1 else self.summaries[0]
        else:
            assert self.answers, f"the model has nothing more to say to {request.messages[-1:]}"
            answer = self.answers.pop(0)
        parts = answer(request) if callable(answer) else answer
        if isinstance(parts, str):
            parts = [parts]
        has_calls = False
        try:
            for part in parts:
                match part:
                    case str():
                        yield TextDelta(part)
                    case ModelGate():
                        await part.pass_through()
                    case ModelFailed():
                        raise part
                    case _:
                        has_calls = has_calls or isinstance(part, CallRequested)
                        yield part
            if not isinstance(parts[-1] if parts else None, Finished):
                yield Finished(stop="tool_use" if has_calls else "end_turn", usage=Usage(10, 5))
        finally:
            self.closed += 1

    def read(self, place: int = -1) -> list[str]:
        """The messages of a request as short lines."""
        return summarize(self.requests[place].messages)


def call(name: str, /, raw: str | None = None, **arguments: Any) -> CallRequested:
    """A call by the model. `raw` is for arguments that are not a JSON object."""
    text = msgspec.json.encode(arguments).decode() if raw is None else raw
    return CallRequested(id="from-the-provider", name=name, input=arguments if raw is None else None, raw=text)


def thought(text: str) -> ThinkingDelta:
    return ThinkingDelta(text)


def end(stop: ModelStop, usage: Usage | None = None) -> Finished:
    return Finished(stop=stop, usage=usage)


def summarize(messages: Sequence[Message]) -> list[str]:
    """Messages as short lines: role, text, calls with their arguments."""
    lines = []
    for message in messages:
        kind = type(message).__name__.removesuffix("Message").lower()
        calls = message.calls() if isinstance(message, AssistantMessage) else ()
        texts = [f"{each.name}({msgspec.json.encode(each.input).decode()})" for each in calls]
        lines.append(" ".join(filter(None, [f"{kind}:", text_of(message.content), *texts])))
    return lines


# --- the engine -------------------------------------------------------------------------------------------------------


class AgentHarness:
    """An engine and the agents that it serves. It can be killed and restarted."""

    def __init__(self, database: Database, folder: Path, agents: Sequence[Agent]) -> None:
        self.agents = {agent.spec.name: agent for agent in agents}
        self.engine: EngineUnderTest
        self.memories = MemoryService(SqliteMemories(database), SystemClock())
        self._database = database
        self._folder = folder

    async def start(self) -> None:
        store = SqliteLog(self._database)
        self.engine = EngineUnderTest(
            EngineStores(store, store, FolderBlobs(self._folder / "blobs")),
            Environment(LocalBus(), ReversingCipher(), SystemClock(), RandomIds()),
            ServedAgents(self.agents, next(iter(self.agents))),
            EngineServices(no_budgets(SystemClock()), memories=self.memories),
            EngineOptions(commit_window_s=0.0),
        )
        await self.engine.start()

    async def stop(self) -> None:
        await self.engine.drain(0)
        await self.engine.close()

    async def restart(self) -> None:
        """Stop properly, and start again."""
        await self.stop()
        await self.start()

    async def kill(self) -> None:
        """Simulate SIGKILL for the log, and start again. Everything up to now is durable."""
        engine = self.engine
        for live in engine.running_sessions():
            await live.until_durable(live.state.seq)
        await engine.crash()
        await self.start()

    async def session(self, agent: str | None = None, **fields: Any) -> "Session":
        """A new session with all tools enabled."""
        name = agent or next(iter(self.agents))
        live = await self.engine.create(ANN, Create(**{"protocol": "test", "agent": name, "tools": "all", **fields}))
        return Session(self, live)


class Session:
    """A session of the harness."""

    def __init__(self, harness: AgentHarness, session: SessionView) -> None:
        self.harness = harness
        self.id = session.state.session_id

    async def live(self) -> SessionView:
        return await self.harness.engine.find_session(ANN, self.id)

    async def send(self, content: str | tuple[InputBlock, ...] = "", *answers: Answer, **fields: Any) -> None:
        """Send a message, answers, or both."""
        messages = (UserInput(content=content),) if content else ()
        request = Submit(protocol="test", messages=messages, answers=answers, **fields)
        live = await self.live()
        await self.harness.engine.start_run(live, request, by=ANN)
        await live.until_durable(live.state.seq)

    async def wait_for_end(self) -> StopReason:
        """Wait for the end of the run, and return its reason."""
        async with asyncio.timeout(DEADLINE_S):
            live = await self.live()
            while live.state.run is not None:
                await to_live_session(live).next_commit()
            await live.until_durable(live.state.seq)
        assert live.state.last_stop is not None
        return live.state.last_stop

    async def send_and_wait(self, content: str | tuple[InputBlock, ...]) -> StopReason:
        """Send a message, and wait for the end of the run."""
        await self.send(content)
        return await self.wait_for_end()

    async def answer(self, *answers: Answer) -> StopReason:
        """Send answers, and wait for the end of the run."""
        await self.send("", *answers)
        return await self.wait_for_end()

    async def pending(self) -> list[str]:
        """The names of the pending calls."""
        return [each.call.name for each in (await self.live()).state.waiting_calls()]

    async def waiting_call_id(self, name: str | None = None) -> CallId:
        """The first pending call, or the first one of that name."""
        calls = [each.call for each in (await self.live()).state.waiting_calls()]
        return next(each.call_id for each in calls if name in (None, each.name))

    async def allow(self, name: str | None = None) -> StopReason:
        return await self.answer(Decision(call_id=await self.waiting_call_id(name), granted=True))

    async def deny(self, reason: str | None = None) -> StopReason:
        return await self.answer(Decision(call_id=await self.waiting_call_id(), granted=False, reason=reason))

    async def choose(self, *indices: int, custom_text: str | None = None) -> StopReason:
        custom = {} if custom_text is None else {"0": custom_text}
        return await self.answer(
            Choice(
                call_id=await self.waiting_call_id(), selections={"0": list(indices)} if indices else {}, custom=custom
            )
        )

    async def give_result(self, content: str) -> StopReason:
        """Submit the result of a client tool's call."""
        return await self.answer(Result(call_id=await self.waiting_call_id(), content=content))

    async def events(self) -> list[Event]:
        return [logged.event for logged in await self.harness.engine.history.events(await self.live(), 0)]

    async def messages(self, loop: LoopId | None = ROOT) -> list[Message]:
        return messages_of(await self.harness.engine.history.events(await self.live(), 0), loop)

    async def summary_lines(self, loop: LoopId | None = ROOT) -> list[str]:
        """The session's messages as short lines."""
        return summarize(await self.messages(loop))

    async def stop(self) -> RunStopped:
        """The end of the newest run."""
        return [event for event in await self.events() if isinstance(event, RunStopped)][-1]

    async def compactions(self) -> list[CompactionMade]:
        return [event for event in await self.events() if isinstance(event, CompactionMade)]


class ReversingCipher:
    """A `Cipher` that reverses the text."""

    def encrypt(self, plaintext: str) -> str:
        return plaintext[::-1]

    def decrypt(self, ciphertext: str) -> str:
        return ciphertext[::-1]


@asynccontextmanager
async def agent_harness(folder: Path, *agents: Agent) -> AsyncIterator[AgentHarness]:
    """Check the agents as the server does, and run an engine with them."""
    serving.link(agents)
    serving.check(agents)
    database = Database(folder / "data", synchronous="normal")
    database.start()
    try:
        found = AgentHarness(database, folder, agents)
        await found.start()
        yield found
        async with asyncio.timeout(DEADLINE_S):
            await found.stop()
    finally:
        database.close()


def arguments_of(messages: Sequence[Message]) -> list[JsonObject]:
    """The arguments of all calls, in order."""
    return [each.input for message in messages if isinstance(message, AssistantMessage) for each in message.calls()]
