"""Blade's sockets at one server, and what happens at another one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.asgi_client import DEADLINE_S
from tests.protocols.blade.client import RestClient, kinds, socket_client
from tests.protocols.blade.driver import url_of
from tests.servers import SocketServer, running_socket_server
from tests.stores.postgres import Server


class TwoServers:
    """Two servers, with the keys of the first."""

    def __init__(self, first: SocketServer, second: SocketServer) -> None:
        self.local = RestClient(url_of(first), first.key("alice"))
        self.remote = RestClient(url_of(second), first.key("alice"))
        self.bob_remote = RestClient(url_of(second), first.key("bob"))


@pytest.fixture(scope="module")
async def two_servers(tmp_path_factory: pytest.TempPathFactory, postgres: Server) -> AsyncIterator[TwoServers]:
    url = postgres.new()
    async with AsyncExitStack() as stack:
        folders = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
        opening = [running_socket_server(folder, database=url) for folder in folders]
        yield TwoServers(*[await stack.enter_async_context(each) for each in opening])
    postgres.drop(url)


async def test_lists_of_sockets_on_another_server_are_notified_of_changes(two_servers: TwoServers) -> None:
    """The same as at one server, of sessions that nobody follows there: `blade:chat:others-are-told`."""
    session = await two_servers.local.session(intent="one")
    async with (
        socket_client(two_servers.remote.url, two_servers.remote.key) as there,
        socket_client(two_servers.bob_remote.url, two_servers.bob_remote.key) as bob,
    ):
        for title in ("two", "three"):  # it is in nobody's memory there at first, and then it is
            async with socket_client(two_servers.local.url, two_servers.local.key) as here:
                await here.send(session, "hello")
            await two_servers.local.request("PATCH", f"sessions/{session}", {"intent": title})
            shown_session: dict[str, object] = {}
            while shown_session.get("intent") != title or shown_session.get("status") != "completed":
                ((_, changed),) = (await there.until(lambda name, _: name == "session:updated"))[-1:]
                shown_session |= changed
            assert shown_session == {"session_id": session, "status": "completed", "intent": title}
        assert bob.events == []


async def test_lists_of_sockets_on_another_server_lose_a_deleted_session(two_servers: TwoServers) -> None:
    async with socket_client(two_servers.remote.url, two_servers.remote.key) as there:
        session = await two_servers.local.session(intent="one")
        for wanted in ({"status": "created", "intent": "one"}, {"deleted": True}):
            await there.until(lambda _, payload: payload == {"session_id": session, **wanted})  # noqa: B023
            await two_servers.local.request("DELETE", f"sessions/{session}")


async def test_a_session_that_is_shared_no_more_is_seen_by_no_viewer_anywhere(two_servers: TwoServers) -> None:
    session = await two_servers.local.session()
    async with (
        socket_client(two_servers.local.url, two_servers.local.key) as here,
        socket_client(two_servers.remote.url, two_servers.remote.key) as there,
        socket_client(two_servers.bob_remote.url, two_servers.bob_remote.key) as bob,
    ):
        await two_servers.local.request("PATCH", f"sessions/{session}/sharing", {"shared": True})
        assert (await there.call("session:subscribe", {"session_id": session}))["status"] == "ok"
        assert (await bob.call("session:subscribe", {"session_id": session}))["status"] == "ok"
        await here.send(session, "hello")
        await bob.until("chat:end")
        await two_servers.local.request("PATCH", f"sessions/{session}/sharing", {"shared": False})
        await bob.until(lambda name, payload: payload.get("shared") is False)
        seen = len(bob.events)
        await here.send(session, "in private")
        async with asyncio.timeout(DEADLINE_S):
            assert kinds(await there.until("chat:end"))[-1] == "chat:end"
        assert bob.events[seen:] == []
        assert (await bob.call("session:subscribe", {"session_id": session}))["status"] == "error"
