"""Deletes sessions, and has their agents forget what they keep of them elsewhere.

The store remembers who has to forget until it is done, so that neither a crash nor an error of the agent loses it.
"""

from collections.abc import Callable, Sequence

import structlog

from dragoman.core.agent import Agent, Forgetting
from dragoman.core.ids import SessionId
from dragoman.ports.log import EventLog

log = structlog.get_logger(__name__)


class Oblivion:
    """Deletes sessions from the store.

    Args:
        log: stores all sessions.
        find_agent: an agent of this server by name.
    """

    def __init__(self, log: EventLog, find_agent: Callable[[str], Agent | None]) -> None:
        self._log = log
        self._find_agent = find_agent

    async def delete(self, session_id: SessionId, agents: Sequence[str]) -> None:
        """Delete a session, then have those of the agents that are `Forgetting` forget it.

        An agent that is not served here forgets it when a server that serves it starts.
        """
        forgetting = []
        for name in agents:
            agent = self._find_agent(name)
            if agent is None or isinstance(agent, Forgetting):
                forgetting.append(name)
        await self._log.delete(session_id, forgetting)
        for name in forgetting:
            await self._forget(session_id, name)

    async def resume(self) -> None:
        """Have the agents that are served here forget the sessions that they still have to forget."""
        for session_id, name in await self._log.to_forget():
            await self._forget(session_id, name)

    async def _forget(self, session_id: SessionId, name: str) -> None:
        agent = self._find_agent(name)
        if agent is None:
            return
        if isinstance(agent, Forgetting):
            try:
                await agent.forget(session_id)
            except Exception:  # the session is deleted; the next start tries again
                log.exception("agent did not forget a session", agent=name, session_id=session_id)
                return
        await self._log.forgotten(session_id, name)
