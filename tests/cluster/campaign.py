"""A campaign: clients talk to several servers on one database while something is done to these, and all is checked."""

import asyncio
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import psycopg

from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.log import PostgresLog
from tests.buses.nats_server import Nats
from tests.buses.nats_server import server as nats_server
from tests.cluster.checker import check
from tests.cluster.clients import Client, StreamReader, decode_notes
from tests.cluster.nodes import Node, Proxy, running_nodes
from tests.stores.postgres import Server, server

LEASE_S = 10.0
WAKE_GRACE_S = 1.0
"""So long after it woke a server may call a tool of a run that others have taken."""
MAX_DELTA_DELAY_S = 1.5
"""How late text may reach readers on other servers while hints are lost."""
LONG_TURN_S = 15.0
"""Turns that take longer are reported."""
_ORPHANED_RUNS_SQL = (
    "SELECT count(*) FROM sessions"
    " WHERE is_running AND NOT EXISTS (SELECT FROM nodes WHERE nodes.node = sessions.node AND until > now())"
)


class CampaignState(NamedTuple):
    """What a fault has to do with."""

    nodes: list[Node]
    postgres: Server
    proxy: Proxy
    chance: Random
    folder: Path
    lease_s: float
    outage_s: float
    """For how long what is taken away stays away."""
    nats: Nats | None
    figures: dict[str, list[float]]
    """What was measured, by its name."""
    without_nats: list[tuple[float, float]]
    starting: set[asyncio.Task[None]]
    """Servers that are being started while all goes on."""

    def note(self, name: str, value: float) -> None:
        """Keep a measurement."""
        self.figures.setdefault(name, []).append(value)

    async def any_ready_node(self) -> Node:
        """One of the servers that take requests."""
        while not (living := [each for each in self.nodes if each.port]):  # noqa: ASYNC110  # they come back
            await asyncio.sleep(0.05)
        return self.chance.choice(living)

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it while all goes on."""
        task = asyncio.create_task(work)
        self.starting.add(task)
        task.add_done_callback(self.starting.discard)


Fault = Callable[[CampaignState], Awaitable[None]]


async def kill(scene: CampaignState) -> None:
    """`kill -9` of a server, which is started again after its lease; how long its runs were nobody's."""
    node = await scene.any_ready_node()
    died = time.monotonic()
    await node.end(signal.SIGKILL)
    await _wait_for_takeover(scene, died)
    await node.start()


async def kill_soon(scene: CampaignState) -> None:
    """`kill -9` of a server, which is started again at once; the next one may die before it is there."""
    node = await scene.any_ready_node()
    await node.end(signal.SIGKILL)
    scene.in_background(node.start())


async def pause(scene: CampaignState) -> None:
    """SIGSTOP for longer than the lease, then SIGCONT: it writes nothing and calls no tool of what others took."""
    node = scene.chance.choice(scene.nodes)
    port, node.port = node.port, 0
    node.signal(signal.SIGSTOP)
    stopped = time.time()
    await asyncio.sleep(scene.lease_s + 1.0 + scene.chance.uniform(0, 1))
    node.signal(signal.SIGCONT)
    woken = time.time()
    await asyncio.sleep(WAKE_GRACE_S + 1.0)
    notes = [note for note in decode_notes((scene.folder / "notes").read_text()) if "run" in note]
    before = {str(note["run"]) for note in notes if note["process"] == node.process_id and _at(note) <= stopped}
    taken = {str(note["run"]) for note in notes if note["process"] != node.process_id and _at(note) > stopped}
    late = [
        _at(note) - woken
        for note in notes
        if note["process"] == node.process_id and note["run"] in before & taken and _at(note) > woken
    ]
    scene.note("tool calls of a server that woke, of runs that others had taken", len(late))
    assert all(after <= WAKE_GRACE_S for after in late), f"a zombie called tools {late} s after it woke"
    node.port = port


async def restart(scene: CampaignState) -> None:
    """A server is stopped and started again."""
    node = await scene.any_ready_node()
    await node.end(signal.SIGTERM)
    await node.start()


async def restart_database(scene: CampaignState) -> None:
    """PostgreSQL is ended, with all connections, and comes back."""
    await asyncio.to_thread(scene.postgres.stop)
    await asyncio.to_thread(scene.postgres.start)


async def cut(scene: CampaignState) -> None:
    """All connections to the database break."""
    scene.proxy.cut()


async def blackhole_database(scene: CampaignState) -> None:
    """The network to the database takes everything and gives nothing back, and then goes on."""
    scene.proxy.start_blackhole()
    await asyncio.sleep(scene.outage_s)
    scene.proxy.stop_blackhole()


async def stop_nats(scene: CampaignState) -> None:
    """NATS dies, and comes back at the same address."""
    assert scene.nats is not None, "it was named"
    scene.nats.stop()
    gone = time.time()
    await asyncio.sleep(scene.outage_s)
    scene.without_nats.append((gone, time.time()))
    await asyncio.to_thread(scene.nats.start)


FAULTS: dict[str, Fault] = {
    "kill": kill,
    "kill-soon": kill_soon,
    "pause": pause,
    "restart": restart,
    "postgres": restart_database,
    "cut": cut,
    "silence": blackhole_database,
    "nats": stop_nats,
}


