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
from tests.buses.nats_server import Nats
from tests.engine.engine_group import cluster_world
from tests.engine.world import World, running_world
from tests.extent import sampled
from tests.stores.simulated import SimulatedLog


@pytest.fixture(autouse=True)
def log_records() -> Iterator[list[EventDict]]:
    """Capture the log instead of printing it."""
    with capture_logs() as logs:
        yield logs


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A world over a simulated store: no threads, so that it repeats exactly."""
    async with running_world(SimulatedLog()) as world:
        yield world


CLUSTER_MODULES = {
    "tests.engine.runs.test_attempts",
    "tests.engine.runs.test_client_options",
    "tests.engine.runs.test_crash",
    "tests.engine.runs.test_stop",
    "tests.engine.runs.test_submissions",
    "tests.engine.sessions.test_branches",
}
"""Whose tests are played over several servers too, where it can make a difference."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Over several servers only those are played that look into the memory of none.

    Of those over PostgreSQL every third one is played, on one server or on several, unless everything is played.
    """
    left = [
        item
        for item in items
        if "postgres x3" in item.name
        and (item.get_closest_marker("one_server") or getattr(item, "module").__name__ not in CLUSTER_MODULES)  # noqa: B009  # an Item's kind has it
    ]
    on_postgres = [item for item in items if "[postgres" in item.name and item not in left]
    played = set(sampled(on_postgres, 3))
    left += [item for item in on_postgres if item not in played]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


@pytest.fixture(params=["simulated", "sqlite", "postgres", "postgres x3"])
async def any_world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A world over each store there is."""
    if request.param == "simulated":
        async with running_world(SimulatedLog()) as world:
            yield world
    elif request.param == "sqlite":
        database = Database(tmp_path)
        database.start()
        with closing(database):
            async with running_world(SqliteLog(database)) as world:
                yield world
    elif request.param == "postgres x3":
        nats: Nats | None = request.getfixturevalue("nats") if request.config.getoption("--nats") else None
        url = request.getfixturevalue("postgres_url")
        async with cluster_world(url, nats=None if nats is None else nats.url) as world:
            yield world
    else:
        with closing(postgres.Database(request.getfixturevalue("postgres_url"))) as other:
            async with running_world(PostgresLog(other)) as world:
                yield world
