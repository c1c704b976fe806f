"""A small world for an engine: time that stands still, ids in order, an agent that plays scripts, tools behind gates.

A script is a list of model steps, a step is a list of actions. The agent keeps nothing: it finds its place by counting
the steps that its turn holds, as an agent must that goes on after a pause or a crash.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from dragoman.buses.local import LocalBus
from dragoman.core.agent import Agent, Run, RunnableTool, ToolContext
from dragoman.core.content import AssistantMessage, Call, JsonObject, Message, UserMessage, text_of
from dragoman.core.events import LoggedEvent, RunStopped, StopReason
from dragoman.core.history import messages_of
from dragoman.core.ids import RunId, SessionId, UserId, uuid7
from dragoman.core.inputs import Answer, Create, Submit, UserInput
from dragoman.core.session import SessionState
from dragoman.core.stream import START, Cursor, Record
from dragoman.core.tools import ASK_USER_QUESTION, FORK, AgentSpec, Capabilities, ServerTool, ToolPolicy, ToolSpec
from dragoman.engine.engine import Engine
from dragoman.engine.parts import EngineOptions, EngineServices, EngineStores, Environment
from dragoman.engine.runs.submissions import BusyPolicy, SubmitResult
from dragoman.engine.services.served_agents import ServedAgents
from dragoman.engine.sessions.live_session import LiveSession, to_live_session
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.log import SessionStore
from tests.engine.engine_under_test import EngineUnderTest, no_budgets
from tests.engine.log_checker import check_session
from tests.stores.simulated import SimulatedBlobs

DEADLINE_S = 60.0
"""Nothing here takes long; what takes longer than this hangs."""

ANN = UserId("ann")


class ManualClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.at = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def move(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class SequentialIds:
    """Ids in order: the first is number 1."""

    def __init__(self) -> None:
        self.count = 0

    def new(self) -> str:
        self.count += 1
        return uuid7(self.count, 0)


class ReversingCipher:
    """`Cipher` for people who read backwards."""

    def encrypt(self, plaintext: str) -> str:
        return plaintext[::-1]

    def decrypt(self, ciphertext: str) -> str:
        return ciphertext[::-1]


# --- what is played ---------------------------------------------------------------------------------------------------


class CallTool(NamedTuple):
    """Ask for a tool in this step."""

    tool: str
    arguments: JsonObject = {}  # noqa: RUF012  # never changed


class Think(NamedTuple):
    """Think aloud."""

    text: str


class End(NamedTuple):
    """Return at once, with this reason."""

    reason: StopReason | None = None


Action = str | CallTool | Think | End | Callable[[Run], Awaitable[object]]
Script = Sequence[Sequence[Action]]


def fork(script: str) -> CallTool:
    """Ask for a sub-agent that plays a script."""
    return CallTool(FORK, {"script": script})


def ask_user(*options: str) -> CallTool:
    """Ask the user one question."""
    choices = [{"label": option} for option in options]
    return CallTool(ASK_USER_QUESTION, {"questions": [{"question": "Which?", "options": choices}]})


class PauseGate:
    """Where the one who plays waits until the test lets it go on."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, run: object = None) -> None:
        self.entered.set()
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


class ScriptedTool:
    """A server tool that is a function; counts how often it was begun for which arguments."""

    def __init__(self, name: str, do: Callable[[JsonObject], Awaitable[Any]], **policy: Any) -> None:
        self.declaration = ServerTool(
            spec=ToolSpec(name=name, description="", parameters={"type": "object"}), policy=ToolPolicy(**policy)
        )
        self._do = do
        self.started_calls: list[str] = []
        self.contexts: list[ToolContext] = []

    async def run(self, arguments: JsonObject, context: ToolContext) -> Any:
        self.started_calls.append(context.call_id)
        self.contexts.append(context)
        return await self._do(arguments)

    @property
    def max_starts_per_call(self) -> int:
        """The number of starts of the call that was started most often."""
        return max(Counter(self.started_calls).values(), default=0)


