"""Data folders of earlier schemas, and servers that die while they migrate one. Cases 41 and 49."""

import asyncio
import signal
import sqlite3
import sys
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

from dragoman.stores.sqlite.database import Database
from tests.requirements import requirement

MIGRATIONS = sorted(
    resources.files("dragoman.stores.sqlite").joinpath("migrations").iterdir(), key=lambda file: file.name
)
NEWEST = len(MIGRATIONS)
DYING = """
import sys
from pathlib import Path
from tests.crash.failpoints import FailPointCounter, install, parse_fail_point
install(FailPointCounter(parse_fail_point(sys.argv[2])))
from dragoman.stores.sqlite.database import Database
Database(Path(sys.argv[1])).close()
"""
MOMENTS = ("statement:6", "commit:1", "committed:1", "commit:2")


def made_at(folder: Path, version: int) -> None:
    """Create a data folder with the schema of an earlier release, with a row in it."""
    folder.mkdir(exist_ok=True)
    with closing(sqlite3.connect(folder / "dragoman.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        for file in MIGRATIONS[:version]:
            connection.executescript(file.read_text(encoding="utf-8"))
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("INSERT INTO meta VALUES ('kept', 41)")


def schema(folder: Path) -> tuple[int, list[tuple[str, str]]]:
    """The schema's number and statements."""
    with closing(sqlite3.connect(folder / "dragoman.db")) as connection:
        assert connection.execute("SELECT value FROM meta WHERE name = 'kept'").fetchone() == (41,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return version, connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()


@requirement("faults:49:older")
@pytest.mark.parametrize("version", range(1, NEWEST))
def test_a_folder_of_every_earlier_schema_is_migrated_to_the_current_one(tmp_path: Path, version: int) -> None:
    made_at(tmp_path / "old", version)
    made_at(tmp_path / "new", NEWEST)
    Database(tmp_path / "old").close()
    Database(tmp_path / "new").close()
    assert schema(tmp_path / "old") == schema(tmp_path / "new")


@requirement("faults:41:migration", "faults:49:half")
async def test_a_server_killed_during_a_migration_leaves_each_step_done_or_not_done(tmp_path: Path) -> None:
    """Killed at one step after the other, each on a new folder; the next start completes the migration."""

    async def killed(moment: str) -> None:
        folder = tmp_path / moment
        await asyncio.to_thread(made_at, folder, 1)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, str(folder), moment)
        assert await process.wait() == -signal.SIGKILL, f"{moment} is not reached"
        steps, _ = schema(folder)
        assert 1 <= steps < NEWEST or moment.startswith("committed")
        Database(folder).close()
        assert schema(folder) == whole

    made_at(tmp_path / "new", NEWEST)
    whole = schema(tmp_path / "new")
    for moment in MOMENTS:
        await killed(moment)
