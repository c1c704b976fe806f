"""What every store of token counters promises."""

import asyncio

import pytest

from dragoman.core.token_budgets import TokenCounter
from dragoman.ports.accounts import TokenUsageStore
from dragoman.stores.postgres.token_usage import PostgresTokenUsage
from dragoman.stores.sqlite.token_usage import SqliteTokenUsage

STRANGE = "user:a\x00b 你好 'quoted'"


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> TokenUsageStore:
    if request.param == "sqlite":
        return SqliteTokenUsage(request.getfixturevalue("sqlite_database"))
    return PostgresTokenUsage(request.getfixturevalue("postgres_database"))


async def test_concurrent_additions_are_all_counted_and_old_periods_are_removed(store: TokenUsageStore) -> None:
    day, month, other = (
        TokenCounter("user:ann", "2026-11-23"),
        TokenCounter("user:ann", "2026-11"),
        TokenCounter(STRANGE, "2026-09-30"),
    )
    assert list(await store.get([other, day])) == [0, 0]
    totals = await asyncio.gather(*[store.add({month: 10**12, day: number}) for number in range(1, 11)])
    assert sorted(each[month] for each in totals) == [number * 10**12 for number in range(1, 11)]
    assert max(each[day] for each in totals) == 55
    assert await store.add({other: 7}) == {other: 7}
    assert await store.add({other: 1}) == {other: 8}
    assert list(await store.get([other, day, month])) == [8, 55, 10**13]
    await store.remove_before("2026-10")
    assert await store.all() == {month: 10**13, day: 55}
