"""A campaign: clients talk to several servers on one database while something is done to these, and all is checked."""

import asyncio
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from random import Random
from typing import NamedTuple

import psycopg

from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.log import PostgresLog
from tests.cluster.checker import check
from tests.cluster.clients import Client, decoded
from tests.cluster.nodes import Node, Proxy, nodes_over
from tests.stores.postgres import Server, server

LEASE_S = 10.0
AFTER_WAKING_S = 1.0
"""So long after it woke a server may call a tool of a run that others have taken."""
_LOST = (
    "SELECT count(*) FROM sessions"
    " WHERE is_running AND NOT EXISTS (SELECT FROM nodes WHERE nodes.node = sessions.node AND until > now())"
)


class Scene(NamedTuple):
    """What a fault has to do with."""

    nodes: list[Node]
    postgres: Server
    proxy: Proxy
    chance: Random
    folder: Path
    lease_s: float
    figures: dict[str, list[float]]
    """What was measured, by its name."""

    def note(self, name: str, value: float) -> None:
        """Keep a measurement."""
        self.figures.setdefault(name, []).append(value)


Fault = Callable[[Scene], Awaitable[None]]


async def kill(scene: Scene) -> None:
    """`kill -9` of a server, which is started again after its lease; how long its runs were nobody's."""
    node = scene.chance.choice([each for each in scene.nodes if each.port])
    died = time.monotonic()
    await node.end(signal.SIGKILL)
    await _taken_over(scene, died)
    await node.start()


async def kill_soon(scene: Scene) -> None:
    """`kill -9` of a server, which is started again at once."""
    node = scene.chance.choice([each for each in scene.nodes if each.port])
    await node.end(signal.SIGKILL)
    await node.start()


async def pause(scene: Scene) -> None:
    """SIGSTOP for longer than the lease, then SIGCONT: it writes nothing and calls no tool of what others took."""
    node = scene.chance.choice(scene.nodes)
    port, node.port = node.port, 0
    node.signal(signal.SIGSTOP)
    stopped = time.time()
    await asyncio.sleep(scene.lease_s + 1.0 + scene.chance.uniform(0, 1))
    node.signal(signal.SIGCONT)
    woken = time.time()
    await asyncio.sleep(AFTER_WAKING_S + 1.0)
    notes = decoded((scene.folder / "notes").read_text())
    before = {str(note["run"]) for note in notes if note["process"] == node.process_id and _at(note) <= stopped}
    taken = {str(note["run"]) for note in notes if note["process"] != node.process_id and _at(note) > stopped}
    late = [
        _at(note) - woken
        for note in notes
        if note["process"] == node.process_id and note["run"] in before & taken and _at(note) > woken
    ]
    scene.note("tool calls of a server that woke, of runs that others had taken", len(late))
    assert all(after <= AFTER_WAKING_S for after in late), f"a zombie called tools {late} s after it woke"
    node.port = port


async def restart(scene: Scene) -> None:
    """A server is told to stop, and started again."""
    node = scene.chance.choice([each for each in scene.nodes if each.port])
    await node.end(signal.SIGTERM)
    await node.start()


async def restart_database(scene: Scene) -> None:
    """PostgreSQL is ended, with all connections, and comes back."""
    await asyncio.to_thread(scene.postgres.stop)
    await asyncio.to_thread(scene.postgres.start)


async def cut(scene: Scene) -> None:
    """All connections to the database break."""
    scene.proxy.cut()


FAULTS: dict[str, Fault] = {
    "kill": kill,
    "kill-soon": kill_soon,
    "pause": pause,
    "restart": restart,
    "postgres": restart_database,
    "cut": cut,
}


async def play(
    faults: list[str],
    *,
    every_s: tuple[float, float],
    count: int = 3,
    clients: int = 6,
    lease_s: float = LEASE_S,
    seed: int = 1,
    told: Callable[[str], None] = lambda _: None,
) -> dict[str, object]:
    """Do things to servers that are talked to, one after the other; what was checked and measured.

    Raises:
        AssertionError: a promise was broken.
    """
    async with _scene(count, lease_s, seed) as (scene, url):
        talkers = [Client(f"client{number}", scene.nodes, seed * 1000 + number) for number in range(clients)]
        over = asyncio.Event()
        with closing(Database(url, use="beside")) as database:
            talking = [asyncio.create_task(client.talk(over)) for client in talkers]
            try:
                for number, name in enumerate(faults):
                    await asyncio.sleep(scene.chance.uniform(*every_s))
                    await FAULTS[name](scene)
                    told(f"{number + 1} of {len(faults)}: {name}")
                    _failed(talking)
                await asyncio.sleep(every_s[1])
            finally:
                over.set()
            await asyncio.gather(*talking)
            checked = await check(talkers, scene.nodes, PostgresLog(database))
        longest = max((each.ended_at - each.begun_at for client in talkers for each in client.history), default=0.0)
        given_up = sum(each.stop != "end_turn" for client in talkers for each in client.history)
        figures = {name: max(values) for name, values in scene.figures.items()}
        return {**checked, "longest turn, s": round(longest, 1), "turns given up": given_up, **figures}


@asynccontextmanager
async def _scene(count: int, lease_s: float, seed: int) -> AsyncIterator[tuple[Scene, str]]:
    with tempfile.TemporaryDirectory(prefix="dragoman-nodes-") as temporary, server(fsync=True) as postgres:
        folder = Path(temporary)
        (folder / "notes").touch()
        proxy = Proxy(folder / "proxy", postgres.folder)
        await proxy.start()
        through = postgres.url("postgres").replace(str(postgres.folder), str(proxy.folder))
        try:
            async with nodes_over(folder, through, count, lease_s) as nodes:
                yield Scene(nodes, postgres, proxy, Random(seed), folder, lease_s, {}), postgres.url("postgres")
        finally:
            await proxy.close()


async def _taken_over(scene: Scene, died: float) -> None:
    """Wait until no run is without a living owner; note how long that took since the death."""
    limit_s = scene.lease_s + 5.0
    async with await psycopg.AsyncConnection.connect(scene.postgres.url("postgres"), autocommit=True) as connection:
        while True:
            living = await (await connection.execute("SELECT count(*) FROM nodes WHERE until > now()")).fetchone()
            lost = await (await connection.execute(_LOST)).fetchone()
            took = time.monotonic() - died
            if living == (len(scene.nodes) - 1,) and lost == (0,):
                break
            assert took < limit_s, f"after {took:.1f} s runs are still nobody's"
            await asyncio.sleep(0.05)
    scene.note("runs of a dead server taken over after, s", round(took, 2))


def _failed(talking: list[asyncio.Task[None]]) -> None:
    for task in talking:
        if task.done() and task.exception() is not None:
            task.result()


def _at(note: dict[str, object]) -> float:
    at = note["at"]
    assert isinstance(at, float), note
    return at
