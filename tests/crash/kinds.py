"""The kinds of campaigns, and how they are divided among servers that run concurrently."""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from tests.crash.campaign import Campaign, Options, Report
from tests.crash.endings import Ending, KillAfterReady, KillAtPoint, StopGracefully, any_ending, hammer, sweep
from tests.crash.failpoints import FailPoint, FailPointKind
from tests.crash.forged import ForgedCampaign


def random_options(seed: int, kills: int) -> Iterator[Options]:
    """Deaths of all kinds on one folder."""
    rng = random.Random(f"endings {seed}")
    yield Options(seed=seed, endings=[any_ending(rng) for _ in range(kills)])


def sweep_options(seed: int, kills: int) -> Iterator[Options]:
    """One step after the other, on one folder. Even and odd seeds take alternating steps."""
    yield Options(seed=seed, endings=list(islice(sweep(1 + seed % 2, 2), kills)), actors=3)


def hammer_options(seed: int, kills: int) -> Iterator[Options]:
    """The same early step again and again, on one folder: servers die before their runs can progress."""
    rng = random.Random(f"hammer {seed}")
    yield Options(seed=seed, endings=list(islice(hammer(rng), kills)), actors=8)


def power_options(seed: int, kills: int) -> Iterator[Options]:
    """Deaths of the machine, which also discard what was not synced."""
    rng = random.Random(f"power {seed}")
    yield Options(
        seed=seed,
        endings=[
            ending for ending in (any_ending(rng) for _ in range(5 * kills)) if not isinstance(ending, StopGracefully)
        ][:kills],
        loses_power=True,
    )


def first_start_options(seed: int, kills: int) -> Iterator[Options]:
    """Deaths while the data folder is created, each on a new folder."""
    rng = random.Random(f"first {seed}")
    for number in range(kills):
        kind: FailPointKind = rng.choice(("statement", "statement", "commit", "committed"))
        limit = 40 if kind == "statement" else 3
        point = FailPoint(kind, rng.randint(1, limit))
        yield Options(seed=seed * 1000 + number, endings=[KillAtPoint(point)], actors=0)


def stop_options(seed: int, kills: int) -> Iterator[Options]:
    """Servers that are asked to stop under load; some are killed while they drain."""
    rng = random.Random(f"stop {seed}")
    endings: list[Ending] = [
        StopGracefully(rng.uniform(0.1, 0.6), rng.choice([None, None, rng.uniform(0, 0.4)])) for _ in range(kills)
    ]
    yield Options(seed=seed, endings=endings, actors=8)


def time_options(seed: int, kills: int) -> Iterator[Options]:
    """Deaths at random times only."""
    rng = random.Random(f"time {seed}")
    yield Options(seed=seed, endings=[KillAfterReady(rng.uniform(0.05, 0.5)) for _ in range(kills)])


OPTIONS: Mapping[str, Callable[[int, int], Iterator[Options]]] = MappingProxyType(
    {
        "random": random_options,
        "sweep": sweep_options,
        "hammer": hammer_options,
        "power": power_options,
        "first-start": first_start_options,
        "stop": stop_options,
        "time": time_options,
    }
)
FORGED = "forged"
"""People decide about payments while somebody forges answers: a campaign of its own."""
KINDS = (*OPTIONS, FORGED)


async def run(kind: str, folder: Path, *, seed: int, kills: int, shards: int) -> Report:
    """Run campaigns of a kind concurrently. The kills are divided among them; shard n has seed `seed + n`."""
    total = Report()
    share = -(-kills // shards)
    for report in await asyncio.gather(
        *(_shard(kind, folder / f"{kind}-{seed + shard}", seed + shard, share) for shard in range(shards))
    ):
        total.add(report)
    return total


def campaigns(kind: str, folder: Path, seed: int, kills: int) -> Iterator[Campaign | ForgedCampaign]:
    """The campaigns of one shard."""
    if kind == FORGED:
        yield ForgedCampaign(folder, seed=seed, kills=kills)
        return
    for options in OPTIONS[kind](seed, kills):
        yield Campaign(folder / str(options.seed), options)


async def _shard(kind: str, folder: Path, seed: int, kills: int) -> Report:
    total = Report()
    for campaign in campaigns(kind, folder, seed, kills):
        report = await campaign.play()
        total.add(report)
        if report.faults:
            command = f"python -m tests.crash --kind {kind} --seed {seed} --kills {kills} --shards 1"
            total.faults.append(f"to repeat it: {command}")
            break
    return total
