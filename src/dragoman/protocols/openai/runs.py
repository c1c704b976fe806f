"""Starts and finds the runs behind responses."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from dragoman.core.ids import RunId, UserId
from dragoman.core.inputs import Create
from dragoman.core.refusals import SessionNotFound
from dragoman.core.stream import Cursor
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.reader import Reader
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.openai import ids, inputs
from dragoman.protocols.openai.errors import ResponseNotFound
from dragoman.protocols.openai.requests import ParsedResponse
from dragoman.protocols.openai.translate import ALL, PROTOCOL, ResponseEvents


class RunHandle(NamedTuple):
    """The run behind a response.

    Attributes:
        session: its session.
        run_id: the run.
        first_seq: its first event.
        may_begin_with_answers: whether it may begin with answers to calls of earlier runs.
        is_new: whether this very request started it.
    """

    session: SessionView
    run_id: RunId
    first_seq: int
    may_begin_with_answers: bool = True
    is_new: bool = False


class Runs:
    """Starts and finds runs. Their sessions stay in memory until the block of the context manager is left."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # --- finding --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def find(self, owner: UserId, response_id: str) -> AsyncIterator[RunHandle]:
        """Find the run of a response, whichever protocol started it. Raises ResponseNotFound."""
        run_id = ids.run_of(response_id)
        row = None if run_id is None else await self._engine.history.run_row(owner, run_id)
        if row is None:
            raise ResponseNotFound
        try:
            session = await self._engine.find_session(owner, row.session_id)
        except SessionNotFound:
            raise ResponseNotFound from None
        with self._engine.lease(session):
            yield RunHandle(session, row.run_id, row.first_seq)

    # --- reading --------------------------------------------------------------------------------------------------

    def reader(self, handle: RunHandle) -> Reader:
        """A reader of a run from its first event on."""
        return self._engine.follow(handle.session, Cursor(handle.first_seq - 1))

    async def events(self, handle: RunHandle, *, skip: int = 0) -> ResponseEvents:
        """An encoder of a run's events for a client that already has the first `skip` of them."""
        state = handle.session.state
        may_answer = handle.may_begin_with_answers
        earlier = await self._engine.history.answered_calls(handle.session, handle.first_seq) if may_answer else {}
        return ResponseEvents(handle.run_id, state.session_id, state.agent, earlier=earlier, skip=skip)

    async def events_so_far(self, handle: RunHandle) -> ResponseEvents:
        """An encoder that was fed with a run's events so far."""
        await handle.session.until_durable(handle.first_seq)
        events = await self.events(handle, skip=ALL)
        for record in await self._engine.history.run_records(handle.session, handle.run_id, handle.first_seq):
            if not events.is_over:
                events.feed(record)
        return events

    # --- starting -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def start(self, owner: UserId, request: ParsedResponse) -> AsyncIterator[RunHandle]:
        """Start the run that a request asks for."""
        async with AsyncExitStack() as stack:
            agent = self._engine.agent(request.fields.model or self._engine.default_agent).spec
            given = inputs.past_and_input(request.items, self._engine.ids.new)
            create = Create(protocol=PROTOCOL, agent=agent.name, tools="all", seeds=given.seeds, claims_calls=True)
            session = await self._engine.create(owner, create)
            await stack.enter_async_context(self._engine.first_request(session, is_new=True))
            submit = inputs.submit_from(request.fields, given)
            result = await self._engine.start_run(session, submit, by=owner)
            assert result.run_id is not None, "a new session has no other open calls"
            yield RunHandle(session, result.run_id, result.seq, bool(given.answers), is_new=True)
