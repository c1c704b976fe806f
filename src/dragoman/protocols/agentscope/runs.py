"""Responses as runs of the engine: begun by a request, or found again. Thin; the rules are elsewhere."""

import hashlib
from contextlib import AsyncExitStack
from typing import NamedTuple

import msgspec

from dragoman.core.admission import is_busy
from dragoman.core.content import UserMessage
from dragoman.core.events import MessageAdded, SettingsChange
from dragoman.core.ids import RunId, UserId, parse_session_id
from dragoman.core.principal import Principal
from dragoman.core.refusals import AgentNotChangeable, Forbidden, IdTaken, Refused, RunNotFound, SessionNotFound
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.agentscope import inputs, wire
from dragoman.protocols.agentscope.streams import response_events
from dragoman.protocols.agentscope.translate import ResponseEvents


class RunHandle(NamedTuple):
    """A run that answers a request: a new one, or the one that the same request began before.

    No run: the request answered some of the open calls, and more answers are needed before it goes on.
    """

    live: SessionView
    run_id: RunId | None
    first_seq: int
    may_begin_with_answers: bool
    is_existing: bool = False
    """It was begun before, so that who follows it is one more reader."""


class RunRequest(NamedTuple):
    """Who asks what, and how it is to be told."""

    principal: Principal
    parsed_request: wire.ParsedRequest
    run_metadata: inputs.RunMetadata
    idempotency_key: IdempotencyKey | None = None


