"""What requests do to threads: start, join, replay, hydrate, answer, branch, stop. One thread is one session.

    known run id?  ── yes ──► join it, or replay it
      │ no
    nothing new?   ── yes ──► the messages as they stand, and the end
      │ no
    busy?          ── yes ──► cancel the run if its reader has left, else `thread_busy`
      │ no
    submit, and stream the run; when this client leaves and nobody else watches, cancel it

Source: specification of the face, B.8 to B.11; rulings, 1 to 4, 9, 10, 13, 15, 19 to 21.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal

import msgspec
import structlog
from starlette.responses import Response

from dragoman.core import content as core
from dragoman.core.admission import is_busy
from dragoman.core.agent import Agent
from dragoman.core.events import LoggedEvent, MessageAdded, RunStarted, SharedStateReplaced
from dragoman.core.ids import ROOT, RunId, SessionId, UserId, parse_session_id
from dragoman.core.inputs import Create, Submit
from dragoman.core.principal import Principal
from dragoman.core.refusals import (
    AgentNotChangeable,
    Forbidden,
    IdTaken,
    InvalidCursor,
    Refused,
    SessionBusy,
    SessionNotFound,
)
from dragoman.core.stream import Cursor, cursor_of
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports.log import IdempotencyRecord
from dragoman.protocols.agui import content as wire
from dragoman.protocols.agui import events as told_events
from dragoman.protocols.agui.downgrade import Generation, downgrade_events, text_of
from dragoman.protocols.agui.frames import Position, RunFrames, ThreadFrames, encode_frame, reopen_events
from dragoman.protocols.agui.messages import Transcript, metadata_of
from dragoman.protocols.agui.request_mapping import (
    InputMapper,
    answers_of,
    is_same_content,
    last_user_message,
    new_user_messages,
    pending_calls,
    run_metadata_from,
    split_opening_input,
    tools_of,
)
from dragoman.protocols.agui.streams import RunSource, complete_stream, open_stream
from dragoman.protocols.agui.translate import PROTOCOL, VERSION, Translator, outcome_of
from dragoman.protocols.agui.wire import RunInput
from dragoman.protocols.kit.http import Admit

DisconnectPolicy = Literal["cancel", "continue"]
"""What becomes of a run whose client leaves while nobody else watches."""
FAILED_STOPS = frozenset({"error", "cancelled", "interrupted", "max_steps"})
"""Ends after which the same message may be asked again."""
DISCONNECT_GRACE_S = 0.3
"""How long a new message waits for the reader of the run before it to leave.

A client that stops closes one connection and opens another; which of the two arrives first is the network's affair.
"""
POLL_INTERVAL_S = 0.005

log = structlog.get_logger(__name__)


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run request: who asks whom for what."""

    principal: Principal
    agent: Agent
    run: RunInput
    fingerprint: str
    generation: Generation

    @property
    def owner(self) -> UserId:
        """Whose threads are meant."""
        return self.principal.user


