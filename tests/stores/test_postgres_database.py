"""A PostgreSQL database: one server writes it, its schema is brought up to date, what breaks is borne."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from dragoman.core.ids import RunId
from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.postgres import database as module
from dragoman.stores.postgres.database import (
    Database,
    DatabaseInUse,
    WrongVersion,
    connect,
    display_url,
    migrate,
    migrations,
)
from dragoman.stores.postgres.log import PostgresLog
from dragoman.stores.postgres.watchdog import end_backends, find_backend
from tests.descriptors import no_free_descriptors
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
from tests.stores.postgres import Server, server

NEWEST = max(migrations())


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    with closing(Database(postgres_url)) as database:
        yield database


@pytest.fixture
def empty_url(postgres: Server) -> Iterator[str]:
    """The address of a database without anything."""
    url = postgres.new("template0")
    yield url
    postgres.drop(url)


def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    """A look past the program."""
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(statement.encode())
        return done.fetchall() if done.description else []


def tables(url: str) -> set[str]:
    return {name for (name,) in rows(url, "SELECT relname FROM pg_class WHERE relnamespace = 2200 AND relkind = 'r'")}


def cut_all(url: str) -> None:
    """End every other connection to the database."""
    rows(url, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database()"
              " AND pid <> pg_backend_pid()")  # fmt: skip


def test_without_a_free_descriptor_the_database_is_unavailable_as_when_it_is_down(database: Database) -> None:
    conninfo = database.conninfo
    with no_free_descriptors(), pytest.raises(psycopg.OperationalError, match="Too many open files"):
        connect(conninfo)
    connect(conninfo).close()


# --- one server -------------------------------------------------------------------------------------------------------

HOLDER = """
import sys
from dragoman.stores.postgres.database import Database
database = Database(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_server_is_refused_and_a_guest_is_not(database: Database, postgres_url: str) -> None:
    with pytest.raises(DatabaseInUse, match="another program uses this database alone: wait for it, stop it, or"):
        Database(postgres_url)
    Database(postgres_url, access="unlocked").close()
    database.close()
    Database(postgres_url).close()


def test_a_database_is_free_again_however_its_server_ended(postgres_url: str) -> None:
    command = [sys.executable, "-c", HOLDER, postgres_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(DatabaseInUse):
            Database(postgres_url)
        process.send_signal(signal.SIGKILL)
        process.wait(DEADLINE_S)
    for attempt in range(1000):  # PostgreSQL has to notice
        try:
            Database(postgres_url).close()
        except DatabaseInUse:
            assert attempt < 999
        else:
            return


async def test_who_lost_the_database_to_another_writes_nothing(
    database: Database, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_TIMEOUT_S", 0.1)
    store = PostgresLog(database)
    writing = await new_session_in(store)
    cut_all(postgres_url)
    with closing(Database(postgres_url)) as other:
        with pytest.raises(StoreUnavailable):
            await commit_accepted(store, writing.text_events("late"))
        assert len(await PostgresLog(other).events(writing.session_id, 0, 10)) == 1
    assert await commit_accepted(store, SessionWriter(2, epoch=await store.claim_epoch()).new()) == [True], (
        "and goes on when it is free"
    )


def test_schemas_of_one_database_are_apart(postgres: Server, postgres_url: str) -> None:
    rows(postgres_url, "CREATE SCHEMA other")
    with closing(Database(postgres_url)), closing(Database(f"{postgres_url}&options=-csearch_path%3Dother")):
        assert rows(postgres_url, "SELECT count(*) FROM pg_tables WHERE tablename = 'events'") == [(2,)]


# --- schema -----------------------------------------------------------------------------------------------------------


def test_an_empty_database_gets_the_newest_schema_once(empty_url: str) -> None:
    for before in (0, NEWEST):
        with connect(empty_url) as connection:
            assert migrate(connection) == (before, NEWEST)
    assert rows(empty_url, "SELECT version FROM schema_version") == [(NEWEST,)]
    assert tables(empty_url) >= {"sessions", "events", "pieces", "runs", "calls", "names", "once", "keys", "blobs"}


def test_of_several_that_start_at_once_one_migrates_and_all_continue(empty_url: str) -> None:
    def start(_: int) -> tuple[int, int]:
        with connect(empty_url) as connection:
            return migrate(connection)

    with ThreadPoolExecutor(6) as threads:
        assert {newest for _, newest in threads.map(start, range(6))} == {NEWEST}


@requirement("faults:49:newer")
def test_a_database_of_a_newer_release_is_refused_and_left_as_it_is(postgres_url: str) -> None:
    rows(postgres_url, "UPDATE schema_version SET version = 700")
    with pytest.raises(
        WrongVersion, match=f"has schema 700, this release knows {NEWEST}: use the release that wrote it"
    ):
        Database(postgres_url)
    assert rows(postgres_url, "SELECT version FROM schema_version") == [(700,)]


@requirement("faults:49:foreign")
def test_a_database_of_another_program_is_refused_and_left_as_it_is(empty_url: str) -> None:
    rows(empty_url, "CREATE TABLE sessions (something text)")
    with pytest.raises(WrongVersion, match="another program's tables"):
        Database(empty_url)
    assert tables(empty_url) == {"sessions"}


def test_a_database_that_cannot_hold_every_text_is_refused(postgres: Server) -> None:
    rows(postgres.url("postgres"), "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
    with pytest.raises(WrongVersion, match="has the encoding SQL_ASCII: create one with UTF8"):
        Database(postgres.url("ascii"))
    postgres.drop(postgres.url("ascii"))


@requirement("faults:49:half")
def test_a_migration_that_breaks_off_leaves_the_schema_before_it(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start finishes it."""
    broken = {number: script + "; this is no SQL" for number, script in migrations().items()}
    with monkeypatch.context() as patched:
        patched.setattr(module, "migrations", lambda: broken)
        with connect(empty_url) as connection, pytest.raises(psycopg.errors.SyntaxError):
            migrate(connection)
    assert tables(empty_url) == set()
    Database(empty_url).close()
    assert "sessions" in tables(empty_url)


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:secret@db.example:5433/agents", "postgresql://ann@db.example:5433/agents"),
        ("host=db.example dbname=agents password=secret", "postgresql://db.example/agents"),
        ("postgresql://ann:sec ret@[", "?"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert display_url(url) == shown


@pytest.mark.parametrize(
    "url", ["postgresql://ann:secret@127.0.0.1:1/agents", "postgresql://ann:secret@[", "mysql://ann:secret@x/y"]
)
def test_a_database_that_cannot_be_reached_is_reported_without_its_password(url: str) -> None:
    with pytest.raises(StoreUnavailable) as refused:
        Database(url)
    assert "secret" not in str(refused.value)


# --- what breaks ------------------------------------------------------------------------------------------------------


async def test_connections_that_were_cut_are_made_again(database: Database, postgres_url: str) -> None:
    """The next request succeeds: nothing was committed yet."""
    store = PostgresLog(database)
    writing = await new_session_in(store)
    for number in range(1, 4):
        cut_all(postgres_url)
        assert await commit_accepted(store, writing.append(started(number), stopped(number))) == [True]
        cut_all(postgres_url)
        assert [*await store.events(writing.session_id, 0, 100)] == writing.log


@requirement("faults:44:frozen")
def test_of_two_processes_with_one_id_only_the_one_that_served_the_connection_is_ended(postgres_url: str) -> None:
    with connect(postgres_url) as watching, connect(postgres_url) as ended, connect(postgres_url) as other:
        found = find_backend(ended)
        assert found is not None
        earlier = f"{other.info.backend_pid} {found.split()[1]}"
        end_backends(watching, [found, earlier])
        assert other.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(psycopg.OperationalError):
            ended.execute("SELECT 1")


class Cut:
    """A connection that breaks at the n-th statement, before or after the statement took effect."""

    def __init__(self, connection: Any, *, at: int, after: bool) -> None:
        self._connection = connection
        self._at = at
        self._after = after
        self.statements: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any, **options: Any) -> Any:
        self.statements.append(statement.split()[0])
        is_due = len(self.statements) == self._at
        if is_due and not self._after:
            self._connection.close()
        result = self._connection.execute(statement, *values, **options)
        if is_due:
            self._connection.close()
            raise psycopg.OperationalError("the connection broke")
        return result


@requirement("faults:44:cut")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_connection_that_breaks_at_any_statement_leaves_a_commit_whole(
    database: Database, at: int, after: bool
) -> None:
    """Before the commit it is retried. A failure of the commit is reported; then all events are written, or none."""
    store = PostgresLog(database)
    writing = await new_session_in(store)
    broken = Cut(database.writer.connection, at=at, after=after)
    database.writer.connection = broken  # type: ignore[assignment]  # it does what a connection does
    append = writing.append(started(1), stopped(1))
    try:
        assert await commit_accepted(store, append) == [True]
        is_acknowledged = False
    except StoreUnavailable:
        is_acknowledged = True
    assert is_acknowledged == (broken.statements[-1] == "COMMIT")
    written = [*await store.events(writing.session_id, 0, 100)]
    assert written == (writing.log[:1] if is_acknowledged and not after else writing.log)


async def test_a_batch_is_one_statement_however_many_sessions_it_has(database: Database) -> None:
    store = PostgresLog(database)
    epoch = await store.claim_epoch()
    sessions = [SessionWriter(number, epoch=epoch) for number in range(1, 101)]
    assert await commit_accepted(store, *(each.new() for each in sessions)) == [True] * 100
    counted = Cut(database.writer.connection, at=0, after=False)
    database.writer.connection = counted  # type: ignore[assignment]  # as above
    assert (
        await commit_accepted(store, *(each.append(started(place)) for place, each in enumerate(sessions)))
        == [True] * 100
    )
    assert counted.statements == ["BEGIN", "WITH", "COMMIT"]


@requirement("faults:41:postgres")
async def test_what_was_acknowledged_outlives_a_server_that_dies() -> None:
    """SIGQUIT ends PostgreSQL as a crash does: it recovers from its log, with all acknowledged commits."""
    with server(fsync=True) as postgres, closing(Database(postgres.url("postgres"))) as database:
        store = PostgresLog(database)
        writing = await new_session_in(store)
        for number in range(1, 4):
            assert await commit_accepted(store, writing.append(started(number), stopped(number))) == [True]
            postgres.stop(signal.SIGQUIT)
            postgres.start()
            assert [*await store.events(writing.session_id, 0, 100)] == writing.log
        assert await commit_accepted(store, writing.append(started(4), stopped(4))) == [True]
        assert await store.find_run(RunId("run-4")) is not None


async def test_a_database_that_is_away_is_reported_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_TIMEOUT_S", 0.2)
    with server() as postgres, closing(Database(postgres.url("postgres"))) as database:
        store = PostgresLog(database)
        writing = await new_session_in(store)
        append = writing.text_events("meanwhile")
        postgres.stop()
        with pytest.raises(StoreUnavailable):
            await commit_accepted(store, append)
        with pytest.raises(StoreUnavailable):
            await store.events(writing.session_id, 0, 10)
        postgres.start()
        assert await commit_accepted(store, append) == [True]


async def test_a_closed_database_refuses_and_hangs_nobody(postgres_url: str) -> None:
    database = Database(postgres_url)
    database.close()
    store = PostgresLog(database)
    with pytest.raises(StoreUnavailable):
        await store.claim_epoch()
    with pytest.raises(StoreUnavailable):
        await store.load(session_id(1))
