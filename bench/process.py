"""Start server processes on chosen cores, measure them from outside, and stop them. Linux only (`/proc`, affinity)."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CPUCLOCK_SCHED = 2
"""Linux: the CPU clock of a process: user and system time of all its threads, including ended ones, in nanoseconds."""


class StartFailed(Exception):
    """A server did not become ready."""


class Server:
    """A running server, its address, its log file and the time of its start."""

    def __init__(self, process: "subprocess.Popen[bytes]", host: str, port: int, log: Path, started: float) -> None:
        self.process = process
        self.host = host
        self.port = port
        self.log = log
        self.started = started

    def cpu_s(self) -> float:
        """User and system time of the server and its children so far, in seconds."""
        return cpu_s(self.process.pid)

    def rss_kib(self) -> int:
        """Resident memory of the server and its children."""
        return sum(_status_kib(pid, "VmRSS") for pid in _tree(self.process.pid))

    def stop(self, signal_number: int = signal.SIGTERM, deadline_s: float = 15) -> None:
        """Stop the server and wait until it exits. If it does not exit within `deadline_s`, it is killed."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        try:
            self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def on(cores: Collection[int]) -> Iterator[None]:
    """Run the block on these cores. Processes started in it inherit the affinity, with all their threads."""
    previous = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, previous)


def start(command: Sequence[str], *, cores: Collection[int], log: Path, deadline_s: float = 90) -> Server:
    """Start a server that prints `ready http://HOST:PORT` on stdout, and wait until it does.

    Raises:
        StartFailed: it exited, or was not ready within `deadline_s`.
    """
    started = time.perf_counter()
    with on(cores), log.open("ab") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, bufsize=0)
    for line in _lines(process, started + deadline_s):
        if line.startswith(b"ready http://"):
            host, _, port = line[len(b"ready http://") :].decode().strip().rpartition(":")
            return Server(process, host, int(port), log, started)
    process.kill()
    process.wait()
    raise StartFailed(f"not ready after {deadline_s:.0f} s: {log.read_bytes()[-2000:].decode(errors='replace')}")


def _lines(process: "subprocess.Popen[bytes]", until: float) -> Iterator[bytes]:
    """Complete lines of stdout until it closes or the deadline passes."""
    assert process.stdout is not None
    poll = select.poll()  # `select.select` supports no descriptor above 1023
    poll.register(process.stdout, select.POLLIN)
    pending = b""
    while (remaining_s := until - time.perf_counter()) > 0:
        if not poll.poll(remaining_s * 1000) or not (more := os.read(process.stdout.fileno(), 65536)):
            return
        pending += more
        *lines, pending = pending.split(b"\n")
        yield from lines


def cpu_s(pid: int) -> float:
    """User and system time of a process and its living descendants so far, in seconds."""
    return sum(time.clock_gettime((~each << 3) | CPUCLOCK_SCHED) for each in _tree(pid))


def _tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    pids = [pid]
    for parent in pids:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            pids.extend(int(child) for child in task.read_text().split())
    return pids


def _status_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0


def busy_s() -> float:
    """CPU time used on all cores by all processes since the machine started, in seconds."""
    user, nice, system, _idle, _iowait, irq, softirq, *_ = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(map(int, (user, nice, system, irq, softirq))) / os.sysconf("SC_CLK_TCK")
