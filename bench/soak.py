"""`python -m bench.soak`: a server under a low, steady load for hours. Nothing that it holds may keep growing.

Many sessions are followed by a stream each, and have a turn from time to time. After some turns a session is deleted
and another one takes its place, so that everything should reach a level: memory, descriptors, threads, tasks, files.
Draws a picture, and fails if the second half of what follows the warm-up is higher than the first.
"""

import argparse
import asyncio
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median

import msgspec
import psutil
import uvloop

from bench import wire
from bench.load import Client, Connection, Session
from bench.streams import emit
from bench.subjects import Dragoman, Workspace

TURNS_PER_SESSION = 6
MAX_TURNS = 32
"""Turns at the same time; on a machine that is too slow the others wait."""
TEXT = emit(20, "word {i3} ", 20)
SAMPLE_INTERVAL_S = 10.0
WARM_UP = 0.4
"""Share of the time in which everything reaches its level."""
MAX_GROWTH = {"memory, MiB": 0.05, "descriptors": 0.02, "threads": 0.0, "tasks": 0.02, "files, MiB": 0.15}
"""How much higher the second half of the rest may be than the first, as a share.

The audit log grows with each deleted session, and with it the pages in the database's cache.
"""
PANEL_WIDTH, PANEL_HEIGHT, MARGIN = 860, 90, 44
STYLE = """<style>
  :root { color-scheme: light dark; } text { fill: #1f2937; font: 14px system-ui, sans-serif; }
  path { fill: none; stroke: #0f766e; stroke-width: 2; } line { stroke: #b9c6c6; }
  @media (prefers-color-scheme: dark) { text { fill: #e5ecec; } path { stroke: #2dd4bf; } line { stroke: #41514f; } }
</style>"""