class Threads:
    """The threads of an engine, as AG-UI's clients use them."""

    def __init__(self, engine: Engine, admit_run: Admit, admit_stream: Admit) -> None:
        self._engine = engine
        self._admit_run = admit_run
        self._admit_stream = admit_stream
        self._stopping: dict[SessionId, asyncio.Task[bool]] = {}
        """Runs that are being stopped because their clients left."""

    # --- running --------------------------------------------------------------------------------------------------

    async def run(self, request: RunRequest, policy: DisconnectPolicy) -> Response:
        """Answer a run request."""
        is_new = False
        try:
            live = await self._engine.find_session(request.owner, request.run.thread_id)
        except SessionNotFound:
            await self._refuse_foreign(request.owner, request.run.thread_id)
            try:
                live, is_new = await self._create(request), True
            except IdTaken:  # somebody was quicker: it is there now, perhaps another's
                try:
                    live = await self._engine.find_session(request.owner, request.run.thread_id)
                except SessionNotFound:
                    await self._refuse_foreign(request.owner, request.run.thread_id)
                    raise
        _check_agent(live, request.agent)
        live.reference_count += 1  # as `Engine.session` does, on the way of every run
        try:
            return await (self._first_run if is_new else self._run_in_thread)(request, live, policy)
        finally:
            live.reference_count -= 1

    async def _first_run(self, request: RunRequest, live: LiveSession, policy: DisconnectPolicy) -> Response:
        """The run that a thread was made for. What is refused leaves nothing behind."""
        try:
            return await self._run_in_thread(request, live, policy)
        except Refused:
            if live.state.last_run is None:
                await self._engine.delete(live)
            raise

    async def _create(self, request: RunRequest) -> LiveSession:
        """A new thread, with what its client says was before."""
        before, inputs = split_opening_input(request.run.messages)
        if not inputs:
            raise SessionNotFound("a thread begins with a message of its user's")
        taking = InputMapper(request.agent.spec)
        seeds = taking.seeds(before, self._engine.ids.new)
        session_id = parse_session_id(request.run.thread_id)
        name = None if session_id is not None else request.run.thread_id
        spec = request.agent.spec
        return await self._engine.create(
            request.owner,
            Create(protocol=PROTOCOL, agent=spec.name, tools="all", seeds=seeds, session_id=session_id, name=name),
        )

    async def _run_in_thread(self, request: RunRequest, live: LiveSession, policy: DisconnectPolicy) -> Response:
        run = request.run
        key = IdempotencyKey(f"{PROTOCOL}:{live.state.session_id}:{run.run_id}", request.fingerprint, lasts=True)
        holding = self._engine.reserve_key(request.owner, key, live, [each.id for each in run.messages])
        async with holding as earlier:
            if earlier is not None:
                return await self._join_or_replay(request, live, earlier)
            asked = await self._prepare_submit(request, live, holding.known_messages)
            if asked is None:
                open_calls = {each.call_id for each in pending_calls(live.state)}
                unknown = tuple(each.interrupt_id for each in run.resume if each.interrupt_id not in open_calls)
                return await self._snapshot_response(request, live, unknown)
            submit, before_seq = asked
            release = self._admit_run(request.principal)
            try:
                submitted = await self._engine.submit(
                    live, submit, by=request.owner, idempotency_key=key, before_seq=before_seq
                )
            except BaseException:
                release()
                raise
            if submitted.run_id is None or live.run_task is None:
                release()
                await live.until_durable(submitted.seq)
                return self._finished_response(request, live)
            live.run_task.add_done_callback(lambda _: release())
            run_id = submitted.run_id

            def closed(has_left: bool) -> None:
                if has_left and policy == "cancel" and live.reader_count == 0:
                    self._stop_abandoned_run(live, run_id)

            # The first records are read while the key is held: with them it is durable that it was used.
            return await self._follow_run(request, live, run_id, submitted.seq, closed)

    async def _follow_run(
        self,
        request: RunRequest,
        live: LiveSession,
        run_id: RunId,
        first_seq: int,
        on_close: Callable[[bool], None] = lambda has_left: None,
    ) -> Response:
        """Tell a run from its start, live or as it was."""
        translator = Translator(run_id, thread_id=request.run.thread_id, client_run_id=request.run.run_id)
        reader = self._engine.follow(live, Cursor(first_seq - 1))
        return await open_stream(RunSource(reader, RunFrames(translator, request.generation), on_close=on_close))

    async def _join_or_replay(self, request: RunRequest, live: LiveSession, earlier: IdempotencyRecord) -> Response:
        """Join the run that this request started before, or replay it."""
        row = None if earlier.run_id is None else await self._engine.history.run_row(request.owner, earlier.run_id)
        if row is None or row.session_id != live.state.session_id:
            return self._finished_response(request, live)
        return await self._follow_run(request, live, row.run_id, row.first_seq)

    async def _prepare_submit(
        self, request: RunRequest, live: LiveSession, known: dict[str, int]
    ) -> tuple[Submit, int | None] | None:
        """What the request asks the engine for, and the event before which it opens a branch, if it does.

        None when it brings nothing new. `known` are those of its messages that the session has.

        Raises:
            SessionBusy: a run is active that somebody watches.
            ResultsMissing, InvalidAnswer: see `intake.answers_of`.
        """
        run, taking = request.run, InputMapper(self._engine.agent_for(live).spec)
        inputs: Sequence[wire.UserMessage] = await self._new_messages(live, run.messages, known)
        branch = await self._branch_point(request, live, known, has_new_messages=bool(inputs), mapper=taking)
        if branch is not None and not inputs:
            last = last_user_message(run.messages)
            inputs = [] if last is None else [last]
        if not inputs and not run.resume and not any(isinstance(each, wire.ToolMessage) for each in run.messages):
            return None
        if is_busy(live.state) and inputs:
            await self._stop_unwatched_run(live)
        elif is_busy(live.state) and run.resume:  # an answer that comes again must not end what the first one began
            raise SessionBusy("a run of this thread is active")
        answered = answers_of(run, live.state, taking, has_new_message=bool(inputs))
        if not inputs and not answered.answers:
            return None
        messages = tuple(map(taking.user_input, inputs))
        if taking.dropped:
            log.info("the agent cannot use parts of a message", thread=run.thread_id, dropped=taking.dropped[:20])
        submit = Submit(
            protocol=PROTOCOL,
            messages=messages,
            answers=() if branch is not None else answered.answers,
            client_run_id=run.run_id,
            client_tools=tools_of(run),
            metadata=run_metadata_from(run, answered.unknown_interrupts),
        )
        return submit, branch

    async def _new_messages(
        self, live: LiveSession, messages: Sequence[wire.Message], known: dict[str, int]
    ) -> Sequence[wire.UserMessage]:
        """The user's messages that the thread does not hold yet, in order.

        Some clients resend their history under new ids with every request. So what was answered there, and is in the
        thread in the same words, is not new either (rulings, 13: an id identifies nothing alone).
        """
        new, answered = new_user_messages(messages, known), split_opening_input(messages)[0]
        if not any(each in answered for each in new):
            return new
        events = await self._engine.history.events(live, 0)
        stored = [_user_message_of(logged) for logged in events if live.state.is_visible(logged.seq)]
        said = {core.text_of(each.content) for each in stored if each is not None}
        return [each for each in new if each not in answered or text_of(each.content) not in said]

    async def _branch_point(
        self,
        request: RunRequest,
        live: LiveSession,
        known: dict[str, int],
        *,
        has_new_messages: bool,
        mapper: InputMapper,
    ) -> int | None:
        """The event of a user's message before which the request goes on from, when it opens a branch.

        It does so with a new text for the newest message, with a message whose run failed, and, when it names a
        `parentRunId`, with a history that ends earlier than ours.
        """
        run, last = request.run, last_user_message(request.run.messages)
        if has_new_messages:
            held = [known[each.id] for each in run.messages if each.id in known]
            if run.parent_run_id is None or not held:
                return None
            return await self._next_user_message(live, max(held))
        if last is None or last.id not in known or run.resume:
            return None
        seq = known[last.id]
        is_end = run.messages[-1] is last
        if await self._next_user_message(live, seq) is None:
            stored = await self._stored_message(live, seq)
            is_edited = stored is not None and not is_same_content(last.content, stored.content, mapper.spec)
            is_failed = is_end and live.state.last_stop in FAILED_STOPS and live.state.run is None
            if is_edited or is_failed:
                return seq
        return seq if is_end and run.parent_run_id is not None else None

    async def _next_user_message(self, live: LiveSession, seq: int) -> int | None:
        """The first message of the user's after an event, in the active branch."""
        for logged in await self._engine.history.events(live, seq):
            if _user_message_of(logged) is not None and live.state.is_visible(logged.seq):
                return logged.seq
        return None

    async def _stored_message(self, live: LiveSession, seq: int) -> core.UserMessage | None:
        """The user's message that an event added, as it was sent."""
        for logged in await self._engine.history.events(live, seq - 1, seq):
            if isinstance(logged.event, MessageAdded) and isinstance(logged.event.message, core.UserMessage):
                session_id = live.state.session_id
                return (await self._engine.attachments.restore(session_id, (logged.event.message,)))[0]
        return None

    # --- other runs -----------------------------------------------------------------------------------------------

    async def _stop_unwatched_run(self, live: LiveSession) -> None:
        """End the active run if it is one of ours that nobody reads any more. Raises SessionBusy when it is not."""
        clock = asyncio.get_running_loop().time
        until = clock() + DISCONNECT_GRACE_S
        while True:
            stopping = self._stopping.get(live.state.session_id)
            if stopping is not None:
                await asyncio.wait([stopping])
            active = live.state.run
            if active is None and not live.state.queue:
                return
            if active is None or active.protocol != PROTOCOL or live.state.queue or clock() > until:
                raise SessionBusy("a run of this thread is active")
            if not await self._engine.stop_run(live, active.run_id, only_if_unwatched=True):
                await asyncio.sleep(POLL_INTERVAL_S)

    def _stop_abandoned_run(self, live: LiveSession, run_id: RunId) -> None:
        """Stop a run whose client has left. The task lives here: the request's own is being cancelled."""
        session_id = live.state.session_id
        live.reference_count += 1

        def done(task: asyncio.Task[bool]) -> None:
            live.reference_count -= 1
            if self._stopping.get(session_id) is task:
                del self._stopping[session_id]
            if not task.cancelled() and (error := task.exception()) is not None:
                log.warning("a run could not be stopped", session_id=session_id, exc_info=error)

        task = asyncio.create_task(self._engine.stop_run(live, run_id, only_if_unwatched=True), name=f"stop {run_id}")
        self._stopping[session_id] = task
        task.add_done_callback(done)

    async def stop(self, caller: Principal, agent: Agent, thread_id: str, run_id: str | None) -> bool:
        """Stop the thread's run; only that of the given id, as its client or the core knows it.

        Raises:
            SessionNotFound, Forbidden: there is no such thread, or it is another's.
        """
        async with self._existing_thread(caller.user, thread_id, agent) as live:
            if run_id is None:
                return await self._engine.stop_run(live)
            active = live.state.run
            names = {} if active is None else {active.run_id: active.client_run_id}
            names |= {each.run_id: each.client_run_id for each in live.state.queue}
            found = next((own for own, name in names.items() if run_id in (own, name)), None)
            return found is not None and await self._engine.stop_run(live, found)

    # --- looking --------------------------------------------------------------------------------------------------

    async def connect(self, request: RunRequest) -> Response:
        """The messages so far, what is open opened again, and the live rest of the active run."""
        async with self._existing_thread(request.owner, request.run.thread_id, request.agent) as live:
            active = live.state.run
            if active is None:
                return await self._snapshot_response(request, live)
            await live.until_durable(active.started_seq)
            records = await self._engine.history.run_records(live, active.run_id, active.started_seq)
            translator = Translator(active.run_id, thread_id=request.run.thread_id, client_run_id=request.run.run_id)
            told_so_far = [event for record in records for event in translator.feed(record)]
            if translator.is_over or not records:
                return await self._snapshot_response(request, live)
            cursor = cursor_of(records[-1])
            before = [
                *told_so_far[:1],
                *await self._snapshots(live, cursor.seq),
                *reopen_events(told_so_far),
            ]
            release = self._admit_stream(request.principal)
            try:
                reader = self._engine.follow(live, cursor)
                frames = RunFrames(translator, request.generation)
                shown = b"".join(map(encode_frame, downgrade_events(before, request.generation)))
                return await open_stream(RunSource(reader, frames, preamble=shown, on_close=lambda _: release()))
            except BaseException:
                release()
                raise

    async def events(self, caller: Principal, agent: Agent, thread_id: str, position: Position | None) -> Response:
        """All that the thread's runs tell, strictly after a position, then live."""
        async with self._existing_thread(caller.user, thread_id, agent) as live:
            if position is not None and position.cursor.seq > live.durable_cursor.seq:
                raise InvalidCursor("Last-Event-ID lies in the future of this thread")
            after = Cursor(0) if position is None else await self._run_start_before(live, position)
            release = self._admit_stream(caller)
            try:
                reader = self._engine.follow(live, after, ends_on_drain=True)
                frames = ThreadFrames(thread_id, "1.0", position)
                return await open_stream(RunSource(reader, frames, on_close=lambda _: release()))
            except BaseException:
                release()
                raise

    async def _run_start_before(self, live: LiveSession, position: Position) -> Cursor:
        """Where the run that holds a position begins."""
        async for page in self._engine.history.newest_events(live, position.cursor.seq + 1):
            for logged in reversed(page):
                if isinstance(logged.event, RunStarted):
                    return Cursor(logged.seq - 1)
        return Cursor(0)

    async def _snapshot_response(
        self, request: RunRequest, live: LiveSession, unknown_interrupts: tuple[str, ...] = ()
    ) -> Response:
        """The whole thread, without a run: what a client needs that comes back to it."""
        started = told_events.RunStarted(
            thread_id=request.run.thread_id, run_id=request.run.run_id, protocol_version=VERSION
        )
        await live.until_durable(live.state.seq)
        snapshots = await self._snapshots(live, live.durable_cursor.seq)
        return complete_stream(
            *downgrade_events(
                [started, *snapshots, self._run_finished_event(request, live, unknown_interrupts)], request.generation
            )
        )

    def _finished_response(self, request: RunRequest, live: LiveSession) -> Response:
        """A run that is over as soon as it begins: its answers were taken, and others are still needed."""
        started = told_events.RunStarted(
            thread_id=request.run.thread_id, run_id=request.run.run_id, protocol_version=VERSION
        )
        return complete_stream(
            *downgrade_events([started, self._run_finished_event(request, live)], request.generation)
        )

    def _run_finished_event(
        self, request: RunRequest, live: LiveSession, unknown_interrupts: tuple[str, ...] = ()
    ) -> told_events.RunFinished:
        outcome, metadata = outcome_of(() if is_busy(live.state) else pending_calls(live.state))
        return told_events.RunFinished(
            metadata=metadata_of(unknown_interrupts=unknown_interrupts) if unknown_interrupts else metadata,
            thread_id=request.run.thread_id,
            run_id=request.run.run_id,
            outcome=outcome,
        )

    async def _snapshots(self, live: LiveSession, up_to: int) -> list[told_events.Event]:
        """The complete messages of the active branch up to an event, and the state, if there is one."""
        transcript = Transcript()
        state: core.Json = msgspec.UNSET
        for logged in await self._engine.history.events(live, 0, up_to):
            if isinstance(logged.event, RunStarted) and logged.event.protocol == PROTOCOL:
                state = logged.event.metadata.get("state", msgspec.UNSET)  # which a client sends anew with every run
            elif isinstance(logged.event, SharedStateReplaced):
                state = logged.event.state
            if live.state.is_visible(logged.seq):
                transcript.feed(await self._restore_event(live, logged))
        found: list[told_events.Event] = [told_events.MessagesSnapshot(messages=transcript.messages())]
        if state is not msgspec.UNSET:
            found.append(told_events.StateSnapshot(snapshot=state))
        return found

    async def _restore_event(self, live: LiveSession, logged: LoggedEvent) -> LoggedEvent:
        """An event with the pictures that are kept beside the log."""
        if not isinstance(logged.event, MessageAdded):
            return logged
        message = logged.event.message
        (whole,) = await self._engine.attachments.restore(live.state.session_id, (message,))
        return logged if whole is message else msgspec.structs.replace(logged, event=MessageAdded(message=whole))

    # --- finding --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _thread(self, owner: UserId, thread_id: str, agent: Agent) -> AsyncIterator[LiveSession]:
        """A thread of that owner and agent, held in memory. Raises SessionNotFound, AgentFixed."""
        async with self._engine.session(owner, thread_id) as live:
            _check_agent(live, agent)
            yield live

    @asynccontextmanager
    async def _existing_thread(self, owner: UserId, thread_id: str, agent: Agent) -> AsyncIterator[LiveSession]:
        """The same for a thread that has to be there. Raises Forbidden besides when it is another owner's."""
        async with AsyncExitStack() as stack:
            try:
                live = await stack.enter_async_context(self._thread(owner, thread_id, agent))
            except SessionNotFound:
                await self._refuse_foreign(owner, thread_id)
                raise
            yield live

    async def _refuse_foreign(self, owner: UserId, thread_id: str) -> None:
        """Refuse a thread of another owner, as the protocol wants it told (rulings, 2). Raises Forbidden."""
        session_id = parse_session_id(thread_id)
        if session_id is not None and await self._engine.exists_for_other_owner(owner, session_id):
            raise Forbidden("this thread is another user's")


def _check_agent(live: LiveSession, agent: Agent) -> None:
    if live.state.agent != agent.spec.name:
        raise AgentNotChangeable(f"this thread's agent is {live.state.agent!r} and cannot change")


def _user_message_of(logged: LoggedEvent) -> core.UserMessage | None:
    """The user's message that an event adds to the conversation, if it is one that does."""
    message = logged.event.message if isinstance(logged.event, MessageAdded) else None
    return message if isinstance(message, core.UserMessage) and message.loop == ROOT else None
