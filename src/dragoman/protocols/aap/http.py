"""The door of AAP v3: authenticate, decode, call the engine, encode, stream. Thin; the rules are in the core.

The order of the checks is fixed (section 4): auth, path and method, session, content type and size, JSON, shape,
capabilities and names, a running turn, call ids.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.core.events import RunStarted
from dragoman.core.ids import RunId, SessionId
from dragoman.core.inputs import Submit
from dragoman.core.principal import Principal
from dragoman.core.refusals import (
    AgentNotFound,
    Invalid,
    InvalidCursor,
    NotFound,
    Refused,
)
from dragoman.core.stream import Cursor
from dragoman.core.tools import AgentSpec
from dragoman.engine.engine import Engine
from dragoman.engine.instrumentation.metrics import REQUESTS_FAILED, REQUESTS_REFUSED
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.view import SessionLease, SessionView
from dragoman.ports.log import IdempotencyRecord
from dragoman.protocols.aap import errors, translate, wire
from dragoman.protocols.aap.cursors import page_cursor, parse_page_cursor, parse_turn_cursor
from dragoman.protocols.aap.errors import ErrorResponse
from dragoman.protocols.aap.streams import SessionFrames, SingleTurnFrames, mode_of, open_stream, summarise
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

PAGE_DEFAULT, PAGE_LIMIT = 50, 200
KEY_LIMIT = 255


class AapOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The door's settings."""

    body_limit: int = 16 * 1024 * 1024
    public_meta: bool = False


def app(
    engine: Engine,
    authenticate: Authenticate,
    options: AapOptions,
    *,
    admit_stream: Admit = admit_all,
) -> ASGIApp:
    """The protocol as an ASGI application, to be mounted anywhere."""
    return _App(_Handlers(engine, options, admit_stream).routes(), authenticate, options)


Handler = Callable[[Request], Awaitable[Response]]
Routes = Mapping[tuple[str | None, ...], Mapping[str, Handler]]
"""What answers to a path and a method. None stands for a session's id."""


class _App:
    """Every request passes here: who sends it, what answers it, and what is said when it fails.

    A table of nine paths instead of a router, which would try them one by one with a pattern each.
    """

    def __init__(self, routes: Routes, authenticate: Authenticate, options: AapOptions) -> None:
        self._routes = routes
        self._authenticate = authenticate
        self._public_meta = options.public_meta

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._dispatch(scope, receive)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  # a request's root: every failure gets its answer
            told, extra = _error_response(error)
            if told.status == 500:
                REQUESTS_FAILED.labels(protocol="aap").inc()
            else:
                REQUESTS_REFUSED.labels(protocol="aap", code=str(told.body["code"])).inc()
            response = json_response(told.body, told.status, {**told.headers, **extra})
        await response(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive) -> Response:
        path: str = scope["path"]
        parts = path[len(scope.get("root_path", "")) :].strip("/").split("/")
        method: str = scope["method"]
        request = Request(scope, receive)
        if not (self._public_meta and parts == ["meta"]):
            principal = self._authenticate(header(scope, b"authorization"), address_of(scope))
            principal.require("read" if method in ("GET", "HEAD") else "use")
            scope["principal"] = principal
        key = (parts[0], None, *parts[2:]) if len(parts) > 1 and parts[1] else tuple(parts)
        methods = self._routes.get(key)
        if methods is None:
            raise NotFound("there is nothing at this path")
        handler = methods.get("GET" if method == "HEAD" else method)
        if handler is None:
            raise MethodNotAllowed(tuple(methods))
        if len(parts) > 1:
            scope["session_id"] = parts[1]
        return await handler(request)


class UnsupportedMode(Exception):
    """An agent does not answer in the mode that was asked for."""

    def __init__(self, agent: str, supported: Sequence[str]) -> None:
        super().__init__(f"agent {agent!r} answers in {' or '.join(supported)} mode")
        self.supported = supported


