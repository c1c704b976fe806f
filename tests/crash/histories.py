"""Histories of a real server that is killed, checked for linearizability: `python -m tests.crash.histories`.

Several clients share each session over AAP: they submit, repeat, read, answer, stop and delete at the same time. What
they asked, what they got and when is given to the checker and the model of a session that the simulation uses.
"""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.crash.actor import result
from tests.crash.campaign import FINISH_TIMEOUT_S, STOP_DEADLINE_S
from tests.crash.client import Answer, ConnectionBroken, open_request, send_request
from tests.crash.client_records import Violation
from tests.crash.process import Server
from tests.crash.server_availability import Life, ServerAvailability
from tests.crash.turn_plans import CLIENT_TOOL
from tests.simulation.linearizability import Operation
from tests.simulation.session_model import Accepted, Messages, Missing, Once, Request, check_session

CLIENTS = 6
SESSIONS = 2
"""Sessions that are used at the same time."""
KEYS = "abc"
OPERATIONS = 220
"""When a session has so many operations, it is deleted, and another one takes its place."""
LIVES_S = (0.2, 1.5)
"""The least and the greatest time that a server lives after it was ready."""
CONFIG = {
    "agent": {"name": "rehearsal"},
    "tools": [{"name": CLIENT_TOOL, "description": "", "parameters": {"type": "object"}}],
}
METHODS = {"stop": ("POST", "/stop"), "delete": ("DELETE", ""), "read": ("GET", "/history?type=full")}
SCRIPTS: Sequence[Sequence[object]] = (
    [{"say": "at once"}],
    [{"emit": {"count": 20, "text": "slowly ", "every_ms": 5}}],
    [{"say": "please "}, {"call": {"name": CLIENT_TOOL, "input": {}}}, {"say": "thanks"}],
)


class Shared:
    """A session that all clients use, and its history."""

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.history: list[Operation[Request]] = []
        self.turn_of_key: dict[str, str] = {}
        self.calls: set[str] = set()
        """The calls that any client has seen."""

    @property
    def path(self) -> str:
        return f"/sessions/{self.id}"


class Report(NamedTuple):
    """What was recorded, and what cannot be explained of it."""

    kills: int
    histories: list[int]
    """The number of operations of each."""
    unanswered: int
    faults: list[str]

    def __str__(self) -> str:
        shape = f" of {min(self.histories)} to {max(self.histories)} operations" if self.histories else ""
        head = (
            f"{self.kills} kills, {len(self.histories)} histories{shape}, {sum(self.histories)} in all,"
            f" {self.unanswered} without a response: {len(self.faults)} faults"
        )
        return "\n".join([head, *self.faults])


class Refusal(Exception):
    """The server refused a request, which then changes nothing."""


