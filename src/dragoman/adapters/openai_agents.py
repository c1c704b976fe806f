"""Agents of the OpenAI Agents SDK: the wrapper, and how the loader finds them."""

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from typing import Any, ClassVar, Unpack, get_args

from agents import Agent, FunctionTool, RunConfig, RunContextWrapper, Tool

from dragoman.adapters.base import FrameworkAgent, WrapperOptions, count
from dragoman.adapters.frameworks import OPENAI_AGENTS, own_runtime
from dragoman.adapters.model_errors import end_of_run
from dragoman.adapters.openai_agents_clone import AnyAgent, reachable_agents, targets
from dragoman.adapters.openai_agents_play import Play
from dragoman.adapters.run_info import RunInfo, value_for
from dragoman.agents.mcp import StartFailed
from dragoman.core.agent import Run
from dragoman.core.events import StopReason
from dragoman.core.tools import ServerTool, ToolPolicy, ToolSpec


def as_agent(value: object, name: str) -> FrameworkAgent | None:
    """The wrapper for an agent of the SDK; None if the value is none.

    Raises:
        Refused: it is an agent that cannot be served.
    """
    kind = next((each for each in type(value).__mro__ if each.__module__.startswith("agents.")), None)
    if kind is not None and kind.__name__ in ("RealtimeAgent", "SandboxAgent", "VoicePipeline"):
        raise own_runtime(name)
    return OpenAIAgentsAgent(value, name=name) if isinstance(value, Agent) else None


class OpenAIAgentsAgent(FrameworkAgent):
    """An agent of the OpenAI Agents SDK, with all that it hands off to.

    Args:
        agent: the agent that a conversation begins with.
        context: the run context, or a function (sync or async) of the `RunInfo` that returns it. By default a dict with
            the caller's id as `user`.
        run_config: the SDK's configuration of each run.
        tracing: whether the SDK sends traces, with prompts and results, to the service that it is configured for.
        wrapper_options: see `WrapperOptions`.

    Raises:
        Refused: the agent cannot be served; the message says why.
        TypeError: an option does not exist.
    """

    framework: ClassVar = OPENAI_AGENTS

    def __init__(
        self,
        agent: AnyAgent,
        *,
        context: Any = None,  # noqa: ANN401  # any type, as in the SDK
        run_config: RunConfig | None = None,
        tracing: bool = False,
        **wrapper_options: Unpack[WrapperOptions],
    ) -> None:
        super().__init__(
            agent,
            own_name=agent.name,
            own_description=agent.handoff_description,
            own=("context", "run_config", "tracing"),
            **wrapper_options,
        )
        self._agent = agent
        self._agents = list(reachable_agents(agent))
        self._context = context
        self._run_config = dataclasses.replace(run_config or RunConfig(), tracing_disabled=not tracing)
        self._exit_stack = AsyncExitStack()
        self._starts = 0
        self._mcp_tools: dict[int, list[Tool]] = {}
        self._declare()

    def parts(self) -> Iterable[object]:
        """The wrapped agent, and what it hands off to."""
        return (self._agent, *targets(self._agent))

    def details(self) -> Iterable[str]:
        """The number of handoffs, and whether tools get another context than their annotations say."""
        if handoffs := len(targets(self._agent)):
            yield count(handoffs, "handoff")
        (declared,) = get_args(getattr(self._agent, "__orig_class__", None)) or (None,)
        if self._context is None and isinstance(declared, type) and not issubclass(declared, dict):
            yield f"no {declared.__name__}: tools get a dict, so wrap it, OpenAIAgentsAgent({self.name}, context=…)"

    async def start(self) -> None:
        """Connect the agents' MCP servers, and declare their tools.

        Raises:
            StartFailed: a server is not available.
        """
        self._starts += 1
        if self._starts > 1:
            return
        try:
            async with AsyncExitStack() as connected:
                for agent in self._agents:
                    for server in agent.mcp_servers:
                        connected.push_async_callback(server.cleanup)
                        await server.connect()  # type: ignore[no-untyped-call]
                    if agent.mcp_servers:
                        self._mcp_tools[id(agent)] = await agent.get_mcp_tools(RunContextWrapper(context=None))
                self._declare()
                self._exit_stack = connected.pop_all()
        except Exception as error:  # a server's own class, or another package's transport, may raise anything
            self._starts = 0
            raise StartFailed(f"agent {self.name}: an MCP server is not available: {error}") from error

    async def close(self) -> None:
        """Undo one `start`. The last one disconnects the MCP servers."""
        self._starts -= 1
        if self._starts == 0:
            await self._exit_stack.aclose()

    def _declare(self) -> None:
        """Declare the function tools of all agents. One that several of them share is declared once."""
        tools: list[ServerTool] = []
        known: dict[str, int] = {}
        for place, agent in enumerate(self._agents):
            own = _function_tools([*agent.tools, *self._mcp_tools.get(id(agent), [])])
            # Twice in one agent is refused later.
            tools += [_declaration(tool) for tool in own if known.setdefault(tool.name, place) == place]
        self.declare_tools(tools)

    async def play(self, run: Run) -> StopReason | None:
        """Answer the input with the SDK's own loop.

        Raises:
            AgentError: the model failed, or gave no usable answer.
        """
        info = RunInfo.of(run)
        context = {"user": info.user} if self._context is None else await value_for(self._context, info)
        play = Play(
            run,
            self._agent,
            declared=[tool.spec.name for tool in self.spec.tools],
            restart_rule=self.restart_rule,
            run_config=self._run_config,
            max_steps=self.spec.max_steps,
        )
        try:
            return await play.play(context)
        except Exception as error:  # noqa: BLE001  # of the SDK, a model or the author: one table says which
            return play.cut_off or end_of_run(error)


def _function_tools(tools: Iterable[Tool]) -> Iterator[FunctionTool]:
    return (tool for tool in tools if isinstance(tool, FunctionTool))


def _declaration(tool: FunctionTool) -> ServerTool:
    spec = ToolSpec(name=tool.name, description=tool.description, parameters=tool.params_json_schema)
    # A rule about arguments is asked for each call.
    return ServerTool(spec=spec, policy=ToolPolicy(needs_approval=tool.needs_approval is True))
