"""Databases for the tests of stores."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dragoman.stores.postgres import database as postgres
from dragoman.stores.sqlite import database as sqlite


@pytest.fixture
def sqlite_database(tmp_path: Path) -> Iterator[sqlite.Database]:
    with closing(sqlite.Database(tmp_path, synchronous="normal")) as database:
        database.start()
        yield database


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[postgres.Database]:
    with closing(postgres.Database(postgres_url, access="unlocked")) as database:
        yield database
