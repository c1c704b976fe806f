"""Agents for what the rehearsal agent cannot play: tools that a test holds open, capabilities switched off, and the
gardener of the specification's worked exchanges.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import dragoman
from dragoman import agent, tool
from dragoman.core.agent import Agent, AgentError, Run, RunnableTool, ToolContext, ToolFailed
from dragoman.core.content import AssistantMessage, Call, ToolMessage, text_of
from dragoman.core.events import StopReason
from dragoman.core.tools import (
    AgentSpec,
    Capabilities,
    Option,
    SecretOption,
    ServerTool,
    TextOption,
    ToolPolicy,
    ToolSpec,
)
from tests.asgi_client import DEADLINE_S

Json = Any
Play = Callable[[Run, int], Awaitable[StopReason | None]]
"""Plays from a model step on, which is counted from 0."""


class ToolGates:
    """Where tools wait until a test lets them continue. A gate's name identifies one moment of one test."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, str], asyncio.Event] = {}

    def _event(self, what: str, name: str) -> asyncio.Event:
        return self._events.setdefault((what, name), asyncio.Event())

    def open(self, name: str) -> None:
        self._event("opened", name).set()

    def was_entered(self, name: str) -> bool:
        return self._event("entered", name).is_set()

    async def entered(self, name: str) -> None:
        """Wait until a tool stands before the gate."""
        async with asyncio.timeout(DEADLINE_S):
            await self._event("entered", name).wait()

    async def cancelled(self, name: str) -> None:
        """Wait until a tool before the gate was cancelled."""
        async with asyncio.timeout(DEADLINE_S):
            await self._event("cancelled", name).wait()

    async def pass_through(self, name: str) -> None:
        self._event("entered", name).set()
        try:
            await self._event("opened", name).wait()
        except asyncio.CancelledError:
            self._event("cancelled", name).set()
            raise


TOOL_GATES = ToolGates()


class Tool:
    """A server tool that is a function."""

    def __init__(self, name: str, run: Callable[[dict[str, Json]], Awaitable[Json]], **policy: Any) -> None:
        self.declaration = ServerTool(
            spec=ToolSpec(name=name, description="", parameters={"type": "object"}), policy=ToolPolicy(**policy)
        )
        self._run = run

    async def run(self, arguments: dict[str, Json], context: ToolContext) -> Json:
        return await self._run(arguments)


class Player:
    """An agent whose steps are written in the user's message, or are a function with the message's text as its name.

    A script knows `think`, `say`, `call` and `calls`, as the rehearsal agent's do.
    """

    def __init__(
        self, name: str, tools: Sequence[Tool] = (), plays: Mapping[str, Play] | None = None, **spec: Any
    ) -> None:
        self.spec = AgentSpec(name=name, version="1.0.0", tools=tuple(tool.declaration for tool in tools), **spec)
        self._tools = {tool.declaration.spec.name: tool for tool in tools}
        self._plays = plays or {}

    def tool(self, name: str) -> RunnableTool | None:
        return self._tools.get(name)

    def child(self, call: Call) -> None:
        return None

    async def play(self, run: Run) -> StopReason | None:
        turn = await run.turn()
        words = text_of(turn[0].content)
        done = sum(isinstance(message, AssistantMessage) for message in turn)
        if words in self._plays:
            return await self._plays[words](run, done)
        if not words.startswith('{"script"'):
            run.emit("Hello!" if words == "hello" else f"You said: {words}")
            return None
        results = [str(message.content) for message in turn if isinstance(message, ToolMessage)]
        for step in json.loads(words)["script"]:
            asked = step.get("calls", [step["call"]] if "call" in step else [])
            if done > 0:  # this step was played in a run before
                done -= bool(asked)
                continue
            if "think" in step:
                run.think(step["think"])
            if "say" in step:
                run.emit(
                    step["say"].replace("{results}", ", ".join(results)).replace("{result}", (results or [""])[-1])
                )
            for each in asked:
                run.call(each["name"], each["input"])
            if asked:
                results = [str(message.content) for message in await run.end_step()]
        return None


