"""A world from a seed: machines with an engine each, one store, clients, and faults among all of them."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

from structlog.testing import capture_logs

from dragoman.core.admission import InputLimits
from dragoman.core.refusals import Refused
from dragoman.engine.cluster import cluster as neighbours_module
from dragoman.engine.cluster import delta_relay as carrying_module
from dragoman.engine.cluster import log_tailer as following_module
from dragoman.engine.engine import Engine, EngineOptions
from dragoman.engine.sessions import history as past_module
from dragoman.engine.sessions import live_session as live_module
from dragoman.engine.sessions import reader as reader_module
from dragoman.engine.sessions import registry as sessions_module
from tests.engine import world as world_module
from tests.engine.runs.test_crash import prepare
from tests.engine.world import ReversingCipher, World
from tests.simulation.clients import Clients, more_scripts
from tests.simulation.cluster_store import SharedLog, SimulatedBus, SimulatedNodes, Switch
from tests.simulation.store_connection import Line, WriteFault
from tests.simulation.virtual_loop import Machine, VirtualLoop, run
from tests.stores.simulated import SimulatedLog


class Time:
    """What modules take for `time` that have the monotonic clock from there."""

    @staticmethod
    def monotonic() -> float:
        return asyncio.get_running_loop().time()


CLIENTS = 4
SETTLED_S = 40.0
"""After that nothing of the last fault is on its way any more."""
TAKEN_OVER_S = 15.0
"""Until then another server plays the runs of one that died, where nothing else is wrong."""
NEVER_S = 1e6
"""Deadlines of the tests' own, which have no meaning where time passes by itself."""
SMALL: dict[Any, dict[str, Any]] = {
    sessions_module: {"SPARED": 3},
    live_module: {"RING_RECORDS": 6, "TAIL_MESSAGES": 3},
    reader_module: {"PAGE": 9},
    past_module: {"BACK_PAGE": 4},
    world_module: {"DEADLINE_S": NEVER_S},
    carrying_module: {"time": Time},
    following_module: {"time": Time},
    neighbours_module: {"time": Time},
}
"""Everything that has a bound reaches it."""
UNEXPECTED = {"run's task failed", "session cannot be taken up"}
"""What is logged only where the engine itself is at fault."""


class Server(NamedTuple):
    """A server on its machine."""

    machine: Machine
    line: Line
    engine: Engine


class Outcome(NamedTuple):
    """How it went: for whoever compares, and for whoever wonders what was tried."""

    digest: str
    operations: int
    refused: int
    faults: tuple[str, ...]
    virtual_s: float


