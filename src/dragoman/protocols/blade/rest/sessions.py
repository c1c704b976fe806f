"""Blade's sessions over REST. Thin: decode, ask the engine, encode. Source: specification, section 5.2."""

from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.events import SettingsChange
from dragoman.core.inputs import Create
from dragoman.core.refusals import Invalid
from dragoman.core.tools import AgentSpec
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade import translate
from dragoman.protocols.blade.rest.access import open_owned_session, open_readable_session
from dragoman.protocols.blade.rest.bodies import check_text, decode, parse_int
from dragoman.protocols.blade.rest.router import Route, json_body
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire import sessions as told
from dragoman.protocols.kit.http import json_response, principal_of

BODY_LIMIT = 4 * 1024 * 1024
DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 20, 200
MAX_PAGE_OFFSET = 999_999_999


def routes(engine: Engine, *, memory_default: bool) -> list[Route]:
    """What answers about sessions as a whole.

    Args:
        engine: the engine.
        remembers: whether new sessions use memories where their maker does not say.
    """
    door = _SessionHandlers(engine, memory_default)
    return [
        Route("POST", "sessions", door.create),
        Route("GET", "sessions", door.page),
        Route("GET", "sessions/{session}", door.get),
        Route("PATCH", "sessions/{session}", door.rename),
        Route("DELETE", "sessions/{session}", door.delete),
        Route("PUT", "sessions/{session}/env", door.put_env),
        Route("PATCH", "sessions/{session}/pin", door.set_pinned),
        Route("PATCH", "sessions/{session}/sharing", door.set_shared),
        Route("PATCH", "sessions/{session}/memory", door.set_memory_enabled),
    ]


class _SessionHandlers:
    def __init__(self, engine: Engine, remembers: bool) -> None:
        self._engine = engine
        self._memory_default = remembers

    async def create(self, request: Request) -> Response:
        body = decode(told.CreateSession, await json_body(request, BODY_LIMIT))
        agent = self._engine.agent(body.solution_id or self._engine.default_agent)
        change = SettingsChange(
            title=(body.intent or "").strip()[: told.MAX_INTENT_CHARS] or None,  # clients send whole prompts
            model=told.optional_text(body.model, "model"),
            variant=told.optional_text(body.biz_role_id, "biz_role_id"),
            env=told.check_env(body.env) if body.env else None,
            persistent=body.is_persistent,
        )
        asked = Create(
            protocol=translate.PROTOCOL,
            agent=agent.spec.name,
            tools=translate.tools_without(agent.spec, body.disable_tools or ()) or "all",
            options=body.options or {},
            memory_enabled=self._memory_default_for(agent.spec) if body.memory_enabled is None else body.memory_enabled,
            change=change,
        )
        live = await self._engine.create(principal_of(request).user, asked)
        return json_response(told.CreatedSession(chat.public_session_id(live.state.session_id)))

    async def page(self, request: Request) -> Response:
        query = request.query_params
        limit = parse_int(query, "limit", DEFAULT_PAGE_SIZE, minimum=1, maximum=MAX_PAGE_SIZE)
        offset = parse_int(query, "offset", 0, minimum=0, maximum=MAX_PAGE_OFFSET)
        words = query.get("q", "").strip()
        if len(words) > told.MAX_QUERY_CHARS:
            raise Invalid(f"must have at most {told.MAX_QUERY_CHARS} characters", path="q")
        if query.get("template_id_prefix"):  # of a field that is always null here
            return json_response(told.SessionPage(items=(), total=0, limit=limit, offset=offset))
        found = await self._engine.recent(principal_of(request).user, words, offset, limit)
        items = [translate.session_of(state, self._default_agent) for state in found.states]
        return json_response(
            told.SessionPage(
                items=items,
                total=found.total,
                limit=limit,
                offset=offset,
                content_match_truncated=found.is_partial,
            )
        )

    async def get(self, request: Request) -> Response:
        async with open_readable_session(self._engine, request) as live:
            return self._detail_response(live, request)

    async def rename(self, request: Request) -> Response:
        body = decode(told.Rename, await json_body(request, BODY_LIMIT))
        return await self._apply_change(
            request, SettingsChange(title=check_text(body.intent, "intent", told.MAX_INTENT_CHARS))
        )

    async def put_env(self, request: Request) -> Response:
        body = decode(told.Environment, await json_body(request, BODY_LIMIT))
        return await self._apply_change(request, SettingsChange(env=told.check_env(body.env)))

    async def set_pinned(self, request: Request) -> Response:
        body = decode(told.Pin, await json_body(request, BODY_LIMIT))
        return await self._apply_change(request, SettingsChange(pinned=body.pinned))

    async def set_shared(self, request: Request) -> Response:
        body = decode(told.Sharing, await json_body(request, BODY_LIMIT))
        async with await open_owned_session(self._engine, request) as live:
            await self._engine.change(live, SettingsChange(shared=body.shared))
        return json_response({"shared": body.shared})

    async def set_memory_enabled(self, request: Request) -> Response:
        body = decode(told.MemorySetting, await json_body(request, BODY_LIMIT))
        async with await open_owned_session(self._engine, request) as live:
            await self._engine.change(live, SettingsChange(memory_enabled=body.memory_enabled))
        return json_response({"memory_enabled": body.memory_enabled})

    async def delete(self, request: Request) -> Response:
        async with await open_owned_session(self._engine, request) as live:
            await self._engine.delete(live)
        return json_response({"deleted": True})

    # --- inside -----------------------------------------------------------------------------------------------------

    def _memory_default_for(self, spec: AgentSpec) -> bool:
        """Whether a new session uses memories, if its maker does not say: as its agent, else as set (rulings, 23)."""
        return self._memory_default if spec.memory is None else spec.memory

    @property
    def _default_agent(self) -> str:
        return self._engine.agent(self._engine.default_agent).spec.name

    def _detail_response(self, live: SessionView, request: Request) -> Response:
        agent = self._engine.agents.get(live.state.agent)
        is_owner = live.state.owner == principal_of(request).user
        spec = None if agent is None else agent.spec
        return json_response(translate.detail_of(live.state, spec, self._default_agent, is_owner=is_owner))

    async def _apply_change(self, request: Request, change: SettingsChange) -> Response:
        async with await open_owned_session(self._engine, request) as live:
            await self._engine.change(live, change)
            return self._detail_response(live, request)
