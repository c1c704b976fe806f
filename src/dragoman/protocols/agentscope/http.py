"""The door of the Agent API: authenticate, decode, call the engine, encode, stream. Thin; the rules are in the core.

The order of the checks: key, path and method, content type and size, JSON, the protocol's rules, the agent's name, an
id that was used before, the session and its user, a running response, the answers. All of it is an HTTP status; once
a stream has begun, it ends with one terminal response.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.core.events import LoggedEvent
from dragoman.core.ids import RunId
from dragoman.core.refusals import (
    InvalidCursor,
    NotFound,
    Refused,
    SessionNotFound,
)
from dragoman.engine.engine import Engine
from dragoman.engine.instrumentation.metrics import REQUESTS_FAILED, REQUESTS_REFUSED
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.agentscope import errors, inputs, tasks, translate, wire
from dragoman.protocols.agentscope.errors import ErrorResponse
from dragoman.protocols.agentscope.paths import PUBLIC_PATHS, stop_path
from dragoman.protocols.agentscope.runs import RunHandle, RunRequest, Runs, with_session_name
from dragoman.protocols.agentscope.streams import open_stream, reader_of, response_events, wait_for_response
from dragoman.protocols.agentscope.tasks import Deadlines
from dragoman.protocols.agentscope.translate import ResponseEvents
from dragoman.protocols.kit.http import (
    STREAM_HEADERS,
    Admit,
    Authenticate,
    BodyTooLarge,
    BodyTooSlow,
    MethodNotAllowed,
    UnsupportedMediaType,
    address_of,
    admit_all,
    json_response,
    log_failure,
    principal_of,
    read_body,
    require_json,
)

SERVICE = "Dragoman"
MODE = "standalone"
"""The package's word for a server in a process of its own."""


class AgentScopeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The door's settings."""

    path: str = "/process"
    body_limit: int = 16 * 1024 * 1024


ReadinessProbe = Callable[[], Awaitable[str]]
"""`ready`, or in a word why not."""


async def always_ready() -> str:
    """The state of a server that does not tell it."""
    return "ready"


def app(
    engine: Engine,
    authenticate: Authenticate,
    options: AgentScopeOptions,
    *,
    admit_stream: Admit = admit_all,
    state: ReadinessProbe = always_ready,
) -> ASGIApp:
    """The protocol as an ASGI application. It looks at whole paths, because it has some at the root."""
    return _App(_Handlers(engine, options, admit_stream, state), authenticate, options.path)


Handler = Callable[[Request], Awaitable[Response]]


class TaskNotFound(Exception):
    """There is no such task for this caller."""


