"""`dragoman serve --workers`: one port, several processes, each started again when it dies, all drained at the end."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import httpx2
import psutil

from tests.crash.client import ConnectionBroken, send_request
from tests.servers import COMMAND

DEADLINE_S = 60.0


async def test_workers_share_a_port_and_one_that_dies_is_started_again(bundled_folder: Path, tmp_path: Path) -> None:
    flags = ["--rehearsal", "--no-auth", "--no-blade", "--port", "0", "--data", str(bundled_folder), "--drain-s", "1"]
    with (tmp_path / "log").open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *[*COMMAND, "serve", *flags, "--workers", "2", "--log-format", "json"],
            stdout=asyncio.subprocess.PIPE,
            stderr=out,
        )
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        ready = (await process.stdout.readline()).decode()
        port = int(ready.rsplit(":", 1)[1])
        children = psutil.Process(process.pid).children()
        guardian = next(each for each in children if "serve" not in each.cmdline())
        workers = [each for each in children if each != guardian]
        assert len(workers) == 2
        postgres = guardian.children()
        made = await send_request(port, "POST", "/sessions", {"agent": {"name": "rehearsal"}})
        path = f"/sessions/{made.json['sessionId']}"
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S) as client:
            scraped = (await client.get("/metrics")).text.splitlines()
        active = [line for line in scraped if line.startswith("dragoman_runs_active{")]
        assert active == [f'dragoman_runs_active{{worker="{number}"}} 0.0' for number in (0, 1)]
        assert scraped.count("# TYPE dragoman_runs_active gauge") == 1
        os.kill(workers[0].pid, signal.SIGKILL)
        while len(psutil.Process(process.pid).children()) < 3 or workers[0].is_running():  # noqa: ASYNC110  # a process
            await asyncio.sleep(0.05)
        answered = 0
        while answered < 10:
            try:
                turn = {"messages": [{"role": "user", "content": "hello"}]}
                answered += (await send_request(port, "POST", f"{path}/turns", turn)).status == 200
            except ConnectionBroken:
                continue
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert await process.stdout.read() == b"", "one line, for all of them"
        assert not any(each.is_running() for each in (guardian, *postgres)), "the supervisor has waited for them"
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    stopped = [line.get("worker") for line in lines if line["event"] == "stopped"]
    assert 1 in stopped
    assert stopped[-1] is None, "the supervisor's"


STUBBORN = """
import os, signal, sys, time
from dragoman.server.logging import configure_logging
from dragoman.server.supervisor import _Supervisor

def work(number):
    if number == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(report, b"1")
    while True:
        signal.pause()

configure_logging("json")
reader, report = os.pipe()
workers = _Supervisor(3, work, stop_timeout_s=0.5)
assert workers.start(reader)
print(*workers._number_by_pid, flush=True)
workers.stop()
print("ended", flush=True)
"""
"""Three workers, of which one takes no notice of a signal to stop."""


async def test_a_worker_that_does_not_stop_in_time_is_killed() -> None:
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-c", STUBBORN], stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate()
    begun, ended = out.decode().splitlines()
    record = json.loads(err)
    assert (ended, process.returncode) == ("ended", 0)
    assert (record["event"], record["level"]) == ("workers did not stop in time, killing them", "error")
    assert 1 in record["workers"]
    assert not any(psutil.pid_exists(int(each)) for each in begun.split())
