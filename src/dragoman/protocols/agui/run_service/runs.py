"""Runs over the run service: submit one, follow its events, answer its calls, cancel it.

Source: seed 002; the run service's specification, A.3 to A.5; shared rules, 4, 10, 22.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.events import RunQueued, RunStarted, RunStopped
from dragoman.core.ids import RunId, SessionId, parse_session_id
from dragoman.core.inputs import Create
from dragoman.core.principal import Principal
from dragoman.core.refusals import AgentNotChangeable, Forbidden, LimitReached, RunNotFound, SessionNotFound
from dragoman.core.stream import Cursor
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.view import SessionLease, SessionView
from dragoman.ports.log import RunLocation
from dragoman.protocols.agui.run_service import rules, translate, wire
from dragoman.protocols.agui.run_service.errors import FORWARDED_PROPS_MESSAGE, Problem, parse_thread
from dragoman.protocols.agui.run_service.files import Files
from dragoman.protocols.agui.run_service.rules import RuleContext, RuleViolation
from dragoman.protocols.agui.run_service.streams import ThreadEncoder
from dragoman.protocols.kit.access import AdmitStream
from dragoman.protocols.kit.app import principal_of
from dragoman.protocols.kit.body import read_json_body
from dragoman.protocols.kit.decoding import parse_query_number
from dragoman.protocols.kit.endpoints import LAST_EVENT_ID, Handlers, endpoint, query
from dragoman.protocols.kit.errors import BodyTooLarge
from dragoman.protocols.kit.frames import KEEP_ALIVE
from dragoman.protocols.kit.named_sessions import find_or_create
from dragoman.protocols.kit.runs import SessionStreams, find_run_in

DEFAULT_AGENT_TYPE = "worker"
"""The agent type that stands for the default agent (shared rules, 4)."""
EVENTS_PER_READ = 200


class RunHandlers(Handlers):
    """Handles the routes below `/runs`."""

    def __init__(self, engine: Engine, files: Files, admit_stream: AdmitStream, answers_limit: int) -> None:
        self._engine = engine
        self._files = files
        self._streams = SessionStreams(engine, admit_stream)
        self._answers_limit = answers_limit

    # --- submitting -----------------------------------------------------------------------------------------------

    @endpoint(
        "POST",
        "/runs",
        status=202,
        body=wire.RunAgentInput,
        example={
            "threadId": "550e8400-e29b-41d4-a716-446655440000",
            "runId": "run-001",
            "messages": [{"id": "msg-001", "role": "user", "content": "Hello!"}],
            "forwardedProps": {"agent_type": "worker"},
        },
        returns="The run was accepted, by this or an earlier request.",
        errors={409: "The runId was used with another body."},
    )
    async def submit(self, request: Request) -> wire.TaskAccepted:
        """Submit a run.

        The agent works in the background. The message is durable when the response is sent.
        """
        try:
            raw = await read_json_body(request, rules.BODY_LIMIT)
        except BodyTooLarge:
            raise RuleViolation(rules.SIZE_RULE) from None
        caller, body = principal_of(request), rules.decode_run(raw)
        thread = parse_session_id(body.thread_id)
        if thread is None or len(body.run_id) > rules.RUN_ID_LIMIT:
            await self._check(caller, thread, body)
        assert thread is not None, "the rules demand an id"
        name = _key_name(thread, body.run_id)
        earlier = await self._engine.find_idempotency_record(caller.user, name)
        fingerprint = _fingerprint(raw, self._files.unsigned_links(body))
        if earlier is not None and earlier.fingerprint == _fingerprint(raw, {}):
            fingerprint = earlier.fingerprint  # earlier releases compared the links, too
        key = IdempotencyKey(name, fingerprint, lasts=True)
        if earlier is None or earlier.fingerprint != fingerprint:
            await self._check(caller, thread, body)  # a repeated one was checked before; its links may have expired
        async with self._engine.reserve_key(caller.user, key) as record:
            if record is None:
                run_id, created = await self._start(caller, thread, body, key)
            else:
                assert record.run_id is not None, "a submitted run has an id"
                run_id, created = record.run_id, False
            return wire.TaskAccepted(task_id=run_id, thread_id=thread, run_id=body.run_id, created=created)

    async def _check(self, caller: Principal, thread: SessionId | None, body: wire.RunAgentInput) -> None:
        """Check a body. Raises RuleViolation, or AgentNotServed if it names its thread's agent, which is gone."""
        try:
            context = RuleContext(
                is_agent=lambda agent_type: self._engine.find_spec(self._agent_name(agent_type)) is not None,
                is_link=lambda url: self._files.path_of(caller.user, url) is not None,
            )
            rules.check(body, context)
        except RuleViolation as violation:
            if thread is None or violation.rule.name != "agent-type":
                raise
            with suppress(SessionNotFound, Forbidden):
                async with self._engine.session(caller.user, thread, reveals_foreign=True) as session:
                    if session.state.agent == rules.agent_type_of(body):
                        self._engine.agent_for(session)
            raise

    async def _start(
        self, caller: Principal, thread: SessionId, body: wire.RunAgentInput, key: IdempotencyKey
    ) -> tuple[RunId, bool]:
        """Start or queue a run, durably. Returns it, and whether its thread is new: there was none."""
        owner, agent = caller.user, self._engine.agent(self._agent_name(rules.agent_type_of(body))).spec.name
        create = Create(protocol=translate.PROTOCOL, agent=agent, session_id=thread, tools="all")
        session, created = await find_or_create(
            lambda: self._engine.find_session(owner, thread, reveals_foreign=True),
            lambda: self._engine.create(owner, create, run_follows=True),
        )
        async with self._engine.first_request(session, is_new=created):
            self._engine.agent_for(session)  # a thread whose agent is no longer served takes no runs
            if session.state.agent != agent:
                raise AgentNotChangeable(FORWARDED_PROPS_MESSAGE)
            submit = translate.submit_from(body, session.state, lambda url: self._files.path_of(owner, url) or "")
            submitted = await self._engine.start_run(session, submit, by=owner, busy="queue", idempotency_key=key)
            await session.until_durable(submitted.seq)
            assert submitted.run_id is not None, "a message always starts or queues a run"
            return submitted.run_id, created

    def _agent_name(self, agent_type: str) -> str:
        """The name or alias of the agent that a type stands for, which need not be served."""
        is_default = agent_type == DEFAULT_AGENT_TYPE and self._engine.find_spec(agent_type) is None
        return self._engine.default_agent if is_default else agent_type

    # --- answering and cancelling ---------------------------------------------------------------------------------

    @endpoint(
        "POST",
        "/runs/{thread_id}/answers",
        status=202,
        body=wire.Answers,
        example={"answers": [{"callId": "0198a1b2-0000-7000-8000-000000000001", "granted": True}]},
        errors={409: "A run is active, or the call already has its result.", 413: "The body is too large."},
    )
    async def answer(self, request: Request) -> wire.AnswersAccepted:
        """Answer calls that wait.

        Each answer is accepted once. With the last one, the agent continues.
        """
        async with self._thread(request) as session:
            body = wire.decode_answers(await read_json_body(request, self._answers_limit))
            answers = translate.answers_from(body, session.state)
            asking = await self._engine.history.run_start(session, session.state.last_run_seq)
            submit = translate.submit_answers(answers, asking)
            submitted = await self._engine.start_run(session, submit, by=session.state.owner)
            await session.until_durable(submitted.seq)
            run_id = submitted.run_id or session.state.last_run or RunId("")
            pending = () if submitted.run_id else tuple(call.call.call_id for call in session.state.waiting_calls())
            return wire.AnswersAccepted(
                task_id=run_id,
                thread_id=session.state.session_id,
                run_id=run_id if submitted.run_id or asking is None else asking.client_run_id or run_id,
                pending=pending,
            )

    @endpoint(
        "POST",
        "/runs/{thread_id}/cancel",
        status=202,
        parameters=(query("runId", "A run, by its client's id.", is_required=True),),
    )
    async def cancel(self, request: Request) -> wire.CancelResponse:
        """Stop a run."""
        async with self._thread(request) as session:
            thread, run_id = thread_of_path(request), _run_in_query(request)
            if run_id is None:
                raise Problem(422, "AGENT_INVALID_RUN_ID", "runId is required")
            row = await self._find_run(session, thread, run_id)
            accepted = await self._engine.stop_run(session, row.run_id)
            return wire.CancelResponse(thread_id=thread, run_id=run_id, accepted=accepted)

    @endpoint(
        "GET", "/runs/{thread_id}", parameters=(query("runId", "A run, by its client's id; by default the newest."),)
    )
    async def status(self, request: Request) -> wire.RunStatus:
        """Show what became of a run."""
        thread, run_id = thread_of_path(request), _run_in_query(request)
        async with self._thread(request) as session:
            if run_id is None and not session.state.last_run_seq:
                raise RunNotFound("this thread has no run yet")
            row = None if run_id is None else await self._find_run(session, thread, run_id)
            first_seq = session.state.last_run_seq if row is None else row.first_seq
            await session.until_durable(session.state.seq)
            begun, stopped = await self._run_ends(session, first_seq)
            return translate.run_status(begun, stopped, session.state)

    async def _run_ends(self, session: SessionView, first_seq: int) -> tuple[RunQueued | RunStarted, RunStopped | None]:
        """The last event that began the run that is the subject of event `first_seq`, and the one that ended it."""
        begun: RunQueued | RunStarted | None = None
        after = first_seq - 1
        while page := await self._engine.history.events(session, after, after + EVENTS_PER_READ):
            for event in (logged.event for logged in page):
                if isinstance(event, RunStarted | RunQueued) and (begun is None or event.run_id == begun.run_id):
                    begun = event
                elif isinstance(event, RunStopped) and begun is not None and event.run_id == begun.run_id:
                    return begun, event
            after = page[-1].seq
        assert begun is not None, "a run's first event begins it"
        return begun, None

    # --- following ------------------------------------------------------------------------------------------------

    @endpoint(
        "GET",
        "/runs/{thread_id}/events",
        parameters=(
            LAST_EVENT_ID,
            query("idle_limit", "Seconds of silence after which the stream ends; 300 by default.", int),
            query("runId", "A run, by its client's id."),
        ),
        streams="AG-UI events.",
    )
    async def events(self, request: Request) -> Response:
        """Follow a thread's events."""
        caller, thread = principal_of(request), thread_of_path(request)
        async with self._thread(request) as session:
            idle_limit_s = parse_query_number(request.query_params, "idle_limit", wire.IDLE_DEFAULT, wire.IDLE_HIGHEST)
            only, after = _run_in_query(request), _last_event_id(request)
            row = None if only is None else await self._find_run(session, thread, only)
            start = await self._stream_start(session, row, after)
            calls = await self._engine.history.calls_before(session, start.seq + 1)
            if calls:  # the run's message may have closed them
                start = Cursor(await self._engine.history.run_beginning(session, start.seq + 1) - 1)
            shown = {call_id: each for call_id, each in calls.items() if translate.is_shown(each)}
            only_run_id = None if row is None else row.run_id
            encoder = ThreadEncoder(session.state.session_id, only_run_id, after or wire.START_EVENT_ID, shown)
            try:
                return await self._streams.open(
                    caller, session, start, encoder, before=KEEP_ALIVE, ends_on_drain=True, idle_limit_s=idle_limit_s
                )
            except LimitReached as error:
                headers = {"Retry-After": str(error.retry_after_s)}
                raise Problem(429, "AGENT_SSE_CONNECTION_LIMIT", str(error), headers=headers) from error

    async def _stream_start(self, session: SessionView, row: RunLocation | None, after: wire.EventId | None) -> Cursor:
        """Where reading begins: at the start of a run, so that it is known what the run has open."""
        if row is not None:
            await session.until_durable(row.first_seq)
            return Cursor(row.first_seq - 1)
        if after is None:
            newest = session.state.last_run_seq
            await session.until_durable(newest)
            return Cursor(newest - 1 if newest else session.state.seq)
        seq = min(after.seq, session.durable_cursor.seq)
        run_start = await self._engine.history.run_start_before(session, seq, only_active=True)
        return Cursor(run_start - 1 if run_start else seq)

    def _thread(self, request: Request) -> SessionLease:
        """The thread in a request's path, in `async with`. Raises Problem, SessionNotFound or Forbidden."""
        return self._engine.session(principal_of(request).user, thread_of_path(request), reveals_foreign=True)

    async def _find_run(self, session: SessionView, thread: SessionId, name: str) -> RunLocation:
        """A run by the id that its events show, which is its client's, or by its task's id.

        A run that this service started comes first. Of several others with the same id, such as a run and the answer
        that CopilotKit sends under its id, the newest is returned.

        Raises:
            RunNotFound: there is none.
        """
        record = await self._engine.find_idempotency_record(session.state.owner, _key_name(thread, name))
        row = await self._engine.find_run_of(record) or await find_run_in(self._engine, session, RunId(name))
        if row is None and (run_id := await self._engine.history.find_client_run(session, name)) is not None:
            row = await find_run_in(self._engine, session, run_id)
        if row is None:
            raise RunNotFound("this thread has no such run")
        return row


