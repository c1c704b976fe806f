"""`python -m bench.search`: lists and searches of a user with very many sessions, and what other users notice of them.

Fills a store with the sessions of one user, whose words are as frequent as in natural text, has them indexed, and sends
requests to a server on it. Prints one line for each kind of request.
"""

import argparse
import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import NamedTuple
from urllib.parse import quote

import msgspec
import psycopg
import uvloop

from bench import load, process, wire
from bench.load import Connection
from bench.stats import quantile
from bench.subjects import DATABASE
from dragoman.core.content import UserMessage
from dragoman.core.events import Event, LoggedEvent, MessageAdded, SessionCreated, SessionSettings, encode
from dragoman.core.ids import MessageId, SessionId, UserId, uuid7
from dragoman.core.session import encode_head, fold, initial_state
from dragoman.ports.log import Append, SessionStore
from dragoman.server.stores import is_database_url, open_stores_at
from tests.stores import postgres

USER, OTHER = UserId("ann"), UserId("bob")
OTHER_SESSIONS = 50
VOCABULARY = 20_000
WORDS = 60
"""Words of each of the two messages of a session."""
BATCH = 500
SEARCHES_AT_ONCE = 4
OTHER_TARGET_MS = 20
_PROGRAM = [sys.executable, "-m", "dragoman"]
POSTGRES_DEFAULTS = {"shared_buffers": "128MB", "autovacuum": "on", "max_connections": "100"}
_SYLLABLES = [first + vowel for first in "bcdfghklmnprstvz" for vowel in "aeiou"]


class Kind(NamedTuple):
    """A kind of request: its name, the text to search for, the number of results to skip, and the target in ms."""

    name: str
    text: str
    offset: int
    target_ms: float


def vocabulary() -> list[str]:
    """Words of two to four syllables, the most frequent first."""
    chance = Random(1)
    words = dict.fromkeys("".join(chance.choices(_SYLLABLES, k=chance.randint(2, 4))) for _ in range(VOCABULARY * 2))
    return [*words][:VOCABULARY]


def kinds(words: Sequence[str]) -> list[Kind]:
    """The kinds of search that are measured."""
    return [
        Kind("list", "", 0, 10),
        Kind("list, page 1,000", "", 50_000, 50),
        Kind("a word of one session", "needle", 0, 50),
        Kind("a rare word", words[5000], 0, 50),
        Kind("a frequent word", words[0], 0, 50),
        Kind("a frequent word, page 20", words[0], 1000, 50),
        Kind("two frequent words that are rare together", f"{words[200]} {words[300]}", 0, 50),
        Kind("two letters", words[0][:2], 0, 50),
        Kind("a word of old sessions only", "bygone", 0, 50),
        Kind("no session has it", "quixotic zephyr", 0, 50),
    ]


def append_of(owner: UserId, number: int, epoch: int, texts: Sequence[str]) -> Append:
    """A session with these messages."""
    session_id, at = SessionId(uuid7(number, 0)), datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    title = texts[0][:40]
    events: list[Event] = [
        SessionCreated(agent="rehearsal", settings=SessionSettings(title=title), protocol="bench"),
        *(MessageAdded(message=UserMessage(id=MessageId(text[:9]), content=text)) for text in texts),
    ]
    logged = [LoggedEvent(seq, at, None, event) for seq, event in enumerate(events, 1)]
    state = initial_state(session_id, owner, logged[0])
    fold(state, logged[1:])
    return Append(
        session_id=session_id,
        owner=owner,
        epoch=epoch,
        after=0,
        events=logged,
        payloads=[encode(event) for event in events],
        head=encode_head(state, with_settings=True),
        is_new=True,
    )