class _App:
    """Every request passes here: who sends it, what answers it, and what is said when it fails."""

    def __init__(self, handlers: "_Handlers", authenticate: Authenticate, path: str) -> None:
        self._handlers = handlers
        self._authenticate = authenticate
        self._path_prefix = f"{path}/"
        self._fixed_routes: Mapping[str, tuple[str, Handler]] = {
            path: ("POST", handlers.process),
            f"{path}/task": ("POST", handlers.submit_task),
            stop_path(path): ("POST", handlers.stop),
            "/": ("GET", handlers.service),
            "/health": ("GET", handlers.health),
            "/readiness": ("GET", handlers.readiness),
            "/liveness": ("GET", handlers.liveness),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._dispatch(scope, receive)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  # a request's root: every failure gets its answer
            told = _error_response(error)
            if told.status == 500:
                REQUESTS_FAILED.labels(protocol=inputs.PROTOCOL).inc()
            else:
                code = msgspec.convert(told.body["error"], dict[str, str])["code"]
                REQUESTS_REFUSED.labels(protocol=inputs.PROTOCOL, code=code).inc()
            response = json_response(told.body, told.status, told.headers)
        await response(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive) -> Response:
        path: str = scope["path"]
        path = path[len(scope.get("root_path", "")) :]
        path = path.rstrip("/") or "/"
        request = Request(scope, receive)
        method = "GET" if request.method == "HEAD" else request.method
        if path not in PUBLIC_PATHS:
            principal = self._authenticate(request.headers.get("authorization"), address_of(scope))
            principal.require("read" if method == "GET" else "use")
            scope["principal"] = principal
        allowed, handler, name = self._route(path)
        if method != allowed:
            raise MethodNotAllowed((allowed,))
        scope["name"] = name
        return await handler(request)

    def _route(self, path: str) -> tuple[str, Handler, str]:
        """The method that a path takes, what answers there, and the id that the path holds."""
        found = self._fixed_routes.get(path)
        if found is not None:
            return *found, ""
        door = self._handlers
        kind, _, name = (
            path.removeprefix(self._path_prefix).partition("/") if path.startswith(self._path_prefix) else ("", "", "")
        )
        stem = name.removesuffix("/events")
        match kind, stem != name:
            case "task", False if name:
                return "GET", door.task, name
            case "responses", False if name:
                return "GET", door.response, name
            case "responses", True if stem:
                return "GET", door.response_events, stem
            case "sessions", True if stem:
                return "GET", door.session_events, stem
        raise NotFound("there is nothing at this path")


def _error_response(error: Exception) -> ErrorResponse:
    match error:
        case TaskNotFound():
            return errors.error_response(404, "TASK_NOT_FOUND", str(error))
        case Refused():
            return errors.to_response(error)
        case BodyTooLarge():
            return errors.error_response(413, "BODY_TOO_LARGE", str(error), headers={"Connection": "close"})
        case BodyTooSlow():
            return errors.error_response(408, "BODY_TOO_SLOW", str(error), headers={"Connection": "close"})
        case UnsupportedMediaType():
            return errors.error_response(415, "UNSUPPORTED_MEDIA_TYPE", str(error))
        case wire.InvalidJson():
            return errors.error_response(400, "INVALID_JSON", str(error))
        case MethodNotAllowed(allowed=allowed):
            return errors.error_response(405, "METHOD_NOT_ALLOWED", str(error), headers={"Allow": ", ".join(allowed)})
        case _:
            reference = log_failure(error)
            return errors.error_response(500, "INTERNAL_ERROR", f"the server failed; reference {reference}")


class _Handlers:
    def __init__(self, engine: Engine, options: AgentScopeOptions, admit_stream: Admit, state: ReadinessProbe) -> None:
        self._engine = engine
        self._options = options
        self._runs = Runs(engine)
        self._admit_stream = admit_stream
        self._state = state
        self._deadlines = Deadlines(engine)
        self._deadlines.resume()

    # --- open pages -----------------------------------------------------------------------------------------------

    async def service(self, request: Request) -> Response:
        path = self._options.path
        endpoints = {
            "process": path,
            "stop": stop_path(path),
            "task": f"{path}/task",
            "task_status": f"{path}/task/{{task_id}}",
            "response": f"{path}/responses/{{response_id}}",
            "response_events": f"{path}/responses/{{response_id}}/events",
            "session_events": f"{path}/sessions/{{session_id}}/events",
            "health": "/health",
            "readiness": "/readiness",
            "liveness": "/liveness",
        }
        return json_response({"service": SERVICE, "mode": MODE, "endpoints": endpoints})

    async def health(self, request: Request) -> Response:
        state = await self._state()
        return json_response(
            {"status": "healthy", "mode": MODE, "runner": "ready" if state == "ready" else "not_ready"}
        )

    async def readiness(self, request: Request) -> Response:
        state = await self._state()
        return json_response({"status": state}) if state == "ready" else _unavailable_response(state)

    async def liveness(self, request: Request) -> Response:
        state = await self._state()
        if state in ("starting", "draining", "drained"):
            return _unavailable_response(state)
        return json_response({"status": "alive"})

    # --- runs -----------------------------------------------------------------------------------------------------

    async def process(self, request: Request) -> Response:
        asked = wire.decode_request(await self._body(request))
        noted = inputs.RunMetadata(
            response_id=asked.request.client_response_id,
            omits_deltas=not asked.request.stream,
            heartbeat=asked.request.heartbeat,
        )
        is_stream = asked.request.stream or "text/event-stream" in request.headers.get("accept", "").lower()
        async with AsyncExitStack() as held:
            begun = await self._runs.begin(held, RunRequest(principal_of(request), asked, noted))
            live, run_id = begun.live, begun.run_id
            if run_id is None:
                await live.until_durable(begun.first_seq)
                noted = with_session_name(noted, live, asked.request.session_id)
                return self._acknowledge(live, noted, is_stream=is_stream)
            follow = self._admit_stream if begun.is_existing else admit_all
            release = follow(principal_of(request))
            try:
                events = await response_events(
                    self._engine, live, run_id, begun.first_seq, may_begin_with_answers=begun.may_begin_with_answers
                )
                reader = reader_of(self._engine, live, begun.first_seq)
                if is_stream:
                    return await open_stream(reader, events, self._engine.clock, release)
                with reader:
                    answer = json_response(await wait_for_response(reader, events, self._engine.clock))
            except BaseException:
                release()
                raise
            release()
            return answer

    def _acknowledge(self, live: SessionView, run_metadata: inputs.RunMetadata, *, is_stream: bool) -> Response:
        """A response without a run: the answers so far are kept, and the run goes on with the last (rulings, 20)."""
        events = ResponseEvents(RunId(self._engine.ids.new()), live.state.session_id)
        frames = events.acknowledge(run_metadata, self._engine.clock.now())
        if is_stream:
            return Response(frames, headers={name.decode(): value.decode() for name, value in STREAM_HEADERS})
        return json_response(events.response)

    async def stop(self, request: Request) -> Response:
        body = wire.decode_stop(await self._body(request))
        owner = principal_of(request).user
        try:
            async with AsyncExitStack() as held:
                if body.response_id:
                    found = await self._runs.find(held, owner, body.response_id)
                    return json_response(
                        wire.StopResponse(canceled=await self._engine.stop_run(found.live, found.run_id))
                    )
                live = await held.enter_async_context(self._engine.session(owner, body.session_id or ""))
                return json_response(wire.StopResponse(canceled=await self._engine.stop_run(live)))
        except NotFound:
            return json_response(wire.StopResponse(canceled=False))

    async def submit_task(self, request: Request) -> Response:
        asked = wire.decode_task(await self._body(request))
        deadline = None
        if asked.timeout_s is not None:
            deadline = self._engine.clock.now() + timedelta(seconds=asked.timeout_s)
        noted = inputs.RunMetadata(
            response_id=asked.request.client_response_id,
            omits_deltas=not asked.request.stream,
            is_task=True,
            deadline=deadline,
        )
        async with AsyncExitStack() as held:
            begun = await self._runs.begin(held, RunRequest(principal_of(request), asked, noted))
            live, run_id = begun.live, begun.run_id
            assert run_id is not None, "a task that leaves calls open is refused"
            await live.until_durable(begun.first_seq)
            if deadline is not None:
                self._deadlines.schedule_stop(live, run_id, deadline)
            session_id = asked.request.session_id or live.state.session_id
            return json_response(
                tasks.task_submitted(run_id, noted.response_id or translate.response_id(run_id), session_id)
            )

    # --- looking back ---------------------------------------------------------------------------------------------

    async def task(self, request: Request) -> Response:
        task_id: str = request.scope["name"]
        async with AsyncExitStack() as held:
            try:
                begun = await self._runs.find_by_run_id(held, principal_of(request).user, task_id)
            except NotFound:
                begun = None
            events = None if begun is None else await self._runs.events_so_far(begun)
            if events is None or not events.run_metadata.is_task:
                raise TaskNotFound("there is no such task")
            return json_response(tasks.task_state(task_id, events))

    async def response(self, request: Request) -> Response:
        async with AsyncExitStack() as held:
            begun = await self._runs.find(held, principal_of(request).user, request.scope["name"])
            events = await self._runs.events_so_far(begun)
            if events.response is not None:
                return json_response(events.response)
            [queued] = await self._engine.history.events(begun.live, begun.first_seq - 1, begun.first_seq)
            assert begun.run_id is not None, "it was found"
            return json_response(_queued_response(begun.live, begun.run_id, queued))

    async def response_events(self, request: Request) -> Response:
        async with AsyncExitStack() as held:
            begun = await self._runs.find(held, principal_of(request).user, request.scope["name"])
            return await self._replay(request, begun, _position(request) + 1)

    async def session_events(self, request: Request) -> Response:
        async with AsyncExitStack() as held:
            try:
                live = await held.enter_async_context(
                    self._engine.session(principal_of(request).user, request.scope["name"])
                )
            except SessionNotFound:
                return Response(status_code=204)
            run_id = live.state.last_run
            if run_id is None:
                return Response(status_code=204)
            return await self._replay(
                request, RunHandle(live, run_id, live.state.last_run_seq, may_begin_with_answers=True), 0
            )

    async def _replay(self, request: Request, handle: RunHandle, skip: int) -> Response:
        """A run's events from a position on, and then live."""
        live, run_id, first = handle.live, handle.run_id, handle.first_seq
        assert run_id is not None, "it was found"
        release = self._admit_stream(principal_of(request))
        try:
            if skip:
                told = await self._runs.events_so_far(handle)
                if told.count < skip:
                    raise InvalidCursor(f"this response has {told.count} events so far, not {skip}")
            events = await response_events(self._engine, live, run_id, first, skip=skip)
            return await open_stream(reader_of(self._engine, live, first), events, self._engine.clock, release)
        except BaseException:
            release()
            raise

    async def _body(self, request: Request) -> bytes:
        require_json(request)
        return await read_body(request, self._options.body_limit)


# --- small things -------------------------------------------------------------------------------------------------


def _position(request: Request) -> int:
    """The number of the last event that a client has seen; -1 when it has seen none. Raises InvalidCursor."""
    given = request.query_params.get("after", request.headers.get("last-event-id", "-1")) or "-1"
    number = given.removeprefix("-") if given == "-1" else given
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise InvalidCursor("after is the sequence_number of an event of this response")
    return int(given)


def _queued_response(live: SessionView, run_id: RunId, queued: LoggedEvent) -> wire.AgentResponse:
    """A response whose run waits for the one before it."""
    return wire.AgentResponse(
        status="queued",
        id=translate.response_id(run_id),
        created_at=int(queued.at.timestamp()),
        session_id=live.state.session_id,
    )


def _unavailable_response(state: str) -> Response:
    return json_response({"status": state}, 503, {"Retry-After": "1"})