# --- threads ----------------------------------------------------------------------------------------------------------


def thread_of_path(request: Request) -> SessionId:
    """The thread in a request's path. Raises Problem if it is not a UUID."""
    return parse_thread(request.path_params["thread_id"])


def _fingerprint(raw: bytes, unsigned_links: Mapping[str, str]) -> str:
    """The same for equal bodies. A new link to the same object changes nothing."""
    canonical = wire.canonical_json(raw)
    for link, path in unsigned_links.items():
        canonical = canonical.replace(msgspec.json.encode(link), msgspec.json.encode(path))
    return hashlib.sha256(canonical).hexdigest()


def _key_name(thread: SessionId, run_id: str) -> str:
    return f"{translate.PROTOCOL}:{thread}:{run_id}"


def _run_in_query(request: Request) -> str | None:
    run_id = request.query_params.get("runId", request.query_params.get("run_id"))
    if run_id is not None and not 1 <= len(run_id) <= rules.RUN_ID_LIMIT:
        raise Problem(422, "AGENT_INVALID_RUN_ID", f"runId must have 1 to {rules.RUN_ID_LIMIT} characters")
    return run_id


def _last_event_id(request: Request) -> wire.EventId | None:
    """The client's position. The header wins over the query."""
    text = request.headers.get("last-event-id", request.query_params.get("Last-Event-ID"))
    position = None if text is None else wire.parse_event_id(text)
    if text is not None and position is None:
        message = "Last-Event-ID must be the id of an event, such as 12-0"
        raise Problem(422, "AGENT_INVALID_LAST_EVENT_ID", message)
    return position
