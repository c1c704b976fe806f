"""The transport for A2A: cards first, then tasks of a context."""

import copy
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Self
from uuid import uuid4

from dragoman.client.a2a import PAGE_TASKS, A2aCodec, Card, emitted_lengths, to_agent, to_messages
from dragoman.client.a2a_rpc import TASK_NOT_CANCELABLE
from dragoman.client.a2a_turn import ENDS, WAITING, A2aTurn, Task, pending_of
from dragoman.client.codec import SessionConfig, SessionHandle, TurnInput
from dragoman.client.connection import ServerConnection
from dragoman.client.errors import NotFound, RequestRefused, Unsupported
from dragoman.client.events import Agent, Event, Message, SessionInfo


class A2aTransport:
    """One server over A2A."""

    needs_all_answers = True

    def __init__(self, connection: ServerConnection, codec: A2aCodec) -> None:
        self._connection = connection
        self._codec = codec
        self._cards: dict[str, Card] = {}

    def with_headers(self, headers: Mapping[str, str]) -> Self:
        """The same connections, for requests with more headers."""
        transport = copy.copy(self)
        transport._connection = self._connection.with_headers(headers)
        return transport

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.close()

    async def agents(self) -> tuple[Agent, ...]:
        """Return the agent at the address, or the server's default agent: A2A has no list."""
        return (to_agent(await self._card("")),)

    async def identify(self) -> None:
        """Fetch the agent's card, unless it is known."""
        await self._card("")

    async def create(self, session_config: SessionConfig, idempotency_key: str) -> SessionHandle:
        """Make a context, which begins with its first message. Raises NotFound if there is no such agent."""
        handle = self._codec.create(session_config)
        await self._card(handle.agent)
        return handle

    async def open(self, session_id: str, session_config: SessionConfig) -> SessionHandle:
        """Open an existing context. Raises NotFound."""
        handle = SessionHandle(id=session_id, agent=session_config.agent)
        if (await self._card(handle.agent)).rpc.is_old:
            raise Unsupported("A2A 0.3 cannot find the tasks of a context; 1.0 can")
        task = await self._newest_task(handle)
        if task is None:
            raise NotFound(f"the agent has no task in the context {session_id}", status=404)
        handle.last_response_id, handle.emitted_lengths = task.id, emitted_lengths(task.artifacts or ())
        handle.pending = pending_of(task.id, task.status)
        return handle

    async def session_info(self, handle: SessionHandle) -> SessionInfo:
        """Fetch a context's current state."""
        task = await self._newest_task(handle)
        if task is None:
            return SessionInfo(id=handle.id, agent=handle.agent, status="idle")
        status = "waiting" if task.status.state in WAITING else "idle" if task.status.state in ENDS else "running"
        return SessionInfo(
            id=handle.id,
            agent=handle.agent,
            status=status,
            updated_at=task.status.timestamp,
            pending=pending_of(task.id, task.status),
        )

    async def sessions(self, after: str) -> tuple[tuple[SessionInfo, ...], str]:
        """Fetch a page of the session list."""
        raise Unsupported("A2A cannot list contexts; AAP can list the same sessions")

    async def history(self, handle: SessionHandle) -> tuple[Message, ...]:
        """Fetch the messages and the answers of all tasks. Tools and thinking do not show."""
        card, tasks, token = await self._card(handle.agent), list[Task](), ""
        if card.rpc.is_old:
            raise Unsupported("A2A 0.3 cannot list the tasks of a context; 1.0 can")
        while True:
            page = await self._connection.send(self._codec.tasks(handle, card, page_token=token, page_size=PAGE_TASKS))
            tasks += page.tasks
            token = page.next_page_token or ""
            if not token:
                return tuple(message for task in reversed(tasks) for message in to_messages(task))

    async def delete(self, handle: SessionHandle) -> None:
        """Delete the session and everything in it."""
        raise Unsupported("A2A cannot delete a context; AAP can delete the same session")

    async def stop(self, handle: SessionHandle) -> bool:
        """Cancel the newest task. Returns whether there was anything to cancel."""
        task = await self._newest_task(handle)
        if task is None or task.status.state in ENDS:
            return False
        try:
            await self._connection.send(self._codec.cancel(await self._card(handle.agent), task.id))
        except RequestRefused as error:
            if error.code != str(TASK_NOT_CANCELABLE):
                raise
            return False
        handle.pending = ()
        return True

    async def run_turn(
        self, handle: SessionHandle, turn_input: TurnInput, idempotency_key: str = ""
    ) -> AsyncGenerator[Event, None]:
        """Run a turn, to its `Ended`. The key is the message's id."""
        turn = self._codec.turn(handle, await self._card(handle.agent), turn_input, idempotency_key or uuid4().hex)
        async with aclosing(self._stream(handle, turn)) as events:
            async for event in events:
                yield event

    async def runs_once(self, handle: SessionHandle) -> bool:
        """Find out whether the server runs a turn once, even if it arrives twice with the same key."""
        return (await self._card(handle.agent)).is_dragoman

    async def resume(self, handle: SessionHandle) -> AsyncGenerator[Event, None]:
        """Read the newest task from its start."""
        task = await self._newest_task(handle)
        if task is None:
            raise Unsupported("there is no task in this context yet")
        turn = self._codec.resume(handle, await self._card(handle.agent), task)
        async with aclosing(self._stream(handle, turn)) as events:
            async for event in events:
                yield event

    # --- inside -----------------------------------------------------------------------------------------------------

    async def _card(self, agent: str) -> Card:
        """An agent's card. Raises Unsupported if it speaks no version that the client speaks."""
        card = self._cards.get(agent)
        if card is None:
            card = self._cards[agent] = await self._connection.send(self._codec.card(agent))
            _ = card.rpc
        return card

    def _stream(self, handle: SessionHandle, turn: A2aTurn) -> AsyncGenerator[Event, None]:
        return self._connection.stream_events(turn, self._codec.idempotency_probe(handle))

    async def _newest_task(self, handle: SessionHandle) -> Task | None:
        card = await self._card(handle.agent)
        if card.rpc.is_old:  # which has no list of tasks
            known = handle.last_response_id
            if not known:
                return None
            return await self._connection.send(self._codec.task(card, known))
        page = await self._connection.send(self._codec.tasks(handle, card))
        return page.tasks[0] if page.tasks else None
