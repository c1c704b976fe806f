"""`python -m tests.adapters.kills`: servers with agents of a framework that are killed again and again.

One process imports the framework, and forks a server for each life, so that a life takes no longer than it has to. The
servers are killed while a tool runs, while an approval waits, while the agent answers, or at any other time; clients
go on with the next server. Tools write down that they begin. At the end, no tool of a turn has begun twice, every
message of a user was answered, and every result that is in the history is true.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from dragoman.core.answers import INTERRUPTED_RESULT
from tests.adapters.scenes import AGENT, FRAMEWORKS, Framework
from tests.protocols.aap.client import AapClient, Session, enabled_tools, grant, user
from tests.servers import SocketLine

ROOT = Path(__file__).parent.parent.parent
MOMENTS = ("tool", "wait", "answer", "time")
START_S = 60.0
TURN_S = 300.0
LONGEST_LIFE_S = 0.5
KILLS_IN_A_ROW = 4
"""Then every client finishes a turn, because a run that dies five times without progress is given up."""


@dataclass
class Report:
    """What a campaign did, and what it found wrong."""

    kills: Counter[str] = field(default_factory=Counter)
    turns: int = 0
    begun: int = 0
    """Tools that began."""
    interrupted: int = 0
    """Calls that a kill interrupted."""
    cut: int = 0
    """Messages that a kill cut off, and that were said again."""
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {name}" for name, count in sorted(self.kills.items()))
        lines = [
            f"{self.kills.total()} kills ({kinds})",
            f"{self.turns} turns, {self.begun} tools begun",
            f"{self.interrupted} calls interrupted, {self.cut} messages cut off",
        ]
        return "\n".join([*lines, *(f"BROKEN {fault}" for fault in self.faults)])


class Servers:
    """The lives of a server, one after the other, on one folder."""

    def __init__(self, folder: Path, framework: Framework, work: str = "campaign") -> None:
        self.folder = folder
        self._framework = framework
        self._work = work
        self.names_tools = framework != "langgraph"
        """Whether the agent's tools are named by clients."""
        self._parent: asyncio.subprocess.Process
        self._pid = 0
        self.key = ""
        self.connection: SocketLine
        self.alive = asyncio.Event()

    async def open(self) -> None:
        """Start the process that has the framework imported."""
        command = (sys.executable, "-m", "tests.adapters.killed_server", self._framework, str(self.folder), self._work)
        self._parent = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        self.key = await self._line("key ")

    async def start(self) -> None:
        """Start a server, and wait until it is ready."""
        assert self._parent.stdin is not None
        self._parent.stdin.write(b"start\n")
        self._pid = int(await self._line("pid "))
        self.connection = SocketLine(await self._line("ready "))
        self.alive.set()

    async def kill(self) -> None:
        """Kill the server."""
        self.alive.clear()
        os.kill(self._pid, signal.SIGKILL)
        await self._line("dead")
        await self.connection.close()

    async def close(self) -> None:
        """End the server, and the process that has the framework imported."""
        if self.alive.is_set():
            await self.kill()
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        async with asyncio.timeout(START_S):
            await self._parent.wait()

    async def _line(self, prefix: str) -> str:
        assert self._parent.stdout is not None
        async with asyncio.timeout(START_S):
            while line := (await self._parent.stdout.readline()).decode():
                if line.startswith(prefix):
                    return line.removeprefix(prefix).strip()
        raise RuntimeError(f"the process ended before it wrote {prefix!r}")


class Client:
    """An application: sends messages, and allows payments."""

    def __init__(self, servers: Servers, name: int, report: Report) -> None:
        self._servers = servers
        self._name = name
        self._report = report
        self._session: str | None = None
        self.turns = 0
        self.is_waiting = False

    async def talk(self, until: asyncio.Event) -> None:
        """Play turns until the campaign ends."""
        while not until.is_set():
            prompt = f"work {self._name * 1000 + self.turns}"
            async with asyncio.timeout(TURN_S):
                while not await self._try_turn(prompt):  # noqa: ASYNC110  # another process serves it
                    await asyncio.sleep(0.01)
            self.turns += 1
            self._report.turns += 1

    async def _try_turn(self, prompt: str) -> bool:
        """Go on with a turn, wherever it stands. Returns False if the server died."""
        await self._servers.alive.wait()
        try:
            return await self._turn(prompt)
        except (httpx2.HTTPError, OSError, RuntimeError):
            return False

    async def _turn(self, prompt: str) -> bool:
        client = AapClient(self._servers.connection, self._servers.key)
        if self._session is None:
            tools = [*enabled_tools("add"), *enabled_tools("pay", trust=False)] if self._servers.names_tools else []
            self._session = (await client.create(AGENT, server_tools=tools)).id
        session = Session(client, self._session)
        while True:
            meta = (await session.info())["_meta"]
            if meta["status"] == "waiting":
                self.is_waiting = True
                await session.post([grant(each["toolCallId"]) for each in meta["pending"]])
                self.is_waiting = False
            elif meta["status"] == "running":
                await asyncio.sleep(0.02)
            elif prompt in await prompts_of(session):
                return True
            else:
                await session.post([user(prompt)])

    async def check(self) -> None:
        """Compare the history with what tools wrote down."""
        if self._session is None:
            return
        session = Session(AapClient(self._servers.connection, self._servers.key), self._session)
        begun = Counter(line for line in effects_of(self._servers.folder) if line != "answer")
        reply = await session.client.get(f"{session.path}/history?type=full")  # with the marks of what was cut off
        check_history(reply.json["history"]["full"], begun, self._report)


