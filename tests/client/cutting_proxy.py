"""A proxy that forwards bytes and, at generator moments, aborts both sides of a connection."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from tests.conversations import Server

NOBODY = "http://127.0.0.1:1"
Plan = Callable[[], int | None]
"""Called per connection: after how many bytes of responses to cut it; None for never."""


def at_random(seed: int, *, longest: int = 900) -> Plan:
    """Cut most connections at a random byte, but not every fifth one, so that each test ends."""
    generator = random.Random(seed)
    count = 0

    def plan() -> int | None:
        nonlocal count
        count += 1
        return None if count % 5 == 0 else generator.randrange(longest)

    return plan


class CuttingProxy:
    """The proxy in front of one server. `target` may change: a restarted server has a new port."""

    def __init__(self, target: str, plan: Plan) -> None:
        self.target = target
        self.plan = plan
        self.cut_count = 0
        self.sent = bytearray()
        """What clients have sent."""
        self.url: str
        self._tasks: set[asyncio.Task[None]] = set()

    async def until_restarted(self, server: Server, restart: Awaitable[object]) -> None:
        """Refuse connections while a server restarts: meanwhile, another one may get its port."""
        self.target = NOBODY
        await restart
        self.target = server.connection.url

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        address = urlsplit(self.target)
        limit = self.plan()
        try:
            upstream, server = await asyncio.open_connection(address.hostname, address.port)
        except OSError:
            writer.transport.abort()
            self._tasks.discard(task)
            return
        forwarding = asyncio.create_task(self._forward(reader, server))
        try:
            while chunk := await upstream.read(65536):
                if limit is not None and len(chunk) > limit:
                    writer.write(chunk[:limit])
                    with suppress(ConnectionError):
                        await writer.drain()
                    self.cut_count += 1
                    break
                limit = None if limit is None else limit - len(chunk)
                writer.write(chunk)
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            forwarding.cancel()
            writer.close()
            server.transport.abort()
            with suppress(ConnectionError, asyncio.CancelledError):
                await forwarding
            self._tasks.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(65536):
                self.sent += chunk
                writer.write(chunk)
                await writer.drain()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def cutting_proxy(target: str, plan: Plan) -> AsyncIterator[CuttingProxy]:
    """Run a proxy."""
    proxy = CuttingProxy(target, plan)
    listening = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listening.close()
        await proxy.close()
