"""AAP v3 over HTTP: decode, call the engine, encode. Thin; the rules are in the core.

The order of the checks is fixed (section 4): key, path and method, session, content type and size, JSON, shape,
capabilities and names, a running turn, call ids.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from dragoman.core.flat_calls import flatten
from dragoman.core.ids import RunId, UserId
from dragoman.core.inputs import Submit
from dragoman.core.principal import Principal
from dragoman.core.refusals import Invalid, InvalidCursor, NotFound
from dragoman.core.session import SessionState
from dragoman.core.stream import Cursor
from dragoman.core.tools import AgentSpec
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.view import SessionLease, SessionView
from dragoman.ports.log import IdempotencyRecord
from dragoman.protocols.aap import translate, wire
from dragoman.protocols.aap.errors import ERRORS, HistoryNotSupported, InvalidHistoryType, UnsupportedMode
from dragoman.protocols.aap.streams import SessionFrames, TurnCursor, mode_of, parse_turn_cursor
from dragoman.protocols.aap.translate import TurnFrames, TurnSummary
from dragoman.protocols.kit.access import AccessControl, AdmitStream
from dragoman.protocols.kit.app import ProtocolApp, error_body, principal_of
from dragoman.protocols.kit.body import json_response, read_json_body
from dragoman.protocols.kit.endpoints import LAST_EVENT_ID, ApiDescription, Handlers, endpoint, query
from dragoman.protocols.kit.errors import ErrorResponse
from dragoman.protocols.kit.frame_encoder import FrameEncoder
from dragoman.protocols.kit.idempotency_key import IDEMPOTENCY_KEY, idempotency_key
from dragoman.protocols.kit.router import Route
from dragoman.protocols.kit.runs import RunHandle, SessionStreams, find_run_in, start_once
from dragoman.protocols.kit.session_pages import PAGE_QUERY, requested_page


class AapOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The protocol's settings. `public_url` is the address of the server, if it is known."""

    body_limit: int = 16 * 1024 * 1024
    public_meta: bool = False
    public_url: str | None = None


def app(engine: Engine, access: AccessControl, options: AapOptions) -> ASGIApp:
    """Return the protocol as an ASGI application, to be mounted anywhere."""
    handlers = _Handlers(engine, options, access.admit_stream)
    return ProtocolApp("aap", handlers.routes(), ERRORS, access, write_error=_write_error)


def _write_error(error: ErrorResponse) -> Response:
    path = error.facts.get("path")
    if isinstance(path, str):  # the core counts answers, AAP the messages of the body
        error = error._replace(facts={**error.facts, "path": path.replace("answers[", "messages[")})
    return error_body(error)


_TURN_ERRORS = {409: "A turn is running, or the idempotency key was used with another request."}


