"""Clients that talk to whichever server, come back after every failure, and note what they called and got."""

import asyncio
import json
import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from tests.cluster.nodes import Node
from tests.crash.client import ConnectionBroken, NoResponse, open_request, send_request

RETRY_DELAY_S = 0.05
MAX_READ_S = 5.0
"""So long an onlooker stays with a server, at least."""
WORD = re.compile(r"\S+ \d\.\d(?= )")
"""As the agent says them."""
RECOVERY_TIMEOUT_S = 60.0
"""Within which a turn has to end, whatever happens meanwhile."""


@dataclass
class TurnRecord:
    """One turn, as its client knows it. `answers` are all texts that streams of it showed, each from its beginning."""

    text: str
    started_at: float
    is_acknowledged: bool = False
    ended_at: float = 0.0
    stop: str = ""
    answers: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Client:
    """One conversation."""

    def __init__(self, name: str, nodes: Sequence[Node], seed: int) -> None:
        self.name = name
        self.session_id = ""
        self.history: list[TurnRecord] = []
        self._nodes = nodes
        self._chance = Random(seed)

    async def run_turns(self, until: asyncio.Event) -> None:
        """Ask for one turn after the other."""
        while not self.session_id and not until.is_set():
            try:
                answer = await send_request(await self._port(), "POST", "/sessions", {"agent": {"name": "worker"}})
                if answer.status == 201:
                    self.session_id = answer.json["sessionId"]
            except (ConnectionBroken, NoResponse):
                await asyncio.sleep(RETRY_DELAY_S)
        while not until.is_set():
            await self._turn(f"{self.name}-{len(self.history)}")

    async def _turn(self, text: str) -> None:
        called = TurnRecord(text, time.time())
        self.history.append(called)
        key = str(uuid.uuid4())
        while not called.stop:
            assert time.time() - called.started_at < RECOVERY_TIMEOUT_S, f"{text} does not end: {called.failures[-5:]}"
            try:
                await self._try(called, key)
            except (ConnectionBroken, NoResponse) as error:
                called.failures.append(f"{time.time():.2f} {error}")
                await asyncio.sleep(RETRY_DELAY_S)
        called.ended_at = time.time()

    async def _try(self, turn: TurnRecord, key: str) -> None:
        body = {"messages": [{"role": "user", "content": turn.text}], "stream": "delta"}
        path = f"/sessions/{self.session_id}/turns"
        async with open_request(await self._port(), "POST", path, body, {"idempotency-key": key}) as exchange:
            if exchange.status != 200:
                refused = await exchange.read_to_end()
                turn.failures.append(f"{time.time():.2f} {refused.status} {refused.body.decode()[:200]}")
                assert refused.status in (409, 503), refused
                await asyncio.sleep(RETRY_DELAY_S)
                return
            turn.is_acknowledged = True
            said = ""
            place = len(turn.answers)
            turn.answers.append(said)
            async for frame in exchange.frames():
                match frame.event:
                    case "text_delta":
                        turn.answers[place] += frame.data["delta"]
                    case "turn_stop":
                        turn.stop = frame.data["stopReason"]
        if not turn.stop:
            turn.failures.append(f"{time.time():.2f} the stream ended")

    async def _port(self) -> int:
        while not (ports := [node.port for node in self._nodes if node.port]):  # noqa: ASYNC110  # they come back
            await asyncio.sleep(RETRY_DELAY_S)
        return self._chance.choice(ports)


class StreamReader:
    """Reads along with a client's session, at one server or another."""

    def __init__(self, client: Client, nodes: Sequence[Node], seed: int) -> None:
        self.client = client
        self.answers: list[str] = []
        """What turns said, each as far as a stream showed it, from its beginning."""
        self.first_seen_at: dict[str, tuple[float, float]] = {}
        """When a word was first seen, and when the stream had begun that showed it."""
        self._nodes = nodes
        self._chance = Random(seed)

    async def read_until_cancelled(self) -> None:
        """Until it is cancelled."""
        while True:
            ports = [node.port for node in self._nodes if node.port]
            try:
                if ports and self.client.session_id:
                    await self._follow(self._chance.choice(ports))
            except (ConnectionBroken, NoResponse):
                pass  # it goes on elsewhere
            await asyncio.sleep(RETRY_DELAY_S)

    async def _follow(self, port: int) -> None:
        async with open_request(port, "GET", f"/sessions/{self.client.session_id}/events?stream=delta") as exchange:
            if exchange.status != 200:
                return
            begun_at = time.time()
            async for frame in exchange.frames(is_busy=False):
                match frame.event:
                    case "turn_start":
                        self.answers.append("")
                    case "text_delta":
                        self.answers[-1] += frame.data["delta"]
                        for word in WORD.findall(self.answers[-1]):
                            self.first_seen_at.setdefault(word, (time.time(), begun_at))
                    case "turn_stop" if time.time() - begun_at > MAX_READ_S:
                        return  # and to another server

    def delays(self, emitted_at: dict[str, float]) -> dict[float, float]:
        """The delays of the deltas that the client waited for, from the time at which the agent said them."""
        return {
            emitted_at[word]: at - emitted_at[word]
            for word, (at, begun_at) in self.first_seen_at.items()
            if word in emitted_at and emitted_at[word] > begun_at
        }


def decode_notes(lines: str) -> list[dict[str, object]]:
    """Notes, one JSON object a line; the last may have been cut."""
    found = []
    for line in lines.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
