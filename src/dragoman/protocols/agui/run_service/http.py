"""The door of the run service: authenticate, decode, call the engine, encode, stream. Thin; the rules are a table.

Source: seed 002; the run service's specification, A.1 to A.7; rulings, 2 to 4, 6, 10, 22.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import date
from functools import partial

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.core.events import LoggedEvent, RunStarted
from dragoman.core.ids import RunId, SessionId, parse_session_id
from dragoman.core.inputs import Create, Submit
from dragoman.core.principal import Principal
from dragoman.core.refusals import (
    AgentNotFound,
    IdTaken,
    InvalidCursor,
    LimitReached,
    Refused,
    RunNotFound,
    SessionNotFound,
)
from dragoman.core.stream import Cursor
from dragoman.engine.engine import Engine
from dragoman.engine.instrumentation.metrics import REQUESTS_FAILED, REQUESTS_REFUSED
from dragoman.engine.runs.submissions import BusyPolicy, SubmitResult
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.services.profiles import ProfileService
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.log import RunLocation
from dragoman.protocols.agui.run_service import history as days
from dragoman.protocols.agui.run_service import rules, translate, wire
from dragoman.protocols.agui.run_service.errors import (
    FORBIDDEN_CODE,
    FOREIGN_OWNER_MESSAGE,
    MEDIA_TYPE,
    ErrorResponse,
    Problem,
    to_response,
)
from dragoman.protocols.agui.run_service.files import Files, read_upload, thread_of
from dragoman.protocols.agui.run_service.links import CONTENT_PATH
from dragoman.protocols.agui.run_service.rules import INPUT_INVALID, RuleContext, RuleViolation
from dragoman.protocols.agui.run_service.streams import open_stream
from dragoman.protocols.agui.run_service.wire import InvalidBody
from dragoman.protocols.kit.http import (
    Admit,
    Authenticate,
    BodyTooLarge,
    BodyTooSlow,
    UnsupportedMediaType,
    address_of,
    log_failure,
    principal_of,
    read_body,
    require_json,
)
from dragoman.protocols.kit.http import json_response as answer

WORKER = "worker"
"""The agent type that stands for the default agent (rulings, 4)."""
CONTENT_PATH_PARTS = tuple(CONTENT_PATH.split("/"))
ATTEMPTS = 3
"""How often a thread is looked for that others make or delete at the same moment."""


def app(
    engine: Engine,
    authenticate: Authenticate,
    files: Files,
    profiles: ProfileService,
    *,
    admit_stream: Admit,
    answers_limit: int,
) -> ASGIApp:
    """The service as an ASGI application, to be mounted anywhere.

    Args:
        engine: what runs, and holds the threads.
        authenticate: who sends a request.
        files: uploads, links and recordings.
        profiles: the users' settings.
        admit_stream: counts open streams.
        answers_limit: bytes of a body with answers, which can hold a tool's results.
    """
    door = _Handlers(engine, files, profiles, admit_stream, answers_limit)
    return _App(door.routes(), files, authenticate)


Handler = Callable[[Request], Awaitable[Response]]
Routes = Mapping[tuple[str | None, ...], Mapping[str, Handler]]
"""What answers to a path and a method. None stands for a thread's id."""


class _App:
    """Every request passes here: who sends it, what answers it, and what is said when it fails."""

    def __init__(self, routes: Routes, files: Files, authenticate: Authenticate) -> None:
        self._routes = routes
        self._files = files
        self._authenticate = authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._dispatch(scope, receive)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  # a request's root: every failure gets its answer
            told = _error_response(error)
            if told.status == 500:
                REQUESTS_FAILED.labels(protocol="runs").inc()
            else:
                REQUESTS_REFUSED.labels(protocol="runs", code=str(told.body["code"])).inc()
            response = answer(told.body, told.status, told.headers)
            response.headers["content-type"] = MEDIA_TYPE
        await response(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive) -> Response:
        path: str = scope["path"]
        parts = tuple(path[len(scope.get("root_path", "")) :].strip("/").split("/"))
        method: str = scope["method"]
        request = Request(scope, receive)
        if parts[: len(CONTENT_PATH_PARTS)] == CONTENT_PATH_PARTS and method in ("GET", "HEAD"):
            return await self._files.content(request)
        principal = self._authenticate(request.headers.get("authorization"), address_of(scope))
        principal.require("read" if method in ("GET", "HEAD") else "use")
        scope["principal"] = principal
        methods = self._routes.get(parts)
        if methods is None and len(parts) > 1:
            methods = self._routes.get((parts[0], None, *parts[2:]))
            scope["thread"] = parts[1]
        if methods is None:
            raise Problem(404, "AGENT_NOT_FOUND", "there is nothing at this path")
        handler = methods.get("GET" if method == "HEAD" else method)
        if handler is None:
            allowed = ", ".join(methods)
            raise Problem(405, "AGENT_METHOD_NOT_ALLOWED", f"this path takes {allowed}", {"Allow": allowed})
        return await handler(request)


