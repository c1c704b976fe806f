"""Several servers in the test's own process, on one database, behind one address.

Whatever comes to that address, a request or a socket, goes to one of them by chance: a balancer without a memory.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import uvicorn

from dragoman.stores.encryption import KEY_BYTES, KEY_FILES
from tests.asgi_client import Message, Receive, Send
from tests.servers import AppServer, Listener, SocketLine


class InProcessCluster:
    """Several servers as one, with the keys of the first."""

    def __init__(self, servers: list[AppServer]) -> None:
        self.servers = servers
        self.random = Random(5)
        self.connection: SocketLine
        self.request_counts = [0] * len(servers)
        """What each of them was given."""
        self._listener: Listener

    async def start(self) -> None:
        for server in self.servers:
            await server.start()
        self._listener = Listener(
            uvicorn.Config(
                self._balance, port=0, log_config=None, lifespan="off", interface="asgi3", timeout_graceful_shutdown=1
            )
        )
        self.connection = await self._listener.start()

    async def stop(self) -> None:
        await self._listener.stop()
        for server in self.servers:
            await server.stop()

    async def restart(self) -> None:
        """One after the other, as a new release is rolled out."""
        for server in self.servers:
            await server.restart()

    async def crash(self) -> None:
        raise NotImplementedError("what runs in the test's own process cannot be killed")

    def key(self, name: str) -> str:
        return self.servers[0].key(name)

    async def _balance(self, scope: Message, receive: Receive, send: Send) -> None:
        place = self.random.randrange(len(self.servers))
        self.request_counts[place] += 1
        await self.servers[place].connection.app(scope, receive, send)


@asynccontextmanager
async def running_cluster(folder: Path, url: str, count: int = 3, **settings: Any) -> AsyncIterator[InProcessCluster]:
    """Run a number of servers on one database."""
    folders = [folder / f"{number}" for number in range(count)]
    for each in folders:
        each.mkdir(mode=0o700, parents=True)
        for name in KEY_FILES:  # an installation has one of each
            (each / name).touch(mode=0o600)
            (each / name).write_bytes(bytes(range(KEY_BYTES)))
    servers = InProcessCluster([AppServer(each, database=url, **settings) for each in folders])
    try:
        await servers.start()
        yield servers
    finally:
        await servers.stop()
