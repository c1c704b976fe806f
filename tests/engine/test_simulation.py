"""Everything at once, from a seed: clients that talk, answer, stop, repeat and read, over servers that die and disks
that fail. What happens is random, what must hold is not.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from dragoman.core.agent import AgentError, Run
from dragoman.core.content import JsonObject
from dragoman.core.events import RunQueued, RunStarted
from dragoman.core.ids import CallId, RunId, SessionId
from dragoman.core.inputs import Answer, Choice, Decision, Result
from dragoman.core.refusals import Refused, SessionNotFound
from dragoman.core.stream import START, Cursor, Record, cursor_of, expand
from dragoman.engine import live as live_module
from dragoman.engine import past as past_module
from dragoman.engine import reader as reader_module
from dragoman.engine import runs as runs_module
from dragoman.engine import sessions as sessions_module
from dragoman.engine.engine import BusyPolicy, Engine
from dragoman.engine.onces import Key
from tests.engine.checker import check_pairs
from tests.engine.faults import FaultyLog
from tests.engine.test_crash import PAINT, SCRIPTS, answer_to, prepare
from tests.engine.world import (
    ANN,
    DEADLINE_S,
    End,
    Use,
    World,
    answers,
    ended,
    fork,
    open_session,
    says,
    send,
    settled_down,
    world_over,
)
from tests.stores.simulated import SimulatedLog

OPERATIONS = 25
BUSY: list[BusyPolicy] = ["refuse", "queue", "supersede"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that has a bound reaches it, and who has to wait does not wait long."""
    monkeypatch.setattr(sessions_module, "RELOAD_S", 0.0)
    monkeypatch.setattr(sessions_module, "SPARED", 3)
    monkeypatch.setattr(runs_module, "STOP_WAIT_S", 0.02)
    monkeypatch.setattr(live_module, "RING_RECORDS", 6)
    monkeypatch.setattr(live_module, "TAIL_MESSAGES", 3)
    monkeypatch.setattr(reader_module, "PAGE", 9)
    monkeypatch.setattr(past_module, "PAGE", 4)


def more_scripts(world: World, chance: Random) -> None:  # noqa: C901  # one small function for each way
    """Scripts of agents and tools that misbehave."""

    async def wait(run: Run) -> None:
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)

    async def fail(run: Run) -> None:
        raise RuntimeError("inside")

    async def fail_in_words(run: Run) -> None:
        raise AgentError("too_dry", "The beds are too dry.")

    async def swallow(run: Run) -> None:
        for _ in range(3):
            try:
                await wait(run)
            except asyncio.CancelledError:
                run.emit("I go on ")

    async def stubborn(arguments: JsonObject) -> str:
        try:
            for _ in range(20):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            for _ in range(20):
                await asyncio.sleep(0)
        return "done after all"

    async def odd(arguments: JsonObject) -> object:
        return chance.choice([object(), "\ud800", {"_meta": 1}, None, "x" * 5000])

    world.tool("stubborn", stubborn, on_restart="repeat")
    world.tool("odd", odd, on_restart="repeat")
    world.scripts |= {
        "slow": [["a ", wait, settled_down, "b ", wait], [wait, "c"]],
        "fails": [["so ", wait, settled_down, fail]],
        "fails in words": [["so ", fail_in_words]],
        "swallows": [["so ", swallow, settled_down, "on"], ["and on"]],
        "stubborn": [[Use("stubborn"), Use("odd"), Use("stubborn")], ["said"]],
        "limit": [["long ", wait, End("max_tokens")]],
        "many below": [[fork("slow"), fork("fails"), fork("stubborn"), fork("below")], ["end"]],
    }


ALL_SCRIPTS = (*SCRIPTS, "slow", "fails", "fails in words", "swallows", "stubborn", "limit", "many below", "hello")


