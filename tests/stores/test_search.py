"""Searches: what the index finds, that users take turns, and what becomes of a search that nobody waits for."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import LiteralString, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.audit import ACTOR, Actor
from dragoman.core.events import SettingsChange, SettingsChanged
from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import LimitReached
from dragoman.ports.log import SessionStore
from dragoman.stores import search_batches
from dragoman.stores.fair_threads import MAX_SEARCHES_PER_USER, FairThreads
from dragoman.stores.postgres import session_search as postgres_search
from dragoman.stores.postgres.database import Database as PostgresDatabase
from dragoman.stores.postgres.log import PostgresLog
from dragoman.stores.sqlite import session_search as sqlite_search
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.log import SqliteLog
from tests.core.strategies import NOON
from tests.stores.contract import ANN, BOB, commit_accepted, new_session_in, session_id

DEADLINE_S = 60
ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE NOT is_over()) SELECT max(i) FROM n"
"""A search that ends when `is_over` says so, or when it is interrupted."""

TO_INDEX_OF_0_1_0 = """
    DROP TRIGGER listed_session_created; DROP TRIGGER listed_session_deleted; DROP TRIGGER session_listed;
    DROP TRIGGER session_unlisted; DROP TABLE session_counts;
    DROP TRIGGER session_created_for_search; DROP TRIGGER session_changed_for_search;
    DROP TRIGGER session_deleted_for_search; DROP TABLE search_behind;
    ALTER TABLE search_texts DROP COLUMN is_title;
    ALTER TABLE search_sessions ADD COLUMN title TEXT NOT NULL DEFAULT '';
    DELETE FROM search_users;
    ALTER TABLE search_users DROP COLUMN is_complete;
    INSERT INTO search_users VALUES (1, 'ann');
    INSERT INTO search_sessions SELECT number, seq, json_extract(settings, '$.title') FROM sessions;
    INSERT INTO search_texts SELECT (1 << 32) + number - 1, number, 'a text' FROM sessions;
    PRAGMA user_version = 18;
"""


@contextmanager
def set_at_the_end() -> Iterator[threading.Event]:
    """An event that threads wait for. They end also if the test fails."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


class Searched(NamedTuple):
    """A store, and what its index still has to do, and contains."""

    store: SessionStore
    behind: Callable[[], Awaitable[int]]
    size: Callable[[], Awaitable[int]]


@pytest.fixture(params=["sqlite", "postgres"])
def searched(request: pytest.FixtureRequest) -> Searched:
    if request.param == "sqlite":
        database: Database = request.getfixturevalue("sqlite_database")
        behind = (
            "SELECT 1 - count(*) + (SELECT count(*) FROM search_behind) FROM search_users"
            " WHERE user = 'ann' AND is_complete"
        )
        size = (
            "SELECT (SELECT count(*) FROM search_texts) + (SELECT count(*) FROM search_sessions)"
            " + (SELECT count(*) FROM search_behind)"
        )

        async def count(statement: str) -> int:
            return int((await database.read(lambda connection: connection.execute(statement).fetchone()))[0])

        return Searched(SqliteLog(database), partial(count, behind), partial(count, size))
    shared: PostgresDatabase = request.getfixturevalue("postgres_database")
    in_postgres: dict[str, LiteralString] = {
        "behind": "SELECT 1 - count(*) + (SELECT count(*) FROM search_behind) FROM search_users"
        " WHERE owner = 'ann' AND is_listed",
        "size": "SELECT (SELECT count(*) FROM search_texts) + (SELECT count(*) FROM search_sessions)",
    }

    async def count_in_postgres(name: str) -> int:
        row = await shared.read(lambda connection: connection.execute(in_postgres[name]).fetchone())
        assert row is not None
        return int(row[0])

    return Searched(PostgresLog(shared), partial(count_in_postgres, "behind"), partial(count_in_postgres, "size"))


