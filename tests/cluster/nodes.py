"""The servers of a campaign, as processes on one database, and what is done to them and to their connections."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.cluster.agents import NOTES
from tests.servers import write_key_files

PROJECT_ROOT = Path(__file__).parent.parent.parent
AGENT = Path(__file__).parent / "agents.py"
DEADLINE_S = 60.0


class Node:
    """One server, started again on its own folder after each death. `port` is 0 while it cannot take requests."""

    def __init__(self, folder: Path, url: str, lease_s: float, nats: str | None = None) -> None:
        self.folder = folder
        self.port = 0
        self._url = url
        self._key_seed = folder.parent.name
        self._lease_s = lease_s
        self._nats = nats
        self._process: asyncio.subprocess.Process

    async def start(self) -> None:
        """Start, and wait until it is ready."""
        write_key_files(self.folder, self._key_seed)
        flags = ["--data", str(self.folder), "--database", self._url, "--lease-s", str(self._lease_s)]
        flags += [] if self._nats is None else ["--nats", self._nats]
        notes = str(self.folder.parent / "notes")
        with (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *[
                    sys.executable,
                    "-m",
                    "dragoman",
                    "serve",
                    f"{AGENT}:worker",
                    "--no-auth",
                    "--no-blade",
                    "--port",
                    "0",
                ],
                *["--log-level", "warning", "--drain-s", "1", *flags],
                cwd=PROJECT_ROOT,
                env={**os.environ, NOTES: notes},
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            line = (await self._process.stdout.readline()).decode()
        assert line.startswith("ready "), f"{self.folder.name} did not start: {line!r}"
        self.port = int(line.rsplit(":", 1)[1])

    @property
    def process_id(self) -> int:
        """Its process."""
        return self._process.pid

    async def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, one way or another."""
        self.port = 0
        if self._process.returncode is None:
            self._process.send_signal(how)
            async with asyncio.timeout(DEADLINE_S):
                await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)


class Proxy:
    """Stands between servers and their database, and cuts, or keeps to itself what it was given."""

    def __init__(self, folder: Path, target_folder: Path) -> None:
        self.folder = folder
        self._target_folder = target_folder / ".s.PGSQL.5432"
        self._server: asyncio.Server
        self._pipes: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._is_forwarding = asyncio.Event()
        self._is_forwarding.set()

    async def start(self) -> None:
        """Begin to pass on."""
        self.folder.mkdir()
        self._server = await asyncio.start_unix_server(self._pass, self.folder / ".s.PGSQL.5432")

    def cut(self) -> None:
        """Break all connections."""
        for writer in tuple(self._pipes):
            writer.transport.abort()

    def start_blackhole(self) -> None:
        """Take everything and pass nothing on, with all connections open."""
        self._is_forwarding.clear()

    def stop_blackhole(self) -> None:
        """Pass on again, what was kept first."""
        self._is_forwarding.set()

    async def close(self) -> None:
        """Pass nothing on."""
        self._server.close()
        self.cut()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(self._target_folder)
        except OSError:
            writer.transport.abort()
            return
        self._pipes |= {writer, far_writer}
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._copy(source, sink))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while content := await source.read(65536):
                await self._is_forwarding.wait()
                sink.write(content)
                await sink.drain()
        self._pipes.discard(sink)
        sink.transport.abort()


@asynccontextmanager
async def running_nodes(
    folder: Path, url: str, count: int, lease_s: float, nats: str | None = None
) -> AsyncIterator[list[Node]]:
    """Run a number of servers."""
    nodes = [Node(folder / f"node-{number}", url, lease_s, nats) for number in range(count)]
    try:
        for node in nodes:
            await node.start()
        yield nodes
    finally:
        for node in nodes:
            with suppress(ProcessLookupError, AttributeError):
                node.signal(signal.SIGCONT)
                await node.end()