class Samples(msgspec.Struct):
    """What was measured, at which minutes."""

    minutes: list[float] = []
    values: dict[str, list[float]] = msgspec.field(default_factory=lambda: {name: [] for name in MAX_GROWTH})
    turns: int = 0
    sessions: int = 0

    def growth(self, name: str) -> float:
        """The median of the second half of what follows the warm-up, compared with that of the first half."""
        rest = self.values[name][int(len(self.minutes) * WARM_UP) :]
        first, second = median(rest[: len(rest) // 2]), median(rest[len(rest) // 2 :])
        return second / first - 1

    def failures(self) -> list[str]:
        """The measures that kept growing."""
        return [name for name, allowed in MAX_GROWTH.items() if self.growth(name) > allowed]


class Follower(Connection):
    """Follows a session until it is deleted, and forgets what arrives."""

    def _is_complete(self, data: bytes) -> bool:
        is_complete = super()._is_complete(data)
        del self.times[:-5], self.parts[:-5]
        return is_complete


class Place:
    """A session with a reader. When it has had its turns, it is deleted and replaced."""

    def __init__(self, client: Client, first_turn: int) -> None:
        self._client = client
        self._turns = first_turn
        self._session: Session | None = None
        self._reader: Connection | None = None
        self.is_busy = False

    async def turn(self, connection: Connection, samples: Samples) -> None:
        """Run a turn, and check what was streamed."""
        if self._session is None:
            [self._session] = await self._client.create("paced", 1)
            samples.sessions += 1
        exchange = await connection.exchange(self._client.turn(self._session, TEXT))
        self._client.record_turn(self._session, TEXT, exchange)
        samples.turns += 1
        self._turns += 1
        path = f"/sessions/{self._session.id}"
        if self._reader is None:
            [self._reader] = await self._client.connect(1, Follower)
            self._reader.begin(self._client.request("GET", f"{path}/events"))
        if self._turns >= TURNS_PER_SESSION:
            history = wire.body(await connection.exchange(self._client.request("GET", f"{path}/history?type=full")))
            for _, text in self._session.turns:
                if text.encode() not in history:
                    raise wire.InvalidResponse(f"what was streamed is not in the history of {self._session.id}")
            wire.body(await connection.exchange(self._client.request("DELETE", path)), expected=204)
            self._reader.close()
            self._session = self._reader = None
            self._turns = 0


async def soak(subject: Dragoman, sessions: int, minutes: float, turns_per_s: float) -> Samples:
    """Run the load, and take samples."""
    samples, chance = Samples(), Random(1)
    places = [Place(subject.client, chance.randrange(TURNS_PER_SESSION)) for _ in range(sessions)]
    free = asyncio.Semaphore(MAX_TURNS)
    [counter] = await subject.client.create("task_count", 1)
    begun = time.monotonic()
    async with asyncio.TaskGroup() as group:
        group.create_task(_sample(subject, counter, samples, begun, minutes))
        number = 0
        while time.monotonic() < begun + minutes * 60:
            await asyncio.sleep(max(0.0, begun + number / turns_per_s - time.monotonic()))
            place = places[number % sessions] if number < sessions else chance.choice(places)
            if not place.is_busy:
                await free.acquire()
                group.create_task(_turn(subject.client, place, free, samples))
            number += 1
    return samples


async def _turn(client: Client, place: Place, free: asyncio.Semaphore, samples: Samples) -> None:
    place.is_busy = True
    [connection] = await client.connect(1)  # the server closes those that were idle for long
    await place.turn(connection, samples)
    connection.close()
    place.is_busy = False
    free.release()


async def _sample(subject: Dragoman, counter: Session, samples: Samples, begun: float, minutes: float) -> None:
    process = psutil.Process(subject.server.process.pid)
    while (now := time.monotonic()) < begun + minutes * 60:
        [connection] = await subject.client.connect(1)
        exchange = await connection.exchange(subject.client.turn(counter, "count"))
        measured = {
            "memory, MiB": subject.server.rss_kib() / 1024,
            "descriptors": process.num_fds(),
            "threads": process.num_threads(),
            "tasks": int(wire.text(wire.events(exchange))),
            "files, MiB": sum(each.stat().st_size for each in subject.folder.rglob("*") if each.is_file()) / 2**20,
        }
        connection.close()
        samples.minutes.append((now - begun) / 60)
        for name, value in measured.items():
            samples.values[name].append(value)
        await asyncio.sleep(SAMPLE_INTERVAL_S)


def draw(samples: Samples) -> str:
    """The samples as an SVG: one line for each quantity, over the minutes."""
    names = list(samples.values)
    height = len(names) * (PANEL_HEIGHT + MARGIN) + MARGIN
    last = max(samples.minutes)
    title = f"A server with {samples.turns:,} turns in {samples.sessions:,} sessions, over {last:.0f} minutes"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PANEL_WIDTH + 2 * MARGIN} {height}" role="img">',
        f"<title>{title}</title>",
        STYLE,
    ]
    for place, name in enumerate(names):
        values, bottom = samples.values[name], (place + 1) * (PANEL_HEIGHT + MARGIN)
        top_value = max(values) * 1.1
        points = " ".join(
            f"{MARGIN + minute / last * PANEL_WIDTH:.1f},{bottom - value / top_value * PANEL_HEIGHT:.1f}"
            for minute, value in zip(samples.minutes, values, strict=True)
        )
        parts += [
            f'<text x="{MARGIN}" y="{bottom - PANEL_HEIGHT - 8}">{name}: at most {max(values):,.0f}</text>',
            f'<line x1="{MARGIN}" y1="{bottom}" x2="{MARGIN + PANEL_WIDTH}" y2="{bottom}"/>',
            f'<path d="M{points}"/>',
        ]
    parts.append(f'<text x="{MARGIN}" y="{height - 16}">0 to {last:.0f} minutes; every axis begins at 0</text></svg>')
    return "\n".join(parts) + "\n"


def main() -> int:
    """Run the command. Returns 1 if something kept growing."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--turns-per-s", type=float, default=4)
    parser.add_argument("--svg", type=Path, default=Path("build/soak.svg"), help="where the picture is written")
    given = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    workspace = Workspace(Path("build") / f"soak-{os.getpid()}", cores[0], cores)
    try:
        with Dragoman(workspace) as subject:
            samples = uvloop.run(soak(subject, given.sessions, given.minutes, given.turns_per_s))
    finally:
        shutil.rmtree(workspace.scratch, ignore_errors=True)
    given.svg.parent.mkdir(parents=True, exist_ok=True)
    given.svg.write_text(draw(samples), encoding="utf-8")
    print(f"{samples.turns:,} turns in {samples.sessions:,} sessions; the picture is in {given.svg}")
    for name, values in samples.values.items():
        print(f"{name:14} {min(values):8,.1f} to {max(values):8,.1f}, {samples.growth(name):+.1%}")
    grown: Sequence[str] = samples.failures()
    print(f"kept growing: {', '.join(grown) or 'nothing'}")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