async def found(store: SessionStore, text: str, owner: UserId = ANN) -> list[SessionId]:
    return [state.session_id for state in (await store.recent(owner, text, 0, 100)).states]


async def until_indexed(searched: Searched) -> None:
    """Wait until all of Ann's sessions are in the index."""
    async with asyncio.timeout(DEADLINE_S):
        while await searched.behind():  # noqa: ASYNC110  # the indexer tells nobody
            await asyncio.sleep(0.001)


async def test_a_search_finds_the_same_before_and_after_its_texts_are_indexed(searched: Searched) -> None:
    store = searched.store
    texts = ["Grüße aus 杭州", 'say "hi" AND bye', "a\0b nul", "It is 100 % sure", "x" * 50_000 + " needle"]
    made = [await new_session_in(store, number, at=NOON + timedelta(seconds=number)) for number in range(1, 6)]
    other = await new_session_in(store, 9, owner=BOB)
    for writer, text in zip((*made, other), (*texts, "needle"), strict=True):
        assert await commit_accepted(store, writer.text_events(text)) == [True]
    titled = SettingsChanged(change=SettingsChange(title="Holiday"))
    assert await commit_accepted(store, made[0].append(titled)) == [True]
    queries = {
        "GRÜSSE": [1],
        "杭州": [1],
        "杭": [1],
        '"hi" and': [2],
        "a\0b": [3],
        "%": [4],
        "needle": [5],
        "xxxx": [5],
        "holi": [1],
        "nul\x1fsay": [],
        "no such": [],
        "t": [5, 4, 3, 2],
    }
    expected = {text: [session_id(number) for number in numbers] for text, numbers in queries.items()}
    assert {text: await found(store, text) for text in queries} == expected
    await until_indexed(searched)
    assert {text: await found(store, text) for text in queries} == expected
    assert await found(store, "needle", BOB) == [other.session_id]


async def test_what_changes_after_indexing_is_found_as_it_is_now(searched: Searched) -> None:
    store = searched.store
    writer = await new_session_in(store)
    first = SettingsChanged(change=SettingsChange(title="first title"))
    assert await commit_accepted(store, writer.append(first), writer.text_events("one text")) == [True, True]
    assert await found(store, "one text") == [writer.session_id]
    await until_indexed(searched)
    second = SettingsChanged(change=SettingsChange(title="second title"))
    assert await commit_accepted(store, writer.append(second), writer.text_events("another")) == [True, True]
    for _ in range(2):
        for text in ("one text", "another", "second title"):
            assert await found(store, text) == [writer.session_id]
        assert await found(store, "first title") == []
        await until_indexed(searched)
    await store.delete(writer.session_id)
    assert await found(store, "one text") == []


async def test_a_deleted_session_leaves_nothing_in_the_index(searched: Searched) -> None:
    store = searched.store
    writer = await new_session_in(store)
    assert await commit_accepted(store, writer.text_events("a secret text")) == [True]
    assert await found(store, "secret") == [writer.session_id]
    await until_indexed(searched)
    await store.delete(writer.session_id)
    async with asyncio.timeout(DEADLINE_S):
        while await searched.size():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_title_in_the_index_changes_with_the_session(
    searched: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_batches, "COMPARED_AT_A_TIME", 2)
    store = searched.store
    writers = [await new_session_in(store, number, at=NOON + timedelta(seconds=number)) for number in range(1, 9)]
    first, second = (SettingsChanged(change=SettingsChange(title=title)) for title in ("first title", "second title"))
    assert await commit_accepted(store, writers[0].append(first)) == [True]
    assert await found(store, "first title") == [writers[0].session_id]
    await until_indexed(searched)
    assert await found(store, "first title") == [writers[0].session_id], "it is found in the index"
    assert await commit_accepted(store, writers[0].append(second)) == [True]
    for _ in range(2):
        assert await found(store, "first title") == []
        assert await found(store, "second title") == [writers[0].session_id]
        await until_indexed(searched)