def _error_response(error: Exception) -> tuple[ErrorResponse, dict[str, str]]:
    match error:
        case Refused():
            return errors.to_response(error), {}
        case BodyTooLarge(limit=limit):
            return errors.error_response(413, "body_too_large", str(error), limit=limit), {"Connection": "close"}
        case BodyTooSlow():
            return errors.error_response(400, "invalid_request", str(error), path=""), {"Connection": "close"}
        case UnsupportedMediaType():
            return errors.error_response(415, "unsupported_media_type", str(error)), {}
        case wire.InvalidJson():
            return errors.error_response(400, "invalid_json", str(error)), {}
        case wire.InvalidBody(path=path):
            return errors.error_response(400, "invalid_request", str(error), path=path), {}
        case UnsupportedMode(supported=supported):
            return errors.error_response(400, "unsupported_stream_mode", str(error), supported=supported), {}
        case MethodNotAllowed(allowed=allowed):
            return errors.error_response(405, "method_not_allowed", str(error)), {"Allow": ", ".join(allowed)}
        case _:
            reference = log_failure(error)
            return errors.error_response(
                500, "internal", f"the server failed; reference {reference}", reference=reference
            ), {}


class _Handlers:
    def __init__(self, engine: Engine, options: AapOptions, admit_stream: Admit) -> None:
        self._engine = engine
        self._options = options
        self._admit_stream = admit_stream

    def routes(self) -> Routes:
        return {
            ("meta",): {"GET": self.meta},
            ("sessions",): {"GET": self.sessions, "POST": self.post_sessions},
            ("sessions", None): {"GET": self.session, "DELETE": self.delete},
            ("sessions", None, "history"): {"GET": self.history},
            ("sessions", None, "turns"): {"POST": self.post_turn},
            ("sessions", None, "events"): {"GET": self.events},
            ("sessions", None, "stop"): {"POST": self.stop},
        }

    # --- agents and sessions --------------------------------------------------------------------------------------

    async def meta(self, request: Request) -> Response:
        agents = tuple(translate.agent_info(agent.spec) for agent in self._engine.agents.values())
        return json_response(wire.Meta(version=3, agents=agents))

    async def post_sessions(self, request: Request) -> Response:
        require_json(request)
        raw = await read_body(request, self._options.body_limit)
        body = wire.decode_session(raw)
        create = translate.create_from(body, self._engine.ids.new)
        owner = principal_of(request).user
        once = _idempotency_key(request, raw)
        if once is None:
            return _created_response(request, (await self._engine.create(owner, create)).state.session_id)
        async with self._engine.reserve_key(owner, once) as earlier:
            if earlier is not None:
                return _created_response(request, earlier.session_id)
            return _created_response(
                request, (await self._engine.create(owner, create, idempotency_key=once)).state.session_id
            )

    async def sessions(self, request: Request) -> Response:
        limit = _page_limit(request)
        after = request.query_params.get("after")
        before = None if after is None else parse_page_cursor(after)
        states = await self._engine.page(principal_of(request).user, before, limit + 1)
        shown, more = states[:limit], len(states) > limit
        infos = tuple(translate.session_info(state, self._spec(state.agent)) for state in shown)
        await self._engine.until_durable([(state.session_id, state.seq) for state in shown])
        end = shown[-1] if more else None
        return json_response(
            wire.Sessions(sessions=infos, next=page_cursor(end.created_at, end.session_id) if end else None)
        )

    async def session(self, request: Request) -> Response:
        async with self._session(request) as live:
            info, seq = translate.session_info(live.state, self._spec(live.state.agent)), live.state.seq
            await live.until_durable(seq)
            return json_response(info)

    async def delete(self, request: Request) -> Response:
        async with self._session(request) as live:
            await self._engine.delete(live)
        return Response(status_code=204)

    async def history(self, request: Request) -> Response:
        async with self._session(request) as live:
            kind = request.query_params.get("type")
            if kind not in ("full", "compacted"):
                return _json_error(
                    errors.error_response(400, "invalid_history_type", "type=full or type=compacted was expected")
                )
            spec = self._engine.agent_for(live).spec
            has = spec.capabilities
            if not (has.history_full if kind == "full" else has.history_compacted):
                return _json_error(
                    errors.error_response(404, "history_not_supported", f"agent {spec.name!r} gives no {kind} history")
                )
            compacted = live.state.compaction if kind == "compacted" else None
            stored = await self._engine.history.messages(live, 0 if compacted is None else compacted.up_to)
            messages = translate.history_of(stored)
            if compacted is not None:
                messages = (wire.SystemMessage(compacted.summary), *messages)
            return json_response(
                wire.History(history={"full": messages} if kind == "full" else {"compacted": messages})
            )

    # --- turns ----------------------------------------------------------------------------------------------------

    async def post_turn(self, request: Request) -> Response:
        async with self._session(request) as live:
            require_json(request)
            raw = await read_body(request, self._options.body_limit)
            body = wire.decode_turn(raw)
            mode = body.stream or "none"
            _require_mode(self._engine.agent_for(live).spec, mode)
            submit = translate.submit_from(body, live.state.agent)
            caller, once = principal_of(request), _idempotency_key(request, raw)
            if once is None:
                run_id, first = await self._begin_turn(live, submit, caller, None)
            else:
                async with self._engine.reserve_key(caller.user, once) as earlier:
                    if earlier is None:
                        run_id, first = await self._begin_turn(live, submit, caller, once)
                        await live.until_durable(first)
                    else:
                        run_id, first = await self._find_earlier_turn(earlier)
            return await self._turn_response(live, run_id, first, mode)

    async def _begin_turn(
        self, live: SessionView, submit: Submit, caller: Principal, idempotency_key: IdempotencyKey | None
    ) -> tuple[RunId, int]:
        """Start a turn. Returns its id and its first event."""
        submitted = await self._engine.start_run(live, submit, by=caller.user, idempotency_key=idempotency_key)
        assert submitted.run_id is not None, "a turn that leaves calls open is refused"
        return submitted.run_id, submitted.seq

    async def _find_earlier_turn(self, earlier: IdempotencyRecord) -> tuple[RunId, int]:
        """The turn that an idempotency key started before."""
        row = await self._engine.find_run_of(earlier)
        if row is None:
            raise NotFound("the turn of this idempotency key is gone")
        return row.run_id, row.first_seq

    async def _turn_response(self, live: SessionView, run_id: RunId, first_seq: int, mode: wire.StreamMode) -> Response:
        """Tell a turn from its start, live or as it was."""
        reader = self._engine.follow(live, Cursor(first_seq - 1))
        if mode == "none":
            with reader:
                return json_response(await summarise(reader, run_id))
        return await open_stream(reader, SingleTurnFrames(translate.TurnFrames(run_id, mode)))

    async def events(self, request: Request) -> Response:
        """Our addition: go on with a turn's stream, or watch the session (section 17)."""
        async with self._session(request) as live:
            release = self._admit_stream(principal_of(request))
            try:
                after, frames = await self._position(live, request)
                is_watch = isinstance(frames, SessionFrames)
                reader = self._engine.follow(live, after, ends_on_drain=is_watch)
                return await open_stream(reader, frames, release)
            except BaseException:
                release()
                raise

    async def stop(self, request: Request) -> Response:
        """Our addition: stop the running turn. Its end is durable when this answers."""
        async with self._session(request) as live:
            return json_response(wire.StopResponse(stopped=await self._engine.stop_run(live)))

    async def _position(self, live: SessionView, request: Request) -> tuple[Cursor, SingleTurnFrames | SessionFrames]:
        """Where a stream begins, and how it is told. Raises InvalidCursor on a position that is not there."""
        asked, seen = _requested_mode(request), request.headers.get("last-event-id")
        if asked is not None:
            _require_mode(self._engine.agent_for(live).spec, asked)
        turn = request.query_params.get("turn")
        if seen is None and turn is None:
            active = live.state.run
            return Cursor(live.state.seq if active is None else active.started_seq - 1), SessionFrames(asked, None)
        position = parse_turn_cursor(seen, turn)
        run_id, first, mode = await self._turn(live, position.turn, asked)
        told = translate.TurnFrames(run_id, mode)
        for record in await self._engine.history.run_records(live, run_id, first) if position.number else ():
            told.feed(record)
            if told.is_over:
                break
        if told.count < position.number:
            raise InvalidCursor(f"turn {run_id} has {told.count} events so far, not {position.number}")
        prefix = f"{run_id}/" if position.is_watch else ""
        rest = translate.TurnFrames(run_id, mode, prefix=prefix, skip=position.number)
        return Cursor(first - 1), SessionFrames(asked, rest) if position.is_watch else SingleTurnFrames(rest)

    async def _turn(
        self, live: SessionView, turn: RunId | None, requested_mode: wire.StreamMode | None
    ) -> tuple[RunId, int, wire.StreamMode]:
        """A turn of the session, by default the newest: its id, its first event, the mode to tell it in."""
        state = live.state
        run_id, first = turn or state.last_run, state.last_run_seq
        if run_id is None:
            raise InvalidCursor("this session has no turn yet")
        if run_id != state.last_run:
            row = await self._engine.index.find_run(run_id)
            if row is None or row.session_id != state.session_id:
                raise InvalidCursor("this session has no such turn")
            first = row.first_seq
        await live.until_durable(first)
        if requested_mode is not None:
            return run_id, first, requested_mode
        started = (await self._engine.history.events(live, first - 1, first))[0].event
        return run_id, first, mode_of(started.metadata) if isinstance(started, RunStarted) else "delta"

    # --- inside ---------------------------------------------------------------------------------------------------

    def _session(self, request: Request) -> SessionLease:
        return self._engine.session(principal_of(request).user, request.scope["session_id"])

    def _spec(self, agent: str) -> AgentSpec | None:
        try:
            return self._engine.agent(agent).spec
        except AgentNotFound:
            return None


