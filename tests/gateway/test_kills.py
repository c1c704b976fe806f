"""Real processes, killed as by `kill -9` in the middle of a remote agent's answer: the remote server, ours, or both."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Literal

import pytest

from dragoman.client import Allow, AsyncClient, AsyncSession, Permission, Text
from dragoman.client.transports import ClientProtocol
from tests.asgi_client import DEADLINE_S
from tests.client.cutting_proxy import CuttingProxy, cutting_proxy
from tests.conversations import call, script
from tests.extent import IS_FULL
from tests.servers import ServerProcess, server_process

Killed = Literal["remote", "ours"]
PROTOCOLS: tuple[ClientProtocol, ...] = ("aap", "ag-ui", "agentscope", "openai", "a2a", "blade", "run-service")
AGENTS = """
from dragoman import RemoteAgent
from dragoman.client.connection import Timeouts

agents = [
    RemoteAgent(protocol, url, agent="rehearsal", key={key!r}, name=protocol, timeouts=Timeouts(reconnect_s=60))
    for protocol, url in {urls!r}.items()
]
"""
COUNTED = "".join(f"{number} " for number in range(40))
COUNT = script({"emit": {"count": 40, "text": "{i} ", "every_ms": 20}})


class Pair:
    """A server with the rehearsal agent, and one that serves it as a remote agent over each protocol."""

    def __init__(self, remote: ServerProcess, ours: ServerProcess, proxy: CuttingProxy) -> None:
        self._servers = {"remote": remote, "ours": ours}
        self._proxy = proxy

    def client(self) -> AsyncClient:
        ours = self._servers["ours"]
        return AsyncClient(ours.connection.url, key=ours.key("alice"))

    async def kill(self, killed: Sequence[Killed]) -> None:
        """Kill servers at once, and start them again: ours asks the other one at its start what it can do."""
        remote, ours = self._servers["remote"], self._servers["ours"]
        async with asyncio.TaskGroup() as tasks:
            if "ours" in killed:
                tasks.create_task(ours.end(signal.SIGKILL))
            if "remote" in killed:
                tasks.create_task(self._proxy.until_restarted(remote, remote.crash()))
        if "ours" in killed:
            await ours.start()


@pytest.fixture(scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    async with (
        server_process(folder / "remote") as remote,
        cutting_proxy(remote.connection.url, lambda: None) as proxy,
    ):
        urls = {each: proxy.url + ("/ag-ui/rehearsal" if each == "ag-ui" else "") for each in PROTOCOLS}
        app = folder / "app.py"
        app.write_text(AGENTS.format(key=remote.key("alice"), urls=urls))
        async with server_process(folder / "ours", agents=folder / "app.py:agents") as ours:
            yield Pair(remote, ours, proxy)


async def wait_for_end(session: AsyncSession) -> None:
    async with asyncio.timeout(DEADLINE_S), session.resume() as run:
        async for _ in run:
            pass


async def answers_in(session: AsyncSession) -> tuple[list[str], list[str]]:
    """The whole and the cut answers."""
    answers = [each for each in await session.history() if each.role == "assistant" and each.text]
    return [each.text for each in answers if not each.cut], [each.text for each in answers if each.cut]


EVERY: tuple[tuple[Killed, ...], ...] = (("remote",), ("ours",), ("remote", "ours"))
PLAYED = PROTOCOLS if IS_FULL else PROTOCOLS[:2]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PLAYED)
@pytest.mark.parametrize("killed", EVERY if IS_FULL else EVERY[-1:], ids="-".join)
async def test_an_answer_is_in_the_log_once_whoever_is_killed_while_it_is_streamed(
    pair: Pair, protocol: ClientProtocol, killed: tuple[Killed, ...]
) -> None:
    async with pair.client() as client:
        session = await client.create(protocol)
        greeting = (await session.ask("hello")).text
        said, run = "", session.run(COUNT)
        while len(said) < 12:
            event = await anext(run)
            said += event.text if isinstance(event, Text) else ""
        await pair.kill(killed)
        await run.aclose()
    async with pair.client() as client:
        session = await client.open(session.id)
        await wait_for_end(session)
        whole, cut = await answers_in(session)
        assert whole == [greeting, COUNTED]
        assert all(COUNTED.startswith(each) for each in cut)
        assert (await session.ask(script({"recall": "user"}))).text == "hello"


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PLAYED)
async def test_an_approval_that_waits_while_both_are_killed_is_asked_once_and_given_once(
    pair: Pair, protocol: ClientProtocol
) -> None:
    async with pair.client() as client:
        session = await client.create(protocol)
        await session.ask(script(call("stamp", text="once"), {"say": "It is {result}."}))
    await pair.kill(("remote", "ours"))
    async with pair.client() as client:
        session = await client.open(session.id)
        assert [type(each) for each in session.pending] == [Permission]
        async with session.answer(Allow()) as run:
            said = "".join([event.text async for event in run if isinstance(event, Text)])
        assert said.startswith("It is ")
        assert (await answers_in(session))[0] == [said]
        assert not session.pending