class Simulation:
    """One world. Its places have a server each, one after the other."""

    def __init__(self, seed: int, operations: int, faults: int, places: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "there is no other time here"
        self.chance = Random(seed)
        self.operations = operations
        self.store = SimulatedLog() if places == 1 else SharedLog(loop.time)
        self.world = World(self.store)
        prepare(self.world)
        more_scripts(self.world, self.chance)
        self.clients = Clients(self.world, self.chance, sees_now=places == 1)
        self.done = self.refused = 0
        self._loop = loop
        self._switch = Switch(loop, self.chance)
        self.servers: list[Server | None] = [None] * places
        self._has_changed = asyncio.Event()
        self.machines: list[Machine] = []
        self._digest = hashlib.blake2b(digest_size=8)
        self._due = sorted(self.chance.randrange(operations) for _ in range(faults))
        self._struck: list[str] = []
        self._under_way = 0
        self._striking: list[asyncio.Task[None]] = []

    async def play(self) -> Outcome:
        """From the first server's start to the last check."""
        try:
            await self._play()
        finally:
            for striking in self._striking:
                striking.cancel()
            for machine in self.machines:  # also those that died: what is left of them would be in the way of the loop
                await machine.bury()
        return Outcome(
            self._digest.hexdigest(), self.done, self.refused, tuple(self._struck), round(self._loop.time(), 6)
        )

    async def _play(self) -> None:
        await asyncio.gather(*(self.start(place) for place in range(len(self.servers))))
        await asyncio.gather(*(self._live() for _ in range(CLIENTS)))
        for striking in self._striking:
            await striking
        servers = [server for server in self.servers if server is not None]
        assert len(servers) == len(self.servers), "all are up again"
        for server in servers:
            server.line.heal()
        await asyncio.sleep(SETTLED_S)
        machine, _, engine = self.chance.choice(servers)
        await machine.run(self.clients.bring_to_an_end(engine))
        for server in servers:
            await server.machine.run(_stopped(server.engine, 0.0))
        await self.clients.check()
        await self.world.check()
        assert self.world.tools["once"].most_begun <= 1, "a tool ran twice that must not"

    # --- servers --------------------------------------------------------------------------------------------------

    async def start(self, place: int) -> None:
        """Start a server at a place."""
        machine = Machine(self._loop, f"server {len(self.machines) + 1}")
        self.machines.append(machine)
        line = Line(machine, self.store, self.chance, self._see)
        nodes = None if len(self.servers) == 1 else SimulatedNodes(line, f"home {place}")
        world = self.world
        engine = Engine(
            log=line.store,
            index=line.store,
            blobs=world.blobs,
            bus=SimulatedBus(machine, self._switch),
            cipher=ReversingCipher(),
            clock=world.clock,
            ids=world.ids,
            agents=world.agents,
            default_agent="player",
            limits=InputLimits(),
            options=EngineOptions(attempts=1000, sessions_in_memory=2),
            nodes=nodes,
        )
        await machine.run(engine.start())
        self.servers[place] = Server(machine, line, engine)
        self._has_changed.set()

    def _see(self, machine: str, what: tuple[Any, ...]) -> None:
        self._digest.update(repr((self._loop.time(), machine, what)).encode())

    async def _some_server(self) -> Server:
        while True:
            living = [server for server in self.servers if server is not None]
            if living:
                return self.chance.choice(living)
            self._has_changed.clear()
            await self._has_changed.wait()

    # --- clients --------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """A client's life: one request after the other; when the connection breaks, it goes on elsewhere."""
        while self.done < self.operations:
            self.done += 1
            while self._due and self._due[0] <= self.done:
                self._due.pop(0)
                self._striking.append(self._loop.create_task(self._strike()))
            await asyncio.sleep(self.chance.choice((0, 0.001, 0.005, 0.02)))
            machine, _, engine = await self._some_server()
            operation = machine.run(_asked(self.clients.operation(), engine))
            death = self._loop.create_task(machine.died.wait())
            await asyncio.wait([operation, death], return_when=asyncio.FIRST_COMPLETED)
            death.cancel()
            if operation.done():
                self.refused += operation.result()

    # --- faults ---------------------------------------------------------------------------------------------------

    async def _strike(self) -> None:
        """Let one thing go wrong, at some moment from now on."""
        await asyncio.sleep(self.chance.choice((0, 0.001, 0.01)))
        for _ in range(self.chance.randrange(60)):
            await asyncio.sleep(0)
        faults = [self._kill, self._kill, self._restart, self._pause, self._fail_writes, self._fail_reads, self._slow]
        faults += [self._jump] if len(self.servers) == 1 else [self._jump, self._pause, self._lose_hints]
        fault = self.chance.choice(faults)
        server = await self._some_server()
        while server.machine.is_paused:
            await asyncio.sleep(0.1)
            server = await self._some_server()
        self._struck.append(fault.__name__.strip("_"))
        self._under_way += 1
        await fault(self.servers.index(server), server)
        self._under_way -= 1

    async def _kill(self, place: int, server: Server) -> None:
        self.servers[place] = None
        server.machine.kill()
        server.line.cut()
        down_s = (
            self.chance.uniform(0, 2) if not isinstance(self.store, SharedLog) else self.chance.choice((0.1, 2, 25))
        )
        is_alone = self._under_way == 1
        struck = len(self._struck)
        await asyncio.sleep(down_s)
        is_calm = is_alone and struck == len(self._struck)
        if isinstance(self.store, SharedLog) and down_s > TAKEN_OVER_S and is_calm:
            assert self.store.orphans() == [], "nobody took over what a dead server left"
        await self.start(place)

    async def _restart(self, place: int, server: Server) -> None:
        self.servers[place] = None
        await server.machine.run(_stopped(server.engine, self.chance.choice((0.0, 0.01, 1.0))))
        server.machine.kill()  # the process ends, and with it what still waits for an answer
        await self.start(place)

    async def _pause(self, place: int, server: Server) -> None:
        server.machine.pause()
        await asyncio.sleep(self.chance.choice((0.001, 0.1, 5, 9, 40)))
        server.machine.go_on()

    async def _fail_writes(self, place: int, server: Server) -> None:
        kinds: tuple[WriteFault, ...] = ("refused", "unanswered", "torn", "repeated")
        server.line.writes.extend(self.chance.choices(kinds, k=self.chance.randint(1, 4)))

    async def _fail_reads(self, place: int, server: Server) -> None:
        server.line.reads_failing += self.chance.randint(1, 4)

    async def _slow(self, place: int, server: Server) -> None:
        server.line.slowness = self.chance.choice((10, 100))
        await asyncio.sleep(self.chance.uniform(0.1, 5))
        server.line.slowness = 1.0

    async def _jump(self, place: int, server: Server) -> None:
        self.world.clock.move(self.chance.choice((-3600, -1, 1, 3600)))

    async def _lose_hints(self, place: int, server: Server) -> None:
        self._switch.is_away = True
        await asyncio.sleep(self.chance.uniform(0.1, 20))
        self._switch.is_away = False


async def _stopped(engine: Engine, grace_s: float) -> None:
    """Stop a server in order."""
    await engine.drain(grace_s)
    await engine.close()


async def _asked(operation: Callable[[Engine], Awaitable[None]], engine: Engine) -> bool:
    """Ask a server for something. True: it refused, which is an answer."""
    try:
        await operation(engine)
    except Refused:
        return True
    return False


def simulate(seed: int, *, operations: int, faults: int, places: int | None = None) -> Outcome:
    """Play a world from its seed; raises what does not hold."""

    async def play() -> Outcome:
        return await Simulation(seed, operations, faults, places or (3 if seed % 2 else 1)).play()

    with _small(), capture_logs() as logs:
        outcome = run(play())
    told = [each for each in logs if each["event"] in UNEXPECTED]
    assert told == [], "the engine is at fault"
    return outcome


@contextmanager
def _small() -> Iterator[None]:
    before = {module: {name: getattr(module, name) for name in changes} for module, changes in SMALL.items()}
    for module, changes in SMALL.items():
        for name, value in changes.items():
            setattr(module, name, value)
    try:
        yield
    finally:
        for module, changes in before.items():
            for name, value in changes.items():
                setattr(module, name, value)
