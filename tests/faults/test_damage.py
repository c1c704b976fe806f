"""Disks that alter data: what was altered is never shown, and what was lost is reported. Case 43."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, LiteralString

import msgspec
import psycopg
import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from dragoman.cli.main import commands
from dragoman.core.events import MessageOpened
from dragoman.core.ids import MessageId, SessionId
from dragoman.core.refusals import SessionUnreadable, StoreUnavailable
from dragoman.core.stream import Cursor
from dragoman.ports.log import SessionStore
from dragoman.server.check_store import QuarantinedSession
from dragoman.stores.postgres.cluster import PostgresCluster
from dragoman.stores.postgres.database import Database as PostgresDatabase
from dragoman.stores.postgres.log import PostgresLog
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.log import SqliteLog
from dragoman.stores.sqlite.online_copy import copy_database
from tests.extent import extent
from tests.faults.corruption import campaign
from tests.requirements import requirement
from tests.servers import running_server
from tests.stores.contract import ANN, a_piece, commit_accepted, dump_session, new_session_in, session_id, started

SESSIONS = 6


async def fill(folder: Path) -> dict[str, Any]:
    """Store sessions, one of them with an open block. Returns what readers see of each."""
    with closing(Database(folder)) as database:
        database.start()
        store = SqliteLog(database)
        writers = [await new_session_in(store, number) for number in range(1, SESSIONS + 1)]
        for writer in writers:
            assert await commit_accepted(store, *(writer.text_events(f"text {each} " * 30) for each in range(5)))
        writer = writers[-1]
        opened = MessageOpened(message_id=MessageId("m"))
        assert await commit_accepted(store, writer.append(started(1), opened)) == [True]
        assert await commit_accepted(store, writer.append(pieces=[a_piece(8, "a piece of text")])) == [True]
        return {session_id(number): await dump_session(store, session_id(number)) for number in range(1, SESSIONS + 1)}


def execute(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "dragoman.db")) as connection, connection:
        connection.execute(statement)


@requirement("faults:43:altered")
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE events SET payload = replace(payload, 'text 3', 'test 3') WHERE seq = 5", "event 5: the stored data"),
        ("UPDATE events SET at = at + 1 WHERE seq = 2", "event 2: the stored data was altered"),
        ("UPDATE events SET run_id = 'other' WHERE seq = 2", "event 2: the stored data was altered"),
        ("DELETE FROM events WHERE seq = 3", "event 3: it is missing"),
        ("DELETE FROM events WHERE seq = 8", "event 8: it is missing"),
        ("UPDATE pieces SET text = 'another text'", "piece 8.1: the stored data was altered"),
        ("UPDATE sessions SET head = replace(head, 'agent', 'tnega')", "state: the stored data was altered"),
        ("UPDATE sessions SET settings = replace(settings, 't', 'u')", "settings: the stored data was altered"),
    ],
)
async def test_altered_data_is_an_error_and_never_shown(tmp_path: Path, statement: str, reason: str) -> None:
    await fill(tmp_path)
    execute(tmp_path, statement)
    damaged = session_id(SESSIONS)
    with closing(Database(tmp_path)) as database:
        database.start()
        with pytest.raises(SessionUnreadable) as raised:
            await dump_session(SqliteLog(database), damaged)
    assert reason in raised.value.reason


@requirement("faults:43:altered")
async def test_a_state_that_is_not_the_one_after_the_last_event_is_an_error(tmp_path: Path, postgres_url: str) -> None:
    lost = "UPDATE sessions SET seq = 4"
    reason = "state: it is of event 6, the log ends with 4"
    await fill(tmp_path)
    execute(tmp_path, lost)
    with closing(Database(tmp_path)) as folder, closing(PostgresDatabase(postgres_url)) as database:
        writer = await new_session_in(PostgresLog(database), 1)
        texts = [writer.text_events(f"text {each}") for each in range(5)]
        assert await commit_accepted(PostgresLog(database), *texts) == [True] * 5
        damage_postgres(postgres_url, session_id(1), lost)
        folder.start()
        for store in (SqliteLog(folder), PostgresLog(database)):
            with pytest.raises(SessionUnreadable) as raised:
                await store.load(session_id(1))
            assert raised.value.reason == reason


POSTGRES_DAMAGE = [
    ("UPDATE events SET payload = replace(payload, 'text 3', 'test 3') WHERE seq = 5", "event 5: the stored data"),
    ("UPDATE events SET at = at + 1 WHERE seq = 2", "event 2: the stored data was altered"),
    ("UPDATE events SET run_id = 'other' WHERE seq = 2", "event 2: the stored data was altered"),
    ("DELETE FROM events WHERE seq = 3", "event 3: it is missing"),
    ("DELETE FROM events WHERE seq = 8", "event 8: it is missing"),
    ("UPDATE pieces SET text = 'another text'", "piece 8.1: the stored data was altered"),
    ("UPDATE sessions SET head = replace(head, 'agent', 'tnega')", "state: the stored data was altered"),
    ("UPDATE sessions SET settings = replace(settings, 't', 'u')", "settings: the stored data was altered"),
    ("UPDATE kept SET value = 'other'", "kept value 'key': the stored data was altered"),
]


def damage_postgres(url: str, session: SessionId, statement: LiteralString) -> None:
    """Alter a session's rows as a disk does: without triggers."""
    with psycopg.connect(url) as connection:
        connection.execute("SET session_replication_role = replica")
        joint: LiteralString = " AND " if " WHERE " in statement else " WHERE "
        assert connection.execute(statement + joint + "session_id = %s", (session,)).rowcount >= 1


