"""Conversations as resources: their list, and each as Markdown. Reading changes nothing."""

from dragoman.core.content import JsonObject
from dragoman.core.flat_calls import flatten
from dragoman.core.ids import parse_session_id
from dragoman.core.refusals import InvalidCursor, SessionNotFound
from dragoman.core.session import SessionState
from dragoman.engine.engine import Engine
from dragoman.protocols.kit.session_pages import session_page
from dragoman.protocols.mcp.errors import InvalidParams, UnknownResource
from dragoman.protocols.mcp.translate import markdown_of
from dragoman.protocols.mcp.wire import MethodRequest

PAGE = 50
"""How many sessions are read from the store at a time, and at least listed if there are so many."""
MAX_STORE_PAGES = 20
SCHEME = "dragoman://sessions/"
MIME_TYPE = "text/markdown"


class Resources:
    """The conversations of an engine, of agents that declare a history."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def page(self, request: MethodRequest) -> JsonObject:
        """A page of the caller's conversations, newest first; of one agent, if the path names one.

        It is short, or empty, only if there are too many others between its conversations.
        """
        cursor, owner = request.params.get("cursor"), request.principal.user
        after = None if cursor is None else str(cursor)
        listed: list[JsonObject] = []

        def show(state: SessionState) -> JsonObject | None:
            return _resource(state) if self._is_readable(state, request.agent) else None

        for _ in range(MAX_STORE_PAGES):
            try:
                shown, after = await session_page(self._engine, owner, after, PAGE, show)
            except InvalidCursor as error:
                raise InvalidParams("expected the nextCursor of an earlier page") from error
            listed += [each for each in shown if each is not None]
            if after is None or len(listed) >= PAGE:
                break
        page: JsonObject = {"resources": listed}
        return page if after is None else {**page, "nextCursor": after}

    async def templates(self, request: MethodRequest) -> JsonObject:
        """How the address of a conversation is made."""
        template = {"uriTemplate": f"{SCHEME}{{session_id}}", "name": "session", "mimeType": MIME_TYPE}
        return {"resourceTemplates": [template]}

    async def read(self, request: MethodRequest) -> JsonObject:
        """A conversation as Markdown.

        Raises:
            UnknownResource: there is none, or it is another owner's, or its agent shows no history.
        """
        uri = request.params.get("uri")
        session_id = parse_session_id(uri.removeprefix(SCHEME)) if isinstance(uri, str) else None
        if session_id is None or not str(uri).startswith(SCHEME):
            raise UnknownResource(uri)
        try:
            async with self._engine.session(request.principal.user, session_id) as session:
                if not self._is_readable(session.state, request.agent):
                    raise UnknownResource(uri)
                await session.until_durable(session.state.seq)
                messages = await self._engine.history.messages(session, arrange=flatten)
        except SessionNotFound:
            raise UnknownResource(uri) from None
        return {"contents": [{"uri": uri, "mimeType": MIME_TYPE, "text": markdown_of(messages)}]}

    def _is_readable(self, state: SessionState, agent: str | None) -> bool:
        spec = self._engine.find_spec(state.agent)
        if spec is not None and not spec.capabilities.history_full:
            return False  # if the agent is no longer served, its sessions can still be read (shared rules, 4)
        return agent is None or self._engine.agent(agent).spec.name == state.agent


def _resource(state: SessionState) -> JsonObject:
    return {
        "uri": f"{SCHEME}{state.session_id}",
        "name": state.title() or state.session_id,
        "mimeType": MIME_TYPE,
        "annotations": {"lastModified": state.updated_at},
    }
