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
from dragoman.core.events import Logged, MessageAdded, RunStarted, StateShared
from dragoman.core.ids import ROOT, RunId, SessionId, UserId, parse_session_id
from dragoman.core.inputs import Create, Submit
from dragoman.core.principal import Principal
from dragoman.core.refusals import (
    AgentFixed,
    Forbidden,
    IdTaken,
    InvalidCursor,
    Refused,
    SessionBusy,
    SessionNotFound,
)
from dragoman.core.stream import Cursor, cursor_of
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import Key
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports import Once
from dragoman.protocols.agui import content as wire
from dragoman.protocols.agui import events as told_events
from dragoman.protocols.agui.downgrade import Generation, suited, words_of
from dragoman.protocols.agui.frames import Position, RunFrames, ThreadFrames, frame, reopened
from dragoman.protocols.agui.messages import Transcript, metadata_of
from dragoman.protocols.agui.request_mapping import (
    Taking,
    answers_of,
    fresh,
    is_same,
    last_user,
    opening,
    props_of,
    tools_of,
    waiting,
)
from dragoman.protocols.agui.streams import RunSource, open_stream, told
from dragoman.protocols.agui.translate import DOOR, VERSION, Translator, outcome_of
from dragoman.protocols.agui.wire import RunInput
from dragoman.protocols.kit.http import Admit

Policy = Literal["cancel", "continue"]
"""What becomes of a run whose client leaves while nobody else watches."""
FAILED_STOPS = frozenset({"error", "cancelled", "interrupted", "max_steps"})
"""Ends after which the same message may be asked again."""
LEAVING_S = 0.3
"""How long a new message waits for the reader of the run before it to leave.

A client that stops closes one connection and opens another; which of the two arrives first is the network's affair.
"""
LOOK_S = 0.005

