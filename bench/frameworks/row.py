"""Benchmark of agents of frameworks: what a delta costs beyond the framework itself and an agent of our own."""

import gc
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from operator import neg
from typing import Any

from bench.effort import Effort
from bench.figures import Figure, Target
from bench.stats import spread
from bench.streams import emit
from bench.subjects import Dragoman, Workspace
from dragoman.client import AsyncClient
from dragoman.server.runner import GC_THRESHOLDS

SHORT_DELTAS, LONG_DELTAS = 2000, 22_000
"""The deltas of the turns that are compared, so that the cost of a turn itself does not count."""
TARGET_US = 20.0

Turn = Callable[[str], Awaitable[str]]
"""Plays a script, and returns the text that was streamed."""


async def frameworks(workspace: Workspace, effort: Effort) -> list[Figure]:
    """CPU per delta of a server, minus those of the framework's own fastest stream and of an agent of our own."""
    figures = []
    with ExitStack() as running:
        server = running.enter_context(Dragoman(workspace, agents="frameworks/served.py"))
        url = f"http://{server.server.host}:{server.server.port}"
        async with AsyncClient(url, key=server.key) as client:

            async def measured(agent: str) -> float:
                async def turn(text: str) -> str:
                    return (await (await client.create(agent)).ask(text)).text

                return await _per_delta(turn, server.server.cpu_s)

            for name, stream in _streams().items():
                own, alone, whole = [], [], []
                for _ in range(max(1, effort.rounds // 2)):
                    own.append(await measured("rehearsal"))
                    with _garbage_collected_as_in_the_server():
                        alone.append(await _per_delta(stream, time.process_time))
                    whole.append(await measured(name))
                extra = [sum(each) for each in zip(whole, map(neg, alone), map(neg, own), strict=True)]
                figures.append(_figure(f"{name}: the framework alone", alone, None))
                figures.append(_figure(f"{name}: served, beyond both", extra, Target(TARGET_US)))
    return figures


@contextmanager
def _garbage_collected_as_in_the_server() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _figure(subject: str, costs: list[float], target: Target | None) -> Figure:
    return Figure(
        row="frameworks", subject=subject, metric="CPU per delta", unit="µs", value=spread(costs), target=target
    )


async def _per_delta(turn: Turn, cpu_s: Callable[[], float]) -> float:
    """The CPU time of a delta in microseconds."""
    used = []
    for deltas in (SHORT_DELTAS, LONG_DELTAS):
        before = cpu_s()
        if await turn(emit(deltas, "abcd ")) != "abcd " * deltas:
            raise RuntimeError("the streamed text differs from what the agent said")
        used.append(cpu_s() - before)
    return (used[1] - used[0]) / (LONG_DELTAS - SHORT_DELTAS) * 1e6


def _streams() -> Mapping[str, Turn]:
    """The fastest stream of each framework."""
    from agents import RunConfig, Runner
    from langchain_core.messages import HumanMessage
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

    from bench.frameworks import served

    async def pydantic_ai(text: str) -> str:
        parts: list[str] = []

        async def hear(_: object, events: AsyncIterable[Any]) -> None:
            async for event in events:
                if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    parts.append(event.delta.content_delta)
                elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    parts.append(event.part.content)

        await served.pydantic_ai.run(text, event_stream_handler=hear)
        return "".join(parts)

    async def langgraph(text: str) -> str:
        stream = served.langgraph.astream({"messages": [HumanMessage(text)]}, stream_mode="messages")
        parts: list[Any] = [part async for part in stream]
        return "".join([chunk.content for chunk, _ in parts])

    async def openai_agents(text: str) -> str:
        result = Runner.run_streamed(served.openai_agents, text, run_config=RunConfig(tracing_disabled=True))
        return "".join(
            [
                event.data.delta
                async for event in result.stream_events()
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
            ]
        )

    return {"pydantic_ai": pydantic_ai, "langgraph": langgraph, "openai_agents": openai_agents}
