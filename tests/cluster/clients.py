"""Clients that talk to whichever server, come back after every failure, and note what they called and got."""

import asyncio
import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from tests.cluster.nodes import Node
from tests.crash.client import Gone, Stuck, ask, opened

PAUSE_S = 0.05
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


def decoded(lines: str) -> list[dict[str, object]]:
    """Notes, one JSON object a line; the last may have been cut."""
    found = []
    for line in lines.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
