"""The SQLite store: the contract, and what only a database on a disk can get wrong."""

import asyncio
import sqlite3
from collections.abc import Iterator
from copy import deepcopy
from importlib import resources
from pathlib import Path
from random import Random

import msgspec
import pytest

from dragoman.core.content import Text
from dragoman.core.events import BlockClosed, MessageClosed, MessageOpened
from dragoman.core.ids import MessageId, RunId, SessionId
from dragoman.core.refusals import SessionUnreadable
from dragoman.core.session import fold
from dragoman.core.stream import cursor_of
from dragoman.ports.log import RunLocation
from dragoman.stores.sqlite import pieces
from dragoman.stores.sqlite.appends import AppendWriter
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.log import SqliteLog
from tests.core.log_generator import generated_log
from tests.requirements import requirement
from tests.stores.contract import (
    ANN,
    Damage,
    SessionWriter,
    StoreContract,
    a_piece,
    commit_accepted,
    commits_of,
    idempotency_record,
    new_session_in,
    started,
    stopped,
)
from tests.stores.kept_contract import KeptContract


def open_database(folder: Path) -> Database:
    database = Database(folder)
    database.start()
    return database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = open_database(tmp_path)
    yield database
    database.close()


class TestSqliteLog(StoreContract, KeptContract):
    @pytest.fixture
    def unreadable(self) -> list[SessionUnreadable]:
        return []

    @pytest.fixture
    def store(self, database: Database, unreadable: list[SessionUnreadable]) -> SqliteLog:
        return SqliteLog(database, unreadable.append)

    @pytest.fixture
    def damage(self, database: Database) -> Damage:
        async def write(session_id: SessionId, seq: int | None = None) -> None:
            statement, values = "UPDATE sessions SET head = '{' WHERE session_id = ?", (session_id,)
            if seq is not None:
                number = "(SELECT number FROM sessions WHERE session_id = ?)"
                statement = f"UPDATE events SET payload = '{{' WHERE session = {number} AND seq = {seq}"
            await database.writer.run(lambda connection: connection.execute(statement, values))

        return write


def rows(folder: Path) -> dict[str, list[str]]:
    """Every row of every table of the database, as text."""
    connection = sqlite3.connect(folder / "dragoman.db")
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {table: [repr(row) for row in connection.execute(f"SELECT * FROM {table}")] for table in tables}
    finally:
        connection.close()


@requirement("faults:52:deleted")
async def test_a_deleted_session_is_in_no_table_any_more(database: Database, tmp_path: Path) -> None:
    store = SqliteLog(database)
    empty = rows(tmp_path)
    scribe = generated_log(3, 100)
    batch: list[str] = []
    for append, _, _ in commits_of(scribe, Random(3), await store.claim_epoch()):
        append.idempotency_records = [
            msgspec.structs.replace(idempotency_record(f"key-{append.after}"), session_id=append.session_id)
        ]
        append.name = "mine" if append.is_new else None
        assert await commit_accepted(store, append) == [True]
        batch.append(append.session_id)
    full = rows(tmp_path)
    filled = {table for table in full if len(full[table]) > len(empty[table])}
    assert filled >= {"sessions", "events", "runs", "calls", "names", "once"}, "the test is worth its name"
    await store.delete(append.session_id)
    await wait_until_swept(database)
    left = rows(tmp_path)
    assert {table: len(left[table]) for table in left} == {table: len(empty[table]) for table in empty}
    assert not [row for table in left.values() for row in table if append.session_id in row]


async def wait_until_swept(database: Database) -> None:
    """Wait until nothing of deleted sessions is left."""
    async with asyncio.timeout(60):
        while await database.read(lambda connection: connection.execute("SELECT 1 FROM deleted").fetchone()):  # noqa: ASYNC110  # the writer tells nobody
            await asyncio.sleep(0.001)


async def long_session(store: SqliteLog, number: int, runs: int) -> SessionWriter:
    """A session of so many runs, each with a key of the client's."""
    writing = await new_session_in(store, number)
    for run in range(runs):
        kept = [idempotency_record(f"key-{number}-{run}", number)]
        assert await commit_accepted(store, writing.append(started(run), stopped(run), idempotency_records=kept)) == [
            True
        ]
    return writing


