"""A server that is killed while a tool runs: who allows the call to run again learns that it may have run already."""

import asyncio
from pathlib import Path

import pytest

from dragoman.client import AsyncClient, Permission
from dragoman.client.transports import ClientProtocol
from dragoman.core.question_text import repeat_question
from tests.asgi_client import DEADLINE_S
from tests.client.cutting_proxy import cutting_proxy
from tests.client.driver import FEATURES, TIMEOUTS
from tests.requirements import requirement
from tests.servers import server_process
from tests.terminal.pseudo_terminal import at_terminal

PROTOCOLS: list[ClientProtocol] = list(FEATURES)
APP = '''
import asyncio
from pathlib import Path

from dragoman import agent, tool

LEDGER = Path(__file__).parent / "ledger"


async def take(who):
    with LEDGER.open("a") as ledger:
        ledger.write(f"{who}\\n")
    if LEDGER.read_text().splitlines().count(who) == 1:
        await asyncio.sleep(3600)
    return f"paid {who}"


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


class Ledger:
    """The payments that were begun."""

    def __init__(self, folder: Path) -> None:
        self.app = folder / "app.py"
        self.app.write_text(APP, encoding="utf-8")
        self._path = folder / "ledger"

    def payments(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []

    async def until(self, *payments: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while await asyncio.to_thread(self.payments) != list(payments):
                pass


@requirement("faults:41:repeats")
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_permission_says_whether_its_call_may_have_run_already(
    tmp_path: Path, protocol: ClientProtocol
) -> None:
    ledger, asked = Ledger(tmp_path), list[Permission]()

    def allow(permission: Permission) -> bool:
        asked.append(permission)
        return True

    async with (
        server_process(tmp_path / "data", agents=ledger.app) as server,
        cutting_proxy(server.connection.url, lambda: None) as proxy,
        AsyncClient(proxy.url, key=server.key("alice"), protocol=protocol, timeouts=TIMEOUTS) as client,
    ):
        trusted = ["pay"] if protocol == "aap" else ()
        paying = await client.create("shop", trusted_tools=trusted, on_permission=allow)
        moving = await client.create("shop", on_permission=allow)
        replies = [asyncio.create_task(paying.ask("pay Bob"))]
        await ledger.until("Bob")
        replies.append(asyncio.create_task(moving.ask("transfer Eve")))
        await ledger.until("Bob", "Eve")
        assert [(each.name, each.is_repeat) for each in asked] == [("transfer", False)]
        await server.crash()
        proxy.target = server.connection.url
        assert [(await each).text for each in replies] == ["paid Bob", "paid Eve"]
        assert sorted((each.name, each.is_repeat) for each in asked[1:]) == [("pay", True), ("transfer", True)]
        assert sorted(ledger.payments()) == ["Bob", "Bob", "Eve", "Eve"]


@requirement("faults:41:repeats")
async def test_a_terminal_that_allows_everything_asks_before_a_call_runs_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    async with (
        server_process(tmp_path / "data", agents=ledger.app) as server,
        cutting_proxy(server.connection.url, lambda: None) as proxy,
    ):
        arguments = ("chat", proxy.url, "--agent", "shop", "--key", server.key("alice"), "--yes", "--plain")
        async with at_terminal(tmp_path, *arguments) as user:
            await user.until("> ")
            user.say("transfer Bob")
            await ledger.until("Bob")
            await server.crash()
            proxy.target = server.connection.url
            await user.until(repeat_question("transfer"))
            await user.until('transfer(who="Bob")')
            await user.until("transfer again: [y]es, [n]o: ")
            assert ledger.payments() == ["Bob"]
            user.say("y")
            await user.until("paid Bob")
        assert ledger.payments() == ["Bob", "Bob"]
