"""The PostgreSQL store: the contract, and what only a database server can get wrong."""

from collections.abc import Iterator
from random import Random

import msgspec
import psycopg
import pytest
from psycopg import sql

from dragoman.core.content import UserMessage
from dragoman.core.events import MessageAdded
from dragoman.core.ids import CallId, MessageId, RunId, SessionId
from dragoman.core.refusals import SessionUnreadable
from dragoman.core.session import fold
from dragoman.stores.postgres.appends import split_into_rounds
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.log import PostgresLog
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
    started,
)
from tests.stores.kept_contract import KeptContract


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    database = Database(postgres_url)
    yield database
    database.close()


class TestPostgresLog(StoreContract, KeptContract):
    @pytest.fixture
    def unreadable(self) -> list[SessionUnreadable]:
        return []

    @pytest.fixture
    def store(self, database: Database, unreadable: list[SessionUnreadable]) -> PostgresLog:
        return PostgresLog(database, unreadable.append)

    @pytest.fixture
    def damage(self, postgres_url: str) -> Damage:
        async def write(session_id: SessionId, seq: int | None = None) -> None:
            with psycopg.connect(postgres_url) as connection:
                if seq is None:
                    connection.execute("UPDATE sessions SET head = '{' WHERE session_id = %s", (session_id,))
                else:
                    statement = "UPDATE events SET payload = '{' WHERE session_id = %s AND seq = %s"
                    connection.execute(statement, (session_id, seq))

        return write


def rows(url: str) -> dict[str, list[str]]:
    """Every row of every table of the database, as text."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return {
            name: [repr(row) for row in connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(name)))]
            for (name,) in tables
        }


@requirement("faults:52:deleted")
async def test_a_deleted_session_is_in_no_table_any_more(database: Database, postgres_url: str) -> None:
    store = PostgresLog(database)
    empty = rows(postgres_url)
    for append, _, _ in commits_of(generated_log(3, 100), Random(3), await store.claim_epoch()):
        append.idempotency_records = [
            msgspec.structs.replace(idempotency_record(f"key-{append.after}"), session_id=append.session_id)
        ]
        append.name = "mine" if append.is_new else None
        assert await commit_accepted(store, append) == [True]
    full = rows(postgres_url)
    filled = {table for table in full if len(full[table]) > len(empty[table])}
    assert filled >= {"sessions", "events", "runs", "calls", "messages", "names", "once"}, "the test is worth its name"
    await store.delete(append.session_id)
    assert rows(postgres_url) == empty


async def test_everything_outlives_the_process(postgres_url: str) -> None:
    """After some commits the database is closed and opened again."""
    scribe = generated_log(5, 60)
    chance = Random(5)
    database = Database(postgres_url)
    try:
        store = PostgresLog(database)
        for append, state, pieces in commits_of(scribe, chance, await store.claim_epoch()):
            assert await commit_accepted(store, append) == [True]
            if chance.random() < 0.2:
                database.close()
                database = Database(postgres_url)
                store = PostgresLog(database)
                append.epoch = await store.claim_epoch()
                snapshot = await store.load(append.session_id)
                assert snapshot is not None
                assert fold(snapshot.head, snapshot.events) == state
                assert [*snapshot.pieces] == pieces
        assert [*await store.events(append.session_id, 0, 100_000)] == scribe.log
    finally:
        database.close()


ODD = ["\0", "a\0b", "\ud800", "'; DROP TABLE events; --", "%s", "\\", "é" * 3000, "".join(map(chr, range(1, 3000)))]


async def test_what_clients_choose_may_hold_anything_and_be_of_any_length(database: Database) -> None:
    """PostgreSQL has no text with NUL in it, and no index of long ones."""
    store = PostgresLog(database)
    epoch = await store.claim_epoch()
    writing = SessionWriter(0, epoch=epoch)
    for number, odd in enumerate(ODD, 1):
        writing = SessionWriter(number, epoch=epoch)
        assert await commit_accepted(
            store, writing.new(name=odd, idempotency_records=[idempotency_record(odd, number)])
        ) == [True]
        assert await store.find_by_name(ANN, odd) == writing.session_id
        assert await store.find_idempotency_record(ANN, odd) == idempotency_record(odd, number)
        assert await store.find_run(RunId(odd)) is None
        assert await store.known_calls(writing.session_id, [CallId(odd)]) == set()
        assert await store.find_messages(writing.session_id, [odd]) == {}
    seen = msgspec.structs.replace(UserMessage(id=MessageId("m"), content="x"), client_id=ODD[0])
    assert await commit_accepted(store, writing.append(MessageAdded(message=seen))) == [True]
    assert await store.find_messages(writing.session_id, ODD) == {ODD[0]: 2}
    piece = a_piece(3, "a\0b\N{GRINNING FACE}")
    assert await commit_accepted(store, writing.append(started(1), pieces=[piece])) == [True]
    snapshot = await store.load(writing.session_id)
    assert snapshot is not None
    assert [*snapshot.pieces] == [piece]


def test_a_batch_is_divided_only_where_a_session_or_a_name_comes_twice() -> None:
    one, two, three = (SessionWriter(number, epoch=1) for number in (1, 2, 3))
    batch = [
        one.new(name="a"),
        two.new(name="a"),
        three.new(name="b"),
        one.text_events("x"),
        two.text_events("x"),
        one.text_events("y"),
    ]
    assert split_into_rounds(batch) == [[0, 2], [1, 3], [4, 5]]
    assert split_into_rounds([]) == []
