"""A campaign in which people decide about payments while somebody forges answers, and the servers die.

What must hold: a payment runs at most once for each time that a person allowed it, whatever else arrives, over any
protocol, before or after a crash; and no forged text is in any history.
"""

import asyncio
import json
import random
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
from socketio.exceptions import SocketIOError  # type: ignore[import-untyped]  # the library is not annotated

from tests.crash.answer_senders import AGENT, FORGED, GENUINE, SENDERS, Answer, Caller, calling
from tests.crash.campaign import FINISH_TIMEOUT_S, STOP_DEADLINE_S, Report
from tests.crash.client_records import Violation
from tests.crash.process import Server
from tests.protocols.aap.stream import blocks_of
from tests.servers import make_keys, settings_for

Json = Any
AGENTS_FILE = Path(__file__).parent / "paying_agent.py"
FORGED_TEXT = "FORGED"
PEOPLE = 4
FORGERS = 2
MOST_ANSWERS = 30
"""How many answers a server gets at most before it is killed."""
POLL_S = 0.02
LONGEST_LIFE_POLLS = 100
LAST_MOMENT_S = 0.1
BROKEN = (httpx2.TransportError, SocketIOError, TimeoutError, OSError)
"""How a request ends whose server dies."""


@dataclass
class Order:
    """A payment that somebody ordered, as that person knows it."""

    name: str
    message: str
    """What the person says, as JSON."""
    session_id: str = ""
    pending: tuple[str, str] | None = None
    """The call that waits, and its kind, when it was looked at last."""
    decisions: dict[str, bool] = field(default_factory=dict)
    """Whether the person allowed a call, by its id."""

    @property
    def granted(self) -> list[str]:
        return [call_id for call_id, is_granted in self.decisions.items() if is_granted]