class ScriptedAgent:
    """An agent that plays scripts: the one that the user's message names, or as a sub-agent the one in its call."""

    def __init__(
        self, scripts: Mapping[str, Script], tools: Mapping[str, ScriptedTool], script: str | None = None, **spec: Any
    ) -> None:
        self._scripts = scripts
        self.tools = tools
        self._script = script
        self.spec_fields = spec
        self.context_messages = 1000
        self.contexts: list[Sequence[Message]] = []
        """What a model would have read at each step."""

    @property
    def spec(self) -> AgentSpec:
        fields = {
            "name": "player",
            "tools": tuple(tool.declaration for tool in self.tools.values()),
            "capabilities": Capabilities(client_tools=True),
            "builtins": frozenset({ASK_USER_QUESTION, FORK}),
        }
        return AgentSpec(**{**fields, **self.spec_fields})

    def tool(self, name: str) -> RunnableTool | None:
        return self.tools.get(name)

    def child(self, call: Call) -> "ScriptedAgent | None":
        script = call.input.get("script")
        return ScriptedAgent(self._scripts, self.tools, script, **self.spec_fields) if script in self._scripts else None

    async def play(self, run: Run) -> StopReason | None:
        turn = await run.turn()
        name = self._script
        if name is None:
            assert isinstance(turn[0], UserMessage), turn
            name = text_of(turn[0].content)
        done = sum(isinstance(message, AssistantMessage) for message in turn)
        for step in self._scripts.get(name, [[f"You said: {name}"]])[done:]:
            self.contexts.append(await run.context(self.context_messages))
            for action in step:
                match action:
                    case str():
                        if run.emit(action):
                            await run.drain()
                    case Think(text):
                        run.think(text)
                    case CallTool(tool, arguments):
                        run.call(tool, arguments)
                    case End(reason):
                        return reason
                    case _:
                        await action(run)
            await run.end_step()
        return None


async def wait_until_durable(run: Run) -> None:
    """Wait until what was said so far is durable."""
    live: LiveSession = run.live  # type: ignore[attr-defined]  # the engine's own run has its session
    while live.is_dirty or any(block.pending_deltas for block in live.blocks.values()):
        await live.next_commit()
    await live.until_durable(live.state.seq)


# --- the world --------------------------------------------------------------------------------------------------------


class World:
    """Engines one after the other over one store, with the same agents, tools, clock and ids."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self.owner = ANN
        self.blobs = SimulatedBlobs()
        self.clock = ManualClock()
        self.ids = SequentialIds()
        self.scripts: dict[str, Script] = {}
        self.tools: dict[str, ScriptedTool] = {}
        self.scripted_agent = ScriptedAgent(self.scripts, self.tools)
        self.agents: dict[str, Agent] = {"player": self.scripted_agent}
        self.engines: list[EngineUnderTest] = []
        self.repeatable_calls: set[str] = set()
        """Ids of calls that may be begun more than once."""

    def tool(self, name: str, do: Callable[[JsonObject], Awaitable[Any]], **policy: Any) -> ScriptedTool:
        """Give the agents a tool."""
        self.tools[name] = ScriptedTool(name, do, **policy)
        return self.tools[name]

    def pausing_tool(self, name: str, result: object = "through", **policy: Any) -> PauseGate:
        """Give the agents a tool that waits before a gate."""
        gate = PauseGate()

        async def pass_through(arguments: JsonObject) -> object:
            await gate()
            return result

        self.tool(name, pass_through, **policy)
        return gate

    def echo(self, name: str = "echo", **policy: Any) -> ScriptedTool:
        """Give the agents a tool that returns its argument `value`."""

        async def say_again(arguments: JsonObject) -> Any:
            return arguments["value"]

        return self.tool(name, say_again, **policy)

    async def start(self, store: SessionStore | None = None, **options: Any) -> EngineUnderTest:
        """Start an engine on the store."""
        store = store or self.store
        engine = EngineUnderTest(
            EngineStores(store, store, self.blobs),
            Environment(LocalBus(), ReversingCipher(), self.clock, self.ids),
            ServedAgents(self.agents, "player"),
            EngineServices(no_budgets(self.clock)),
            EngineOptions(**{"commit_window_s": 0.0, **options}),
        )
        self.engines.append(engine)
        async with asyncio.timeout(DEADLINE_S):
            await engine.start()
        return engine

    async def kill(self, engine: EngineUnderTest) -> None:
        """End an engine as SIGKILL would."""
        await engine.crash()
        self.engines.remove(engine)

    async def stop(self, engine: Engine, grace_s: float = 0.0) -> None:
        """End an engine as SIGTERM would."""
        async with asyncio.timeout(DEADLINE_S):
            await engine.drain(grace_s)
            await engine.close()
        self.engines = [each for each in self.engines if each is not engine]

    async def restart(self, engine: Engine, **options: Any) -> EngineUnderTest:
        """Stop an engine and start the next one."""
        await self.stop(engine)
        return await self.start(**options)

    async def events(self, session_id: SessionId) -> list[LoggedEvent]:
        """The whole log of a session."""
        return list(await self.store.events(session_id, 0, 1_000_000))

    async def history(self, session_id: SessionId) -> list[Message]:
        """The root messages of a session."""
        return messages_of(await self.events(session_id))

    async def check(self) -> None:
        """Hold the rules of the log against every session in the store."""
        for state in await self.store.page(ANN, None, 1000):
            await check_session(self.store, state.session_id, self.tools, self.repeatable_calls)


@asynccontextmanager
async def running_world(over: SessionStore | World) -> AsyncIterator[World]:
    """A world; at its end every log in it has to keep the rules."""
    world = over if isinstance(over, World) else World(over)
    yield world
    for engine in tuple(world.engines):
        await world.stop(engine)
    await world.check()


# --- talking ----------------------------------------------------------------------------------------------------------


async def open_session(engine: Engine, **fields: Any) -> LiveSession:
    """A new session of Ann's with the scripted agent, all tools on."""
    async with asyncio.timeout(DEADLINE_S):
        request = Create(**{"protocol": "test", "agent": "player", "tools": "all", **fields})
        return to_live_session(await engine.create(ANN, request))


