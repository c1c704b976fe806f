"""Clones of the agents of one run, in which every function tool and every handoff passes through a guard.

The application's own agents are never changed. The clone of a function tool always needs approval, so that the SDK
stops with a state that can be stored before it runs any tool; whether somebody is asked is decided elsewhere.
"""

import copy
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

from agents import Agent, FunctionTool, Handoff, RunContextWrapper, Tool, handoff
from agents.tool import maybe_invoke_function_tool_failure_error_function
from agents.tool_context import ToolContext

AnyAgent = Agent[Any]
Invoke = Callable[[], Awaitable[Any]]


class ToolRaised(Exception):
    """The tool's own exception, before the SDK turns it into text.

    Args:
        words: what the model reads instead; None if the exception ends the run.
    """

    def __init__(self, words: str | None) -> None:
        super().__init__(words)
        self.words = words


class Guard(Protocol):
    """What stands between the SDK and a run's tools."""

    async def run_tool(self, tool: FunctionTool, context: ToolContext[Any], invoke: Invoke) -> object:
        """Answer a call from the record, or run the tool: `invoke` raises ToolRaised if the tool fails."""

    async def mcp_tools(self, agent: AnyAgent, context: RunContextWrapper[Any]) -> list[Tool]:
        """The tools of the MCP servers of an original agent."""

    def mcp_tool_raised(self, agent: AnyAgent) -> None:
        """A tool of one of the agent's MCP servers has raised an exception."""

    async def hand_off(
        self, handoff: Handoff[Any, Any], arguments: str, invoke: Callable[[], Awaitable[AnyAgent]]
    ) -> AnyAgent:
        """The clone of the agent that takes over. `invoke` runs the application's callback and returns the original."""


def reachable_agents(root: AnyAgent) -> Iterator[AnyAgent]:
    """An agent and all agents that it hands off to, directly or not, in breadth-first order."""
    queue, seen = [root], set[int]()
    for agent in queue:
        if id(agent) not in seen:
            seen.add(id(agent))
            yield agent
            queue += targets(agent)


def targets(agent: AnyAgent) -> list[AnyAgent]:
    """The agents that an agent hands off to."""
    found = [each if isinstance(each, Agent) else _target_of(each) for each in agent.handoffs]
    return [each for each in found if each is not None]


def _target_of(handoff: Handoff[Any, Any]) -> AnyAgent | None:
    target = handoff._agent_ref() if handoff._agent_ref is not None else None
    return target if isinstance(target, Agent) else None


class Clones:
    """The clones of an agent and of all that it hands off to.

    Args:
        root: the application's agent.
        guard: the guard of the run.
        off: the names of tools that the session has not enabled; the clones do not have them.
        client_tools: tools of the application that uses the session.
    """

    def __init__(
        self, root: AnyAgent, guard: Guard, off: Collection[str], client_tools: Sequence[FunctionTool]
    ) -> None:
        self._guard = guard
        self._off = off
        self._originals: dict[tuple[str, str], FunctionTool] = {}
        self._clones = {id(agent): copy.copy(agent) for agent in reachable_agents(root)}
        self._kept_alive = list(reachable_agents(root))
        for agent in self._kept_alive:
            clone = self._clones[id(agent)]
            own = [self._guarded(agent, tool) for tool in agent.tools if tool.name not in off]
            clone.tools = [*own, *(self._guarded(agent, tool) for tool in client_tools)]
            clone.handoffs = [self._guarded_handoff(each) for each in agent.handoffs]
            if agent.mcp_servers:
                clone.get_mcp_tools = self._mcp_tools_of(agent)  # type: ignore[assignment, method-assign]
        self.root = self._clones[id(root)]

    def named(self, name: str | None) -> AnyAgent:
        """The clone of the agent of that name, else of the first one."""
        return next((clone for clone in self._clones.values() if clone.name == name), self.root)

    def of(self, agent: AnyAgent) -> AnyAgent:
        """The clone of an application's agent. One that only a handoff's callback knows is returned unchanged."""
        return self._clones.get(id(agent), agent)

    def original_tool(self, agent: str, tool: str) -> FunctionTool | None:
        """The application's own tool, with its own rule about approval."""
        return self._originals.get((agent, tool))

    def handoff(self, name: str) -> Handoff[Any, Any] | None:
        """The guarded handoff of that name."""
        found = (each for clone in self._clones.values() for each in clone.handoffs)
        return next((each for each in found if isinstance(each, Handoff) and each.tool_name == name), None)

    def target(self, handoff: Handoff[Any, Any]) -> AnyAgent | None:
        """The clone of the agent that a handoff leads to, if that is known without its callback."""
        target = _target_of(handoff)
        return None if target is None else self.of(target)

    def __len__(self) -> int:
        return len(self._clones)

    def _guarded(self, agent: AnyAgent, tool: Tool, *, is_mcp: bool = False) -> Tool:
        if not isinstance(tool, FunctionTool):
            return tool
        self._originals[agent.name, tool.name] = tool
        bind = getattr(tool.on_invoke_tool, "__agents_bind_function_tool__", None)
        raising = copy.copy(tool)  # the same body, whose exceptions reach the guard
        raising._use_default_failure_error_function = False
        raising._failure_error_function = None
        body = tool.on_invoke_tool if bind is None else bind(raising)

        async def invoke(context: ToolContext[Any], arguments: str) -> object:
            async def run() -> object:
                try:
                    return await body(context, arguments)
                except Exception as error:  # whatever a tool raises, the SDK may make words of it
                    if is_mcp:
                        self._guard.mcp_tool_raised(agent)
                    words = None
                    if bind is not None:
                        words = await maybe_invoke_function_tool_failure_error_function(
                            function_tool=tool, context=context, error=error
                        )
                    raise ToolRaised(words) from error

            return await self._guard.run_tool(tool, context, run)

        guarded = copy.copy(tool)
        guarded.on_invoke_tool = invoke
        guarded.needs_approval = True
        return guarded

    def _guarded_handoff(self, given: AnyAgent | Handoff[Any, Any]) -> Handoff[Any, Any]:
        original = handoff(given) if isinstance(given, Agent) else given
        guarded = copy.copy(original)

        async def on_invoke(context: RunContextWrapper[Any], arguments: str) -> AnyAgent:
            async def run() -> AnyAgent:
                return await original.on_invoke_handoff(context, arguments)

            return await self._guard.hand_off(original, arguments, run)

        guarded.on_invoke_handoff = on_invoke
        target = _target_of(original)
        if target is not None:
            guarded._agent_ref = weakref.ref(self.of(target))
        return guarded

    def _mcp_tools_of(self, agent: AnyAgent) -> Callable[[RunContextWrapper[Any]], Awaitable[list[Tool]]]:
        async def get_mcp_tools(context: RunContextWrapper[Any]) -> list[Tool]:
            tools = await self._guard.mcp_tools(agent, context)
            return [self._guarded(agent, tool, is_mcp=True) for tool in tools if tool.name not in self._off]

        return get_mcp_tools
