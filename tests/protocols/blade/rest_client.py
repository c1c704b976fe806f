"""Blade's REST handlers of memories and keys on real services, without the rest of a server. The clock is manual."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import msgspec

from dragoman.buses.local import LocalBus
from dragoman.core.ids import UserId
from dragoman.engine.services.authentication import KeysAndTokens
from dragoman.engine.services.connection_memory import ConnectionMemory
from dragoman.engine.services.keys import KeyRing
from dragoman.engine.services.memories import MemoryService
from dragoman.protocols.blade.errors import ERROR_TABLE
from dragoman.protocols.blade.rest.endpoints import write_error
from dragoman.protocols.blade.rest.keys import KeyHandlers
from dragoman.protocols.blade.rest.memories import MemoryHandlers
from dragoman.protocols.kit.access import AccessControl
from dragoman.protocols.kit.app import ProtocolApp
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.keys import SqliteKeys
from dragoman.stores.sqlite.memories import SqliteMemories
from tests.engine.world import ManualClock, SequentialIds
from tests.protocols.blade.client import RestAnswer
from tests.servers import AppServer

NOON = "2026-03-04T05:06:07Z"
"""What the clock shows, until somebody moves it."""


class Client:
    """A caller with a key."""

    def __init__(self, http: httpx2.AsyncClient, key: str) -> None:
        self.key = key
        self.http = http

    async def request(self, method: str, path: str, body: object = None, *, raw: bytes | None = None) -> RestAnswer:
        """Ask for a path below `/api`."""
        content = raw if raw is not None else b"" if body is None else msgspec.json.encode(body)
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        answer = await self.http.request(method, path, content=content, headers=headers)
        return RestAnswer(answer.status_code, msgspec.json.decode(answer.content) if answer.content else None)


class RestFixture:
    """What stands behind the routes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.ids = SequentialIds()
        self.database = Database(folder, synchronous="normal")
        self.key_ring = KeyRing(SqliteKeys(self.database), LocalBus(), self.clock, self.ids)
        self.memories = MemoryService(SqliteMemories(self.database), self.clock)
        keys = KeysAndTokens(self.key_ring, self.clock)
        access = AccessControl(keys, keys.authenticate, lambda _: lambda: None, ConnectionMemory())
        routes = [*MemoryHandlers(self.memories).routes(), *KeyHandlers(self.key_ring).routes()]
        self._app = ProtocolApp("blade", routes, ERROR_TABLE, access, write_error=write_error)
        self.http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self._app), base_url="http://here")

    async def client(self, user: str = "alice", scope: str = "use") -> Client:
        """Return a new caller."""
        key, _ = await self.key_ring.create(f"{user}'s", user=UserId(user), scopes=(scope,))
        return Client(self.http, key)


@asynccontextmanager
async def client_of(server: AppServer, name: str) -> AsyncIterator[Client]:
    """The holder of a key at a whole server."""
    transport = httpx2.ASGITransport(app=server.connection.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000/api/") as http:
        yield Client(http, server.key(name))


@asynccontextmanager
async def running_rest_app(folder: Path) -> AsyncIterator[RestFixture]:
    """Run the handlers from start to end."""
    fixture = RestFixture(folder)
    fixture.database.start()
    await fixture.key_ring.start()
    try:
        async with fixture.http:
            yield fixture
    finally:
        await fixture.key_ring.close()
        fixture.database.close()
