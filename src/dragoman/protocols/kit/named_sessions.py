"""Sessions under an id or a name that a client chose, for protocols on which another owner's id is only a name."""

from collections.abc import Awaitable, Callable

import msgspec

from dragoman.core.ids import UserId, parse_session_id
from dragoman.core.inputs import Create
from dragoman.core.refusals import AgentNotChangeable, Forbidden, IdTaken, SessionNotFound
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView

MAX_ATTEMPTS = 3
"""How often a session is looked up that other requests create or delete at the same moment."""


async def find_or_create(
    find: Callable[[], Awaitable[SessionView]], create: Callable[[], Awaitable[SessionView]]
) -> tuple[SessionView, bool]:
    """Find a session, or create it if there is none; the second value says whether it is new.

    Of several requests that create it at the same time, one succeeds and the others find its session.

    Raises:
        SessionNotFound: from `create`, or it is there neither for `find` nor free for `create`.
    """
    for _ in range(MAX_ATTEMPTS):
        try:
            return await find(), False
        except SessionNotFound:
            try:
                return await create(), True
            except IdTaken:
                continue
    raise SessionNotFound


async def create_named(engine: Engine, owner: UserId, name: str, create: Create) -> SessionView:
    """Create a session that its owner finds by `name`: an id, or any other text; empty for none (shared rules, 1).

    A run follows: see `Engine.create`.

    Raises:
        IdTaken: the owner has such a session, perhaps since a moment ago.
        AgentNotFound, Invalid, ShuttingDown, StoreUnavailable: as `Engine.create`.
    """
    session_id = parse_session_id(name)
    if session_id is not None:
        try:
            return await engine.create(owner, msgspec.structs.replace(create, session_id=session_id), run_follows=True)
        except IdTaken:
            if not await engine.exists_for_other_owner(owner, session_id):
                raise
    create = msgspec.structs.replace(create, name=session_id or name or None)
    return await engine.create(owner, create, run_follows=True)


async def find_of_agent(
    engine: Engine, owner: UserId, name: str, agent: str, *, noun: str, reveals_foreign: bool = False
) -> SessionView:
    """Find a session of an owner and an agent, for protocols whose paths name both. The agent need not be served.

    Args:
        engine: the engine.
        owner: the user who asks.
        name: the session's id, or its name.
        agent: the agent's name or an alias.
        noun: the protocol's word for a session.
        reveals_foreign: raise Forbidden for another owner's session. Only for protocols that do (shared rules, 2).

    Raises:
        AgentNotFound, SessionNotFound, AgentNotChangeable: there is no such agent or session, or no such pair.
        Forbidden: it is another user's.
    """
    try:
        session = await engine.find_session(owner, name, reveals_foreign=reveals_foreign)
    except (SessionNotFound, Forbidden):
        engine.agent(agent)
        raise
    if agent != session.state.agent and engine.agent(agent).spec.name != session.state.agent:
        raise AgentNotChangeable(f"this {noun}'s agent is {session.state.agent!r} and cannot change")
    return session
