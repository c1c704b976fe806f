"""Transports: one per protocol, with a common interface for the sessions above them."""

import asyncio
import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Literal, Protocol, Self, get_args
from urllib.parse import urlsplit
from uuid import uuid4

from dragoman.client.a2a import A2aCodec
from dragoman.client.a2a_transport import A2aTransport
from dragoman.client.aap import AapCodec
from dragoman.client.agentscope import AgentScopeCodec
from dragoman.client.agui import AguiCodec
from dragoman.client.blade import BASE, BladeCodec
from dragoman.client.blade_transport import BladeTransport
from dragoman.client.codec import Codec, SessionConfig, SessionHandle, TurnInput
from dragoman.client.connection import ServerConnection, Timeouts
from dragoman.client.errors import ClientError, RequestRefused, Unsupported
from dragoman.client.events import Agent, Event, Message, SessionInfo
from dragoman.client.openai import OpenAiCodec
from dragoman.client.openai_chat import OpenAiChatCodec
from dragoman.client.openai_transport import OpenAiTransport
from dragoman.client.run_service import RunServiceCodec
from dragoman.client.run_service_transport import RunServiceTransport

Checkpoint = Callable[[], Awaitable[None]]
"""Called when a handle has what `take_up` needs beyond what it had when the turn began."""
ClientProtocol = Literal["aap", "ag-ui", "agentscope", "blade", "openai", "openai-chat", "a2a", "run-service"]


