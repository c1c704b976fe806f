"""What an agent declares to AG-UI clients. Pure. Source: specification of AG-UI, B.12."""

from dragoman.core.tools import ASK_USER_QUESTION, FORK, AgentSpec
from dragoman.protocols.agui.content import WireStruct
from dragoman.protocols.agui.wire import Tool

Flags = dict[str, bool]


class Identity(WireStruct, frozen=True, kw_only=True):
    """The agent."""

    name: str
    type: str
    version: str
    description: str | None = None


class Tools(WireStruct, frozen=True, kw_only=True):
    """The agent's own tools, and whether it accepts tools of the client."""

    supported: bool
    items: tuple[Tool, ...]
    parallel_calls: bool
    client_provided: bool


class AgentCapabilities(WireStruct, frozen=True, kw_only=True):
    """The response of the capabilities route. What is omitted is undeclared."""

    identity: Identity
    transport: Flags
    tools: Tools
    state: Flags
    multi_agent: Flags
    reasoning: Flags
    multimodal: dict[str, Flags]
    execution: dict[str, int]
    human_in_the_loop: Flags


def capabilities_of(spec: AgentSpec) -> AgentCapabilities:
    """The capabilities of an agent. Only exposed tools are listed."""
    exposed, supports = spec.exposed(), spec.capabilities
    asks, forks = ASK_USER_QUESTION in spec.builtins, FORK in spec.builtins
    approves = any(tool.policy.needs_approval for tool in exposed)
    items = tuple(
        Tool(name=tool.spec.name, description=tool.spec.description, parameters=tool.spec.parameters)
        for tool in exposed
    )
    interrupts = asks or approves
    return AgentCapabilities(
        identity=Identity(name=spec.name, type="dragoman", version=spec.version, description=spec.description),
        transport={"streaming": True, "resumable": True},  # the events route resumes
        tools=Tools(
            supported=bool(exposed) or supports.client_tools,
            items=items,
            parallel_calls=True,
            client_provided=supports.client_tools,
        ),
        state={"snapshots": True, "deltas": True, "persistentState": True},
        multi_agent={"supported": forks, "delegation": forks},
        reasoning={"supported": True, "streaming": True},
        multimodal={"input": {"image": supports.image_http or supports.image_data}},
        execution={"maxIterations": spec.max_steps},
        human_in_the_loop={
            "supported": interrupts,
            "approvals": approves,
            "interventions": asks,
            "interrupts": interrupts,
        },
    )
