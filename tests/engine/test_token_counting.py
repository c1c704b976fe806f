"""Tokens are counted once, whatever fails beside their counting."""

from contextlib import closing
from pathlib import Path

import pytest

from dragoman.core.content import Usage
from dragoman.core.ids import UserId
from dragoman.core.refusals import StoreUnavailable
from dragoman.core.token_budgets import TokenLimits
from dragoman.engine.services.token_budgets import TokenBudgets
from dragoman.server.clock_and_ids import SystemClock
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.token_usage import SqliteTokenUsage

ANN = UserId("ann")


class _CannotRemove(SqliteTokenUsage):
    """Counters of a disk that is full whenever old ones are removed."""

    async def remove_before(self, period: str) -> None:
        raise StoreUnavailable(period)


@pytest.mark.parametrize("store", [SqliteTokenUsage, _CannotRemove])
async def test_tokens_are_counted_once_if_old_counters_cannot_be_removed(
    tmp_path: Path, store: type[SqliteTokenUsage]
) -> None:
    database = Database(tmp_path, synchronous="normal")
    database.start()
    with closing(database):
        budgets = TokenBudgets(store(database), SystemClock(), of_user=lambda _: TokenLimits(per_month=1000))
        counted = [await budgets.count(ANN, None, Usage(input_tokens=7, output_tokens=3)) for _ in range(3)]
        assert [[budget.used for budget in each] for each in counted] == [[10], [20], [30]]
