"""The agents of the benchmark, served by Dragoman next to the rehearsal agent."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator

from dragoman import Run, agent


@agent(history=True)
async def yielding(run: Run) -> AsyncIterator[str]:
    """Plays the `emit` steps of a script, and yields to the event loop once per delta."""
    for step in json.loads(run.text)["script"]:
        emit = step["emit"]
        for _ in range(emit["count"]):
            await asyncio.sleep(0)
            yield emit["text"]


@agent(history=True)
async def paced(run: Run) -> AsyncIterator[str]:
    """Plays the `emit` steps of a script on an absolute schedule, so that delays do not accumulate."""
    for delay_s, index, text in _schedule(run):
        await asyncio.sleep(delay_s)
        yield text.replace("{i3}", f"{index:03}")


@agent(history=True)
async def timestamped(run: Run) -> AsyncIterator[str]:
    """Plays the `emit` steps of a script on an absolute schedule. Each delta is the time at which it is emitted."""
    for delay_s, _, _ in _schedule(run):
        await asyncio.sleep(delay_s)
        yield f"{time.perf_counter():.6f} "


@agent(history=True)
async def clock(run: Run) -> AsyncIterator[str]:
    """After a pause, emits the current time on the clock that all processes of the machine share."""
    await asyncio.sleep(0.02)
    yield str(time.perf_counter())


@agent
async def task_count(run: Run) -> AsyncIterator[str]:
    """Emits the number of asyncio tasks of the server."""
    del run
    yield str(len(asyncio.all_tasks()))


def _schedule(run: Run) -> Iterator[tuple[float, int, str]]:
    """For each delta: the delay in seconds until it is due, its index, and its text."""
    now = asyncio.get_running_loop().time
    for step in json.loads(run.text)["script"]:
        emit = step["emit"]
        begin, period_s = now(), emit["every_ms"] / 1000
        for index in range(emit["count"]):
            yield max(0.0, begin + (index + 1) * period_s - now()), index, emit["text"]
