"""What the simulation found among several servers, each as a test of its own."""

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest

from dragoman.core import admission
from dragoman.core.events import RunQueued, SettingsChange
from dragoman.core.ids import UserId
from dragoman.core.input_checks import InputLimits
from dragoman.core.inputs import Create
from dragoman.core.refusals import StoreUnavailable
from dragoman.engine.cluster import cluster as cluster_module
from dragoman.engine.cluster import log_tailer as following_module
from dragoman.engine.cluster.cluster import JOIN_NOTICE_TIMEOUT_S, Cluster
from dragoman.engine.cluster.log_tailer import REACH_TIMEOUT_S, RETRY_DELAY_S
from dragoman.engine.cluster.remote_commands import Done, Enqueue
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.live_session import to_live_session
from dragoman.ports.cluster import SessionUpdate
from tests.engine.world import ANN, PauseGate, open_session, play, send, user_request, wait_for_end
from tests.simulation.cluster_store import SharedLog, SimulatedClusterStore
from tests.simulation.virtual_loop import run
from tests.simulation.world import Simulation, Time


def test_a_request_of_another_server_that_comes_again_counts_once() -> None:
    """Its answer did not get through, or what was asked was read before it was answered."""

    async def world() -> None:
        simulation = Simulation(1, operations=1, faults=0, places=3)
        gate = PauseGate()
        simulation.world.scripts["waits"] = [[gate, "said"]]
        await simulation.start(0)
        server = simulation.servers[0]
        assert server is not None

        async def ask_twice() -> None:
            engine = server.engine
            live = await open_session(engine)
            await send(engine, live, "waits")
            spec = engine.agent_for(live).spec
            wanted = admission.queue_run(
                live.state, spec, user_request("next"), SettingsChange(), engine.ids.new, InputLimits()
            )
            (queued,) = wanted.events
            assert isinstance(queued, RunQueued)
            answers = [await engine.write_access.perform(live, Enqueue(queued, None)) for _ in range(2)]
            assert answers == [Done(live.state.seq)] * 2
            assert [each.run_id for each in live.state.queue] == [queued.run_id]
            gate.opened.set()
            await wait_for_end(live)

        await server.machine.run(ask_twice())
        for machine in simulation.machines:
            await machine.cancel_remaining_tasks()

    run(world())


@pytest.mark.parametrize("wanted", ["run", "session"])
def test_a_repeated_request_has_one_effect_though_a_server_joins_in_the_middle(wanted: str) -> None:
    """The first server was alone when the request reached it, so it locked the key for nobody."""

    async def world() -> None:
        simulation = Simulation(1, operations=1, faults=0, places=2)
        await simulation.start(0)
        first = simulation.servers[0]
        assert first is not None
        live = await first.machine.run(open_session(first.engine))
        session_id, key = live.state.session_id, IdempotencyKey("key", "fingerprint")

        async def request(engine: Engine) -> bool:
            """Whether the request had an effect."""
            async with engine.reserve_key(ANN, key) as earlier:
                if earlier is not None:
                    return False
                if engine is first.engine:
                    await simulation.start(1)
                    second = simulation.servers[1]
                    assert second is not None
                    assert await second.machine.run(request(second.engine)), "the client asked the new server again"
                if wanted == "session":
                    await engine.create(ANN, Create(protocol="test", agent="player"), idempotency_key=key)
                else:
                    there = to_live_session(await engine.find_session(ANN, session_id))
                    await engine.start_run(there, user_request("hello"), by=ANN, idempotency_key=key)
                    await wait_for_end(there)
                return True

        with pytest.raises(StoreUnavailable, match="another server started"):
            await first.machine.run(request(first.engine))
        assert not await first.machine.run(request(first.engine)), "sent again, it finds what was done"
        for machine in simulation.machines:
            await machine.cancel_remaining_tasks()

    run(world())


