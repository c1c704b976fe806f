"""Several servers in the test's own process, on one database, behind one address.

Whatever comes to that address, a request or a socket, goes to one of them by chance: a balancer without a memory.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import uvicorn

from dragoman.server.supervisor import KEY_FILES
from dragoman.stores.encryption import KEY_BYTES
from tests.asgi_client import Message, Receive, Send
from tests.servers import House, Listening, SocketLine


class Houses:
    """Several servers as one, with the keys of the first."""

    def __init__(self, houses: list[House]) -> None:
        self.houses = houses
        self.chance = Random(5)
        self.line: SocketLine
        self.asked = [0] * len(houses)
        """What each of them was given."""
        self._serving: Listening

    async def start(self) -> None:
        for house in self.houses:
            await house.start()
        self._serving = Listening(
            uvicorn.Config(
                self._balance, port=0, log_config=None, lifespan="off", interface="asgi3", timeout_graceful_shutdown=1
            )
        )
        self.line = await self._serving.start()

    async def stop(self) -> None:
        await self._serving.stop()
        for house in self.houses:
            await house.stop()

    async def restart(self) -> None:
        """One after the other, as a new release is rolled out."""
        for house in self.houses:
            await house.restart()

    async def crash(self) -> None:
        raise NotImplementedError("what runs in the test's own process cannot be killed")

    def key(self, name: str) -> str:
        return self.houses[0].key(name)

    async def _balance(self, scope: Message, receive: Receive, send: Send) -> None:
        place = self.chance.randrange(len(self.houses))
        self.asked[place] += 1
        await self.houses[place].line.app(scope, receive, send)


@asynccontextmanager
async def opened(folder: Path, url: str, count: int = 3, **settings: Any) -> AsyncIterator[Houses]:
    """So many servers on one database, from their start to their end."""
    folders = [folder / f"{number}" for number in range(count)]
    for each in folders:
        each.mkdir(mode=0o700, parents=True)
        for name in KEY_FILES:  # an installation has one of each
            (each / name).touch(mode=0o600)
            (each / name).write_bytes(bytes(range(KEY_BYTES)))
    houses = Houses([House(each, database=url, **settings) for each in folders])
    try:
        await houses.start()
        yield houses
    finally:
        await houses.stop()