async def running_session(store: SessionStore, number: int) -> None:
    """A session with five texts, a kept value, and a run with an open block."""
    writer = await new_session_in(store, number)
    assert await commit_accepted(store, *(writer.text_events(f"text {each} " * 30) for each in range(5)))
    opened = MessageOpened(message_id=MessageId("m"))
    assert await commit_accepted(store, writer.append(started(number), opened, kept={"key": b"value"})) == [True]
    assert await commit_accepted(store, writer.append(pieces=[a_piece(8, "a piece of text")])) == [True]


async def read_everything(store: SessionStore, session: SessionId) -> None:
    await dump_session(store, session)
    await store.kept(session, "", None, 10)


@requirement("faults:43:altered")
@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("kept", "value = 'text'"),
        ("kept", "value = 7"),
        ("events", "at = 'text'"),
        ("pieces", "after = 'text'"),
        ("pieces", "text = x'ff'"),
        ("pieces", "place = x'ff'"),
    ],
)
async def test_a_value_of_another_type_is_altered_data(tmp_path: Path, table: str, change: str) -> None:
    """One flipped bit in a row's header makes bytes a text, or a number."""
    with closing(Database(tmp_path)) as database:
        database.start()
        await running_session(SqliteLog(database), 1)
    loosen = f"UPDATE sqlite_schema SET sql = replace(sql, ' STRICT', '') WHERE name = '{table}'"  # ours
    with closing(sqlite3.connect(tmp_path / "dragoman.db")) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        assert connection.execute(loosen).rowcount == 1
    execute(tmp_path, f"UPDATE {table} SET {change}")  # ours
    with closing(Database(tmp_path)) as database:
        database.start()
        with pytest.raises(SessionUnreadable) as raised:
            await read_everything(SqliteLog(database), session_id(1))
        assert "the stored data was altered" in raised.value.reason


@requirement("faults:43:altered")
async def test_altered_data_in_postgresql_is_an_error_and_never_shown(postgres_url: str) -> None:
    with closing(PostgresDatabase(postgres_url)) as database:
        store, cluster = PostgresLog(database), PostgresCluster(database, folder_id="folder", lease_s=10)
        for number, (statement, _) in enumerate(POSTGRES_DAMAGE):
            await running_session(store, number)
            damage_postgres(postgres_url, session_id(number), statement)
        await running_session(store, 100)
        for number, (_, reason) in enumerate(POSTGRES_DAMAGE):
            with pytest.raises(SessionUnreadable) as raised:
                await read_everything(store, session_id(number))
            assert reason in raised.value.reason
        known = [(session_id(number), Cursor(1, 0)) for number in (*range(6), 100)]
        updates = await cluster.session_updates(known)
        assert [update.session_id for update in updates if update.unreadable is None] == [session_id(100)]
        assert all(not update.events and not update.pieces for update in updates if update.unreadable is not None)
        assert len(await store.page(ANN, None, 50)) == len(POSTGRES_DAMAGE) + 1 - 2, "damaged states are left out"


