"""Profiles where several servers share a store."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.buses.local import LocalBus
from dragoman.core.ids import UserId
from dragoman.core.profile import Profile
from dragoman.engine.services.profiles import ProfileBook
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.profiles import SqliteProfiles

ANN = UserId("ann")


@pytest.fixture
async def books(tmp_path: Path) -> AsyncIterator[list[ProfileBook]]:
    """Two servers' books on one store, deaf to each other until they are started."""
    database = Database(tmp_path, synchronous="normal")
    database.start()
    bus = LocalBus()
    made = [ProfileBook(SqliteProfiles(database), bus) for _ in range(2)]
    yield made
    for each in made:
        each.close()
    database.close()


async def test_a_setting_does_not_undo_one_that_was_set_elsewhere(books: list[ProfileBook]) -> None:
    await books[0].change(ANN, time_zone="Europe/Berlin")
    assert await books[1].change(ANN, locale="de") == Profile(user=ANN, time_zone="Europe/Berlin", locale="de")


async def test_what_was_set_elsewhere_is_heard_at_once(books: list[ProfileBook]) -> None:
    await books[1].start()
    changed = await books[0].change(ANN, time_zone="Asia/Tokyo")
    async with asyncio.timeout(5):
        while books[1].of(ANN) != changed:  # noqa: ASYNC110  # nobody is told
            await asyncio.sleep(0)
