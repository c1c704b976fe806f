"""What tests of servers on one store stand on."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, closing

import pytest

from dragoman.buses.local import LocalBus
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.log import PostgresLog
from tests.engine.engine_group import ClusterWorld, TwoEngines
from tests.engine.world import running_world


@pytest.fixture
async def two_engines(postgres_url: str) -> AsyncIterator[TwoEngines]:
    with ExitStack() as databases:
        reading = databases.enter_context(closing(Database(postgres_url, access="unlocked")))
        world = ClusterWorld(PostgresLog(reading), postgres_url, databases, 2)
        async with running_world(world):
            bus = LocalBus()
            first, second = [await world.start_one(bus, {}) for _ in range(2)]
            world.engines += [first, second]
            yield TwoEngines(world, first, second)