async def test_a_server_of_an_earlier_release_may_write_without_checksums(postgres_url: str) -> None:
    """It knows no checksums, and goes on for a while after the first new server has migrated the database."""
    with closing(PostgresDatabase(postgres_url)) as database:
        store = PostgresLog(database)
        await running_session(store, 1)
        with psycopg.connect(postgres_url) as earlier:
            earlier.execute('UPDATE sessions SET head = replace(head, \'"agent":"agent"\', \'"agent":"other"\')')
            earlier.execute("UPDATE kept SET value = 'other'")
        assert (await store.kept(session_id(1), "", None, 10)) == {"key": b"other"}
        snapshot, _ = await dump_session(store, session_id(1))
        assert snapshot is not None


@requirement("faults:43:quarantine")
@pytest.mark.one_server
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_damaged_session_is_put_into_quarantine(tmp_path: Path, postgres_url: str, store: str) -> None:
    database = postgres_url if store == "postgres" else None
    flags = ["--data", str(tmp_path / "data"), *(("--database", postgres_url) if database else ())]
    async with running_server(tmp_path / "data", database=database) as server:
        alice = server.aap_client("alice")
        damaged, intact = await alice.create(), await alice.create()
        for session in (damaged, intact):
            await session.run("first")
            await session.run("second")
        history = await intact.history()
        await server.stop()
        statement: LiteralString = "UPDATE events SET payload = replace(payload, 'second', 'altered')"
        if database:
            damage_postgres(postgres_url, SessionId(damaged.id), statement + " WHERE payload LIKE '%%second%%'")
        else:
            number = f"(SELECT number FROM sessions WHERE session_id = '{damaged.id}')"
            execute(tmp_path / "data", f"{statement} WHERE session = {number}")
        first, second = str(tmp_path / "1"), str(tmp_path / "2")
        commands_run = [
            await asyncio.to_thread(CliRunner().invoke, commands, [*arguments, *flags])
            for arguments in (["check"], ["backup", first], ["check", "--repair"], ["check"], ["backup", second])
        ]
        assert [each.exit_code for each in commands_run] == [1, 1, 0, 0, 0]
        assert "run dragoman check --repair, then back up again" in commands_run[1].output
        file = tmp_path / "data" / "quarantine" / f"{damaged.id}.json"
        assert "it is in quarantine, and its first " in commands_run[2].output
        exported = msgspec.json.decode(file.read_bytes(), type=QuarantinedSession)
        assert "first" in str(exported.events)
        assert "second" not in str(exported.events)
        assert "altered" not in str(exported.events)

        await server.start()
        alice = server.aap_client("alice")
        refused = await damaged.as_client(alice).post([{"role": "user", "content": "third"}])
        assert refused.status == 500
        listed = (await alice.get("/sessions")).json["sessions"]
        assert [each["sessionId"] for each in listed] == [intact.id]
        assert await intact.as_client(alice).history() == history
        assert (await damaged.as_client(alice).delete()).status == 204
        assert (await damaged.as_client(alice).delete()).status == 404


@requirement("faults:43:altered")
async def test_whatever_bits_flip_nobody_reads_what_was_never_written() -> None:
    found = await campaign(extent(1000, 15))
    assert (found.altered, found.unclear) == ([], [])
    assert found.outcomes["attachment: what was altered is missing, with an error"] > 0
    assert found.outcomes["database: what was altered is missing, with an error"] > 0


def not_closed(folder: Path, target: Path) -> Path:
    """A copy of an open folder, as a crash leaves it."""
    target.mkdir()
    for name in ("dragoman.db", "dragoman.db-wal"):
        shutil.copyfile(folder / name, target / name)
    return target


