"""Threads as AG-UI clients use them: run, connect, stop, read events. One thread is one session.

`decision` says what a run request does; this module carries it out. A run is stopped when its client disconnects,
unless somebody else reads it.
Source: specification of AG-UI, B.8 to B.11; shared rules, 1 to 4, 9, 10.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256

import msgspec
import structlog
from starlette.responses import Response

from dragoman.core import content as core
from dragoman.core.admission import is_busy
from dragoman.core.branches import shown_events
from dragoman.core.ids import RunId, parse_session_id
from dragoman.core.inputs import Create, DisconnectPolicy
from dragoman.core.principal import Principal
from dragoman.core.refusals import InvalidCursor, SessionNotFound
from dragoman.core.resent_history import answered_length, failed_stop
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.session import shared_state_in
from dragoman.core.stream import Cursor, cursor_of
from dragoman.engine.abandoned_runs import AbandonedRuns
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.agui import decision
from dragoman.protocols.agui import events as agui_events
from dragoman.protocols.agui.content import Message, UserMessage
from dragoman.protocols.agui.downgrade import ClientVersion, downgrade_events
from dragoman.protocols.agui.messages import Transcript, metadata_of
from dragoman.protocols.agui.request_mapping import CLOSED_CALLS, seeds_of
from dragoman.protocols.agui.streams import (
    Position,
    RunEncoder,
    ThreadEncoder,
    complete_stream,
    encode_frame,
    reopen_events,
)
from dragoman.protocols.agui.translate import PROTOCOL, VERSION, Translator, outcome_of
from dragoman.protocols.agui.wire import RunInput
from dragoman.protocols.kit.access import AdmitStream
from dragoman.protocols.kit.error_paths import paths_in_request
from dragoman.protocols.kit.named_sessions import find_of_agent, find_or_create
from dragoman.protocols.kit.runs import SessionStreams

log = structlog.get_logger(__name__)


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run request: who asks which agent for what. The agent of an old thread may no longer be served."""

    principal: Principal
    agent: str
    run: RunInput
    fingerprint: str
    client_version: ClientVersion
    policy: DisconnectPolicy
    is_complete: bool = False
    """The client says that it sends all messages that it shows."""


