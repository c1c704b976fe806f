"""New sessions under an id or a name that a client chose, for protocols on which another owner's id is only a name."""

import msgspec

from dragoman.core.ids import UserId, parse_session_id
from dragoman.core.inputs import Create
from dragoman.core.refusals import IdTaken
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView


async def create_named(engine: Engine, owner: UserId, name: str, create: Create) -> SessionView:
    """Create a session that its owner finds by `name`: an id, or any other text; empty for none (shared rules, 1).

    Raises:
        IdTaken: the owner has such a session, perhaps since a moment ago.
        AgentNotFound, Invalid, ShuttingDown, StoreUnavailable: as `Engine.create`.
    """
    session_id = parse_session_id(name)
    if session_id is not None:
        try:
            return await engine.create(owner, msgspec.structs.replace(create, session_id=session_id))
        except IdTaken:
            if not await engine.exists_for_other_owner(owner, session_id):
                raise
    return await engine.create(owner, msgspec.structs.replace(create, name=session_id or name or None))
