"""The transport for A2A: cards first, then tasks of a context."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from uuid import uuid4

from dragoman.client.a2a import PAGE_TASKS, A2aCodec, Card, emitted_lengths, to_agent, to_messages
from dragoman.client.a2a_rpc import METHOD_NOT_FOUND, TASK_NOT_CANCELABLE, UNSUPPORTED_OPERATION, VERSION_NOT_SUPPORTED
from dragoman.client.a2a_turn import ENDS, WAITING, A2aTurn, Task, pending_of
from dragoman.client.codec import SessionConfig, SessionHandle, TurnInput
from dragoman.client.connection import ServerConnection
from dragoman.client.errors import NotFound, RequestRefused, Unreachable, Unsupported
from dragoman.client.events import Agent, Event, Message, Notice, SessionInfo
from dragoman.client.transport import Checkpoint, Transport

CARD_LIFETIME_S = 60.0
"""How long an agent's card is used before it is fetched again."""
POLL_INTERVAL_S = 0.5
"""How often a task is read that cannot be followed."""
_OUTDATED = frozenset(map(str, (METHOD_NOT_FOUND, VERSION_NOT_SUPPORTED, 404, 405)))
"""Codes and statuses of refusals for which a card may be outdated."""


class A2aTransport(Transport):
    """One server over A2A."""

    def __init__(self, connection: ServerConnection, codec: A2aCodec) -> None:
        super().__init__(connection)
        self._codec = codec
        self._cards: dict[str, tuple[Card, float]] = {}
        """The cards, and when they were fetched."""

    async def agents(self) -> tuple[Agent, ...]:
        """Return the agent at the address, or the server's default agent: A2A has no list."""
        return (to_agent(await self._card("")),)

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
        self,
        handle: SessionHandle,
        turn_input: TurnInput,
        idempotency_key: str = "",
        checkpoint: Checkpoint | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Run a turn, to its `Ended`. The key is the message's id."""
        card = await self._card(handle.agent)
        turn = self._codec.turn(handle, card, turn_input, idempotency_key or uuid4().hex)
        async with aclosing(self._stream(handle, turn, card)) as events:
            async for event in events:
                if checkpoint is not None and turn.task_id and not card.is_dragoman:
                    await checkpoint()
                    checkpoint = None
                yield event

    async def take_up(
        self,
        handle: SessionHandle,
        turn_input: TurnInput,
        idempotency_key: str,
        checkpoint: Checkpoint | None = None,
    ) -> AsyncGenerator[Event, None] | None:
        """Send a message again to a Dragoman server; read the task of another one."""
        card = await self._card(handle.agent)
        if card.is_dragoman:
            return self.run_turn(handle, turn_input, idempotency_key)
        if not handle.run_id:
            return None
        try:
            await self._connection.send(self._codec.task(card, handle.run_id))
        except RequestRefused:
            return None
        return self._stream(handle, self._codec.follow(handle, card, handle.run_id), card)

    async def resume(self, handle: SessionHandle) -> AsyncGenerator[Event, None]:
        """Read the newest task from its start."""
        task = await self._newest_task(handle)
        if task is None:
            raise Unsupported("there is no task in this context yet")
        card = await self._card(handle.agent)
        handle.last_response_id = ""  # so that its artifacts are emitted again
        async with aclosing(self._stream(handle, self._codec.follow(handle, card, task.id), card)) as events:
            async for event in events:
                yield event

    # --- inside -----------------------------------------------------------------------------------------------------

    async def _card(self, agent: str) -> Card:
        """An agent's card. Raises Unsupported if it speaks no version that the client speaks."""
        now = asyncio.get_running_loop().time()
        card, fetched_at = self._cards.get(agent, (None, 0.0))
        if card is None or now - fetched_at > CARD_LIFETIME_S:
            card = await self._connection.send(self._codec.card(agent))
            _ = card.rpc
            self._cards[agent] = card, now
        return card

    async def _stream(self, handle: SessionHandle, turn: A2aTurn, card: Card) -> AsyncGenerator[Event, None]:
        """Yield the events of a turn to its end. What cannot be followed is read again and again."""
        if turn.can_resume:
            try:
                async with aclosing(
                    self._connection.stream_events(turn, self._codec.idempotency_probe(handle))
                ) as events:
                    async for event in events:
                        yield event
            except Unreachable as error:
                if card.is_dragoman or not turn.task_id:
                    raise
                yield Notice(kind="reconnecting", content={"after_s": 0.0, "because": str(error)})
            except RequestRefused as error:
                if {error.code, str(error.status)} & _OUTDATED:
                    self._cards.pop(handle.agent, None)
                if error.code != str(UNSUPPORTED_OPERATION) or not turn.task_id:
                    raise  # else the task has ended or waits, so that there is nothing to follow
        while not turn.is_over:
            try:
                task = await self._connection.send(self._codec.task(card, turn.task_id))
            except NotFound as error:
                raise Unreachable(f"the server has lost the task: {error}") from error
            for event in turn.feed_task(task):
                yield event
            if not turn.is_over:
                await asyncio.sleep(POLL_INTERVAL_S)

    async def _newest_task(self, handle: SessionHandle) -> Task | None:
        card = await self._card(handle.agent)
        if card.rpc.is_old:  # which has no list of tasks
            known = handle.last_response_id
            if not known:
                return None
            return await self._connection.send(self._codec.task(card, known))
        try:
            page = await self._connection.send(self._codec.tasks(handle, card))
        except RequestRefused as error:
            if error.code not in (str(METHOD_NOT_FOUND), str(UNSUPPORTED_OPERATION)) or not handle.last_response_id:
                raise
            return await self._connection.send(self._codec.task(card, handle.last_response_id))
        return page.tasks[0] if page.tasks else None
