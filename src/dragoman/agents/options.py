"""The options that all agents share, declared once for `Agent(...)` and `@agent(...)`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypedDict, runtime_checkable

from dragoman.core import agent as contract
from dragoman.core.agent import RunnableTool
from dragoman.core.tools import Capabilities, Option, ScheduledPrompt


@runtime_checkable
class ToolSource(Protocol):
    """A source whose tools are known only after it has started, such as an MCP server."""

    @property
    def tools(self) -> Sequence[RunnableTool]:
        """The tools. Empty before `start`."""

    async def start(self) -> None:
        """Make the tools available. Called once by each agent that uses the source."""

    async def aclose(self) -> None:
        """Release what `start` acquired. Called once for each `start`."""


ToolLike = Callable[..., Any] | RunnableTool | ToolSource
"""An entry of an agent's `tools`: a typed function, a tool object or an MCP server."""


class AgentOptions(TypedDict, total=False):
    """The keyword arguments of every agent. `DEFAULTS` holds the values of those that are left out."""

    tools: Sequence[ToolLike]
    """Functions, tool objects and MCP servers."""
    options: Sequence[Option]
    """Settings that clients may change for a session."""
    subagents: Sequence[contract.Agent | str]
    """Agents that this one can delegate tasks to: objects, or the names of agents that the same server serves."""
    ask_user: bool
    """Whether the agent can ask the user questions."""
    client_tools: bool
    """Whether applications may provide tools of their own."""
    images: bool
    """Whether users may send images. If not, a model never receives one."""
    history: bool
    """Whether clients may read the session's history."""
    capabilities: Capabilities | None
    """Detailed capabilities. If set, they replace `client_tools`, `images` and `history`."""
    max_steps: int
    """Maximum number of model steps in one run. In a function agent, each `run.call`, `run.ask` and the like is a step,
    and so is the end of the answer."""
    title: str | None
    """Display name."""
    description: str | None
    """What the agent does, for users and for agents that have it as a sub-agent. Defaults to the docstring of a
    function agent."""
    version: str
    """Semantic version."""
    aliases: Sequence[str]
    """Additional names that clients may use."""
    resumable: bool
    """Whether a run continues after a server crash. If not, it ends as interrupted."""
    schedules: Sequence[ScheduledPrompt]
    """Messages that the server sends to the agent at certain times."""
    starters: Sequence[str]
    """Messages that the console suggests in an empty conversation."""
    memory: bool | None
    """Whether the agent receives and can write memories of the user, unless the session says otherwise. None: the
    protocol decides (Blade turns memory on)."""


DEFAULTS = AgentOptions(
    tools=(),
    options=(),
    subagents=(),
    ask_user=False,
    client_tools=False,
    images=False,
    history=False,
    capabilities=None,
    max_steps=25,
    title=None,
    description=None,
    version="0.1.0",
    aliases=(),
    resumable=True,
    schedules=(),
    starters=(),
    memory=None,
)


def reject_unknown_options(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Check the names of keyword arguments.

    Raises:
        TypeError: a name is not among the known ones; the message lists both.
    """
    if unknown := sorted(set(given) - set(known)):
        raise TypeError(
            f"{owner}: unknown option {', '.join(map(repr, unknown))} (known options: {', '.join(sorted(known))})"
        )