async def play(
    faults: list[str],
    *,
    every_s: tuple[float, float],
    count: int = 3,
    clients: int = 6,
    lease_s: float = LEASE_S,
    outage_s: float = 30.0,
    over_nats: bool = False,
    max_delay_s: float | None = None,
    seed: int = 1,
    report_progress: Callable[[str], None] = lambda _: None,
) -> dict[str, object]:
    """Inject faults, one after the other, into servers that clients use. Returns what was checked and measured.

    Args:
        faults: what is done, by name.
        every_s: seconds between two, at least and at most.
        count: how many servers.
        clients: how many clients, each with a conversation and with somebody who reads along.
        lease_s: the servers' lease.
        away_s: for how long NATS or the network are away.
        over_nats: whether there is a NATS; where it is taken away there is one.
        late_s: how late words may come while NATS is away; None: on a machine that has other things to do.
        seed: of all that is chosen.
        told: hears how far it got.

    Raises:
        AssertionError: a promise was broken.
    """
    async with _campaign_state(count, lease_s, outage_s, over_nats or "nats" in faults, seed) as (scene, url):
        talkers = [Client(f"client{number}", scene.nodes, seed * 1000 + number) for number in range(clients)]
        onlookers = [StreamReader(each, scene.nodes, seed * 2000 + number) for number, each in enumerate(talkers)]
        over = asyncio.Event()
        with closing(Database(url, access="unlocked")) as database:
            talking = [asyncio.create_task(client.run_turns(over)) for client in talkers]
            looking = [asyncio.create_task(each.read_until_cancelled()) for each in onlookers]
            try:
                for number, name in enumerate(faults):
                    await asyncio.sleep(scene.chance.uniform(*every_s))
                    await FAULTS[name](scene)
                    report_progress(f"{number + 1} of {len(faults)}: {name}")
                    _raise_failures([*talking, *looking, *scene.starting])
                await asyncio.gather(*scene.starting)
                await asyncio.sleep(every_s[1])
            finally:
                over.set()
            await asyncio.gather(*talking)
            _raise_failures(looking)
            for task in looking:
                task.cancel()
            await asyncio.wait(looking)
            checked = await check(talkers, scene.nodes, PostgresLog(database), onlookers)
            _measure_delays(scene, onlookers, max_delay_s)
        for each in (each for client in talkers for each in client.history):
            if each.ended_at - each.started_at > LONG_TURN_S:
                report_progress(
                    f"{each.text} took {each.ended_at - each.started_at:.1f} s"
                    f" from {each.started_at:.2f}: {each.failures}"
                )
        longest = max((each.ended_at - each.started_at for client in talkers for each in client.history), default=0.0)
        given_up = sum(each.stop != "end_turn" for client in talkers for each in client.history)
        figures = {name: max(values) for name, values in scene.figures.items()}
        return {**checked, "longest turn, s": round(longest, 1), "turns given up": given_up, **figures}


@asynccontextmanager
async def _campaign_state(
    count: int, lease_s: float, outage_s: float, over_nats: bool, seed: int
) -> AsyncIterator[tuple[CampaignState, str]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dragoman-nodes-")))
        postgres = stack.enter_context(server(fsync=True))
        nats = stack.enter_context(nats_server()) if over_nats else None
        (folder / "notes").touch()
        proxy = Proxy(folder / "proxy", postgres.folder)
        await proxy.start()
        through = postgres.url("postgres").replace(str(postgres.folder), str(proxy.folder))
        scene = CampaignState(
            nodes=[],
            postgres=postgres,
            proxy=proxy,
            chance=Random(seed),
            folder=folder,
            lease_s=lease_s,
            outage_s=outage_s,
            nats=nats,
            figures={},
            without_nats=[],
            starting=set(),
        )
        try:
            async with running_nodes(folder, through, count, lease_s, None if nats is None else nats.url) as nodes:
                yield scene._replace(nodes=nodes), postgres.url("postgres")
        finally:
            await proxy.close()


def _measure_delays(scene: CampaignState, stream_readers: list[StreamReader], max_delay_s: float | None) -> None:
    """Measure the delay of the deltas at readers. There is a limit also while NATS is down."""
    said = {
        str(note["said"]): _at(note) for note in decode_notes((scene.folder / "notes").read_text()) if "said" in note
    }
    late = {at: by_s for each in stream_readers for at, by_s in each.delays(said).items()}
    without = {at: by_s for at, by_s in late.items() if any(gone <= at <= back for gone, back in scene.without_nats)}
    for name, measured in (("words", late), ("words while NATS was away", without)):
        in_order = sorted(measured.values())
        if in_order:
            scene.note(f"{name} read along", len(in_order))
            scene.note(f"{name}, late at the 99th percentile, s", round(in_order[len(in_order) * 99 // 100], 3))
            scene.note(f"{name}, late at most, s", round(in_order[-1], 3))
    latest_s = max(without.values(), default=0.0)
    assert max_delay_s is None or latest_s <= max_delay_s, f"words came {latest_s:.2f} s late"


async def _wait_for_takeover(scene: CampaignState, died: float) -> None:
    """Wait until no run is without a living owner; note how long that took since the death."""
    limit_s = scene.lease_s + 5.0
    async with await psycopg.AsyncConnection.connect(scene.postgres.url("postgres"), autocommit=True) as connection:
        while True:
            living = await (await connection.execute("SELECT count(*) FROM nodes WHERE until > now()")).fetchone()
            lost = await (await connection.execute(_ORPHANED_RUNS_SQL)).fetchone()
            took = time.monotonic() - died
            if living == (len(scene.nodes) - 1,) and lost == (0,):
                break
            assert took < limit_s, f"after {took:.1f} s runs are still nobody's"
            await asyncio.sleep(0.05)
    scene.note("runs of a dead server taken over after, s", round(took, 2))


def _raise_failures(tasks: list[asyncio.Task[None]]) -> None:
    """Raise what one of them ended with."""
    for task in tasks:
        if task.done() and task.exception() is not None:
            task.result()


def _at(note: dict[str, object]) -> float:
    at = note["at"]
    assert isinstance(at, float), note
    return at
