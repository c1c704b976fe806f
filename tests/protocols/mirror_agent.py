"""An agent that shows what a request contained."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from dragoman.core.agent import Agent, Run, RunnableTool
from dragoman.core.content import Block, Call, UserMessage, text_of
from dragoman.core.events import StopReason
from dragoman.core.tools import AgentSpec, Capabilities


class MirrorAgent:
    """Answers with a part of its input as JSON: `parameters`, `tools`, `metadata`, `history`, or the user's content.

    `media` is answered with some blocks.
    """

    spec = AgentSpec(
        name="mirror",
        aliases=("looking-glass",),
        capabilities=Capabilities(client_tools=True, image_http=True, image_data=True),
    )
    media: Sequence[Block] = ()

    def tool(self, name: str) -> RunnableTool | None:
        return None

    def child(self, call: Call) -> Agent | None:
        return None

    def tools(self, run: Run) -> Any:
        """What `tools` is answered with."""
        return [tool.name for tool in run.offered_tools()]

    def metadata(self, run: Run) -> Any:
        """What `metadata` is answered with."""
        return {"user": run.metadata.user, "instructions": run.metadata.instructions}

    async def play(self, run: Run) -> StopReason | None:
        prompt = [each for each in await run.turn() if isinstance(each, UserMessage)][-1].content
        match text_of(prompt):
            case "parameters":
                run.emit(json.dumps(run.parameters))
            case "metadata":
                run.emit(json.dumps(self.metadata(run)))
            case "tools":
                run.emit(json.dumps(self.tools(run)))
            case "history":
                messages = [[type(each).__name__, text_of(each.content)] async for each in run.history()]
                run.emit(json.dumps(messages[::-1]))
            case "media":
                for block in self.media:
                    run.add(block)
            case _:
                run.emit(json.dumps(msgspec.to_builtins(prompt)))
        await run.end_step()
        return None
