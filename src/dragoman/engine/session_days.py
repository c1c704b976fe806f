"""Reads sessions day by day: the newest day with messages, and no more of the log than that takes."""

from collections.abc import Sequence
from datetime import UTC, date, tzinfo
from typing import NamedTuple

from dragoman.core.history_days import DayFinder, HistoryEntry
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView


class SessionDay(NamedTuple):
    """One day of a session; None if it has no messages. `has_more`: there are days before it."""

    day: date | None
    has_more: bool
    entries: Sequence[HistoryEntry]


async def newest_day(engine: Engine, session: SessionView, before: date | None, zone: tzinfo = UTC) -> SessionDay:
    """Read the newest day with messages, or the newest before another day.

    Days are those of the zone. References to uploaded objects stay in the messages; all other content that is stored
    outside the log is restored.
    """
    state, history = session.state, engine.history
    finder = DayFinder(state.message_count, before, state.is_visible, zone)
    seq = state.seq
    await session.until_durable(seq)
    async for page in history.newest_events(session, seq + 1):
        if finder.feed(page):
            break
    first = finder.first
    row = None if first is None or first.run_id is None else await engine.index.find_run(first.run_id)
    started = None if row is None else await history.run_start(session, row.first_seq)
    entries = finder.messages(started)
    messages = [each.message for each in entries]
    restored = await engine.attachments.restore(state.session_id, messages, with_uploads=False)
    entries = [entry._replace(message=message) for entry, message in zip(entries, restored, strict=True)]
    return SessionDay(finder.day, finder.has_more, entries)
