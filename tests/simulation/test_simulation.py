"""Everything at once, from a seed: clients that talk, answer, stop, repeat and read, over servers that die, stand still
and lose their store. What happens is random, what must hold is not. `python -m tests.simulation` plays many more.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.extent import extent
from tests.requirements import requirement
from tests.simulation.virtual_loop import LoopStuck, Machine, VirtualLoop, run
from tests.simulation.world import simulate

MOST_REFUSED = 0.6
"""Of what clients ask: who refuses everything keeps all promises."""


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_the_promises_hold(seed: int) -> None:
    outcome = simulate(seed, operations=100, faults=4, places=1)
    assert outcome.refused < MOST_REFUSED * outcome.operations


@requirement("faults:46:jump")
@pytest.mark.parametrize("seed", range(100, 112))
def test_they_hold_with_several_servers_on_one_store(seed: int) -> None:
    outcome = simulate(seed, operations=100, faults=4, places=3)
    assert outcome.refused < MOST_REFUSED * outcome.operations


@pytest.mark.parametrize("places", [1, 3])
def test_a_seed_plays_the_same_again(places: int) -> None:
    """To the moment and the byte of every commit."""
    first, other = (simulate(7, operations=100, faults=6, places=places) for _ in range(2))
    assert other == first
    assert simulate(8, operations=100, faults=6, places=places).digest != first.digest


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, extent(2000, 1020), 20))
def test_whatever_happens_the_promises_hold_for_more_seeds(seed: int) -> None:
    for each in range(seed, seed + 20):
        try:
            simulate(each, operations=200, faults=3)
        except BaseException as error:
            error.add_note(f"seed {each}")
            raise


# --- the loop ---------------------------------------------------------------------------------------------------------


def loop_of(machine_count: int) -> tuple[VirtualLoop, list[Machine]]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop, [Machine(loop, "abc"[number]) for number in range(machine_count)]


def play(world: Coroutine[Any, Any, None]) -> None:
    run(world)


def test_a_paused_machine_is_late_and_a_dead_one_is_gone() -> None:
    async def world() -> None:
        loop, machines = loop_of(3)
        seen: list[tuple[str, float]] = []

        async def tick(name: str) -> None:
            for _ in range(4):
                await asyncio.sleep(1)
                seen.append((name, loop.time()))

        tasks = [machine.run(tick(machine.name)) for machine in machines]
        paused, dead, _ = machines
        await asyncio.sleep(1.5)
        paused.pause()
        dead.kill()
        await asyncio.sleep(10)
        paused.resume()
        await asyncio.wait([tasks[0], tasks[2]])
        assert [at for name, at in seen if name == "a"] == [1, 11.5, 12.5, 13.5]
        assert [at for name, at in seen if name == "b"] == [1]
        assert [at for name, at in seen if name == "c"] == [1, 2, 3, 4]
        assert not tasks[1].done()
        await dead.cancel_remaining_tasks()
        assert tasks[1].cancelled()

    play(world())


def test_a_timer_that_is_due_in_the_moment_of_a_pause_fires_after_it() -> None:
    async def world() -> None:
        loop, (machine,) = loop_of(1)
        loop.call_at(1, machine.pause)
        sleeper = machine.run(asyncio.sleep(1))
        await asyncio.sleep(5)
        assert not sleeper.done()
        machine.resume()
        await asyncio.wait_for(sleeper, 1)

    play(world())


def test_a_machine_that_dies_before_its_first_step_never_takes_it() -> None:
    async def world() -> None:
        _, (machine,) = loop_of(1)
        seen: list[str] = []

        async def begin() -> None:
            seen.append("begun")

        machine.run(begin())
        machine.kill()
        await asyncio.sleep(1)
        await machine.cancel_remaining_tasks()
        assert seen == []

    play(world())


def test_who_waits_for_ever_is_found() -> None:
    async def world() -> None:
        await asyncio.Event().wait()

    with pytest.raises(LoopStuck, match="everybody waits"):
        play(world())