def _error_response(error: Exception) -> ErrorResponse:
    match error:
        case Refused() | RuleViolation() | InvalidBody() | Problem():
            return to_response(error)
        case BodyTooLarge():
            return to_response(Problem(413, INPUT_INVALID, str(error), {"Connection": "close"}))
        case BodyTooSlow():
            return to_response(Problem(408, INPUT_INVALID, str(error), {"Connection": "close"}))
        case UnsupportedMediaType():
            return to_response(Problem(415, INPUT_INVALID, str(error)))
        case _:
            reference = log_failure(error)
            return to_response(Problem(500, "AGENT_INTERNAL", f"the server failed; reference {reference}"))


class _Handlers:
    def __init__(
        self,
        engine: Engine,
        files: Files,
        profiles: ProfileService,
        admit_stream: Admit,
        answers_limit: int,
    ) -> None:
        self._engine = engine
        self._files = files
        self._profiles = profiles
        self._admit_stream = admit_stream
        self._answers_limit = answers_limit

    def routes(self) -> Routes:
        return {
            ("runs",): {"POST": self.post_run},
            ("runs", None, "events"): {"GET": self.events},
            ("runs", None, "cancel"): {"POST": self.cancel},
            ("runs", None, "answers"): {"POST": self.post_answers},
            ("history",): {"GET": self.history},
            ("sessions", None): {"DELETE": self.delete},
            ("attachments",): {"GET": self.uploads, "POST": self.upload, "DELETE": self.remove_upload},
            ("attachments", "signed-url"): {"GET": self.signed_url},
            ("transcribe",): {"POST": self._files.transcribe},
            ("profile",): {"GET": self.profile, "PATCH": self.patch_profile},
        }

    # --- runs -----------------------------------------------------------------------------------------------------

    async def post_run(self, request: Request) -> Response:
        require_json(request)
        try:
            raw = await read_body(request, rules.BODY_LIMIT)
        except BodyTooLarge:
            raise RuleViolation(rules.SIZE_RULE) from None
        caller, body = principal_of(request), rules.decode_run(raw)
        thread = parse_session_id(body.thread_id)
        world = RuleContext(self._is_agent, lambda url: self._files.path_of(caller.user, url) is not None)
        if thread is None or len(body.run_id) > rules.RUN_ID_LIMIT:
            rules.check(body, world)
        assert thread is not None, "the rules ask for an id"
        key = IdempotencyKey(
            _idempotency_key_name(thread, body.run_id), hashlib.sha256(wire.canonical_json(raw)).hexdigest(), lasts=True
        )
        async with self._reserve_run_id(caller, key, body, world) as earlier:
            if earlier is not None:
                return _accepted_response(earlier, thread, body.run_id, created=False)
            run_id, created = await self._begin(caller, thread, body, key)
            return _accepted_response(run_id, thread, body.run_id, created=created)

    @asynccontextmanager
    async def _reserve_run_id(
        self, caller: Principal, key: IdempotencyKey, body: wire.RunAgentInput, world: RuleContext
    ) -> AsyncIterator[RunId | None]:
        """Hold the run's id; gives the run that the same request started before.

        A repeated request was checked when it came first: its links may have expired since.
        """
        earlier = await self._engine.find_idempotency_record(caller.user, key.name)
        if earlier is None or earlier.fingerprint != key.fingerprint:
            rules.check(body, world)
        async with self._engine.reserve_key(caller.user, key) as once:
            yield None if once is None else once.run_id

    async def _begin(
        self, caller: Principal, thread: SessionId, body: wire.RunAgentInput, key: IdempotencyKey
    ) -> tuple[RunId, bool]:
        """Start the run, or queue it, on its thread, which is made if need be. Durable when this returns."""
        agent, created = self._agent(rules.agent_type_of(body)), False
        for _ in range(ATTEMPTS):
            try:
                async with self._thread(caller, thread) as live:
                    return await self._submit(caller, live, agent, body, key, created), created
            except SessionNotFound:
                create = Create(protocol=translate.PROTOCOL, agent=agent, session_id=thread, tools="all")
                try:
                    await self._engine.create(caller.user, create)
                    created = True
                except IdTaken:
                    created = False  # somebody was quicker: it is there now
        raise SessionNotFound("the thread is being deleted")

    async def _submit(
        self,
        caller: Principal,
        live: SessionView,
        agent: str,
        body: wire.RunAgentInput,
        key: IdempotencyKey,
        created: bool,
    ) -> RunId:
        if live.state.agent != agent:
            raise Problem(422, INPUT_INVALID, rules.FORWARDED_PROPS_MESSAGE)
        path_of = partial(self._files.path_of, caller.user)
        try:
            submit = translate.submit_from(body, live.state, lambda url: path_of(url) or "")
            submitted = await self._start_run(caller, live, submit, busy="queue", idempotency_key=key)
        except Refused:
            if created and live.state.last_run is None and not live.state.queue:
                await self._engine.delete(live)  # what is refused leaves nothing behind
            raise
        assert submitted.run_id is not None, "a message always starts or queues a run"
        return submitted.run_id

    async def _start_run(
        self,
        caller: Principal,
        live: SessionView,
        submit: Submit,
        *,
        busy: BusyPolicy = "refuse",
        idempotency_key: IdempotencyKey | None = None,
    ) -> SubmitResult:
        """Start or queue a run. Durable when this returns."""
        submitted = await self._engine.start_run(
            live, submit, by=caller.user, busy=busy, idempotency_key=idempotency_key
        )
        await live.until_durable(submitted.seq)
        return submitted

    async def post_answers(self, request: Request) -> Response:
        require_json(request)
        caller = principal_of(request)
        async with self._thread(caller, _thread_in_path(request)) as live:
            answers = translate.answers_from(wire.decode_answers(await read_body(request, self._answers_limit)))
            asked = await self._run_start_at(live, live.state.last_run_seq)
            submit = Submit(
                protocol=translate.PROTOCOL,
                answers=answers,
                client_tools=() if asked is None else asked.client_tools,
                parameters={} if asked is None else asked.parameters,
                metadata={} if asked is None else translate.continued_metadata(asked.metadata),
            )
            submitted = await self._start_run(caller, live, submit)
            run_id = submitted.run_id or live.state.last_run or RunId("")
            pending = () if submitted.run_id else tuple(call.call.call_id for call in live.state.pending_root_calls())
            accepted = wire.AnswersAccepted(
                task_id=run_id,
                thread_id=live.state.session_id,
                run_id=run_id if submitted.run_id or asked is None else asked.client_run_id or run_id,
                pending=pending,
            )
            return answer(accepted, 202)

    async def _run_start_at(self, live: SessionView, seq: int) -> RunStarted | None:
        """The start of the run that event `seq` is."""
        if not seq:
            return None
        await live.until_durable(seq)
        event = (await self._engine.history.events(live, seq - 1, seq))[0].event
        return event if isinstance(event, RunStarted) else None

    async def cancel(self, request: Request) -> Response:
        caller, thread = principal_of(request), _thread_in_path(request)
        async with self._thread(caller, thread) as live:
            run_id = _run_in_query(request)
            if run_id is None:
                raise Problem(422, "AGENT_INVALID_RUN_ID", "runId is required")
            row = await self._run(live, thread, run_id)
            accepted = await self._engine.stop_run(live, row.run_id)
            return answer(wire.CancelResponse(thread_id=thread, run_id=run_id, accepted=accepted), 202)

    async def events(self, request: Request) -> Response:
        caller, thread = principal_of(request), _thread_in_path(request)
        async with self._thread(caller, thread) as live:
            idle = wire.parse_idle_limit(request.query_params.get("idle_limit", str(wire.IDLE_DEFAULT)))
            if idle is None:
                raise Problem(422, INPUT_INVALID, "idle_limit must be an integer from 1 to 3600")
            only, after = _run_in_query(request), _last_event_id(request)
            try:
                release = self._admit_stream(caller)
            except LimitReached as error:
                headers = {"Retry-After": str(error.retry_after_s)}
                raise Problem(429, "AGENT_SSE_CONNECTION_LIMIT", str(error), headers) from error
            try:
                row = None if only is None else await self._run(live, thread, only)
                start = await self._position(live, row, after)
                told = translate.ThreadEvents(
                    live.state.session_id,
                    only_run_id=None if row is None else row.run_id,
                    after=after or wire.START_EVENT_ID,
                    calls=await self._open_calls_before(live, start),
                )
                return open_stream(self._engine.follow(live, start, ends_on_drain=True), told, idle, release)
            except BaseException:
                release()
                raise

    async def _position(self, live: SessionView, row: RunLocation | None, after: wire.EventId | None) -> Cursor:
        """Where reading has to begin: at the start of a run, so that what is open in it is known."""
        if row is not None:
            await live.until_durable(row.first_seq)
            return Cursor(row.first_seq - 1)
        if after is None:
            newest = live.state.last_run_seq
            await live.until_durable(newest)
            return Cursor(newest - 1 if newest else live.state.seq)
        seq = min(after.seq, live.durable_cursor.seq)
        async for page in self._engine.history.newest_events(live, seq + 1):
            if (begun := translate.active_run_start(page)) is not None:
                return Cursor(begun - 1 if begun else seq)
        return Cursor(seq)

    async def _open_calls_before(self, live: SessionView, start: Cursor) -> translate.Calls:
        """The calls that wait for an answer where reading begins."""
        found = translate.OpenCallFinder()
        async for page in self._engine.history.newest_events(live, start.seq + 1):
            if found.feed(page):
                break
        return found.calls

    async def _run(self, live: SessionView, thread: SessionId, name: str) -> RunLocation:
        """A run of the thread, as its client names it, through whichever door, or by its task's id."""
        owner, session_id = live.state.owner, live.state.session_id
        for key in (_idempotency_key_name(thread, name), f"ag-ui:{session_id}:{name}"):
            row = await self._engine.find_run_of(await self._engine.find_idempotency_record(owner, key))
            if row is not None:
                return row
        row = await self._engine.history.run_row(owner, RunId(name))
        if row is None or row.session_id != session_id:
            raise RunNotFound("this thread has no such run")
        return row

    # --- threads --------------------------------------------------------------------------------------------------

    async def history(self, request: Request) -> Response:
        caller = principal_of(request)
        before, named = request.query_params.get("before"), request.query_params.get("threadId")
        day = None if before is None else wire.parse_day(before)
        if before is not None and day is None:
            raise Problem(422, INPUT_INVALID, "before must be a date such as 2026-03-15")
        if named is None:
            newest = await self._engine.page(caller.user, None, 1)
            if not newest:
                return answer(wire.History(thread_id=None, day=None, has_more=False, messages=()))
            thread = newest[0].session_id
        else:
            thread = _thread_id(named)
        async with self._thread(caller, thread) as live:
            return answer(await self._history(request, live, day))

    async def _history(self, request: Request, live: SessionView, before: date | None) -> wire.History:
        state = live.state
        seq, found = state.seq, days.DayFinder(state.message_count, before, state.is_visible)
        await live.until_durable(seq)
        async for page in self._engine.history.newest_events(live, seq + 1):
            if found.feed(page):
                break
        shown = found.messages(await self._run_start_of(live, found.first))
        return wire.History(
            thread_id=state.session_id,
            day=found.day,
            has_more=found.has_more,
            messages=tuple([await self._history_message(request, live, message) for message in shown]),
        )

    async def _history_message(
        self, request: Request, live: SessionView, message: days.HistoryEntry
    ) -> wire.HistoryMessage:
        restored = await self._engine.attachments.restore(live.state.session_id, [message.message], with_uploads=False)
        return days.history_message(message._replace(message=restored[0]), lambda path: self._files.link(request, path))

    async def _run_start_of(self, live: SessionView, first: LoggedEvent | None) -> RunStarted | None:
        """The start of the run to which an event belongs."""
        row = None if first is None or first.run_id is None else await self._engine.index.find_run(first.run_id)
        return None if row is None else await self._run_start_at(live, row.first_seq)

    async def delete(self, request: Request) -> Response:
        caller, thread = principal_of(request), _thread_in_path(request)
        try:
            async with self._thread(caller, thread) as live:
                await self._engine.delete(live)
        except SessionNotFound:  # it is gone already, or never was: then there may be pictures for it
            await self._files.forget(caller.user, thread)
        return Response(status_code=204)

    # --- files and the profile ------------------------------------------------------------------------------------

    async def upload(self, request: Request) -> Response:
        caller, parts = principal_of(request), await read_upload(request)
        thread = thread_of(parts)
        if thread is not None:
            try:
                async with self._thread(caller, thread):
                    pass
            except SessionNotFound:
                pass  # pictures come before the thread's first run
        return await self._files.upload(request, caller.user, parts)

    async def uploads(self, request: Request) -> Response:
        return await self._files.list_uploads(request, principal_of(request).user)

    async def remove_upload(self, request: Request) -> Response:
        return await self._files.remove(request, principal_of(request).user)

    async def signed_url(self, request: Request) -> Response:
        return self._files.signed_url(request, principal_of(request).user)

    async def profile(self, request: Request) -> Response:
        return self._profile(request)

    async def patch_profile(self, request: Request) -> Response:
        require_json(request)
        given = wire.decode_profile(await read_body(request, rules.BODY_LIMIT)).settings
        settings = {"time_zone": given.timezone, "locale": given.locale}
        changed = {name: value for name, value in settings.items() if value is not msgspec.UNSET}
        await self._profiles.change(principal_of(request).user, **changed)
        return self._profile(request)

    def _profile(self, request: Request) -> Response:
        profile = self._profiles.for_user(principal_of(request).user)
        settings = wire.ProfileSettings(timezone=profile.time_zone, locale=profile.locale)
        return answer(wire.ProfileResponse(user_id=profile.user, settings=settings))

    # --- inside ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _thread(self, caller: Principal, thread: SessionId) -> AsyncIterator[SessionView]:
        """The caller's thread. Raises SessionNotFound, and says 403 when it is another user's."""
        try:
            async with self._engine.session(caller.user, thread) as live:
                yield live
        except SessionNotFound:
            if await self._engine.exists_for_other_owner(caller.user, thread):
                raise Problem(403, FORBIDDEN_CODE, FOREIGN_OWNER_MESSAGE) from None
            raise

    def _agent(self, agent_type: str) -> str:
        """The name of the agent that a type means."""
        try:
            return self._engine.agent(agent_type).spec.name
        except AgentNotFound:
            if agent_type != WORKER:
                raise
            return self._engine.agent(self._engine.default_agent).spec.name

    def _is_agent(self, agent_type: str) -> bool:
        try:
            self._agent(agent_type)
        except AgentNotFound:
            return False
        return True


