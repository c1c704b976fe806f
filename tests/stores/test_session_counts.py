"""The stores keep the number of each owner's listed sessions: it is always that of the rows."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random

import psycopg

from dragoman.stores.postgres.database import Database
from dragoman.stores.sqlite.database import Database as SqliteDatabase

INSERT = """
    INSERT INTO sessions (session_id, owner, created_at, updated_at, seq, rest_seq, epoch, is_running, is_pinned,
        is_unlisted, head, settings)
    SELECT %s || number, %s, 0, 0, 1, 1, 1, false, false, number %% 3 = 0, '{}', '{}'
    FROM generate_series(1, %s) AS number
"""
KEPT = "SELECT owner, sum(count)::bigint FROM session_counts GROUP BY owner HAVING sum(count) <> 0 ORDER BY owner"
COUNTED = "SELECT owner, count(*) FROM sessions WHERE NOT is_unlisted GROUP BY owner ORDER BY owner"

INSERT_IN_SQLITE = """
    WITH RECURSIVE numbers (number) AS (SELECT :first UNION ALL SELECT number + 1 FROM numbers WHERE number < :last)
    INSERT OR IGNORE INTO sessions (number, session_id, owner, created_at, updated_at, seq, epoch, is_running,
        is_unlisted, head, settings)
    SELECT number, 's-' || number, :owner, 0, 0, 1, 1, 0, number % 3 = 0, '{}', '{}' FROM numbers
"""
KEPT_IN_SQLITE = "SELECT owner, count FROM session_counts ORDER BY owner"
COUNTED_IN_SQLITE = "SELECT owner, count(*) FROM sessions WHERE is_unlisted = 0 GROUP BY owner ORDER BY owner"


def change(url: str, seed: int) -> None:
    """Create, list, hide and delete sessions, in transactions that overlap with those of others; some are undone."""
    chance = Random(seed)
    with psycopg.connect(url) as connection:
        for number in range(20):
            owner = chance.choice(["ann", "bob"])
            connection.execute(INSERT, (f"{seed}-{number}-", owner, chance.randrange(30)))
            mine = f"{seed}-{chance.randrange(number + 1)}-%"
            connection.execute("UPDATE sessions SET is_unlisted = NOT is_unlisted WHERE session_id LIKE %s", (mine,))
            if number % 3 == 0:
                connection.execute("DELETE FROM sessions WHERE session_id LIKE %s", (mine,))
            if chance.random() < 0.2:
                connection.rollback()
            else:
                connection.commit()


def test_counts_agree_with_the_rows_after_concurrent_changes(postgres_url: str) -> None:
    with closing(Database(postgres_url)), ThreadPoolExecutor(4) as pool:
        list(pool.map(change, [postgres_url] * 4, range(4)))
        with psycopg.connect(postgres_url) as connection:
            kept, counted = connection.execute(KEPT).fetchall(), connection.execute(COUNTED).fetchall()
            assert kept == counted
    assert len(counted) == 2


def test_counts_in_sqlite_agree_with_the_rows_after_each_change(tmp_path: Path) -> None:
    chance = Random(1)
    with closing(SqliteDatabase(tmp_path)) as database:

        def change(connection: sqlite3.Connection) -> None:
            owner, first = chance.choice(["ann", "bob", "carl"]), chance.randrange(1000)
            connection.execute(INSERT_IN_SQLITE, {"first": first, "last": first + 9, "owner": owner})
            some = (chance.randrange(2, 9),)
            connection.execute("UPDATE sessions SET is_unlisted = NOT is_unlisted WHERE number % ? = 0", some)
            connection.execute("DELETE FROM sessions WHERE (number + 1) % ? = 0", some)
            assert connection.execute(KEPT_IN_SQLITE).fetchall() == connection.execute(COUNTED_IN_SQLITE).fetchall()

        for _ in range(40):
            database.writer.run_now(change)