@pytest.mark.parametrize("searched", ["sqlite"], indirect=True)
async def test_a_list_and_a_search_of_many_sessions_visit_as_few_rows_as_of_some(
    searched: Searched, sqlite_database: Database
) -> None:
    """Judged by the instructions of SQLite's virtual machine."""
    store = searched.store
    needle = await new_session_in(store, 1)
    assert await commit_accepted(store, needle.text_events("a needle in it")) == [True]
    assert await found(store, "needle") == [needle.session_id]
    await until_indexed(searched)
    steps: list[list[int]] = []
    for first, last in ((2, 500), (501, 2500)):
        await sqlite_database.writer.run(partial(add_indexed_sessions, first, last))
        steps.append([await count_steps(sqlite_database, read) for read in (LIST, SEARCH)])
    for of_some, of_many in zip(*steps, strict=True):
        assert of_many < of_some * 1.1
    page = await store.recent(ANN, "needle", 0, 10)
    assert ([state.session_id for state in page.states], page.total) == ([needle.session_id], 1)
    assert (await store.recent(ANN, "", 0, 10)).total == 2500


LIST = partial(sqlite_search.find_recent_sessions, ANN, 0, 10)
SEARCH = partial(sqlite_search.search_sessions, ANN, "needle", 0, 10)


def add_indexed_sessions(first: int, last: int, connection: sqlite3.Connection) -> None:
    """Add sessions of Ann's that are like the first one, and indexed."""
    connection.execute(
        "WITH RECURSIVE numbers (each) AS (SELECT ? UNION ALL SELECT each + 1 FROM numbers WHERE each < ?)"
        " INSERT INTO sessions SELECT each, 'session ' || each, owner, created_at, updated_at + each, seq, epoch,"
        " is_running, head, settings, head_checksum, settings_checksum, is_unlisted, expires_at, quarantine"
        " FROM numbers, sessions WHERE number = 1",
        (first, last),
    )
    connection.execute("INSERT OR IGNORE INTO search_sessions SELECT number, seq FROM sessions")
    connection.execute("DELETE FROM search_behind")


async def count_steps(database: Database, read: Callable[[sqlite3.Connection], object]) -> int:
    """How many instructions SQLite executes for a read."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    def counted(connection: sqlite3.Connection) -> None:
        connection.set_progress_handler(count, 1)
        try:
            read(connection)
        finally:
            connection.set_progress_handler(None, 0)

    await database.read(counted)
    return steps


async def test_the_index_of_texts_is_whole_after_a_deletion(sqlite_database: Database) -> None:
    store = SqliteLog(sqlite_database)
    writer = await new_session_in(store)
    assert await commit_accepted(store, writer.text_events("a secret text")) == [True]
    assert await found(store, "secret") == [writer.session_id]
    await store.delete(writer.session_id)
    await sqlite_database.writer.run(
        lambda connection: connection.execute(
            "INSERT INTO search_trigrams (search_trigrams) VALUES ('integrity-check')"
        )
    )


async def test_a_search_of_many_sessions_finds_the_newest_matches_first(
    searched: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frequent words are found without the index, rare ones with it, and neither reads everything."""
    monkeypatch.setattr(search_batches, "COMPARED_AT_A_TIME", 4)
    monkeypatch.setattr(search_batches, "COMPARED_SESSIONS", 8)
    store = searched.store
    for number in range(1, 31):
        writer = await new_session_in(store, number, at=NOON + timedelta(seconds=number))
        words = ["common", *(["rare"] if number % 10 == 0 else []), *(["bygone"] if number < 15 else [])]
        assert await commit_accepted(store, writer.text_events(" ".join(words))) == [True]
    await found(store, "common")
    await until_indexed(searched)
    newest_first = [session_id(number) for number in range(30, 0, -1)]
    listed: list[SessionId] = []
    for offset in range(0, 30, 5):
        page = await store.recent(ANN, "common", offset, 5)
        listed += [state.session_id for state in page.states]
        assert offset + len(page.states) <= page.total <= 30
        assert page.is_partial is (page.total < 30)
    assert listed == newest_first
    first = await store.recent(ANN, "common", 0, 5)
    assert (first.is_partial, 5 < first.total < 30) == (True, True), "the rest was not counted"
    for text, numbers in (("rare", [30, 20, 10]), ("bygone", range(14, 0, -1)), ("never", [])):
        page = await store.recent(ANN, text, 0, 100)
        assert [state.session_id for state in page.states] == [session_id(number) for number in numbers]
        assert (page.total, page.is_partial) == (len(numbers), False)
    assert (await found(store, "on")) == newest_first, "it is too short for the index"
    monkeypatch.setattr(search_module_of(store), "COMPARED_CANDIDATES", 6)
    page = await store.recent(ANN, "bygone", 0, 100)
    shown = [state.session_id for state in page.states]
    assert (page.is_partial, page.total, len(shown)) == (True, 6, 6), "the search gave up"
    assert shown == [each for each in newest_first if each in shown]


