"""Worlds over real databases and over a simulated store."""

from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from dragoman.stores.postgres import database as postgres
from dragoman.stores.postgres.log import PostgresLog
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.log import SqliteLog
from tests.engine.several import several_over
from tests.engine.world import World, world_over
from tests.stores.simulated import SimulatedLog


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[EventDict]]:
    """What is logged: kept for who asks, and printed nowhere."""
    with capture_logs() as logs:
        yield logs


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A world over a simulated store: no threads, so that it repeats exactly."""
    async with world_over(SimulatedLog()) as world:
        yield world


@pytest.fixture(params=["simulated", "sqlite", "postgres", "postgres x3"])
async def any_world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A world over each store there is."""
    if request.param == "simulated":
        async with world_over(SimulatedLog()) as world:
            yield world
    elif request.param == "sqlite":
        database = Database(tmp_path)
        database.start()
        with closing(database):
            async with world_over(SqliteLog(database)) as world:
                yield world
    elif request.param == "postgres x3":
        if request.node.get_closest_marker("one_server"):
            pytest.skip("it looks into the memory of one server")
        async with several_over(request.getfixturevalue("postgres_url")) as world:
            yield world
    else:
        with closing(postgres.Database(request.getfixturevalue("postgres_url"))) as other:
            async with world_over(PostgresLog(other)) as world:
                yield world
