"""Agents of Pydantic AI with scripted models, and the log of their runs in short."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from pydantic_ai import Agent as FrameworkAgent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

from dragoman.adapters.pydantic_ai import PydanticAIAgent
from dragoman.core.answers import compact_json
from dragoman.core.content import text_of
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    CallOpened,
    CallParked,
    CallSettled,
    CallStarted,
    LoggedEvent,
    MessageClosed,
    RunStopped,
)
from dragoman.engine.sessions.live_session import LiveSession
from tests.engine.world import World, answer_request, open_session, play

Step = str | list[Any]
Script = Callable[[list[ModelMessage]], list[Step]]


def call(name: str, /, origin: str | None = None, **arguments: Any) -> tuple[str, str, str]:
    return name, compact_json(arguments), origin or f"call_{name}"


def scripted(*steps: list[Any], seen: list[list[ModelMessage]] | None = None) -> FunctionModel:
    """A model that streams one step after the other: texts, and calls; the next one follows from the messages."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if seen is not None:
            seen.append(list(messages))
        since = next(
            place
            for place in range(len(messages) - 1, -1, -1)
            if isinstance(messages[place], ModelRequest)
            and any(isinstance(part, UserPromptPart) for part in messages[place].parts)
        )
        done = sum(isinstance(each, ModelResponse) for each in messages[since:])
        calls = 0
        for part in steps[done]:
            if isinstance(part, tuple):
                yield {calls: DeltaToolCall(name=part[0], json_args=part[1], tool_call_id=part[2])}
                calls += 1
            elif isinstance(part, DeltaThinkingPart):
                yield {0: part}
            else:
                yield part

    return FunctionModel(stream_function=answer)


def short(events: list[LoggedEvent]) -> list[str]:
    """A short form of the events of a run."""
    found: list[str] = []
    for logged in events:
        match logged.event:
            case BlockClosed(block=block):
                found.append(f"{type(block).__name__.lower()}: {getattr(block, 'text', '…')}")
            case CallOpened(call=opened):
                found.append(f"call {opened.name} {compact_json(opened.input)}")
            case CallStarted():
                found.append("started")
            case CallParked(kind=kind):
                found.append(f"waits for {kind}")
            case AnswerGiven(granted=granted, result=result):
                found.append("answered" if result is not None else "granted" if granted else "denied")
            case CallSettled(outcome=outcome, result=result):
                found.append(f"{outcome}: {text_of(result.content)}")
            case MessageClosed():
                found.append("step")
            case RunStopped(reason=reason, code=code):
                found.append(str(code or reason))
    return found


async def talk(world: World, agent: Any, request: Any = "go", **session: Any) -> tuple[Any, LiveSession, list[str]]:
    """Serve an agent, and send one message."""
    world.agents["player"] = agent if isinstance(agent, PydanticAIAgent) else PydanticAIAgent(agent, name="player")
    engine = await world.start()
    live = await open_session(engine, **session)
    await play(engine, live, request)
    return engine, live, short(await world.events(live.state.session_id))


async def answer(world: World, engine: Any, live: LiveSession, make: Callable[[Any], Any]) -> list[str]:
    """Answer all calls that wait, and return what followed."""
    before = len(await world.events(live.state.session_id))
    waiting = [each.call.call_id for each in live.state.waiting_calls()]
    await play(engine, live, answer_request(*map(make, waiting)))
    return short((await world.events(live.state.session_id))[before:])


def bank(executed: list[str]) -> FrameworkAgent[Any, Any]:
    agent = FrameworkAgent(scripted([call("pay", amount=90), call("balance")], ["paid"]))

    @agent.tool_plain(requires_approval=True)
    def pay(amount: int) -> str:
        executed.append("pay")
        return f"paid {amount}"

    @agent.tool_plain
    def balance() -> int:
        executed.append("balance")
        return 100

    return agent


def noting(executed: list[str], name: str) -> Callable[[], str]:
    def do() -> str:
        executed.append(name)
        return f"{name} ok"

    return do
