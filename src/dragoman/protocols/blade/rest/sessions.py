"""Blade's sessions over REST. Thin: decode, ask the engine, encode. Source: specification, section 5.2."""

from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.events import SettingsChange
from dragoman.core.inputs import Create
from dragoman.core.refusals import Invalid
from dragoman.core.tools import AgentSpec
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.protocols.blade import translate
from dragoman.protocols.blade.rest.access import owned, readable
from dragoman.protocols.blade.rest.bodies import decode, number, text
from dragoman.protocols.blade.rest.router import Route, json_body
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire import sessions as told
from dragoman.protocols.kit.http import caller_of, json_answer

BODY_LIMIT = 4 * 1024 * 1024
PAGE, LARGEST_PAGE = 20, 200
MOST = 999_999_999


def routes(engine: Engine, *, remembers: bool) -> list[Route]:
    """What answers about sessions as a whole.

    Args:
        engine: the engine.
        remembers: whether new sessions use memories where their maker does not say.
    """
    door = _Door(engine, remembers)
    return [
        Route("POST", "sessions", door.create),
        Route("GET", "sessions", door.page),
        Route("GET", "sessions/{session}", door.show),
        Route("PATCH", "sessions/{session}", door.rename),
        Route("DELETE", "sessions/{session}", door.delete),
        Route("PUT", "sessions/{session}/env", door.put_env),
        Route("PATCH", "sessions/{session}/pin", door.pin),
        Route("PATCH", "sessions/{session}/sharing", door.share),
        Route("PATCH", "sessions/{session}/memory", door.remember),
    ]


class _Door:
    def __init__(self, engine: Engine, remembers: bool) -> None:
        self._engine = engine
        self._remembers = remembers

    async def create(self, request: Request) -> Response:
        body = decode(told.CreateSession, await json_body(request, BODY_LIMIT))
        agent = self._engine.agent(body.solution_id or self._engine.default_agent)
        change = SettingsChange(
            title=(body.intent or "").strip()[: told.INTENT] or None,  # clients send whole prompts
            model=told.optional(body.model, "model"),
            variant=told.optional(body.biz_role_id, "biz_role_id"),
            env=told.checked_env(body.env) if body.env else None,
            persistent=body.is_persistent,
        )
        asked = Create(
            door=translate.DOOR,
            agent=agent.spec.name,
            tools=translate.tools_without(agent.spec, body.disable_tools or ()) or "all",
            options=body.options or {},
            memory_enabled=self._memory(agent.spec) if body.memory_enabled is None else body.memory_enabled,
            change=change,
        )
        live = await self._engine.create(caller_of(request).user, asked)
        return json_answer(told.Created(chat.shown_session(live.state.session_id)))

    async def page(self, request: Request) -> Response:
        query = request.query_params
        limit = number(query, "limit", PAGE, least=1, most=LARGEST_PAGE)
        offset = number(query, "offset", 0, least=0, most=MOST)
        words = query.get("q", "").strip()
        if len(words) > told.WORDS:
            raise Invalid(f"must have at most {told.WORDS} characters", path="q")
        if query.get("template_id_prefix"):  # of a field that is always null here
            return json_answer(told.SessionPage(items=(), total=0, limit=limit, offset=offset))
        found = await self._engine.recent(caller_of(request).user, words, offset, limit)
        items = [translate.session_of(state, self._default) for state in found.states]
        return json_answer(
            told.SessionPage(
                items=items,
                total=found.total,
                limit=limit,
                offset=offset,
                content_match_truncated=found.is_partial,
            )
        )

    async def show(self, request: Request) -> Response:
        async with readable(self._engine, request) as live:
            return self._detail(live, request)

    async def rename(self, request: Request) -> Response:
        body = decode(told.Rename, await json_body(request, BODY_LIMIT))
        return await self._changed(request, SettingsChange(title=text(body.intent, "intent", told.INTENT)))

    async def put_env(self, request: Request) -> Response:
        body = decode(told.Environment, await json_body(request, BODY_LIMIT))
        return await self._changed(request, SettingsChange(env=told.checked_env(body.env)))

    async def pin(self, request: Request) -> Response:
        body = decode(told.Pin, await json_body(request, BODY_LIMIT))
        return await self._changed(request, SettingsChange(pinned=body.pinned))

    async def share(self, request: Request) -> Response:
        body = decode(told.Sharing, await json_body(request, BODY_LIMIT))
        async with await owned(self._engine, request) as live:
            await self._engine.change(live, SettingsChange(shared=body.shared))
        return json_answer({"shared": body.shared})

    async def remember(self, request: Request) -> Response:
        body = decode(told.Remembering, await json_body(request, BODY_LIMIT))
        async with await owned(self._engine, request) as live:
            await self._engine.change(live, SettingsChange(memory_enabled=body.memory_enabled))
        return json_answer({"memory_enabled": body.memory_enabled})

    async def delete(self, request: Request) -> Response:
        async with await owned(self._engine, request) as live:
            await self._engine.delete(live)
        return json_answer({"deleted": True})

    # --- inside -----------------------------------------------------------------------------------------------------

    def _memory(self, spec: AgentSpec) -> bool:
        """Whether a new session uses memories, if its maker does not say: as its agent, else as set (rulings, 23)."""
        return self._remembers if spec.memory is None else spec.memory

    @property
    def _default(self) -> str:
        return self._engine.agent(self._engine.default_agent).spec.name

    def _detail(self, live: LiveSession, request: Request) -> Response:
        agent = self._engine.agents.get(live.state.agent)
        is_owner = live.state.owner == caller_of(request).user
        spec = None if agent is None else agent.spec
        return json_answer(translate.detail_of(live.state, spec, self._default, is_owner=is_owner))

    async def _changed(self, request: Request, change: SettingsChange) -> Response:
        async with await owned(self._engine, request) as live:
            await self._engine.change(live, change)
            return self._detail(live, request)
