"""What an agent declares to AG-UI's clients. Pure. Source: specification of the face, B.12."""

from dragoman.core.tools import ASK_USER_QUESTION, FORK, AgentSpec
from dragoman.protocols.agui.content import WireStruct
from dragoman.protocols.agui.wire import Tool


class Identity(WireStruct, frozen=True, kw_only=True):
    """Who answers."""

    name: str
    type: str
    version: str
    description: str | None = None


class Transport(WireStruct, frozen=True, kw_only=True):
    """How it answers. `resumable` holds for the events route."""

    streaming: bool
    resumable: bool


class Tools(WireStruct, frozen=True, kw_only=True):
    """The agent's own tools, and whether it takes the client's."""

    supported: bool
    items: tuple[Tool, ...]
    parallel_calls: bool
    client_provided: bool


class State(WireStruct, frozen=True, kw_only=True):
    """State: the client's is kept with the thread and told again."""

    snapshots: bool
    persistent_state: bool


class MultiAgent(WireStruct, frozen=True, kw_only=True):
    """Sub-agents."""

    supported: bool
    delegation: bool


class Reasoning(WireStruct, frozen=True, kw_only=True):
    """Thinking, where the model shows it."""

    supported: bool
    streaming: bool


class Input(WireStruct, frozen=True, kw_only=True):
    """What the model can see besides text."""

    image: bool


class Multimodal(WireStruct, frozen=True, kw_only=True):
    """Media."""

    input: Input


class Execution(WireStruct, frozen=True, kw_only=True):
    """Bounds of a run."""

    max_iterations: int


class HumanInTheLoop(WireStruct, frozen=True, kw_only=True):
    """What people are asked."""

    supported: bool
    approvals: bool
    interventions: bool
    interrupts: bool


class AgentCapabilities(WireStruct, frozen=True, kw_only=True):
    """The answer of the capabilities route. What is omitted is undeclared."""

    identity: Identity
    transport: Transport
    tools: Tools
    state: State
    multi_agent: MultiAgent
    reasoning: Reasoning
    multimodal: Multimodal
    execution: Execution
    human_in_the_loop: HumanInTheLoop


def capabilities_of(spec: AgentSpec) -> AgentCapabilities:
    """What holds for an agent: exposed tools only."""
    exposed, has = spec.exposed(), spec.capabilities
    asks = ASK_USER_QUESTION in spec.builtins
    approves = any(tool.policy.needs_approval for tool in exposed)
    return AgentCapabilities(
        identity=Identity(name=spec.name, type="dragoman", version=spec.version, description=spec.description),
        transport=Transport(streaming=True, resumable=True),
        tools=Tools(
            supported=bool(exposed) or has.client_tools,
            items=tuple(
                Tool(name=tool.spec.name, description=tool.spec.description, parameters=tool.spec.parameters)
                for tool in exposed
            ),
            parallel_calls=True,
            client_provided=has.client_tools,
        ),
        state=State(snapshots=True, persistent_state=True),
        multi_agent=MultiAgent(supported=FORK in spec.builtins, delegation=FORK in spec.builtins),
        reasoning=Reasoning(supported=True, streaming=True),
        multimodal=Multimodal(input=Input(image=has.image_http or has.image_data)),
        execution=Execution(max_iterations=spec.max_steps),
        human_in_the_loop=HumanInTheLoop(
            supported=asks or approves, approvals=approves, interventions=asks, interrupts=asks or approves
        ),
    )
