"""The HTTP routes of the Agent API: they decode requests, call the engine, and encode or stream responses.

The order of the checks: key, path and method, content type and size, JSON, the protocol's rules, the agent's name, a
repeated id, the session and its user, a running response, the answers. Each of them fails with an HTTP status. Once a
stream has begun, it ends with one terminal response.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.principal import Principal
from dragoman.core.refusals import InvalidCursor, NotFound, SessionNotFound
from dragoman.engine.deadlines import Deadlines
from dragoman.engine.engine import Engine
from dragoman.protocols.agentscope import inputs, translate, wire
from dragoman.protocols.agentscope.errors import ERROR_TABLE, TaskNotFound
from dragoman.protocols.agentscope.paths import endpoints, stop_path
from dragoman.protocols.agentscope.runs import RunRequest, Runs
from dragoman.protocols.agentscope.translate import ResponseEvents, task_state
from dragoman.protocols.kit import openapi
from dragoman.protocols.kit.access import AccessControl, AdmitStream
from dragoman.protocols.kit.app import ProtocolApp
from dragoman.protocols.kit.body import json_response, read_json_body
from dragoman.protocols.kit.decoding import parse_whole_number
from dragoman.protocols.kit.endpoints import ApiDescription, Handlers, endpoint, query, request_header
from dragoman.protocols.kit.errors import ErrorResponse, path_steps
from dragoman.protocols.kit.frame_encoder import FrameEncoder
from dragoman.protocols.kit.openapi import BODY_ERRORS, ResponseSpec
from dragoman.protocols.kit.runs import RunHandle, SessionStreams
from dragoman.protocols.kit.sse import fixed_stream

QUEUE = "dragoman"
"""The name of the only queue of tasks. The protocol requires one."""
MAX_POSITION = 999_999_999
MODE = "standalone"
"""The package's term for a server in a separate process."""


class AgentScopeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the protocol.

    Args:
        is_strict_model: a `model` that names no agent is refused.
    """

    path: str = "/process"
    body_limit: int = 16 * 1024 * 1024
    is_strict_model: bool = False


ReadinessProbe = Callable[[], Awaitable[str]]
"""Returns `ready`, or the state that keeps the server from being ready."""


def app(
    engine: Engine,
    access: AccessControl,
    options: AgentScopeOptions,
    *,
    state: ReadinessProbe,
) -> ProtocolApp:
    """The protocol as an ASGI application. Some of its paths are at the root, so it expects whole paths."""
    handlers = _Handlers(engine, options, access.admit_stream, state)
    routes = [each._replace(path=_configured(f"/{each.path}", options.path)[1:]) for each in handlers.routes()]
    return ProtocolApp(inputs.PROTOCOL, routes, ERROR_TABLE, access, write_error=_write_error)


_EXAMPLE = {"input": [{"role": "user", "type": "message", "content": [{"type": "text", "text": "Hello!"}]}]}
_STREAM = "server-sent events without names: responses, messages and contents, to the terminal response"
_RUN_ERRORS = {
    404: "there is no such agent",
    409: "a response of the session is running, nothing waits for this answer, or the id belongs to another request",
}
_STATE = ResponseSpec(description="its state", body=dict[str, str])


def _configured(path: str, process: str) -> str:
    """A handler's path with the configured one in place of `/process`."""
    if path == "/stop":
        return stop_path(process)
    return process + path.removeprefix("/process") if path.startswith("/process") else path


class Service(msgspec.Struct, frozen=True):
    """The service and its paths."""

    service: str
    mode: str
    endpoints: dict[str, str]


class Detail(msgspec.Struct, frozen=True):
    """A wrong field."""

    loc: list[str | int]
    msg: str


