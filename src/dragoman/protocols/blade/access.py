"""Which sessions a user may read, and which one may change. Source: specification, 2 (ownership) and 5.5."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman.core.ids import UserId
from dragoman.core.refusals import Forbidden
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionLease, SessionView
from dragoman.protocols.blade.wire.chat import parse_session_name


def lease_readable(engine: Engine, user: UserId, public_id: str) -> SessionLease:
    """Lease a session for reading: the user's own, or one that is shared."""
    return engine.session(user, parse_session_name(public_id), include_shared=True)


@asynccontextmanager
async def lease_owned(engine: Engine, user: UserId, public_id: str) -> AsyncIterator[SessionView]:
    """Lease a session for writing. Raises Forbidden if it is another user's, who shares it."""
    async with lease_readable(engine, user, public_id) as session:
        if session.state.owner != user:
            raise Forbidden("this session is shared with you to read")
        yield session
