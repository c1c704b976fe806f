"""Finds out whether a session has readers on other servers.

Readers are not persisted: they come and go with their connections. A server queries its peers over the bus instead. A
lost query, a lost reply and a late reply all count as no reader.
"""

import asyncio
from contextlib import suppress

from dragoman.core.ids import SessionId
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.ports.bus import Bus

PRESENCE_QUERY_SUBJECT, PRESENCE_REPLY_SUBJECT = "watched", "watching"
"""Subjects of the query and of the reply; both carry the session's id."""
REPLY_TIMEOUT_S = 0.3
"""How long to wait for a reply."""


class PresenceQuery:
    """Queries the other servers and replies to their queries."""

    def __init__(self, bus: Bus, sessions: SessionRegistry) -> None:
        self._bus = bus
        self._sessions = sessions
        self.pending_queries: dict[str, set[asyncio.Event]] = {}
        """Queries without an answer, by session; each has its own deadline."""

    async def is_watched(self, session_id: SessionId) -> bool:
        """Whether the session has a reader on any server that replies in time."""
        replied = asyncio.Event()
        queries = self.pending_queries.setdefault(session_id, set())
        queries.add(replied)
        try:
            self._bus.publish(PRESENCE_QUERY_SUBJECT, session_id)
            with suppress(TimeoutError):
                async with asyncio.timeout(REPLY_TIMEOUT_S):
                    await replied.wait()
            return replied.is_set()
        finally:
            queries.discard(replied)
            if not queries:
                del self.pending_queries[session_id]

    def on_query(self, payload: str) -> None:
        """Reply to a query if the session has a reader here."""
        live = self._sessions.get_loaded(SessionId(payload))
        if live is not None and live.reader_count:
            self._bus.publish(PRESENCE_REPLY_SUBJECT, payload)

    def on_reply(self, payload: str) -> None:
        """Handle a reply."""
        for replied in self.pending_queries.get(payload, ()):
            replied.set()
