"""Agents that are functions: straight-line code that can wait for people for as long as a month."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Unpack, overload

from dragoman.agents.base import ServableAgent
from dragoman.agents.builtins import SLEEP_TOOL, StartTool, TaskStarter
from dragoman.agents.options import AgentOptions
from dragoman.agents.parameters import DeclarationError
from dragoman.agents.run import Plan, Run
from dragoman.core import agent as contract
from dragoman.core.agent import AgentError, RunnableTool, ToolFailed
from dragoman.core.content import Block
from dragoman.core.events import StopReason
from dragoman.core.tools import SLEEP, START

YieldedItem = str | Block | Plan
AgentFunction = Callable[[Run], AsyncIterator[YieldedItem]] | Callable[[Run], Awaitable[str | None]]
"""Yields its answer piece by piece, or returns it."""

FUNCTION_DEFAULTS = AgentOptions(ask_user=True, max_steps=100)
"""Where the defaults of function agents differ from `options.DEFAULTS`."""


class FunctionAgent(ServableAgent):
    """An agent that calls a function with the run. Created by `agent`."""

    def __init__(
        self, function: AgentFunction, *, name: str | None = None, **agent_options: Unpack[AgentOptions]
    ) -> None:
        name = name or str(getattr(function, "__name__", "agent"))
        if not (inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function)):
            raise DeclarationError(f"agent {name}: expected an async generator function (`async def` with `yield`)")
        if len(inspect.signature(function).parameters) != 1:
            raise DeclarationError(f"agent {name}: the function must take exactly one parameter, the run")
        chosen: AgentOptions = {**FUNCTION_DEFAULTS, **agent_options}
        if chosen.get("description") is None:
            chosen["description"] = inspect.getdoc(function)
        super().__init__(name, **chosen)
        self.function = function
        self.builtin_tools: dict[str, RunnableTool] = {SLEEP: SLEEP_TOOL}
        """Internal tools by which a run sleeps and starts background tasks."""

    def tool(self, name: str) -> RunnableTool | None:
        """The tool of that name, exposed or hidden, or a built-in one of function agents."""
        return super().tool(name) or self.builtin_tools.get(name)

    def bind_tasks(self, start: TaskStarter) -> None:
        """Let runs of the agent, and of its sub-agents, start background tasks."""
        super().bind_tasks(start)
        self.builtin_tools[START] = StartTool(start)

    async def play(self, run: contract.Run) -> StopReason | None:
        """Answer with what the function yields or returns."""
        function_run = Run(run, self, await run.turn())
        try:
            result = self.function(function_run)
            if inspect.isasyncgen(result):
                emit = function_run.emit
                async with aclosing(result) as items:
                    async for item in items:  # hot path: executed for every delta
                        if emit(item) if type(item) is str else _emit_item(function_run, item):
                            await function_run.drain()
            elif inspect.isawaitable(result):
                text = await result
                if text is not None:
                    function_run.emit(text)
        except ToolFailed as error:
            raise AgentError("tool_failed", str(error)) from error  # the client already has this text as a result
        except BaseExceptionGroup as group:
            if group.split(contract.Paused)[1] is None:  # all tasks of the function wait for the application
                raise contract.Paused from group
            raise
        await function_run.close()
        return None


def _emit_item(run: Run, item: object) -> bool:
    if isinstance(item, Block):
        run.add(item)
        return False
    if isinstance(item, Plan):
        run.plan(item)
        return False
    if isinstance(item, str):  # a subclass, such as a member of a StrEnum
        return run.emit(str(item))
    raise TypeError(f"an agent function may yield text, blocks or a plan, got {item!r}")


@overload
def agent(function: AgentFunction, /) -> FunctionAgent: ...


@overload
def agent(
    name: str | None = None, **agent_options: Unpack[AgentOptions]
) -> Callable[[AgentFunction], FunctionAgent]: ...


def agent(
    name: str | AgentFunction | None = None, **agent_options: Unpack[AgentOptions]
) -> FunctionAgent | Callable[[AgentFunction], FunctionAgent]:
    """Turn an async generator function over a `Run` into an agent: `@agent`, or `@agent("name", tools=[…])`.

    When a run resumes, after an answer or after a server crash, the function is called again from its beginning. Given
    the same input, it must take the same steps.

    Args:
        name: the name that clients use; defaults to the function's name.
        agent_options: see `AgentOptions`.

    Raises:
        DeclarationError: the function cannot be an agent; the message says why.
        TypeError: an option does not exist.
    """
    if callable(name):
        return FunctionAgent(name, **agent_options)
    return partial(FunctionAgent, name=name, **agent_options)
