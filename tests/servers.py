"""Servers for tests: the real app on a data folder of its own, in process, over a socket, or as a process.

Only `build` knows how the app is built.
"""

import asyncio
import hashlib
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import socket
from typing import Any, Protocol

import httpx2
import msgspec
import uvicorn

from dragoman.buses.local import LocalBus
from dragoman.cli.keys import handle_in_database, handle_in_folder
from dragoman.core.agent import Agent
from dragoman.core.ids import UserId
from dragoman.engine.services.keys import KeyRing
from dragoman.server import app
from dragoman.server.admin_socket import CreateKey
from dragoman.server.clock_and_ids import RandomIds, SystemClock
from dragoman.server.protocols import PROTOCOLS, ProtocolFactory
from dragoman.server.runner import uvicorn_config
from dragoman.server.stores import open_stores
from dragoman.settings import Settings
from dragoman.stores.encryption import KEY_FILES
from tests.asgi_client import DEADLINE_S, AsgiClient, Stream
from tests.protocols.aap.client import AapClient

USERS = {
    "alice": ("alice", "use"),
    "alice_phone": ("alice", "use"),
    "alice_reads": ("alice", "read"),
    "bob": ("bob", "use"),
    "admin": ("admin", "admin"),
}
"""The keys of every test server: user and scope by name."""


class ManualClock:
    """A clock that stands still until the test advances it."""

    def __init__(self) -> None:
        self._now = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def advance(self, **amount: float) -> None:
        self._now += timedelta(**amount)


def build(
    settings: Settings,
    agents: Sequence[Agent],
    clock: ManualClock | None,
    protocols: Sequence[ProtocolFactory] = PROTOCOLS,
) -> app.Application:
    """Build the real app."""
    return app.build(settings, agents=agents, clock=clock, protocols=protocols)


def settings_for(folder: Path, **changes: Any) -> Settings:
    """Settings for a test server: rehearsal agents, and no limits that the tests would reach."""
    settings = {
        "rehearsal": True,
        "data": str(folder),
        "wrong_keys_per_minute": 0,
        "log_level": "warning",
        "drain_s": 0,
        "synchronous": "normal",
    }
    if DATABASES:
        settings["database"] = DATABASES[0](folder)
    return msgspec.convert({**settings, **changes}, Settings)


DATABASES: list[Callable[[Path], str]] = []
"""With `--postgres`: returns the database for a folder's servers."""


def write_key_files(folder: Path, database: str) -> None:
    """Give a data folder the keys that all servers of a database share."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in KEY_FILES:
        (folder / name).write_bytes(hashlib.sha256(f"{name} {database}".encode()).digest())


async def make_keys(settings: Settings) -> dict[str, str]:
    """Create the keys of `USERS` without a server, as the command line does."""
    stores = open_stores(settings)
    ring = KeyRing(stores.keys, LocalBus(), SystemClock(), RandomIds())
    await ring.start()
    try:
        created = {
            name: await ring.create(name, user=UserId(user), scopes=(scope,)) for name, (user, scope) in USERS.items()
        }
    finally:
        await ring.close()
        stores.close()
    return {name: secret for name, (secret, _) in created.items()}


class AppServer:
    """A server in process, with the keys of `USERS`."""

    def __init__(
        self,
        folder: Path,
        agents: Sequence[Agent] = (),
        *,
        manual_clock: bool = False,
        keys: Mapping[str, str] | None = None,
        protocols: Sequence[ProtocolFactory] = PROTOCOLS,
        **settings: Any,
    ) -> None:
        """Args:
        folder: the data folder.
        agents: the agents beside the rehearsal agents.
        manual_clock: whether `clock` is the server's.
        keys: the API keys of a folder that is complete; None: they are created.
        protocols: what may be mounted.
        settings: by name.
        """
        self.folder = folder
        self.agents = agents
        self.settings = settings_for(folder, **settings)
        self.clock = ManualClock()
        self._manual_clock = manual_clock
        self._protocols = protocols
        self._is_complete = keys is not None
        self.keys: dict[str, str] = dict(keys or {})
        self.connection: AsgiClient

    async def prepare(self) -> None:
        """Create the keys, once."""
        if self.settings.database is not None and not self._is_complete:
            write_key_files(self.folder, self.settings.database)
        if self.settings.auth and not self.keys:
            self.keys = await make_keys(self.settings)

    def build(self) -> app.Application:
        return build(self.settings, self.agents, self.clock if self._manual_clock else None, self._protocols)

    async def start(self) -> None:
        await self.prepare()
        self.connection = AsgiClient(self.build())
        await self.connection.__aenter__()

    async def stop(self) -> None:
        await self.connection.close()

    async def restart(self, agents: Sequence[Agent] | None = None) -> None:
        """Stop, and start again on the same data, optionally with other agents."""
        await self.stop()
        self.agents = self.agents if agents is None else agents
        await self.start()

    async def crash(self) -> None:
        raise NotImplementedError("a server in the test's own process cannot be killed; use ServerProcess")

    def key(self, name: str) -> str:
        return self.keys[name]

    def aap_client(self, name: str) -> AapClient:
        """An AAP client with the key of that name."""
        return AapClient(self.connection, self.keys.get(name))


class AppServerFactory(Protocol):
    """Runs an app server. Takes settings by name, and `agents` and `manual_clock`."""

    def __call__(
        self, *, agents: Sequence[Agent] = ..., manual_clock: bool = ..., **settings: Any
    ) -> AbstractAsyncContextManager[AppServer]: ...


@asynccontextmanager
async def running_server(folder: Path, **changes: Any) -> AsyncIterator[AppServer]:
    """Run a server in process."""
    server = AppServer(folder, **changes)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


# --- over a socket ----------------------------------------------------------------------------------------------------


class SocketStream:
    """A response that arrives through a socket."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self._response = response
        self._chunks = response.aiter_raw()

    async def chunk(self) -> bytes | None:
        async with asyncio.timeout(DEADLINE_S):
            return await anext(self._chunks, None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self.chunk()) is not None:
            yield piece

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self])

    def unread(self) -> bytes:
        raise NotImplementedError("the kernel's receive buffer cannot be inspected")

    async def disconnect(self) -> None:
        await self._response.aclose()


