"""MCP where a message about a call reaches another server than the one that answers the call."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest

from tests.asgi_client import DEADLINE_S
from tests.protocols.mcp.client import FORMS, SLOW, McpClient
from tests.requirements import requirement
from tests.servers import running_server
from tests.stores.postgres import Server


class Host(NamedTuple):
    """A host in one MCP session, through each of two servers."""

    here: McpClient
    there: McpClient


@pytest.fixture
async def host(tmp_path_factory: pytest.TempPathFactory, postgres: Server) -> AsyncIterator[Host]:
    url = postgres.new()
    async with AsyncExitStack() as stack:
        opening = [running_server(tmp_path_factory.mktemp(name), database=url) for name in ("first", "second")]
        servers = [await stack.enter_async_context(each) for each in opening]
        key = servers[0].key("alice")
        here, there = (McpClient(each.connection, key, capabilities=FORMS) for each in servers)
        await here.initialize()
        there.session = here.session
        yield Host(here, there)
    postgres.drop(url)


@requirement("mcp:forms:cancel", "mcp:forms:empty")
async def test_a_form_that_is_closed_at_another_server_ends_its_call(host: Host) -> None:
    stream = await host.here.open("ask me")
    form = await stream.until("elicitation/create")
    assert await host.there.answer_form(form, "accept") == 202
    async with asyncio.timeout(DEADLINE_S):
        again = await stream.until("elicitation/create")
    assert again == form, "it had no answer, and is shown once more"
    assert await host.there.answer_form(form, "cancel") == 202
    async with asyncio.timeout(DEADLINE_S):
        result = await stream.result()
    assert result["structuredContent"]["status"] == "input_required"


@requirement("mcp:cancel:request")
async def test_a_request_that_is_cancelled_at_another_server_has_no_result(host: Host) -> None:
    stream = await host.here.open(SLOW, token=1, request_id="slow")
    await stream.next()
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}}
    assert (await host.there.post(cancelled)).status == 202
    assert not any("result" in each for each in await stream.rest())