class _Handlers(Handlers):
    def __init__(self, engine: Engine, options: AapOptions, admit_stream: AdmitStream) -> None:
        self._engine = engine
        self._options = options
        self._streams = SessionStreams(engine, admit_stream)

    def routes(self) -> list[Route]:
        routes = super().routes()
        return [each._replace(is_open=self._options.public_meta and each.path == "meta") for each in routes]

    # --- agents and sessions --------------------------------------------------------------------------------------

    @endpoint("GET", "/meta")
    async def meta(self) -> wire.Meta:
        """List the agents."""
        agents = tuple(translate.agent_info(agent.spec) for agent in self._engine.agents.values())
        return wire.Meta(version=3, agents=agents)

    @endpoint(
        "POST",
        "/sessions",
        status=201,
        body=wire.PostSessions,
        example={"agent": {"name": "assistant"}},
        parameters=(IDEMPOTENCY_KEY,),
        errors=_TURN_ERRORS,
    )
    async def post_sessions(self, request: Request, principal: Principal) -> wire.PostSessionsResponse | Response:
        """Create a session.

        Stores it, with a history if one is given. Runs nothing.
        """
        raw = await read_json_body(request, self._options.body_limit)
        create = translate.create_from(wire.decode_session(raw), self._engine.ids.new)
        owner, key = principal.user, idempotency_key(request, raw, "aap")
        async with nullcontext() if key is None else self._engine.reserve_key(owner, key) as earlier:
            if earlier is not None:
                session_id = earlier.session_id
            else:
                session_id = (await self._engine.create(owner, create, idempotency_key=key)).state.session_id
        prefix = urlsplit(self._options.public_url or "").path.rstrip("/")  # which a proxy has removed from the path
        location = f"{prefix}{request.scope['path']}/{session_id}"
        return json_response(wire.PostSessionsResponse(session_id=session_id), 201, {"Location": location})

    @endpoint("GET", "/sessions", parameters=PAGE_QUERY)
    async def sessions(self, principal: Principal, query: Mapping[str, str]) -> wire.Sessions:
        """List the caller's sessions, newest first."""
        infos, following = await requested_page(self._engine, principal.user, query, self._session_info)
        return wire.Sessions(sessions=infos, next=following)

    def _session_info(self, state: SessionState) -> wire.SessionInfo:
        return translate.session_info(state, self._engine.find_spec(state.agent))

    @endpoint("GET", "/sessions/{session}", returns="The session, with secrets masked.")
    async def session(self, request: Request) -> wire.SessionInfo:
        """Get a session's settings and state."""
        async with self._session(request) as session:
            info, seq = self._session_info(session.state), session.state.seq
            await session.until_durable(seq)
            return info

    @endpoint("DELETE", "/sessions/{session}", returns="The session is gone; a running turn was stopped.")
    async def delete(self, principal: Principal, session: str) -> None:
        """Delete a session and everything in it."""
        await self._engine.delete_by_name(principal.user, session)

    @endpoint(
        "GET",
        "/sessions/{session}/history",
        parameters=(
            query(
                "type",
                "`compacted`: the last summary and the messages after it.",
                Literal["full", "compacted"],
                is_required=True,
            ),
        ),
    )
    async def history(self, request: Request, query: Mapping[str, str]) -> wire.History:
        """Get a session's messages."""
        async with self._session(request) as session:
            kind = query.get("type")
            if kind not in ("full", "compacted"):
                raise InvalidHistoryType
            spec = self._engine.spec_for(session)
            if spec is not None and not (
                spec.capabilities.history_full if kind == "full" else spec.capabilities.history_compacted
            ):
                raise HistoryNotSupported(f"agent {spec.name!r} gives no {kind} history")
            compaction = session.state.compaction if kind == "compacted" else None
            stored = await self._engine.history.messages(
                session, 0 if compaction is None else compaction.up_to, arrange=flatten
            )
            messages = translate.history_of(stored)
            if compaction is not None:
                messages = (wire.SystemMessage(compaction.summary), *messages)
            return wire.History(history={"full": messages} if kind == "full" else {"compacted": messages})

    # --- turns ----------------------------------------------------------------------------------------------------

    @endpoint(
        "POST",
        "/sessions/{session}/turns",
        body=wire.PostTurn,
        example={"stream": "delta", "messages": [{"role": "user", "content": "Hello!"}]},
        parameters=(IDEMPOTENCY_KEY,),
        returns="`none` mode: the whole turn.",
        streams="`delta` and `message` mode: server-sent events from `turn_start` to `turn_stop`.",
        errors=_TURN_ERRORS,
    )
    async def post_turn(self, request: Request, principal: Principal) -> wire.TurnResponse | Response:
        """Send messages or answers, and get the agent's turn.

        The turn continues if the client disconnects; `/events` resumes its stream.
        """
        async with self._session(request) as session:
            raw = await read_json_body(request, self._options.body_limit)
            body = wire.decode_turn(raw)
            mode = body.stream or "none"
            _require_mode(self._engine.agent_for(session).spec, mode)
            submit = translate.submit_from(body, session.state.agent)
            key = idempotency_key(request, raw, "aap")
            turn = await self._start_turn(session, submit, principal.user, key)
            after, is_new = turn.before, turn.is_new
            if mode != "none":
                frames = TurnFrames(turn.run_id, mode)
                return await self._streams.open(principal, session, after, frames, is_new_run=is_new)
            summary = TurnSummary(turn.run_id)
            await self._streams.read(request, session, after, summary, is_new_run=is_new)
            assert summary.answer is not None, "it was read to its end"
            return summary.answer

    async def _start_turn(
        self, session: SessionView, submit: Submit, owner: UserId, key: IdempotencyKey | None
    ) -> RunHandle:
        """Start a turn, or find the one that its key started."""

        async def start() -> RunHandle:
            started = await self._engine.start_run(session, submit, by=owner, idempotency_key=key)
            assert started.run_id is not None, "a turn that leaves calls open is refused"
            return RunHandle(session, started.run_id, started.seq, is_new=True)

        async def find(earlier: IdempotencyRecord) -> RunHandle:
            row = await self._engine.find_run_of(earlier)
            if row is None:
                raise NotFound("the turn of this idempotency key is gone")
            return RunHandle(session, row.run_id, row.first_seq)

        return await start_once(self._engine, owner, key, start, find)

    @endpoint(
        "GET",
        "/sessions/{session}/events",
        parameters=(
            LAST_EVENT_ID,
            query("turn", "A turn's id; the newest by default."),
            query(
                "stream",
                "The stream mode; by default the one that the turn was started with.",
                Literal["delta", "message"],
            ),
        ),
        streams="Server-sent events from `turn_start` to `turn_stop`.",
    )
    async def events(self, request: Request, principal: Principal, query: Mapping[str, str]) -> Response:
        """Resume a turn's stream, or watch the session.

        Our extension (section 17). Without `Last-Event-ID` and `turn` it follows the session from now on.
        """
        async with self._session(request) as session:
            mode, last_event_id = _requested_mode(query), request.headers.get("last-event-id")
            if mode is not None and (spec := self._engine.spec_for(session)) is not None:
                _require_mode(spec, mode)
            turn = query.get("turn")
            if last_event_id is None and turn is None:
                active = session.state.run
                after = Cursor(session.state.seq if active is None else active.started_seq - 1)
                frames = SessionFrames(mode)
                return await self._streams.open(
                    principal, session, after, frames, share=(mode,), before=b"", ends_on_drain=True
                )
            return await self._resume(principal, session, parse_turn_cursor(last_event_id, turn), mode)

    async def _resume(
        self, principal: Principal, session: SessionView, position: TurnCursor, requested_mode: wire.StreamMode | None
    ) -> Response:
        """Resume after an event. The turn is played once: frames that the client has seen are counted, not encoded.

        Raises:
            InvalidCursor: there is no such turn, or it has fewer events.
        """
        run_id, first_seq, mode = await self._find_turn(session, position.turn, requested_mode)
        prefix = f"{run_id}/" if position.is_watch else ""
        frames = TurnFrames(run_id, mode, prefix=prefix, skip=position.number)
        encoder = SessionFrames(requested_mode, frames) if position.is_watch else frames

        def check_position(played: FrameEncoder) -> None:
            assert isinstance(played, SessionFrames | TurnFrames), "one of the above"
            if played.count < position.number:
                raise InvalidCursor(f"turn {run_id} has {played.count} events so far, got the ID {position.number}")

        return await self._streams.resume(
            principal,
            session,
            Cursor(first_seq - 1),
            encoder,
            check_position=check_position,
            share=(run_id, mode, requested_mode, position.number),
            ends_on_drain=position.is_watch,
        )

    @endpoint("POST", "/sessions/{session}/stop")
    async def stop(self, request: Request) -> wire.StopResponse:
        """Stop the running turn.

        Our extension. The turn ends with `error` and the code `cancelled`, and keeps what it has. Its end is durable
        when this answers.
        """
        async with self._session(request) as session:
            return wire.StopResponse(stopped=await self._engine.stop_run(session))

    async def _find_turn(
        self, session: SessionView, turn: RunId | None, requested_mode: wire.StreamMode | None
    ) -> tuple[RunId, int, wire.StreamMode]:
        """Find a turn, by default the newest: its id, its first event, the mode of its stream."""
        state = session.state
        run_id, first_seq = turn or state.last_run, state.last_run_seq
        if run_id is None:
            raise InvalidCursor("this session has no turn yet")
        if run_id != state.last_run:
            row = await find_run_in(self._engine, session, run_id)
            if row is None:
                raise InvalidCursor("this session has no such turn")
            first_seq = row.first_seq
        await session.until_durable(first_seq)
        started = None if requested_mode else await self._engine.history.run_start(session, first_seq)
        return run_id, first_seq, requested_mode or mode_of({} if started is None else started.metadata.protocol)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _session(self, request: Request) -> SessionLease:
        return self._engine.session(principal_of(request).user, request.path_params["session"])


def _require_mode(spec: AgentSpec, mode: wire.StreamMode) -> None:
    modes = spec.capabilities.stream_modes
    if mode not in modes:
        raise UnsupportedMode(spec.name, [each for each in ("delta", "message", "none") if each in modes])


def _requested_mode(query: Mapping[str, str]) -> wire.StreamMode | None:
    match query.get("stream"):
        case None:
            return None
        case "delta" | "message" as mode:
            return mode
        case _:
            raise Invalid("expected stream=delta or stream=message", path="stream")


OPENAPI_ROUTES = ApiDescription("AAP v3").routes(_Handlers)
