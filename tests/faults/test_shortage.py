"""Too few descriptors, too little memory, a processor that somebody keeps to himself. Case 50."""

import asyncio
import json
import resource
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx2
import psutil
import pytest

from dragoman.stores.postgres.cluster import PostgresCluster
from dragoman.stores.postgres.database import Database
from tests.protocols.aap.client import AapClient
from tests.requirements import requirement
from tests.servers import ServerProcess, server_process

DEADLINE_S = 20.0
SPARE_BYTES = 24 * 1024 * 1024


@asynccontextmanager
async def limited(folder: Path) -> AsyncIterator[tuple[ServerProcess, int, AapClient]]:
    """A server as a program, its process, and its face."""
    async with server_process(folder) as running:
        yield running, running._process.pid, AapClient(running.connection, running.key("alice"))


@requirement("faults:50:descriptors")
async def test_without_free_descriptors_who_comes_is_turned_away_what_is_open_goes_on_and_all_is_well_after(
    tmp_path: Path,
) -> None:
    async with limited(tmp_path) as (running, process, face):
        session = await face.create()
        turn = await session.open(json.dumps({"script": [{"say": "a "}, {"wait_ms": 700}, {"say": "b"}]}))
        await turn.until("text_delta")
        used = psutil.Process(process).num_fds()
        _, hard = resource.prlimit(process, resource.RLIMIT_NOFILE)
        resource.prlimit(process, resource.RLIMIT_NOFILE, (used + 5, hard))
        port = int(running.connection.url.rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        async with asyncio.timeout(DEADLINE_S):
            while psutil.Process(process).num_fds() < used + 5:  # noqa: ASYNC110  # nobody else is told
                await asyncio.sleep(0.01)
        with pytest.raises(httpx2.TransportError):
            await face.get(session.path)
        assert [frame.event for frame in await turn.read_to_end()][-1] == "turn_stop", "what is open goes on"
        for each in idle:
            each.close()
        async with asyncio.timeout(DEADLINE_S):
            while psutil.Process(process).num_fds() >= used + 5:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.01)
        assert (await session.run("and on")).stop == "end_turn"


@requirement("faults:50:memory")
async def test_a_request_that_is_too_large_for_the_memory_left_fails_alone(tmp_path: Path) -> None:
    async with limited(tmp_path) as (_, process, face):
        session = await face.create()
        await session.run("before")
        size = psutil.Process(process).memory_info().vms
        resource.prlimit(process, resource.RLIMIT_AS, (size + SPARE_BYTES, resource.RLIM_INFINITY))
        text = "x" * 1_000_000
        body = {"messages": [{"role": "user", "content": [{"type": "text", "text": text}] * 15}]}
        failed = 0
        for _ in range(3):
            try:
                answer = await face.open("POST", f"{session.path}/turns", body)
                failed += answer.status >= 500
                await answer.read()
            except (httpx2.TransportError, AssertionError):
                failed += 1
            assert (await session.run("small")).stop == "end_turn"
        assert failed, "the test is worth its name"
        resource.prlimit(process, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert (await session.run("after")).stop == "end_turn"


@requirement("faults:50:processor")
async def test_a_loop_that_computes_for_longer_than_the_lease_does_not_lose_it(postgres_url: str) -> None:
    lease_s = 1.0
    with closing(Database(postgres_url, access="shared")) as database:
        nodes = PostgresCluster(database, folder_id="here", lease_s=lease_s)
        await nodes.join()
        over = time.monotonic() + 2 * lease_s
        while time.monotonic() < over:  # the loop stands still, and the lock of the interpreter is wanted all the time
            sum(range(1000))
        assert nodes.lease_remaining_s() > 0
        assert not nodes.is_lease_expired
        await nodes.leave()
