"""The HTTP routes of the Agent API: they decode requests, call the engine, and encode or stream responses.

The order of the checks: key, path and method, content type and size, JSON, the protocol's rules, the agent's name, a
repeated id, the session and its user, a running response, the answers. Each of them fails with an HTTP status. Once a
stream has begun, it ends with one terminal response.
"""

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.refusals import InvalidCursor, NotFound, SessionNotFound
from dragoman.engine.engine import Engine
from dragoman.protocols.agentscope import inputs, wire
from dragoman.protocols.agentscope.errors import ERROR_TABLE, TaskNotFound
from dragoman.protocols.agentscope.paths import endpoints
from dragoman.protocols.agentscope.runs import RunHandle, RunRequest, Runs
from dragoman.protocols.agentscope.tasks import Deadlines, task_state
from dragoman.protocols.agentscope.translate import ResponseEvents, response_id
from dragoman.protocols.kit.app import AdmitStream, Authenticate, ProtocolApp, admit_all, principal_of
from dragoman.protocols.kit.body import json_response, read_json_body
from dragoman.protocols.kit.errors import ErrorResponse
from dragoman.protocols.kit.router import Route
from dragoman.protocols.kit.sse import fixed_stream, open_stream, read_to_end, resume_stream

_PATH_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
QUEUE = "dragoman"
"""The name of the only queue of tasks. The protocol requires one."""
MODE = "standalone"
"""The package's term for a server in a process of its own."""


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
    authenticate: Authenticate,
    options: AgentScopeOptions,
    *,
    admit_stream: AdmitStream = admit_all,
    state: ReadinessProbe,
) -> ProtocolApp:
    """The protocol as an ASGI application. Some of its paths are at the root, so it expects whole paths."""
    handlers = _Handlers(engine, options, admit_stream, state)
    at = {  # ids that clients choose may contain slashes
        name: path.strip("/").replace("_id}", "_id:path}") for name, path in endpoints(options.path).items()
    }
    routes = (
        Route("POST", at["process"], handlers.process),
        Route("POST", at["stop"], handlers.stop),
        Route("POST", at["task"], handlers.submit_task),
        Route("GET", at["task_status"], handlers.task),
        Route("GET", at["response"], handlers.response),
        Route("GET", at["response_events"], handlers.response_events),
        Route("GET", at["session_events"], handlers.session_events),
        Route("GET", "", handlers.service, is_open=True),
        Route("GET", at["health"], handlers.health, is_open=True),
        Route("GET", at["readiness"], handlers.readiness, is_open=True),
        Route("GET", at["liveness"], handlers.liveness, is_open=True),
    )
    return ProtocolApp(inputs.PROTOCOL, routes, ERROR_TABLE, authenticate, write_error=_write_error)


