"""The lifecycle of agents on a server: bind models, check declarations, start, close."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from dragoman.agents.base import ModelResolver, ServableAgent
from dragoman.agents.builtins import TaskStarter
from dragoman.agents.mcp import StartFailed
from dragoman.agents.parameters import DeclarationError
from dragoman.core.agent import Agent, Startable
from dragoman.core.refusals import Invalid
from dragoman.core.schedules import declared
from dragoman.core.tools import ASK_USER_QUESTION, FORK, AgentSpec, SelectOption

__all__ = ["DeclarationError", "StartFailed", "bind", "bind_tasks", "check", "close", "is_agent_name", "link", "start"]

MAX_STARTER_CHARS = 200
_AGENT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OPTION_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# Source: semver.org, "Is there a suggested regular expression …?"
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


def link(agents: Sequence[Agent]) -> None:
    """Find the sub-agents that the agents declare by name, among the agents themselves. Call this before `bind`.

    Raises:
        DeclarationError: no agent of a name is served, or agents would call each other in a loop.
    """
    served = {agent.spec.name: agent for agent in agents}
    for agent in agents:
        if isinstance(agent, ServableAgent):
            agent.link(served)
    for agent in agents:
        _check_loop(agent, ())


def _check_loop(agent: Agent, above: tuple[Agent, ...]) -> None:
    """Look for an agent that is below itself."""
    path = (*above, agent)
    if any(agent is each for each in above):
        names = " → ".join(each.spec.name for each in path[above.index(agent) :])
        raise DeclarationError(f"agents call each other in a loop: {names}")
    for child in agent.subagents if isinstance(agent, ServableAgent) else ():
        _check_loop(child, path)


def bind(agents: Sequence[Agent], resolve: ModelResolver, default: str = "embedded") -> None:
    """Give the agents their models.

    Args:
        agents: agents of any kind; those without a model are skipped.
        resolve: returns the model for a name.
        default: the model name of agents that specify none.
    """
    for agent in agents:
        if isinstance(agent, ServableAgent):
            agent.bind(resolve, default)


def bind_tasks(agents: Sequence[Agent], start: TaskStarter) -> None:
    """Let the agents start background tasks."""
    for agent in agents:
        if isinstance(agent, ServableAgent):
            agent.bind_tasks(start)


async def start(agents: Sequence[Agent]) -> None:
    """Start what the agents depend on. If this fails, everything that was started is closed again.

    Raises:
        StartFailed: an MCP server is not available.
    """
    started: list[Agent] = []
    try:
        for agent in agents:
            if isinstance(agent, Startable):
                await agent.start()
                started.append(agent)
    except BaseException:
        await close(started)
        raise


async def close(agents: Sequence[Agent]) -> None:
    """Close what `start` started, in reverse order."""
    for agent in reversed(agents):
        if isinstance(agent, Startable):
            await agent.close()


def check(agents: Sequence[Agent]) -> None:
    """Check the declarations of the agents and their sub-agents, before they are served.

    Raises:
        DeclarationError: a declaration is not valid; the first fault is reported.
    """
    names: set[str] = set()
    for agent in agents:
        for name in (agent.spec.name, *agent.spec.aliases):
            if name in names:
                raise DeclarationError(f"two agents are named {name!r}: names and aliases must be unique on a server")
            names.add(name)
    checked: set[int] = set()
    queue = list(agents)
    while queue:
        agent = queue.pop(0)
        if id(agent) in checked:
            continue
        checked.add(id(agent))
        check_spec(agent.spec)
        if isinstance(agent, ServableAgent):
            _check_unique(agent.spec, "sub-agent", [each.spec.name for each in agent.subagents])
            queue += agent.subagents


def is_agent_name(name: str) -> bool:
    """Whether an agent can have this name or alias."""
    return _AGENT_NAME.fullmatch(name) is not None


def check_spec(spec: AgentSpec) -> None:
    """Check the specification of one agent.

    Raises:
        DeclarationError: it is not valid; the first fault is reported.
    """
    for name in (spec.name, *spec.aliases):
        if not is_agent_name(name):
            raise DeclarationError(
                f"an agent's name must have 1 to 64 characters (letters, digits, '_', '-', '.'), got {name!r}"
            )
    if _VERSION.fullmatch(spec.version) is None:
        raise DeclarationError(f"agent {spec.name}: expected a semantic version such as 1.4.2, got {spec.version!r}")
    for tool in spec.tools:
        name = tool.spec.name
        if _TOOL_NAME.fullmatch(name) is None:
            raise DeclarationError(
                f"agent {spec.name}: a tool's name must have 1 to 64 characters (letters, digits, '_', '-'), "
                f"got {name!r}"
            )
        if name in (ASK_USER_QUESTION, FORK):
            raise DeclarationError(f"agent {spec.name}: {name} is the name of a built-in tool")
        if tool.spec.parameters.get("type") != "object":
            raise DeclarationError(
                f"agent {spec.name}: the parameters of tool {name} must be a JSON Schema of an object"
            )
    _check_starters(spec)
    _check_unique(spec, "tool", [tool.spec.name for tool in spec.tools])
    _check_unique(spec, "option", [option.name for option in spec.options])
    _check_schedules(spec)
    for option in spec.options:
        if _OPTION_NAME.fullmatch(option.name) is None:
            raise DeclarationError(
                f"agent {spec.name}: an option's name must have 1 to 64 characters "
                f"(letters, digits, '_', '-', '.'), got {option.name!r}"
            )
        if isinstance(option, SelectOption) and option.default not in option.options:
            raise DeclarationError(
                f"agent {spec.name}: the default of option {option.name} must be one of "
                f"{', '.join(option.options)}, got {option.default!r}"
            )


def _check_schedules(spec: AgentSpec) -> None:
    _check_unique(spec, "schedule", [schedule.name for schedule in spec.schedules])
    for schedule in spec.schedules:
        try:
            declared(spec.name, schedule, datetime.now(UTC))
        except Invalid as error:
            raise DeclarationError(f"agent {spec.name}: schedule {schedule.name!r}: {error.path} {error}") from error


def _check_starters(spec: AgentSpec) -> None:
    for starter in spec.starters:
        if not 1 <= len(starter) <= MAX_STARTER_CHARS:
            raise DeclarationError(
                f"agent {spec.name}: a starter is a text of 1 to {MAX_STARTER_CHARS} characters, got {starter!r}"
            )


def _check_unique(spec: AgentSpec, kind: str, names: Sequence[str]) -> None:
    duplicate = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if duplicate is not None:
        raise DeclarationError(f"agent {spec.name}: two {kind}s are named {duplicate!r}")
