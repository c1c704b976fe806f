"""Blade's sockets at one server, and what happens at another one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.asgi_client import DEADLINE_S
from tests.protocols.blade.client import Caller, kinds, tab
from tests.protocols.blade.driver import url_of
from tests.servers import SocketHouse, opened_socket
from tests.stores.postgres import Server


class Pair:
    """Two servers, with the keys of the first."""

    def __init__(self, first: SocketHouse, second: SocketHouse) -> None:
        self.here = Caller(url_of(first), first.key("alice"))
        self.there = Caller(url_of(second), first.key("alice"))
        self.bob_there = Caller(url_of(second), first.key("bob"))


@pytest.fixture(scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory, postgres: Server) -> AsyncIterator[Pair]:
    url = postgres.new()
    async with AsyncExitStack() as stack:
        folders = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
        opening = [opened_socket(folder, database=url) for folder in folders]
        yield Pair(*[await stack.enter_async_context(each) for each in opening])
    postgres.drop(url)


async def test_lists_of_sockets_elsewhere_are_told_what_changed(pair: Pair) -> None:
    """The same as at one server, of sessions that nobody follows there: `blade:chat:others-are-told`."""
    session = await pair.here.session(intent="one")
    async with tab(pair.there.url, pair.there.key) as there, tab(pair.bob_there.url, pair.bob_there.key) as bob:
        for title in ("two", "three"):  # it is in nobody's memory there at first, and then it is
            async with tab(pair.here.url, pair.here.key) as here:
                await here.send(session, "hello")
            await pair.here.ask("PATCH", f"sessions/{session}", {"intent": title})
            told: dict[str, object] = {}
            while told.get("intent") != title or told.get("status") != "completed":
                ((_, changed),) = (await there.until(lambda name, _: name == "session:updated"))[-1:]
                told |= changed
            assert told == {"session_id": session, "status": "completed", "intent": title}
        assert bob.events == []


async def test_a_session_that_is_shared_no_more_is_seen_by_no_viewer_anywhere(pair: Pair) -> None:
    session = await pair.here.session()
    async with (
        tab(pair.here.url, pair.here.key) as here,
        tab(pair.there.url, pair.there.key) as there,
        tab(pair.bob_there.url, pair.bob_there.key) as bob,
    ):
        await pair.here.ask("PATCH", f"sessions/{session}/sharing", {"shared": True})
        assert (await there.call("session:subscribe", {"session_id": session}))["status"] == "ok"
        assert (await bob.call("session:subscribe", {"session_id": session}))["status"] == "ok"
        await here.send(session, "hello")
        await bob.until("chat:end")
        await pair.here.ask("PATCH", f"sessions/{session}/sharing", {"shared": False})
        await bob.until(lambda name, payload: payload.get("shared") is False)
        seen = len(bob.events)
        await here.send(session, "in private")
        async with asyncio.timeout(DEADLINE_S):
            assert kinds(await there.until("chat:end"))[-1] == "chat:end"
        assert bob.events[seen:] == []
        assert (await bob.call("session:subscribe", {"session_id": session}))["status"] == "error"
