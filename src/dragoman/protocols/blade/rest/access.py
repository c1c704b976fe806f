"""Which sessions a request may read, and which it may change. Source: specification, 2 (ownership) and 5.5."""

from starlette.requests import Request

from dragoman.core.ids import UserId
from dragoman.core.refusals import Forbidden
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionLease
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.kit.http import principal_of


def open_readable_session(engine: Engine, request: Request) -> SessionLease:
    """The session that a path names, for reading: the caller's own, or one that is shared."""
    return engine.session(principal_of(request).user, _session_name(request), include_shared=True)


async def open_owned_session(engine: Engine, request: Request) -> SessionLease:
    """The session that a path names, which is the caller's own. Raises Forbidden for one that is shared with it."""
    return await open_session_owned_by(engine, principal_of(request).user, _session_name(request))


async def open_session_owned_by(engine: Engine, user: UserId, name: str) -> SessionLease:
    """A session of this user's. Raises Forbidden for one that is shared with it."""
    live = await engine.find_session(user, name, include_shared=True)
    if live.state.owner != user:
        raise Forbidden("this session is shared with you to read")
    return engine.session(user, name)


def _session_name(request: Request) -> str:
    return chat.parse_session_name(request.path_params["session"])
