"""What the wrappers of all frameworks have in common: names, options, capabilities, and how they are described."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, TypedDict, Unpack

import msgspec

from dragoman.adapters.frameworks import Framework, Refused
from dragoman.agents.options import reject_unknown_options
from dragoman.agents.serving import is_agent_name
from dragoman.core import agent as contract
from dragoman.core.agent import Run, RunnableTool
from dragoman.core.content import Call
from dragoman.core.events import StopReason
from dragoman.core.tools import AgentSpec, Capabilities, OnRestart, Option, ScheduledPrompt, ServerTool


class WrapperOptions(TypedDict, total=False):
    """The keyword arguments of every wrapper. `DEFAULTS` holds the values of those that are left out."""

    name: str | None
    """The name that clients use; defaults to the object's own name where that is valid."""
    title: str | None
    """Display name; defaults to the object's own name."""
    description: str | None
    """What the agent does; defaults to the object's own description."""
    version: str
    """Semantic version."""
    aliases: Sequence[str]
    """Additional names that clients may use."""
    options: Sequence[Option]
    """Settings that clients may change for a session."""
    client_tools: bool
    """Whether applications may provide tools of their own."""
    images: bool
    """Whether users may send images."""
    history: bool
    """Whether clients may read the session's history."""
    starters: Sequence[str]
    """Messages that the console suggests in an empty conversation."""
    max_steps: int
    """Maximum number of model steps in one run."""
    schedules: Sequence[ScheduledPrompt]
    """Messages that the server sends to the agent at certain times."""
    resumable: bool
    """Whether a run continues after a server crash. If not, it ends as interrupted."""
    on_restart: Mapping[str, OnRestart]
    """What happens to a tool's call that was running when the server died, by the tool's name; `*` is every tool
    that is not named. `fail` by default."""


DEFAULTS = WrapperOptions(
    name=None,
    title=None,
    description=None,
    version="0.1.0",
    aliases=(),
    options=(),
    client_tools=True,
    images=True,
    history=True,
    starters=(),
    max_steps=50,
    schedules=(),
    resumable=True,
    on_restart={},
)


class FrameworkAgent(ABC):
    """An object of a framework as an agent that the server can run.

    An adapter calls `declare_tools` as soon as it knows the object's tools, and implements `play`. One object serves
    all sessions, so nothing that belongs to a run is stored on it.

    Args:
        wrapped: the framework's object.
        own_name: the object's own name; None if it has none or a default one.
        own_description: the object's own description.
        wrapper_options: see `WrapperOptions`.

    Raises:
        Refused: neither a name is given nor the object's own name is valid.
        TypeError: an option does not exist.
    """

    framework: ClassVar[Framework]

    def __init__(
        self,
        wrapped: object,
        *,
        own_name: str | None,
        own_description: str | None,
        own: Iterable[str] = (),
        **wrapper_options: Unpack[WrapperOptions],
    ) -> None:
        chosen: WrapperOptions = {**DEFAULTS, **wrapper_options}
        name = chosen["name"] or (own_name if own_name is not None and is_agent_name(own_name) else None)
        reject_unknown_options(f"agent {name}", wrapper_options, [*own, *DEFAULTS])
        if name is None:
            problem = (
                "the agent has no name" if own_name is None else f"{own_name!r} is not a name that clients can use"
            )
            raise Refused(f"{problem}: {type(self).__name__}(…, name=…)")
        self.wrapped = wrapped
        """The framework's object."""
        self.own_name = own_name
        """The object's own name, which becomes an alias if no other agent of the server has it."""
        self.on_restart = chosen["on_restart"]
        self._spec = AgentSpec(
            name=name,
            title=chosen["title"] or own_name,
            description=chosen["description"] or own_description,
            version=chosen["version"],
            aliases=tuple(chosen["aliases"]),
            options=tuple(chosen["options"]),
            capabilities=Capabilities(
                history_full=chosen["history"],
                history_compacted=chosen["history"],
                client_tools=chosen["client_tools"],
                image_http=chosen["images"],
                image_data=chosen["images"],
            ),
            max_steps=chosen["max_steps"],
            schedules=tuple(chosen["schedules"]),
            can_resume=chosen["resumable"],
            starters=tuple(chosen["starters"]),
        )

    def __repr__(self) -> str:
        return f"<agent {self.name}>"

    @property
    def name(self) -> str:
        """The name that clients use."""
        return self._spec.name

    @property
    def spec(self) -> AgentSpec:
        """The agent's specification. It includes the tools of MCP servers only after `start`."""
        return self._spec

    def declare_tools(self, tools: Iterable[ServerTool]) -> None:
        """Set the tools of the specification, with what `on_restart` says about each."""
        declared = [
            msgspec.structs.replace(
                tool, policy=msgspec.structs.replace(tool.policy, on_restart=self.restart_rule(tool.spec.name))
            )
            for tool in tools
        ]
        self._spec = msgspec.structs.replace(self._spec, tools=tuple(declared))

    def add_alias(self, alias: str) -> None:
        """Add a name that clients may use too."""
        self._spec = msgspec.structs.replace(self._spec, aliases=(*self._spec.aliases, alias))

    def restart_rule(self, tool: str) -> OnRestart:
        """What happens to a call of that tool that was running when the server died."""
        return self.on_restart.get(tool) or self.on_restart.get("*") or "fail"

    def tool(self, name: str) -> RunnableTool | None:
        """None: the framework runs its own tools."""
        return None

    def child(self, call: Call) -> contract.Agent | None:
        """None: the framework runs its own sub-agents."""
        return None

    def parts(self) -> Iterable[object]:
        """The objects that are served as a part of this agent, and therefore not by themselves."""
        return (self.wrapped,)

    def details(self) -> Iterable[str]:
        """What else the server's start should say about the agent, such as `2 handoffs`."""
        return ()

    def describe(self) -> str:
        """What was understood of the object, for the server's start."""
        tools = [count(len(self.spec.tools), "tool")] if self.spec.tools else []
        resumes = "resumes" if self.spec.can_resume else "does not resume"
        return ", ".join([f"{self.framework.title} {self.framework.installed}", *tools, *self.details(), resumes])

    @abstractmethod
    async def play(self, run: Run) -> StopReason | None:
        """Answer the input. Returns the stop reason; None means `end_turn`. Cancelled when the run is stopped."""


def count(number: int, noun: str) -> str:
    """A number of things, such as `1 tool` or `2 tools`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
