"""The interface between protocols and connections. Pure.

A `Codec` knows one protocol and no connection: it builds requests and decodes responses. A `SessionHandle` is what the
client remembers of one session. A `Turn` is one streamed exchange; it always knows the request that resumes it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from dragoman.client.agui_interrupts import GraphInterrupt
from dragoman.client.errors import RequestRefused, Unsupported
from dragoman.client.events import Agent, Answer, Event, Message, Pending, SessionInfo
from dragoman.client.sse import Frame
from dragoman.core.content import Json, JsonObject
from dragoman.core.tools import ToolSpec

Value = TypeVar("Value")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request, relative to the server's address. `is_idempotent`: sending it twice is as good as once."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    is_idempotent: bool = False


class TypedRequest(Generic[Value]):
    """A request, and the decoder of its response's body."""

    def __init__(self, request: Request, decode: Callable[[bytes], Value]) -> None:
        self.request = request
        self.decode = decode


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is created with.

    An empty `agent` means the server's first agent. None and empty leave the rest as the protocol's default has it.
    """

    agent: str
    tools: tuple[ToolSpec, ...] = ()
    server_tools: tuple[str, ...] | None = None
    trusted_tools: tuple[str, ...] = ()
    declared_approval: bool = False
    options: Mapping[str, str] = {}
    title: str = ""
    labels: Mapping[str, str] = {}
    history: tuple[Message, ...] = ()


SETTINGS = ("server_tools", "trusted_tools", "options", "title", "labels", "history")
"""The members of a configuration that some protocols cannot express. AAP can express all of them."""


def require_unset(session_config: SessionConfig, *names: str, advice: str) -> None:
    """Check that these members of a configuration are not set. Raises Unsupported with the advice."""
    if any(getattr(session_config, name) not in (None, (), {}, "") for name in names):
        raise Unsupported(advice)


class UserInput(msgspec.Struct, frozen=True, kw_only=True):
    """A user's message. Images are URLs."""

    text: str
    images: tuple[str, ...] = ()


TurnInput = UserInput | tuple[Answer, ...]
"""What a turn starts with: a message, or the answers to what is pending."""


class SessionHandle(msgspec.Struct, kw_only=True):
    """What the client remembers of one session."""

    id: str
    agent: str
    tools: tuple[ToolSpec, ...] = ()
    """The client tools."""
    has_unsent_tools: bool = False
    """Whether the client tools must be sent with the next turn."""
    pending: tuple[Pending, ...] = ()
    run_id: str = ""
    """The newest run, as the server calls it: over A2A a task, over OpenAI's API a response."""
    sequence: int = -1
    """Over Blade: the newest event of the session before the newest turn was sent."""
    last_response_id: str = ""
    """The newest response over OpenAI's API, task over A2A or run over the run service that this client has seen."""
    emitted_lengths: dict[str, int] = {}
    """Characters emitted so far of that task, by artifact."""
    tool_names: dict[str, str] = {}
    """Tool names by call id."""
    waiting_arguments: dict[str, JsonObject] = {}
    """Over AG-UI and Blade: the arguments of the calls that the newest turn left waiting, by call id."""
    messages: list[JsonObject] = []
    """The messages so far in the protocol's form, for servers that keep no history."""
    server_keeps_history: bool = False
    """Whether the server is known to keep the history."""
    state: Json = None
    """The state that the application shares with the agent, as it was last seen. Only AG-UI has it."""
    context: tuple[JsonObject, ...] = ()
    """Facts about the user's situation, for AG-UI: each with `description` and `value`."""
    forwarded: Json = None
    """What is meant for the agent alone, for AG-UI."""
    graph_interrupts: tuple[GraphInterrupt, ...] = ()
    """The open interrupts of a graph that a LangGraph server serves over AG-UI."""


class Turn(Protocol):
    """One streamed exchange. Yields each event once, wherever the connection breaks."""

    is_over: bool

    @property
    def request(self) -> Request:
        """The request that starts the turn or, once events have arrived, resumes it."""

    @property
    def can_resume(self) -> bool:
        """Whether `request` resumes the turn without losing or repeating anything."""

    def feed(self, frame: Frame) -> Sequence[Event]:
        """Decode one frame of the stream. Raises InvalidResponse."""

    def feed_body(self, body: bytes) -> Sequence[Event]:
        """Decode a response that is not a stream. Raises InvalidResponse."""


class RefusalDecoder(Protocol):
    """What a connection needs of a protocol for single requests."""

    def decode_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> RequestRefused:
        """Decode an error response."""


class Codec(RefusalDecoder, Protocol):
    """One protocol over HTTP.

    If `needs_agents`, the agents are listed before any other request; if `needs_all_answers`, all pending calls are
    answered with one request.
    """

    needs_agents: bool
    needs_all_answers: bool

    def agents(self) -> TypedRequest[tuple[Agent, ...]]:
        """List the server's agents."""

    def create(
        self, session_config: SessionConfig, idempotency_key: str
    ) -> TypedRequest[SessionHandle] | SessionHandle:
        """Create a session. Returns a handle if the protocol creates sessions with their first message."""

    def open(self, info: SessionInfo, session_config: SessionConfig) -> SessionHandle:
        """Make the handle of an existing session."""

    def session_info(self, handle: SessionHandle) -> TypedRequest[SessionInfo] | SessionInfo:
        """Fetch a session's state. Returns what the client knows if the protocol has no request for it."""

    def sessions(self, after: str) -> TypedRequest[tuple[tuple[SessionInfo, ...], str]]:
        """Fetch a page of the session list and the next page's cursor, which is empty at the end."""

    def history(self, handle: SessionHandle) -> TypedRequest[tuple[Message, ...]] | tuple[Message, ...]:
        """Fetch all messages. Returns them if the client has them."""

    def delete(self, handle: SessionHandle) -> TypedRequest[None]:
        """Delete the session and everything in it."""

    def stop(self, handle: SessionHandle) -> TypedRequest[bool]:
        """Stop the current run. Returns whether there was one; True if the server does not say."""

    def turn(self, handle: SessionHandle, turn_input: TurnInput, idempotency_key: str) -> Turn:
        """Start a turn. `idempotency_key` is unique to the turn and the same for its retries."""

    def resume(self, handle: SessionHandle) -> Turn:
        """Read the newest turn from its start."""

    def idempotency_probe(self, handle: SessionHandle) -> TypedRequest[bool]:
        """Find out whether a request that may have arrived can be sent to this server again."""
