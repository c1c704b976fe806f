"""Which sessions a request may read, and which it may change. Source: specification, 2 (ownership) and 5.5."""

from starlette.requests import Request

from dragoman.core.ids import UserId
from dragoman.core.refusals import Forbidden
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.registry import Held
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.kit.http import caller_of


def readable(engine: Engine, request: Request) -> Held:
    """The session that a path names, for reading: the caller's own, or one that is shared."""
    return engine.session(caller_of(request).user, _name(request), shared_too=True)


async def owned(engine: Engine, request: Request) -> Held:
    """The session that a path names, which is the caller's own. Raises Forbidden for one that is shared with it."""
    return await owned_by(engine, caller_of(request).user, _name(request))


async def owned_by(engine: Engine, user: UserId, name: str) -> Held:
    """A session of this user's. Raises Forbidden for one that is shared with it."""
    live = await engine.found(user, name, shared_too=True)
    if live.state.owner != user:
        raise Forbidden("this session is shared with you to read")
    return engine.session(user, name)


def _name(request: Request) -> str:
    return chat.session_name(request.path_params["session"])
