"""What is measured: the limit servers and Dragoman itself, each as a process on the server's core."""

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
from bench.limits import Mode
from bench.load import Client, Session

BENCH_FOLDER = Path(__file__).parent
DATABASE = "dragoman.db"
_PROGRAM = [sys.executable, "-m", "dragoman"]


class Workspace:
    """Where a run of the benchmark happens: a scratch folder on the disk of the checkout, the server's core."""

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
        """A new data folder of Dragoman, and the key that it knows. The key is made once and copied."""
        if self._data_template is None:
            folder = self.folder("key")
            command = [*_PROGRAM, "keys", "create", "--name", "bench", "--data", str(folder)]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            self._data_template = folder, said.splitlines()[-1]
        original, key = self._data_template
        return shutil.copytree(original, self.folder("data"), dirs_exist_ok=True), key


class Limit:
    """A limit server; a context manager that ends it."""

    def __init__(self, workspace: Workspace, mode: Mode) -> None:
        self.name = f"limit {mode}"
        command = [sys.executable, "-m", "bench.limits", mode]
        log = workspace.folder("limit") / "log"
        self.server = process.start(command, cores={workspace.server_core}, log=log)
        self.client = Client(self.server, "", "none")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.stop(signal.SIGKILL)
        shutil.rmtree(self.server.log.parent)


class Dragoman:
    """Our server on a data folder of its own, with keys, the rehearsal agent and the benchmark's agents.

    Every setting is as a user gets it, `synchronous=FULL` among them, but for the share of one user.
    """

    name = "dragoman"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.folder, self.key = workspace.data()
        self.start()

    def start(self) -> None:
        """Start the server on the data folder; also again, after `stop`."""
        command = [*_PROGRAM, "serve", str(BENCH_FOLDER / "agents.py"), "--rehearsal", "--data", str(self.folder)]
        command += ["--port", "0", "--max-runs-per-user", "0", "--max-streams-per-user", "0"]
        self.server = process.start(command, cores={self._workspace.server_core}, log=self.folder / "server.log")
        self.client = Client(self.server, "/aap/v3", self.key)

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """End the server."""
        self.server.stop(signal_number)

    async def verify(self, sessions: Sequence[Session], *, seeds: int = 0) -> str:
        """Compare what was streamed with the history, stop the server, compare with the database.

        Returns:
            Why the row does not count; empty when everything is equal.
        """
        try:
            await check.history(self.client, sessions, seeds=seeds)
            self.stop()
            check.database(self.folder / DATABASE, sessions, seeds=seeds)
        except check.Mismatch as difference:
            return str(difference)
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder)


Subject = Limit | Dragoman
