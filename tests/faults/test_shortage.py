"""Too few descriptors, too little memory, a processor that is busy. Case 50."""

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

from dragoman.core import json_memory
from dragoman.stores.postgres.cluster import PostgresCluster
from dragoman.stores.postgres.database import Database
from tests.extent import extent
from tests.faults.exhaustion import CAN_LIMIT_THREADS, TOGETHER, campaign
from tests.protocols.aap.client import AapClient
from tests.requirements import requirement
from tests.servers import ServerProcess, running_server, server_process

DEADLINE_S = 60.0
SPARE_BYTES = 24 * 1024 * 1024


@asynccontextmanager
async def limited(folder: Path) -> AsyncIterator[tuple[ServerProcess, int, AapClient]]:
    """A server in its own process, its process id, and a client."""
    async with server_process(folder) as running:
        yield running, running.pid, AapClient(running.connection, running.key("alice"))


@requirement("faults:50:descriptors")
async def test_without_free_descriptors_new_clients_are_refused_and_open_streams_continue(
    tmp_path: Path,
) -> None:
    async with limited(tmp_path) as (running, process, aap):
        session = await aap.create()
        turn = await session.open(json.dumps({"script": [{"say": "a "}, {"wait_ms": 700}, {"say": "b"}]}))
        await turn.until("text_delta")
        used = psutil.Process(process).num_fds()
        _, hard = resource.prlimit(process, resource.RLIMIT_NOFILE)
        resource.prlimit(process, resource.RLIMIT_NOFILE, (used + 5, hard))
        port = int(running.connection.url.rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        async with asyncio.timeout(DEADLINE_S):
            while psutil.Process(process).num_fds() < used + 5:  # noqa: ASYNC110  # there is no notification
                await asyncio.sleep(0.01)
        with pytest.raises(httpx2.TransportError):
            await aap.get(session.path)
        assert [frame.event for frame in await turn.read_to_end()][-1] == "turn_stop", "what is open goes on"
        for each in idle:
            each.close()
        async with asyncio.timeout(DEADLINE_S):
            while psutil.Process(process).num_fds() >= used + 5:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.01)
        assert (await session.run("and on")).stop == "end_turn"


@requirement("faults:50:memory")
async def test_a_request_too_large_for_the_free_memory_fails_alone(tmp_path: Path) -> None:
    async with limited(tmp_path) as (_, process, aap):
        session = await aap.create()
        await session.run("before")
        size = psutil.Process(process).memory_info().vms
        resource.prlimit(process, resource.RLIMIT_AS, (size + SPARE_BYTES, resource.RLIM_INFINITY))
        text = "x" * 1_000_000
        body = {"messages": [{"role": "user", "content": [{"type": "text", "text": text}] * 15}]}
        failed = 0
        for _ in range(3):
            try:
                answer = await aap.open("POST", f"{session.path}/turns", body)
                failed += answer.status >= 500
                await answer.read()
            except (httpx2.TransportError, AssertionError):
                failed += 1
            assert (await session.run("small")).stop == "end_turn"
        assert failed, "the test is worth its name"
        resource.prlimit(process, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert (await session.run("after")).stop == "end_turn"


async def test_a_server_recovers_from_every_shortage_and_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    names = [name for name in TOGETHER if name != "threads" or CAN_LIMIT_THREADS]
    report = await campaign(tmp_path, names, times=extent(10, 1))
    assert report.faults == [], str(report)
    assert report.failed["disk"] > 0, "the test is worth its name"
    assert report.acknowledged > 0


@requirement("faults:50:memory")
async def test_a_server_recovers_from_a_lack_of_memory_for_messages_that_it_accepts(tmp_path: Path) -> None:
    report = await campaign(tmp_path, ["memory-to-work"], times=extent(20, 1))
    assert report.faults == [], str(report)
    assert report.failed["memory-to-work"] > 0, "the test is worth its name"


@requirement("faults:50:processor")
async def test_a_busy_event_loop_does_not_lose_its_lease(postgres_url: str) -> None:
    lease_s = 1.0
    with closing(Database(postgres_url, access="shared")) as database:
        nodes = PostgresCluster(database, folder_id="here", lease_s=lease_s)
        await nodes.join()
        over = time.monotonic() + 2 * lease_s
        while time.monotonic() < over:  # the event loop is blocked, and the GIL is in constant demand
            sum(range(1000))
        assert nodes.lease_remaining_s() > 0
        assert not nodes.is_lease_expired
        await nodes.leave()


@requirement("faults:50:memory")
async def test_a_large_message_without_room_to_decode_it_is_refused_with_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_memory, "DECODED_SIZE", 10**13)
    async with running_server(tmp_path) as server:
        session = await AapClient(server.connection, server.key("alice")).create()
        content = json.dumps({"messages": [{"role": "user", "content": "x" * 100_000}], "stream": "none"}).encode()
        headers = [("authorization", f"Bearer {server.key('alice')}"), ("content-type", "application/json")]
        path = f"/aap/v3/sessions/{session.id}/turns"
        refused = await server.connection.open("POST", path, headers=headers, body=content)
        assert (refused.status, json.loads(await refused.read())["code"]) == (503, "unavailable")
        assert (await session.run("small ones fit")).stop == "end_turn"
        assert len([each for each in await session.history() if each["role"] == "user"]) == 1
