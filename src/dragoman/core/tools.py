"""Declarations of agents, tools and options, and the tools that a session enables. Pure."""

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from dragoman.core.content import JsonObject
from dragoman.core.refusals import Invalid

NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}
"""The schema of a tool without parameters, and of one whose client declares none."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as its caller sees it. `parameters` is a JSON Schema of an object.

    `strict`: whether the model has to match it exactly, as OpenAI calls it; None: as the provider does by default.
    """

    name: str
    description: str
    parameters: JsonObject
    title: str | None = None
    strict: bool | None = None


OnRestart = Literal["repeat", "fail", "ask"]
"""What happens to a call that was running when the server died: run it again, fail it, or ask the user."""


class ToolPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine treats calls of a server tool.

    Args:
        exposed: clients find it in the list of tools and enable it; a hidden tool always runs, without asking.
        internal: clients see neither the tool nor its calls and results; it always runs, without asking.
        needs_approval: the user approves each call, unless the session trusts the tool.
        reads_only: it changes nothing, so it may be used in planning mode.
        on_restart: see `OnRestart`; `repeat` is right for idempotent tools only.
        timeout_s: a call that takes longer fails.
        retries: how often a call that failed runs again, after a delay that doubles. `ToolFailed` is a result.
        retry_delay_s: seconds before the first retry.
    """

    exposed: bool = True
    needs_approval: bool = False
    reads_only: bool = False
    on_restart: OnRestart = "fail"
    timeout_s: float = 120.0
    internal: bool = False
    retries: int = 0
    retry_delay_s: float = 1.0

    @property
    def is_listed(self) -> bool:
        """Whether clients find the tool in lists."""
        return self.exposed and not self.internal


class ServerTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of an agent: its specification and policy. `server` is the label of its MCP server, if any."""

    spec: ToolSpec
    policy: ToolPolicy = ToolPolicy()
    server: str | None = None


class ToolGrant(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server tool that a session enables. With `trust` it runs without asking."""

    name: str
    trust: bool = False


class TextOption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="text"):
    """Free text that a client may set."""

    name: str
    default: str = ""
    title: str | None = None
    description: str | None = None


class SecretOption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="secret"):
    """A sensitive value: stored encrypted, visible only to the agent."""

    name: str
    default: str = ""
    title: str | None = None
    description: str | None = None


class SelectOption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="select"):
    """One of the listed values."""

    name: str
    options: tuple[str, ...]
    default: str
    title: str | None = None
    description: str | None = None


Option = TextOption | SecretOption | SelectOption


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent allows its clients to use. By default all three stream modes are allowed."""

    history_full: bool = False
    history_compacted: bool = False
    stream_modes: frozenset[Literal["delta", "message", "none"]] = frozenset({"delta", "message", "none"})
    client_tools: bool = False
    image_http: bool = False
    image_data: bool = False
    files: bool = True
    """Whether the contents of audio, video and other files can be sent. Addresses of files are always accepted."""


class ScheduledPrompt(msgspec.Struct, frozen=True):
    """A message that the server sends to the agent at certain times, each time in a new session.

    Args:
        name: identifies it among those of the agent, and is the title of its sessions.
        cron: the times, as an expression of five fields such as `0 7 * * mon-fri`.
        prompt: the message.
        user: the owner of the sessions.
        time_zone: the IANA zone of the times.
        skip_confirmations: approve its calls and leave its questions unanswered, so that nothing waits for the user.
    """

    name: str
    cron: str
    prompt: str
    user: str
    time_zone: str = "UTC"
    skip_confirmations: bool = False


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as data: everything that clients and the engine need to know without running it."""

    name: str
    version: str = "0.1.0"
    title: str | None = None
    description: str | None = None
    tools: tuple[ServerTool, ...] = ()
    options: tuple[Option, ...] = ()
    capabilities: Capabilities = Capabilities()
    aliases: tuple[str, ...] = ()
    builtins: frozenset[str] = frozenset()
    """Which of `AskUserQuestion` and `Agent` its model may call."""
    max_steps: int = 25
    can_resume: bool = True
    schedules: tuple[ScheduledPrompt, ...] = ()
    memory: bool | None = None
    """Whether the agent gets the user's memories in sessions that do not set it; None: the protocol decides."""
    starters: tuple[str, ...] = ()
    """Messages that a client can suggest for an empty conversation."""
    model: str = ""
    """The name of its model, without an address or a folder; empty if it has none that the server knows."""
    uses_embedded_model: bool = False
    """Whether its answers come from the embedded model, which is only for trying out a server."""

    def tool(self, name: str) -> ServerTool | None:
        """The tool with that name, exposed or hidden."""
        return next((tool for tool in self.tools if tool.spec.name == name), None)

    def exposed(self) -> tuple[ServerTool, ...]:
        """The tools that clients see."""
        return tuple(tool for tool in self.tools if tool.policy.is_listed)

    def option(self, name: str) -> Option | None:
        """The declared option with that name."""
        return next((option for option in self.options if option.name == name), None)


ASK_USER_QUESTION = "AskUserQuestion"
"""The built-in tool whose call waits for the user's answer."""

FORK = "Agent"
"""The built-in tool whose call runs a sub-agent."""

SLEEP = "Sleep"
"""The built-in internal tool by which a function agent waits for some time."""

START = "Start"
"""The built-in internal tool by which a function agent starts work in the background."""

WRITE_MEMORY = "WriteMemory"
"""The built-in tool by which an agent stores memories of the user."""


def is_trusted(name: str, grants: Literal["all"] | Sequence[ToolGrant] | None, trusted: Collection[str]) -> bool:
    """Whether a session runs the tool without asking, whatever the tool's policy is."""
    return name in trusted or (grants != "all" and any(each.name == name and each.trust for each in grants or ()))


def disabled_tools(grants: Literal["all"] | Sequence[ToolGrant] | None, spec: AgentSpec) -> list[str]:
    """The names of the agent's exposed tools that these grants leave out."""
    enabled = {tool.spec.name for tool in spec.exposed()} if grants == "all" else {each.name for each in grants or ()}
    return [tool.spec.name for tool in spec.exposed() if tool.spec.name not in enabled]


def grants_without(spec: AgentSpec, disabled: Collection[str]) -> tuple[ToolGrant, ...] | None:
    """Grants for the agent's exposed tools except for these; None if none is left out.

    Raises:
        Invalid: the agent has no exposed tool of that name.
    """
    names = [tool.spec.name for tool in spec.exposed()]
    for each in disabled:
        if each not in names:
            available = ", ".join(names) or "none"
            raise Invalid(
                f"the agent {spec.name} has no tool {each[:80]!r} that can be disabled; available: {available}",
                path="disable_tools",
            )
    if not disabled:
        return None
    return tuple(
        ToolGrant(tool.spec.name, trust=not tool.policy.needs_approval)
        for tool in spec.exposed()
        if tool.spec.name not in disabled
    )