async def prompts_of(session: Session) -> list[str]:
    return [text_of(each["content"]) for each in await session.history() if each["role"] == "user"]


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(each.get("text", "") for each in content)


def check_history(messages: list[Any], begun: Counter[str], report: Report) -> None:
    """Each message of the user has one answer, each call one result, and each result is true."""
    calls: dict[str, tuple[str, str]] = {}
    results: dict[str, str] = {}
    prompts: list[str] = []
    answers: Counter[str] = Counter()
    for message in messages:
        match message["role"]:
            case "user":
                prompts.append(text_of(message["content"]))
            case "tool":
                results[message["toolCallId"]] = text_of(message["content"])
            case "assistant" if message.get("_meta", {}).get("cut"):
                report.cut += 1
            case "assistant":
                blocks = [] if isinstance(message["content"], str) else message["content"]
                calls |= {each["toolCallId"]: outcome_of(each) for each in blocks if each["type"] == "tool_use"}
                answers[prompts[-1]] += text_of(message["content"]) == "all done"
    report.faults += [f"{prompt} stands {count} times" for prompt, count in Counter(prompts).items() if count > 1]
    report.faults += [f"{prompt} has {answers[prompt]} answers" for prompt in prompts if answers[prompt] != 1]
    if len(calls) != 3 * len(prompts):
        report.faults.append(f"{len(prompts)} turns have {len(calls)} calls")
    for call_id, (name, result) in calls.items():
        found = results.get(call_id)
        if found == INTERRUPTED_RESULT:
            report.interrupted += 1
        elif found != result:
            report.faults.append(f"{name} has the result {found!r}")
        elif begun[name] != 1:
            report.faults.append(f"{name} has a result, and began {begun[name]} times")


def outcome_of(block: Any) -> tuple[str, str]:
    """A call as the tools write it down, and its result."""
    given = block["input"]
    if block["name"] == "pay":
        return f"pay {given['amount']}", f"paid {given['amount']}"
    return f"add {given['a']} {given['b']}", str(given["a"] + given["b"])


def effects_of(folder: Path) -> list[str]:
    """The effects that the servers recorded."""
    path = folder / "effects"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


async def a_turn_of_each(clients: list[Client]) -> None:
    """Wait until each client has finished the turn that it is at."""
    goals = [client.turns + 1 for client in clients]
    async with asyncio.timeout(TURN_S):
        while any(client.turns < goal for client, goal in zip(clients, goals, strict=True)):  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.01)


async def moment_to_die(servers: Servers, kind: str, clients: list[Client], chance: random.Random) -> None:
    """Wait for the moment at which a server is killed, or for the end of its life if there is none."""
    seen = len(effects_of(servers.folder))
    deadline = time.monotonic() + (chance.uniform(0, LONGEST_LIFE_S) if kind == "time" else 10 * LONGEST_LIFE_S)
    while time.monotonic() < deadline:
        lines = effects_of(servers.folder)[seen:]
        if kind == "wait" and any(client.is_waiting for client in clients):
            return
        if kind == "tool" and any(line != "answer" for line in lines):
            return
        if kind == "answer" and "answer" in lines:
            return
        await asyncio.sleep(0.002)


async def run(folder: Path, framework: Framework, *, kills: int, seed: int = 1, clients: int = 3) -> Report:
    """Play a campaign. Leaves no process behind."""
    report, chance, is_over = Report(), random.Random(seed), asyncio.Event()
    servers = Servers(folder, framework)
    await servers.open()
    talking = [Client(servers, number, report) for number in range(clients)]
    tasks = [asyncio.create_task(client.talk(is_over)) for client in talking]
    try:
        for number in range(kills):
            kind = MOMENTS[number % len(MOMENTS)]
            await servers.start()
            if number % KILLS_IN_A_ROW == KILLS_IN_A_ROW - 1:
                await a_turn_of_each(talking)
            await moment_to_die(servers, kind, talking, chance)
            await servers.kill()
            report.kills[kind] += 1
            for task in tasks:
                if task.done():
                    task.result()
        is_over.set()
        await servers.start()
        await asyncio.gather(*tasks)
        for client in talking:
            await client.check()
        begun = Counter(line for line in effects_of(folder) if line != "answer")
        report.begun = begun.total()
        report.faults += [f"{name} began {count} times" for name, count in begun.items() if count > 1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await servers.close()
    return report


def main() -> int:
    """Run the command. Returns 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.adapters.kills", description=__doc__)
    parser.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help=f"of {', '.join(FRAMEWORKS)}; default: all")
    parser.add_argument("--kills", type=int, default=100, help="kills per framework")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random times")
    arguments = parser.parse_args()
    status = 0
    for framework in arguments.frameworks or FRAMEWORKS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="dragoman-kills-") as folder:
            report = asyncio.run(run(Path(folder), framework, kills=arguments.kills, seed=arguments.seed))
        sys.stdout.write(f"{framework}: {report}\n{time.monotonic() - began:.0f} s\n")
        status |= bool(report.faults)
    return status


if __name__ == "__main__":
    sys.exit(main())
