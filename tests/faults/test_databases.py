"""PostgreSQL without free connections, with foreign locks, and without responses. Case 44."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import psycopg

from tests.requirements import requirement
from tests.servers import running_server
from tests.stores.postgres import server as postgres_server

DEADLINE_S = 60.0


OTHERS = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND NOT pid = ANY (%s)"


def take_all_connections(url: str, connections: ExitStack) -> None:
    """Take all connections, also those that are in use."""
    mine = [connections.enter_context(psycopg.connect(url, autocommit=True))]
    while True:
        pids = [each.info.backend_pid for each in mine]
        mine[0].execute(f"SELECT pg_terminate_backend(pid, 1000) {OTHERS}", (pids,))
        try:
            mine.append(connections.enter_context(psycopg.connect(url)))
        except psycopg.OperationalError:
            if mine[0].execute(f"SELECT count(*) {OTHERS}", (pids,)).fetchone() == (0,):
                return


@requirement("faults:44:exhausted")
async def test_a_database_without_a_free_connection_is_waited_for(tmp_path: Path) -> None:
    with postgres_server(settings={"max_connections": "16"}) as postgres, ExitStack() as stack:
        url = postgres.url("postgres")
        async with running_server(tmp_path, database=url) as server:
            session = await server.aap_client("alice").create()
            await session.run("before")
            await asyncio.to_thread(take_all_connections, url, stack)
            running = asyncio.create_task(session.run("meanwhile"))
            await asyncio.sleep(0.3)
            assert not running.done(), "there is no connection for it"
            stack.close()
            async with asyncio.timeout(DEADLINE_S):
                assert (await running).stop == "end_turn"
            assert len(await session.history()) == 4


@requirement("faults:44:long-lock")
async def test_a_foreign_lock_is_waited_for(tmp_path: Path, postgres_url: str) -> None:
    async with running_server(tmp_path, database=postgres_url) as server:
        session = await server.aap_client("alice").create()
        with psycopg.connect(postgres_url) as other:
            other.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
            running = asyncio.create_task(session.run("patiently"))
            await asyncio.sleep(0.3)
            assert not running.done()
        async with asyncio.timeout(DEADLINE_S):
            assert (await running).stop == "end_turn"
        assert len(await session.history()) == 2


@requirement("faults:44:silence")
async def test_a_database_that_is_unresponsive_for_a_while_is_tolerated(tmp_path: Path) -> None:
    with postgres_server() as postgres:
        async with running_server(tmp_path, database=postgres.url("postgres")) as server:
            session = await server.aap_client("alice").create()
            with postgres.suspended():
                running = asyncio.create_task(session.run("into the silence"))
                await asyncio.sleep(1.0)
                assert not running.done(), "nothing is acknowledged"
            async with asyncio.timeout(DEADLINE_S):
                assert (await running).stop == "end_turn"
            assert len(await session.history()) == 2