def search_module_of(store: SessionStore) -> ModuleType:
    return postgres_search if isinstance(store, PostgresLog) else sqlite_search


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 10), st.booleans())
def test_the_newest_matches_are_a_prefix_of_all_matches_and_enough_unless_the_index_is_needed(
    is_match: list[bool], needed: int, has_index: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_batches, "COMPARED_AT_A_TIME", 3)
        patch.setattr(search_batches, "COMPARED_SESSIONS", 7)
        patch.setattr(search_batches, "COMPARED_WITHOUT_INDEX", 20)
        patch.setattr(search_batches, "MIN_SHARE_OF_MATCHES", 0.3)
        read = 0

        def sessions() -> Iterator[tuple[int, bool]]:
            nonlocal read
            for number, each in enumerate(is_match):
                read += 1
                yield number, each

        newest = search_batches.newest_matches(sessions(), needed, has_index=has_index)
    expected = [number for number, each in enumerate(is_match) if each]
    assert newest.sessions == expected[: len(newest.sessions)]
    assert not newest.is_complete or newest.sessions == expected
    assert newest.is_complete or newest.needs_index or len(newest.sessions) > needed or read >= 20
    assert not newest.needs_index or has_index


async def test_an_index_of_release_0_1_0_finds_titles_and_texts(tmp_path: Path) -> None:
    with closing(Database(tmp_path)) as database:
        database.start()
        store = SqliteLog(database)
        for number, title in ((1, "one title"), (2, "another title")):
            writer = await new_session_in(store, number, at=NOON + timedelta(seconds=number))
            titled = SettingsChanged(change=SettingsChange(title=title))
            assert await commit_accepted(store, writer.append(titled), writer.text_events("a text")) == [True, True]
    with closing(sqlite3.connect(tmp_path / "dragoman.db")) as connection:
        connection.executescript(TO_INDEX_OF_0_1_0)
    with closing(Database(tmp_path)) as database:
        database.start()
        store = SqliteLog(database)
        assert await found(store, "another title") == [session_id(2)]
        assert await found(store, "a text") == [session_id(2), session_id(1)]
        titles = "SELECT id & 0xffffffff, text FROM search_texts WHERE id > 1 << 32 AND is_title = 1 ORDER BY id"
        stored = await database.read(lambda connection: connection.execute(titles).fetchall())
        assert stored == [(2, "one title"), (3, "another title")], "they follow the user's texts"


async def test_lists_of_other_users_do_not_wait_for_searches(sqlite_database: Database) -> None:
    store = SqliteLog(sqlite_database)
    bobs = await new_session_in(store, 2, owner=BOB)

    def search_endlessly(connection: sqlite3.Connection) -> None:
        connection.create_function("is_over", 0, is_over.is_set)
        connection.execute(ENDLESS).fetchone()

    with set_at_the_end() as is_over:
        ACTOR.set(Actor(ANN))
        searches = [asyncio.create_task(sqlite_database.search(search_endlessly)) for _ in range(MAX_SEARCHES_PER_USER)]
        await asyncio.sleep(0)
        async with asyncio.timeout(DEADLINE_S):
            ACTOR.set(Actor(BOB))
            assert await found(store, "", BOB) == [bobs.session_id]
            for search in searches:
                search.cancel()
            await asyncio.wait(searches)
            assert await found(store, "t", BOB) == [bobs.session_id], "the searches were interrupted"


