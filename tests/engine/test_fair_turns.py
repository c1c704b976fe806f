"""Runs that never wait take turns: a user with many of them gets no more time than one with one."""

import asyncio
from contextlib import suppress

from dragoman.core.ids import UserId
from dragoman.engine.fair_turns import FairTurns
from tests.engine.world import DEADLINE_S

BUSY, OTHER = UserId("busy"), UserId("other")
TURNS = 50


async def test_a_user_with_many_busy_runs_gets_as_many_turns_as_one_with_one() -> None:
    turns, order = FairTurns(), list[UserId]()

    async def work(user: UserId) -> None:
        for _ in range(TURNS):
            await turns.take(user)
            order.append(user)

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        for user in (*[BUSY] * 20, OTHER):
            group.create_task(work(user))
    last = len(order) - order[::-1].index(OTHER)
    assert order[:last].count(BUSY) <= TURNS + 1
    assert (order.count(BUSY), order.count(OTHER)) == (20 * TURNS, TURNS), "nobody was forgotten"


async def test_a_run_that_is_cancelled_while_it_waits_holds_nobody_up() -> None:
    turns, order = FairTurns(), list[int]()

    async def work(number: int) -> None:
        await turns.take(BUSY)
        order.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(5)]
    await asyncio.sleep(0)
    for cancelled in (tasks[1], tasks[3]):
        cancelled.cancel()
    async with asyncio.timeout(DEADLINE_S):
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        await turns.take(BUSY)
    assert order == [0, 2, 4]
