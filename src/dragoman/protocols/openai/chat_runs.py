"""Finds the session of a chat request, and starts its run there.

    answers to calls that wait ─► the session of these calls
    a session key              ─► the session of that name, unless the request is only about the chat
    anything else              ─► an ephemeral session, whose past is what the client sent

Source: sections 6.3, 6.4.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import NamedTuple

import msgspec

from dragoman.core.branches import BranchPoint
from dragoman.core.ids import MessageId, SessionId, UserId
from dragoman.core.inputs import Create
from dragoman.core.refusals import AgentNotChangeable, IdTaken, Invalid, LimitReached, SessionNotFound
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.kit.error_paths import paths_in_request
from dragoman.protocols.kit.named_sessions import create_named
from dragoman.protocols.kit.runs import RunHandle
from dragoman.protocols.openai import chat_history, ids, inputs
from dragoman.protocols.openai.chat_requests import ParsedChat
from dragoman.protocols.openai.errors import InvalidParameter
from dragoman.protocols.openai.inputs import NewInput
from dragoman.protocols.openai.requests import OtherItem
from dragoman.protocols.openai.runs import MAX_CHECKED_RUNS, Runs, translated_errors
from dragoman.protocols.openai.sessions import is_ephemeral
from dragoman.protocols.openai.translate import PROTOCOL

MAX_WAITING_SESSIONS = 1000
"""Ephemeral sessions of a user whose calls wait for the application."""


class ChatRequest(NamedTuple):
    """A user's request for a completion.

    Attributes:
        owner: the user.
        chat: its body.
        session_key: the name of the session that it belongs to.
        idempotency_key: its idempotency key.
    """

    owner: UserId
    chat: ParsedChat
    session_key: str | None
    idempotency_key: IdempotencyKey | None


class ChatRuns:
    """Starts the runs of chat requests. Their sessions stay in memory as long as the context manager is open."""

    def __init__(self, engine: Engine, runs: Runs) -> None:
        self._engine = engine
        self._runs = runs
        self._waiting: dict[UserId, dict[SessionId, float]] = {}
        """The ephemeral sessions whose calls wait, with the time until which they do."""

    @asynccontextmanager
    async def start(self, request: ChatRequest) -> AsyncIterator[RunHandle]:
        """Start the run that a request asks for, or find the one that its idempotency key started before.

        Raises:
            ModelNotFound, AgentNotServed, Invalid, SessionBusy, LimitReached: nothing was stored.
            ResponseNotFound: what the idempotency key started is not there any more.
        """
        async with AsyncExitStack() as stack:
            start = partial(self._start, stack, request)
            yield await self._runs.start_once(stack, request.owner, request.idempotency_key, start)

    async def _start(self, stack: AsyncExitStack, request: ChatRequest) -> RunHandle:
        chat = request.chat
        session = await self._session_that_waits(request.owner, chat)
        if session is not None:
            stack.enter_context(self._engine.lease(session))
            given = inputs.new_input(chat.items, len(chat.items) - len(chat.tool_results))
            return await self._run(session, request, given)
        handle = None if request.session_key is None else await self._start_with_key(stack, request)
        return handle or await self._start_new(stack, request, self._without_key(request))

    async def cut_messages(self, handle: RunHandle) -> frozenset[MessageId]:
        """The messages that a crash has cut off, in a session whose run is repeated to its client."""
        if handle.is_new:
            return frozenset()
        await handle.session.until_durable(handle.session.state.seq)
        events = await self._engine.history.events(handle.session, handle.first_seq)
        return chat_history.cut_messages(events)

    def on_answered(self, session: SessionView) -> None:
        """Count an ephemeral session whose calls now wait for the application."""
        state = session.state
        if is_ephemeral(session) and (until := state.expires_at()) is not None and state.status() == "waiting":
            self._waiting.setdefault(state.owner, {})[state.session_id] = until.timestamp()

    # --- which session --------------------------------------------------------------------------------------------

    async def _session_that_waits(self, owner: UserId, chat: ParsedChat) -> SessionView | None:
        """The session in which one of the calls waits that the last messages answer."""
        wanted = {ids.call_of(each) for each in chat.tool_results}
        for run_id in list(dict.fromkeys(map(ids.run_of, reversed(chat.tool_results))))[:MAX_CHECKED_RUNS]:
            handle = None if run_id is None else await self._runs.find_run(owner, run_id)
            if handle is not None and any(each.call.call_id in wanted for each in handle.session.state.waiting_calls()):
                return handle.session
        return None

    async def _start_with_key(self, stack: AsyncExitStack, request: ChatRequest) -> RunHandle | None:
        """Start a run in the session of a name; None if the request does not belong to its conversation."""
        if chat_history.is_task(request.chat.items):
            return None
        owner, name = request.owner, request.session_key or ""
        with suppress(SessionNotFound):
            return await self._continue(stack, request, await self._engine.find_session(owner, name))
        create = Create(protocol=PROTOCOL, agent=self._runs.agent_named(request.chat.fields.model))
        with suppress(IdTaken):
            return await self._start_new(stack, request, create, name)
        return await self._continue(stack, request, await self._engine.find_session(owner, name))

    async def _continue(self, stack: AsyncExitStack, request: ChatRequest, session: SessionView) -> RunHandle | None:
        stack.enter_context(self._engine.lease(session))
        await self._runs.abandoned.until_stopped(session)
        await session.until_durable(session.state.seq)
        found = chat_history.compare(request.chat.items, await self._engine.history.shown_events(session))
        if found is None:
            return None
        new = [item if index in found.items else OtherItem() for index, item in enumerate(request.chat.items)]
        return await self._run(session, request, inputs.new_input(new), branch=found.branch)

    def _without_key(self, request: ChatRequest) -> Create:
        """A session that no list shows."""
        agent = self._runs.agent_named(request.chat.fields.model)
        if not request.chat.fields.store:
            now = self._engine.clock.now().timestamp()
            waiting = {each: until for each, until in self._waiting.pop(request.owner, {}).items() if until > now}
            if waiting:
                self._waiting[request.owner] = waiting
            if len(waiting) >= MAX_WAITING_SESSIONS:
                raise LimitReached(f"{len(waiting)} answers wait for the results of tools", retry_after_s=60)
        change = self._runs.new_sessions.unlisted(
            request.chat.fields.store, is_repeatable=request.idempotency_key is not None
        )
        return Create(protocol=PROTOCOL, agent=agent, change=change)

    # --- runs -----------------------------------------------------------------------------------------------------

    async def _start_new(
        self, stack: AsyncExitStack, request: ChatRequest, create: Create, name: str = ""
    ) -> RunHandle:
        with _places_of(request.chat):
            given = inputs.seeds_and_input(request.chat.items, self._engine.ids.new)
            seeds = tuple(given.seeds.values())
            create = msgspec.structs.replace(create, tools="all", seeds=seeds, claims_calls=True)
            with paths_in_request("input", messages=given.seeds):
                session = await create_named(self._engine, request.owner, name, create)
        await stack.enter_async_context(self._engine.first_request(session, is_new=True))
        return await self._run(session, request, given, is_first=True)

    async def _run(
        self,
        session: SessionView,
        request: ChatRequest,
        given: NewInput,
        *,
        branch: BranchPoint | None = None,
        is_first: bool = False,
    ) -> RunHandle:
        state, chat = session.state, request.chat
        if self._runs.agent_named(chat.fields.model, session) != state.agent:
            raise AgentNotChangeable(f"this session's agent is {state.agent!r} and cannot change", path="model")
        if branch is None:
            given = inputs.with_question_answered(given, state)
        submit = inputs.submit_from(chat.fields, given, keeps_unlisted=is_first or is_ephemeral(session))
        submit = msgspec.structs.replace(
            submit,
            requires_all_answers=bool(given.answers),
            parameters={**submit.parameters, **chat.parameters},
            metadata=msgspec.structs.replace(submit.metadata, denies_approvals=is_ephemeral(session)),
        )
        with _places_of(chat), translated_errors(given):
            result = await self._engine.start_run(
                session, submit, by=request.owner, idempotency_key=request.idempotency_key, branch=branch
            )
        assert result.run_id is not None, "all calls are answered, and nothing is queued"
        self._waiting.get(request.owner, {}).pop(state.session_id, None)
        return RunHandle(session, result.run_id, result.seq, is_new=True)


@contextmanager
def _places_of(chat: ParsedChat) -> Iterator[None]:
    """Name the fields of this body in errors, where the code that is shared names those of Responses."""
    try:
        yield
    except InvalidParameter as error:
        raise InvalidParameter(error.code, error.message, chat.place(error.path)) from error
    except Invalid as error:
        error.path = chat.place(error.path)
        raise