class HistoryCampaign:
    """Kills servers while clients record their histories."""

    def __init__(self, folder: Path, *, seed: int, kills: int, sabotage: str | None = None) -> None:
        self._folder = folder
        self._seed = seed
        self._kills = kills
        self._sabotage = sabotage
        self._rng = random.Random(f"lives {seed}")
        self._availability = ServerAvailability()
        self._open: list[Shared] = []
        self._all: list[Shared] = []
        self._creating = asyncio.Lock()
        self._messages = 0

    async def play(self) -> Report:
        """Run all lives, the last one to a normal end, and check. Leaves no process behind."""
        clients = [asyncio.create_task(self._act(random.Random(f"{self._seed} {n}"))) for n in range(CLIENTS)]
        server: Server | None = None
        faults: list[str] = []
        try:
            for number in range(self._kills + 1):
                server = await self._start()
                if number == self._kills:
                    self._availability.close()
                    self._availability.begin(Life(server.port))
                    async with asyncio.timeout(FINISH_TIMEOUT_S):
                        await asyncio.gather(*clients)
                        for shared in self._all:
                            await self._ask(shared, Request("read"), random.Random(0))
                    break
                self._availability.begin(Life(server.port, server.is_dead))
                await server.wait_while_alive(self._rng.uniform(*LIVES_S))
                server.signal(signal.SIGKILL)
                await server.wait_for_exit(STOP_DEADLINE_S)
                self._availability.end()
                for task in clients:
                    if task.done():
                        task.result()
        except (AssertionError, TimeoutError) as error:
            faults.append(repr(error))
        finally:
            for task in clients:
                task.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
            if server is not None:
                server.signal(signal.SIGKILL)
                await server.wait_for_exit(STOP_DEADLINE_S)
        return self._check(faults)

    def _check(self, faults: list[str]) -> Report:
        for shared in self._all:
            found = check_session(shared.history)
            if not found.is_linearizable:
                count = len(shared.history)
                faults.append(f"session {shared.id}: at most {found.explained} of {count} operations can be explained")
        unanswered = sum(each.output is None for shared in self._all for each in shared.history)
        return Report(self._kills, [len(shared.history) for shared in self._all], unanswered, faults)

    async def _start(self) -> Server:
        arguments = ("--log-level", "error")
        server = await Server.start(self._folder / "data", sabotage=self._sabotage, arguments=arguments)
        if not await server.ready():
            raise Violation("the server ended by itself; see server.log")
        return server

    # --- clients --------------------------------------------------------------------------------------------------

    async def _act(self, rng: random.Random) -> None:
        while not self._availability.is_closing():
            async with self._creating:
                while len(self._open) < SESSIONS:
                    await self._create()
            shared = rng.choice(self._open)
            kinds = ["submit", "submit", "submit", "read", "read", "answer", "stop"]
            await self._ask(shared, self._any_request(shared, rng.choice(kinds), rng), rng)
            if len(shared.history) >= OPERATIONS and shared in self._open:
                self._open.remove(shared)
                await self._ask(shared, Request("delete"), rng)

    def _any_request(self, shared: Shared, kind: str, rng: random.Random) -> Request:
        match kind:
            case "submit":
                self._messages += 1
                key = rng.choice(KEYS) if rng.random() < 0.3 else ""
                script = [{"say": f"{key or self._messages} "}, *(SCRIPTS[0] if key else rng.choice(SCRIPTS))]
                return Request("submit", json.dumps({"script": script}), key)
            case "answer":
                return Request("answer", calls=frozenset(rng.sample(sorted(shared.calls), min(1, len(shared.calls)))))
            case "stop":
                return Request("stop", calls=frozenset(shared.calls))
            case _:
                return Request("read")

    async def _create(self) -> None:
        with contextlib.suppress(ConnectionBroken):
            async with self._availability.open() as port:
                answer = await send_request(port, "POST", "/sessions", CONFIG)
                if answer.status == 201:
                    shared = Shared(answer.json["sessionId"])
                    self._all.append(shared)
                    self._open.append(shared)

    async def _ask(self, shared: Shared, request: Request, rng: random.Random) -> None:
        """Send a request and record it. One that a crash left without a response has no output."""
        if request.kind == "answer" and not request.calls:
            return
        place, invoked = len(shared.history), time.monotonic_ns()
        shared.history.append(Operation(request, None, invoked))
        try:
            async with self._availability.open() as port:
                invoked = time.monotonic_ns()
                output = await self._perform(port, shared, request, rng)
        except ConnectionBroken:
            return
        except Refusal:
            output = None
        returned = time.monotonic_ns()
        if output is None:  # it has changed nothing: a read of whatever is there
            request, output = Request("read"), Accepted()
        shared.history[place] = Operation(request, output, invoked, returned)

    async def _perform(self, port: int, shared: Shared, request: Request, rng: random.Random) -> Hashable:
        match request.kind:
            case "submit":
                headers = {"idempotency-key": f"{shared.id} {request.key}"} if request.key else {}
                turn = await self._turn(port, shared, {"role": "user", "content": request.message}, headers, rng)
                if turn is None or not request.key:
                    return Missing() if turn is None else Accepted()
                if shared.turn_of_key.setdefault(request.key, turn) != turn:
                    raise Violation(f"key {request.key} of session {shared.id} has two turns")
                return Once()
            case "answer":
                (call,) = request.calls
                turn = await self._turn(port, shared, result(call, "painted"), {}, rng)
                return Missing() if turn is None else Accepted()
            case _:
                method, path = METHODS[request.kind]
                answer = await send_request(port, method, shared.path + path)
        if answer.status == 404:
            return Missing()
        self._check_status(answer, 200, 204)
        if request.kind != "read":
            return Accepted()
        history = answer.json["history"]["full"]
        return Messages(tuple(each["content"] for each in history if each["role"] == "user"), is_newest=True)

    async def _turn(
        self, port: int, shared: Shared, message: object, headers: dict[str, str], rng: random.Random
    ) -> str | None:
        """Send a message, and read its stream to the beginning or to the end. Returns the turn; None if there is no
        session.
        """
        body = {"messages": [message], "stream": "delta"}
        turn: str | None = None
        reads_on = rng.random() < 0.7
        async with open_request(port, "POST", f"{shared.path}/turns", body, headers) as exchange:
            if exchange.status == 404:
                return None
            if exchange.status != 200:
                self._check_status(await exchange.read_to_end())
            async for frame in exchange.frames():
                turn = turn or str(frame.data["_meta"]["turnId"])
                if frame.event == "tool_call":
                    shared.calls.add(frame.data["toolCallId"])
                if not reads_on:
                    break
        return turn

    def _check_status(self, answer: Answer, *statuses: int) -> None:
        """Raises Refusal if the server refused the request."""
        if answer.status in (400, 409):
            raise Refusal(answer.code)
        if answer.status not in statuses:
            raise Violation(f"unexpected answer: {answer}")


def main() -> int:
    """Run campaigns one after the other. Returns 1 if something cannot be explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.histories", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--planted", action="store_true", help="acknowledge commits before they are durable")
    given = parser.parse_args()
    sabotage = "acknowledge-first" if given.planted else None
    with tempfile.TemporaryDirectory(prefix="dragoman-histories-") as name:
        campaign = HistoryCampaign(Path(name), seed=given.seed, kills=given.kills, sabotage=sabotage)
        report = asyncio.run(campaign.play())
    sys.stdout.write(f"{report}\n")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
