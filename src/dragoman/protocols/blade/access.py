"""Which sessions a user may read, and which one may change. Source: specification, 2 (ownership) and 5.5."""

from dragoman.core.ids import UserId
from dragoman.core.refusals import Forbidden
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionLease
from dragoman.protocols.blade.wire.chat import parse_session_name


def lease_readable(engine: Engine, user: UserId, public_id: str) -> SessionLease:
    """Lease a session for reading: the user's own, or one that is shared."""
    return engine.session(user, parse_session_name(public_id), include_shared=True)


async def lease_owned(engine: Engine, user: UserId, public_id: str) -> SessionLease:
    """Lease a session for writing. Raises Forbidden if it is another user's, who shares it."""
    name = parse_session_name(public_id)
    session = await engine.find_session(user, name, include_shared=True)
    if session.state.owner != user:
        raise Forbidden("this session is shared with you to read")
    return engine.session(user, name)