class Simulation:
    """What the clients did, and what they were told."""

    def __init__(self, world: World, chance: Random) -> None:
        self.world = world
        self.chance = chance
        self.sessions: list[SessionId] = []
        self.deleted: set[SessionId] = set()
        self.acknowledged: list[tuple[SessionId, RunId]] = []
        self.by_key: dict[tuple[SessionId, str], set[RunId]] = defaultdict(set)
        self.readings: list[tuple[SessionId, Cursor, list[Record]]] = []

    async def live(self, engine: Engine) -> None:
        """One client's life on one server."""
        for _ in range(OPERATIONS):
            for _ in range(self.chance.randrange(12)):
                await asyncio.sleep(0)
            try:
                await self.operation()(engine)
            except Refused:
                continue  # busy, not there, not now: a client is told, and goes on

    def operation(self) -> Callable[[Engine], Awaitable[None]]:
        if not self.sessions:
            return self.open
        names = [self.open, self.talk, self.answer, self.forge, self.stop, self.repeat, self.read, self.delete]
        return self.chance.choices(names, weights=[2, 8, 8, 2, 3, 3, 6, 0.3])[0]

    def some_session(self) -> SessionId:
        return self.chance.choice(self.sessions)

    async def open(self, engine: Engine) -> None:
        if len(self.sessions) < 4:
            live = await open_session(engine, client_tools=(PAINT,))
            self.sessions.append(live.state.session_id)

    async def talk(self, engine: Engine) -> None:
        async with engine.session(ANN, self.some_session()) as live:
            submitted = await send(engine, live, self.chance.choice(ALL_SCRIPTS), self.chance.choice(BUSY))
            assert submitted.run_id is not None
            self.acknowledged.append((live.state.session_id, submitted.run_id))

    async def answer(self, engine: Engine) -> None:
        async with engine.session(ANN, self.some_session()) as live:
            waiting = list(live.state.waiting())
            some = self.chance.sample(waiting, self.chance.randint(0, len(waiting)))
            await send(engine, live, answers(*map(answer_to, some)))

    async def forge(self, engine: Engine) -> None:
        async with engine.session(ANN, self.some_session()) as live:
            call_id = CallId(self.chance.choice([*live.state.calls, "nobody's"]))
            forged: list[Answer] = [
                Decision(call_id=call_id, granted=True),
                Result(call_id=call_id, content=""),
                Choice(call_id=call_id),
            ]
            if call_id not in live.state.answerable():
                with pytest.raises(Refused):
                    await send(engine, live, answers(self.chance.choice(forged)), self.chance.choice(BUSY))

    async def stop(self, engine: Engine) -> None:
        async with engine.session(ANN, self.some_session()) as live:
            runs = [queued.run_id for queued in live.state.queue]
            await engine.stop_run(live, self.chance.choice([None, None, *runs]))

    async def repeat(self, engine: Engine) -> None:
        key = self.chance.choice("ab")
        async with engine.session(ANN, self.some_session()) as live, engine.once(ANN, Key(key, "f")) as earlier:
            if earlier is not None:
                if earlier.run_id is not None:
                    self.by_key[earlier.session_id, key].add(earlier.run_id)
                return
            submitted = await engine.submit(live, says("hello"), by=ANN, once=Key(key, "f"), busy="queue")
            await live.until_durable(live.state.seq)
            assert submitted.run_id is not None
            self.by_key[live.state.session_id, key].add(submitted.run_id)

    async def read(self, engine: Engine) -> None:
        async with engine.session(ANN, self.some_session()) as live:
            known = [cursor_of(each) for of, _, seen in self.readings if of == live.state.session_id for each in seen]
            after = self.chance.choice([START, *known])
            seen: list[Record] = []
            self.readings.append((live.state.session_id, after, seen))
            with engine.follow(live, after) as reader:
                for _ in range(self.chance.randrange(8)):
                    for _ in range(self.chance.randrange(10)):
                        await asyncio.sleep(0)
                    if reader.cursor < live.durable:
                        seen += await reader.next()

    async def delete(self, engine: Engine) -> None:
        session_id = self.some_session()
        async with engine.session(ANN, session_id) as live:
            if session_id in self.sessions:
                self.sessions.remove(session_id)  # from here on it may be there or not
            await engine.delete(live)
            self.deleted.add(session_id)

    # --- what must hold -------------------------------------------------------------------------------------------

    async def bring_to_an_end(self, engine: Engine) -> None:
        """Answer whatever is asked, until every session rests."""
        for session_id in self.sessions:
            async with engine.session(ANN, session_id) as live:
                await ended(live)
                while live.state.status() == "waiting":
                    await send(engine, live, answers(answer_to(next(live.state.waiting()))))
                    await ended(live)

    async def check(self) -> None:
        for session_id in self.sessions:
            events = await self.world.events(session_id)
            check_pairs(events)
            runs = {each.event.run_id for each in events if isinstance(each.event, RunStarted | RunQueued)}
            missing = [run_id for of, run_id in self.acknowledged if of == session_id and run_id not in runs]
            assert missing == [], "acknowledged, and not in the log"
            whole = expand(events)
            for of, after, seen in self.readings:
                if of == session_id and seen:
                    last = cursor_of(seen[-1])
                    assert seen == [each for each in whole if after < cursor_of(each) <= last], "seen, and not so"
        assert {place: runs for place, runs in self.by_key.items() if len(runs) > 1} == {}, "done twice"


async def simulate(seed: int) -> Simulation:
    chance = Random(seed)
    async with world_over(SimulatedLog()) as world:
        prepare(world)
        more_scripts(world, chance)
        simulation = Simulation(world, chance)
        for _ in range(chance.randint(1, 4)):
            log = FaultyLog(world.store)
            log.delay(chance.randrange(4))
            match chance.randrange(4):
                case 0 | 1:
                    log.die_at(chance.randint(1, 60), chance.choice(["before", "after"]))
                case 2:
                    log.fail_at(chance.randint(1, 30), chance.randint(1, 4), chance.choice(["before", "after"]))
            await one_life(simulation, log)
        engine = await world.start(attempts=1000)
        await simulation.bring_to_an_end(engine)
        for session_id in simulation.deleted:
            with pytest.raises(SessionNotFound):
                await engine.found(ANN, session_id)
        await world.stop(engine)
        await simulation.check()
        return simulation


async def one_life(simulation: Simulation, log: FaultyLog) -> None:
    """A server with three clients, until they have done what they wanted or it dies."""
    world, chance = simulation.world, simulation.chance

    async def serve() -> None:
        engine = await world.start(log, attempts=1000, sessions_in_memory=2, run_timeout_s=DEADLINE_S)
        await asyncio.gather(*(simulation.live(engine) for _ in range(3)))
        await world.stop(engine, chance.choice([0.0, 0.01]))

    serving = asyncio.create_task(serve())
    dying = asyncio.create_task(log.died.wait())
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([serving, dying], return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        dying.cancel()
        await serving
        return
    serving.cancel()
    await asyncio.wait([serving])
    for engine in tuple(world.engines):
        await world.kill(engine)


@pytest.mark.parametrize("seed", range(60))
async def test_whatever_happens_the_promises_hold(seed: int) -> None:
    await simulate(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400, 100))
async def test_whatever_happens_the_promises_hold_for_many_more_seeds(seed: int) -> None:
    for each in range(seed, seed + 100):
        try:
            await simulate(each)
        except BaseException as error:
            error.add_note(f"seed {each}")
            raise