@requirement("faults:43:wal-damaged")
async def test_a_damaged_write_ahead_log_loses_nothing_silently(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    with closing(Database(folder)) as database:
        database.start()
        store = SqliteLog(database)
        writer = await new_session_in(store)
        for number in range(40):
            assert await commit_accepted(store, writer.text_events(f"text {number}")) == [True]
        crashed = not_closed(folder, tmp_path / "crashed")
    log = bytearray((crashed / "dragoman.db-wal").read_bytes())
    for place in (20, 40, len(log) // 2, len(log) // 3 * 2):
        damaged = not_closed(crashed, tmp_path / f"at-{place}")
        altered = log.copy()
        altered[place] ^= 4
        (damaged / "dragoman.db-wal").write_bytes(altered)
        with pytest.raises(StoreUnavailable, match="dragoman check --accept-loss --data"):
            Database(damaged)
        with pytest.raises(StoreUnavailable, match="dragoman check --accept-loss --data"):
            copy_database(damaged, tmp_path / "copy", lambda *_: None)
        assert (damaged / "dragoman.db-wal").read_bytes() == altered, "nothing was changed"
        arguments = ["check", "--accept-loss", "--data", str(damaged)]
        checked = await asyncio.to_thread(CliRunner().invoke, commands, arguments)
        assert checked.exit_code == 0, checked.output
        assert checked.stderr.count("the write-ahead log is damaged") == 1
        assert (damaged / "dragoman.db-wal.damaged").read_bytes() == altered
        Database(damaged).close()


async def test_a_write_ahead_log_that_a_crash_cut_off_is_no_damage(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    with closing(Database(folder)) as database:
        database.start()
        store = SqliteLog(database)
        writer = await new_session_in(store)
        for number in range(40):
            assert await commit_accepted(store, writer.text_events(f"text {number}")) == [True]
        crashed = not_closed(folder, tmp_path / "crashed")
    log = (crashed / "dragoman.db-wal").read_bytes()
    for length in (len(log), len(log) - 1000, len(log) // 2, 40, 32, 10, 0):
        (crashed / "dragoman.db-wal").write_bytes(log[:length])
        copy = not_closed(crashed, tmp_path / f"to-{length}")
        with capture_logs() as logs, closing(Database(copy)) as database:
            database.start()
        assert [entry for entry in logs if entry["log_level"] in ("error", "critical")] == []


@requirement("faults:43:wal-damaged")
async def test_a_last_commit_that_a_power_failure_left_half_written_is_reported_and_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    with closing(Database(folder)) as database:
        database.start()
        store = SqliteLog(database)
        writer = await new_session_in(store)
        before = await dump_session(store, writer.session_id)
        assert await commit_accepted(store, writer.text_events("the last text")) == [True]
        crashed = not_closed(folder, tmp_path / "crashed")
    wal = crashed / "dragoman.db-wal"
    torn = bytearray(wal.read_bytes())
    torn[-1] ^= 4
    wal.write_bytes(torn)
    with capture_logs() as logs, closing(Database(crashed)) as database:
        database.start()
        assert await dump_session(SqliteLog(database), writer.session_id) == before
    assert [entry["lost"] for entry in logs if entry["log_level"] == "error"] == ["its last 1 commits"]
    assert wal.with_name("dragoman.db-wal.damaged").read_bytes() == torn


@requirement("faults:43:check")
def test_dragoman_check_names_what_is_damaged(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path))
    run = CliRunner().invoke
    intact = run(commands, ["check", "--data", str(tmp_path)])
    assert (intact.exit_code, intact.output) == (0, f"{SESSIONS} sessions with 38 events checked\n")
    execute(tmp_path, "UPDATE events SET payload = replace(payload, 'text 3', 'test 3') WHERE session = 2 AND seq = 5")
    execute(tmp_path, "UPDATE sessions SET head = '{' WHERE number = 4")
    damaged = run(commands, ["check", "--data", str(tmp_path)])
    assert damaged.exit_code == 1
    problems = [line for line in damaged.output.splitlines() if line.startswith("session ")]
    assert problems == [
        f"session {session_id(2)}: event 5: the stored data was altered: its checksum differs",
        f"session {session_id(4)}: state: the stored data was altered: its checksum differs",
    ]
    assert run(commands, ["check", "--data", str(tmp_path / "nothing")]).exit_code == 1


async def test_after_a_crash_the_database_is_checked_in_the_background(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    await fill(folder)
    with closing(Database(folder)) as database:
        database.start()
        await new_session_in(SqliteLog(database), 50, owner=ANN)
        crashed = not_closed(folder, tmp_path / "crashed")
    with closing(sqlite3.connect(folder / "dragoman.db")) as connection:
        ((root, page_bytes),) = connection.execute(
            "SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = 'calls'"
        )
    content = bytearray((crashed / "dragoman.db").read_bytes())
    content[(root - 1) * page_bytes : root * page_bytes] = b"\xff" * page_bytes
    (crashed / "dragoman.db").write_bytes(content)
    with capture_logs() as logs:
        database = Database(crashed)
        database.start()
        while database.failure is None:
            await database.writer.run(lambda _: None)
        database.close()
    assert database.failure.startswith("the database is damaged: ")
    assert [entry["event"] for entry in logs if entry["log_level"] == "critical"] == ["the database is damaged"]
