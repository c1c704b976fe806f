"""Several engines on one PostgreSQL as if they were one: each request goes to one of them at random.

What a test reads is the first engine's: of most runs it is a follower.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, closing
from contextvars import ContextVar
from random import Random
from typing import Any

from dragoman.buses.local import LocalBus
from dragoman.buses.nats import NatsBus
from dragoman.core.events import SettingsChange
from dragoman.core.ids import RunId, UserId
from dragoman.core.inputs import Create, Submit
from dragoman.engine.cluster.cluster import Cluster
from dragoman.engine.engine import Engine
from dragoman.engine.parts import EngineOptions, EngineServices, EngineStores, Environment
from dragoman.engine.runs.submissions import BusyPolicy, SubmitResult
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.services.served_agents import ServedAgents
from dragoman.engine.sessions.live_session import LiveSession, to_live_session
from dragoman.ports.bus import Bus
from dragoman.ports.log import IdempotencyRecord, SessionStore
from dragoman.stores.postgres.cluster import PostgresCluster
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.log import PostgresLog
from tests.engine.engine_under_test import EngineUnderTest, no_budgets
from tests.engine.world import ANN, DEADLINE_S, ReversingCipher, World, running_world

LEASE_S = 4.0
RESERVED_AT: ContextVar[Engine | None] = ContextVar("reserved_at", default=None)
"""The engine at which the current request has reserved its key: a server reserves the keys of its own requests."""


class EngineGroup:
    """Several engines with the interface of one; what is not defined here is that of the first."""

    def __init__(self, engines: list[EngineUnderTest], chance: Random) -> None:
        self.engines = engines
        self._chance = chance

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engines[0], name)

    async def _on_random_engine(self, live: LiveSession) -> tuple[Engine, LiveSession]:
        return await self._on(self._chance.choice(self.engines), live)

    async def _on(self, engine: Engine, live: LiveSession) -> tuple[Engine, LiveSession]:
        if engine is self.engines[0]:
            return engine, live
        there = to_live_session(await engine.find_session(live.state.owner, live.state.session_id))
        there.reference_count += 1  # it is used until the test ends
        return engine, there

    async def _wait_until_visible(self, live: LiveSession, remote: LiveSession) -> None:
        """Have the first engine see what another one did."""
        cluster = self.engines[0].cluster
        if remote is not live and isinstance(cluster, Cluster) and not remote.has_ended:
            await remote.until_durable(remote.state.seq)
            await cluster.log_tailer.wait_until_reached(live, remote.durable_cursor.seq)

    async def create(self, owner: UserId, request: Create, **fields: Any) -> LiveSession:
        made = await self._chance.choice(self.engines).create(owner, request, **fields)
        return await self.find_session(owner, made.state.session_id)

    async def find_session(self, owner: UserId, name: str, **fields: Any) -> LiveSession:
        live = to_live_session(await self.engines[0].find_session(owner, name, **fields))
        live.reference_count += 1  # it is followed until the test ends
        return live

    def reserve_key(self, owner: UserId, key: IdempotencyKey) -> AbstractAsyncContextManager[IdempotencyRecord | None]:
        engine = self._chance.choice(self.engines)
        RESERVED_AT.set(engine)
        return engine.reserve_key(owner, key)

    async def start_run(
        self,
        live: LiveSession,
        request: Submit,
        *,
        by: UserId,
        busy: BusyPolicy = "refuse",
        idempotency_key: IdempotencyKey | None = None,
    ) -> SubmitResult:
        reserved_at = None if idempotency_key is None else RESERVED_AT.get()
        if reserved_at in self.engines:
            engine, there = await self._on(reserved_at, live)
        else:
            engine, there = await self._on_random_engine(live)
        submitted = await engine.start_run(there, request, by=by, busy=busy, idempotency_key=idempotency_key)
        await self._wait_until_visible(live, there)
        return submitted

    async def stop_run(self, live: LiveSession, run_id: RunId | None = None) -> bool:
        engine, there = await self._on_random_engine(live)
        stopped = await engine.stop_run(there, run_id)
        await self._wait_until_visible(live, there)
        return stopped

    async def change(self, live: LiveSession, change: SettingsChange) -> None:
        engine, there = await self._on_random_engine(live)
        await engine.change(there, change)
        await self._wait_until_visible(live, there)

    async def delete(self, live: LiveSession) -> None:
        engine, there = await self._on_random_engine(live)
        await engine.delete(there)
        cluster = self.engines[0].cluster
        assert isinstance(cluster, Cluster), "there are several"
        await cluster.refresh(live)

    async def rewind(self, live: LiveSession, before_seq: int) -> None:
        engine, there = await self._on_random_engine(live)
        await engine.rewind(there, before_seq)
        await self._wait_until_visible(live, there)

    async def drain(self, grace_s: float) -> None:
        await asyncio.gather(*(engine.drain(grace_s) for engine in self.engines))

    async def close(self) -> None:
        await asyncio.gather(*(engine.close() for engine in self.engines))


class ClusterWorld(World):
    """A world whose engines are several at a time."""

    def __init__(
        self,
        store: SessionStore,
        url: str,
        databases: ExitStack,
        count: int,
        buses: AsyncExitStack | None = None,
        nats: str | None = None,
    ) -> None:
        super().__init__(store)
        self._buses = buses or AsyncExitStack()
        self._nats = nats
        self._url = url
        self._databases = databases
        self._count = count
        self._chance = Random(1)
        self._home_names = 0

    async def start(self, store: SessionStore | None = None, **options: Any) -> Any:
        if store is not None:
            return await super().start(store, **options)
        shared = LocalBus()
        engines = [await self.start_one(await self._over_nats() or shared, options) for _ in range(self._count)]
        several = EngineGroup(engines, self._chance)
        self.engines.append(several)  # type: ignore[arg-type]  # it can what the tests need of one
        return several

    async def _over_nats(self) -> Bus | None:
        if self._nats is None:
            return None
        bus = NatsBus(self._nats, key=bytes(32))
        bus.start()
        self._buses.push_async_callback(bus.close)
        async with asyncio.timeout(DEADLINE_S):
            while not bus.is_connected:  # noqa: ASYNC110  # only the log reports it
                await asyncio.sleep(0.005)
        return bus

    async def start_one(self, bus: Bus, options: dict[str, Any]) -> EngineUnderTest:
        database = self._databases.enter_context(closing(Database(self._url, access="shared")))
        self._home_names += 1
        log = PostgresLog(database)
        engine = EngineUnderTest(
            EngineStores(
                log, log, self.blobs, PostgresCluster(database, folder_id=str(self._home_names), lease_s=LEASE_S)
            ),
            Environment(bus, ReversingCipher(), self.clock, self.ids),
            ServedAgents(self.agents, "player"),
            EngineServices(no_budgets(self.clock)),
            EngineOptions(**{"commit_window_s": 0.0, **options}),
        )
        async with asyncio.timeout(DEADLINE_S):
            await engine.start()
        return engine


@asynccontextmanager
async def cluster_world(url: str, count: int = 3, nats: str | None = None) -> AsyncIterator[World]:
    """A world of several engines over one database; at its end every log in it has to keep the rules.

    Args:
        url: the database.
        count: how many.
        nats: the NATS over which they hear of each other; else within the process.
    """
    with ExitStack() as databases:
        reading = databases.enter_context(closing(Database(url, access="unlocked")))
        async with AsyncExitStack() as buses:
            several = ClusterWorld(PostgresLog(reading), url, databases, count, buses, nats)
            async with running_world(several) as world:
                yield world


class TwoEngines:
    """Two engines, each with a database of its own, and their world."""

    def __init__(self, world: ClusterWorld, first: EngineUnderTest, second: EngineUnderTest) -> None:
        self.world = world
        self.first = first
        self.second = second


async def session_as_seen_by(engine: Engine, session_id: Any) -> Any:
    live = to_live_session(await engine.find_session(ANN, session_id))
    live.reference_count += 1
    return live
