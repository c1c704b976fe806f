"""How a life of the server ends: at a time, at a step, while it starts, or by a normal stop."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.crash.failpoints import FAIL_POINT_KINDS, FailPoint, FailPointKind

LONGEST_LIFE_S = 1.5
"""When a server that never reaches its fail point is killed."""


@dataclass(frozen=True)
class KillAfterReady:
    """SIGKILL some time after the ready line."""

    seconds: float


@dataclass(frozen=True)
class KillWhileStarting:
    """SIGKILL some time after the process was started, ready or not."""

    seconds: float


@dataclass(frozen=True)
class KillAtPoint:
    """SIGKILL by the server itself at a step."""

    point: FailPoint


@dataclass(frozen=True)
class StopGracefully:
    """SIGTERM some time after the ready line, and possibly SIGKILL while it drains."""

    seconds: float
    kill_after: float | None = None


Ending = KillAfterReady | KillWhileStarting | KillAtPoint | StopGracefully


def any_ending(rng: random.Random) -> Ending:
    """A random ending."""
    match rng.randrange(20):
        case 0:
            return StopGracefully(rng.uniform(0.05, 0.5))
        case 1:
            return StopGracefully(rng.uniform(0.05, 0.5), kill_after=rng.uniform(0.0, 0.3))
        case 2:
            return KillWhileStarting(rng.uniform(0.0, 0.8))
        case number if number < 11:
            return KillAfterReady(rng.uniform(0.0, 0.5))
        case _:
            kind: FailPointKind = rng.choice(FAIL_POINT_KINDS)
            limit = {"statement": 600.0, "commit": 120.0, "committed": 120.0, "published": 200.0}[kind]
            return KillAtPoint(FailPoint(kind, max(1, round(limit ** rng.random()))))


def sweep(first: int, every: int) -> Iterator[Ending]:
    """Every step in turn: before the n-th commit, after it, after its publication; then the next n."""
    count = first
    while True:
        for kind in FAIL_POINT_KINDS[1:]:
            yield KillAtPoint(FailPoint(kind, count))
        count += every


def hammer(rng: random.Random) -> Iterator[Ending]:
    """The same early step again and again, so that runs are interrupted more often than the server resumes them."""
    while True:
        kind: FailPointKind = rng.choice(FAIL_POINT_KINDS[1:])
        yield from [KillAtPoint(FailPoint(kind, rng.randint(3, 14)))] * 6
