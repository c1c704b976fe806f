"""Whether somebody reads a session at another server.

Readers are written down nowhere: they come and go with their connections. So it is asked, over the bus, and whoever has
one answers. A question or an answer that is lost counts as nobody, as does a server that does not answer in time.
"""

import asyncio
from contextlib import suppress

from dragoman.core.ids import SessionId
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.ports.bus import Bus

PRESENCE_QUERY_SUBJECT, PRESENCE_REPLY_SUBJECT = "watched", "watching"
"""Subjects of the bus: who watches this session; somebody does."""
REPLY_TIMEOUT_S = 0.3
"""How long an answer is waited for."""


class PresenceQuery:
    """Asks, and answers when others ask."""

    def __init__(self, bus: Bus, sessions: SessionRegistry) -> None:
        self._bus = bus
        self._sessions = sessions
        self._pending_queries: dict[str, set[asyncio.Event]] = {}
        """Those who ask now, by session: each has its own time."""

    async def is_watched(self, session_id: SessionId) -> bool:
        """Whether somebody reads it, here or at another server."""
        heard = asyncio.Event()
        asking = self._pending_queries.setdefault(session_id, set())
        asking.add(heard)
        try:
            self._bus.publish(PRESENCE_QUERY_SUBJECT, session_id)
            with suppress(TimeoutError):
                async with asyncio.timeout(REPLY_TIMEOUT_S):
                    await heard.wait()
            return heard.is_set()
        finally:
            asking.discard(heard)
            if not asking:
                del self._pending_queries[session_id]

    def on_query(self, payload: str) -> None:
        """Somebody wants to know."""
        live = self._sessions.get_loaded(SessionId(payload))
        if live is not None and live.reader_count:
            self._bus.publish(PRESENCE_REPLY_SUBJECT, payload)

    def on_reply(self, payload: str) -> None:
        """Somebody watches."""
        for heard in self._pending_queries.get(payload, ()):
            heard.set()
