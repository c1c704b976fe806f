"""A data folder's database: one process has it, its schema is brought up to date, and a full disk loses nothing."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from dragoman.core.content import UserMessage
from dragoman.core.events import MessageAdded
from dragoman.core.ids import MessageId
from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.sqlite import database as module
from dragoman.stores.sqlite.database import Database, FolderInUse, WrongVersion, split_statements, warn_about_old_sqlite
from dragoman.stores.sqlite.log import SqliteLog
from tests.requirements import requirement
from tests.stores.contract import (
    DEADLINE_S,
    SessionWriter,
    commit_accepted,
    new_session_in,
    session_id,
    started,
    stopped,
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path)
    database.start()
    yield database
    database.close()


def direct(folder: Path) -> sqlite3.Connection:
    """A look past the program."""
    return sqlite3.connect(folder / "dragoman.db", isolation_level=None)


NEWEST = sum(1 for _ in resources.files("dragoman.stores.sqlite").joinpath("migrations").iterdir())
"""The schema that this release writes: its migrations are numbered from 1."""


def version_of(folder: Path) -> int:
    connection = direct(folder)
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()


def tables_of(folder: Path) -> set[str]:
    connection = direct(folder)
    try:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    finally:
        connection.close()


# --- one process ------------------------------------------------------------------------------------------------------

HOLDER = """
import sys
from pathlib import Path
from dragoman.stores.sqlite.database import Database
database = Database(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        while "open" not in process.stdout.readline():
            assert process.poll() is None, "it ended"
        yield process
        process.kill()


def test_a_folder_belongs_to_one_process(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(FolderInUse, match=r"another server uses the data folder .*: stop it, or choose another"):
        Database(tmp_path)


def test_a_folder_is_free_again_however_its_process_ended(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait(DEADLINE_S)
    Database(tmp_path).close()


def test_a_second_one_in_the_same_process_is_refused_too(tmp_path: Path) -> None:
    first = Database(tmp_path)
    with pytest.raises(FolderInUse):
        Database(tmp_path)
    first.close()
    Database(tmp_path).close()


def test_nobody_else_can_look_into_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    database = Database(folder)
    database.start()
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (folder, *folder.iterdir())}
    database.close()
    assert modes.pop("here") == "0o700"
    assert set(modes.values()) == {"0o600"}, modes


# --- schema -----------------------------------------------------------------------------------------------------------


def test_an_empty_folder_gets_the_newest_schema(tmp_path: Path) -> None:
    Database(tmp_path).close()
    assert version_of(tmp_path) == NEWEST
    assert tables_of(tmp_path) >= {"meta", "sessions", "events", "pieces", "runs", "calls", "names", "once", "keys"}
    Database(tmp_path).close()
    assert version_of(tmp_path) == NEWEST


@requirement("faults:49:newer")
def test_a_database_of_a_newer_release_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    Database(tmp_path).close()
    connection = direct(tmp_path)
    connection.execute("PRAGMA user_version = 700")
    connection.close()
    with pytest.raises(
        WrongVersion, match=f"has schema 700, this release knows {NEWEST}: use the release that wrote it"
    ):
        Database(tmp_path)
    assert version_of(tmp_path) == 700
    with pytest.raises(WrongVersion):
        Database(tmp_path)  # and not FolderInUse: the lock was given back


@requirement("faults:49:half")
def test_a_migration_that_breaks_off_leaves_the_schema_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start finishes it."""
    whole = split_statements

    def broken(script: str) -> list[str]:
        return [*whole(script)[:5], "this is no SQL;"]

    with monkeypatch.context() as patched:
        patched.setattr(module, "split_statements", broken)
        with pytest.raises(StoreUnavailable, match="syntax error"):
            Database(tmp_path)
    assert (version_of(tmp_path), tables_of(tmp_path)) == (0, set())
    Database(tmp_path).close()
    assert version_of(tmp_path) == NEWEST


@pytest.mark.parametrize(
    "content",
    [b"not a database, but long enough to be one " * 100, b"\0" * 4096, b"SQLite format 3\0" + b"\xff" * 4080],
)
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "dragoman.db").write_bytes(content)
    with pytest.raises(WrongVersion, match="is not a database of this program"):
        Database(tmp_path)
    assert (tmp_path / "dragoman.db").read_bytes() == content


@requirement("faults:49:foreign")
def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    connection = direct(tmp_path)
    connection.execute("CREATE TABLE sessions (something TEXT)")
    connection.close()
    with pytest.raises(WrongVersion, match="another program's tables"):
        Database(tmp_path)
    assert tables_of(tmp_path) == {"sessions"}


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "dragoman.db").mkdir()
    with pytest.raises(StoreUnavailable, match=r"the database .*/dragoman\.db cannot be opened"):
        Database(tmp_path)


def test_a_script_is_cut_into_its_statements() -> None:
    script = "-- a; comment\nCREATE TABLE a (b TEXT DEFAULT ';');\n\nINSERT INTO a\n  VALUES ('x;y');\n"
    assert [statement.strip() for statement in split_statements(script)] == [
        "-- a; comment\nCREATE TABLE a (b TEXT DEFAULT ';');",
        "INSERT INTO a\n  VALUES ('x;y');",
    ]


@pytest.mark.parametrize(
    ("version", "warned"), [((3, 40, 1), True), ((3, 51, 2), True), ((3, 51, 3), False), ((3, 53, 0), False)]
)
def test_an_sqlite_with_the_wal_fault_is_warned_of(version: tuple[int, ...], warned: bool) -> None:
    with capture_logs() as logs:
        assert warn_about_old_sqlite(version) == warned
    assert [entry["event"] for entry in logs] == ["outdated version of SQLite"] * warned


# --- jobs -------------------------------------------------------------------------------------------------------------


def inserting(name: str, value: object = 1) -> Callable[[sqlite3.Connection], object]:
    return lambda connection: connection.execute("INSERT INTO meta VALUES (?, ?)", (name, value)).rowcount


def failing(
    error: Exception, *before: Callable[[sqlite3.Connection], object]
) -> Callable[[sqlite3.Connection], object]:
    def work(connection: sqlite3.Connection) -> object:
        for each in before:
            each(connection)
        raise error

    return work


async def names_in(database: Database) -> set[str]:
    return await database.read(lambda connection: {name for (name,) in connection.execute("SELECT name FROM meta")})


@pytest.mark.parametrize(
    "bad",
    [
        failing(ValueError("own"), inserting("bad")),
        failing(sqlite3.IntegrityError("own"), inserting("bad")),
        inserting("epoch"),
        lambda connection: inserting("bad")(connection) and inserting("bad")(connection),
        inserting("bad", object()),
        inserting("\ud800"),
    ],
    ids=["error", "integrity", "duplicate", "second statement", "no type of SQLite's", "half a character"],
)
@pytest.mark.parametrize("others", [0, 5])
async def test_a_job_that_fails_leaves_nothing_and_harms_no_others(
    database: Database, bad: Callable[[sqlite3.Connection], object], others: int
) -> None:
    """Alone in its commit, and among others."""
    good = [database.writer.run(inserting(f"good {place}")) for place in range(others)]
    jobs = [*good[:2], database.writer.run(bad), *good[2:]]
    async with asyncio.timeout(DEADLINE_S):
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    failed = [each for each in outcomes if isinstance(each, BaseException)]
    assert len(failed) == 1
    assert not isinstance(failed[0], StoreUnavailable), "it is the job's own failure"
    assert await names_in(database) == {"epoch", *(f"good {place}" for place in range(others))}


async def test_a_job_whose_caller_gave_up_is_done_whole_or_not_at_all(database: Database) -> None:
    task = asyncio.create_task(
        database.writer.run(lambda connection: [inserting("a")(connection), inserting("b")(connection)])
    )
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await database.writer.run(inserting("c"))
    assert await names_in(database) in ({"epoch", "a", "b", "c"}, {"epoch", "c"})


async def test_a_commit_whose_file_is_deleted_meanwhile_is_refused(database: Database) -> None:
    def delete_file(connection: sqlite3.Connection) -> None:
        inserting("a")(connection)
        (database.folder / "dragoman.db").unlink()

    with pytest.raises(StoreUnavailable):
        await database.writer.run(delete_file)


@requirement("faults:50:memory")
async def test_a_read_without_memory_leaves_no_old_snapshot_for_the_next(database: Database) -> None:
    unfinished: list[sqlite3.Cursor] = []

    def read_a_part(connection: sqlite3.Connection) -> None:
        unfinished.append(connection.execute("SELECT meta.name FROM meta, sqlite_schema"))
        next(unfinished[-1])
        raise MemoryError

    with pytest.raises(StoreUnavailable, match="there is no memory to read this now"):
        await database.read(read_a_part)
    await database.writer.run(inserting("new"))
    assert await names_in(database) == {"epoch", "new"}


@requirement("faults:50:memory")
async def test_a_read_for_which_no_thread_can_start_is_refused_and_the_next_succeeds(database: Database) -> None:
    usual = threading.stack_size(2**46)  # more than any machine has
    try:
        with pytest.raises(StoreUnavailable, match="the system allows no thread that could read the database"):
            await names_in(database)
    finally:
        threading.stack_size(usual)
    async with asyncio.timeout(DEADLINE_S):
        assert await names_in(database) == {"epoch"}


@requirement("faults:50:memory")
async def test_a_commit_without_memory_is_refused_whole_and_the_next_succeeds(database: Database) -> None:
    with pytest.raises(StoreUnavailable, match="cannot write to the database now"):
        await database.writer.run(failing(MemoryError(), inserting("lost")))
    await database.writer.run(inserting("next"))
    assert await names_in(database) == {"epoch", "next"}


async def test_a_closed_database_refuses_and_hangs_nobody(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.start()
    database.close()
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(StoreUnavailable):
            await database.writer.run(inserting("late"))


async def test_a_read_that_fails_is_the_stores_failure(database: Database) -> None:
    with pytest.raises(StoreUnavailable):
        await database.read(lambda connection: connection.execute("SELECT * FROM nothing"))
    assert await names_in(database) == {"epoch"}, "and the connection goes on"
    with pytest.raises(StoreUnavailable):
        await database.read(lambda connection: connection.execute("DELETE FROM meta"))


# --- disks that are full or broken ------------------------------------------------------------------------------------


class Flaky:
    """A connection over a disk that fails at the n-th statement, before or after the statement took effect."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.fails_at: int | None = None
        self.after = False
        self.statements: list[str] = []

    def execute(self, statement: str, *values: Any) -> Any:
        return self._run(self._connection.execute, statement, *values)

    def executemany(self, statement: str, *values: Any) -> Any:
        return self._run(self._connection.executemany, statement, *values)

    def _run(self, run: Callable[..., Any], statement: str, *values: Any) -> Any:
        fails = len(self.statements) == self.fails_at
        self.statements.append(statement)
        if fails and not self.after:
            raise sqlite3.OperationalError("disk I/O error")
        result = run(statement, *values)
        if fails:
            raise sqlite3.OperationalError("disk I/O error")
        return result

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
async def flaky(tmp_path: Path) -> AsyncIterator[tuple[SqliteLog, Flaky]]:
    database = Database(tmp_path)
    connection = Flaky(database.writer.connection)
    database.writer.connection = connection  # type: ignore[assignment]  # it does what a connection does
    database.start()
    yield SqliteLog(database), connection
    connection.fails_at = None
    database.close()


@requirement("faults:43:io-error")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_an_io_error_at_any_statement_refuses_the_commit_whole(
    flaky: tuple[SqliteLog, Flaky], after: bool
) -> None:
    """Only one that struck when the commit had taken effect leaves its events, all of them."""
    store, connection = flaky
    writing = await new_session_in(store)
    number, failed = 0, 0
    while True:
        number += 1
        said = MessageAdded(message=UserMessage(id=MessageId(f"m{number}"), content="x"))
        append = writing.append(started(number), said, stopped(number))
        connection.statements, connection.fails_at, connection.after = [], number - 1, after
        try:
            assert await commit_accepted(store, append) == [True]
        except StoreUnavailable:
            failed += 1
        connection.fails_at = None
        written = [*await store.events(writing.session_id, 0, 1000)]
        took_effect = len(written) == len(writing.log)
        if failed == number:
            assert took_effect == (after and connection.statements[number - 1] == "COMMIT")
            assert written == writing.log or written == writing.log[:-3]
        else:
            assert took_effect
            break
        writing = await new_writer(store, writing)
    assert failed >= 5, "there are more statements than that"


async def new_writer(store: SqliteLog, writer: SessionWriter) -> SessionWriter:
    """The session's next writer, from what is stored."""
    snapshot = await store.load(writer.session_id)
    assert snapshot is not None
    again = SessionWriter(1, epoch=writer.epoch)
    again.log, again.state = [*await store.events(writer.session_id, 0, 1000)], snapshot.head
    return again


@requirement("faults:43:full")
async def test_a_full_disk_refuses_loses_nothing_and_works_again_when_there_is_room(database: Database) -> None:
    """SQLite's own quota: the error is that of a disk without room."""
    store = SqliteLog(database)
    writing = await new_session_in(store)
    pages = database.writer.connection.execute("PRAGMA page_count").fetchone()[0]
    database.writer.connection.execute(f"PRAGMA max_page_count = {pages + 20}")
    acknowledged = 1
    with pytest.raises(StoreUnavailable) as refused:  # noqa: PT012  # until the disk is full
        for _ in range(100):
            assert await commit_accepted(store, writing.text_events("x" * 5000)) == [True]
            acknowledged += 1
    assert "full" in str(refused.value.__cause__)
    assert acknowledged > 2
    assert [*await store.events(writing.session_id, 0, 1000)] == writing.log[:acknowledged]
    with pytest.raises(StoreUnavailable):
        await commit_accepted(store, SessionWriter(2, epoch=writing.epoch).new(name="x" * 100_000))
    database.writer.connection.execute("PRAGMA max_page_count = 1000000")
    writing = await new_writer(store, writing)
    assert await commit_accepted(store, writing.text_events("y" * 50_000)) == [True]
    assert await commit_accepted(store, SessionWriter(2, epoch=writing.epoch).new()) == [True]


FILLER = """
import asyncio, os, resource, sys
from pathlib import Path
from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.log import SqliteLog
from tests.stores.contract import commit_accepted, new_session_in

async def main() -> None:
    database = Database(Path(sys.argv[1]))
    database.start()
    store = SqliteLog(database)
    writing = await new_session_in(store)
    largest = max(path.stat().st_size for path in Path(sys.argv[1]).iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 400_000, resource.RLIM_INFINITY))
    acknowledged = 1
    try:
        for _ in range(1000):
            assert await commit_accepted(store, writing.text_events("x" * 5000)) == [True]
            acknowledged += 1
    except StoreUnavailable as error:
        print("refused", acknowledged, repr(error.__cause__), flush=True)
    print("readable", len(await store.events(writing.session_id, 0, 10_000)), flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    again = await new_session_in(store, 2)
    assert await commit_accepted(store, again.text_events("y" * 500_000)) == [True]
    print("works again", flush=True)
    if sys.argv[2] == "die":
        os.kill(os.getpid(), 9)
    database.close()

asyncio.run(main())
"""


@requirement("faults:43:full")
@pytest.mark.parametrize("end", ["close", "die"])
async def test_a_file_that_may_not_grow_refuses_loses_nothing_and_works_again(tmp_path: Path, end: str) -> None:
    """The system's own limit, in a process of its own, which then ends well or badly."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FILLER, str(tmp_path), end, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": "."}
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    lines = [line.split(" ", 2) for line in out.decode().splitlines() if "SQLite" not in line]
    assert [line[0] for line in lines] == ["refused", "readable", "works"], out.decode()
    acknowledged = int(lines[0][1])
    assert acknowledged > 5
    assert int(lines[1][1]) == acknowledged
    database = Database(tmp_path)
    store = SqliteLog(database)
    assert len(await store.events(session_id(1), 0, 10_000)) == acknowledged
    assert len(await store.events(session_id(2), 0, 10_000)) == 2
    assert await database.read(lambda connection: connection.execute("PRAGMA integrity_check").fetchone()) == ("ok",)
    database.close()