log = structlog.get_logger(__name__)


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A run request: who asks whom for what."""

    caller: Principal
    agent: Agent
    run: RunInput
    fingerprint: str
    generation: Generation

    @property
    def owner(self) -> UserId:
        """Whose threads are meant."""
        return self.caller.user


class Threads:
    """The threads of an engine, as AG-UI's clients use them."""

    def __init__(self, engine: Engine, admit_run: Admit, admit_stream: Admit) -> None:
        self._engine = engine
        self._admit_run = admit_run
        self._admit_stream = admit_stream
        self._stopping: dict[SessionId, asyncio.Task[bool]] = {}
        """Runs that are being stopped because their clients left."""

    # --- running --------------------------------------------------------------------------------------------------

    async def run(self, ask: Ask, policy: Policy) -> Response:
        """Answer a run request."""
        is_new = False
        try:
            live = await self._engine.found(ask.owner, ask.run.thread_id)
        except SessionNotFound:
            await self._refuse_foreign(ask.owner, ask.run.thread_id)
            try:
                live, is_new = await self._create(ask), True
            except IdTaken:  # somebody was quicker: it is there now, perhaps another's
                try:
                    live = await self._engine.found(ask.owner, ask.run.thread_id)
                except SessionNotFound:
                    await self._refuse_foreign(ask.owner, ask.run.thread_id)
                    raise
        _check_agent(live, ask.agent)
        live.holds += 1  # as `Engine.session` does, on the way of every run
        try:
            return await (self._first_run if is_new else self._run_on)(ask, live, policy)
        finally:
            live.holds -= 1

    async def _first_run(self, ask: Ask, live: LiveSession, policy: Policy) -> Response:
        """The run that a thread was made for. What is refused leaves nothing behind."""
        try:
            return await self._run_on(ask, live, policy)
        except Refused:
            if live.state.last_run is None:
                await self._engine.delete(live)
            raise

    async def _create(self, ask: Ask) -> LiveSession:
        """A new thread, with what its client says was before."""
        before, inputs = opening(ask.run.messages)
        if not inputs:
            raise SessionNotFound("a thread begins with a message of its user's")
        taking = Taking(ask.agent.spec)
        seeds = taking.seeds(before, self._engine.ids.new)
        session_id = parse_session_id(ask.run.thread_id)
        name = None if session_id is not None else ask.run.thread_id
        spec = ask.agent.spec
        return await self._engine.create(
            ask.owner, Create(door=DOOR, agent=spec.name, tools="all", seeds=seeds, session_id=session_id, name=name)
        )

    async def _run_on(self, ask: Ask, live: LiveSession, policy: Policy) -> Response:
        run = ask.run
        key = Key(f"{DOOR}:{live.state.session_id}:{run.run_id}", ask.fingerprint, lasts=True)
        holding = self._engine.once(ask.owner, key, live, [each.id for each in run.messages])
        async with holding as earlier:
            if earlier is not None:
                return await self._again(ask, live, earlier)
            asked = await self._submit(ask, live, holding.known)
            if asked is None:
                open_calls = {each.call_id for each in waiting(live.state)}
                unknown = tuple(each.interrupt_id for each in run.resume if each.interrupt_id not in open_calls)
                return await self._as_it_stands(ask, live, unknown)
            submit, before_seq = asked
            release = self._admit_run(ask.caller)
            try:
                submitted = await self._engine.submit(live, submit, by=ask.owner, once=key, before_seq=before_seq)
            except BaseException:
                release()
                raise
            if submitted.run_id is None or live.run_task is None:
                release()
                await live.until_durable(submitted.seq)
                return self._ended(ask, live)
            live.run_task.add_done_callback(lambda _: release())
            run_id = submitted.run_id

            def closed(has_left: bool) -> None:
                if has_left and policy == "cancel" and live.readers == 0:
                    self._stop_left(live, run_id)

            # The first records are read while the key is held: with them it is durable that it was used.
            return await self._follow(ask, live, run_id, submitted.seq, closed)

    async def _follow(
        self,
        ask: Ask,
        live: LiveSession,
        run_id: RunId,
        first_seq: int,
        closed: Callable[[bool], None] = lambda has_left: None,
    ) -> Response:
        """Tell a run from its start, live or as it was."""
        translator = Translator(run_id, thread_id=ask.run.thread_id, shown_run_id=ask.run.run_id)
        reader = self._engine.follow(live, Cursor(first_seq - 1))
        return await open_stream(RunSource(reader, RunFrames(translator, ask.generation), closed=closed))

    async def _again(self, ask: Ask, live: LiveSession, earlier: Once) -> Response:
        """Join the run that this request started before, or replay it."""
        row = None if earlier.run_id is None else await self._engine.past.run_row(ask.owner, earlier.run_id)
        if row is None or row.session_id != live.state.session_id:
            return self._ended(ask, live)
        return await self._follow(ask, live, row.run_id, row.first_seq)

    async def _submit(self, ask: Ask, live: LiveSession, known: dict[str, int]) -> tuple[Submit, int | None] | None:
        """What the request asks the engine for, and the event before which it opens a branch, if it does.

        None when it brings nothing new. `known` are those of its messages that the session has.

        Raises:
            SessionBusy: a run is active that somebody watches.
            ResultsMissing, InvalidAnswer: see `intake.answers_of`.
        """
        run, taking = ask.run, Taking(self._engine.agent_of(live).spec)
        inputs: Sequence[wire.UserMessage] = await self._fresh(live, run.messages, known)
        branch = await self._branch(ask, live, known, is_fresh=bool(inputs), taking=taking)
        if branch is not None and not inputs:
            last = last_user(run.messages)
            inputs = [] if last is None else [last]
        if not inputs and not run.resume and not any(isinstance(each, wire.ToolMessage) for each in run.messages):
            return None
        if is_busy(live.state) and inputs:
            await self._make_way(live)
        elif is_busy(live.state) and run.resume:  # an answer that comes again must not end what the first one began
            raise SessionBusy("a run of this thread is active")
        answered = answers_of(run, live.state, taking, brings_message=bool(inputs))
        if not inputs and not answered.answers:
            return None
        messages = tuple(map(taking.input, inputs))
        if taking.dropped:
            log.info("the agent cannot use parts of a message", thread=run.thread_id, dropped=taking.dropped[:20])
        submit = Submit(
            door=DOOR,
            messages=messages,
            answers=() if branch is not None else answered.answers,
            client_run_id=run.run_id,
            client_tools=tools_of(run),
            props=props_of(run, answered.unknown),
        )
        return submit, branch

    async def _fresh(
        self, live: LiveSession, messages: Sequence[wire.Message], known: dict[str, int]
    ) -> Sequence[wire.UserMessage]:
        """The user's messages that the thread does not hold yet, in order.

        Some clients resend their history under new ids with every request. So what was answered there, and is in the
        thread in the same words, is not new either (rulings, 13: an id identifies nothing alone).
        """
        new, answered = fresh(messages, known), opening(messages)[0]
        if not any(each in answered for each in new):
            return new
        events = await self._engine.past.events(live, 0)
        stored = [_heard(logged) for logged in events if live.state.shows(logged.seq)]
        said = {core.text_of(each.content) for each in stored if each is not None}
        return [each for each in new if each not in answered or words_of(each.content) not in said]

    async def _branch(
        self, ask: Ask, live: LiveSession, known: dict[str, int], *, is_fresh: bool, taking: Taking
    ) -> int | None:
        """The event of a user's message before which the request goes on from, when it opens a branch.

        It does so with a new text for the newest message, with a message whose run failed, and, when it names a
        `parentRunId`, with a history that ends earlier than ours.
        """
        run, last = ask.run, last_user(ask.run.messages)
        if is_fresh:
            held = [known[each.id] for each in run.messages if each.id in known]
            if run.parent_run_id is None or not held:
                return None
            return await self._user_after(live, max(held))
        if last is None or last.id not in known or run.resume:
            return None
        seq = known[last.id]
        is_end = run.messages[-1] is last
        if await self._user_after(live, seq) is None:
            stored = await self._stored(live, seq)
            is_edited = stored is not None and not is_same(last.content, stored.content, taking.spec)
            is_failed = is_end and live.state.last_stop in FAILED_STOPS and live.state.run is None
            if is_edited or is_failed:
                return seq
        return seq if is_end and run.parent_run_id is not None else None

    async def _user_after(self, live: LiveSession, seq: int) -> int | None:
        """The first message of the user's after an event, in the active branch."""
        for logged in await self._engine.past.events(live, seq):
            if _heard(logged) is not None and live.state.shows(logged.seq):
                return logged.seq
        return None

    async def _stored(self, live: LiveSession, seq: int) -> core.UserMessage | None:
        """The user's message that an event added, as it was sent."""
        for logged in await self._engine.past.events(live, seq - 1, seq):
            if isinstance(logged.event, MessageAdded) and isinstance(logged.event.message, core.UserMessage):
                session_id = live.state.session_id
                return (await self._engine.attachments.restored(session_id, (logged.event.message,)))[0]
        return None

    # --- other runs -----------------------------------------------------------------------------------------------

    async def _make_way(self, live: LiveSession) -> None:
        """End the active run if it is one of ours that nobody reads any more. Raises SessionBusy when it is not."""
        clock = asyncio.get_running_loop().time
        until = clock() + LEAVING_S
        while True:
            stopping = self._stopping.get(live.state.session_id)
            if stopping is not None:
                await asyncio.wait([stopping])
            active = live.state.run
            if active is None and not live.state.queue:
                return
            if active is None or active.door != DOOR or live.state.queue or clock() > until:
                raise SessionBusy("a run of this thread is active")
            if not await self._engine.stop_run(live, active.run_id, unwatched=True):
                await asyncio.sleep(LOOK_S)

    def _stop_left(self, live: LiveSession, run_id: RunId) -> None:
        """Stop a run whose client has left. The task lives here: the request's own is being cancelled."""
        session_id = live.state.session_id
        live.holds += 1

        def done(task: asyncio.Task[bool]) -> None:
            live.holds -= 1
            if self._stopping.get(session_id) is task:
                del self._stopping[session_id]
            if not task.cancelled() and (error := task.exception()) is not None:
                log.warning("a run could not be stopped", session_id=session_id, exc_info=error)

        task = asyncio.create_task(self._engine.stop_run(live, run_id, unwatched=True), name=f"stop {run_id}")
        self._stopping[session_id] = task
        task.add_done_callback(done)

    async def stop(self, caller: Principal, agent: Agent, thread_id: str, run_id: str | None) -> bool:
        """Stop the thread's run; only that of the given id, as its client or the core knows it.

        Raises:
            SessionNotFound, Forbidden: there is no such thread, or it is another's.
        """
        async with self._own(caller.user, thread_id, agent) as live:
            if run_id is None:
                return await self._engine.stop_run(live)
            active = live.state.run
            names = {} if active is None else {active.run_id: active.client_run_id}
            names |= {each.run_id: each.client_run_id for each in live.state.queue}
            found = next((own for own, name in names.items() if run_id in (own, name)), None)
            return found is not None and await self._engine.stop_run(live, found)

    # --- looking --------------------------------------------------------------------------------------------------

    async def connect(self, ask: Ask) -> Response:
        """The messages so far, what is open opened again, and the live rest of the active run."""
        async with self._own(ask.owner, ask.run.thread_id, ask.agent) as live:
            active = live.state.run
            if active is None:
                return await self._as_it_stands(ask, live)
            await live.until_durable(active.started_seq)
            records = await self._engine.past.run_records(live, active.run_id, active.started_seq)
            translator = Translator(active.run_id, thread_id=ask.run.thread_id, shown_run_id=ask.run.run_id)
            told_so_far = [event for record in records for event in translator.feed(record)]
            if translator.is_over or not records:
                return await self._as_it_stands(ask, live)
            cursor = cursor_of(records[-1])
            before = [
                *told_so_far[:1],
                *await self._snapshots(live, cursor.seq),
                *reopened(told_so_far),
            ]
            release = self._admit_stream(ask.caller)
            try:
                reader = self._engine.follow(live, cursor)
                frames = RunFrames(translator, ask.generation)
                shown = b"".join(map(frame, suited(before, ask.generation)))
                return await open_stream(RunSource(reader, frames, before=shown, closed=lambda _: release()))
            except BaseException:
                release()
                raise

    async def events(self, caller: Principal, agent: Agent, thread_id: str, position: Position | None) -> Response:
        """All that the thread's runs tell, strictly after a position, then live."""
        async with self._own(caller.user, thread_id, agent) as live:
            if position is not None and position.cursor.seq > live.durable.seq:
                raise InvalidCursor("Last-Event-ID lies in the future of this thread")
            after = Cursor(0) if position is None else await self._run_before(live, position)
            release = self._admit_stream(caller)
            try:
                reader = self._engine.follow(live, after, ends_on_drain=True)
                frames = ThreadFrames(thread_id, "1.0", position)
                return await open_stream(RunSource(reader, frames, closed=lambda _: release()))
            except BaseException:
                release()
                raise

    async def _run_before(self, live: LiveSession, position: Position) -> Cursor:
        """Where the run that holds a position begins."""
        async for page in self._engine.past.newest_events(live, position.cursor.seq + 1):
            for logged in reversed(page):
                if isinstance(logged.event, RunStarted):
                    return Cursor(logged.seq - 1)
        return Cursor(0)

    async def _as_it_stands(self, ask: Ask, live: LiveSession, unknown: tuple[str, ...] = ()) -> Response:
        """The whole thread, without a run: what a client needs that comes back to it."""
        started = told_events.RunStarted(thread_id=ask.run.thread_id, run_id=ask.run.run_id, protocol_version=VERSION)
        await live.until_durable(live.state.seq)
        snapshots = await self._snapshots(live, live.durable.seq)
        return told(*suited([started, *snapshots, self._end(ask, live, unknown)], ask.generation))

    def _ended(self, ask: Ask, live: LiveSession) -> Response:
        """A run that is over as soon as it begins: its answers were taken, and others are still needed."""
        started = told_events.RunStarted(thread_id=ask.run.thread_id, run_id=ask.run.run_id, protocol_version=VERSION)
        return told(*suited([started, self._end(ask, live)], ask.generation))

    def _end(self, ask: Ask, live: LiveSession, unknown: tuple[str, ...] = ()) -> told_events.RunFinished:
        outcome, metadata = outcome_of(() if is_busy(live.state) else waiting(live.state))
        return told_events.RunFinished(
            metadata=metadata_of(unknown_interrupts=unknown) if unknown else metadata,
            thread_id=ask.run.thread_id,
            run_id=ask.run.run_id,
            outcome=outcome,
        )

    async def _snapshots(self, live: LiveSession, up_to: int) -> list[told_events.Event]:
        """The complete messages of the active branch up to an event, and the state, if there is one."""
        transcript = Transcript()
        state: core.Json = msgspec.UNSET
        for logged in await self._engine.past.events(live, 0, up_to):
            if isinstance(logged.event, RunStarted) and logged.event.door == DOOR:
                state = logged.event.props.get("state", msgspec.UNSET)  # which a client sends anew with every run
            elif isinstance(logged.event, StateShared):
                state = logged.event.state
            if live.state.shows(logged.seq):
                transcript.feed(await self._restored(live, logged))
        found: list[told_events.Event] = [told_events.MessagesSnapshot(messages=transcript.messages())]
        if state is not msgspec.UNSET:
            found.append(told_events.StateSnapshot(snapshot=state))
        return found

    async def _restored(self, live: LiveSession, logged: Logged) -> Logged:
        """An event with the pictures that are kept beside the log."""
        if not isinstance(logged.event, MessageAdded):
            return logged
        message = logged.event.message
        (whole,) = await self._engine.attachments.restored(live.state.session_id, (message,))
        return logged if whole is message else msgspec.structs.replace(logged, event=MessageAdded(message=whole))

    # --- finding --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _thread(self, owner: UserId, thread_id: str, agent: Agent) -> AsyncIterator[LiveSession]:
        """A thread of that owner and agent, held in memory. Raises SessionNotFound, AgentFixed."""
        async with self._engine.session(owner, thread_id) as live:
            _check_agent(live, agent)
            yield live

    @asynccontextmanager
    async def _own(self, owner: UserId, thread_id: str, agent: Agent) -> AsyncIterator[LiveSession]:
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
        if session_id is not None and await self._engine.is_foreign(owner, session_id):
            raise Forbidden("this thread is another user's")


def _check_agent(live: LiveSession, agent: Agent) -> None:
    if live.state.agent != agent.spec.name:
        raise AgentFixed(f"this thread's agent is {live.state.agent!r} and cannot change")


def _heard(logged: Logged) -> core.UserMessage | None:
    """The user's message that an event adds to the conversation, if it is one that does."""
    message = logged.event.message if isinstance(logged.event, MessageAdded) else None
    return message if isinstance(message, core.UserMessage) and message.loop == ROOT else None
