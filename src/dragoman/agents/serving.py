"""What a server does with agents before it serves them, and after: models, starting, checking, closing."""

import re
from collections.abc import Sequence

from dragoman.agents.base import ModelResolver, ServableAgent
from dragoman.agents.mcp import StartFailed
from dragoman.agents.parameters import DeclarationError
from dragoman.core.agent import Agent
from dragoman.core.tools import ASK_USER_QUESTION, FORK, AgentSpec, SelectOption

__all__ = ["DeclarationError", "StartFailed", "bind", "check", "close", "start"]

_AGENT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OPTION_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# Source: semver.org, "Is there a suggested regular expression …?"
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


def bind(agents: Sequence[Agent], resolve: ModelResolver, default: str = "embedded") -> None:
    """Give the agents their models.

    Args:
        agents: of any kind; those that have no model are left alone.
        resolve: gives the model of a name.
        default: the name for agents that name no model.
    """
    for agent in agents:
        if isinstance(agent, ServableAgent):
            agent.bind(resolve, default)


async def start(agents: Sequence[Agent]) -> None:
    """Start what the agents depend on; nothing is left behind when that fails.

    Raises:
        StartFailed: an MCP server cannot be had.
    """
    started: list[Agent] = []
    try:
        for agent in agents:
            if isinstance(agent, ServableAgent):
                await agent.start()
                started.append(agent)
    except BaseException:
        await close(started)
        raise


async def close(agents: Sequence[Agent]) -> None:
    """End what `start` began, the last first. An agent that was not started is left alone."""
    for agent in reversed(agents):
        if isinstance(agent, ServableAgent):
            await agent.aclose()


def check(agents: Sequence[Agent]) -> None:
    """Check the agents as they are to be served, and their sub-agents.

    Raises:
        Misdeclared: the first thing that is wrong.
    """
    names: set[str] = set()
    for agent in agents:
        for name in (agent.spec.name, *agent.spec.aliases):
            if name in names:
                raise DeclarationError(f"two agents are called {name!r}: names and aliases are unique on a server")
            names.add(name)
    seen: set[int] = set()
    left = list(agents)
    while left:
        agent = left.pop(0)
        if id(agent) in seen:
            continue
        seen.add(id(agent))
        check_spec(agent.spec)
        if isinstance(agent, ServableAgent):
            _check_unique(agent.spec, "sub-agent", [each.spec.name for each in agent.subagents])
            left += agent.subagents


def check_spec(spec: AgentSpec) -> None:
    """Check one agent's face. Raises Misdeclared."""
    for name in (spec.name, *spec.aliases):
        if _AGENT_NAME.fullmatch(name) is None:
            raise DeclarationError(f"an agent's name has 1 to 64 letters, digits, '_', '-' or '.', got {name!r}")
    if _VERSION.fullmatch(spec.version) is None:
        raise DeclarationError(f"agent {spec.name}: a semantic version such as 1.4.2 expected, got {spec.version!r}")
    names = [tool.spec.name for tool in spec.tools]
    for name in names:
        if _TOOL_NAME.fullmatch(name) is None:
            raise DeclarationError(
                f"agent {spec.name}: a tool's name has 1 to 64 letters, digits, '_' or '-', got {name!r}"
            )
        if name in (ASK_USER_QUESTION, FORK):
            raise DeclarationError(f"agent {spec.name}: {name} is the name of a built-in tool")
    _check_unique(spec, "tool", names)
    for tool in spec.tools:
        if tool.spec.parameters.get("type") != "object":
            raise DeclarationError(
                f"agent {spec.name}: the parameters of tool {tool.spec.name} are no schema of an object"
            )
    _check_options(spec)


def _check_options(spec: AgentSpec) -> None:
    _check_unique(spec, "option", [option.name for option in spec.options])
    for option in spec.options:
        if _OPTION_NAME.fullmatch(option.name) is None:
            raise DeclarationError(
                f"agent {spec.name}: an option's name has 1 to 64 letters, digits, '_', '-' or '.', got {option.name!r}"
            )
        if isinstance(option, SelectOption) and option.default not in option.options:
            raise DeclarationError(
                f"agent {spec.name}: the default of option {option.name} is one of {', '.join(option.options)}, "
                f"got {option.default!r}"
            )


def _check_unique(spec: AgentSpec, kind: str, names: Sequence[str]) -> None:
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise DeclarationError(f"agent {spec.name}: two of its {kind}s are called {twice!r}")
