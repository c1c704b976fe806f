"""Benchmark of remote agents: what a delta costs a server that passes it on.

Beyond what the client library costs alone, and what the delta of a local agent costs a server, there is little left.
"""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from operator import neg
from typing import get_args

from bench.effort import Effort
from bench.figures import Figure, Target
from bench.stats import spread
from bench.streams import emit
from bench.subjects import Dragoman, Workspace
from dragoman.client import AsyncClient
from dragoman.client.transports import ClientProtocol

SESSIONS = 40
PERIOD_MS = 4
SHORT_DELTAS, LONG_DELTAS = 50, 450
"""The deltas of the turns that are compared, so that the cost of a turn itself does not count."""
TARGET_US = 15.0


async def gateway(workspace: Workspace, effort: Effort) -> list[Figure]:
    """CPU per delta of a server with a remote agent, minus those of the client library and of a local agent."""
    with ExitStack() as running:
        remote = running.enter_context(Dragoman(workspace))
        url = f"http://{remote.server.host}:{remote.server.port}"
        os.environ |= {"BENCH_REMOTE_URL": url, "BENCH_REMOTE_KEY": remote.key}
        ours = running.enter_context(Dragoman(workspace, agents="remote_agents.py"))
        our_url = f"http://{ours.server.host}:{ours.server.port}"
        locally, figures = [], []
        for protocol in get_args(ClientProtocol):
            base = "/ag-ui/paced" if protocol == "ag-ui" else ""
            local, alone, whole = [], [], []
            for _ in range(max(1, effort.rounds // 2)):  # side by side: what else the machine does concerns all three
                async with AsyncClient(url, key=remote.key) as client:
                    local.append(await _per_delta(client, "paced", remote.server.cpu_s))
                async with AsyncClient(url + base, key=remote.key, protocol=protocol) as client:
                    alone.append(await _per_delta(client, "paced", time.process_time))
                async with AsyncClient(our_url, key=ours.key) as client:
                    whole.append(await _per_delta(client, f"remote-{protocol}", ours.server.cpu_s))
            locally += local
            figures.append(_figure(protocol, "client alone", alone, None))
            extra = [sum(each) for each in zip(whole, map(neg, alone), map(neg, local), strict=True)]
            figures.append(_figure(protocol, "a remote agent, beyond both", extra, Target(TARGET_US)))
        figures.insert(0, _figure("aap", "a local agent", locally, None))
    return figures


def _figure(protocol: ClientProtocol, subject: str, costs: list[float], target: Target | None) -> Figure:
    return Figure(
        row="gateway",
        subject=f"{protocol}: {subject}",
        metric="CPU per delta",
        unit="µs",
        value=spread(costs),
        target=target,
    )


async def _per_delta(client: AsyncClient, agent: str, cpu_s: Callable[[], float]) -> float:
    """The CPU time of a delta in microseconds."""
    short = await _cpu_of_turns(client, agent, SHORT_DELTAS, cpu_s)
    long = await _cpu_of_turns(client, agent, LONG_DELTAS, cpu_s)
    return (long - short) / (SESSIONS * (LONG_DELTAS - SHORT_DELTAS)) * 1e6


async def _cpu_of_turns(client: AsyncClient, agent: str, deltas: int, cpu_s: Callable[[], float]) -> float:
    sessions = [await client.create(agent) for _ in range(SESSIONS)]
    text = emit(deltas, "abcd ", PERIOD_MS)
    before = cpu_s()
    replies = await asyncio.gather(*(session.ask(text) for session in sessions))
    used = cpu_s() - before
    if {reply.text for reply in replies} != {"abcd " * deltas}:
        raise RuntimeError("the streamed text differs from what the agent said")
    return used
