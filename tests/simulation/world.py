"""A world from a seed: machines with an engine each, one store, clients, and faults among all of them."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple, TypeVar

from structlog.testing import capture_logs

from dragoman.core.refusals import Refused
from dragoman.engine.cluster import claims as claims_module
from dragoman.engine.cluster import cluster as cluster_module
from dragoman.engine.cluster import delta_relay as delta_relay_module
from dragoman.engine.cluster import log_tailer as log_tailer_module
from dragoman.engine.engine import Engine
from dragoman.engine.parts import EngineOptions, EngineServices, EngineStores, Environment
from dragoman.engine.services.served_agents import ServedAgents
from dragoman.engine.sessions import history as history_module
from dragoman.engine.sessions import log_pages as log_pages_module
from dragoman.engine.sessions import reader as reader_module
from dragoman.engine.sessions import recent_messages as recent_messages_module
from dragoman.engine.sessions import registry as registry_module
from dragoman.engine.sessions import replay_buffer as replay_buffer_module
from tests.engine import world as world_module
from tests.engine.engine_under_test import EngineUnderTest, no_budgets
from tests.engine.runs.test_crash import prepare
from tests.engine.world import ReversingCipher, World
from tests.simulation.clients import Clients, more_scripts
from tests.simulation.cluster_store import NetworkSwitch, SharedLog, SimulatedBus, SimulatedClusterStore
from tests.simulation.store_connection import StoreConnection, WriteFault
from tests.simulation.virtual_loop import Machine, VirtualLoop, run
from tests.stores.simulated import SimulatedLog

ClientsT = TypeVar("ClientsT", bound=Clients)


class Time:
    """What modules take for `time` that have the monotonic clock from there."""

    @staticmethod
    def monotonic() -> float:
        return asyncio.get_running_loop().time()


CLIENTS = 4
SETTLE_TIMEOUT_S = 40.0
"""After that nothing of the last fault is on its way any more."""
TAKEOVER_TIMEOUT_S = 15.0
"""Until then another server plays the runs of one that died, where nothing else is wrong."""
FAR_FUTURE_S = 1e6
"""Deadlines of the tests' own, which have no meaning where time passes by itself."""
SMALL_LIMITS: dict[Any, dict[str, Any]] = {
    registry_module: {"MIN_RECENT_SESSIONS": 3},
    replay_buffer_module: {"MAX_RECORDS": 6},
    recent_messages_module: {"MAX_MESSAGES": 3},
    log_pages_module: {"PAGE_EVENTS": 9, "PAGE_PIECES": 5},
    reader_module: {"STEP_RECORDS": 4},
    history_module: {"BACK_PAGE": 4},
    world_module: {"DEADLINE_S": FAR_FUTURE_S},
    delta_relay_module: {"time": Time},
    log_tailer_module: {"time": Time},
    claims_module: {"time": Time},
    cluster_module: {"time": Time},
}
"""Everything that has a bound reaches it."""
UNEXPECTED = {"run's task failed", "session cannot be read"}
"""What is logged only where the engine itself is at fault."""


class Server(NamedTuple):
    """A server on its machine."""

    machine: Machine
    store_connection: StoreConnection
    engine: EngineUnderTest


class Outcome(NamedTuple):
    """The outcome of a simulation, to compare it with another one."""

    digest: str
    operations: int
    refused: int
    faults: tuple[str, ...]
    virtual_s: float


