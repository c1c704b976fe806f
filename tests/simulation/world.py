"""A world from a seed: machines with an engine each, one store, clients, and faults among all of them."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

from structlog.testing import capture_logs

from dragoman.core.refusals import Refused
from dragoman.engine import live as live_module
from dragoman.engine import past as past_module
from dragoman.engine import reader as reader_module
from dragoman.engine import sessions as sessions_module
from dragoman.engine.engine import Engine
from tests.engine import world as world_module
from tests.engine.test_crash import prepare
from tests.engine.world import World
from tests.simulation.clients import Clients, more_scripts
from tests.simulation.line import Line, WriteFault
from tests.simulation.loop import Machine, VirtualLoop, run
from tests.stores.simulated import SimulatedLog

CLIENTS = 4
SETTLED_S = 20.0
"""After that nothing of the last fault is on its way any more."""
NEVER_S = 1e6
"""Deadlines of the tests' own, which have no meaning where time passes by itself."""
SMALL: dict[Any, dict[str, Any]] = {
    sessions_module: {"SPARED": 3},
    live_module: {"RING_RECORDS": 6, "TAIL_MESSAGES": 3},
    reader_module: {"PAGE": 9},
    past_module: {"PAGE": 4},
    world_module: {"DEADLINE_S": NEVER_S},
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
    """One world."""

    def __init__(self, seed: int, operations: int, faults: int) -> None:
        self.chance = Random(seed)
        self.operations = operations
        self.world = World(SimulatedLog())
        prepare(self.world)
        more_scripts(self.world, self.chance)
        self.clients = Clients(self.world, self.chance)
        self.done = self.refused = 0
        self._server: Server | None = None
        self._is_up = asyncio.Event()
        self._names = 0
        self._machines: list[Machine] = []
        self._digest = hashlib.blake2b(digest_size=8)
        self._due = sorted(self.chance.randrange(operations) for _ in range(faults))
        self._struck: list[str] = []
        self._striking: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()

    async def play(self) -> Outcome:
        """From the first server's start to the last check."""
        try:
            await self._play()
        finally:
            for striking in self._striking:
                striking.cancel()
            for machine in self._machines:  # also those that died: what is left of them would be in the way of the loop
                await machine.bury()
        return Outcome(
            self._digest.hexdigest(), self.done, self.refused, tuple(self._struck), round(self._loop.time(), 6)
        )

    async def _play(self) -> None:
        await self._start()
        await asyncio.gather(*(self._live() for _ in range(CLIENTS)))
        for striking in self._striking:
            await striking
        await self._is_up.wait()
        assert self._server is not None, "it is up"
        machine, line, engine = self._server
        line.heal()
        await asyncio.sleep(SETTLED_S)
        await machine.run(self.clients.bring_to_an_end(engine))
        await machine.run(self.world.stop(engine))
        await self.clients.check()
        await self.world.check()

    # --- servers --------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        assert isinstance(self._loop, VirtualLoop)
        self._names += 1
        machine = Machine(self._loop, f"server {self._names}")
        self._machines.append(machine)
        line = Line(machine, self.world.store, self.chance, self._see)
        starting = machine.run(self.world.start(line.store, attempts=1000, sessions_in_memory=2, window_s=0.002))
        self._server = Server(machine, line, await starting)
        self._is_up.set()

    def _see(self, machine: str, what: tuple[Any, ...]) -> None:
        self._digest.update(repr((self._loop.time(), machine, what)).encode())

    def _gone(self, server: Server) -> None:
        self._is_up.clear()
        self._server = None
        self.world.engines = [each for each in self.world.engines if each is not server.engine]

    # --- clients --------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """A client's life: one request after the other; when the connection breaks, it goes on elsewhere."""
        while self.done < self.operations:
            self.done += 1
            while self._due and self._due[0] <= self.done:
                self._due.pop(0)
                self._striking.append(self._loop.create_task(self._strike()))
            await asyncio.sleep(self.chance.choice((0, 0.001, 0.005, 0.02)))
            await self._is_up.wait()
            assert self._server is not None, "it is up"
            machine, _, engine = self._server
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
        faults = (
            self._kill,
            self._kill,
            self._restart,
            self._pause,
            self._fail_writes,
            self._fail_reads,
            self._slow,
            self._jump,
        )
        fault = self.chance.choice(faults)
        if self._server is not None and not self._server.machine.is_paused:
            self._struck.append(fault.__name__.strip("_"))
            await fault(self._server)

    async def _kill(self, server: Server) -> None:
        server.machine.kill()
        server.line.cut()
        self._gone(server)
        await asyncio.sleep(self.chance.uniform(0, 2))
        await self._start()

    async def _restart(self, server: Server) -> None:
        self._gone(server)
        await server.machine.run(self._stop(server))
        server.machine.kill()  # the process ends, and with it what still waits for an answer
        await self._start()

    async def _stop(self, server: Server) -> None:
        await server.engine.drain(self.chance.choice((0.0, 0.01, 1.0)))
        await server.engine.close()

    async def _pause(self, server: Server) -> None:
        server.machine.pause()
        await asyncio.sleep(self.chance.choice((0.001, 0.1, 5, 40)))
        server.machine.go_on()

    async def _fail_writes(self, server: Server) -> None:
        kinds: tuple[WriteFault, ...] = ("refused", "unanswered", "torn", "repeated")
        server.line.writes.extend(self.chance.choices(kinds, k=self.chance.randint(1, 4)))

    async def _fail_reads(self, server: Server) -> None:
        server.line.reads_failing += self.chance.randint(1, 4)

    async def _slow(self, server: Server) -> None:
        server.line.slowness = self.chance.choice((10, 100, 1000))
        await asyncio.sleep(self.chance.uniform(0.1, 5))
        server.line.slowness = 1.0

    async def _jump(self, server: Server) -> None:
        self.world.clock.move(self.chance.choice((-3600, -1, 1, 3600)))


async def _asked(operation: Callable[[Engine], Awaitable[None]], engine: Engine) -> bool:
    """Ask a server for something. True: it refused, which is an answer."""
    try:
        await operation(engine)
    except Refused:
        return True
    return False


def simulate(seed: int, *, operations: int, faults: int) -> Outcome:
    """Play a world from its seed; raises what does not hold."""

    async def play() -> Outcome:
        return await Simulation(seed, operations, faults).play()

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
