"""A server that stops lets its sockets go, and the next one goes on."""

import asyncio
from pathlib import Path

from tests.conversations import script
from tests.protocols.blade.client import RestClient, socket_client
from tests.protocols.blade.driver import url_of
from tests.requirements import requirement
from tests.servers import server_process


@requirement("blade:socket:stop")
async def test_a_server_that_is_asked_to_stop_closes_its_sockets_and_ends_soon(tmp_path: Path) -> None:
    async with server_process(tmp_path) as server:
        alice = RestClient(url_of(server), server.key("alice"))
        session = await alice.session()
        async with (
            socket_client(alice.url, alice.key) as socket,
            socket_client(alice.url, alice.key, ["polling"]) as polling,
        ):
            await socket.send(session, script({"say": "before"}))
            async with asyncio.timeout(60):
                await server.stop()
                await socket.is_disconnected.wait()
                await polling.is_disconnected.wait()
        await server.start()
        alice = RestClient(url_of(server), server.key("alice"))
        async with socket_client(alice.url, alice.key) as socket:
            events = await socket.send(session, script({"recall": "user"}, {"say": "."}))
        assert events[-1][1]["status"] == "completed"