class Simulation:
    """One world. Its places have a server each, one after the other."""

    def __init__(self, seed: int, operations: int, faults: int, places: int, clients: type[Clients] = Clients) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "there is no other time here"
        self.chance = Random(seed)
        self.operations = operations
        self.store = SimulatedLog() if places == 1 else SharedLog(loop.time)
        self.world = World(self.store)
        prepare(self.world)
        more_scripts(self.world, self.chance)
        self.clients = clients(self.world, self.chance, is_single_server=places == 1)
        self.done = self.refused = 0
        self._loop = loop
        self._switch = NetworkSwitch(loop, self.chance)
        self.servers: list[Server | None] = [None] * places
        self._has_changed = asyncio.Event()
        self.machines: list[Machine] = []
        self._digest = hashlib.blake2b(digest_size=8)
        self._due = sorted(self.chance.randrange(operations) for _ in range(faults))
        self._faults_injected: list[str] = []
        self._under_way = 0
        self._fault_tasks: list[asyncio.Task[None]] = []

    async def play(self) -> Outcome:
        """From the first server's start to the last check."""
        try:
            await self._play()
        finally:
            for striking in self._fault_tasks:
                striking.cancel()
            for machine in self.machines:  # also those that died: what is left of them would be in the way of the loop
                await machine.cancel_remaining_tasks()
        return Outcome(
            self._digest.hexdigest(), self.done, self.refused, tuple(self._faults_injected), round(self._loop.time(), 6)
        )

    async def _play(self) -> None:
        await asyncio.gather(*(self.start(place) for place in range(len(self.servers))))
        await asyncio.gather(*(self._live() for _ in range(CLIENTS)))
        for striking in self._fault_tasks:
            await striking
        servers = [server for server in self.servers if server is not None]
        assert len(servers) == len(self.servers), "all are up again"
        for server in servers:
            server.store_connection.clear_faults()
        await asyncio.sleep(SETTLE_TIMEOUT_S)
        machine, _, engine = self.chance.choice(servers)
        await machine.run(self.clients.finish_all_sessions(engine))
        for server in servers:
            await server.machine.run(_stopped(server.engine, 0.0))
        await self.clients.check()
        await self.world.check()
        assert self.world.tools["once"].max_starts_per_call <= 1, "a tool ran twice that must not"

    # --- servers --------------------------------------------------------------------------------------------------

    async def start(self, place: int) -> None:
        """Start a server at a place."""
        machine = Machine(self._loop, f"server {len(self.machines) + 1}")
        self.machines.append(machine)
        line = StoreConnection(machine, self.store, self.chance, self._see)
        nodes = None if len(self.servers) == 1 else SimulatedClusterStore(line, f"home {place}")
        world = self.world
        engine = EngineUnderTest(
            EngineStores(line.store, line.store, world.blobs, nodes),
            Environment(SimulatedBus(machine, self._switch), ReversingCipher(), world.clock, world.ids),
            ServedAgents(world.agents, "player"),
            EngineServices(no_budgets(world.clock)),
            EngineOptions(max_attempts=1000, sessions_in_memory=2),
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
                self._fault_tasks.append(self._loop.create_task(self._inject_fault()))
            await asyncio.sleep(self.chance.choice((0, 0.001, 0.005, 0.02)))
            machine, _, engine = await self._some_server()
            operation = machine.run(_was_refused(self.clients.operation(), engine))
            death = self._loop.create_task(machine.died.wait())
            await asyncio.wait([operation, death], return_when=asyncio.FIRST_COMPLETED)
            death.cancel()
            if operation.done():
                self.refused += operation.result()

    # --- faults ---------------------------------------------------------------------------------------------------

    async def _inject_fault(self) -> None:
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
        self._faults_injected.append(fault.__name__.strip("_"))
        self._under_way += 1
        await fault(self.servers.index(server), server)
        self._under_way -= 1

    async def _kill(self, place: int, server: Server) -> None:
        self.servers[place] = None
        server.machine.kill()
        server.store_connection.cut()
        down_s = (
            self.chance.uniform(0, 2) if not isinstance(self.store, SharedLog) else self.chance.choice((0.1, 2, 25))
        )
        is_alone = self._under_way == 1
        struck = len(self._faults_injected)
        await asyncio.sleep(down_s)
        is_calm = is_alone and struck == len(self._faults_injected)
        if isinstance(self.store, SharedLog) and down_s > TAKEOVER_TIMEOUT_S and is_calm:
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
        server.machine.resume()

    async def _fail_writes(self, place: int, server: Server) -> None:
        kinds: tuple[WriteFault, ...] = ("refused", "unanswered", "torn", "repeated")
        server.store_connection.writes.extend(self.chance.choices(kinds, k=self.chance.randint(1, 4)))

    async def _fail_reads(self, place: int, server: Server) -> None:
        server.store_connection.reads_failing += self.chance.randint(1, 4)

    async def _slow(self, place: int, server: Server) -> None:
        server.store_connection.slowness = self.chance.choice((10, 100))
        await asyncio.sleep(self.chance.uniform(0.1, 5))
        server.store_connection.slowness = 1.0

    async def _jump(self, place: int, server: Server) -> None:
        self.world.clock.move(self.chance.choice((-3600, -1, 1, 3600)))

    async def _lose_hints(self, place: int, server: Server) -> None:
        self._switch.is_unavailable = True
        await asyncio.sleep(self.chance.uniform(0.1, 20))
        self._switch.is_unavailable = False


async def _stopped(engine: Engine, grace_s: float) -> None:
    """Stop a server in order."""
    await engine.drain(grace_s)
    await engine.close()


async def _was_refused(operation: Callable[[Engine], Awaitable[None]], engine: Engine) -> bool:
    """Ask a server for something. True: it refused, which is an answer."""
    try:
        await operation(engine)
    except Refused:
        return True
    return False


def simulate(seed: int, *, operations: int, faults: int, places: int | None = None) -> Outcome:
    """Play a world from its seed; raises what does not hold."""
    return _play(Clients, seed, operations, faults, places)[0]


def play_with(clients: type[ClientsT], seed: int, *, operations: int, faults: int) -> ClientsT:
    """Play a world with clients of a kind, and return them; raises what does not hold."""
    return _play(clients, seed, operations, faults, None)[1]


def _play(
    clients: type[ClientsT], seed: int, operations: int, faults: int, places: int | None
) -> tuple[Outcome, ClientsT]:
    async def play() -> tuple[Outcome, ClientsT]:
        simulation = Simulation(seed, operations, faults, places or (3 if seed % 2 else 1), clients)
        outcome = await simulation.play()
        assert isinstance(simulation.clients, clients), "they were made there"
        return outcome, simulation.clients

    with _small_limits(), capture_logs() as logs:
        played = run(play())
    unexpected = [each for each in logs if each["event"] in UNEXPECTED]
    assert unexpected == [], "the engine is at fault"
    return played


@contextmanager
def _small_limits() -> Iterator[None]:
    before = {module: {name: getattr(module, name) for name in changes} for module, changes in SMALL_LIMITS.items()}
    for module, changes in SMALL_LIMITS.items():
        for name, value in changes.items():
            setattr(module, name, value)
    try:
        yield
    finally:
        for module, changes in before.items():
            for name, value in changes.items():
                setattr(module, name, value)
