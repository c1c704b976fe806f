"""A till outside of the servers that pay there. The first payment of each payer gets stuck, until its server dies."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.asgi_client import DEADLINE_S

CLIENT = '''
import asyncio


async def take(who):
    """Pay at the till."""
    reader, writer = await asyncio.open_connection("127.0.0.1", {port})
    writer.write(who.encode() + b"\\n")
    answer = await reader.readline()
    writer.close()
    return answer.decode().strip()
'''
"""The beginning of a file of agents that pay."""


class Till:
    """What has arrived. `app` is the file of the agents."""

    def __init__(self, app: Path) -> None:
        self.app = app
        self.payments: Counter[str] = Counter()
        self._changed = asyncio.Condition()

    async def until(self, **payments: int) -> None:
        """Wait until each payer has paid so often."""
        async with asyncio.timeout(DEADLINE_S), self._changed:
            await self._changed.wait_for(lambda: self.payments == payments)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one payment."""
        who = (await reader.readline()).decode().strip()
        async with self._changed:
            self.payments[who] += 1
            self._changed.notify_all()
        if self.payments[who] > 1:
            writer.write(f"paid {who}\n".encode())
        else:
            await reader.read()  # until the payer is dead
        writer.close()


@asynccontextmanager
async def open_till(folder: Path, agents: str) -> AsyncIterator[Till]:
    """A till, and a file with agents that pay there with `await take(who)`."""
    till = Till(folder / "app.py")
    server = await asyncio.start_server(till.serve, "127.0.0.1", 0)
    till.app.write_text(CLIENT.format(port=server.sockets[0].getsockname()[1]) + agents, encoding="utf-8")
    async with server:
        yield till
