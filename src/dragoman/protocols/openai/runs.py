"""Starts and finds the runs behind responses, and the sessions that requests continue.

    conversation            that session, at its end
    previous_response_id    the session of that response, after it: a branch if something follows it
    items that we made      the session of the last of them, after its response
    none of these           a new session, with all but the last user message as its past

Source: section 4.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import NamedTuple

from dragoman.core import content as core
from dragoman.core.branches import BranchPoint, shown_events
from dragoman.core.events import Branched, LoggedEvent, RunStarted, RunStopped
from dragoman.core.ids import RunId, UserId
from dragoman.core.inputs import Submit
from dragoman.core.ranges import Ranges
from dragoman.core.refusals import (
    AgentNotChangeable,
    AgentNotFound,
    CallAlreadySettled,
    Invalid,
    SessionBusy,
    SessionNotFound,
    UnknownCall,
)
from dragoman.engine.abandoned_runs import AbandonedRuns
from dragoman.engine.engine import Engine
from dragoman.engine.expiry import ExpiredSessions
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.reader import Reader
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.log import IdempotencyRecord
from dragoman.protocols.kit.error_paths import paths_in_request
from dragoman.protocols.kit.runs import RunHandle, earlier_calls, feed_durable, find_run, start_once
from dragoman.protocols.openai import ids, inputs
from dragoman.protocols.openai.errors import (
    ConversationNotFound,
    InvalidParameter,
    ItemNotFound,
    ModelNotFound,
    ResponseNotFound,
)
from dragoman.protocols.openai.handlers import OpenAiOptions
from dragoman.protocols.openai.inputs import NewInput
from dragoman.protocols.openai.requests import InputItem, ItemReference, ParsedResponse
from dragoman.protocols.openai.sessions import POLLED_FOR_S, NewSessions, is_draft
from dragoman.protocols.openai.translate import ALL, PROTOCOL, ResponseEvents, run_fields

MAX_CHECKED_RUNS = 200
"""Of a history that comes back, the newest runs that are looked up."""


class RunRequest(NamedTuple):
    """A user's request for a response.

    Attributes:
        owner: the user.
        parsed: its body.
        key: its idempotency key.
        unstored: a run that it may continue by its response, though that is not stored.
    """

    owner: UserId
    parsed: ParsedResponse
    key: IdempotencyKey | None = None
    unstored: RunId | None = None


class _ContinuationPoint(NamedTuple):
    """Where a request continues: after a run or at the end of a session, with the items from `start` on."""

    session: SessionView
    after: RunHandle | None = None
    start: int = 0


class Runs:
    """Starts and finds runs. Their sessions stay in memory until the block of the context manager is left."""

    def __init__(self, engine: Engine, options: OpenAiOptions, expired: ExpiredSessions) -> None:
        self._engine = engine
        self.new_sessions = NewSessions(engine, options)
        self.abandoned = AbandonedRuns(engine, PROTOCOL, on_stopped=expired.check)

    # --- finding --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def find(self, owner: UserId, response_id: str) -> AsyncIterator[RunHandle]:
        """Find the run of a response that can be retrieved, whichever protocol started it. Raises ResponseNotFound."""
        run_id = ids.run_of(response_id) if response_id.startswith("resp_") else None
        handle = None if run_id is None else await self.find_run(owner, run_id)
        if handle is None or not await self._is_kept(handle):
            raise ResponseNotFound
        with self._engine.lease(handle.session):
            yield handle

    async def find_previous(self, owner: UserId, response_id: str) -> RunHandle:
        """Find the run of the response that a request names as the previous one. Raises InvalidParameter."""
        try:
            async with self.find(owner, response_id) as handle:
                return handle
        except ResponseNotFound as error:
            message = "there is no such response, or it was not stored"
            raise InvalidParameter("previous_response_not_found", message, "previous_response_id") from error

    async def find_run(self, owner: UserId, run_id: RunId) -> RunHandle | None:
        """The owner's run with an id, or the owner's session with it, for a response that started no run."""
        if (found := await find_run(self._engine, owner, run_id)) is not None:
            return found
        with suppress(SessionNotFound):
            session = await self._engine.find_session(owner, run_id)
            return RunHandle(session, run_id, 0) if session.state.session_id == str(run_id) else None
        return None

    async def _is_kept(self, handle: RunHandle) -> bool:
        """Whether a response can be retrieved: it is stored, or in the background, and was not deleted."""
        settings = handle.session.state.settings
        if handle.run_id in settings.deleted_runs or settings.is_ephemeral:
            return False
        fields = run_fields(await self._engine.history.run_start(handle.session, handle.first_seq))
        if fields.store or not fields.background:
            return fields.store
        response = (await self.events_so_far(handle)).response
        ended_at = None if response is None else response.completed_at
        return ended_at is None or self._engine.clock.now().timestamp() < ended_at + POLLED_FOR_S

    def lease(self, handle: RunHandle) -> AbstractContextManager[None]:
        """Keep a run's session, in memory and from its end, until the block is left."""
        return self._engine.lease(handle.session)

    # --- reading --------------------------------------------------------------------------------------------------

    def reader(self, handle: RunHandle) -> Reader:
        """A reader of a run from its first event on."""
        return self._engine.follow(handle.session, handle.before)

    async def events(self, handle: RunHandle, *, skip: int = 0) -> ResponseEvents:
        """An encoder of a run's events for a client that already has the first `skip` of them."""
        state = handle.session.state
        earlier = await earlier_calls(self._engine, handle)
        return ResponseEvents(handle.run_id, state.session_id, state.agent, earlier=earlier, skip=skip)

    async def events_so_far(self, handle: RunHandle) -> ResponseEvents:
        """An encoder that was fed with a run's events so far."""
        if not handle.first_seq:
            return self.acknowledge(handle)[0]
        events = await self.events(handle, skip=ALL)
        await feed_durable(self._engine, handle, events)
        return events

    def acknowledge(self, handle: RunHandle) -> tuple[ResponseEvents, bytes]:
        """The response to a request that started no run, because the session waits for more answers; and its frames."""
        state, now = handle.session.state, self._engine.clock.now()
        metadata = Submit(protocol=PROTOCOL).metadata if handle.request is None else handle.request.metadata
        started = RunStarted(run_id=handle.run_id, protocol=PROTOCOL, metadata=metadata)
        stopped = RunStopped(run_id=handle.run_id, reason="tool_use")
        events = ResponseEvents(handle.run_id, state.session_id, state.agent)
        frames = [events.feed(LoggedEvent(0, now, handle.run_id, event)) for event in (started, stopped)]
        return events, b"".join(frames)

    # --- starting -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def start(self, request: RunRequest) -> AsyncIterator[RunHandle]:
        """Start the run that a request asks for, or find the one that its idempotency key started before."""
        async with AsyncExitStack() as stack:
            yield await self.start_once(stack, request.owner, request.key, partial(self._submit, stack, request))

    async def start_once(
        self,
        stack: AsyncExitStack,
        owner: UserId,
        key: IdempotencyKey | None,
        start: Callable[[], Awaitable[RunHandle]],
    ) -> RunHandle:
        """Start a run, or find the one that its idempotency key started before.

        Raises:
            ResponseNotFound: what the key started was deleted since.
        """

        async def find(record: IdempotencyRecord) -> RunHandle:
            found = await self.find_run(owner, record.run_id or RunId(record.session_id))
            if found is None:
                raise ResponseNotFound
            stack.enter_context(self._engine.lease(found.session))
            return found

        return await start_once(self._engine, owner, key, start, find)

    def agent_named(self, model: str | None, session: SessionView | None = None) -> str:
        """The name of the agent that a request asks for by its name or an alias.

        Raises:
            ModelNotFound: there is none.
            AgentNotServed: there is none, and neither is the agent of the session that the request continues.
        """
        spec = self._engine.find_spec(model or "")
        if spec is None:
            if session is not None and not is_draft(session):
                self._engine.agent_for(session)
            raise ModelNotFound(str(AgentNotFound(model or "", self._engine.agents)))
        return spec.name

    async def _submit(self, stack: AsyncExitStack, request: RunRequest) -> RunHandle:
        items, model = request.parsed.items, request.parsed.fields.model
        point = await self._find_continuation_point(request)
        agent = None if model is None else self.agent_named(model, None if point is None else point.session)
        if point is None:
            given = inputs.seeds_and_input(items, self._engine.ids.new)
            is_repeatable = request.parsed.fields.background or request.key is not None
            change = self.new_sessions.unlisted(request.parsed.fields.store, is_repeatable=is_repeatable)
            with paths_in_request("input", messages=given.seeds):
                session = await self.new_sessions.create(request.owner, agent, tuple(given.seeds.values()), change)
            await stack.enter_async_context(self._engine.first_request(session, is_new=True))
            return await self._start_run(request, _ContinuationPoint(session), given, is_first=True)
        session = point.session
        if agent is not None and agent != session.state.agent:
            if not is_draft(session):
                message = f"this conversation's agent is {session.state.agent!r} and cannot change"
                raise AgentNotChangeable(message, path="model")
            session = await self.new_sessions.recreate(session, self._engine.agent(agent).spec)
            point = point._replace(session=session)
        stack.enter_context(self._engine.lease(session))
        await self.abandoned.until_stopped(session)
        waiting = tuple(session.state.answerable_calls())
        if not point.start and inputs.may_resend(items, waiting):
            items = inputs.without_resent(items, waiting, await self._newest_turn(session))
        given = inputs.new_input(items, point.start, waiting)
        if not given.messages and not given.answers:
            raise InvalidParameter("nothing_new", "expected a message of the user or an answer", "input")
        return await self._start_run(request, point, given)

    async def _start_run(
        self, request: RunRequest, point: _ContinuationPoint, given: NewInput, *, is_first: bool = False
    ) -> RunHandle:
        session, fields = point.session, request.parsed.fields
        branch = None
        if point.after is not None and not given.answers and not _is_newest(point.after):
            branch = await self.branch_after(point.after)
        elif not given.answers:
            given = inputs.with_question_answered(given, session.state)
        submit = inputs.submit_from(fields, given, keeps_unlisted=is_first and fields.conversation is None)
        with translated_errors(given):
            result = await self._engine.start_run(
                session, submit, by=request.owner, idempotency_key=request.key, branch=branch
            )
        if result.run_id is None:
            await session.until_durable(result.seq)
            return RunHandle(session, RunId(session.state.session_id), 0, request=submit)
        return RunHandle(session, result.run_id, result.seq, bool(given.answers), is_new=True)

    async def _newest_turn(self, session: SessionView) -> Sequence[core.Message]:
        """The messages of the turn whose calls wait."""
        history, newest = self._engine.history, session.state.last_run_seq
        turn = await history.turn_at(session, newest) if newest else None
        return () if turn is None else await history.messages(session, turn.first.first_seq)

    async def branch_after(self, handle: RunHandle) -> BranchPoint:
        """Where a branch after a run begins. Raises SessionBusy."""
        events = await self.events_so_far(handle)
        if not events.is_over:
            raise SessionBusy("a run of this conversation is active")
        return BranchPoint(events.last_seq + 1, await self._hidden_before(handle))

    async def _hidden_before(self, handle: RunHandle) -> Ranges:
        """The ranges of events that the branch of a run hides before it."""
        state = handle.session.state
        if state.is_visible(handle.first_seq):
            return state.hidden_ranges
        async for page in self._engine.history.newest_events(handle.session, handle.first_seq):
            for logged in reversed(page):
                if isinstance(logged.event, Branched):
                    return logged.event.hidden_ranges
        return ()

    async def shown_with(self, handle: RunHandle, up_to: int | None = None) -> Sequence[LoggedEvent]:
        """The events up to event `up_to` that the branch of a run shows."""
        events = await self._engine.history.events(handle.session, 0, up_to)
        return shown_events(events, await self._hidden_before(handle))

    # --- which session --------------------------------------------------------------------------------------------

    async def _find_continuation_point(self, request: RunRequest) -> _ContinuationPoint | None:
        """Where a request continues; None for a new session."""
        fields, owner = request.parsed.fields, request.owner
        if fields.conversation is not None:
            return _ContinuationPoint(await self.find_conversation(owner, fields.conversation, "conversation"))
        if fields.previous_response_id is not None:
            if request.unstored is not None and fields.previous_response_id == ids.response_id(request.unstored):
                unstored = await self.find_run(owner, request.unstored)
                if unstored is not None:
                    return _ContinuationPoint(unstored.session, unstored if unstored.first_seq else None)
            handle = await self.find_previous(owner, fields.previous_response_id)
            return _ContinuationPoint(handle.session, handle if handle.first_seq else None)
        return await self._recognise(owner, fields.model, request.parsed.items)

    async def find_conversation(self, owner: UserId, conversation_id: str, path: str = "") -> SessionView:
        """The session of a conversation, which the field at `path` names. Raises ConversationNotFound."""
        session_id = ids.session_of(conversation_id)
        with suppress(SessionNotFound):
            session = None if session_id is None else await self._engine.find_session(owner, session_id)
            if session is not None and session.state.session_id == session_id:
                return session
        raise ConversationNotFound(path)

    async def _recognise(
        self, owner: UserId, model: str | None, items: Sequence[InputItem]
    ) -> _ContinuationPoint | None:
        """Where a resent history continues: after the last item that this server made.

        A history that is there in full, but not in one session, is the past of a new one.
        """
        named = {index: run_id for index, item in enumerate(items) if (run_id := inputs.run_named_by(item)) is not None}
        newest = list(dict.fromkeys(reversed(named.values())))[:MAX_CHECKED_RUNS]
        found = {run_id: handle for run_id in newest if (handle := await self.find_run(owner, run_id)) is not None}
        is_whole = True
        for index, item in enumerate(items):
            run_id = named.get(index)
            if isinstance(item, ItemReference):
                is_whole = False
                if run_id is None or (run_id in newest and run_id not in found):
                    raise ItemNotFound(f"input[{index}]")
        if is_whole:  # the items of a draft are copies, which its client adds and reads
            found = {run_id: handle for run_id, handle in found.items() if not is_draft(handle.session)}
        is_mixed = len({handle.session.state.session_id for handle in found.values()}) > 1
        if is_mixed and not is_whole:
            raise InvalidParameter("mixed_history", "these items belong to several conversations", "input")
        last = max((index for index, run_id in named.items() if run_id in found), default=None)
        if last is None:
            return None
        handle = found[named[last]]
        point = _ContinuationPoint(handle.session, handle if handle.first_seq else None, last + 1)
        if not is_whole or inputs.answers_any(items, handle.session.state.answerable_calls()):
            return point
        spec = None if model is None else self._engine.find_spec(model)
        is_other_agent = spec is not None and spec.name != handle.session.state.agent
        return None if is_mixed or is_other_agent or inputs.has_agent_items(items[last + 1 :]) else point


def _is_newest(handle: RunHandle) -> bool:
    """Whether a run is the last one of the active branch, or the active one."""
    state = handle.session.state
    return state.last_run == handle.run_id and state.is_visible(handle.first_seq)


@contextmanager
def translated_errors(given: NewInput) -> Iterator[None]:
    """Name the fields of the request in errors, where the core names those of its own inputs."""
    try:
        yield
    except (UnknownCall, CallAlreadySettled) as error:
        index = [answer.call_id for answer in given.answers].index(error.call_id)
        error.path = given.paths.get(f"answers[{index}]", "input")
        raise
    except Invalid as error:
        whole, _, rest = error.path.partition("]")
        if whole.startswith(("messages", "answers")):
            error.path = given.paths.get(f"{whole}]", "input") + rest
        raise