async def fill(store: SessionStore, sessions: int) -> None:
    """Write the sessions of both users, and wait until a search finds all of them in the index."""
    words, chance, epoch = vocabulary(), Random(2), await store.claim_epoch()
    weights = list(accumulate(1 / (rank + 10) for rank in range(len(words))))
    batch: list[Append] = []
    for number in range(1, sessions + OTHER_SESSIONS + 1):
        texts = [" ".join(chance.choices(words, cum_weights=weights, k=WORDS)) for _ in range(2)]
        texts[1] += " needle" * (number == sessions // 3) + " bygone" * (number < sessions // 2)
        batch.append(append_of(USER if number <= sessions else OTHER, number, epoch, texts))
        if len(batch) == BATCH or number == sessions + OTHER_SESSIONS:
            assert all(await store.commit(batch))
            batch = []


async def until_indexed(store: SessionStore, behind: Callable[[], int]) -> None:
    """Have the index built by a search of each user, and wait until it contains all sessions."""
    for owner in (USER, OTHER):
        await store.recent(owner, "needle", 0, 1)
    while behind():  # noqa: ASYNC110  # the indexer does not notify
        await asyncio.sleep(2)


def behind_in(location: str) -> int:
    """The number of sessions that are not in the index."""
    if is_database_url(location):
        with psycopg.connect(location) as connection:
            row = connection.execute("SELECT count(*) FROM sessions").fetchone()
            indexed = connection.execute("SELECT count(*) FROM search_sessions").fetchone()
    else:
        with closing(sqlite3.connect(Path(location) / DATABASE)) as database:
            row = database.execute("SELECT count(*) FROM sessions").fetchone()
            indexed = database.execute("SELECT count(*) FROM search_sessions").fetchone()
    return int(row[0]) - int(indexed[0]) if row and indexed else 0


async def prepare(location: str, sessions: int) -> None:
    """Fill a store, unless it is full already."""
    with closing(open_stores_at(location)) as stores:
        if not (await stores.log.recent(USER, "", 0, 1)).total:
            await fill(stores.log, sessions)
        await until_indexed(stores.log, partial(behind_in, location))
    if is_database_url(location):
        with psycopg.connect(location, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")  # as autovacuum does within minutes


async def measure(connection: Connection, request: bytes, times: int) -> tuple[list[float], bytes]:
    """Latencies of requests that follow each other, in ms, and the last response."""
    taken, response = [], b""
    for _ in range(times):
        exchange = await connection.exchange(request)
        taken.append((exchange.times[-1] - exchange.sent) * 1e3)
        response = wire.body(exchange)
    return taken, response


async def report(server: process.Server, keys: Mapping[UserId, str], times: int) -> int:
    """Print how long requests take, and lists of the other user meanwhile. Returns the number of missed targets."""
    user, other = (load.Client(server, "/api", keys[owner]) for owner in (USER, OTHER))
    [connection], [others] = await user.connect(1), await other.connect(1)
    crowd = await user.connect(SEARCHES_AT_ONCE)
    other_list = other.request("GET", "/sessions?limit=50")
    await measure(others, other_list, 10)
    misses = 0
    for kind in kinds(vocabulary()):
        request = user.request("GET", f"/sessions?limit=50&offset={kind.offset}&q={quote(kind.text)}")
        await measure(connection, request, 3)
        taken, response = await measure(connection, request, times)
        page = msgspec.json.decode(response)
        noise = [asyncio.create_task(measure(each, request, times)) for each in crowd]
        meanwhile: list[float] = []
        while not all(task.done() for task in noise):
            meanwhile += (await measure(others, other_list, 1))[0]
        await asyncio.gather(*noise)
        p95, p99 = quantile(taken, 0.95), quantile(meanwhile, 0.99)
        is_missed = quantile(taken, 0.5) > kind.target_ms or p99 > OTHER_TARGET_MS
        misses += is_missed
        print(
            f"| {kind.name} | {page['total']:,}{'+' if page['content_match_truncated'] else ''}"
            f" | {quantile(taken, 0.5):.1f} | {p95:.1f} | {p99:.1f} |{' missed' if is_missed else ''}",
            flush=True,
        )
    load.close([connection, others, *crowd])
    return misses


def serve(location: str, folder: Path) -> tuple[process.Server, dict[UserId, str]]:
    """Start a server on a filled store. Returns the keys of its users."""
    arguments = ["--data", str(folder)]
    if is_database_url(location):
        arguments += ["--database", location]
    keys = {}
    for owner in (USER, OTHER):
        command = [*_PROGRAM, "keys", "create", "--name", f"{owner}-{os.getpid()}", "--user", owner, *arguments]
        keys[owner] = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    command = [*_PROGRAM, "serve", "--rehearsal", "--port", "0", *arguments]
    return process.start(command, cores=os.sched_getaffinity(0), log=folder / "server.log"), keys


def run(location: str, folder: Path, given: argparse.Namespace) -> int:
    """Measure on one store."""
    begun = time.perf_counter()
    uvloop.run(prepare(location, given.sessions))
    kind = "PostgreSQL" if is_database_url(location) else "SQLite"
    print(f"\n{kind}, {given.sessions:,} sessions, ready after {time.perf_counter() - begun:.0f} s\n")
    print("| request | results | p50 ms | p95 ms | lists of another user meanwhile, p99 ms |\n|---|---|---|---|---|")
    server, keys = serve(location, folder)
    try:
        return uvloop.run(report(server, keys, given.times))
    finally:
        server.stop()


def main() -> int:
    """Run the command. Returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.search", description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=40, help="requests of each kind")
    parser.add_argument("--store", choices=("sqlite", "postgres"), help="default: both, one after the other")
    parser.add_argument("--data", type=Path, help="a data folder to use again; default: a temporary one")
    parser.add_argument("--database", help="a PostgreSQL to use again; default: a temporary one")
    given = parser.parse_args()
    misses = 0
    with ExitStack() as stack:
        folder = given.data or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        if given.store != "postgres":
            misses += run(str(folder), folder, given)
        if given.store != "sqlite":
            database = given.database
            if database is None:
                started = stack.enter_context(postgres.server(fsync=True, settings=POSTGRES_DEFAULTS))
                database = started.url("postgres")
            shared = folder / "postgres"
            shared.mkdir(exist_ok=True)
            misses += run(database, shared, given)
    print(f"\n{misses} targets missed")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
