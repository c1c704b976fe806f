"""What a protocol's pure part gives to the connection: requests to send, and readers of what comes back. Pure.

A `Face` knows one protocol and no connection; a `Talk` is what it must keep of one session; a `Turn` is one exchange
that streams, and knows at every moment the request by which it goes on.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from dragoman.client.errors import RequestRefused
from dragoman.client.events import Agent, Answer, Event, Message, Pending, SessionInfo
from dragoman.client.sse import Frame
from dragoman.core.content import JsonObject
from dragoman.core.tools import ToolSpec

Value = TypeVar("Value")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request, relative to the server's address. `repeats` says that sending it twice is as good as once."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    is_idempotent: bool = False


class TypedRequest(Generic[Value]):
    """A request with the reader of its answer's body."""

    def __init__(self, request: Request, decode: Callable[[bytes], Value]) -> None:
        self.request = request
        self.decode = decode


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A session that is to be made.

    An empty `agent` is the server's first. Of `use` and `trust`, None and empty mean what the protocol does by itself.
    """

    agent: str
    tools: tuple[ToolSpec, ...] = ()
    server_tools: tuple[str, ...] | None = None
    trusted_tools: tuple[str, ...] = ()
    options: Mapping[str, str] = {}


class UserInput(msgspec.Struct, frozen=True, kw_only=True):
    """A person's message. Pictures are URLs."""

    text: str
    images: tuple[str, ...] = ()


TurnInput = UserInput | tuple[Answer, ...]
"""What begins an exchange: a message, or the answers to what is pending."""


class SessionHandle(msgspec.Struct, kw_only=True):
    """What is known of one session."""

    id: str
    agent: str
    tools: tuple[ToolSpec, ...] = ()
    """The functions that this client offers."""
    has_unsent_tools: bool = False
    """Whether the server has still to be told of them, with the next exchange."""
    pending: tuple[Pending, ...] = ()
    run_id: str = ""
    tool_names: dict[str, str] = {}
    """Of calls: their tools."""
    messages: list[JsonObject] = []
    """What was said, as the protocol writes it: for servers that keep no history."""
    server_keeps_history: bool = False
    """Whether the server is known to keep it."""


class Turn(Protocol):
    """One exchange that streams: read strictly, each event once, wherever the connection was cut."""

    is_over: bool

    @property
    def request(self) -> Request:
        """By which it begins or, once something came, goes on."""

    @property
    def can_resume(self) -> bool:
        """Whether `request` goes on without a loss or a repetition."""

    def feed(self, frame: Frame) -> Sequence[Event]:
        """Take an event of the stream. Raises Unreadable."""

    def feed_body(self, body: bytes) -> Sequence[Event]:
        """Take an answer that came as a whole. Raises Unreadable."""


class RefusalDecoder(Protocol):
    """What a link needs of a protocol, to ask for one thing."""

    def decode_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> RequestRefused:
        """An answer that says no."""


class Codec(RefusalDecoder, Protocol):
    """One protocol over HTTP. Where `needs_agents`, the answer of `agents` is read before anything else is asked."""

    needs_agents: bool

    def agents(self) -> TypedRequest[tuple[Agent, ...]]:
        """What the server offers."""

    def create(
        self, session_config: SessionConfig, idempotency_key: str
    ) -> TypedRequest[SessionHandle] | SessionHandle:
        """Make a session; `once` as in `turn`. Where it begins with its first message there is nothing to ask."""

    def open(self, info: SessionInfo, session_config: SessionConfig) -> SessionHandle:
        """Go on with a session that is there."""

    def session_info(self, handle: SessionHandle) -> TypedRequest[SessionInfo] | SessionInfo:
        """A session as it is now. Where the protocol shows none: what this client knows."""

    def sessions(self, after: str) -> TypedRequest[tuple[tuple[SessionInfo, ...], str]]:
        """A page of the list, and where the next begins; empty at the end."""

    def history(self, handle: SessionHandle) -> TypedRequest[tuple[Message, ...]]:
        """All messages."""

    def delete(self, handle: SessionHandle) -> TypedRequest[None]:
        """End the session and all of it."""

    def stop(self, handle: SessionHandle) -> TypedRequest[None]:
        """Stop the run."""

    def turn(self, handle: SessionHandle, turn_input: TurnInput, idempotency_key: str) -> Turn:
        """Begin an exchange; `once` is new for each and the same for its repetitions."""

    def resume(self, handle: SessionHandle) -> Turn:
        """Read the newest run from its start."""

    def idempotency_probe(self, handle: SessionHandle) -> TypedRequest[bool]:
        """Whether the server is one to which a request that may have arrived can be sent again."""