def test_a_request_with_a_key_says_if_the_store_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_answer(self: SimulatedClusterStore, owner: UserId, key: str) -> bool:
        await asyncio.Event().wait()
        return False

    monkeypatch.setattr(SimulatedClusterStore, "lock_idempotency_key", no_answer)

    async def world() -> None:
        simulation = Simulation(1, operations=1, faults=0, places=2)
        await simulation.start(0)
        await simulation.start(1)
        server = simulation.servers[0]
        assert server is not None

        async def reserve() -> None:
            async with server.engine.reserve_key(ANN, IdempotencyKey("key", "fingerprint")):
                pass

        with pytest.raises(StoreUnavailable, match="the store does not answer"):
            await server.machine.run(reserve())
        for machine in simulation.machines:
            await machine.cancel_remaining_tasks()

    run(world())


def test_a_server_that_closes_just_after_a_claim_that_it_did_not_use_leaves_no_warning() -> None:
    """Warnings are errors. A coroutine of a task that is cancelled before its first step would leave one."""

    async def world() -> None:
        simulation = Simulation(1, operations=1, faults=0, places=2)
        await simulation.start(0)
        await simulation.start(1)
        server = simulation.servers[0]
        assert server is not None

        async def claim_and_close() -> None:
            live = await open_session(server.engine)
            async with server.engine.write_access.acquire(live):
                pass
            await server.engine.cluster.leave()

        await server.machine.run(claim_and_close())
        for machine in simulation.machines:
            await machine.cancel_remaining_tasks()

    run(world())
    gc.collect()


def test_servers_that_start_at_the_same_time_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "time", Time)

    async def world() -> None:
        simulation = Simulation(1, operations=1, faults=0, places=3)
        await asyncio.gather(*(simulation.start(place) for place in range(3)))
        assert asyncio.get_running_loop().time() < JOIN_NOTICE_TIMEOUT_S / 2
        for machine in simulation.machines:
            await machine.cancel_remaining_tasks()

    run(world())


def test_a_server_that_joins_again_tries_until_it_is_among_the_others() -> None:
    """Its lease ended while it stood still; then the store failed in the middle of its coming back."""

    async def world() -> None:
        simulation = Simulation(1, operations=1, faults=0, places=2)
        await simulation.start(0)
        await simulation.start(1)
        server = simulation.servers[0]
        assert server is not None
        server.machine.pause()
        await asyncio.sleep(40)
        server.store_connection.failing["node_other_nodes"] = 3
        server.machine.resume()
        await asyncio.sleep(5)

        async def go_on() -> None:
            live = await open_session(server.engine)
            await send(server.engine, live, "hello")
            await wait_for_end(live)

        await server.machine.run(go_on())
        for machine in simulation.machines:
            await machine.cancel_remaining_tasks()

    run(world())


def test_what_another_server_announces_is_looked_for_with_pauses_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server may announce an event and crash before it writes it."""
    monkeypatch.setattr(following_module, "time", Time)
    real, looks = SharedLog.node_session_updates, 0

    async def news(self: SharedLog, positions: Sequence[Any]) -> list[SessionUpdate]:
        nonlocal looks
        looks += 1
        return await real(self, positions)

    monkeypatch.setattr(SharedLog, "node_session_updates", news)

    async def world() -> None:
        nonlocal looks
        simulation = Simulation(1, operations=1, faults=0, places=2)
        await simulation.start(0)
        await simulation.start(1)
        first, second = simulation.servers
        assert first is not None
        assert second is not None
        assert isinstance(second.engine.cluster, Cluster)
        reach = second.engine.cluster.log_tailer.wait_until_reached
        live = await first.machine.run(open_session(first.engine))
        there = to_live_session(await second.machine.run(second.engine.find_session(ANN, live.state.session_id)))
        looks, seq = 0, there.durable_cursor.seq + 1
        with pytest.raises(StoreUnavailable, match=f"event {seq} did not come in time"):
            await second.machine.run(reach(there, seq))
        assert 2 < looks <= REACH_TIMEOUT_S / RETRY_DELAY_S + 2
        reaching = second.machine.run(reach(there, seq))
        await asyncio.sleep(REACH_TIMEOUT_S / 2)
        assert not reaching.done()
        await first.machine.run(play(first.engine, live, "hello"))
        await reaching
        assert there.durable_cursor.seq >= seq
        for machine in simulation.machines:
            await machine.cancel_remaining_tasks()

    run(world())
