"""The standard AG-UI endpoint: authenticate, decode, call the engine, encode, stream. Thin; the rules are elsewhere.

Source: specification of the face, part B.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.core.refusals import NotFound, Refused
from dragoman.engine.engine import Engine
from dragoman.engine.instrumentation.metrics import REQUESTS_FAILED, REQUESTS_REFUSED
from dragoman.protocols.agui import errors, wire
from dragoman.protocols.agui import events as told_events
from dragoman.protocols.agui.capabilities import capabilities_of
from dragoman.protocols.agui.downgrade import Generation
from dragoman.protocols.agui.errors import ErrorResponse
from dragoman.protocols.agui.frames import parse_position
from dragoman.protocols.agui.streams import REVOKED_FRAME, complete_stream
from dragoman.protocols.agui.threads import DisconnectPolicy, RunRequest, Threads
from dragoman.protocols.kit.http import (
    Admit,
    Authenticate,
    BodyTooLarge,
    BodyTooSlow,
    MethodNotAllowed,
    UnsupportedMediaType,
    address_of,
    admit_all,
    header,
    json_response,
    log_failure,
    principal_of,
    read_body,
    require_json,
)

CONTINUE = "continue"

log = structlog.get_logger(__name__)


class AguiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The door's settings."""

    body_limit: int = 16 * 1024 * 1024
    on_disconnect: DisconnectPolicy = "cancel"
    min_generation: Generation = "0.0.59"
    """What a client without `protocolVersion` is taken for."""


def app(
    engine: Engine,
    authenticate: Authenticate,
    options: AguiOptions,
    *,
    admit_stream: Admit = admit_all,
) -> ASGIApp:
    """The protocol as an ASGI application, to be mounted anywhere."""
    return _App(engine, authenticate, options, Threads(engine, admit_stream))


Handler = Callable[[Request], Awaitable[Response]]


class _App:
    """Every request passes here: who sends it, what answers it, and what is said when it fails."""

    def __init__(self, engine: Engine, authenticate: Authenticate, options: AguiOptions, threads: Threads) -> None:
        self._engine = engine
        self._authenticate = authenticate
        self._options = options
        self._threads = threads
        self._routes: Mapping[str, Mapping[str, Handler]] = {
            "": {"POST": self.run},
            "connect": {"POST": self.connect},
            "capabilities": {"GET": self.capabilities},
            "stop/": {"POST": self.stop},
            "threads//events": {"GET": self.events},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._dispatch(scope, receive)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  # a request's root: every failure gets its answer
            answer, extra = _error_response(error)
            if answer.status == 500:
                REQUESTS_FAILED.labels(protocol="ag-ui").inc()
            else:
                REQUESTS_REFUSED.labels(protocol="ag-ui", code=answer.code).inc()
            if answer.is_stream_event:
                response = complete_stream(told_events.RunError(message=answer.message, code=answer.code))
            else:
                response = json_response(answer.body, answer.status, {**answer.headers, **extra})
        await response(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive) -> Response:
        request = Request(scope, receive)
        headers = dict(scope["headers"])
        key = headers.get(b"x-api-key")
        given = headers.get(b"authorization") or (None if key is None else b"Bearer " + key)
        principal = self._authenticate(None if given is None else given.decode("latin-1"), address_of(scope))
        method: str = scope["method"]
        path: str = scope["path"]
        agent, _, rest = path[len(scope.get("root_path", "")) :].strip("/").partition("/")
        pattern, thread = _split_route(rest)
        principal.require("read" if method in ("GET", "HEAD") or pattern == "connect" else "use")
        scope["principal"] = principal
        methods = self._routes.get(pattern)
        if methods is None or not agent:
            raise NotFound("there is nothing at this path")
        handler = methods.get("GET" if method == "HEAD" else method)
        if handler is None:
            raise MethodNotAllowed(tuple(methods))
        scope["agent"], scope["thread"] = agent, thread
        return await handler(request)

    # --- routes ---------------------------------------------------------------------------------------------------

    async def run(self, request: Request) -> Response:
        """Run the agent, and stream the run."""
        policy = header(request.scope, b"x-run-on-disconnect") or self._options.on_disconnect
        return await self._threads.run(
            await self._read_request(request), "continue" if policy.lower() == CONTINUE else "cancel"
        )

    async def connect(self, request: Request) -> Response:
        """Tell the thread, and join the run that is active."""
        return await self._threads.connect(await self._read_request(request))

    async def capabilities(self, request: Request) -> Response:
        """What the agent declares."""
        return json_response(capabilities_of(self._engine.agent(request.scope["agent"]).spec))

    async def stop(self, request: Request) -> Response:
        """Stop the thread's run."""
        agent = self._engine.agent(request.scope["agent"])
        body = wire.decode_stop(await read_body(request, self._options.body_limit))
        stopped = await self._threads.stop(principal_of(request), agent, request.scope["thread"], body.run_id)
        return json_response({"stopped": stopped})

    async def events(self, request: Request) -> Response:
        """The thread's events from a position on, live after that."""
        agent = self._engine.agent(request.scope["agent"])
        seen = request.headers.get("last-event-id")
        position = None if seen is None else parse_position(seen)
        return await self._threads.events(principal_of(request), agent, request.scope["thread"], position)

    async def _read_request(self, request: Request) -> RunRequest:
        """Read a run request."""
        agent = self._engine.agent(request.scope["agent"])
        require_json(request)
        request.scope["farewell"] = REVOKED_FRAME
        raw = await read_body(request, self._options.body_limit)
        run, dropped = wire.decode_run(raw)
        if dropped:
            log.info("parts of a request were not understood", thread=run.thread_id, dropped=dropped[:20])
        return RunRequest(
            principal=principal_of(request),
            agent=agent,
            run=run,
            fingerprint=hashlib.sha256(request.scope["path"].encode() + b"\n" + raw).hexdigest(),
            generation="1.0" if run.protocol_version is not None else self._options.min_generation,
        )


def _split_route(rest: str) -> tuple[str, str]:
    """What of a path below an agent names the route, and what the thread, which may hold slashes."""
    for head, tail in (("stop/", ""), ("threads/", "/events")):
        if rest.startswith(head) and rest.endswith(tail) and len(rest) > len(head) + len(tail):
            return head + tail, rest[len(head) : len(rest) - len(tail)]
    return rest, ""


def _error_response(error: Exception) -> tuple[ErrorResponse, dict[str, str]]:
    match error:
        case Refused():
            return errors.to_response(error), {}
        case BodyTooLarge(limit=limit):
            return errors.error_response(413, "body_too_large", str(error), limit=limit), {"Connection": "close"}
        case BodyTooSlow():
            return errors.error_response(400, "invalid_request", str(error)), {"Connection": "close"}
        case UnsupportedMediaType():
            return errors.error_response(415, "unsupported_media_type", str(error)), {}
        case wire.InvalidJson():
            return errors.error_response(400, "invalid_json", str(error)), {}
        case wire.InvalidBody(path=path):
            return errors.error_response(400, "invalid_request", str(error), path=path), {}
        case wire.UnsupportedVersion():
            return errors.error_response(400, "unsupported_version", str(error)), {}
        case MethodNotAllowed(allowed=allowed):
            return errors.error_response(405, "method_not_allowed", str(error)), {"Allow": ", ".join(allowed)}
        case _:
            reference = log_failure(error)
            return errors.error_response(
                500, "internal", f"the server failed; reference {reference}", reference=reference
            ), {}
