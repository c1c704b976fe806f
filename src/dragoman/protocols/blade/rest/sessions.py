"""Blade's sessions over REST. Source: specification, section 5.2."""

from collections.abc import Mapping

from starlette.requests import Request

from dragoman.core.events import SettingsChange
from dragoman.core.inputs import Create
from dragoman.core.principal import Principal
from dragoman.core.refusals import Invalid, SessionUnreadable
from dragoman.core.text_checks import check_text, check_variables
from dragoman.core.tools import grants_without
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade import translate
from dragoman.protocols.blade.access import lease_owned
from dragoman.protocols.blade.rest.endpoints import PAGE_QUERY, SESSION, BladeHandlers, endpoint, parse_page
from dragoman.protocols.blade.wire import sessions as wire
from dragoman.protocols.blade.wire.chat import SessionDetail, parse_session_name, public_session_id
from dragoman.protocols.blade.wire.sessions import CreatedSession, SessionPage
from dragoman.protocols.kit.connection import while_connected
from dragoman.protocols.kit.endpoints import query

BODY_LIMIT = 4 * 1024 * 1024
DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 20, 200
_SEARCH_QUERY = (query("q", "text in the title or the messages, in any case and script"), *PAGE_QUERY)


class SessionHandlers(BladeHandlers):
    """Handlers of sessions as a whole.

    Args:
        memory_default: whether a new session uses memories if neither the request nor the agent says.
    """

    def __init__(self, engine: Engine, *, memory_default: bool) -> None:
        self.engine = engine
        self._memory_default = memory_default

    @endpoint("POST", "/sessions", example={"intent": "a task"}, body_limit=BODY_LIMIT)
    async def create(self, principal: Principal, body: wire.CreateSession) -> CreatedSession:
        """Create a session."""
        check_variables(body.env, "env")
        spec = self.engine.agent(body.solution_id or self.engine.default_agent).spec
        memory = spec.memory if body.memory_enabled is None else body.memory_enabled
        change = SettingsChange(
            title=(body.intent or "").strip()[: wire.MAX_INTENT_CHARS] or None,  # clients send whole prompts
            model=wire.optional_text(body.model, "model"),
            variant=wire.optional_text(body.biz_role_id, "biz_role_id"),
            env=body.env or None,
            persistent=body.is_persistent,
        )
        create = Create(
            protocol=translate.PROTOCOL,
            agent=spec.name,
            tools=grants_without(spec, body.disable_tools or ()) or "all",
            options=body.options or {},
            memory_enabled=self._memory_default if memory is None else memory,
            change=change,
        )
        session = await self.engine.create(principal.user, create)
        return CreatedSession(public_session_id(session.state.session_id))

    @endpoint("GET", "/sessions", parameters=_SEARCH_QUERY)
    async def page(self, principal: Principal, query: Mapping[str, str], request: Request) -> SessionPage:
        """List your sessions, pinned ones first."""
        offset, limit = parse_page(query, default=DEFAULT_PAGE_SIZE, maximum=MAX_PAGE_SIZE)
        text = query.get("q", "").strip()
        if len(text) > wire.MAX_QUERY_CHARS:
            raise Invalid(f"must have at most {wire.MAX_QUERY_CHARS} characters", path="q")
        if query.get("template_id_prefix"):  # of a field that is always null here
            return SessionPage(items=(), total=0, limit=limit, offset=offset)
        recent = await while_connected(request, self.engine.recent(principal.user, text, offset, limit))
        page = SessionPage(
            items=[translate.session_of(state) for state in recent.states],
            total=recent.total,
            limit=limit,
            offset=offset,
            content_match_truncated=recent.is_partial,
        )
        await self.engine.until_durable([(state.session_id, state.seq) for state in recent.states])
        return page

    @endpoint("GET", SESSION, access="reader")
    async def get(self, principal: Principal, session: SessionView) -> SessionDetail:
        """Get a session."""
        return session_detail(self.engine, session, is_owner=session.state.owner == principal.user)

    @endpoint("PATCH", SESSION, access="owner", example={"intent": "another task"})
    async def rename(self, session: SessionView, body: wire.Rename) -> SessionDetail:
        """Rename a session."""
        return await self._change(
            session, SettingsChange(title=check_text(body.intent, "intent", wire.MAX_INTENT_CHARS))
        )

    @endpoint("DELETE", SESSION)
    async def delete(self, principal: Principal, session: str) -> dict[str, bool]:
        """Delete a session."""
        try:
            async with lease_owned(self.engine, principal.user, session) as owned:
                await self.engine.delete(owned)
        except SessionUnreadable:
            await self.engine.delete_by_name(principal.user, parse_session_name(session))
        return {"deleted": True}

    @endpoint("PUT", f"{SESSION}/env", access="owner", example={"env": {"NAME": "value"}}, body_limit=BODY_LIMIT)
    async def put_env(self, session: SessionView, body: wire.Environment) -> SessionDetail:
        """Replace a session's variables."""
        check_variables(body.env, "env")
        return await self._change(session, SettingsChange(env=body.env))

    @endpoint("PATCH", f"{SESSION}/pin", access="owner", example={"pinned": True})
    async def set_pinned(self, session: SessionView, body: wire.Pin) -> SessionDetail:
        """Pin or unpin a session."""
        return await self._change(session, SettingsChange(pinned=body.pinned))

    @endpoint("PATCH", f"{SESSION}/sharing", access="owner", example={"shared": True})
    async def set_shared(self, session: SessionView, body: wire.Sharing) -> dict[str, bool]:
        """Let other users read a session."""
        await self.engine.change(session, SettingsChange(shared=body.shared))
        return {"shared": body.shared}

    @endpoint("PATCH", f"{SESSION}/memory", access="owner", example={"memory_enabled": False})
    async def set_memory_enabled(self, session: SessionView, body: wire.MemorySetting) -> dict[str, bool]:
        """Switch memory on or off."""
        await self.engine.change(session, SettingsChange(memory_enabled=body.memory_enabled))
        return {"memory_enabled": body.memory_enabled}

    async def _change(self, session: SessionView, change: SettingsChange) -> SessionDetail:
        await self.engine.change(session, change)
        return session_detail(self.engine, session)


def session_detail(engine: Engine, session: SessionView, *, is_owner: bool = True) -> SessionDetail:
    """Return the detail form of a session."""
    return translate.detail_of(session.state, engine.find_spec(session.state.agent), is_owner=is_owner)