async def test_a_user_with_many_searches_is_refused_more_and_others_are_not(sqlite_database: Database) -> None:
    store = SqliteLog(sqlite_database)
    await new_session_in(store)
    with set_at_the_end() as release:
        ACTOR.set(Actor(ANN))
        first = asyncio.create_task(sqlite_database.search(lambda _: release.wait(DEADLINE_S)))
        rest = [asyncio.create_task(store.recent(ANN, "t", 0, 10)) for _ in range(MAX_SEARCHES_PER_USER - 1)]
        await asyncio.sleep(0)
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(LimitReached, match="too many searches at the same time: at most 8"):
                await store.recent(ANN, "t", 0, 10)
        ACTOR.set(Actor(BOB))
        other = asyncio.create_task(store.recent(BOB, "t", 0, 10))
        await asyncio.sleep(0)
        release.set()
        async with asyncio.timeout(DEADLINE_S):
            assert await first
            assert [found.total for found in await asyncio.gather(*rest)] == [1] * len(rest)
            assert (await other).total == 0
            ACTOR.set(Actor(ANN))
            assert (await store.recent(ANN, "t", 0, 10)).total == 1


async def test_a_search_that_nobody_waits_for_counts_no_more(sqlite_database: Database) -> None:
    store = SqliteLog(sqlite_database)
    await new_session_in(store)
    with set_at_the_end() as release:
        ACTOR.set(Actor(ANN))
        first = asyncio.create_task(sqlite_database.search(lambda _: release.wait(DEADLINE_S)))
        rest = [asyncio.create_task(store.recent(ANN, "t", 0, 10)) for _ in range(MAX_SEARCHES_PER_USER - 1)]
        await asyncio.sleep(0)
        for search in rest:
            search.cancel()
        await asyncio.wait(rest)
        another = asyncio.create_task(store.recent(ANN, "t", 0, 10))
        await asyncio.sleep(0)
        release.set()
        async with asyncio.timeout(DEADLINE_S):
            assert (await another).total == 1
            assert await first


async def test_users_take_turns_when_they_read() -> None:
    """A user's reads that wait are executed one by one between those of the others."""
    threads: FairThreads[StringIO] = FairThreads(1, "test", connect=StringIO, run=lambda _, work, __: work())
    started, release = threading.Event(), threading.Event()
    order: list[str] = []

    def keep_busy() -> None:
        started.set()
        release.wait(DEADLINE_S)

    reads = [asyncio.create_task(threads.read(keep_busy))]
    await asyncio.to_thread(started.wait, DEADLINE_S)
    for user in ("ann", "ann", "ann", "bob", "bob", "carl"):
        ACTOR.set(Actor(UserId(user)))
        reads.append(asyncio.create_task(threads.read(partial(order.append, user))))
    await asyncio.sleep(0)
    release.set()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*reads)
    threads.shut_down()
    assert order == ["ann", "bob", "carl", "ann", "bob", "ann"]


async def test_a_read_that_nobody_waits_for_never_starts(sqlite_database: Database) -> None:
    release, started = threading.Event(), threading.Event()
    ACTOR.set(Actor(ANN))
    first = asyncio.create_task(sqlite_database.search(lambda _: release.wait(DEADLINE_S)))
    second = asyncio.create_task(sqlite_database.search(lambda _: started.set()))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    release.set()
    async with asyncio.timeout(DEADLINE_S):
        await first
        assert await sqlite_database.search(lambda connection: isinstance(connection, sqlite3.Connection))
    assert not started.is_set()
