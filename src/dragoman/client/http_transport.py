"""The transport of the protocols that use HTTP and server-sent events."""

import asyncio
from collections.abc import AsyncGenerator
from uuid import uuid4

from dragoman.client.codec import Codec, SessionConfig, SessionHandle, TurnInput
from dragoman.client.connection import ServerConnection
from dragoman.client.errors import RequestRefused, Unsupported
from dragoman.client.events import Agent, Event, Message, SessionInfo
from dragoman.client.transport import Checkpoint, Transport


class HttpTransport(Transport):
    """One server over the protocol of a codec."""

    def __init__(self, connection: ServerConnection, codec: Codec) -> None:
        super().__init__(connection)
        self._codec = codec
        self._known = asyncio.Event()
        """Set when the agents are known. Shared by all copies with other headers."""
        self.needs_all_answers = codec.needs_all_answers

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
