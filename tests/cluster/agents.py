"""What the servers of a campaign serve: an agent that speaks and acts by turns, and notes each act in a file."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

from dragoman import Run, ToolContext, agent, tool

NOTES = "CLUSTER_NOTES"
"""The environment's variable that names the file of notes."""
STEPS = 4
DELTA_INTERVAL_S = 0.05


@tool(exposed=False, idempotent=True)
async def act(place: int, context: ToolContext) -> str:
    """Do something that others can see."""
    note(call=context.call_id, run=context.run_id, process=os.getpid())
    await asyncio.sleep(DELTA_INTERVAL_S)
    return f"did {place}"


@agent(tools=[act])
async def worker(run: Run) -> AsyncIterator[str]:
    """Repeats its input, and does something after each word."""
    for place in range(STEPS):
        for part in range(3):
            note(said=f"{run.text} {place}.{part}")
            yield f"{run.text} {place}.{part} "
            await asyncio.sleep(DELTA_INTERVAL_S)
        yield f"({await run.call(act, place=place)}) "


def note(**what: object) -> None:
    """Write down what is done now."""
    with Path(os.environ[NOTES]).open("a", encoding="utf-8") as notes:
        notes.write(json.dumps({**what, "at": time.time()}) + "\n")
