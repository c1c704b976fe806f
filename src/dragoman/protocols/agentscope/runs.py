"""Starts and finds the runs behind responses."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple

from dragoman.core.admission import is_busy
from dragoman.core.content import UserMessage
from dragoman.core.events import MessageAdded
from dragoman.core.ids import RunId, UserId
from dragoman.core.inputs import Create
from dragoman.core.refusals import AgentNotChangeable, AgentNotFound, Forbidden, IdTaken, RunNotFound, SessionNotFound
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.log import IdempotencyRecord
from dragoman.protocols.agentscope import inputs, wire
from dragoman.protocols.agentscope.translate import ResponseEvents
from dragoman.protocols.kit.error_paths import paths_in_request
from dragoman.protocols.kit.named_sessions import create_named
from dragoman.protocols.kit.runs import RunHandle, earlier_calls, feed_durable, find_run, start_once


class RunRequest(NamedTuple):
    """A user's request for a run."""

    owner: UserId
    parsed: wire.ParsedRequest
    options: inputs.ResponseOptions
    idempotency_key: IdempotencyKey | None = None


class Runs:
    """Starts and finds runs. Their sessions stay in memory until the block of the context manager is left."""

    def __init__(self, engine: Engine, *, is_strict_model: bool) -> None:
        self._engine = engine
        self._is_strict_model = is_strict_model

    # --- finding --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def find(self, owner: UserId, response_id: str) -> AsyncIterator[RunHandle]:
        """Find the run of a response. Raises RunNotFound."""
        record = await self._engine.find_idempotency_record(owner, _key_name(response_id))
        run_id = record.run_id if record is not None else None
        async with self.find_by_run_id(owner, run_id or response_id.removeprefix("response_")) as handle:
            yield handle

    @asynccontextmanager
    async def find_by_run_id(self, owner: UserId, run_id: str) -> AsyncIterator[RunHandle]:
        """Find a run that the owner started through any protocol. Raises RunNotFound."""
        handle = await find_run(self._engine, owner, run_id)
        if handle is None:
            raise RunNotFound("there is no such response")
        with self._engine.lease(handle.session):
            yield handle

    # --- reading --------------------------------------------------------------------------------------------------

    async def response_events(self, handle: RunHandle, *, skip: int = 0) -> ResponseEvents:
        """An encoder of a run's events for a client that already has the first `skip` of them."""
        state, earlier = handle.session.state, await earlier_calls(self._engine, handle)
        calls = {call_id: each.opened for call_id, each in earlier.items()}
        return ResponseEvents(handle.run_id, state.session_id, state.agent, earlier=calls, skip=skip)

    async def events_so_far(self, handle: RunHandle) -> ResponseEvents:
        """An encoder that was fed with a run's events so far."""
        events = await self.response_events(handle)
        await feed_durable(self._engine, handle, events)
        return events

    # --- starting -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def start(self, run_request: RunRequest) -> AsyncIterator[RunHandle]:
        """Start the run of a request, or find it if the request is repeated (section 7.2)."""
        async with AsyncExitStack() as stack:
            yield await self._start_once(stack, run_request)

    async def _start_once(self, stack: AsyncExitStack, run_request: RunRequest) -> RunHandle:
        request, owner = run_request.parsed.request, run_request.owner
        agent = await self._agent_named(request, owner)
        if request.client_response_id is None:
            return await self._submit(stack, run_request, agent)
        content = run_request.parsed.canonical_bytes() + (b" as a task" if run_request.options.is_task else b"")
        key = IdempotencyKey(_key_name(request.client_response_id), hashlib.sha256(content).hexdigest(), lasts=True)

        async def find(record: IdempotencyRecord) -> RunHandle:
            if record.run_id is not None:
                return await stack.enter_async_context(self.find_by_run_id(owner, record.run_id))
            session = await stack.enter_async_context(self._engine.session(owner, record.session_id))
            return RunHandle(session, RunId(self._engine.ids.new()), 0)

        start = partial(self._submit, stack, run_request._replace(idempotency_key=key), agent)
        return await start_once(self._engine, owner, key, start, find)

    async def _agent_named(self, request: wire.AgentRequest, owner: UserId) -> str | None:
        """The agent that a request names; None if it leaves the choice to the server.

        Clients of this protocol send the name of a language model, such as the one in the protocol's only example.
        """
        try:
            return self._engine.agent(request.model).spec.name if request.model else None
        except AgentNotFound:
            if self._is_strict_model:
                with suppress(SessionNotFound):
                    async with self._engine.session(owner, request.session_id or "") as session:
                        if session.state.agent == request.model:
                            return None
                raise
            return None

    async def _submit(self, stack: AsyncExitStack, run_request: RunRequest, agent: str | None) -> RunHandle:
        request, owner = run_request.parsed.request, run_request.owner
        session = None
        if request.session_id:
            with suppress(SessionNotFound):
                session = await stack.enter_async_context(self._engine.session(owner, request.session_id))
        if session is None:
            parsed = inputs.parse_input(request.input, new_id=self._engine.ids.new)
            inputs.require_new_input(parsed, is_new=True)
            created = await self._create_session(run_request, agent, parsed)
            if created is not None:
                stack.enter_context(self._engine.lease(created))
                async with self._engine.first_request(created, is_new=True):
                    return await self._start_run(created, run_request, parsed)
            session = await stack.enter_async_context(self._engine.session(owner, request.session_id or ""))
        state = session.state
        label = state.settings.labels.get("user_id")
        if request.user_id and label and label != request.user_id:
            raise Forbidden("this session is another user's")
        if agent is not None and agent != state.agent:
            raise AgentNotChangeable(f"this session belongs to agent {state.agent!r}")
        start = await self._index_of_first_new(session, request)
        parsed = inputs.parse_input(request.input, start, session.state.answerable_calls())
        inputs.require_new_input(parsed, is_new=False)
        if not is_busy(session.state):
            inputs.require_matching_answers(parsed.answers.values(), session.state.calls)
        return await self._start_run(session, run_request, parsed)

    async def _start_run(self, session: SessionView, run_request: RunRequest, parsed: inputs.ParsedInput) -> RunHandle:
        """Start the run that a request asks for, or store its answers."""
        labels = session.state.settings.labels
        submit = inputs.submit_from(run_request.parsed, parsed, run_request.options, labels)
        tools = run_request.parsed.tools
        with paths_in_request("input", messages=parsed.messages, answers=parsed.answers, tools=tools):
            result = await self._engine.start_run(
                session, submit, by=run_request.owner, idempotency_key=run_request.idempotency_key
            )
        if result.run_id is None:
            await session.until_durable(result.seq)
            return RunHandle(session, RunId(self._engine.ids.new()), 0)
        return RunHandle(session, result.run_id, result.seq, bool(parsed.answers), is_new=True)

    async def _create_session(
        self, run_request: RunRequest, agent: str | None, parsed: inputs.ParsedInput
    ) -> SessionView | None:
        """Create a session for the caller; None if a concurrent request was faster with the same id."""
        request = run_request.parsed.request
        create = Create(
            protocol=inputs.PROTOCOL,
            agent=agent or self._engine.default_agent,
            tools="all",
            labels={"user_id": request.user_id} if request.user_id else {},
            seeds=tuple(parsed.seeds.values()),
        )
        with paths_in_request("input", messages=parsed.seeds), suppress(IdTaken):
            return await create_named(self._engine, run_request.owner, request.session_id or "", create)
        return None

    async def _index_of_first_new(self, session: SessionView, request: wire.AgentRequest) -> int:
        """The index after the last message of a request that the session already has (section 2.1)."""
        ids = {each for message in request.input for each in inputs.known_ids(message)}
        known = await self._engine.history.find_message_ids(session, ids) if ids else {}
        for index, message in reversed(list(enumerate(request.input, start=1)) if known else ()):
            seq = next((known[each] for each in inputs.known_ids(message) if each in known), 0)
            is_visible = seq > 0 and session.state.is_visible(seq)
            if is_visible and inputs.is_same_message(message, await self._stored_user_message(session, seq)):
                return index
        return 0

    async def _stored_user_message(self, session: SessionView, seq: int) -> UserMessage | None:
        """The user's message that an event added; None if the event belongs to an agent's message."""
        event = (await self._engine.history.event(session, seq)).event
        if not isinstance(event, MessageAdded) or not isinstance(event.message, UserMessage):
            return None
        return (await self._engine.attachments.restore(session.state.session_id, [event.message]))[0]


def _key_name(response_id: str) -> str:
    """The name of the idempotency key for a response id that a client chose."""
    return f"{inputs.PROTOCOL}:{response_id}"
