"""Profiles with several servers on one store."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from dragoman.buses.local import LocalBus
from dragoman.core.ids import UserId
from dragoman.core.profile import Profile
from dragoman.engine.services.profiles import ProfileService
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.profiles import SqliteProfiles

ANN = UserId("ann")


class NotifyingProfiles(SqliteProfiles):
    """A server's profiles, and an event for each time when it has read them."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.was_read = asyncio.Event()

    async def all(self) -> Sequence[Profile]:
        found = await super().all()
        self.was_read.set()
        return found


@pytest.fixture
async def two_profile_services(tmp_path: Path) -> AsyncIterator[list[ProfileService]]:
    """The profile services of two servers on one store. They do not hear of each other until they are started."""
    database = Database(tmp_path, synchronous="normal")
    database.start()
    bus = LocalBus()
    made = [ProfileService(SqliteProfiles(database), bus) for _ in range(2)]
    yield made
    for each in made:
        each.close()
    database.close()


async def test_a_change_does_not_overwrite_a_setting_of_another_server(
    two_profile_services: list[ProfileService],
) -> None:
    await two_profile_services[0].change(ANN, time_zone="Europe/Berlin")
    assert await two_profile_services[1].change(ANN, locale="de") == Profile(
        user=ANN, time_zone="Europe/Berlin", locale="de"
    )


async def test_a_change_on_another_server_takes_effect_at_once(tmp_path: Path) -> None:
    """The bus tells the other server to read the profiles again."""
    bus = LocalBus()
    with closing(Database(tmp_path, synchronous="normal")) as database:
        database.start()
        read = NotifyingProfiles(database)
        here, there = ProfileService(SqliteProfiles(database), bus), ProfileService(read, bus)
        await there.start()
        read.was_read.clear()
        changed = await here.change(ANN, time_zone="Asia/Tokyo")
        async with asyncio.timeout(60):
            await read.was_read.wait()
        assert there.for_user(ANN) == changed
        there.close()
