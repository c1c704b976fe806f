"""The benchmark's own agents, served by Dragoman beside the rehearsal agent."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

from dragoman import Run, agent


@agent(history=True)
async def tick(run: Run) -> AsyncIterator[str]:
    """Plays the `emit` steps of a script and gives way to the event loop once for each delta."""
    for step in json.loads(run.text)["script"]:
        emit = step["emit"]
        for _ in range(emit["count"]):
            await asyncio.sleep(0)
            yield emit["text"]


@agent(history=True)
async def paced(run: Run) -> AsyncIterator[str]:
    """Plays the `emit` steps of a script on an absolute schedule: an agent that never falls behind by itself."""
    now = asyncio.get_running_loop().time
    for step in json.loads(run.text)["script"]:
        emit = step["emit"]
        begin, period_s = now(), emit["every_ms"] / 1000
        for index in range(emit["count"]):
            await asyncio.sleep(max(0.0, begin + (index + 1) * period_s - now()))
            yield emit["text"].replace("{i3}", f"{index:03}")


@agent(history=True)
async def clock(run: Run) -> AsyncIterator[str]:
    """After a pause, says the moment at which it speaks, on the clock that all processes of a machine share."""
    await asyncio.sleep(0.02)
    yield str(time.perf_counter())


@agent(history=True)
async def stamped(run: Run) -> AsyncIterator[str]:
    """Plays the `emit` steps of a script on an absolute schedule; each delta is the moment at which it is said."""
    now = asyncio.get_running_loop().time
    for step in json.loads(run.text)["script"]:
        emit = step["emit"]
        begin, period_s = now(), emit["every_ms"] / 1000
        for index in range(emit["count"]):
            await asyncio.sleep(max(0.0, begin + (index + 1) * period_s - now()))
            yield f"{time.perf_counter():.6f} "
