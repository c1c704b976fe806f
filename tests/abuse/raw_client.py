"""The real application behind the server's own connections, and a client that sends raw bytes.

No well-behaved library between the test and the socket corrects, refuses or omits anything.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.core.agent import Agent
from dragoman.server import app as server_app
from dragoman.server import runner
from dragoman.server.app import Application
from dragoman.server.runner import Server, bind_socket
from tests.asgi_client import DEADLINE_S
from tests.protocols.aap.client import BASE, AapClient
from tests.servers import SocketLine, make_keys, serve_without_signals, settings_for

Json = Any


@dataclass
class HttpAnswer:
    """An answer as it was received."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["code"])


class RawConnection:
    """A connection on which tests send and read bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            async with asyncio.timeout(DEADLINE_S):
                await self.writer.drain()

    async def answer(self, *, is_to_head: bool = False) -> HttpAnswer:
        """Read the next answer. Raises IncompleteReadError if the connection ends before it is complete."""
        async with asyncio.timeout(DEADLINE_S):
            status, headers = await self.head()
            if is_to_head or status in (204, 304):
                return HttpAnswer(status, headers, b"")
            if headers.get("transfer-encoding") == "chunked":
                return HttpAnswer(status, headers, b"".join([chunk async for chunk in self.chunks()]))
            if "content-length" in headers:
                return HttpAnswer(status, headers, await self.reader.readexactly(int(headers["content-length"])))
            return HttpAnswer(status, headers, await self.reader.read())

    async def head(self) -> tuple[int, dict[str, str]]:
        """Read the status and the headers of the next answer."""
        async with asyncio.timeout(DEADLINE_S):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:] if line)
        return int(lines[0].split(" ", 2)[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def chunk(self) -> bytes:
        """Read the next chunk of a chunked body; empty at its end."""
        async with asyncio.timeout(DEADLINE_S):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self.chunk():
            yield chunk

    async def read_to_end(self) -> bytes:
        """Read everything until the server closes the connection."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read()

    async def wait_until_closed(self) -> bool:
        """Wait until the server closes the connection. False if it sends anything before."""
        try:
            return await self.read_to_end() == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()


class ListeningServer:
    """A listening server with the keys of `USERS`."""

    def __init__(self, app: Application, server: Server, port: int, keys: dict[str, str]) -> None:
        self.app = app
        self.server = server
        self.port = port
        self.connection = SocketLine(f"http://127.0.0.1:{port}")
        self.keys = keys
        self._peers: list[RawConnection] = []

    def aap_client(self, name: str = "alice") -> AapClient:
        """A well-behaved AAP client with that key."""
        return AapClient(self.connection, self.keys[name])

    @property
    def connections(self) -> int:
        """The number of connections that the server has open."""
        return len(self.server.server_state.connections)

    async def peer(self, *, receive_buffer: int | None = None) -> RawConnection:
        """Open a connection.

        Args:
            receive_buffer: how many bytes the kernel accepts before the window closes.
        """
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
            limit = 2**16 if receive_buffer is None else receive_buffer
            peer = RawConnection(*await asyncio.open_connection(sock=sock, limit=limit))
        self._peers.append(peer)
        return peer

    async def send(self, *parts: bytes) -> HttpAnswer:
        """Send bytes over a new connection; return the first answer."""
        peer = await self.peer()
        with suppress(ConnectionError):  # the server may answer and close before it has read everything
            await peer.send(*parts)
        answer = await peer.answer()
        await peer.close()
        return answer

    def lines(self, name: str | None = "alice", *more: str) -> bytes:
        """The headers of a valid request, as bytes."""
        lines = ["Host: 127.0.0.1", *more]
        if name is not None:
            lines.append(f"Authorization: Bearer {self.keys[name]}")
        return "".join(f"{line}\r\n" for line in lines).encode("latin-1")

    def get(self, path: str, name: str | None = "alice", *more: str, method: str = "GET") -> bytes:
        """A valid request without a body."""
        return f"{method} {path} HTTP/1.1\r\n".encode("latin-1") + self.lines(name, *more) + b"\r\n"

    def post(self, path: str, body: Json, name: str | None = "alice", *more: str) -> bytes:
        """A valid request with a JSON body."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = self.lines(name, "Content-Type: application/json", f"Content-Length: {len(content)}", *more)
        return f"POST {path} HTTP/1.1\r\n".encode("latin-1") + lines + b"\r\n" + content

    async def assert_responsive(self) -> bool:
        """Whether the server still answers and accepts a valid key."""
        return (await self.send(self.get(f"{BASE}/meta"))).status == 200

    async def close(self) -> None:
        await self.connection.close()
        for peer in self._peers:
            peer.writer.transport.abort()


@asynccontextmanager
async def listening_server(
    folder: Path, agents: Sequence[Agent] = (), **changes: Any
) -> AsyncIterator[ListeningServer]:
    """A server as `dragoman serve` starts it, in the test's own event loop."""
    settings = settings_for(folder, **changes)
    keys = await make_keys(settings) if settings.auth else {}
    app = server_app.build(settings, agents=agents)
    is_up = asyncio.Event()

    async def announce() -> None:
        is_up.set()

    with bind_socket("127.0.0.1", 0) as listening_socket:
        async with app.running():
            running = Server(runner.uvicorn_config(app, settings, app.memory), app.drain, announce)
            task = asyncio.create_task(serve_without_signals(running, [listening_socket]))
            async with asyncio.timeout(DEADLINE_S):
                await is_up.wait()
            listening = ListeningServer(app, running, listening_socket.getsockname()[1], keys)
            try:
                yield listening
            finally:
                await listening.close()
                await app.drain(0)
                running.should_exit = True
                async with asyncio.timeout(DEADLINE_S):
                    await task
