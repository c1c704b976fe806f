"""A desk over which memories, keys, schedules and links are asked for: the real books behind the real routes, without
the rest of a server. The clock is held.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import msgspec

from dragoman.buses.local import LocalBus
from dragoman.core.ids import UserId
from dragoman.engine.services.keys import KeyRing
from dragoman.engine.services.memories import MemoryBook
from dragoman.protocols.blade.rest import keys, memories
from dragoman.protocols.blade.rest.router import App
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.keys import SqliteKeys
from dragoman.stores.sqlite.memories import SqliteMemories
from tests.engine.world import CountingIds, HeldClock
from tests.protocols.blade.client import Told
from tests.servers import House

NOON = "2026-03-04T05:06:07Z"
"""What the clock shows, until somebody moves it."""


class Client:
    """Somebody at the desk, with a key."""

    def __init__(self, http: httpx2.AsyncClient, key: str) -> None:
        self.key = key
        self._http = http

    async def ask(self, method: str, path: str, body: object = None, *, raw: bytes | None = None) -> Told:
        """Ask for a path below `/api`."""
        content = raw if raw is not None else b"" if body is None else msgspec.json.encode(body)
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        answer = await self._http.request(method, path, content=content, headers=headers)
        return Told(answer.status_code, msgspec.json.decode(answer.content) if answer.content else None)


class Desk:
    """What stands behind the routes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = HeldClock()
        self.ids = CountingIds()
        self.database = Database(folder, synchronous="normal")
        self.ring = KeyRing(SqliteKeys(self.database), LocalBus(), self.clock, self.ids)
        self.memories = MemoryBook(SqliteMemories(self.database), self.clock)
        routes = [*memories.routes(self.memories), *keys.routes(self.ring)]
        self._app = App(routes, self.ring.authenticate)
        self.http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self._app), base_url="http://here")

    async def client(self, user: str = "alice", scope: str = "use") -> Client:
        """Somebody new at the desk."""
        key, _ = await self.ring.create(f"{user}'s", user=UserId(user), scopes=(scope,))
        return Client(self.http, key)


@asynccontextmanager
async def client_of(house: House, name: str) -> AsyncIterator[Client]:
    """The holder of a key at a whole server."""
    transport = httpx2.ASGITransport(app=house.line.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000/api/") as http:
        yield Client(http, house.key(name))


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Desk]:
    """A desk from its start to its end."""
    desk = Desk(folder)
    desk.database.start()
    await desk.ring.start()
    try:
        async with desk.http:
            yield desk
    finally:
        await desk.ring.close()
        desk.database.close()
