"""The counters of used tokens in SQLite."""

import sqlite3
from collections.abc import Mapping, Sequence

from dragoman.core.token_budgets import TokenCounter
from dragoman.stores.sqlite.database import Database

_ADD = """
    INSERT INTO token_usage (holder, period, tokens) VALUES (?, ?, ?)
    ON CONFLICT (holder, period) DO UPDATE SET tokens = tokens + excluded.tokens
"""


class SqliteTokenUsage:
    """`TokenUsageStore` over one database."""

    def __init__(self, database: Database) -> None:
        self._run = database.writer.run
        self._read = database.read

    async def add(self, tokens: Mapping[TokenCounter, int]) -> Mapping[TokenCounter, int]:
        """Add to counters. Returns what they count now."""

        def added(connection: sqlite3.Connection) -> dict[TokenCounter, int]:
            connection.executemany(_ADD, [(each.holder, each.period, count) for each, count in tokens.items()])
            return {each: _count(connection, each) for each in tokens}

        return await self._run(added)

    async def get(self, counters: Sequence[TokenCounter]) -> Sequence[int]:
        """What counters count, in the same order."""
        return await self._read(lambda connection: [_count(connection, each) for each in counters])

    async def all(self) -> Mapping[TokenCounter, int]:
        """All counters."""
        statement = "SELECT holder, period, tokens FROM token_usage ORDER BY holder, period"
        rows = await self._read(lambda connection: connection.execute(statement).fetchall())
        return {TokenCounter(holder, period): tokens for holder, period, tokens in rows}

    async def remove_before(self, period: str) -> None:
        """Remove the counters of earlier periods."""
        await self._run(lambda connection: connection.execute("DELETE FROM token_usage WHERE period < ?", (period,)))


def _count(connection: sqlite3.Connection, counter: TokenCounter) -> int:
    row = connection.execute(
        "SELECT tokens FROM token_usage WHERE holder = ? AND period = ?", (counter.holder, counter.period)
    ).fetchone()
    return 0 if row is None else int(row[0])