class SocketLine:
    """Sends requests through a socket."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx2.AsyncClient(base_url=url, timeout=DEADLINE_S, verify=False)  # without TLS

    async def open(
        self,
        method: str,
        path: str,
        *,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes | list[bytes] = b"",
        window: int | None = None,
    ) -> Stream:
        content = b"".join(body) if isinstance(body, list) else body
        request = self._client.build_request(method, path, headers=list(headers), content=content or None)
        return SocketStream(await self._client.send(request, stream=True))

    async def close(self) -> None:
        await self._client.aclose()


async def serve_without_signals(server: uvicorn.Server, sockets: list[socket] | None = None) -> None:
    """Run a server that leaves the signals of the process to the tests."""
    server.capture_signals = nullcontext  # type: ignore[assignment, method-assign]  # a context that does nothing
    await server.serve(sockets)


class NotifyingServer(uvicorn.Server):
    """A server that sets an event when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


class Listener:
    """Serves an app on a port, in this process."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._server = NotifyingServer(config)
        self._task: asyncio.Task[None]
        self._connection: SocketLine

    async def start(self) -> SocketLine:
        self._task = asyncio.create_task(serve_without_signals(self._server))
        async with asyncio.timeout(DEADLINE_S):
            await self._server.listening.wait()
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self._connection = SocketLine(f"http://127.0.0.1:{port}")
        return self._connection

    async def stop(self) -> None:
        await self._connection.close()
        self._server.should_exit = True
        async with asyncio.timeout(DEADLINE_S):
            await self._task


class SocketServer:
    """A server in the test's own event loop, reached through a socket."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.app_server = AppServer(folder, **changes)
        self.connection: SocketLine
        self._app: app.Application
        self._listener: Listener

    async def start(self) -> None:
        await self.app_server.prepare()
        self._app = self.app_server.build()
        self._listener = Listener(self.configure(self._app))
        self.connection = await self._listener.start()

    def configure(self, served: app.Application) -> uvicorn.Config:
        """How uvicorn serves the app: as the program does."""
        config = uvicorn_config(served, self.app_server.settings, served.memory)
        config.port, config.lifespan, config.timeout_graceful_shutdown = 0, "on", 1
        return config

    async def stop(self) -> None:
        """Stop as the program does: streams end before connections are closed."""
        await self._app.drain()
        await self._listener.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def crash(self) -> None:
        raise NotImplementedError("a server in the test's own process cannot be killed; use ServerProcess")

    def key(self, name: str) -> str:
        return self.app_server.key(name)


@asynccontextmanager
async def running_socket_server(folder: Path, **changes: Any) -> AsyncIterator[SocketServer]:
    """Run a server behind a socket."""
    server = SocketServer(folder, **changes)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


# --- as a process -----------------------------------------------------------------------------------------------------

START_DEADLINE_S = 60.0
"""The program takes seconds of the processor to import a framework of its agents, and shares it with other tests."""

COMMAND = (sys.executable, "-m", "dragoman")


class ServerProcess:
    """The real program with the rehearsal agents, and those of a file, in a process that can be killed."""

    def __init__(self, folder: Path, *flags: str, agents: Path | None = None) -> None:
        self.folder = folder
        self._agents = () if agents is None else (str(agents),)
        self.connection: SocketLine
        self._flags = ("--data", str(folder), *flags)
        self.keys: dict[str, str] = {}
        self._process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def start(self) -> None:
        if not self.keys:
            self.keys["alice"] = await asyncio.to_thread(self._create_key)
        arguments = ("serve", *self._agents, "--rehearsal", "--port", "0", *self._flags)
        self._process = await asyncio.create_subprocess_exec(
            *COMMAND, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_DEADLINE_S):
            async for line in self._process.stdout:
                word, _, url = line.decode().strip().partition(" ")
                if word == "ready":
                    self.connection = SocketLine(url)
                    return
        raise RuntimeError(f"the server exited with {await self._process.wait()} before it was ready")

    async def end(self, signal_number: signal.Signals) -> None:
        await self.connection.close()
        self._process.send_signal(signal_number)
        async with asyncio.timeout(DEADLINE_S):
            await self._process.wait()

    async def stop(self) -> None:
        await self.end(signal.SIGTERM)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def crash(self) -> None:
        await self.end(signal.SIGKILL)
        await self.start()

    def key(self, name: str) -> str:
        return self.keys[name]

    def _create_key(self) -> str:
        """Do what `dragoman keys create` does, without a process that imports the program first."""
        request = CreateKey(name="alice", user="alice", scopes=["use"], expires_at=None)
        if "--database" in self._flags:
            reply = handle_in_database(self._flags[self._flags.index("--database") + 1], request)
        else:
            reply = handle_in_folder(self.folder, request)
        assert reply.secret is not None, reply.error
        return reply.secret


@asynccontextmanager
async def server_process(folder: Path, *flags: str, agents: Path | None = None) -> AsyncIterator[ServerProcess]:
    """Run the program."""
    server = ServerProcess(folder, *flags, agents=agents)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
