"""A campaign of shortage: a server under load runs out of something, again and again, and has to recover by itself.

    .venv/bin/python -m tests.faults.exhaustion --times 100

Each time clients send turns while the server has no descriptors, memory or disk left, or may start no thread.
What it acknowledged must be in the histories, and when the shortage is over, turns must succeed without a restart.
"""

import argparse
import asyncio
import os
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import psutil

from tests.crash.client import ConnectionBroken, NoResponse, send_request
from tests.crash.process import Server

RECOVERY_TIMEOUT_S = 30.0
CLIENTS = 6
TURNS_DURING_SHORTAGE = 3
SPARE_MEMORY_BYTES = 16 * 1024 * 1024
REFUSED = "x" * 2_000_000
"""More than a server accepts: it takes the memory only while it is received."""
ACCEPTED = "x" * 900_000 + "\x01" * 100_000
"""A message that is stored and answered, if there is memory. Six characters of JSON stand for each of the last ones."""
PIDS = Path("/sys/fs/cgroup/pids")
CAN_LIMIT_THREADS = os.access(PIDS, os.W_OK)
"""The limit of a process does not hold for root, the limit of a control group does; only root may make one."""


class Shortage:
    """Limits a resource of a process, and lifts the limit."""

    def __init__(self, kind: int, limit: Callable[[psutil.Process], int], *, filler: str = "") -> None:
        self.filler = filler
        """Makes messages so large that they need the resource."""
        self._kind = kind
        self._limit = limit

    def begin(self, process: psutil.Process) -> None:
        """Take the resource away."""
        _, hard = resource.prlimit(process.pid, self._kind)
        resource.prlimit(process.pid, self._kind, (self._limit(process), hard))

    def end(self, process: psutil.Process) -> None:
        """Give it back."""
        _, hard = resource.prlimit(process.pid, self._kind)
        resource.prlimit(process.pid, self._kind, (hard, hard))


class ThreadShortage(Shortage):
    """No new threads."""

    def __init__(self) -> None:
        super().__init__(resource.RLIMIT_NPROC, lambda process: process.num_threads())

    def begin(self, process: psutil.Process) -> None:
        group = PIDS / f"dragoman-{process.pid}"
        group.mkdir(exist_ok=True)
        (group / "cgroup.procs").write_text(str(process.pid))
        (group / "pids.max").write_text(str(process.num_threads()))

    def end(self, process: psutil.Process) -> None:
        (PIDS / "cgroup.procs").write_text(str(process.pid))
        (PIDS / f"dragoman-{process.pid}").rmdir()


def _written_bytes(process: psutil.Process) -> int:
    """The size of the largest open file, which is one of the database's: it cannot grow."""
    return max((Path(each.path).stat().st_size for each in process.open_files()), default=0)


def _spare_memory(process: psutil.Process) -> int:
    return process.memory_info().vms + SPARE_MEMORY_BYTES


SHORTAGES = {
    "descriptors": Shortage(resource.RLIMIT_NOFILE, lambda process: process.num_fds() + 1),
    "memory": Shortage(resource.RLIMIT_AS, _spare_memory, filler=REFUSED),
    "memory-to-work": Shortage(resource.RLIMIT_AS, _spare_memory, filler=ACCEPTED),
    "disk": Shortage(resource.RLIMIT_FSIZE, _written_bytes),
    "threads": ThreadShortage(),
}

TOGETHER = [name for name in SHORTAGES if name != "memory-to-work"]
"""Those that one server has in turn. Large messages leave room in the files of its database: no disk would be full."""


class Report(msgspec.Struct):
    """What happened in a campaign."""

    shortages: Counter[str] = msgspec.field(default_factory=Counter)
    failed: Counter[str] = msgspec.field(default_factory=Counter)
    """Requests that failed during a shortage."""
    acknowledged: int = 0
    faults: list[str] = []

    def __str__(self) -> str:
        counts = [
            f"{count:6} times no {name}: {self.failed[name]} requests failed" for name, count in self.shortages.items()
        ]
        return "\n".join([*counts, f"{self.acknowledged} messages acknowledged", *self.faults])


class Conversation:
    """A session, and the messages of it that were acknowledged."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._path = path
        self._count = 0
        self.acknowledged: list[str] = []

    async def turn(self, filler: str = "") -> bool:
        """Send a message. Returns whether its turn succeeded."""
        self._count += 1
        text = f"message {self._count}. {filler}"
        body = {"messages": [{"role": "user", "content": text}], "stream": "none"}
        try:
            answer = await send_request(self._port, "POST", f"{self._path}/turns", body)
        except (ConnectionBroken, NoResponse):
            return False
        if answer.status == 200:
            self.acknowledged.append(text)
        return answer.status == 200 and answer.json["stopReason"] == "end_turn"

    async def faults(self) -> list[str]:
        """The difference between the history and the acknowledged messages: each must be there once, in order."""
        answer = await send_request(self._port, "GET", f"{self._path}/history?type=full")
        history = [each["content"] for each in answer.json["history"]["full"] if each["role"] == "user"]
        found = [text for text in history if text in set(self.acknowledged)]
        if found == self.acknowledged:
            return []
        return [f"{self._path}: {len(self.acknowledged)} messages were acknowledged, {len(found)} are in the history"]


async def play(name: str, server: Server, conversations: Sequence[Conversation], report: Report) -> None:
    """Have a shortage, and recover."""
    shortage, process = SHORTAGES[name], psutil.Process(server.pid)
    report.shortages[name] += 1
    shortage.begin(process)
    try:
        for _ in range(TURNS_DURING_SHORTAGE):
            succeeded = await asyncio.gather(*(each.turn(shortage.filler) for each in conversations))
            report.failed[name] += succeeded.count(False)
    finally:
        shortage.end(process)
    for each in conversations:
        try:
            async with asyncio.timeout(RECOVERY_TIMEOUT_S):
                while not await each.turn():  # noqa: ASYNC110  # this is what a client does
                    await asyncio.sleep(0.05)
        except TimeoutError:
            report.faults.append(f"no turn succeeded within {RECOVERY_TIMEOUT_S:g} s after a shortage of {name}")


async def campaign(folder: Path, names: Sequence[str], times: int) -> Report:
    """Have all shortages in turn, on one server."""
    report = Report()
    server = await Server.start(folder / "data", arguments=("--log-level", "error"))
    try:
        if not await server.ready():
            report.faults.append("the server ended by itself; see server.log")
            return report
        for number in range(times):
            conversations = []
            for _ in range(CLIENTS):
                created = await send_request(server.port, "POST", "/sessions", {"agent": {"name": "rehearsal"}})
                conversations.append(Conversation(server.port, f"/sessions/{created.json['sessionId']}"))
            for name in names:
                await play(name, server, conversations, report)
                if server.is_dead() or report.faults:
                    report.faults.append(f"(shortage {number} of {name}; dead: {server.is_dead()})")
                    return report
            for each in conversations:
                report.acknowledged += len(each.acknowledged)
                report.faults += await each.faults()
    finally:
        server.signal(signal.SIGKILL)
        await server.wait_for_exit(RECOVERY_TIMEOUT_S)
    return report


def main() -> int:
    """Run the command. Returns 1 if something was lost or a server did not recover."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="shortages of each resource")
    parser.add_argument(
        "--of", choices=SHORTAGES, action="append", help="only of this resource; else all but memory-to-work"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dragoman-exhaustion-") as name:
        report = asyncio.run(campaign(Path(name), given.of or TOGETHER, given.times))
    sys.stdout.write(f"{report}\n")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
