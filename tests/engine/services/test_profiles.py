"""Profiles with several servers on one store."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.buses.local import LocalBus
from dragoman.core.ids import UserId
from dragoman.core.profile import Profile
from dragoman.engine.services.profiles import ProfileService
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.profiles import SqliteProfiles

ANN = UserId("ann")


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


async def test_a_change_on_another_server_takes_effect_at_once(two_profile_services: list[ProfileService]) -> None:
    await two_profile_services[1].start()
    changed = await two_profile_services[0].change(ANN, time_zone="Asia/Tokyo")
    async with asyncio.timeout(60):
        while two_profile_services[1].for_user(ANN) != changed:  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0)
