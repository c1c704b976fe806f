"""Worlds over a real database and over a simulated store."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.log import SqliteLog
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


@pytest.fixture(params=["simulated", "sqlite"])
async def any_world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A world over each store there is."""
    if request.param == "simulated":
        async with world_over(SimulatedLog()) as world:
            yield world
        return
    database = Database(tmp_path)
    database.start()
    try:
        async with world_over(SqliteLog(database)) as world:
            yield world
    finally:
        database.close()
