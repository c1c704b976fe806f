"""The counters of used tokens in PostgreSQL."""

from collections.abc import Iterable, Mapping, Sequence

from dragoman.core.token_budgets import TokenCounter
from dragoman.stores.postgres.arrays import Bigints, Texts
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.statements import statements

_SQL = statements("accounts")


class PostgresTokenUsage:
    """`TokenUsageStore` over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, tokens: Mapping[TokenCounter, int]) -> Mapping[TokenCounter, int]:
        """Add to counters. Returns what they count now."""
        values = {**_names(tokens), "tokens": Bigints(tokens.values())}
        rows = await self._database.write(lambda connection: connection.execute(_SQL["add_tokens"], values).fetchall())
        counts = {(holder, period): count for holder, period, count in rows}
        return {each: counts[_storable(each.holder), each.period] for each in tokens}

    async def get(self, counters: Sequence[TokenCounter]) -> Sequence[int]:
        """What counters count, in the same order."""
        values = _names(counters)
        rows = await self._database.read(lambda connection: connection.execute(_SQL["tokens"], values).fetchall())
        return [count for (count,) in rows]

    async def all(self) -> Mapping[TokenCounter, int]:
        """All counters."""
        rows = await self._database.read(lambda connection: connection.execute(_SQL["all_tokens"]).fetchall())
        return {TokenCounter(holder, period): count for holder, period, count in rows}

    async def remove_before(self, period: str) -> None:
        """Remove the counters of earlier periods."""
        values = {"before": period}
        await self._database.write(lambda connection: connection.execute(_SQL["forget_tokens"], values))


def _names(counters: Iterable[TokenCounter]) -> dict[str, Texts]:
    listed = list(counters)
    return {
        "holder": Texts(_storable(each.holder) for each in listed),
        "period": Texts(each.period for each in listed),
    }


def _storable(holder: str) -> str:
    return holder.replace("\0", "\ufffd")
