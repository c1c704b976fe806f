"""Agents for what the rehearsal agent cannot play: results with pictures, and what an agent knows of a request."""

import json
from collections.abc import AsyncIterator

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
    yield json.dumps(run.props, sort_keys=True)


AGENTS = (gallery, noting)