class Faulty(Player):
    """An agent that makes the server itself stumble, once it is broken."""

    is_broken = False

    @property
    def spec(self) -> AgentSpec:
        if self.is_broken:
            raise RuntimeError("disk on fire")
        return self._spec

    @spec.setter
    def spec(self, spec: AgentSpec) -> None:
        self._spec = spec


async def wait_at_gate(arguments: dict[str, Json]) -> str:
    await TOOL_GATES.pass_through(arguments["gate"])
    return f"held {arguments['gate']}"


async def call_and_fail(run: Run, step: int) -> None:
    run.emit("about to call")
    run.call("hold", {"gate": "failed"})
    raise RuntimeError("internal words")


async def call_and_reach_the_limit(run: Run, step: int) -> StopReason:
    run.emit("about to call")
    run.call("hold", {"gate": "limit"})
    return "max_tokens"


async def emit_two_and_wait(run: Run, step: int) -> None:
    if step == 0:
        run.emit("one ")
        await run.end_step()
    run.emit("two ")
    await run.drain()
    await TOOL_GATES.pass_through("text")
    run.emit("three")


async def compact(run: Run, step: int) -> None:
    """Sum up everything before the newest tool result, which parts it from its call if nobody takes care."""
    async for message in run.history():
        if isinstance(message, ToolMessage):
            await run.compact("They talked.", message.id, tokens_before=100, tokens_after=10)
            break
    run.emit("summed up")


BOTH_HISTORIES: Json = {"history_full": True, "history_compacted": True}

GATED_AGENT = Player(
    "gated",
    [Tool("hold", wait_at_gate)],
    {
        "say, call and fail": call_and_fail,
        "say, call and reach the limit": call_and_reach_the_limit,
        "say two and hold": emit_two_and_wait,
        "compact": compact,
    },
    capabilities=Capabilities(**BOTH_HISTORIES, client_tools=True),
)


def agent_declaring(name: str, **capabilities: Any) -> Player:
    """An agent that declares these capabilities and no others."""
    return Player(name, capabilities=Capabilities(**capabilities))


def agent_with_option(option: str, *, name: str | None = None, default: str = "", secret: bool = False) -> Player:
    """An agent with one option, which says its value when asked by its name."""

    async def tell(run: Run, step: int) -> None:
        run.emit(run.options[option])

    declared: Option = SecretOption(name=option) if secret else TextOption(name=option, default=default)
    return Player(name or f"optioned-{option}", plays={option: tell}, options=(declared,))


# --- the gardener (aap §18) -------------------------------------------------------------------------------------------


@tool
def soil_report(bed: str) -> str:
    """What the soil of a bed is like."""
    return "pH 6.4, heavy" if bed == "4" else "unknown bed"


@tool(needs_approval=True)
async def order_seeds(kind: str, packs: int) -> str:
    """Order seeds from the shop."""
    return f"ordered {packs} × {kind}"


@agent(
    "gardener",
    tools=[soil_report, order_seeds],
    options=[TextOption(name="units", default="imperial"), SecretOption(name="shop_key")],
    client_tools=True,
    history=True,
)
async def gardener(run: dragoman.Run) -> AsyncIterator[str]:
    """Knows its beds. Written as its author would, through the public API alone."""
    if run.text == "Dig!":
        raise AgentError("too_dry", "The beds are too dry.")
    run.think("I need the map, the soil, and perhaps seeds.")
    with suppress(ToolFailed):  # seeds are not needed
        await run.call_all(
            [("garden_map", {"bed": "4"}), (soil_report, {"bed": "4"}), (order_seeds, {"kind": "kale", "packs": 1})]
        )
    yield "Kale from the shed suits bed 4."


AGENTS: tuple[Agent, ...] = (
    GATED_AGENT,
    gardener,
    agent_declaring("plain"),
    agent_declaring("only-delta", stream_modes=frozenset({"delta"})),
    agent_declaring("only-none", stream_modes=frozenset({"none"})),
    agent_declaring("streams", stream_modes=frozenset({"delta", "message"})),
    agent_declaring("links", image_http=True),
    agent_declaring("pixels", image_data=True),
    agent_declaring("tools-no-images", client_tools=True),
)
