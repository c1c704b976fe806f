"""The servers that are measured: the baseline servers and Dragoman, each as a process on the server's core."""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from bench import check, process
from bench.baseline import Mode
from bench.load import Client, Session

BENCH_FOLDER = Path(__file__).parent
DATABASE = "dragoman.db"
_PROGRAM = [sys.executable, "-m", "dragoman"]


class Workspace:
    """The environment of a benchmark run: a scratch folder on the disk of the checkout, and the cores to use."""

    def __init__(self, scratch: Path, server_core: int, cores: Collection[int]) -> None:
        self.scratch = scratch
        self.server_core = server_core
        self.cores = cores
        self._data_template: tuple[Path, str] | None = None

    def folder(self, name: str) -> Path:
        """A new, empty folder."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=name + "-", dir=self.scratch))

    def data(self) -> tuple[Path, str]:
        """A new data folder of Dragoman, and its API key. The key is created once, and its folder is copied."""
        if self._data_template is None:
            folder = self.folder("key")
            command = [*_PROGRAM, "keys", "create", "--name", "bench", "--data", str(folder)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            self._data_template = folder, output.splitlines()[-1]
        original, key = self._data_template
        return shutil.copytree(original, self.folder("data"), dirs_exist_ok=True), key


class Baseline:
    """A baseline server, as a context manager that stops it."""

    def __init__(self, workspace: Workspace, mode: Mode) -> None:
        self.name = f"baseline {mode}"
        command = [sys.executable, "-m", "bench.baseline", mode]
        log = workspace.folder("baseline") / "log"
        self.server = process.start(command, cores={workspace.server_core}, log=log)
        self.client = Client(self.server, "", "none")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.stop(signal.SIGKILL)
        shutil.rmtree(self.server.log.parent)


class Dragoman:
    """Dragoman on its own data folder, with keys, the rehearsal agent and the agents of a file of the benchmark.

    All settings have their defaults, including `synchronous=FULL`, except for the limits per user.
    """

    name = "dragoman"

    def __init__(self, workspace: Workspace, agents: str = "agents.py") -> None:
        self._workspace = workspace
        self._agents = agents
        self.folder, self.key = workspace.data()
        self.start()

    def start(self) -> None:
        """Start the server on the data folder, or restart it after `stop`."""
        command = [*_PROGRAM, "serve", str(BENCH_FOLDER / self._agents), "--rehearsal", "--data", str(self.folder)]
        command += ["--port", "0", "--max-runs-per-user", "0"]
        command += ["--max-streams-per-user", "0", "--run-service-streams", "0"]
        self.server = process.start(command, cores={self._workspace.server_core}, log=self.folder / "server.log")
        self.client = Client(self.server, "/aap/v3", self.key)

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """Stop the server."""
        self.server.stop(signal_number)

    async def verify(self, sessions: Sequence[Session], *, seeds: int = 0) -> str:
        """Compare what was streamed with the history, stop the server, and compare with the database.

        Returns:
            Why the figures are invalid; empty if there is no difference.
        """
        try:
            await check.history(self.client, sessions, seeds=seeds)
            self.stop()
            check.database(self.folder / DATABASE, sessions, seeds=seeds)
        except check.Mismatch as mismatch:
            return str(mismatch)
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder)


Subject = Baseline | Dragoman
