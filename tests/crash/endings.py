"""How a life of the server ends: at some time, at some step, while it starts, or as it is told to stop."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.crash.failpoints import FAIL_POINT_KINDS, FailPoint, FailPointKind

LONGEST_LIFE_S = 1.5
"""A server that never comes to its fail point is killed after so long."""


@dataclass(frozen=True)
class KillAfterReady:
    """SIGKILL so long after the ready line."""

    seconds: float


@dataclass(frozen=True)
class KillWhileStarting:
    """SIGKILL so long after the process was started, ready or not."""

    seconds: float


@dataclass(frozen=True)
class KillAtPoint:
    """SIGKILL by itself at a step."""

    point: FailPoint


@dataclass(frozen=True)
class StopGracefully:
    """SIGTERM so long after the ready line, and perhaps SIGKILL while it drains."""

    seconds: float
    kill_after: float | None = None


Ending = KillAfterReady | KillWhileStarting | KillAtPoint | StopGracefully


def any_ending(rng: random.Random) -> Ending:
    """An ending of some kind."""
    match rng.randrange(20):
        case 0:
            return StopGracefully(rng.uniform(0.05, 0.5))
        case 1:
            return StopGracefully(rng.uniform(0.05, 0.5), kill_after=rng.uniform(0.0, 0.3))
        case 2:
            return KillWhileStarting(rng.uniform(0.0, 0.8))
        case kind if kind < 11:
            return KillAfterReady(rng.uniform(0.0, 0.5))
        case _:
            where: FailPointKind = rng.choice(FAIL_POINT_KINDS)
            most = {"statement": 600.0, "commit": 120.0, "committed": 120.0, "published": 200.0}[where]
            return KillAtPoint(FailPoint(where, max(1, round(most ** rng.random()))))


def sweep(first: int, every: int) -> Iterator[Ending]:
    """Every step in turn: before the n-th commit, behind it, behind its publication; then the next n."""
    count = first
    while True:
        for where in FAIL_POINT_KINDS[1:]:
            yield KillAtPoint(FailPoint(where, count))
        count += every


def hammer(rng: random.Random) -> Iterator[Ending]:
    """The same early step again and again, so that runs die more often than they are taken up."""
    while True:
        where: FailPointKind = rng.choice(FAIL_POINT_KINDS[1:])
        yield from [KillAtPoint(FailPoint(where, rng.randint(3, 14)))] * 6
