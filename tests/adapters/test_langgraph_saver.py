"""LangGraph's checkpoints over both stores: the framework's own conformance suite, and what it does not ask about."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph", reason="the extra langgraph is not installed")

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate

from dragoman.adapters.langgraph_saver import Saver
from dragoman.ports.log import SessionStore
from dragoman.stores.postgres import database as postgres
from dragoman.stores.postgres.log import PostgresLog
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.log import SqliteLog
from tests.stores.contract import SessionWriter, commit_accepted, new_session_in, started


class StoredSession:
    """A session of a store, whose values are kept as a run keeps them."""

    def __init__(self, store: SessionStore, writing: SessionWriter) -> None:
        self._store = store
        self._writing = writing

    async def keep(self, writes: Mapping[str, bytes | None], *, durable: bool = True) -> None:
        assert await commit_accepted(self._store, self._writing.append(kept=writes)) == [True]

    async def kept(self, below: str = "", *, after: str | None = None, limit: int = 1000) -> Mapping[str, bytes]:
        return await self._store.kept(self._writing.session_id, below, after, limit)


NewSession = Callable[[], Any]


@pytest.fixture(params=["sqlite", "postgres"])
async def new_session(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NewSession]:
    """Makes sessions with an active run."""
    number = 0
    store: SessionStore
    if request.param == "sqlite":
        folder = Database(tmp_path)
        folder.start()
        database, store = folder, SqliteLog(folder)
    else:
        server = postgres.Database(request.getfixturevalue("postgres_url"))
        database, store = server, PostgresLog(server)  # type: ignore[assignment]  # both can be closed

    async def make() -> StoredSession:
        nonlocal number
        number += 1
        writing = await new_session_in(store, number)
        assert await commit_accepted(store, writing.append(started(number))) == [True]
        return StoredSession(store, writing)

    with closing(database):
        yield make


async def test_the_saver_conforms_to_langgraphs_own_suite(new_session: NewSession) -> None:
    @checkpointer_test("dragoman")
    async def saver() -> AsyncGenerator[BaseCheckpointSaver[str], None]:
        session = await new_session()
        yield Saver(lambda _: session)

    report = await validate(saver)
    failures = {name: result.failures for name, result in report.results.items() if result.tests_failed}
    assert failures == {}
    assert report.conformance_level() == "FULL"


async def test_threads_read_and_write_checkpoints_and_the_error_on_the_event_loop_says_to_await(
    new_session: NewSession,
) -> None:
    session = await new_session()
    saver = Saver(lambda _: session)
    config: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    checkpoint = {**empty_checkpoint(), "channel_values": {"words": ["tea"]}, "channel_versions": {"words": "1.0"}}
    assert await saver.aget_tuple(config) is None

    def use() -> tuple[Any, ...]:
        stored = saver.put(config, checkpoint, {"step": 1}, {"words": "1.0"})  # type: ignore[arg-type]  # a spread dict
        saver.put_writes(stored, [("words", "milk")], "task")
        found, listed = saver.get_tuple(config), list(saver.list(config))
        saver.delete_thread("t")
        return found, listed, saver.get_tuple(config)

    found, listed, after = await asyncio.to_thread(use)
    assert (found.checkpoint["channel_values"], found.pending_writes) == (
        {"words": ["tea"]},
        [("task", "words", "milk")],
    )
    assert (listed, after) == ([found], None)
    with pytest.raises(RuntimeError, match="await aget_tuple"):
        saver.get_tuple(config)
