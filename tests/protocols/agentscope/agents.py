"""Agents for what the rehearsal agent does not show: what a request contained, and every kind of content."""

import json
from typing import Any

import msgspec

from dragoman import Run as FunctionRun
from dragoman import agent
from dragoman.core.agent import Run
from dragoman.core.content import Data, File, Image, Text
from tests.protocols.mirror_agent import MirrorAgent

MEDIA = (
    Text("look"),
    Image("https://example.org/a.png"),
    Data({"k": [1]}),
    File("https://example.org/a.mp3", media="audio", media_type="audio/mp3"),
    File("https://example.org/a.mp4", media="video"),
    File("https://example.org/a.pdf", name="a.pdf"),
    Text("done"),
)


class EchoRequestAgent(MirrorAgent):
    """Shows whole tools, and what applications forward."""

    media = MEDIA

    def tools(self, run: Run) -> Any:
        return [msgspec.to_builtins(tool) for tool in run.offered_tools()]

    def metadata(self, run: Run) -> Any:
        return {"user": run.metadata.user, "forwarded": run.metadata.forwarded}


@agent(name="memory_writer", memory=True)
async def memory_writer(run: FunctionRun) -> None:
    """Writes one memory."""
    await run.remember("likes tea", reason="said so")


@agent(name="picker", client_tools=True)
async def picker(run: FunctionRun) -> None:
    """Calls a client tool twice, then reports the results and the model parameters of its last run."""
    picked = [await run.call("pick"), await run.call("pick")]
    run.emit(json.dumps({"picked": picked, "parameters": run.parameters}))


AGENTS = (EchoRequestAgent(), memory_writer, picker)