class AgentScopeError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of every error."""

    error: wire.Error
    detail: list[Detail] | None = None


class _Handlers(Handlers):
    """The handlers. Ids that clients choose may contain slashes."""

    def __init__(
        self, engine: Engine, options: AgentScopeOptions, admit_stream: AdmitStream, state: ReadinessProbe
    ) -> None:
        self._engine = engine
        self._options = options
        self._runs = Runs(engine, is_strict_model=options.is_strict_model)
        self._streams = SessionStreams(engine, admit_stream)
        self._state = state
        self._deadlines = Deadlines(engine, lambda *run: inputs.read_response_options(*run).deadline)

    # --- public pages ---------------------------------------------------------------------------------------------

    @endpoint("GET", "/", is_open=True)
    async def service(self) -> Service:
        """List the paths of the service."""
        return Service("Dragoman", MODE, endpoints(self._options.path))

    @endpoint("GET", "/health", is_open=True)
    async def health(self) -> dict[str, str]:
        """Get the health of the service."""
        runner = "ready" if await self._state() == "ready" else "not_ready"
        return {"status": "healthy", "mode": MODE, "runner": runner}

    @endpoint("GET", "/readiness", is_open=True, other={503: _STATE})
    async def readiness(self) -> dict[str, str] | Response:
        """Get the readiness of the service."""
        state = await self._state()
        return {"status": state} if state == "ready" else _unavailable_response(state)

    @endpoint("GET", "/liveness", is_open=True, other={503: _STATE})
    async def liveness(self) -> dict[str, str] | Response:
        """Get the liveness of the service."""
        state = await self._state()
        is_alive = state not in ("starting", "draining", "drained")
        return {"status": "alive"} if is_alive else _unavailable_response(state)

    # --- running --------------------------------------------------------------------------------------------------

    @endpoint(
        "POST",
        "/process",
        body=wire.AgentRequest,
        example=_EXAMPLE,
        returns="the terminal response, whatever its status",
        streams=_STREAM,
        errors=_RUN_ERRORS,
    )
    async def process(self, request: Request, principal: Principal) -> wire.AgentResponse | Response:
        """Run an agent and get its response.

        The run continues if the client disconnects; its events can be replayed.
        """
        parsed = wire.decode_request(await read_json_body(request, self._options.body_limit))
        options = inputs.response_options(parsed.request)
        accepts_stream = "text/event-stream" in request.headers.get("accept", "").lower()
        is_stream = parsed.request.stream or accepts_stream
        async with self._runs.start(RunRequest(principal.user, parsed, options)) as handle:
            if not handle.first_seq:
                state = handle.session.state
                events = ResponseEvents(handle.run_id, state.session_id, state.agent)
                frames = events.acknowledge(options, self._engine.clock.now())
                if is_stream:
                    return fixed_stream(frames)
                assert events.response is not None, "it was acknowledged"
                return events.response
            events = await self._runs.response_events(handle)
            session, after, is_new = handle.session, handle.before, handle.is_new
            if is_stream:
                return await self._streams.open(principal, session, after, events, is_new_run=is_new)
            await self._streams.read(request, session, after, events, is_new_run=is_new)
            if events.response is None:
                raise SessionNotFound("the session was deleted")
            return events.response

    @endpoint("POST", "/stop", body=wire.StopRequest, example={"session_id": "s-17"})
    async def stop(self, request: Request, principal: Principal) -> wire.StopResponse:
        """Cancel a running response."""
        body = wire.decode_stop(await read_json_body(request, self._options.body_limit))
        is_stopped = False
        with suppress(NotFound):
            if body.response_id:
                async with self._runs.find(principal.user, body.response_id) as handle:
                    is_stopped = await self._engine.stop_run(handle.session, handle.run_id)
            else:
                async with self._engine.session(principal.user, body.session_id or "") as session:
                    is_stopped = await self._engine.stop_run(session)
        return wire.StopResponse(canceled=is_stopped)

    @endpoint("POST", "/process/task", body=wire.TaskRequest, example={**_EXAMPLE, "timeout": 60}, errors=_RUN_ERRORS)
    async def submit_task(self, request: Request, principal: Principal) -> wire.TaskSubmitted:
        """Run an agent in the background."""
        parsed = wire.decode_task(await read_json_body(request, self._options.body_limit))
        timeout_s = parsed.timeout_s
        deadline = None if timeout_s is None else self._engine.clock.now() + timedelta(seconds=timeout_s)
        options = inputs.response_options(parsed.request, is_task=True, deadline=deadline)
        async with self._runs.start(RunRequest(principal.user, parsed, options)) as handle:
            assert handle.first_seq, "a task that leaves calls open is refused"
            await handle.session.until_durable(handle.first_seq)
            if deadline is not None:
                self._deadlines.schedule_stop(handle.session, handle.run_id, deadline)
            return wire.TaskSubmitted(
                task_id=handle.run_id,
                queue=QUEUE,
                message=f"Task {handle.run_id} submitted to queue {QUEUE}",
                response_id=options.response_id or translate.response_id(handle.run_id),
                session_id=options.session_id or handle.session.state.session_id,
            )

    # --- reading back ---------------------------------------------------------------------------------------------

    @endpoint("GET", "/process/task/{task_id:path}")
    async def task(self, principal: Principal, task_id: str) -> wire.TaskState:
        """Get a task."""
        events = None
        with suppress(NotFound):
            async with self._runs.find_by_run_id(principal.user, task_id) as handle:
                events = await self._runs.events_so_far(handle)
        if events is None or not events.options.is_task:
            raise TaskNotFound
        return task_state(task_id, events)

    @endpoint("GET", "/process/responses/{response_id:path}")
    async def response(self, principal: Principal, response_id: str) -> wire.AgentResponse:
        """Get a response."""
        async with self._runs.find(principal.user, response_id) as handle:
            events = await self._runs.events_so_far(handle)
            if events.response is not None:
                return events.response
            queued = await self._engine.history.event(handle.session, handle.first_seq)
            return events.new_response("queued", queued.at)

    @endpoint(
        "GET",
        "/process/responses/{response_id:path}/events",
        parameters=(
            query("after", "number of the last event received; -1: none", int),
            request_header("Last-Event-ID", "the same, if `after` is not given"),
        ),
        streams=_STREAM,
        errors={422: "the response has no event with this number"},
    )
    async def response_events(self, request: Request, principal: Principal, response_id: str) -> Response:
        """Replay a response's events and follow it."""
        async with self._runs.find(principal.user, response_id) as handle:
            return await self._replay(principal, handle, skip=_position(request) + 1)

    @endpoint(
        "GET",
        "/process/sessions/{session_id:path}/events",
        streams=_STREAM,
        other={204: ResponseSpec(description="the session has no response")},
    )
    async def session_events(self, principal: Principal, session_id: str) -> Response:
        """Replay a session's latest response and follow it."""
        with suppress(SessionNotFound):
            async with self._engine.session(principal.user, session_id) as session:
                state = session.state
                if state.last_run is not None:
                    return await self._replay(principal, RunHandle(session, state.last_run, state.last_run_seq))
        return Response(status_code=204)

    async def _replay(self, principal: Principal, handle: RunHandle, *, skip: int = 0) -> Response:
        """Stream a run's events from a position on, and then live."""
        events = await self._runs.response_events(handle, skip=skip)

        def check_position(played: FrameEncoder) -> None:
            assert isinstance(played, ResponseEvents), "the above"
            if played.count < skip:
                raise InvalidCursor(f"after={skip - 1}: this response has the events 0 to {played.count - 1} so far")

        session = handle.session
        share = (handle.run_id, handle.may_begin_with_answers, session.state.agent, skip)
        return await self._streams.resume(
            principal, session, handle.before, events, check_position=check_position, share=share
        )


