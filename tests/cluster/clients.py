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
from tests.crash.client import Gone, Stuck, ask, opened

PAUSE_S = 0.05
STAY_S = 5.0
"""So long an onlooker stays with a server, at least."""
WORD = re.compile(r"\S+ \d\.\d(?= )")
"""As the agent says them."""
PATIENCE_S = 60.0
"""Within which a turn has to end, whatever happens meanwhile."""


@dataclass
class Called:
    """One turn, as its client knows it. `answers` are all texts that streams of it showed, each from its beginning."""

    text: str
    begun_at: float
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
        self.history: list[Called] = []
        self._nodes = nodes
        self._chance = Random(seed)

    async def talk(self, until: asyncio.Event) -> None:
        """Ask for one turn after the other."""
        while not self.session_id and not until.is_set():
            try:
                answer = await ask(await self._port(), "POST", "/sessions", {"agent": {"name": "worker"}})
                if answer.status == 201:
                    self.session_id = answer.json["sessionId"]
            except (Gone, Stuck):
                await asyncio.sleep(PAUSE_S)
        while not until.is_set():
            await self._turn(f"{self.name}-{len(self.history)}")

    async def _turn(self, text: str) -> None:
        called = Called(text, time.time())
        self.history.append(called)
        key = str(uuid.uuid4())
        while not called.stop:
            assert time.time() - called.begun_at < PATIENCE_S, f"{text} does not end: {called.failures[-5:]}"
            try:
                await self._try(called, key)
            except (Gone, Stuck) as error:
                called.failures.append(f"{time.time():.2f} {error}")
                await asyncio.sleep(PAUSE_S)
        called.ended_at = time.time()

    async def _try(self, called: Called, key: str) -> None:
        body = {"messages": [{"role": "user", "content": called.text}], "stream": "delta"}
        path = f"/sessions/{self.session_id}/turns"
        async with opened(await self._port(), "POST", path, body, {"idempotency-key": key}) as exchange:
            if exchange.status != 200:
                refused = await exchange.whole()
                called.failures.append(f"{time.time():.2f} {refused.status} {refused.body.decode()[:200]}")
                assert refused.status in (409, 503), refused
                await asyncio.sleep(PAUSE_S)
                return
            called.is_acknowledged = True
            said = ""
            place = len(called.answers)
            called.answers.append(said)
            async for frame in exchange.frames():
                match frame.event:
                    case "text_delta":
                        called.answers[place] += frame.data["delta"]
                    case "turn_stop":
                        called.stop = frame.data["stopReason"]
        if not called.stop:
            called.failures.append(f"{time.time():.2f} the stream ended")

    async def _port(self) -> int:
        while not (ports := [node.port for node in self._nodes if node.port]):  # noqa: ASYNC110  # they come back
            await asyncio.sleep(PAUSE_S)
        return self._chance.choice(ports)


class Onlooker:
    """Reads along with a client's session, at one server or another."""

    def __init__(self, client: Client, nodes: Sequence[Node], seed: int) -> None:
        self.client = client
        self.answers: list[str] = []
        """What turns said, each as far as a stream showed it, from its beginning."""
        self.seen: dict[str, tuple[float, float]] = {}
        """When a word was first seen, and when the stream had begun that showed it."""
        self._nodes = nodes
        self._chance = Random(seed)

    async def look(self) -> None:
        """Until it is cancelled."""
        while True:
            ports = [node.port for node in self._nodes if node.port]
            try:
                if ports and self.client.session_id:
                    await self._follow(self._chance.choice(ports))
            except (Gone, Stuck):
                pass  # it goes on elsewhere
            await asyncio.sleep(PAUSE_S)

    async def _follow(self, port: int) -> None:
        async with opened(port, "GET", f"/sessions/{self.client.session_id}/events?stream=delta") as exchange:
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
                            self.seen.setdefault(word, (time.time(), begun_at))
                    case "turn_stop" if time.time() - begun_at > STAY_S:
                        return  # and to another server

    def late(self, said: dict[str, float]) -> dict[float, float]:
        """How late the words were that it waited for: by the time at which they were said."""
        return {
            said[word]: at - said[word]
            for word, (at, begun_at) in self.seen.items()
            if word in said and said[word] > begun_at
        }


def decoded(lines: str) -> list[dict[str, object]]:
    """Notes, one JSON object a line; the last may have been cut."""
    found = []
    for line in lines.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
