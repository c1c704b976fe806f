"""Server processes. Each is started, awaited, signalled and ended through its own handle."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.crash.failpoints import FailPoint

PROJECT_ROOT = Path(__file__).parent.parent.parent
START_DEADLINE_S = 60.0
READY = b"ready http://"


class NotReady(Exception):
    """A server neither became ready nor died."""


class Server:
    """One life of a server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.started_at = time.time()
        self.ready_at: float | None = None
        self.port = 0

    @classmethod
    async def start(
        cls,
        folder: Path,
        *,
        fail: FailPoint | None = None,
        synced_copies: Path | None = None,
        sabotage: str | None = None,
        has_keys: bool = False,
        arguments: Sequence[str] = (),
    ) -> "Server":
        """Start a server on a data folder. It is not ready yet. It logs to `server.log` beside the folder."""
        ours: list[str] = []
        for name, value in (("--fail", fail), ("--synced-copies", synced_copies), ("--sabotage", sabotage)):
            if value is not None:
                ours += [name, str(value)]
        command = [sys.executable, "-m", "tests.crash.launcher", *ours]
        command += ["serve", "--rehearsal", *([] if has_keys else ["--no-auth"]), "--data", str(folder), "--port", "0"]
        with (folder.parent / "server.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                *arguments,
                cwd=PROJECT_ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        return cls(process)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def ready(self) -> bool:
        """Wait until the server accepts requests. False if it died before.

        Raises:
            NotReady: it did neither in time.
        """
        assert self._process.stdout is not None, "it was started with a pipe"
        try:
            async with asyncio.timeout(START_DEADLINE_S):
                while line := await self._process.stdout.readline():
                    if line.startswith(READY):
                        self.ready_at = time.time()
                        self.port = int(line.strip().rpartition(b":")[2])
                        return True
        except TimeoutError:
            raise NotReady(f"no ready line within {START_DEADLINE_S:g} s") from None
        await self._process.wait()
        return False

    async def wait_while_alive(self, seconds: float) -> bool:
        """Wait for some time. False if the server ended meanwhile."""
        try:
            await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            return True
        return False

    def is_dead(self) -> bool:
        """Whether the process has ended, also if nobody has collected its status yet."""
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the process is still running."""
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def wait_for_exit(self, within_s: float) -> int:
        """Wait for the end and return the exit status. A process that takes too long is killed. Raises TimeoutError."""
        try:
            return await asyncio.wait_for(self._process.wait(), within_s)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
            raise
