"""Runs servers as their projects publish them, as processes that can be killed."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.client.cutting_proxy import CuttingProxy, cutting_proxy
from tests.servers import START_DEADLINE_S

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENTS = ROOT / "build" / "remote-servers"
"""Where `tools.remote_servers` installs what is too large for the environment of the tests."""
MODULES: Mapping[str, tuple[str, ...]] = {
    "agui_sdk": ("ag_ui", "fastapi"),
    "langgraph": ("ag_ui_langgraph", "fastapi"),
}
"""What the programs import that the environment of the tests has, by program."""


def interpreter(program: str) -> str | None:
    """The Python that has what a program imports."""
    if program in MODULES:
        return sys.executable if all(map(find_spec, MODULES[program])) else None
    python = ENVIRONMENTS / program / "bin" / "python"
    return str(python) if python.exists() else None


def needs(program: str) -> pytest.MarkDecorator:
    """Skips a test whose program is not installed."""
    reason = f"not installed: python -m tools.remote_servers installs and tests {program}"
    return pytest.mark.skipif(interpreter(program) is None, reason=reason)


class PublishedServer:
    """A server in a process, behind a proxy at an address that outlives it."""

    def __init__(self, program: str, effects: Path, proxy: CuttingProxy) -> None:
        self.proxy = proxy
        self._program = program
        self._effects = effects
        self._process: asyncio.subprocess.Process

    @property
    def payments(self) -> list[int]:
        """What was paid since the server's first start."""
        return [*map(int, self._effects.read_text().split())] if self._effects.exists() else []

    async def start(self) -> None:
        python, pipe = interpreter(self._program), asyncio.subprocess.PIPE
        assert python is not None, "the test is skipped without it"
        module = f"tests.gateway.published_servers.{self._program}"
        command = (python, "-W", "ignore", "-m", module, str(self._effects))
        self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=ROOT)
        assert self._process.stdout is not None
        async with asyncio.timeout(START_DEADLINE_S):
            self.proxy.target = (await self._process.stdout.readline()).decode().strip()
        if not self.proxy.target:
            raise RuntimeError(f"{self._program} ended before it listened")

    async def kill(self) -> None:
        """Kill the process, as `kill -9` does."""
        self._process.kill()
        await self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


@asynccontextmanager
async def published_server(program: str, folder: Path) -> AsyncIterator[PublishedServer]:
    """Run a program of `published_servers`."""
    async with cutting_proxy("http://127.0.0.1:9", lambda: None) as proxy:
        server = PublishedServer(program, folder / "effects", proxy)
        await server.start()
        try:
            yield server
        finally:
            await server.kill()
