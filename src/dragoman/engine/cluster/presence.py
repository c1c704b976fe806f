"""Whether somebody reads a session at another server.

Readers are written down nowhere: they come and go with their connections. So it is asked, over the bus, and whoever has
one answers. A question or an answer that is lost counts as nobody, as does a server that does not answer in time.
"""

import asyncio
from contextlib import suppress

from dragoman.core.ids import SessionId
from dragoman.engine.sessions.registry import Sessions
from dragoman.ports import Bus

WATCHED, WATCHING = "watched", "watching"
"""Subjects of the bus: who watches this session; somebody does."""
ANSWER_S = 0.3
"""How long an answer is waited for."""


class Watching:
    """Asks, and answers when others ask."""

    def __init__(self, bus: Bus, sessions: Sessions) -> None:
        self._bus = bus
        self._sessions = sessions
        self._asked: dict[str, set[asyncio.Event]] = {}
        """Those who ask now, by session: each has its own time."""

    async def elsewhere(self, session_id: SessionId) -> bool:
        """Whether somebody reads it, here or at another server."""
        heard = asyncio.Event()
        asking = self._asked.setdefault(session_id, set())
        asking.add(heard)
        try:
            self._bus.publish(WATCHED, session_id)
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_S):
                    await heard.wait()
            return heard.is_set()
        finally:
            asking.discard(heard)
            if not asking:
                del self._asked[session_id]

    def hear_question(self, payload: str) -> None:
        """Somebody wants to know."""
        live = self._sessions.at_hand(SessionId(payload))
        if live is not None and live.readers:
            self._bus.publish(WATCHING, payload)

    def hear_answer(self, payload: str) -> None:
        """Somebody watches."""
        for heard in self._asked.get(payload, ()):
            heard.set()