class ForgedCampaign:
    """Runs one campaign in its own folder."""

    def __init__(self, folder: Path, *, seed: int, kills: int, sabotage: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._data = folder / "data"
        self._ledger = folder / "ledger"
        self._seed = seed
        self._kills = kills
        self._sabotage = sabotage
        self._rng = random.Random(f"forged {seed}")
        self._keys: dict[str, str] = {}
        self._orders: list[Order] = []
        self._url: str | None = None
        self._has_started = asyncio.Event()
        self._is_closing = False
        self.report = Report()

    async def play(self) -> Report:
        """Run all lives, the last one to a normal end, and return the report. Leaves no process behind."""
        self._keys = await make_keys(settings_for(self._data))
        people = [asyncio.create_task(self._act_as_person(number)) for number in range(PEOPLE)]
        forgers = [asyncio.create_task(self._act_as_forger(number)) for number in range(FORGERS)]
        server: Server | None = None
        try:
            for _ in range(self._kills):
                server = await self._start()
                await self._live(server)
                self._has_started.clear()
                server.signal(signal.SIGKILL)
                await server.wait_for_exit(STOP_DEADLINE_S)
                self.report.endings["at a time"] += 1
                for task in (*people, *forgers):
                    if task.done():
                        task.result()
            self._is_closing = True
            server = await self._start()
            async with asyncio.timeout(FINISH_TIMEOUT_S):
                await asyncio.gather(*people, *forgers)
                await self._check()
        except (Violation, AssertionError, TimeoutError) as error:
            self.report.faults.append(f"{error!r} (life {self.report.endings.total()})")
        finally:
            for task in (*people, *forgers):
                task.cancel()
            await asyncio.gather(*people, *forgers, return_exceptions=True)
            if server is not None:
                server.signal(signal.SIGKILL)
                await server.wait_for_exit(STOP_DEADLINE_S)
        self.report.sessions = len(self._orders)
        return self.report

    async def _live(self, server: Server) -> None:
        """Let people and forgers send some answers, and a moment pass after the last of them."""
        enough = self._answers() + self._rng.randint(1, MOST_ANSWERS)
        for _ in range(LONGEST_LIFE_POLLS):
            if self._answers() >= enough or not await server.wait_while_alive(POLL_S):
                break
        await server.wait_while_alive(self._rng.uniform(0, LAST_MOMENT_S))

    def _answers(self) -> int:
        return self.report.turns + self.report.forged

    async def _start(self) -> Server:
        server = await Server.start(
            self._data, sabotage=self._sabotage, has_keys=True, arguments=("--log-level", "error", str(AGENTS_FILE))
        )
        if not await server.ready():
            raise Violation("the server ended by itself; see server.log")
        self._url = f"http://127.0.0.1:{server.port}"
        self._has_started.set()
        return server

    # --- people ---------------------------------------------------------------------------------------------------

    async def _act_as_person(self, number: int) -> None:
        """Order payments, and see each through to its end."""
        rng = random.Random(f"person {self._seed} {number}")
        while not self._is_closing:
            name = f"order-{self._seed}-{number}-{len(self._orders)}"
            paying: Json = {"tool": rng.choice(["pay", "pay", "pay_once"]), "seconds": rng.choice([0, 0.1, 0.4])}
            order = Order(name, json.dumps({**paying, "ledger": str(self._ledger), "order": name}))
            self._orders.append(order)
            is_over = False
            while not is_over:
                await self._has_started.wait()
                assert self._url is not None, "a server has started"
                try:
                    async with calling(self._url, self._keys["alice"]) as alice:
                        if not order.session_id:
                            await self._place(alice, order)
                        while not (is_over := await self._go_on(alice, order, rng)):
                            pass
                except BROKEN:
                    self.report.deaths_observed += 1

    async def _place(self, alice: Caller, order: Order) -> None:
        config = {
            "agent": {"name": AGENT, "tools": [{"name": "pay"}, {"name": "pay_once"}]},
            "tools": [{"name": "sign", "description": "", "parameters": {"type": "object"}}],
        }
        create, send = ({"idempotency-key": f"{what} {order.name}"} for what in ("create", "send"))
        created = await alice.request("POST", "/aap/v3/sessions", config, **create)
        session_id = expect_ok(created)["sessionId"]
        body = {"messages": [{"role": "user", "content": order.message}], "stream": "none"}
        expect_ok(await alice.request("POST", f"/aap/v3/sessions/{session_id}/turns", body, **send))
        order.session_id = session_id

    async def _go_on(self, alice: Caller, order: Order, rng: random.Random) -> bool:
        """Answer what waits. Returns whether the order is over."""
        info = expect_ok(await alice.request("GET", f"/aap/v3/sessions/{order.session_id}"))["_meta"]
        if info["status"] != "waiting":
            return bool(info["status"] == "idle")
        (pending,) = info["pending"]
        call_id, kind = order.pending = pending["toolCallId"], pending["kind"]
        protocol = rng.choice(list(GENUINE[kind]))
        form = GENUINE[kind][protocol]
        text = "yes" if kind == "question" else f"signed {order.name}"
        if kind == "permission" and not order.decisions.setdefault(call_id, rng.random() < 0.8):
            form = "deny"
        self.report.turns += 1
        await SENDERS[protocol](alice, Answer(order.session_id, call_id, form, text))
        return False

    # --- forgers --------------------------------------------------------------------------------------------------

    async def _act_as_forger(self, number: int) -> None:
        """Send answers that must have no effect, to whatever waits or waited."""
        rng = random.Random(f"forger {self._seed} {number}")
        while not self._is_closing:
            await self._has_started.wait()
            assert self._url is not None, "a server has started"
            try:
                async with (
                    calling(self._url, self._keys["alice"]) as alice,
                    calling(self._url, self._keys["bob"]) as bob,
                ):
                    while not self._is_closing:
                        await self._forge(alice, bob, rng)
            except BROKEN:
                continue

    async def _forge(self, alice: Caller, bob: Caller, rng: random.Random) -> None:
        placed = [order for order in self._orders[-2 * PEOPLE :] if order.session_id]
        if not placed:
            await alice.request("GET", "/livez")
            return
        order = rng.choice(placed)
        caller, (protocol, form), call_id = alice, rng.choice(FORGED["permission"]), str(uuid4())
        way = rng.randrange(4)
        if way == 0 and order.granted:  # the approval again, perhaps after a crash
            call_id, form = rng.choice(order.granted), "grant"
            protocol = rng.choice(list(SENDERS))
        elif way == 1 and order.pending is not None:  # somebody else's, of the right kind
            call_id, kind = order.pending
            protocol = rng.choice(list(GENUINE[kind]))
            caller, form = bob, GENUINE[kind][protocol]
        elif way == 2 and order.pending is not None:
            call_id, kind = order.pending
            protocol, form = rng.choice(FORGED[kind])
        status = await SENDERS[protocol](caller, Answer(order.session_id, call_id, form, FORGED_TEXT))
        self.report.forged += 1
        if status >= 500 and status != 503:
            raise Violation(f"a forged {form} over {protocol} got status {status}")

    # --- the end --------------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        """Compare the payments, the decisions and the histories."""
        lines = self._ledger.read_text().splitlines() if self._ledger.exists() else []
        self.report.executions = len(lines)
        payments = Counter(tuple(line.split()) for line in lines)
        assert self._url is not None, "the last server has started"
        async with calling(self._url, self._keys["alice"]) as alice:
            for order in self._orders:
                history = expect_ok(
                    await alice.request("GET", f"/aap/v3/sessions/{order.session_id}/history?type=full")
                )
                own = {call_id: count for (name, call_id), count in payments.items() if name == order.name}
                self.report.faults += faults_of(order, own, history["history"]["full"])


def faults_of(order: Order, payments: dict[str, int], history: Sequence[Json]) -> list[str]:
    """The faults of an order, given how often each of its payments ran, by call."""
    where = f"({order.name}, session {order.session_id}, decisions {order.decisions})"
    faults = [f"call {call_id} ran {count} times {where}" for call_id, count in payments.items() if count > 1]
    faults += [f"call {call_id} ran without permission {where}" for call_id in payments if call_id not in order.granted]
    if FORGED_TEXT in json.dumps(history):
        faults.append(f"a forged text is in the history {where}")
    text = "".join(block.get("text", "") for block in blocks_of(history[-1]["content"]))
    if not text.startswith(f"yes, signed {order.name}, "):
        faults.append(f"the answers have become {text!r} {where}")
    if text.endswith(f"paid {order.name}") and not payments:
        faults.append(f"what was never paid is paid {where}")
    return faults


def expect_ok(response: httpx2.Response) -> Json:
    """The body of a success."""
    if response.status_code == 503:
        raise ConnectionError("the server stops")
    if response.status_code not in (200, 201):
        raise Violation(f"a person's request got {response.status_code} {response.text}")
    return response.json()
