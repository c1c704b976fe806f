"""Agents that are functions: straight-line code that may wait for people for a month."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import overload

from dragoman.agents.base import ServableAgent, ToolLike, capabilities_of
from dragoman.agents.parameters import DeclarationError
from dragoman.agents.run import Plan, Run
from dragoman.core import agent as contract
from dragoman.core.agent import AgentError, ToolFailed
from dragoman.core.content import Block
from dragoman.core.events import StopReason
from dragoman.core.tools import Capabilities, Option

YieldedItem = str | Block | Plan
AgentFunction = Callable[[Run], AsyncIterator[YieldedItem]] | Callable[[Run], Awaitable[str | None]]
"""Yields its answer piece by piece, or returns it."""

MAX_STEPS = 100


class FunctionAgent(ServableAgent):
    """`core.agent.Agent`: a function over the run. Made by `agent`."""

    def __init__(
        self,
        function: AgentFunction,
        *,
        name: str | None = None,
        tools: Sequence[ToolLike] = (),
        options: Sequence[Option] = (),
        subagents: Sequence[contract.Agent] = (),
        ask_user: bool = True,
        client_tools: bool = False,
        images: bool = False,
        history: bool = False,
        capabilities: Capabilities | None = None,
        max_steps: int = MAX_STEPS,
        title: str | None = None,
        description: str | None = None,
        version: str = "0.1.0",
        aliases: Sequence[str] = (),
        resumable: bool = True,
        memory: bool | None = None,
    ) -> None:
        name = name or str(getattr(function, "__name__", "agent"))
        if not (inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function)):
            raise DeclarationError(f"agent {name}: an async generator function expected (`async def` with `yield`)")
        if len(inspect.signature(function).parameters) != 1:
            raise DeclarationError(f"agent {name}: its function takes one parameter, the run")
        super().__init__(
            name,
            title=title,
            description=inspect.getdoc(function) if description is None else description,
            version=version,
            aliases=aliases,
            tools=tools,
            options=options,
            subagents=subagents,
            ask_user=ask_user,
            capabilities=capabilities_of(capabilities, client_tools=client_tools, images=images, history=history),
            max_steps=max_steps,
            resumable=resumable,
            memory=memory,
        )
        self.function = function

    async def play(self, run: contract.Run) -> StopReason | None:
        """See `Agent.play`."""
        mine = Run(run, self, await run.turn())
        try:
            produced = self.function(mine)
            if inspect.isasyncgen(produced):
                emit = mine.emit
                async with aclosing(produced) as items:
                    async for item in items:  # every delta passes here
                        if emit(item) if type(item) is str else _emit_item(mine, item):
                            await mine.drain()
            elif inspect.isawaitable(produced):
                words = await produced
                if words is not None:
                    mine.emit(words)
        except ToolFailed as error:
            raise AgentError("tool_failed", str(error)) from error  # a result, so the client has read it already
        await mine.close()
        return None


def _emit_item(run: Run, item: object) -> bool:
    if isinstance(item, Block):
        run.add(item)
        return False
    if isinstance(item, Plan):
        run.plan(item)
        return False
    if isinstance(item, str):  # a subclass, such as a StrEnum's member
        return run.emit(str(item))
    raise TypeError(f"an agent's function yields text, blocks or a plan, got {item!r}")


@overload
def agent(function: AgentFunction, /) -> FunctionAgent: ...


@overload
def agent(
    name: str | None = None,
    *,
    tools: Sequence[ToolLike] = (),
    options: Sequence[Option] = (),
    subagents: Sequence[contract.Agent] = (),
    ask_user: bool = True,
    client_tools: bool = False,
    images: bool = False,
    history: bool = False,
    capabilities: Capabilities | None = None,
    max_steps: int = MAX_STEPS,
    title: str | None = None,
    description: str | None = None,
    version: str = "0.1.0",
    aliases: Sequence[str] = (),
    resumable: bool = True,
    memory: bool | None = None,
) -> Callable[[AgentFunction], FunctionAgent]: ...


def agent(
    name: str | AgentFunction | None = None,
    *,
    tools: Sequence[ToolLike] = (),
    options: Sequence[Option] = (),
    subagents: Sequence[contract.Agent] = (),
    ask_user: bool = True,
    client_tools: bool = False,
    images: bool = False,
    history: bool = False,
    capabilities: Capabilities | None = None,
    max_steps: int = MAX_STEPS,
    title: str | None = None,
    description: str | None = None,
    version: str = "0.1.0",
    aliases: Sequence[str] = (),
    resumable: bool = True,
    memory: bool | None = None,
) -> FunctionAgent | Callable[[AgentFunction], FunctionAgent]:
    """Make an agent of an async generator function over a `Run`: `@agent`, or `@agent("name", tools=[…])`.

    A run that goes on, because an answer came or the server died, calls the function again from its beginning: from
    the same input it must take the same steps.

    Args:
        name: how clients call it; the function's name, if not given.
        tools: functions, tool objects, MCP servers.
        options: what clients may set for a session.
        subagents: agents for `run.fork`.
        ask_user: `run.ask` may be used.
        client_tools: applications may bring tools of their own.
        images: users may send pictures.
        history: clients may read the session's history.
        capabilities: all of that in detail, in place of the three flags.
        max_steps: calls of `run.call` and its like in one run, and one more.
        title: for people.
        description: for people; the function's docstring, if not given.
        version: semantic.
        aliases: further names.
        resumable: a run goes on after a crash of the server; else it ends as interrupted.
        memory: `run.memories` and `run.remember` work in sessions that do not say; None: as the protocol has it.

    Raises:
        Misdeclared: the function cannot be an agent; the message says why.
    """

    def make(function: AgentFunction) -> FunctionAgent:
        return FunctionAgent(
            function,
            name=None if callable(name) else name,
            tools=tools,
            options=options,
            subagents=subagents,
            ask_user=ask_user,
            client_tools=client_tools,
            images=images,
            history=history,
            capabilities=capabilities,
            max_steps=max_steps,
            title=title,
            description=description,
            version=version,
            aliases=aliases,
            resumable=resumable,
            memory=memory,
        )

    return make(name) if callable(name) else make