class Runs:
    """Begins runs and finds them. Sessions are held, and so stay in memory, as long as the caller's stack."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # --- finding --------------------------------------------------------------------------------------------------

    async def find(self, stack: AsyncExitStack, owner: UserId, response_id: str) -> RunHandle:
        """A response of that owner's. Raises RunNotFound."""
        once = await self._engine.find_idempotency_record(owner, _idempotency_key_name(response_id))
        if once is not None and once.run_id is not None:
            return await self.find_by_run_id(stack, owner, once.run_id)
        return await self.find_by_run_id(stack, owner, response_id.removeprefix("response_"))

    async def find_by_run_id(self, stack: AsyncExitStack, owner: UserId, run_id: str) -> RunHandle:
        """A run of that owner's, whichever protocol began it. Raises RunNotFound."""
        known = parse_session_id(run_id)
        row = None if known is None else await self._engine.history.run_row(owner, RunId(known))
        if row is None:
            raise RunNotFound("there is no such response")
        try:
            live = await stack.enter_async_context(self._engine.session(owner, row.session_id))
        except SessionNotFound:
            raise RunNotFound("there is no such response") from None
        return RunHandle(live, row.run_id, row.first_seq, may_begin_with_answers=True, is_existing=True)

    async def events_so_far(self, handle: RunHandle) -> ResponseEvents:
        """A run's events up to now, told to nobody."""
        live, run_id, first = handle.live, handle.run_id, handle.first_seq
        assert run_id is not None, "it was found"
        await live.until_durable(first)
        events = await response_events(self._engine, live, run_id, first)
        for record in await self._engine.history.run_records(live, run_id, first):
            if not events.is_over:
                events.feed(record)
        return events

    # --- beginning ------------------------------------------------------------------------------------------------

    async def begin(self, stack: AsyncExitStack, run_request: RunRequest) -> RunHandle:
        """Begin the run that a request asks for; or find it, when the same request began it before (section 7.2)."""
        request = run_request.parsed_request.request
        agent = None if not request.model else self._engine.agent(request.model).spec.name
        if request.client_response_id is None:
            return await self._submit(stack, run_request, agent)
        asked = run_request.parsed_request.canonical_bytes() + (
            b" as a task" if run_request.run_metadata.is_task else b""
        )
        key = IdempotencyKey(
            _idempotency_key_name(request.client_response_id), hashlib.sha256(asked).hexdigest(), lasts=True
        )
        async with self._engine.reserve_key(run_request.principal.user, key) as earlier:
            if earlier is not None and earlier.run_id is not None:
                return await self.find_by_run_id(stack, run_request.principal.user, earlier.run_id)
            if earlier is not None:
                live = await stack.enter_async_context(
                    self._engine.session(run_request.principal.user, earlier.session_id)
                )
                return RunHandle(live, None, 0, may_begin_with_answers=False)
            begun = await self._submit(stack, run_request._replace(idempotency_key=key), agent)
            await begun.live.until_durable(begun.first_seq)
            return begun

    async def _submit(self, stack: AsyncExitStack, run_request: RunRequest, agent: str | None) -> RunHandle:
        request, owner = run_request.parsed_request.request, run_request.principal.user
        live = await self._session(stack, owner, request.session_id)
        if live is None:
            brought = inputs.parse_input(request.input, new_id=self._engine.ids.new)
            inputs.require_new_input(brought, is_new=True)
            live = await self._make_session(run_request, agent, brought)
            if live is not None:
                return await self._run_first(stack, live, run_request, brought)
            live = await stack.enter_async_context(self._engine.session(owner, request.session_id or ""))
        _check_user(live, request.user_id)
        if agent is not None and agent != live.state.agent:
            raise AgentNotChangeable(f"this session is with agent {live.state.agent!r}")
        start = await self._index_of_first_new(live, request)
        brought = inputs.parse_input(request.input, start, live.state.answerable_calls())
        inputs.require_new_input(brought, is_new=False)
        if not is_busy(live.state):
            inputs.require_matching_answers(brought.answers.values(), live.state.calls)
        return await self._run(live, run_request, brought)

    async def _run_first(
        self, stack: AsyncExitStack, made: SessionView, run_request: RunRequest, parsed: inputs.ParsedInput
    ) -> RunHandle:
        """The first run of a session that was made for it. What is refused leaves nothing."""
        live = await stack.enter_async_context(self._engine.session(run_request.principal.user, made.state.session_id))
        try:
            return await self._run(live, run_request, parsed)
        except Refused:
            if live.state.last_run is None:
                await self._engine.delete(live)
            raise

    async def _run(self, live: SessionView, run_request: RunRequest, parsed: inputs.ParsedInput) -> RunHandle:
        """Start the run that the request asks for, or store its answers."""
        request = run_request.parsed_request.request
        submit = inputs.submit_from(
            run_request.parsed_request, parsed, with_session_name(run_request.run_metadata, live, request.session_id)
        )
        labels = live.state.settings.labels
        if request.user_id and "user_id" not in labels:
            change = SettingsChange(labels={**labels, "user_id": request.user_id})
            submit = msgspec.structs.replace(submit, change=change)
        with inputs.translate_error_paths(run_request.parsed_request, parsed):
            submitted = await self._engine.start_run(
                live, submit, by=run_request.principal.user, idempotency_key=run_request.idempotency_key
            )
        return RunHandle(live, submitted.run_id, submitted.seq, may_begin_with_answers=bool(parsed.answers))

    # --- sessions -------------------------------------------------------------------------------------------------

    async def _session(self, stack: AsyncExitStack, owner: UserId, name: str | None) -> SessionView | None:
        """The owner's session of that id or name, if there is one."""
        if not name:
            return None
        try:
            return await stack.enter_async_context(self._engine.session(owner, name))
        except SessionNotFound:
            return None

    async def _make_session(
        self, run_request: RunRequest, agent: str | None, parsed: inputs.ParsedInput
    ) -> SessionView | None:
        """Make a session of the caller's own; None when somebody was quicker with the same id.

        Another owner's id is only a name to the caller (rulings, 1).
        """
        wanted, owner = run_request.parsed_request.request.session_id or None, run_request.principal.user
        session_id = None if wanted is None else parse_session_id(wanted)
        create = inputs.create_from(run_request.parsed_request, agent or self._engine.default_agent, parsed)
        create = msgspec.structs.replace(create, session_id=session_id, name=None if session_id else wanted)
        with inputs.translate_error_paths(run_request.parsed_request, parsed, is_new=True):
            try:
                return await self._engine.create(owner, create)
            except IdTaken:
                if session_id is None or not await self._engine.exists_for_other_owner(owner, session_id):
                    return None
                create = msgspec.structs.replace(create, session_id=None, name=session_id)
                try:
                    return await self._engine.create(owner, create)
                except IdTaken:
                    return None

    async def _index_of_first_new(self, live: SessionView, request: wire.AgentRequest) -> int:
        """How many of a request's messages are history that the session holds already (section 2.1)."""
        ids = inputs.ids_of(request)
        known = await self._engine.history.find_message_ids(live, ids) if ids else {}
        for place in range(len(request.input), 0, -1) if known else ():
            message = request.input[place - 1]
            seq = known.get(message.id or "") or known.get(inputs.core_id(message.id or ""))
            if (
                seq is not None
                and live.state.is_visible(seq)
                and inputs.is_same_message(message, await self._stored_user_message(live, seq))
            ):
                return place
        return 0

    async def _stored_user_message(self, live: SessionView, seq: int) -> UserMessage | None:
        """The user's message that an event added; None when the event is about one of ours."""
        event = (await self._engine.history.events(live, seq - 1, seq))[0].event
        if not isinstance(event, MessageAdded) or not isinstance(event.message, UserMessage):
            return None
        return (await self._engine.attachments.restore(live.state.session_id, [event.message]))[0]


def with_session_name(
    run_metadata: inputs.RunMetadata, live: SessionView, session_id: str | None
) -> inputs.RunMetadata:
    """What is noted, with the session's name where the client calls it by one."""
    if not session_id or parse_session_id(session_id) == live.state.session_id:
        return run_metadata
    return msgspec.structs.replace(run_metadata, session_id=session_id)


def _idempotency_key_name(response_id: str) -> str:
    """Under which a client's own id of a response is kept."""
    return f"{inputs.PROTOCOL}:{response_id}"


def _check_user(live: SessionView, user_id: str | None) -> None:
    label = live.state.settings.labels.get("user_id")
    if user_id and label and label != user_id:
        raise Forbidden("this session is another user's")