class Threads:
    """The threads of an engine."""

    def __init__(self, engine: Engine, admit_stream: AdmitStream) -> None:
        self._engine = engine
        self._streams = SessionStreams(engine, admit_stream)
        self._abandoned = AbandonedRuns(engine, PROTOCOL)

    # --- running --------------------------------------------------------------------------------------------------

    async def run(self, request: RunRequest) -> Response:
        """Answer a run request."""
        session, is_new = await find_or_create(
            lambda: self._find(request.principal, request.agent, request.run.thread_id), lambda: self._create(request)
        )
        async with self._engine.first_request(session, is_new=is_new):
            return await self._run_in_thread(request, session)

    async def _create(self, request: RunRequest) -> SessionView:
        """A new thread that begins with the history that its client holds.

        If there is none, what the request asks for is decided without the thread's log, so a run can follow at once.
        """
        messages, spec = request.run.messages, self._engine.agent(request.agent).spec
        length = answered_length(decision.sent_messages(request.run, spec))
        if length == len(messages):
            raise SessionNotFound("a thread begins with a user message")
        session_id = parse_session_id(request.run.thread_id)
        seeds = seeds_of(messages[:length], self._engine.ids.new)
        create = Create(
            protocol=PROTOCOL,
            agent=spec.name,
            tools="all",
            seeds=tuple(seeds.values()),
            session_id=session_id,
            name=None if session_id is not None else request.run.thread_id,
        )
        with paths_in_request(messages=seeds):
            return await self._engine.create(request.principal.user, create, run_follows=not seeds)

    async def _run_in_thread(self, request: RunRequest, session: SessionView) -> Response:
        run, owner = request.run, request.principal.user
        name = f"{PROTOCOL}:{session.state.session_id}:{run.run_id}"
        if run.resume:  # CopilotKit answers an interrupt with the ID of the run that it ended: decision 43
            answered = "\n".join(sorted(each.interrupt_id for each in run.resume))
            name = f"{name}:{sha256(answered.encode()).hexdigest()}"
        key = IdempotencyKey(name, request.fingerprint, lasts=True)
        message_ids = [each.id for each in run.messages]
        async with self._engine.reserve_key_with_messages(owner, key, session, message_ids) as (earlier, known):
            await self._abandoned.until_stopped(session)
            if earlier is not None:
                row = await self._engine.find_run_of(earlier)
                if row is None:  # it was accepted without starting a run
                    return self._closed_stream(request, session)
                started = await self._engine.history.run_start(session, row.first_seq)
                first_seq = row.first_seq - (0 if started is None else _closed_calls(started.metadata))
                return await self._follow_run(request, session, row.run_id, first_seq, is_new=False)
            if self._engine.spec_for(session) is None and not run.messages and not run.resume:
                return await self._join(request, session)
            spec = self._engine.agent_for(session).spec
            sent = decision.sent_messages(run, spec)
            history = await self._engine.history.compare(session, sent, known, is_complete=request.is_complete)
            decide = partial(decision.decide, run, sent, history)
            while isinstance(decided := decide(), decision.StopActiveRun):
                await self._abandoned.stop_active(session)
            match decided:
                case decision.ShowSnapshot(unknown_interrupts=unknown):
                    return await self._snapshot_response(request, session, unknown)
                case decision.Join():
                    return await self._join(request, session)
                case decision.StartRun(submit=submit, branch=branch):
                    submitted = await self._engine.start_run(
                        session, submit, by=owner, idempotency_key=key, branch=branch
                    )
                    if submitted.run_id is None:
                        await session.until_durable(submitted.seq)
                        return self._closed_stream(request, session)
                    first_seq = submitted.seq - _closed_calls(submit.metadata)
                    # The first records are read while the key is reserved: durable with them is that it was used.
                    return await self._follow_run(request, session, submitted.run_id, first_seq, is_new=True)

    async def _follow_run(
        self, request: RunRequest, session: SessionView, run_id: RunId, first_seq: int, *, is_new: bool
    ) -> Response:
        translator = Translator(run_id, thread_id=request.run.thread_id, client_run_id=request.run.run_id)
        encoder = RunEncoder(translator, request.client_version, question=_up_to_question(request.run.messages))
        on_close = self._abandoned.on_close(session, run_id) if is_new and request.policy == "cancel" else None
        after = Cursor(first_seq - 1)
        return await self._streams.open(
            request.principal, session, after, encoder, is_new_run=is_new, on_close=on_close
        )

    # --- stopping -------------------------------------------------------------------------------------------------

    async def stop(self, principal: Principal, agent: str, thread_id: str, run_id: str | None) -> bool:
        """Stop the thread's active run and what is queued after it, or one run, named by its client's id or ours.

        Returns:
            Whether there was a run to stop.

        Raises:
            SessionNotFound, Forbidden: there is no such thread, or it is another user's.
        """
        async with self._thread(principal, agent, thread_id) as session:
            if run_id is None:
                return await self._engine.stop_run(session)
            for each in (session.state.run, *session.state.queue):
                if each is not None and run_id in (each.run_id, each.client_run_id):
                    return await self._engine.stop_run(session, each.run_id)
            return False

    # --- reading --------------------------------------------------------------------------------------------------

    async def connect(self, request: RunRequest) -> Response:
        """Answer a request to join a thread."""
        async with self._thread(request.principal, request.agent, request.run.thread_id) as session:
            return await self._join(request, session)

    async def _join(self, request: RunRequest, session: SessionView) -> Response:
        """Stream the messages so far, reopen what is open, and continue with the active run, if there is one."""
        active = session.state.run
        if active is None:
            return await self._snapshot_response(request, session)
        await session.until_durable(active.started_seq)
        records = await self._engine.history.run_records(session, active.run_id, active.started_seq)
        translator = Translator(active.run_id, thread_id=request.run.thread_id, client_run_id=request.run.run_id)
        so_far = [event for record in records for event in translator.feed(record)]
        if translator.is_over or not records:
            return await self._snapshot_response(request, session)
        cursor = cursor_of(records[-1])
        snapshots, shown = await self._snapshots(session, cursor.seq)
        preamble = [*so_far[:1], *snapshots, *reopen_events(so_far), *shown]
        before = b"".join(map(encode_frame, downgrade_events(preamble, request.client_version)))
        encoder = RunEncoder(translator, request.client_version)
        return await self._streams.open(request.principal, session, cursor, encoder, before=before)

    async def events(self, principal: Principal, agent: str, thread_id: str, position: Position | None) -> Response:
        """Stream the events of all runs of a thread, strictly after a position, then live."""
        async with self._thread(principal, agent, thread_id) as session:
            if position is not None and position.cursor.seq > session.durable_cursor.seq:
                raise InvalidCursor("Last-Event-ID is beyond the end of this thread")
            first_seq = 0  # of the run that the position is in
            if position is not None:
                started_seq = await self._engine.history.run_start_before(session, position.cursor.seq)
                first_seq = await self._engine.history.run_beginning(session, started_seq)
            after, encoder = Cursor(max(0, first_seq - 1)), ThreadEncoder(thread_id, position)
            share = (thread_id, position)
            return await self._streams.open(
                principal, session, after, encoder, share=share, before=b"", ends_on_drain=True
            )

    async def _snapshot_response(
        self, request: RunRequest, session: SessionView, unknown_interrupts: tuple[str, ...] = ()
    ) -> Response:
        """The whole thread without a run, for a client that comes back to it."""
        await session.until_durable(session.state.seq)
        snapshots, shown = await self._snapshots(session, session.durable_cursor.seq)
        return self._closed_stream(request, session, [*snapshots, *shown], unknown_interrupts)

    def _closed_stream(
        self,
        request: RunRequest,
        session: SessionView,
        snapshots: Sequence[agui_events.Event] = (),
        unknown_interrupts: tuple[str, ...] = (),
    ) -> Response:
        """A stream that runs nothing: it starts, shows the snapshots, and ends with what the thread waits for."""
        thread_id, run_id = request.run.thread_id, request.run.run_id
        outcome, metadata = outcome_of(() if is_busy(session.state) else session.state.waiting_calls())
        reason = failed_stop(session.state) if snapshots else None
        remarks = {"stopReason": reason, "unknownInterrupts": unknown_interrupts}
        if any(remarks.values()):
            metadata = metadata_of(**{name: value for name, value in remarks.items() if value})
        events: list[agui_events.Event] = [
            agui_events.RunStarted(thread_id=thread_id, run_id=run_id, protocol_version=VERSION),
            *snapshots,
            agui_events.RunFinished(thread_id=thread_id, run_id=run_id, outcome=outcome, metadata=metadata),
        ]
        return complete_stream(downgrade_events(events, request.client_version))

    async def _snapshots(
        self, session: SessionView, up_to: int
    ) -> tuple[list[agui_events.Event], Sequence[agui_events.Event]]:
        """The active branch up to an event: its messages and state, and what its answers show beside their texts."""
        transcript = Transcript()
        state: core.Json = msgspec.UNSET
        events = await self._engine.history.events(session, 0, up_to)
        for logged in events:
            newer = shared_state_in(logged.event)
            state = state if newer is msgspec.UNSET else newer
        for logged in shown_events(events, session.state.hidden_ranges):
            transcript.feed(await self._engine.attachments.restore_event(session.state.session_id, logged))
        snapshots: list[agui_events.Event] = [agui_events.MessagesSnapshot(messages=transcript.messages())]
        if state is not msgspec.UNSET:
            snapshots.append(agui_events.StateSnapshot(snapshot=state))
        return snapshots, transcript.shown_beside()

    # --- looking up -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _thread(self, principal: Principal, agent: str, thread_id: str) -> AsyncIterator[SessionView]:
        """An existing thread of that user and agent, kept in memory. Raises like `_find`."""
        session = await self._find(principal, agent, thread_id)
        with self._engine.lease(session):
            yield session

    async def _find(self, principal: Principal, agent: str, thread_id: str) -> SessionView:
        """An existing thread of that user and agent. Raises as `find_of_agent`."""
        return await find_of_agent(self._engine, principal.user, thread_id, agent, noun="thread", reveals_foreign=True)


def _closed_calls(metadata: RunMetadata) -> int:
    """How many events before the start of a run may be results of calls that its message closed."""
    return msgspec.convert(metadata.protocol.get(CLOSED_CALLS, 0), int)


def _up_to_question(messages: Sequence[Message]) -> Sequence[Message]:
    """A client's history up to its last user message."""
    for length in range(len(messages), 0, -1):
        if isinstance(messages[length - 1], UserMessage):
            return messages[:length]
    return ()
