"""`dragoman compact`: the space of deleted sessions is given back, and everything else stays as it is."""

import asyncio
import re
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from dragoman.cli.main import commands
from dragoman.server.stores import open_stores_at
from tests.stores.contract import commit_accepted, dump_session, new_session_in, session_id


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_the_space_of_deleted_sessions_is_given_back(tmp_path: Path, postgres_url: str, store: str) -> None:
    location = str(tmp_path) if store == "sqlite" else postgres_url

    async def fill() -> object:
        with closing(open_stores_at(location)) as stores:
            for number in (1, 2):
                writer = await new_session_in(stores.log, number)
                texts = [writer.text_events(f"{number} " * 20_000) for _ in range(25)]
                assert all(await commit_accepted(stores.log, *texts))
            await stores.log.delete(session_id(2))
            return await dump_session(stores.log, session_id(1))

    async def read() -> tuple[object, object]:
        with closing(open_stores_at(location)) as stores:
            return await dump_session(stores.log, session_id(1)), await dump_session(stores.log, session_id(2))

    expected = asyncio.run(fill())
    flags = ["--data", str(tmp_path), *(["--database", postgres_url] if store == "postgres" else [])]
    result = CliRunner().invoke(commands, ["compact", *flags])
    sizes = re.fullmatch(r"([\d.]+) MB before, ([\d.]+) MB now\n", result.output)
    assert sizes is not None, result.output
    if store == "sqlite":  # PostgreSQL compresses these texts
        assert float(sizes[2]) < float(sizes[1]) * 0.7
    assert asyncio.run(read()) == (expected, (None, []))


def test_a_database_that_is_used_is_not_compacted(tmp_path: Path) -> None:
    with closing(open_stores_at(str(tmp_path))):
        result = CliRunner().invoke(commands, ["compact", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert "another server uses the data folder" in result.output
