"""Agents for what the rehearsal agent cannot play: results with pictures, and what an agent knows of a request."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from dragoman import Image, Run, Text, agent, tool


@tool
def picture() -> list[Text | Image]:
    """Show a picture."""
    return [Text("look: "), Image("data:image/png;base64,aGk=")]


@agent("gallery", tools=[picture])
async def gallery(run: Run) -> AsyncIterator[str]:
    """Show a picture and say nothing about it."""
    await run.call("picture")
    yield "there"


@agent("noting")
async def noting(run: Run) -> AsyncIterator[str]:
    """Say what came along with the request."""
    yield json.dumps(msgspec.to_builtins(run.metadata), sort_keys=True)


@agent("counting")
async def counting(run: Run) -> AsyncIterator[str]:
    """Count in the state that is shared with the page."""
    before = run.state["count"] if run.state else 0
    run.share({"count": before + 1, "nothing": None})
    yield f"{run.state['count']} "
    run.share({"count": before + 2, "nothing": None})
    yield f"{run.state['count']}"


@agent("asking")
async def asking(run: Run) -> AsyncIterator[str]:
    """Count in the state that is shared with the page, on both sides of a question."""
    before = run.state["count"] if run.state else 0
    run.share({"count": before + 1})
    await run.ask("Go on?", ["yes", "no"])
    run.share({"count": before + 2})
    yield f"{run.state['count']}"


@agent("editing")
async def editing(run: Run) -> AsyncIterator[str]:
    """Change parts of a large state: members, items, and names with characters that paths escape."""
    rows: list[Any] = [{"text": "x" * 500, "done": False} for _ in range(3)]
    run.share({"rows": rows, "a/b~c": 1, "old": None})
    yield "one "
    run.share({"rows": [*rows[:2], {**rows[2], "done": True}, {"text": "new"}], "a/b~c": True, "new": None})
    yield "two "
    run.share({"rows": [*rows[:1]], "a/b~c": True})
    yield "three"


AGENTS = (gallery, noting, counting, asking, editing)
