"""One timer for the time limits of all runs: each run is late after its own time."""

import asyncio

from dragoman.engine.runs.time_limits import TimeLimits

DEADLINE_S = 10


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


async def test_tasks_are_late_in_the_order_in_which_their_time_began() -> None:
    late: list[asyncio.Task[None]] = []
    all_late = asyncio.Event()

    def note(task: asyncio.Task[None]) -> None:
        late.append(task)
        if len(late) == 2:
            all_late.set()

    limits = TimeLimits(0.01, note)
    first, second, ended = (asyncio.create_task(wait_for_ever()) for _ in range(3))
    for task in (first, second, ended, first):  # the first one begins anew
        limits.start(task)
    limits.stop(ended)
    async with asyncio.timeout(DEADLINE_S):
        await all_late.wait()
    assert late == [second, first]
    limits.start(ended)
    limits.close()
    for task in (first, second, ended):
        task.cancel()
