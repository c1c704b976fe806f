"""What `Agent` and function agents have in common: a specification, tools, sub-agents, and starting and closing."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Unpack

import msgspec

from dragoman.agents.builtins import TaskStarter, parse_task
from dragoman.agents.options import DEFAULTS, AgentOptions, ToolLike, ToolSource, reject_unknown_options
from dragoman.agents.parameters import DeclarationError
from dragoman.agents.subagent import SubAgent
from dragoman.agents.tool import tool as make_tool
from dragoman.core import agent as contract
from dragoman.core.agent import RunnableTool
from dragoman.core.content import Call
from dragoman.core.tools import ASK_USER_QUESTION, FORK, AgentSpec, Capabilities
from dragoman.ports.models import Model

ModelResolver = Callable[[str], Model]
"""Returns the model for a name such as `embedded` or `openai:gpt-5-mini`."""


class ServableAgent:
    """The part of `core.agent.Agent` that does not depend on how the agent answers.

    Args:
        name: the name that clients use.
        agent_options: see `AgentOptions`.

    Raises:
        DeclarationError: an entry of `tools` cannot be used as a tool.
        TypeError: an option does not exist.
    """

    def __init__(self, name: str, **agent_options: Unpack[AgentOptions]) -> None:
        parameters = inspect.signature(type(self)).parameters.values()
        own = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
        reject_unknown_options(f"agent {name}", agent_options, [*own, *DEFAULTS])
        chosen: AgentOptions = {**DEFAULTS, **agent_options}
        self._declared_subagents = tuple(chosen["subagents"])
        self.subagents = tuple(each for each in self._declared_subagents if not isinstance(each, str))
        """The agents that it can delegate tasks to. Those that are named only after `link`."""
        self._tool_sources = tuple(_as_tool(each, name) for each in chosen["tools"])
        self._base_spec = AgentSpec(
            name=name,
            title=chosen["title"],
            description=chosen["description"],
            version=chosen["version"],
            aliases=tuple(chosen["aliases"]),
            options=tuple(chosen["options"]),
            capabilities=_capabilities(chosen),
            builtins=frozenset([ASK_USER_QUESTION] * chosen["ask_user"] + [FORK] * bool(self._declared_subagents)),
            max_steps=chosen["max_steps"],
            can_resume=chosen["resumable"],
            schedules=tuple(chosen["schedules"]),
            memory=chosen["memory"],
            starters=_starters(name, chosen["starters"]),
        )
        self._exit_stack = AsyncExitStack()
        self._reference_count = 0
        self._collect_tools()

    def __repr__(self) -> str:
        return f"<agent {self.name}>"

    @property
    def name(self) -> str:
        """The name that clients use."""
        return self._base_spec.name

    @property
    def spec(self) -> AgentSpec:
        """The agent's specification. It includes the tools of MCP servers only after `start`."""
        self._refresh_tools()
        return self._spec

    @property
    def tools(self) -> Sequence[RunnableTool]:
        """All tools, exposed and hidden."""
        self._refresh_tools()
        return self._tools

    def tool(self, name: str) -> RunnableTool | None:
        """The tool of that name, exposed or hidden."""
        self._refresh_tools()
        return self._tools_by_name.get(name)

    def child(self, call: Call) -> contract.Agent | None:
        """The sub-agent that a call of the built-in tool `Agent` names; None if the call is not valid."""
        task = parse_task(call)
        if task is None:
            return None
        agent = next((agent for agent in self.subagents if agent.spec.name == task.agent), None)
        return None if agent is None else SubAgent(agent, task.task)

    def link(self, served: Mapping[str, contract.Agent]) -> None:
        """Find the sub-agents that were declared by name, of this agent and of its sub-agents.

        Raises:
            DeclarationError: no agent of that name is served.
        """
        for agent in self._declared_subagents:
            if isinstance(agent, ServableAgent):
                agent.link(served)
        names = [each for each in self._declared_subagents if isinstance(each, str)]
        if missing := next((each for each in names if each not in served), None):
            available = ", ".join(served)
            raise DeclarationError(f"agent {self.name}: no sub-agent {missing!r} is served; served agents: {available}")
        self.subagents = tuple(served[each] if isinstance(each, str) else each for each in self._declared_subagents)

    def bind(self, resolve: ModelResolver, default: str = "embedded") -> None:
        """Give the agent and its sub-agents their models. The server calls this before the first run.

        Args:
            resolve: called once for each model name that is needed.
            default: the model name of agents that specify none.
        """
        for agent in self.subagents:
            if isinstance(agent, ServableAgent):
                agent.bind(resolve, default)

    def bind_tasks(self, start: TaskStarter) -> None:
        """Let runs of the sub-agents start background tasks. The server calls this before the first run."""
        for agent in self.subagents:
            if isinstance(agent, ServableAgent):
                agent.bind_tasks(start)

    async def start(self) -> None:
        """Start the tool sources of the agent and of its sub-agents. If one fails, those already started are closed.

        An agent may be served directly and also be a sub-agent of others, so starts are counted.
        """
        self._reference_count += 1
        if self._reference_count > 1:
            return
        try:
            async with AsyncExitStack() as started:
                for source in self._tool_sources:
                    if isinstance(source, ToolSource):
                        await source.start()
                        started.push_async_callback(source.aclose)
                for agent in self.subagents:
                    if isinstance(agent, contract.Startable):
                        await agent.start()
                        started.push_async_callback(agent.close)
                self._collect_tools()
                self._exit_stack = started.pop_all()
        except BaseException:
            self._reference_count = 0
            raise

    async def close(self) -> None:
        """Undo one `start`. The last one closes the tool sources."""
        self._reference_count -= 1
        if self._reference_count == 0:
            await self._exit_stack.aclose()
            self._collect_tools()

    def _refresh_tools(self) -> None:
        """Take over changed tools of MCP servers, which may come and go."""
        if any(source.tools is not known for source, known in self._collected):
            self._collect_tools(drops_duplicates=True)

    def _collect_tools(self, *, drops_duplicates: bool = False) -> None:
        tools: list[RunnableTool] = []
        self._collected = [(each, each.tools) for each in self._tool_sources if isinstance(each, ToolSource)]
        for each in self._tool_sources:
            tools += each.tools if isinstance(each, ToolSource) else [each]
        if drops_duplicates:  # nobody is there to read about a duplicate that comes later: the first one stays
            tools = list({tool.declaration.spec.name: tool for tool in reversed(tools)}.values())[::-1]
        self._tools = tuple(tools)
        self._tools_by_name = {tool.declaration.spec.name: tool for tool in tools}
        declarations = tuple(tool.declaration for tool in tools)
        self._spec = msgspec.structs.replace(self._base_spec, tools=declarations)


def _starters(agent: str, starters: Sequence[str]) -> tuple[str, ...]:
    """The starters as the specification has them, after a check of the usual mistake."""
    if isinstance(starters, str):
        raise DeclarationError(f"agent {agent}: expected a list of starters, got the text {starters!r}")
    return tuple(starters)


def _capabilities(options: AgentOptions) -> Capabilities:
    """The capabilities as given, or those that the flags stand for."""
    return options["capabilities"] or Capabilities(
        history_full=options["history"],
        history_compacted=options["history"],
        client_tools=options["client_tools"],
        image_http=options["images"],
        image_data=options["images"],
    )


def _as_tool(entry: ToolLike, agent: str) -> RunnableTool | ToolSource:
    if isinstance(entry, ToolSource) or (hasattr(entry, "declaration") and hasattr(entry, "run")):
        return entry
    if isinstance(entry, type) or not callable(entry):
        raise DeclarationError(f"agent {agent}: expected a function, a tool or an MCP server in tools, got {entry!r}")
    return make_tool(entry)
