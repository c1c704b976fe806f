"""A disk that fails, fills up or becomes read-only, and files that other programs change. Case 43."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from dragoman.stores.sqlite import health
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.log import SqliteLog
from tests.crash.unsynced_disk import UnsyncedDiskUnavailable, sqlite_library
from tests.protocols.aap.client import AapClient, Session
from tests.requirements import requirement
from tests.servers import AppServer, running_server
from tests.stores.contract import DEADLINE_S, commit_accepted, new_session_in, session_id

HAS_UNSYNCED_DISK = True
try:
    sqlite_library()
except UnsyncedDiskUnavailable:
    HAS_UNSYNCED_DISK = False

FAILING = """
import asyncio, sys
from pathlib import Path
from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.log import SqliteLog
from tests.crash.unsynced_disk import on_sync
from tests.stores.contract import SessionWriter, commit_accepted, new_session_in

IOERR_FSYNC = 1034
is_failing = False

async def main() -> None:
    global is_failing
    on_sync(lambda path, sync: IOERR_FSYNC if is_failing else sync())
    database = Database(Path(sys.argv[1]))
    database.start()
    store = SqliteLog(database)
    for number in range(1, 4):
        writing = await new_session_in(store, number)
        before = database.writer.connection
        is_failing = True
        for other in range(2):
            try:
                await commit_accepted(store, SessionWriter(100 + number * 10 + other, epoch=writing.epoch).new())
            except StoreUnavailable as error:
                print("refused", repr(error.__cause__), flush=True)
        is_failing = False
        assert await commit_accepted(store, writing.text_events("again")) == [True]
        assert database.writer.connection is not before
        print("another", number, flush=True)
    database.close()

asyncio.run(main())
"""


@requirement("faults:43:fsync")
@pytest.mark.skipif(not HAS_UNSYNCED_DISK, reason="this Python holds an SQLite that cannot be reached from outside")
async def test_after_a_failed_sync_a_new_handle_writes_and_refused_data_is_not_stored(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FAILING, str(tmp_path)),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((".", os.environ.get("PYTHONPATH", "")))},
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    lines = [line for line in out.decode().splitlines() if line.startswith(("refused", "another"))]
    refused = "refused OperationalError('disk I/O error')"
    assert lines == [line for number in (1, 2, 3) for line in (refused, refused, f"another {number}")], out.decode()
    with closing(Database(tmp_path)) as database:
        store = SqliteLog(database)
        for number in (1, 2, 3):
            assert len(await store.events(session_id(number), 0, 10)) == 2
            for other in range(2):
                assert await store.load(session_id(100 + number * 10 + other)) is None


# --- a server on such a disk ------------------------------------------------------------------------------------------


@pytest.fixture
def databases(monkeypatch: pytest.MonkeyPatch) -> list[Database]:
    """The databases that servers open during the test."""
    started: list[Database] = []
    start = Database.start

    def record(self: Database) -> None:
        started.append(self)
        start(self)

    monkeypatch.setattr(Database, "start", record)
    return started


@pytest.fixture
async def app_server(tmp_path: Path, databases: list[Database]) -> AsyncIterator[AppServer]:
    async with running_server(tmp_path) as server:
        yield server


@pytest.fixture
def writing(databases: list[Database], app_server: AppServer) -> sqlite3.Connection:
    """The server's writing connection, to give it the faults of a disk."""
    database = databases[-1]  # the first one was open while keys were created
    return database.writer.connection


async def assert_refused(aap_client: AapClient) -> tuple[int, str]:
    answer = await aap_client.open("POST", "/sessions", {"agent": {"name": "rehearsal"}})
    return answer.status, json.loads(await answer.read())["code"]


async def history_texts(server: AppServer, path: str) -> tuple[int, Any]:
    answer = await server.connection.open("GET", path)
    return answer.status, json.loads(await answer.read())


@requirement("faults:43:read-only")
async def test_with_a_read_only_disk_new_work_is_refused_reading_works_and_it_is_logged(
    app_server: AppServer, writing: sqlite3.Connection
) -> None:
    aap = app_server.aap_client("alice")
    session = await aap.create()
    await session.run("before")
    writing.execute("PRAGMA query_only = ON")  # SQLite answers like this for a disk that became read-only
    for _ in range(3):
        assert await assert_refused(aap) == (503, "unavailable")
    reason = "cannot write to the database now: attempt to write a readonly database"
    assert await history_texts(app_server, "/readyz") == (503, {"status": "store unavailable", "reason": reason})
    assert len(await session.history()) == 2
    writing.execute("PRAGMA query_only = OFF")
    assert await history_texts(app_server, "/readyz") == (200, {"status": "ready"})
    await session.run("after")
    assert len(await session.history()) == 4