# --- small things -----------------------------------------------------------------------------------------------------


def _idempotency_key_name(thread: SessionId, run_id: str) -> str:
    return f"runs:{thread}:{run_id}"


def _accepted_response(task: RunId | None, thread: SessionId, run_id: str, *, created: bool) -> Response:
    assert task is not None, "a run's record names its run"
    return answer(wire.TaskAccepted(task_id=task, thread_id=thread, run_id=run_id, created=created), 202)


def _thread_in_path(request: Request) -> SessionId:
    return _thread_id(request.scope["thread"])


def _thread_id(text: str) -> SessionId:
    thread = parse_session_id(text)
    if thread is None:
        raise Problem(422, "AGENT_SESSION_ID_INVALID", "threadId must be a valid UUID")
    return thread


def _run_in_query(request: Request) -> str | None:
    run_id = request.query_params.get("runId")
    if run_id is not None and not 1 <= len(run_id) <= rules.RUN_ID_LIMIT:
        raise Problem(422, "AGENT_INVALID_RUN_ID", "runId has 1 to 128 characters")
    return run_id


def _last_event_id(request: Request) -> wire.EventId | None:
    """The position that the client has reached; the header wins over the query."""
    given = request.headers.get("last-event-id")
    if given is None:
        given = request.query_params.get("Last-Event-ID")
    if given is None:
        return None
    position = wire.parse_event_id(given)
    if position is None:
        raise InvalidCursor("Last-Event-ID is an event's id, such as 12-0")
    return position