async def test_a_deletion_is_done_in_portions_and_what_is_left_is_nobodys(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are left in the middle; the session's id and the ids of its runs are used again meanwhile."""
    monkeypatch.setattr("dragoman.stores.sqlite.appends.SWEEP_BATCH_ROWS", 3)
    monkeypatch.setattr(SqliteLog, "request_sweep", lambda _: None)
    store = SqliteLog(database)
    gone = await long_session(store, 1, 10)
    await store.delete(gone.session_id)
    sweep = AppendWriter().sweep
    assert await database.writer.run(sweep)
    assert await store.find_run(RunId("run-8")) is None
    assert await store.find_idempotency_record(ANN, "key-1-8") is None

    again = await new_session_in(store)
    kept = idempotency_record("key-1-8", run=8)
    assert await commit_accepted(store, again.append(started(8), idempotency_records=[kept])) == [True]
    portions = 2
    while await database.writer.run(sweep):
        portions += 1
    assert portions == 7 + 3, "21 events and 9 keys; the number itself goes with what follows"
    assert [logged.seq for logged in await store.events(again.session_id, 0, 100)] == [1, 2]
    assert await store.find_run(RunId("run-8")) == RunLocation(
        run_id=RunId("run-8"), session_id=again.session_id, owner=ANN, first_seq=2
    )
    assert await store.find_idempotency_record(ANN, "key-1-8") == kept


async def test_a_short_session_is_deleted_with_all_its_rows_in_one_transaction(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqliteLog, "request_sweep", lambda _: None)
    store = SqliteLog(database)
    empty = {table: len(found) for table, found in rows(tmp_path).items()}
    gone = await long_session(store, 1, 10)
    await store.delete(gone.session_id)
    assert {table: len(found) for table, found in rows(tmp_path).items()} == empty


async def test_what_a_deletion_left_goes_after_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = open_database(tmp_path)
    monkeypatch.setattr("dragoman.stores.sqlite.appends.SWEEP_BATCH_ROWS", 3)
    monkeypatch.setattr(SqliteLog, "request_sweep", lambda _: None)
    store = SqliteLog(database)
    empty = rows(tmp_path)
    gone = await long_session(store, 1, 10)
    await store.delete(gone.session_id)
    database.close()
    assert len(rows(tmp_path)["events"]) == 21 - 3
    monkeypatch.undo()
    database = open_database(tmp_path)
    try:
        await SqliteLog(database).claim_epoch()
        await wait_until_swept(database)
    finally:
        database.close()
    left = rows(tmp_path)
    assert {table: len(left[table]) for table in left} == {table: len(empty[table]) for table in empty}


@requirement("faults:49:older")
async def test_what_an_earlier_release_wrote_is_there_after_its_migration(tmp_path: Path) -> None:
    """Sessions had no numbers up to schema 4, and runs, calls and keys none of theirs up to schema 5."""
    new, old = tmp_path / "new", tmp_path / "old"
    database = open_database(new)
    store = SqliteLog(database)
    for append, _, _ in commits_of(generated_log(7, 200), Random(7), await store.claim_epoch()):
        append.idempotency_records = [
            msgspec.structs.replace(idempotency_record(f"key-{append.after}"), session_id=append.session_id)
        ]
        assert await commit_accepted(store, append) == [True]
    database.close()
    old.mkdir()
    connection = sqlite3.connect(old / "dragoman.db", isolation_level=None)
    connection.execute("ATTACH ? AS new", (str(new / "dragoman.db"),))
    migrations = resources.files("dragoman.stores.sqlite").joinpath("migrations").iterdir()
    for file in sorted(migrations, key=lambda file: file.name)[:4]:
        connection.executescript(file.read_text(encoding="utf-8"))
    connection.executescript(
        "PRAGMA user_version = 4; DELETE FROM meta; INSERT INTO meta SELECT * FROM new.meta;"
        "INSERT INTO sessions SELECT session_id, owner, created_at, updated_at, seq, epoch, is_running, head, settings"
        " FROM new.sessions;"
        "INSERT INTO events SELECT session_id, seq, run_id, at, type, payload FROM new.events;"
        "INSERT INTO messages SELECT session_id, id, m.seq FROM new.messages m JOIN new.sessions ON session = number;"
        "INSERT INTO pieces SELECT id, session_id, after, place, message_id, block, kind, loop, text FROM new.pieces;"
        "INSERT INTO names SELECT * FROM new.names;"
        "INSERT INTO runs SELECT run_id, session_id, owner, first_seq"
        " FROM new.runs JOIN new.sessions ON session = number;"
        "INSERT INTO calls SELECT session_id, call_id, c.seq FROM new.calls c JOIN new.sessions ON session = number;"
        "INSERT INTO once SELECT o.owner, key, fingerprint, session_id, run_id, at, lasts"
        " FROM new.once o JOIN new.sessions ON session = number;"
        "UPDATE new.events SET checksum = NULL; UPDATE new.pieces SET checksum = NULL;"
        "UPDATE new.sessions SET head_checksum = NULL, settings_checksum = NULL"
    )
    connection.close()
    database = open_database(old)
    assert [logged.seq for logged in await SqliteLog(database).events(append.session_id, 0, 10)] == [*range(1, 11)]
    database.close()
    before, after = rows(old), rows(new)
    assert {table: sorted(before[table]) for table in before} == {table: sorted(after[table]) for table in after}


async def test_everything_outlives_the_process(tmp_path: Path) -> None:
    """After each commit the folder is closed and opened again."""
    scribe = generated_log(5, 60)
    chance = Random(5)
    database = open_database(tmp_path)
    try:
        store = SqliteLog(database)
        for append, state, stored in commits_of(scribe, chance, await store.claim_epoch()):
            assert await commit_accepted(store, append) == [True]
            if chance.random() < 0.2:
                database.close()
                database = open_database(tmp_path)
                store = SqliteLog(database)
                append.epoch = await store.claim_epoch()
                snapshot = await store.load(append.session_id)
                assert snapshot is not None
                assert fold(snapshot.head, snapshot.events) == state
                assert sorted(snapshot.pieces, key=cursor_of) == stored
        assert [*await store.events(append.session_id, 0, 100_000)] == scribe.log
    finally:
        database.close()


async def test_what_was_rolled_back_is_not_remembered_as_written(database: Database) -> None:
    """The store remembers where running sessions stand; after a failure it must look again."""
    store = SqliteLog(database)
    writing = await new_session_in(store)
    assert await commit_accepted(store, writing.append(started(1))) == [True]
    broken = writing.append(started(2))
    broken.payloads = []  # fewer than events: fails in the middle of the transaction
    with pytest.raises(ValueError, match="zip"):
        await store.commit([broken])
    never = SessionWriter(1, epoch=writing.epoch)
    append = writing.append()
    append.after, append.pieces = 3, []
    assert await commit_accepted(store, append) == [False], "event 3 was never written"
    append.after = 2
    assert await commit_accepted(store, append) == [True]
    assert never.log == []


async def test_the_rows_of_an_open_block_are_known_after_a_rollback_and_a_restart(database: Database) -> None:
    """There is no index for them: what the writer remembers must be what the table holds."""
    store = SqliteLog(database)
    writing = await new_session_in(store)
    opened = MessageOpened(message_id=MessageId("m"))
    assert await commit_accepted(store, writing.append(started(1), opened)) == [True]
    words = [a_piece(3, word, place=place) for place, word in enumerate(["one ", "two ", "three"], 1)]
    assert await commit_accepted(store, writing.append(pieces=words[:1])) == [True]
    another = deepcopy(writing)
    broken = another.append(started(2), pieces=[a_piece(3, "never", place=2)], closed_blocks=[(MessageId("m"), 0)])
    broken.payloads = []  # fewer than events: fails in the middle of the transaction
    with pytest.raises(ValueError, match="zip"):
        await store.commit([broken])
    for place, again in ((1, store), (2, SqliteLog(database))):
        assert await commit_accepted(again, writing.append(pieces=[words[place]])) == [True]
        snapshot = await again.load(writing.session_id)
        assert snapshot is not None
        assert [*snapshot.pieces] == words[: place + 1]
    closing = writing.append(MessageClosed(message_id=MessageId("m")), closed_blocks=[(MessageId("m"), 0)])
    assert await commit_accepted(again, closing) == [True]
    snapshot = await again.load(writing.session_id)
    assert snapshot is not None
    assert [*snapshot.pieces] == []


async def test_the_rows_of_a_closed_block_are_its_own_no_more_after_a_restart(database: Database) -> None:
    store = SqliteLog(database)
    writing = await new_session_in(store)
    assert await commit_accepted(store, writing.append(started(1), MessageOpened(message_id=MessageId("m")))) == [True]
    assert await commit_accepted(store, writing.append(pieces=[a_piece(3, "closed")])) == [True]
    closing = BlockClosed(message_id=MessageId("m"), index=0, block=Text("closed"))
    assert await commit_accepted(store, writing.append(closing, closed_blocks=[(MessageId("m"), 0)])) == [True]
    assert await commit_accepted(store, writing.append(pieces=[a_piece(4, "open", index=1)])) == [True]
    assert len(rows(database.folder)["pieces"]) == 2, "the test is worth its name"
    snapshot = await SqliteLog(database).load(writing.session_id)
    assert snapshot is not None
    assert [*snapshot.pieces] == [a_piece(4, "open", index=1)]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_deleted_session_leaves_no_pieces_of_its_open_and_closed_blocks(
    database: Database, *, is_restarted: bool
) -> None:
    store = SqliteLog(database)
    gone, other = await new_session_in(store, 1), await new_session_in(store, 2)
    for writing in (gone, other):
        opened = writing.append(started(writing is other), MessageOpened(message_id=MessageId("m")))
        assert await commit_accepted(store, opened) == [True]
        for index in range(3):
            assert await commit_accepted(store, writing.append(pieces=[a_piece(3, "word", index=index)])) == [True]
            if index < 2:
                closing = BlockClosed(message_id=MessageId("m"), index=index, block=Text("word"))
                closed = writing.append(closing, closed_blocks=[(MessageId("m"), index)])
                assert await commit_accepted(store, closed) == [True]
    await (SqliteLog(database) if is_restarted else store).delete(gone.session_id)
    left = rows(database.folder)["pieces"]
    assert len(left) == 3
    assert all(other.session_id in row for row in left)


async def test_a_deletion_does_not_read_the_pieces_of_other_sessions(database: Database) -> None:
    """Answers that stream hold up the deletion of old ones: a commit must not wait for a search through all of them."""
    store = SqliteLog(database)
    gone, other = await new_session_in(store, 1), await new_session_in(store, 2)
    assert await commit_accepted(store, other.append(started(1), MessageOpened(message_id=MessageId("m")))) == [True]
    streamed = [a_piece(3, "word", place=place) for place in range(1, 2001)]
    assert await commit_accepted(store, other.append(pieces=streamed)) == [True]
    steps: list[None] = []
    await database.writer.run(lambda connection: connection.set_progress_handler(lambda: steps.append(None), 1))
    await store.delete(gone.session_id)
    await wait_until_swept(database)
    assert 0 < len(steps) < len(streamed), "each row that is read takes several steps"


async def test_rows_of_closed_blocks_go_in_portions_and_an_open_block_loses_none(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it keep more than so many of them: then its own rows are moved behind them."""
    monkeypatch.setattr(pieces, "SWEEP_BATCH_ROWS", 10)
    monkeypatch.setattr(pieces, "MAX_STALE_ROWS", 50)
    store = SqliteLog(database)
    slow, quick = await new_session_in(store, 1), await new_session_in(store, 2)
    for writing in (slow, quick):
        assert await commit_accepted(store, writing.append(started(1), MessageOpened(message_id=MessageId("m")))) == [
            True
        ]
    assert await commit_accepted(store, slow.append(pieces=[a_piece(3, "slow ")])) == [True]
    assert await commit_accepted(store, slow.append(pieces=[a_piece(3, "but sure", place=2)])) == [True]
    most = 0
    for block in range(200):
        after = len(quick.log)
        assert await commit_accepted(store, quick.append(pieces=[a_piece(after, "word", index=block)])) == [True]
        closing = BlockClosed(message_id=MessageId("m"), index=block, block=Text("word"))
        assert await commit_accepted(store, quick.append(closing, closed_blocks=[(MessageId("m"), block)])) == [True]
        most = max(most, len(rows(database.folder)["pieces"]))
    assert 10 < most < 80
    for again in (store, SqliteLog(database)):
        snapshot = await again.load(slow.session_id)
        assert snapshot is not None
        assert [*snapshot.pieces] == [a_piece(3, "slow "), a_piece(3, "but sure", place=2)]


async def test_sessions_that_write_at_the_same_time_share_commits(database: Database) -> None:
    """200 appends in far fewer transactions. How many share one depends on the disk, so the limit is generous."""
    store = SqliteLog(database)
    writing = await new_session_in(store)
    appends = [SessionWriter(number, epoch=writing.epoch).new() for number in range(2, 202)]
    before = database.writer.commits
    await asyncio.gather(*(commit_accepted(store, append) for append in appends))
    assert database.writer.commits - before < 50


async def test_reads_do_not_wait_for_writes(database: Database) -> None:
    """A reader sees the state before a transaction that is still open, at once."""
    store = SqliteLog(database)
    writing = await new_session_in(store)
    connection = sqlite3.connect(database.folder / "dragoman.db", isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM sessions")
        async with asyncio.timeout(60):
            assert [state.session_id for state in await store.page(ANN, None, 10)] == [writing.session_id]
        connection.execute("ROLLBACK")
    finally:
        connection.close()
    assert await commit_accepted(store, writing.append(started(1), stopped(1))) == [True]


async def test_a_folder_that_is_closed_has_written_what_was_given(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    store = SqliteLog(database)
    epoch = await store.claim_epoch()
    tasks = [
        asyncio.create_task(commit_accepted(store, SessionWriter(number, epoch=epoch).new())) for number in range(1, 30)
    ]
    await asyncio.sleep(0)
    await asyncio.to_thread(database.close)
    assert await asyncio.gather(*tasks) == [[True]] * 29
    assert len(rows(tmp_path)["sessions"]) == 29