@requirement("faults:43:full")
async def test_a_server_on_a_full_disk_is_not_ready_until_there_is_room(
    app_server: AppServer, writing: sqlite3.Connection
) -> None:
    """Small writes may still fit into the space that the database has."""
    aap = app_server.aap_client("alice")
    session = await aap.create()
    pages = writing.execute("PRAGMA page_count").fetchone()[0]
    writing.execute(f"PRAGMA max_page_count = {pages + 20}")
    answer = await aap.open("POST", "/sessions", {"agent": {"name": "rehearsal"}, "title": "x" * 200})
    while answer.status == 201:
        answer = await aap.open("POST", "/sessions", {"agent": {"name": "rehearsal"}, "title": "x" * 200})
    reason = "cannot write to the database now: database or disk is full"
    for _ in range(3):
        assert await history_texts(app_server, "/readyz") == (503, {"status": "store unavailable", "reason": reason})
    writing.execute("PRAGMA max_page_count = 1000000")
    assert await history_texts(app_server, "/readyz") == (200, {"status": "ready"})
    await session.run("after")


@requirement("faults:43:full")
async def test_a_server_whose_disk_is_full_says_so_before_a_write_fails(
    app_server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    aap = app_server.aap_client("alice")
    await aap.create()
    with monkeypatch.context() as patch:
        patch.setattr(health, "PROBE_BYTES", 2**62)  # more than any disk has left
        reason = "the disk of the data folder is full"
        assert await history_texts(app_server, "/readyz") == (503, {"status": "store unavailable", "reason": reason})
    assert await history_texts(app_server, "/readyz") == (200, {"status": "ready"})


@requirement("faults:43:damaged")
async def test_a_server_whose_database_is_damaged_is_not_ready(tmp_path: Path) -> None:
    """While reads fail, all of them or some, a load balancer should send users elsewhere."""
    with closing(Database(tmp_path)) as database:
        database.start()
        await new_session_in(SqliteLog(database))
    with closing(sqlite3.connect(tmp_path / "dragoman.db")) as connection:
        ((root, page_size),) = connection.execute(
            "SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = 'sessions_by_owner'"
        )
    with (tmp_path / "dragoman.db").open("r+b") as file:
        file.seek((root - 1) * page_size)
        file.write(b"\xff" * page_size)
    async with running_server(tmp_path) as server:
        assert (await history_texts(server, "/readyz"))[0] == 200, "nothing is known yet"
        answer = await server.aap_client("alice").open("GET", "/sessions")
        assert answer.status == 503
        reason = "the database is damaged: database disk image is malformed"
        assert await history_texts(server, "/readyz") == (503, {"status": "store unavailable", "reason": reason})


@requirement("faults:43:deleted")
async def test_when_the_data_folder_is_removed_no_work_is_taken_and_the_log_says_how_to_save_everything(
    tmp_path: Path,
) -> None:
    folder, rescued = tmp_path / "data", tmp_path / "RESCUED"
    async with running_server(folder) as server:
        aap = server.aap_client("alice")
        session = await aap.create()
        await session.run("before")
        history = await session.history()
        shutil.rmtree(folder)
        with capture_logs() as logs:
            for _ in range(3):
                assert await assert_refused(aap) == (503, "unavailable")
        reason = "the data folder was removed"
        assert await history_texts(server, "/readyz") == (503, {"status": "store unavailable", "reason": reason})
        assert await session.history() == history, "reading works"
        (entry,) = [entry for entry in logs if entry["event"] == reason]
        command = entry["hint"].removeprefix("before stopping it: ").partition(";")[0]
        subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, check=True)  # noqa: ASYNC221  # a short copy
    async with running_server(rescued) as server:
        assert await Session(server.aap_client("alice"), session.id).history() == history


@requirement("faults:43:locked")
async def test_a_lock_of_another_program_is_waited_for_and_then_work_is_refused_until_it_ends(
    app_server: AppServer, writing: sqlite3.Connection
) -> None:
    aap = app_server.aap_client("alice")
    session = await aap.create()
    with closing(sqlite3.connect(app_server.folder / "dragoman.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(session.run("patiently"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        other.execute("ROLLBACK")
        assert (await waiting).stop == "end_turn"
        writing.execute("PRAGMA busy_timeout = 50")
        other.execute("BEGIN IMMEDIATE")
        assert await assert_refused(aap) == (503, "unavailable")
        assert len(await session.history()) == 2
        other.execute("ROLLBACK")
    await session.run("again")
    assert len(await session.history()) == 4


@requirement("faults:43:log-deleted")
async def test_deleting_the_log_of_a_running_server_loses_nothing_acknowledged(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.start()
    store = SqliteLog(database)
    writing = await new_session_in(store)
    with capture_logs() as logs:
        (tmp_path / "dragoman.db-wal").unlink()
        for _ in range(3):
            assert await commit_accepted(store, writing.text_events("x" * 5000)) == [True]
            left = tmp_path / "left"
            left.write_bytes((tmp_path / "dragoman.db").read_bytes())  # what the death of the process would leave
            with closing(sqlite3.connect(left)) as connection:
                count = connection.execute("SELECT count(*) FROM events").fetchone()[0]
                assert count == len(writing.log)
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            left.unlink()
            (tmp_path / "left-wal").unlink(missing_ok=True)
            (tmp_path / "left-shm").unlink(missing_ok=True)
            assert [*await store.events(writing.session_id, 0, 100)] == writing.log
    assert [each["event"] for each in logs] == ["the database's write-ahead log was deleted"], "once"
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.to_thread(database.close)
    with closing(Database(tmp_path)) as again:
        assert [*await SqliteLog(again).events(writing.session_id, 0, 100)] == writing.log
