"""What all agents of ours have in common: a face, tools, sub-agents, and a life from the server's start to its end."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol, runtime_checkable

import msgspec

from dragoman.agents.builtins import parse_task
from dragoman.agents.parameters import DeclarationError
from dragoman.agents.subagent import SubAgent
from dragoman.agents.tool import tool as make_tool
from dragoman.core import agent as contract
from dragoman.core.agent import RunnableTool
from dragoman.core.content import Call
from dragoman.core.tools import ASK_USER_QUESTION, FORK, AgentSpec, Capabilities, Option
from dragoman.ports import Model

ModelResolver = Callable[[str], Model]
"""Gives the model of a name such as `embedded` or `openai:gpt-5-mini`."""


@runtime_checkable
class ToolSource(Protocol):
    """Tools that are known only once something was started, such as an MCP server."""

    @property
    def tools(self) -> Sequence[RunnableTool]:
        """The tools; none before `start`."""

    async def start(self) -> None:
        """Get ready. Called by each agent that has the source."""

    async def aclose(self) -> None:
        """The counterpart of `start`."""


ToolLike = Callable[..., Any] | RunnableTool | ToolSource
"""What can stand in an agent's `tools`: a typed function, a tool object, an MCP server."""


class ServableAgent:
    """The part of `core.agent.Agent` that does not depend on how the agent plays.

    Args:
        name: how clients call it.
        title: for people.
        description: for people, and for agents that have this one as a sub-agent.
        version: semantic.
        aliases: further names.
        tools: see `ToolLike`.
        options: what clients may set.
        subagents: agents that it can give tasks to.
        ask_user: it can ask the person questions.
        capabilities: what clients may use.
        max_steps: model steps of one run.
        resumable: whether a run can go on after a crash.
        memory: whether it is told what is remembered of the user, in sessions that do not say.

    Raises:
        Misdeclared: something here cannot be a tool.
    """

    def __init__(
        self,
        name: str,
        *,
        title: str | None,
        description: str | None,
        version: str,
        aliases: Sequence[str],
        tools: Sequence[ToolLike],
        options: Sequence[Option],
        subagents: Sequence[contract.Agent],
        ask_user: bool,
        capabilities: Capabilities,
        max_steps: int,
        resumable: bool,
        memory: bool | None = None,
    ) -> None:
        self.subagents: tuple[contract.Agent, ...] = tuple(subagents)
        """The agents that it can give tasks to."""
        self._tool_sources = tuple(_as_tool(each, name) for each in tools)
        self._base_spec = AgentSpec(
            name=name,
            title=title,
            description=description,
            version=version,
            aliases=tuple(aliases),
            options=tuple(options),
            capabilities=capabilities,
            builtins=frozenset([ASK_USER_QUESTION] * ask_user + [FORK] * bool(subagents)),
            max_steps=max_steps,
            can_resume=resumable,
            memory=memory,
        )
        self._exit_stack = AsyncExitStack()
        self._reference_count = 0
        self._collect_tools()

    def __repr__(self) -> str:
        return f"<agent {self.name}>"

    @property
    def name(self) -> str:
        """How clients call it."""
        return self._base_spec.name

    @property
    def spec(self) -> AgentSpec:
        """See `Agent.spec`. MCP servers' tools are part of it from `start` on."""
        return self._spec

    @property
    def tools(self) -> Sequence[RunnableTool]:
        """All its tools, exposed and hidden."""
        return self._tools

    def tool(self, name: str) -> RunnableTool | None:
        """See `Agent.tool`."""
        return self._tools_by_name.get(name)

    def child(self, call: Call) -> contract.Agent | None:
        """See `Agent.child`."""
        task = parse_task(call)
        if task is None:
            return None
        agent = next((agent for agent in self.subagents if agent.spec.name == task.agent), None)
        return None if agent is None else SubAgent(agent, task.task)

    def bind(self, resolve: ModelResolver, default: str = "embedded") -> None:
        """Give the agent and its sub-agents their models. Called by the server, before the first run.

        Args:
            resolve: asked once for each name that is needed.
            default: the name for agents that name no model.
        """
        for agent in self.subagents:
            if isinstance(agent, ServableAgent):
                agent.bind(resolve, default)

    async def start(self) -> None:
        """Start what the agent's tools, and its sub-agents', depend on. What was begun is closed when it fails.

        An agent may be served by itself and as a sub-agent of others: each further start counts another user.
        """
        self._reference_count += 1
        if self._reference_count > 1:
            return
        try:
            await self._start()
        except BaseException:
            self._reference_count = 0
            raise

    async def _start(self) -> None:
        async with AsyncExitStack() as begun:
            for source in (*self._tool_sources, *self.subagents):
                if isinstance(source, ToolSource | ServableAgent):
                    await source.start()
                    begun.push_async_callback(source.aclose)
            self._collect_tools()
            self._exit_stack = begun.pop_all()

    async def aclose(self) -> None:
        """End what `start` began, with the last user."""
        self._reference_count -= 1
        if self._reference_count == 0:
            await self._exit_stack.aclose()
            self._collect_tools()

    def _collect_tools(self) -> None:
        tools: list[RunnableTool] = []
        for each in self._tool_sources:
            tools += each.tools if isinstance(each, ToolSource) else [each]
        self._tools = tuple(tools)
        self._tools_by_name = {tool.declaration.spec.name: tool for tool in tools}
        declarations = tuple(tool.declaration for tool in tools)
        self._spec = msgspec.structs.replace(self._base_spec, tools=declarations)


def capabilities_of(given: Capabilities | None, *, client_tools: bool, images: bool, history: bool) -> Capabilities:
    """The capabilities as given, or those that the simple flags mean."""
    if given is not None:
        return given
    return Capabilities(
        history_full=history,
        history_compacted=history,
        client_tools=client_tools,
        image_http=images,
        image_data=images,
    )


def _as_tool(given: ToolLike, agent: str) -> RunnableTool | ToolSource:
    if isinstance(given, ToolSource):
        return given
    if hasattr(given, "declaration") and hasattr(given, "run"):
        return given
    if isinstance(given, type) or not callable(given):
        raise DeclarationError(
            f"agent {agent}: a function, a tool or an MCP server expected among its tools, got {given!r}"
        )
    return make_tool(given)
