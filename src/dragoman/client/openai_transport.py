"""The transport for OpenAI's API: what takes several requests, and what servers without Conversations do instead."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from uuid import uuid4

import msgspec

from dragoman.client.codec import SessionConfig, SessionHandle, TurnInput
from dragoman.client.connection import ServerConnection
from dragoman.client.errors import InvalidResponse, RequestRefused, Unsupported
from dragoman.client.events import Agent, Event, Message, SessionInfo
from dragoman.client.openai import MAX_SEED_ITEMS, RUNNING, OpenAiCodec, response_of, seed_items
from dragoman.client.openai_items import pending_in, to_messages
from dragoman.client.openai_turn import OpenAiTurn
from dragoman.client.transport import Checkpoint, Transport
from dragoman.core.content import JsonObject

MISSING_STATUSES = (404, 405, 501)
"""The statuses with which servers answer requests that they do not know."""


class OpenAiTransport(Transport):
    """One server over OpenAI's API."""

    def __init__(self, connection: ServerConnection, codec: OpenAiCodec) -> None:
        super().__init__(connection)
        self._codec = codec
        self._known = asyncio.Event()
        """Set when it is known whether the server is a Dragoman. Shared by all copies with other headers."""

    async def agents(self) -> tuple[Agent, ...]:
        """List the server's agents."""
        agents = await self._connection.send(self._codec.agents())
        self._known.set()
        return agents

    async def identify(self) -> None:
        """Find out whether it is a Dragoman server. A server that lists no models is none."""
        if self._known.is_set():
            return
        try:
            await self.agents()
        except (RequestRefused, InvalidResponse):
            self._known.set()

    async def create(self, session_config: SessionConfig, idempotency_key: str) -> SessionHandle:
        """Create a conversation; on a server without Conversations, a session that only the client knows."""
        items = seed_items(session_config)
        await self.identify()
        try:
            handle = await self._connection.send(self._codec.create(session_config))
        except RequestRefused as error:
            if error.status not in MISSING_STATUSES:
                raise
            return SessionHandle(
                id=str(uuid4()), agent=session_config.agent, tools=session_config.tools, messages=items
            )
        for start in range(MAX_SEED_ITEMS, len(items), MAX_SEED_ITEMS):
            await self._connection.send(self._codec.add_items(handle, items[start : start + MAX_SEED_ITEMS]))
        return handle

    async def open(self, session_id: str, session_config: SessionConfig) -> SessionHandle:
        """Open an existing conversation. Raises NotFound."""
        await self.identify()
        handle = SessionHandle(
            id=session_id, agent=session_config.agent, tools=session_config.tools, server_keeps_history=True
        )
        handle.pending = (await self.session_info(handle)).pending
        return handle

    async def session_info(self, handle: SessionHandle) -> SessionInfo:
        """Fetch a session's current state."""
        if not handle.server_keeps_history:
            return SessionInfo(id=handle.id, agent=handle.agent, pending=handle.pending)
        info = await self._connection.send(self._codec.session_info(handle))
        pending = pending_in(reversed(await self._newest_items(handle)))
        return msgspec.structs.replace(info, pending=pending, status="waiting" if pending else "")

    async def sessions(self, after: str) -> tuple[tuple[SessionInfo, ...], str]:
        """Fetch a page of the session list."""
        raise Unsupported("OpenAI's API cannot list conversations; AAP can list the same sessions")

    async def history(self, handle: SessionHandle) -> tuple[Message, ...]:
        """Fetch all messages."""
        if not handle.server_keeps_history:
            return to_messages(handle.messages)
        items: list[JsonObject] = []
        after = ""
        while True:
            page = await self._connection.send(self._codec.items(handle, after))
            items += page.data
            after = page.last_id or ""
            if not page.has_more or not after:
                return to_messages(items)

    async def delete(self, handle: SessionHandle) -> None:
        """Delete the conversation and everything in it."""
        if not handle.server_keeps_history:
            raise Unsupported("this server keeps no conversations, so there is nothing to delete")
        await self._connection.send(self._codec.delete(handle))

    async def stop(self, handle: SessionHandle) -> bool:
        """Stop the current response, and cancel the calls that wait. Returns whether there was anything to stop."""
        if not handle.server_keeps_history:
            raise Unsupported("this server keeps no responses: leave the run to stop it")
        items = await self._newest_items(handle)
        response_id = self._newest_response(handle, items)
        if not response_id:
            return False
        is_running = (await self._connection.send(self._codec.response(response_id))).status in RUNNING
        is_waiting = bool(pending_in(reversed(items)))
        if is_running or is_waiting:
            await self._connection.send(self._codec.cancel(response_id))
        return is_running or is_waiting

    async def run_turn(
        self,
        handle: SessionHandle,
        turn_input: TurnInput,
        idempotency_key: str = "",
        checkpoint: Checkpoint | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Run a turn, to its `Ended`. Raises Unsupported if the server has no Responses."""
        turn = self._codec.turn(handle, turn_input, idempotency_key or uuid4().hex)
        try:
            async with aclosing(self._stream(turn)) as events:
                async for event in events:
                    if checkpoint is not None and not self._codec.is_dragoman and handle.server_keeps_history:
                        await checkpoint()
                        checkpoint = None
                    yield event
        except RequestRefused as error:
            if error.status not in MISSING_STATUSES or error.code.endswith("_not_found"):
                raise
            raise Unsupported(
                f"this server has no Responses at {turn.request.path} (it answered {error.status}: {error}); "
                "it may have Chat Completions: protocol='openai-chat'",
                status=error.status,
            ) from error

    async def take_up(
        self,
        handle: SessionHandle,
        turn_input: TurnInput,
        idempotency_key: str,
        checkpoint: Checkpoint | None = None,
    ) -> AsyncGenerator[Event, None] | None:
        """Send a turn again to a Dragoman server; read the response from another one that has stored it."""
        if await self._connection.probe(self._codec.idempotency_probe()):
            return self.run_turn(handle, turn_input, idempotency_key)
        if not handle.run_id or not handle.server_keeps_history:
            return None
        try:
            await self._connection.send(self._codec.response(handle.run_id))
        except RequestRefused:
            return None
        return self._stream(self._codec.resume(handle, handle.run_id))

    async def resume(self, handle: SessionHandle) -> AsyncGenerator[Event, None]:
        """Read the newest response from its start."""
        response_id = handle.last_response_id
        if handle.server_keeps_history:
            response_id = self._newest_response(handle, await self._newest_items(handle))
        if not response_id:
            raise Unsupported("this server does not say which response is the newest: read the history instead")
        async with aclosing(self._stream(self._codec.resume(handle, response_id))) as events:
            async for event in events:
                yield event

    # --- inside -----------------------------------------------------------------------------------------------------

    def _stream(self, turn: OpenAiTurn) -> AsyncGenerator[Event, None]:
        return self._connection.stream_events(turn, self._codec.idempotency_probe())

    async def _newest_items(self, handle: SessionHandle) -> list[JsonObject]:
        return (await self._connection.send(self._codec.newest_items(handle))).data

    def _newest_response(self, handle: SessionHandle, items: list[JsonObject]) -> str:
        """The newest response: of the newest item if its ID names it, else the last one of this client."""
        newest = response_of(items[0]) if items and self._codec.is_dragoman else ""
        if newest.removeprefix("resp_") == handle.id.replace("-", ""):  # the item's run has not started yet
            newest = ""
        return newest or handle.last_response_id
