"""A session of 100,000 events (40,000 unless all is played): opened, paged, resumed and deleted. Case 52."""

import asyncio
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from dragoman.core.content import AssistantMessage, Text, UserMessage
from dragoman.core.events import Event, LoggedEvent, MessageAdded, SessionCreated, SessionSettings, encode
from dragoman.core.ids import MessageId, SessionId
from dragoman.core.session import encode_head, fold, initial_state
from dragoman.core.stream import Cursor, Record
from dragoman.ports.log import Append
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.log import SqliteLog
from tests.engine.world import ANN, World, play, running_world
from tests.extent import extent
from tests.requirements import requirement

EVENTS = extent(100_000, 40_000)
PART = 20_000
MEBIBYTE = 1024 * 1024
DEADLINE_S = 60.0


def event(seq: int) -> Event:
    if seq == 1:
        return SessionCreated(agent="player", settings=SessionSettings(tools="all"), protocol="test")
    message_id = MessageId(f"m{seq}")
    if seq % 2:
        return MessageAdded(message=AssistantMessage(id=message_id, content=(Text(f"answer {seq}"),)))
    return MessageAdded(message=UserMessage(id=message_id, content=f"question {seq}"))


async def stored(world: World) -> SessionId:
    """Store the session in parts."""
    session_id = SessionId(world.ids.new())
    epoch, at = await world.store.claim_epoch(), world.clock.now()
    state = None
    for first in range(1, EVENTS + 1, PART):
        logged = [LoggedEvent(seq, at, None, event(seq)) for seq in range(first, first + PART)]
        state = fold(initial_state(session_id, ANN, logged[0]), logged[1:]) if state is None else fold(state, logged)
        append = Append(
            session_id=session_id,
            owner=ANN,
            epoch=epoch,
            after=first - 1,
            events=logged,
            payloads=[encode(each.event) for each in logged],
            head=encode_head(state, with_settings=True),
            is_new=first == 1,
        )
        assert await world.store.commit([append]) == [True]
    return session_id


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    database = Database(tmp_path, synchronous="normal")
    database.start()
    with closing(database):
        async with running_world(SqliteLog(database)) as world:
            yield world


@requirement("faults:52:memory", "faults:52:deleted")
@pytest.mark.slow
async def test_a_long_session_is_opened_paged_resumed_and_deleted_in_bounded_memory(
    world: World, tmp_path: Path
) -> None:
    session_id = await stored(world)
    engine = await world.start()
    tracemalloc.start()
    try:
        live = await engine.find_session(ANN, session_id)
        opened, _ = tracemalloc.get_traced_memory()
        assert opened < 2 * MEBIBYTE, "its tail alone is in memory"
        seen = EVENTS - PART
        with engine.follow(live, Cursor(seen)) as reader:
            while seen < EVENTS:
                records: Sequence[Record] = await reader.next()
                assert [each.seq for each in records if isinstance(each, LoggedEvent)] == [
                    *range(seen + 1, seen + 1 + len(records))
                ]
                seen += len(records)
        _, most = tracemalloc.get_traced_memory()
        assert most < 48 * MEBIBYTE, "a page at a time"
    finally:
        tracemalloc.stop()
    await play(engine, live, "hello")
    await engine.delete(live)
    assert await world.store.load(session_id) is None, "it is gone at once"
    with closing(sqlite3.connect(tmp_path / "dragoman.db")) as connection:
        async with asyncio.timeout(DEADLINE_S):
            while any(count_rows(connection).values()):  # noqa: ASYNC110  # rows are deleted in batches, without a notification
                await asyncio.sleep(0.02)


def count_rows(connection: sqlite3.Connection) -> dict[str, int]:
    """The number of rows of sessions in each table."""
    tables = ("sessions", "events", "messages", "runs", "calls", "pieces", "names", "once")
    return {each: connection.execute(f"SELECT count(*) FROM {each}").fetchone()[0] for each in tables}