class _Handlers:
    def __init__(
        self, engine: Engine, options: AgentScopeOptions, admit_stream: AdmitStream, state: ReadinessProbe
    ) -> None:
        self._engine = engine
        self._options = options
        self._runs = Runs(engine, is_strict_model=options.is_strict_model)
        self._admit_stream = admit_stream
        self._state = state
        self._deadlines = Deadlines(engine)
        self._deadlines.resume()

    # --- public pages ---------------------------------------------------------------------------------------------

    async def service(self, request: Request) -> Response:
        return json_response({"service": "Dragoman", "mode": MODE, "endpoints": endpoints(self._options.path)})

    async def health(self, request: Request) -> Response:
        runner = "ready" if await self._state() == "ready" else "not_ready"
        return json_response({"status": "healthy", "mode": MODE, "runner": runner})

    async def readiness(self, request: Request) -> Response:
        state = await self._state()
        return json_response({"status": state}) if state == "ready" else _unavailable_response(state)

    async def liveness(self, request: Request) -> Response:
        state = await self._state()
        is_alive = state not in ("starting", "draining", "drained")
        return json_response({"status": "alive"}) if is_alive else _unavailable_response(state)

    # --- running --------------------------------------------------------------------------------------------------

    async def process(self, request: Request) -> Response:
        parsed = wire.decode_request(await read_json_body(request, self._options.body_limit))
        options = inputs.response_options(parsed.request)
        accepts_stream = "text/event-stream" in request.headers.get("accept", "").lower()
        is_stream = parsed.request.stream or accepts_stream
        async with self._runs.start(RunRequest(principal_of(request).user, parsed, options)) as handle:
            if not handle.is_started:
                await handle.session.until_durable(handle.first_seq)
                state = handle.session.state
                events = ResponseEvents(handle.run_id, state.session_id, state.agent)
                frames = events.acknowledge(options, self._engine.clock.now())
                return fixed_stream(frames) if is_stream else json_response(events.response)
            events, reader = await self._runs.response_events(handle), self._runs.reader(handle)
            release = (self._admit_stream if handle.is_existing else admit_all)(principal_of(request))
            if is_stream:
                return await open_stream(reader, events, on_close=lambda _: release())
            try:
                with reader:
                    await read_to_end(reader, events)
            finally:
                release()
            if events.response is None:
                raise SessionNotFound("the session was deleted")
            return json_response(events.response)

    async def stop(self, request: Request) -> Response:
        body = wire.decode_stop(await read_json_body(request, self._options.body_limit))
        owner = principal_of(request).user
        is_stopped = False
        with suppress(NotFound):
            if body.response_id:
                async with self._runs.find(owner, body.response_id) as handle:
                    is_stopped = await self._engine.stop_run(handle.session, handle.run_id)
            else:
                async with self._engine.session(owner, body.session_id or "") as session:
                    is_stopped = await self._engine.stop_run(session)
        return json_response(wire.StopResponse(canceled=is_stopped))

    async def submit_task(self, request: Request) -> Response:
        parsed = wire.decode_task(await read_json_body(request, self._options.body_limit))
        timeout_s = parsed.timeout_s
        deadline = None if timeout_s is None else self._engine.clock.now() + timedelta(seconds=timeout_s)
        options = inputs.response_options(parsed.request, is_task=True, deadline=deadline)
        async with self._runs.start(RunRequest(principal_of(request).user, parsed, options)) as handle:
            assert handle.is_started, "a task that leaves calls open is refused"
            await handle.session.until_durable(handle.first_seq)
            if deadline is not None:
                self._deadlines.schedule_stop(handle.session, handle.run_id, deadline)
            return json_response(
                wire.TaskSubmitted(
                    task_id=handle.run_id,
                    queue=QUEUE,
                    message=f"Task {handle.run_id} submitted to queue {QUEUE}",
                    response_id=options.response_id or response_id(handle.run_id),
                    session_id=options.session_id or handle.session.state.session_id,
                )
            )

    # --- reading back ---------------------------------------------------------------------------------------------

    async def task(self, request: Request) -> Response:
        task_id: str = request.path_params["task_id"]
        events = None
        with suppress(NotFound):
            async with self._runs.find_by_run_id(principal_of(request).user, task_id) as handle:
                events = await self._runs.events_so_far(handle)
        if events is None or not events.options.is_task:
            raise TaskNotFound("there is no such task")
        return json_response(task_state(task_id, events))

    async def response(self, request: Request) -> Response:
        async with self._runs.find(principal_of(request).user, request.path_params["response_id"]) as handle:
            events = await self._runs.events_so_far(handle)
            if events.response is not None:
                return json_response(events.response)
            [queued] = await self._engine.history.events(handle.session, handle.first_seq - 1, handle.first_seq)
            response = wire.AgentResponse(
                status="queued",
                id=response_id(handle.run_id),
                created_at=int(queued.at.timestamp()),
                session_id=handle.session.state.session_id,
                model=handle.session.state.agent,
            )
            return json_response(response)

    async def response_events(self, request: Request) -> Response:
        async with self._runs.find(principal_of(request).user, request.path_params["response_id"]) as handle:
            return await self._replay(request, handle, skip=_position(request) + 1)

    async def session_events(self, request: Request) -> Response:
        with suppress(SessionNotFound):
            async with self._engine.session(principal_of(request).user, request.path_params["session_id"]) as session:
                state = session.state
                if state.last_run is not None:
                    return await self._replay(request, RunHandle(session, state.last_run, state.last_run_seq))
        return Response(status_code=204)

    async def _replay(self, request: Request, handle: RunHandle, *, skip: int = 0) -> Response:
        """Stream a run's events from a position on, and then live."""
        events, reader = await self._runs.response_events(handle, skip=skip), self._runs.reader(handle)
        release = self._admit_stream(principal_of(request))

        def check_position() -> None:
            if events.count < skip:
                raise InvalidCursor(f"this response has {events.count} events so far, not {skip}")

        up_to = handle.session.durable_cursor
        return await resume_stream(reader, events, up_to, check_position, on_close=lambda _: release())


def _position(request: Request) -> int:
    """The number of the last event that the client has received; -1 if none. Raises InvalidCursor."""
    position = request.query_params.get("after", request.headers.get("last-event-id", "-1")) or "-1"
    digits = "1" if position == "-1" else position
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise InvalidCursor("after must be the sequence_number of an event of this response")
    return int(position)


def _write_error(error: ErrorResponse) -> Response:
    """Write an error with its code and message, and the path of the wrong field as FastAPI's errors have it."""
    body: dict[str, object] = {"error": wire.Error(error.code, error.message)}
    if path := error.facts.get("path"):
        steps = [int(index) if index else name for index, name in _PATH_STEP.findall(str(path))]
        body["detail"] = [{"loc": ["body", *steps], "msg": error.facts.get("message", error.message)}]
    return json_response(body, error.status, error.headers)


def _unavailable_response(state: str) -> Response:
    return json_response({"status": state}, 503, {"Retry-After": "1"})
