"""A real NATS for the tests, from a wheel. It can die, stall, and come back at the same address."""

import json
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PROGRAM = Path(sysconfig.get_path("scripts")) / "nats-server"
DEADLINE_S = 60.0


class Nats:
    """A NATS server that runs or not."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._folder = folder
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self.port = -1
        """A free one is taken by the first start, and kept."""

    @property
    def url(self) -> str:
        """Its address, once it was started."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def process_id(self) -> int:
        """Its process, while it runs."""
        assert self._process is not None, "it runs"
        return self._process.pid

    def start(self) -> None:
        """Start, and wait until it listens."""
        command: list[str | Path] = [
            PROGRAM,
            "-a",
            "127.0.0.1",
            "-p",
            str(self.port),
            "--ports_file_dir",
            self._folder,
            *self._flags,
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        file = self._folder / f"nats-server_{self._process.pid}.ports"
        deadline = time.monotonic() + DEADLINE_S
        while not file.exists() or not file.read_bytes().endswith(b"}"):
            assert time.monotonic() < deadline, "it does not start"
            with suppress(subprocess.TimeoutExpired):
                pytest.fail(f"it ended with {self._process.wait(0.01)}")
        self.port = int(json.loads(file.read_bytes())["nats"][0].rpartition(":")[2])

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stall(self) -> None:
        """Let it do nothing, with all its connections open."""
        assert self._process is not None, "it runs"
        self._process.send_signal(signal.SIGSTOP)


@contextmanager
def server(*flags: str) -> Iterator[Nats]:
    """A server that runs until the end."""
    with tempfile.TemporaryDirectory(prefix="dragoman-nats-") as folder:
        nats = Nats(Path(folder), *flags)
        try:
            nats.start()
            yield nats
        finally:
            nats.stop()


@pytest.fixture
def nats() -> Iterator[Nats]:
    """A server of the test's own."""
    with server() as made:
        yield made


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--nats`: where the tests have several engines over one database, these hear of each other over NATS."""
    parser.addoption("--nats", action="store_true", help="let several engines hear of each other over NATS")