# --- small things -------------------------------------------------------------------------------------------------


def _require_mode(spec: AgentSpec, mode: wire.StreamMode) -> None:
    modes = spec.capabilities.stream_modes
    if mode not in modes:
        raise UnsupportedMode(spec.name, [each for each in ("delta", "message", "none") if each in modes])


def _requested_mode(request: Request) -> wire.StreamMode | None:
    match request.query_params.get("stream"):
        case None:
            return None
        case "delta":
            return "delta"
        case "message":
            return "message"
        case _:
            raise Invalid("stream=delta or stream=message was expected", path="stream")


def _page_limit(request: Request) -> int:
    given = request.query_params.get("limit", str(PAGE_DEFAULT))
    if not (given.isascii() and given.isdigit() and len(given) < 9 and 1 <= int(given) <= PAGE_LIMIT):
        raise Invalid(f"limit is a number from 1 to {PAGE_LIMIT}", path="limit")
    return int(given)


def _idempotency_key(request: Request, body: bytes) -> IdempotencyKey | None:
    """The idempotency key of a request, and the fingerprint of the request."""
    key = header(request.scope, b"idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= KEY_LIMIT:
        raise Invalid(f"Idempotency-Key has 1 to {KEY_LIMIT} characters")
    fingerprint = hashlib.sha256(request.scope["path"].encode() + b"\n" + body).hexdigest()
    return IdempotencyKey(f"aap:{key}", fingerprint)


def _created_response(request: Request, session_id: SessionId) -> Response:
    where = f"{request.scope['path']}/{session_id}"
    return json_response(wire.PostSessionsResponse(session_id=session_id), 201, {"Location": where})


def _json_error(error: ErrorResponse) -> Response:
    return json_response(error.body, error.status, error.headers)
