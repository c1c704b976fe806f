"""The interface of all transports: a server over one protocol, for the sessions above."""

import copy
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Self

from dragoman.client.codec import SessionConfig, SessionHandle, TurnInput
from dragoman.client.connection import ServerConnection
from dragoman.client.events import Agent, Event, Message, SessionInfo

Checkpoint = Callable[[], Awaitable[None]]
"""Called when a handle has what `take_up` needs beyond what it had when the turn began."""


class Transport(ABC):
    """One server over one protocol."""

    needs_all_answers = True
    """Whether all pending calls are answered with one request."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    def with_headers(self, headers: Mapping[str, str]) -> Self:
        """The same connections, for requests with more headers."""
        transport = copy.copy(self)
        transport._connection = self._connection.with_headers(headers)
        return transport

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.close()

    @abstractmethod
    async def agents(self) -> tuple[Agent, ...]:
        """List the server's agents."""

    async def identify(self) -> None:  # noqa: B027  # most protocols need nothing
        """Find out what the requests to the server depend on, unless that is known. By default, nothing."""

    @abstractmethod
    async def create(self, session_config: SessionConfig, idempotency_key: str) -> SessionHandle:
        """Create a session."""

    @abstractmethod
    async def open(self, session_id: str, session_config: SessionConfig) -> SessionHandle:
        """Open an existing session. Raises NotFound."""

    @abstractmethod
    async def session_info(self, handle: SessionHandle) -> SessionInfo:
        """Fetch a session's current state."""

    @abstractmethod
    async def sessions(self, after: str) -> tuple[tuple[SessionInfo, ...], str]:
        """Fetch a page of the session list and the next page's cursor, which is empty at the end."""

    @abstractmethod
    async def history(self, handle: SessionHandle) -> tuple[Message, ...]:
        """Fetch all messages."""

    @abstractmethod
    async def delete(self, handle: SessionHandle) -> None:
        """Delete the session and everything in it."""

    @abstractmethod
    async def stop(self, handle: SessionHandle) -> bool:
        """Stop the current run. Returns whether there was one."""

    @abstractmethod
    def run_turn(
        self,
        handle: SessionHandle,
        turn_input: TurnInput,
        idempotency_key: str = "",
        checkpoint: Checkpoint | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Run a turn, to its `Ended`. The key is the same for repetitions of the turn; by default it is a new one."""

    @abstractmethod
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

    @abstractmethod
    def resume(self, handle: SessionHandle) -> AsyncGenerator[Event, None]:
        """Read the newest turn from its start."""
