"""Benchmark of Blade: the cost of a delta over Socket.IO on a WebSocket."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect

from bench import load, wire
from bench.effort import Effort
from bench.figures import Figure, Target
from bench.load import Burst, Session, clock
from bench.stats import spread
from bench.streams import CONNECTIONS, TURN_DELTAS, emit
from bench.subjects import Dragoman, Workspace

TARGET_US = 6
AGENTS = ("rehearsal", "yielding")
"""An agent that never waits, and one that yields to the event loop once per delta."""
_PATCH = b'42["turn:patch"'
_END = b'42["chat:end"'


async def blade(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta, over 32 sockets, with durable storage."""
    return [await _row(workspace, effort, agent) for agent in AGENTS]


async def _row(workspace: Workspace, effort: Effort, agent: str) -> Figure:
    text = emit(TURN_DELTAS, "abcd ")
    with Dragoman(workspace) as ours:
        async with AsyncExitStack() as stack:
            sockets = [await _open_socket(stack, ours, agent) for _ in range(CONNECTIONS)]
            costs: list[float] = []
            rates: list[float] = []
            patches: list[float] = []
            for number in range(effort.rounds + 1):
                burst, count = await _saturate(ours, sockets, text, effort.burst_s if number else 0.3)
                if number:  # the first round warms up
                    deltas = burst.turns * TURN_DELTAS
                    costs.append(burst.cpu_s / deltas * 1e6)
                    rates.append(deltas / burst.seconds)
                    patches.append(count / burst.turns)
        invalid = await ours.verify([session for _, session in sockets])
    return Figure(
        row="blade",
        subject=ours.name,
        metric=f"server CPU per delta, agent {agent}",
        unit="µs",
        value=spread(costs),
        target=Target(TARGET_US),
        invalid=invalid,
        note=f"{spread(rates).median:,.0f} deltas/s, {spread(patches).median:.0f} patches per chat",
    )


async def _open_socket(stack: AsyncExitStack, ours: Dragoman, agent: str) -> tuple[ClientConnection, Session]:
    """Open a socket that is subscribed to its own new session."""
    host = f"{ours.server.host}:{ours.server.port}"
    [http] = await ours.client.connect(1)
    body = msgspec.json.encode({"solution_id": agent, "memory_enabled": False})
    answer = await http.exchange(wire.request("POST", "/api/sessions", key=ours.key, body=body))
    name = msgspec.json.decode(wire.body(answer))["session_id"]
    socket = await stack.enter_async_context(
        connect(
            f"ws://{host}/socket.io/?EIO=4&transport=websocket",
            max_size=None,
            max_queue=None,  # with a full queue of unread frames, a close would wait 10 s for the server's
            compression=None,
            ping_interval=None,
        )
    )
    await socket.recv()
    await socket.send("40" + _json_text({"token": ours.key}))
    await socket.recv()
    await socket.send("42" + _json_text(["session:subscribe", {"session_id": name}]))
    return socket, Session(name.removeprefix("sess_"))


async def _saturate(
    ours: Dragoman, sockets: Sequence[tuple[ClientConnection, Session]], text: str, seconds: float
) -> tuple[Burst, int]:
    """As `load.saturate`. Also returns the number of patches. Frames are parsed after the measurement."""
    seen: list[tuple[Session, list[bytes]]] = []

    async def chats(socket: ClientConnection, session: Session) -> None:
        message = "42" + _json_text(["chat:send", {"session_id": f"sess_{session.id}", "message": text}])
        while clock() < end:
            await socket.send(message)
            frames: list[bytes] = []
            while not (frames and frames[-1].startswith(_END)):
                frame = await socket.recv(decode=False)
                if frame == b"2":
                    await socket.send("3")
                frames.append(frame)
            seen.append((session, frames))

    cpu, own_cpu, begin = ours.server.cpu_s(), time.process_time(), clock()
    end = begin + seconds
    await load.run_concurrently(chats(socket, session) for socket, session in sockets)
    elapsed = clock() - begin
    await asyncio.sleep(0.05)  # include the work that the server does after its responses
    cpu, own_cpu = ours.server.cpu_s() - cpu, time.process_time() - own_cpu
    patches = 0
    for session, frames in seen:
        deltas = [msgspec.json.decode(frame[2:])[1]["data"] for frame in frames if frame.startswith(_PATCH)]
        session.turns.append((text, "".join(data["text_delta"] for data in deltas)))
        patches += len(deltas)
    return Burst(len(seen), elapsed, cpu, own_cpu), patches


def _json_text(value: Any) -> str:  # noqa: ANN401  # any JSON
    return msgspec.json.encode(value).decode()
