"""Standard AG-UI where a thread's run is played by another server than the one that is asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from dragoman.engine.cluster.presence import REPLY_TIMEOUT_S
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.endpoint_streams import HELLO, LONG, StreamReader, error_of, started, user
from tests.servers import running_server
from tests.stores.postgres import Server

DEADLINE_S = 60


@pytest.fixture(scope="module")
async def endpoints(tmp_path_factory: pytest.TempPathFactory, postgres: Server) -> AsyncIterator[list[Endpoint]]:
    """Two servers, as alice sees them."""
    url = postgres.new()
    async with AsyncExitStack() as stack:
        opening = [running_server(tmp_path_factory.mktemp(name), database=url) for name in ("first", "second")]
        servers = [await stack.enter_async_context(each) for each in opening]
        yield [Endpoint(server.connection, servers[0].key("alice")) for server in servers]
    postgres.drop(url)


async def status_at_rest(endpoint: Endpoint) -> str:
    """How the newest session's run ended, read from a list: a stream would count as watching."""
    lists = Endpoint(endpoint.connection, endpoint.key, base="/api")
    async with asyncio.timeout(DEADLINE_S):
        while True:
            status: str = (await lists.request("GET", "sessions")).json["items"][0]["status"]
            if status != "running":
                return status
            await asyncio.sleep(0.05)


async def test_a_run_that_is_watched_at_another_server_makes_no_way(endpoints: list[Endpoint]) -> None:
    here, there = endpoints
    body = an_input(LONG)
    following = {**body, "runId": "next", "messages": [*body["messages"], user("hello")]}
    first = await started(here, body)
    assert error_of(await there.run(following)) == (["RUN_ERROR"], "thread_busy")
    assert first.exchange.unread() == b"", "it goes on"
    await first.exchange.disconnect()
    assert (await there.run(following)).text == HELLO


async def test_a_client_that_leaves_stops_no_run_that_is_watched_at_another_server(endpoints: list[Endpoint]) -> None:
    here, there = endpoints
    body = an_input(LONG)
    first = await started(here, body)
    joined = StreamReader(await there.open("POST", "rehearsal/connect", {**body, "runId": "watch", "messages": []}))
    await joined.until("TEXT_MESSAGE_CONTENT")
    await first.exchange.disconnect()
    await asyncio.sleep(2 * REPLY_TIMEOUT_S)  # what must not happen would have happened by now
    following = {**body, "runId": "next", "messages": [*body["messages"], user("hello")]}
    assert error_of(await here.run(following)) == (["RUN_ERROR"], "thread_busy"), "it goes on"
    await joined.exchange.disconnect()
    assert (await here.run(following)).text == HELLO


async def test_a_client_that_leaves_stops_a_run_that_nobody_watches_anywhere(endpoints: list[Endpoint]) -> None:
    here, there = endpoints
    body = an_input(LONG)
    first = await started(here, body)
    await first.exchange.disconnect()
    assert await status_at_rest(there) == "interrupted"


async def test_a_run_that_nobody_watches_makes_way_at_another_server_too(endpoints: list[Endpoint]) -> None:
    here, there = endpoints
    body = an_input(LONG)
    first = await started(here, body, x_run_on_disconnect="continue")
    await first.exchange.disconnect()
    joined = StreamReader(await there.open("POST", "rehearsal/connect", {**body, "runId": "watch", "messages": []}))
    await joined.until("TEXT_MESSAGE_CONTENT")
    following = {**body, "runId": "next", "messages": [*body["messages"], user("hello")]}
    assert error_of(await there.run(following)) == (["RUN_ERROR"], "thread_busy"), "it is watched here"
    await joined.exchange.disconnect()
    assert (await there.run(following)).text == HELLO
