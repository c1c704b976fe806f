"""A server that is killed while a tool runs: who allows the call to run again learns that it may have run already."""

import asyncio
from pathlib import Path

import pytest

from dragoman.client import AsyncClient, Permission
from dragoman.client.transports import ClientProtocol
from dragoman.core.question_text import repeat_question
from tests.client.cutting_proxy import cutting_proxy
from tests.client.driver import FEATURES, TIMEOUTS
from tests.requirements import requirement
from tests.servers import server_process
from tests.terminal.pseudo_terminal import at_terminal
from tests.till import open_till

PROTOCOLS: list[ClientProtocol] = list(FEATURES)
APP = '''
from dragoman import agent, tool


@tool(on_restart="ask")
async def pay(who: str) -> str:
    """Pay."""
    return await take(who)


@tool(needs_approval=True, on_restart="ask")
async def transfer(who: str) -> str:
    """Pay, if somebody allows it."""
    return await take(who)


@agent(tools=[pay, transfer], history=True)
async def shop(run):
    name, who = run.text.split()
    yield await run.call(name, who=who)
'''


@requirement("faults:41:repeats")
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_permission_says_whether_its_call_may_have_run_already(
    tmp_path: Path, protocol: ClientProtocol
) -> None:
    asked: list[Permission] = []

    def allow(permission: Permission) -> bool:
        asked.append(permission)
        return True

    async with (
        open_till(tmp_path, APP) as till,
        server_process(tmp_path / "data", agents=till.app) as server,
        cutting_proxy(server.connection.url, lambda: None) as proxy,
        AsyncClient(proxy.url, key=server.key("alice"), protocol=protocol, timeouts=TIMEOUTS) as client,
    ):
        trusted = ["pay"] if protocol == "aap" else ()
        paying = await client.create("shop", trusted_tools=trusted, on_permission=allow)
        moving = await client.create("shop", on_permission=allow)
        replies = [asyncio.create_task(paying.ask("pay Bob"))]
        await till.until(Bob=1)
        replies.append(asyncio.create_task(moving.ask("transfer Eve")))
        await till.until(Bob=1, Eve=1)
        assert [(each.name, each.is_repeat) for each in asked] == [("transfer", False)]
        await proxy.until_restarted(server, server.crash())
        assert [(await each).text for each in replies] == ["paid Bob", "paid Eve"]
        assert sorted((each.name, each.is_repeat) for each in asked[1:]) == [("pay", True), ("transfer", True)]
        assert till.payments == {"Bob": 2, "Eve": 2}


@requirement("faults:41:repeats")
async def test_a_terminal_that_allows_everything_asks_before_a_call_runs_again(tmp_path: Path) -> None:
    async with (
        open_till(tmp_path, APP) as till,
        server_process(tmp_path / "data", agents=till.app) as server,
        cutting_proxy(server.connection.url, lambda: None) as proxy,
    ):
        arguments = ("chat", proxy.url, "--agent", "shop", "--key", server.key("alice"), "--yes", "--plain")
        async with at_terminal(tmp_path, *arguments) as user:
            await user.until("> ")
            user.say("transfer Bob")
            await till.until(Bob=1)
            await proxy.until_restarted(server, server.crash())
            await user.until(repeat_question("transfer"))
            await user.until('transfer(who="Bob")')
            await user.until("transfer again: [y]es, [n]o: ")
            assert till.payments == {"Bob": 1}
            user.say("y")
            await user.until("paid Bob")
        assert till.payments == {"Bob": 2}
