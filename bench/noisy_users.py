"""`python -m bench.noisy_users`: what a user notices while another one floods the server.

One user sends lists and short turns, one after the other. Another one sends searches, large bodies, runs or streams, as
many at a time as its connections allow. Prints one line for each flood: how long the first user's requests took, how
much CPU time the server used meanwhile, and what became of the requests of the second one. The limits per user have
their defaults.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench import process, wire
from bench.load import Client, Connection, Session
from bench.search import OTHER, POSTGRES_DEFAULTS, USER, behind_in, fill, serve, until_indexed
from bench.stats import quantile
from bench.streams import emit
from dragoman.core.ids import UserId
from dragoman.server.stores import is_database_url, open_stores_at
from tests.stores import postgres

SESSIONS = 2000
"""Sessions of the user who floods: what its searches read."""
BODY_BYTES = 1_000_000
RETRY_DELAY_S = 0.1
"""Pause of a client whose request was refused."""


class Flood(NamedTuple):
    """What a user sends: on how many connections, and the next request of each."""

    name: str
    connections: int
    request: Callable[[Client, Client, Session], bytes]


FLOODS = (
    Flood("nothing", 0, lambda *_: b""),
    Flood("searches", 32, lambda blade, _, __: blade.request("GET", "/sessions?limit=50&q=ba")),
    Flood("bodies of 1 MB", 16, lambda _, aap, session: aap.turn(session, "x" * BODY_BYTES)),
    Flood("runs of 2,000 deltas at once", 64, lambda _, aap, session: aap.turn(session, emit(2000, "abcd "))),
    Flood("streams of 20 deltas/s", 300, lambda _, aap, session: aap.turn(session, emit(100, "abcd ", 50))),
)


class Waits(NamedTuple):
    """The other user's requests: how long each took, and how much CPU time the server used meanwhile, in ms.

    Other programs on the machine make a request take longer, but hardly change the CPU time.
    """

    lists: list[tuple[float, float]]
    turns: list[tuple[float, float]]


@asynccontextmanager
async def flooding(flood: Flood, blade: Client, aap: Client) -> AsyncIterator[Counter[int]]:
    """Send a flood meanwhile. Yields the number of responses by status; 0 is a connection that the server closed."""
    statuses: Counter[int] = Counter()
    sessions = await aap.create("rehearsal", flood.connections) if flood.connections else []

    async def send(session: Session) -> None:
        connection: Connection | None = None
        while True:
            if connection is None:
                [connection] = await aap.connect(1)
            try:
                exchange = await connection.exchange(flood.request(blade, aap, session))
                status = int(exchange.parts[0].split(b" ", 2)[1])
            except (wire.InvalidResponse, OSError):
                connection.close()
                connection, status = None, 0
            statuses[status] += 1
            if status != 200:
                await asyncio.sleep(RETRY_DELAY_S)

    tasks = [asyncio.create_task(send(session)) for session in sessions]
    try:
        yield statuses
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def measure(blade: Client, aap: Client, seconds: float) -> Waits:
    """Send lists and turns in turn, each after the response to the one before."""
    [session] = await aap.create("rehearsal", 1)
    [connection] = await aap.connect(1)
    list_request, turn_request = blade.request("GET", "/sessions?limit=20"), aap.turn(session, emit(3, "abcd "))
    taken = Waits([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for request, waits in ((list_request, taken.lists), (turn_request, taken.turns)):
            cpu_s = aap.server.cpu_s()
            exchange = await connection.exchange(request)
            cpu_s = aap.server.cpu_s() - cpu_s
            wire.body(exchange) if request is list_request else wire.events(exchange)
            waits.append(((exchange.times[-1] - exchange.sent) * 1e3, cpu_s * 1e3))
    connection.close()
    return taken


async def report(server: process.Server, keys: Mapping[UserId, str], seconds: float) -> int:
    """Print a line for each flood. Returns the number of requests of the first user that failed: each would raise."""
    noisy, quiet = ([Client(server, base, keys[user]) for base in ("/api", "/aap/v3")] for user in (USER, OTHER))
    await measure(quiet[0], quiet[1], 1)
    for flood in FLOODS:
        async with flooding(flood, noisy[0], noisy[1]) as statuses:
            await asyncio.sleep(1 if flood.connections else 0)
            taken = await measure(quiet[0], quiet[1], seconds)
        figures = " | ".join(
            f"{quantile([wait[kind] for wait in waits], at):.1f}"
            for waits in taken
            for kind in (0, 1)
            for at in (0.5, 0.99)
        )
        became = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
        print(f"| {flood.name} | {len(taken.lists)} | {figures} | {became} |", flush=True)
    return 0


async def prepare(location: str) -> None:
    """Fill a store, and have it indexed."""
    with closing(open_stores_at(location)) as stores:
        await fill(stores.log, SESSIONS)
        await until_indexed(stores.log, partial(behind_in, location))


def run(location: str, folder: Path, seconds: float) -> int:
    """Measure on one store."""
    uvloop.run(prepare(location))
    print(f"\n{'PostgreSQL' if is_database_url(location) else 'SQLite'}\n")
    columns = [
        f"{request} {kind} {at}" for request in ("list", "turn") for kind in ("ms", "CPU ms") for at in ("p50", "p99")
    ]
    print(" | ".join(["| flood", "requests", *columns, "responses to the flood |"]))
    print("|---" * (len(columns) + 3) + "|")
    server, keys = serve(location, folder)
    try:
        return uvloop.run(report(server, keys, seconds))
    finally:
        server.stop()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.noisy_users", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="how long each flood is measured")
    parser.add_argument("--store", choices=("sqlite", "postgres"), help="default: both, one after the other")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if given.store != "postgres":
            run(str(folder), folder, given.seconds)
        if given.store != "sqlite":
            started = stack.enter_context(postgres.server(fsync=True, settings=POSTGRES_DEFAULTS))
            shared = folder / "postgres"
            shared.mkdir()
            run(started.url("postgres"), shared, given.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