class Transport(Protocol):
    """One server over one protocol. If `needs_all_answers`, all pending calls are answered together."""

    @property
    def needs_all_answers(self) -> bool:
        """Whether all pending calls are answered with one request."""

    def with_headers(self, headers: Mapping[str, str]) -> Self:
        """The same connections, for requests with more headers."""

    async def close(self) -> None:
        """Close all connections."""

    async def agents(self) -> tuple[Agent, ...]:
        """List the server's agents."""

    async def identify(self) -> None:
        """Find out what the requests to the server depend on, unless that is known."""

    async def create(self, session_config: SessionConfig, idempotency_key: str) -> SessionHandle:
        """Create a session."""

    async def open(self, session_id: str, session_config: SessionConfig) -> SessionHandle:
        """Open an existing session. Raises NotFound."""

    async def session_info(self, handle: SessionHandle) -> SessionInfo:
        """Fetch a session's current state."""

    async def sessions(self, after: str) -> tuple[tuple[SessionInfo, ...], str]:
        """Fetch a page of the session list and the next page's cursor, which is empty at the end."""

    async def history(self, handle: SessionHandle) -> tuple[Message, ...]:
        """Fetch all messages."""

    async def delete(self, handle: SessionHandle) -> None:
        """Delete the session and everything in it."""

    async def stop(self, handle: SessionHandle) -> bool:
        """Stop the current run. Returns whether there was one."""

    def run_turn(
        self,
        handle: SessionHandle,
        turn_input: TurnInput,
        idempotency_key: str = "",
        checkpoint: Checkpoint | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Run a turn, to its `Ended`. The key is the same for repetitions of the turn; by default it is a new one."""

    async def take_up(
        self,
        handle: SessionHandle,
        turn_input: TurnInput,
        idempotency_key: str,
        checkpoint: Checkpoint | None = None,
    ) -> AsyncGenerator[Event, None] | None:
        """Go on with a turn that an earlier process began: read it from its start, or send it if it has not arrived.

        Args:
            handle: as it was before the turn, but for `id`, `run_id` and `sequence`, which are those of the newest
                checkpoint.
            turn_input: what the turn has sent.
            idempotency_key: the turn's key.
            checkpoint: the same as that of the turn.

        Returns:
            The events of the whole turn; None if the server does not allow it.
        """

    def resume(self, handle: SessionHandle) -> AsyncGenerator[Event, None]:
        """Read the newest turn from its start."""


class HttpTransport:
    """The transport of the protocols that use HTTP and server-sent events."""

    def __init__(self, connection: ServerConnection, codec: Codec) -> None:
        self._connection = connection
        self._codec = codec
        self._known = asyncio.Event()
        """Set when the agents are known. Shared by all copies with other headers."""
        self.needs_all_answers = codec.needs_all_answers

    def with_headers(self, headers: Mapping[str, str]) -> Self:
        """The same connections, for requests with more headers."""
        transport = copy.copy(self)
        transport._connection = self._connection.with_headers(headers)
        return transport

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.close()

    async def agents(self) -> tuple[Agent, ...]:
        """List the server's agents."""
        agents = await self._connection.send(self._codec.agents())
        self._known.set()
        return agents

    async def identify(self) -> None:
        """List the agents, if requests depend on them and they are not known."""
        if self._codec.needs_agents and not self._known.is_set():
            await self.agents()

    async def create(self, session_config: SessionConfig, idempotency_key: str) -> SessionHandle:
        """Create a session."""
        await self.identify()
        try:
            created = self._codec.create(session_config, idempotency_key)
        except Unsupported:
            if not self._codec.needs_agents:
                raise
            await self.agents()  # the list that the codec knows may be outdated
            created = self._codec.create(session_config, idempotency_key)
        return created if isinstance(created, SessionHandle) else await self._connection.send(created)

    async def open(self, session_id: str, session_config: SessionConfig) -> SessionHandle:
        """Open an existing session. Raises NotFound."""
        await self.identify()
        handle = SessionHandle(id=session_id, agent=session_config.agent, tools=session_config.tools)
        return self._codec.open(await self.session_info(handle), session_config)

    async def session_info(self, handle: SessionHandle) -> SessionInfo:
        """Fetch a session's current state."""
        info = self._codec.session_info(handle)
        return info if isinstance(info, SessionInfo) else await self._connection.send(info)

    async def sessions(self, after: str) -> tuple[tuple[SessionInfo, ...], str]:
        """Fetch a page of the session list and the next page's cursor."""
        return await self._connection.send(self._codec.sessions(after))

    async def history(self, handle: SessionHandle) -> tuple[Message, ...]:
        """Fetch all messages."""
        history = self._codec.history(handle)
        return history if isinstance(history, tuple) else await self._connection.send(history)

    async def delete(self, handle: SessionHandle) -> None:
        """Delete the session and everything in it."""
        await self._connection.send(self._codec.delete(handle))

    async def stop(self, handle: SessionHandle) -> bool:
        """Stop the current run. Raises Unsupported if the server has no such path."""
        try:
            return await self._connection.send(self._codec.stop(handle))
        except RequestRefused as error:
            if error.status not in (404, 405) or error.code.endswith("_not_found"):
                raise
            raise Unsupported("this server cannot stop runs over this protocol", status=error.status) from error

    def run_turn(
        self,
        handle: SessionHandle,
        turn_input: TurnInput,
        idempotency_key: str = "",
        checkpoint: Checkpoint | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Run a turn, to its `Ended`. There are no checkpoints: the key is enough."""
        return self._connection.stream_events(
            self._codec.turn(handle, turn_input, idempotency_key or uuid4().hex), self._codec.idempotency_probe(handle)
        )

    async def take_up(
        self,
        handle: SessionHandle,
        turn_input: TurnInput,
        idempotency_key: str,
        checkpoint: Checkpoint | None = None,
    ) -> AsyncGenerator[Event, None] | None:
        """Send a turn again to a server that runs it once, even if it arrives twice with the same key."""
        if not await self._connection.probe(self._codec.idempotency_probe(handle)):
            return None
        return self.run_turn(handle, turn_input, idempotency_key)

    def resume(self, handle: SessionHandle) -> AsyncGenerator[Event, None]:
        """Read the newest turn from its start."""
        return self._connection.stream_events(self._codec.resume(handle), self._codec.idempotency_probe(handle))


def create_transport(protocol: ClientProtocol, url: str, key: str | None, timeouts: Timeouts) -> Transport:
    """Create the transport for a protocol. Raises ClientError if the URL or the protocol's name is invalid."""
    expected = f"expected an address such as http://127.0.0.1:8000, got {url!r}"
    try:
        address = urlsplit(url)
    except ValueError as error:  # such as a bracket that is not closed
        raise ClientError(expected) from error
    if address.scheme not in ("http", "https") or not address.netloc:
        raise ClientError(expected)
    origin, path = f"{address.scheme}://{address.netloc}", address.path.rstrip("/")
    codec: Codec
    match protocol:
        case "aap":
            codec = AapCodec(path) if path else AapCodec()
        case "ag-ui":
            codec = AguiCodec(path)
        case "agentscope":
            codec = AgentScopeCodec(path) if path else AgentScopeCodec()
        case "blade":
            rest = BladeCodec(f"{path}/api" if path else BASE)
            return BladeTransport(ServerConnection(origin, key, rest, timeouts), rest, origin + path, key)
        case "openai":
            responses = OpenAiCodec(path) if path else OpenAiCodec()
            return OpenAiTransport(ServerConnection(origin, key, responses, timeouts), responses)
        case "openai-chat":
            codec = OpenAiChatCodec(path) if path else OpenAiChatCodec()
        case "a2a":
            agents = A2aCodec(path)
            return A2aTransport(ServerConnection(origin, key, agents, timeouts), agents)
        case "run-service":
            service = RunServiceCodec(path) if path else RunServiceCodec()
            return RunServiceTransport(ServerConnection(origin, key, service, timeouts), service)
        case _:
            raise ClientError(f"expected a protocol ({', '.join(get_args(ClientProtocol))}), got {protocol!r}")
    return HttpTransport(ServerConnection(origin, key, codec, timeouts), codec)