def user_request(*texts: str, **fields: Any) -> Submit:
    """User messages, in one request."""
    return Submit(protocol="test", messages=tuple(UserInput(content=text) for text in texts), **fields)


def answer_request(*given: Answer, **fields: Any) -> Submit:
    """Answers, in one request."""
    return Submit(protocol="test", answers=given, **fields)


async def send(
    engine: Engine, session: SessionView, request: Submit | str, busy: BusyPolicy = "refuse"
) -> SubmitResult:
    """Send a request, and wait until it is acknowledged."""
    async with asyncio.timeout(DEADLINE_S):
        request = user_request(request) if isinstance(request, str) else request
        submitted = await engine.start_run(session, request, by=ANN, busy=busy)
        await session.until_durable(session.state.seq)
        return submitted


async def wait_for_end(session: SessionView, run_id: RunId | None = None) -> None:
    """Wait until a run's end is durable; by default until the session is at rest."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            state = session.state
            waits = any(queued.run_id == run_id for queued in state.queue)
            active = state.run is not None and run_id in (None, state.run.run_id)
            if not active and not waits and (run_id is not None or not state.queue):
                await session.until_durable(state.seq)
                return
            live = to_live_session(session)
            live.raise_if_ended()
            await live.next_commit()


async def play(engine: Engine, session: SessionView, request: Submit | str) -> SubmitResult:
    """Send a request, and wait for the end of its run."""
    submitted = await send(engine, session, request)
    await wait_for_end(session)
    return submitted


async def reload(engine: Engine, session: SessionView) -> LiveSession:
    """The session as an engine has it now."""
    async with asyncio.timeout(DEADLINE_S):
        return to_live_session(await engine.find_session(ANN, session.state.session_id))


async def read(engine: Engine, session: SessionView, after: Cursor = START, *, ends: int = 1) -> list[Record]:
    """Read from a position until a number of runs have ended."""
    seen: list[Record] = []
    async with asyncio.timeout(DEADLINE_S):
        with engine.follow(session, after) as reader:
            while ends > 0:
                records = await reader.next()
                seen += records
                ends -= sum(is_stop(record) for record in records)
    return seen


async def read_all(engine: Engine, session: SessionView, after: Cursor = START) -> list[Record]:
    """Read from a position to the last record that is durable now."""
    seen: list[Record] = []
    end = session.durable_cursor
    async with asyncio.timeout(DEADLINE_S):
        with engine.follow(session, after) as reader:
            while reader.cursor < end:
                seen += await reader.next()
    return seen


def is_stop(record: Record) -> bool:
    """Whether a record is the end of a run."""
    return isinstance(record, LoggedEvent) and isinstance(record.event, RunStopped)


def reasons(events: Sequence[Record]) -> list[StopReason]:
    """Why the runs ended, in order."""
    return [
        each.event.reason for each in events if isinstance(each, LoggedEvent) and isinstance(each.event, RunStopped)
    ]


def texts(messages: Sequence[Message]) -> list[str]:
    """The messages in short: text, calls as `name(...)`, results as they are."""
    found = []
    for message in messages:
        calls = [f"{call.name}()" for call in message.calls()] if isinstance(message, AssistantMessage) else []
        found.append(" ".join(filter(None, [text_of(message.content), *calls])))
    return found


def waiting_tools(state: SessionState) -> list[str]:
    """The names of the tools whose calls wait for the application."""
    return [call.call.name for call in state.waiting_calls()]
