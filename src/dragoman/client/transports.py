"""The ways to a server: for each protocol one `Door`, which the sessions above use without knowing which it is."""

from collections.abc import AsyncGenerator
from typing import Literal, Protocol
from urllib.parse import urlsplit
from uuid import uuid4

from dragoman.client.aap import AapCodec
from dragoman.client.agentscope import AgentScopeCodec
from dragoman.client.agui import AguiCodec
from dragoman.client.blade import BASE, BladeCodec
from dragoman.client.blade_transport import BladeTransport
from dragoman.client.codec import Codec, SessionConfig, SessionHandle, TurnInput
from dragoman.client.connection import ServerConnection, Timeouts
from dragoman.client.errors import ClientError, RequestRefused, Unsupported
from dragoman.client.events import Agent, Event, Message, SessionInfo

ProtocolName = Literal["aap", "ag-ui", "agentscope", "blade"]


class Transport(Protocol):
    """One protocol of one server."""

    async def close(self) -> None:
        """Close all connections."""

    async def agents(self) -> tuple[Agent, ...]:
        """What the server offers."""

    async def create(self, session_config: SessionConfig, idempotency_key: str) -> SessionHandle:
        """Make a session."""

    async def open(self, session_id: str, session_config: SessionConfig) -> SessionHandle:
        """Go on with a session. Raises NotFound."""

    async def session_info(self, handle: SessionHandle) -> SessionInfo:
        """A session as it is now."""

    async def sessions(self, after: str) -> tuple[tuple[SessionInfo, ...], str]:
        """A page of the list, and where the next begins; empty at the end."""

    async def history(self, handle: SessionHandle) -> tuple[Message, ...]:
        """All messages."""

    async def delete(self, handle: SessionHandle) -> None:
        """End the session and all of it."""

    async def stop(self, handle: SessionHandle) -> None:
        """Stop the run."""

    def run_turn(self, handle: SessionHandle, turn_input: TurnInput) -> AsyncGenerator[Event, None]:
        """One exchange, to its `Ended`."""

    def resume(self, handle: SessionHandle) -> AsyncGenerator[Event, None]:
        """The newest exchange from its start."""


class HttpTransport:
    """A protocol over HTTP and server-sent events."""

    def __init__(self, connection: ServerConnection, codec: Codec) -> None:
        self._connection = connection
        self._codec = codec
        self._knows_agents = False

    async def close(self) -> None:
        """See `Door.close`."""
        await self._connection.close()

    async def agents(self) -> tuple[Agent, ...]:
        """See `Door.agents`."""
        found = await self._connection.send(self._codec.agents())
        self._knows_agents = True
        return found

    async def create(self, session_config: SessionConfig, idempotency_key: str) -> SessionHandle:
        """See `Door.create`."""
        await self._ensure_agents()
        try:
            made = self._codec.create(session_config, idempotency_key)
        except Unsupported:
            if not self._codec.needs_agents:
                raise
            await self.agents()  # it may have come since
            made = self._codec.create(session_config, idempotency_key)
        return made if isinstance(made, SessionHandle) else await self._connection.send(made)

    async def open(self, session_id: str, session_config: SessionConfig) -> SessionHandle:
        """See `Door.open`."""
        await self._ensure_agents()
        talk = SessionHandle(id=session_id, agent=session_config.agent, tools=session_config.tools)
        return self._codec.open(await self.session_info(talk), session_config)

    async def session_info(self, handle: SessionHandle) -> SessionInfo:
        """See `Door.look`."""
        shown = self._codec.session_info(handle)
        return shown if isinstance(shown, SessionInfo) else await self._connection.send(shown)

    async def sessions(self, after: str) -> tuple[tuple[SessionInfo, ...], str]:
        """See `Door.sessions`."""
        return await self._connection.send(self._codec.sessions(after))

    async def history(self, handle: SessionHandle) -> tuple[Message, ...]:
        """See `Door.history`."""
        return await self._connection.send(self._codec.history(handle))

    async def delete(self, handle: SessionHandle) -> None:
        """See `Door.delete`."""
        await self._connection.send(self._codec.delete(handle))

    async def stop(self, handle: SessionHandle) -> None:
        """See `Door.stop`."""
        try:
            await self._connection.send(self._codec.stop(handle))
        except RequestRefused as error:
            if error.status not in (404, 405) or error.code.endswith("_not_found"):
                raise
            raise Unsupported("this server has no way to stop a run over this protocol", status=error.status) from error

    def run_turn(self, handle: SessionHandle, turn_input: TurnInput) -> AsyncGenerator[Event, None]:
        """See `Door.play`."""
        return self._connection.stream_events(
            self._codec.turn(handle, turn_input, uuid4().hex), self._codec.idempotency_probe(handle)
        )

    def resume(self, handle: SessionHandle) -> AsyncGenerator[Event, None]:
        """See `Door.resume`."""
        return self._connection.stream_events(self._codec.resume(handle), self._codec.idempotency_probe(handle))

    async def _ensure_agents(self) -> None:
        if self._codec.needs_agents and not self._knows_agents:
            await self.agents()


def create_transport(protocol: ProtocolName, url: str, key: str | None, timeouts: Timeouts) -> Transport:
    """The way to that server. Raises ClientError: the address is none, or there is no such protocol."""
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.netloc:
        raise ClientError(f"an address such as http://127.0.0.1:8000 was expected, got {url!r}")
    origin, path = f"{address.scheme}://{address.netloc}", address.path.rstrip("/")
    face: Codec
    match protocol:
        case "aap":
            face = AapCodec(path) if path else AapCodec()
        case "ag-ui":
            face = AguiCodec(path)
        case "agentscope":
            face = AgentScopeCodec(path) if path else AgentScopeCodec()
        case "blade":
            rest = BladeCodec(f"{path}/api" if path else BASE)
            return BladeTransport(ServerConnection(origin, key, rest, timeouts), rest, origin + path, key)
        case _:
            raise ClientError(f"a protocol was expected (aap, ag-ui, agentscope, blade), got {protocol!r}")
    return HttpTransport(ServerConnection(origin, key, face, timeouts), face)