def _position(request: Request) -> int:
    """The number of the last event that the client has received; -1 if none. Raises InvalidCursor."""
    position = request.query_params.get("after", request.headers.get("last-event-id", "-1")) or "-1"
    number = -1 if position == "-1" else parse_whole_number(position, 0, MAX_POSITION)
    if number is None:
        raise InvalidCursor("after must be the sequence_number of an event of this response")
    return number


def _write_error(error: ErrorResponse) -> Response:
    """Write an error with its code and message, and the path of the wrong field as FastAPI's errors have it."""
    detail = None
    if path := error.facts.get("path"):
        detail = [Detail(["body", *path_steps(str(path))], str(error.facts.get("message", error.message)))]
    body = AgentScopeError(error=wire.Error(error.code, error.message), detail=detail)
    return json_response(body, error.status, error.headers)


def _unavailable_response(state: str) -> Response:
    return json_response({"status": state}, 503, {"Retry-After": "1"})


_API = ApiDescription(
    "AgentScope Runtime",
    AgentScopeError,
    input_errors={},
    body_errors={
        **BODY_ERRORS,
        400: "The body is not JSON.",
        408: "The body did not arrive in time.",
        422: "A rule of the protocol is broken; `detail` names the field.",
    },
)


def openapi_routes(path: str) -> list[openapi.Route]:
    """The routes as data. `path` is the configured one."""
    return [msgspec.structs.replace(each, path=_configured(each.path, path)) for each in _API.routes(_Handlers)]
