"""The transport for the AG-UI run service: a run is submitted, then read."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import count
from uuid import uuid4

import msgspec

from dragoman.client.codec import SessionConfig, SessionHandle, TurnInput, TypedRequest, UserInput
from dragoman.client.connection import ServerConnection
from dragoman.client.errors import NotFound, RequestRefused, Unreachable, Unsupported
from dragoman.client.events import Agent, Answer, Ended, Event, Message, Pending, SessionInfo
from dragoman.client.run_service import RUNNING, RunServiceCodec, RunStatus, to_messages
from dragoman.client.transport import Checkpoint, Transport

MAX_ATTEMPTS = 10
"""How often answers are sent whose fate is unknown, each time after a look whether they have arrived."""
NO_RUN = "AGENT_RUN_NOT_FOUND"
_MISSING_CODES = (NO_RUN, "AGENT_SESSION_NOT_FOUND")


class RunServiceTransport(Transport):
    """One server over the run service."""

    def __init__(self, connection: ServerConnection, codec: RunServiceCodec) -> None:
        super().__init__(connection)
        self._codec = codec

    async def agents(self) -> tuple[Agent, ...]:
        """List the server's agents."""
        raise Unsupported("the run service cannot list agents: name one, or list them over AAP")

    async def create(self, session_config: SessionConfig, idempotency_key: str) -> SessionHandle:
        """Make a thread, which begins with its first message."""
        return self._codec.create(session_config)

    async def open(self, session_id: str, session_config: SessionConfig) -> SessionHandle:
        """Open an existing thread. Raises NotFound."""
        handle = self._codec.create(session_config)
        handle.id = session_id
        newest = await self._newest_run(handle)
        handle.pending = await self._pending(handle, newest)
        handle.run_id = handle.last_response_id = "" if newest is None else newest.run_id
        return handle

    async def session_info(self, handle: SessionHandle) -> SessionInfo:
        """Fetch a thread's current state."""
        newest = await self._newest_run(handle)
        pending = await self._pending(handle, newest)
        is_running = newest is not None and newest.status in RUNNING
        status = "waiting" if pending else "running" if is_running else "idle"
        return SessionInfo(id=handle.id, agent=handle.agent, status=status, pending=pending)

    async def sessions(self, after: str) -> tuple[tuple[SessionInfo, ...], str]:
        """Fetch a page of the threads and the next page's cursor, which is empty at the end."""
        return await self._connection.send(self._codec.sessions(after))

    async def history(self, handle: SessionHandle) -> tuple[Message, ...]:
        """Fetch what was said, day by day. Tools and reasoning do not show."""
        messages: tuple[Message, ...] = ()
        before, has_more = "", True
        while has_more:
            day = await self._connection.send(self._codec.day(handle, before))
            messages = (*to_messages(day), *messages)
            before, has_more = day.day or "", day.has_more and bool(day.day)
        return messages

    async def delete(self, handle: SessionHandle) -> None:
        """Delete the thread and everything in it."""
        await self._connection.send(self._codec.delete(handle))

    async def stop(self, handle: SessionHandle) -> bool:
        """Stop the newest run. Returns whether there was one."""
        newest = await self._newest_run(handle)
        return newest is not None and await self._connection.send(self._codec.cancel(handle, newest.run_id))

    async def run_turn(
        self,
        handle: SessionHandle,
        turn_input: TurnInput,
        idempotency_key: str = "",
        checkpoint: Checkpoint | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Run a turn, to its `Ended`. The key is the run's id. There are no checkpoints: it is enough."""
        if isinstance(turn_input, UserInput):
            run_id = await self._submit(handle, turn_input, idempotency_key or uuid4().hex)
        else:
            run_id = await self._answer(handle, turn_input)
        async with aclosing(self._read(handle, run_id)) as events:
            async for event in events:
                yield event

    async def take_up(
        self,
        handle: SessionHandle,
        turn_input: TurnInput,
        idempotency_key: str,
        checkpoint: Checkpoint | None = None,
    ) -> AsyncGenerator[Event, None] | None:
        """Read the run that a message or answers have begun; send them if there is none."""
        is_message = isinstance(turn_input, UserInput)
        try:
            run = await self._connection.send(self._codec.status(handle, idempotency_key if is_message else ""))
        except RequestRefused as error:
            if error.code in _MISSING_CODES and is_message:
                return self.run_turn(handle, turn_input, idempotency_key)
            return None
        if not is_message and run.run_id == handle.last_response_id:
            return self.run_turn(handle, turn_input, idempotency_key)
        return self._read(handle, run.run_id)

    async def resume(self, handle: SessionHandle) -> AsyncGenerator[Event, None]:
        """Read the newest run from its start."""
        newest = await self._newest_run(handle)
        if newest is None:
            raise Unsupported("there is no run in this thread yet")
        async with aclosing(self._read(handle, newest.run_id)) as events:
            async for event in events:
                yield event

    # --- inside -----------------------------------------------------------------------------------------------------

    async def _submit(self, handle: SessionHandle, user_input: UserInput, run_id: str) -> str:
        links = [
            await self._connection.send(self._codec.upload(handle, url)) if url.startswith("data:") else url
            for url in user_input.images
        ]
        user_input = msgspec.structs.replace(user_input, images=tuple(links))
        return await self._connection.send(self._codec.submit(handle, user_input, run_id))

    async def _answer(self, handle: SessionHandle, answers: tuple[Answer, ...]) -> str:
        """Send answers. After a lost connection, the newest run shows whether they have arrived."""
        for attempt in count(1):
            try:
                return await self._connection.send(self._codec.answer(handle, answers))
            except Unreachable:
                newest = await self._newest_run(handle)
                if newest is not None and newest.run_id != handle.last_response_id:
                    return newest.run_id
                if attempt == MAX_ATTEMPTS:
                    raise
        raise AssertionError("an attempt succeeds or raises")

    async def _read(self, handle: SessionHandle, run_id: str) -> AsyncGenerator[Event, None]:
        probe = TypedRequest(self._codec.status(handle).request, lambda _: True)
        turn = self._codec.turn(handle, run_id)
        async with aclosing(self._connection.stream_events(turn, probe)) as events:
            async for event in events:
                if isinstance(event, Ended):  # whoever reads may stop here
                    handle.last_response_id = handle.run_id
                yield event

    async def _newest_run(self, handle: SessionHandle) -> RunStatus | None:
        """The newest run; None if the thread has none. Raises NotFound if there is no such thread."""
        try:
            return await self._connection.send(self._codec.status(handle))
        except NotFound as error:
            if error.code != NO_RUN:
                raise
            return None

    async def _pending(self, handle: SessionHandle, run: RunStatus | None) -> tuple[Pending, ...]:
        """What waits for answers, as the events of the newest run say it."""
        if run is None or run.status != "waiting":
            return ()
        async with aclosing(self._read(handle, run.run_id)) as events:
            return [event.pending async for event in events if isinstance(event, Ended)][-1]
