"""Benchmark of AG-UI's standard endpoint: the cost of a delta, including that of the run request.

Each request is like those of the official clients, with its own run id and message, and is answered by its own stream.
"""

import asyncio
import time
import uuid
from collections.abc import Sequence

import msgspec

from bench import load, wire
from bench.effort import Effort
from bench.figures import Figure, Target
from bench.load import Burst, Connection, Session, clock
from bench.stats import spread
from bench.streams import CONNECTIONS, TURN_DELTAS, emit
from bench.subjects import Dragoman, Workspace

PATH = "/ag-ui/rehearsal"
TARGET_US = 2.5


class _Event(msgspec.Struct):
    type: str
    delta: str = ""


_EVENT = msgspec.json.Decoder(_Event)


async def ag_ui(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta of an agent that never waits, over AG-UI, with durable storage."""
    text = emit(TURN_DELTAS, "abcd ")
    with Dragoman(workspace) as ours:
        connections = await ours.client.connect(CONNECTIONS)
        threads = [Session(str(uuid.uuid4())) for _ in range(CONNECTIONS)]
        costs: list[float] = []
        rates: list[float] = []
        for number in range(effort.rounds + 1):
            burst = await _saturate(ours, connections, threads, text, effort.burst_s if number else 0.3)
            if number:  # the first round warms up
                deltas = burst.turns * TURN_DELTAS
                costs.append(burst.cpu_s / deltas * 1e6)
                rates.append(deltas / burst.seconds)
        invalid = await ours.verify(threads)  # over AAP: a thread is a session
    cost, rate = spread(costs), spread(rates)
    return [
        Figure(
            row="ag_ui",
            subject=ours.name,
            metric="server CPU per delta",
            unit="µs",
            value=cost,
            target=Target(TARGET_US),
            invalid=invalid,
            note=f"{rate.median:,.0f} deltas/s",
        )
    ]


async def _saturate(
    ours: Dragoman, connections: Sequence[Connection], threads: Sequence[Session], text: str, seconds: float
) -> Burst:
    """As `load.saturate`, but every request is different."""
    seen: list[tuple[Session, wire.Exchange]] = []

    async def runs(connection: Connection, thread: Session) -> None:
        number = len(thread.turns)
        while clock() < end:
            number += 1
            exchange = await connection.exchange(_request(ours.key, thread, number, text))
            seen.append((thread, exchange))

    cpu, own_cpu, begin = ours.server.cpu_s(), time.process_time(), clock()
    end = begin + seconds
    await load.run_concurrently(
        runs(connection, thread) for connection, thread in zip(connections, threads, strict=True)
    )
    elapsed = clock() - begin
    await asyncio.sleep(0.05)  # include the work that the server does after its responses
    cpu, own_cpu = ours.server.cpu_s() - cpu, time.process_time() - own_cpu
    for thread, exchange in seen:
        thread.turns.append((text, answer_text(exchange)))
    return Burst(len(seen), elapsed, cpu, own_cpu)


def _request(key: str, thread: Session, number: int, text: str) -> bytes:
    body = {
        "threadId": thread.id,
        "runId": str(uuid.uuid4()),
        "protocolVersion": "1.0",
        "messages": [{"id": f"message-{number}", "role": "user", "content": text}],
        "tools": [],
        "context": [],
        "forwardedProps": {},
        "state": {},
    }
    return wire.request("POST", PATH, key=key, body=msgspec.json.encode(body))


def answer_text(exchange: wire.Exchange) -> str:
    """The text of a run. Raises InvalidResponse if the run did not finish."""
    frames = wire.body(exchange).decode().split("\n\n")
    events = [_EVENT.decode(line[6:]) for each in frames for line in each.split("\n") if line.startswith("data: ")]
    if not events or events[-1].type != "RUN_FINISHED":
        raise wire.InvalidResponse(f"expected RUN_FINISHED at the end, got {events[-1:]}")
    return "".join(event.delta for event in events)
