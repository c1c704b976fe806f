"""`python -m bench --guard`: fail if the costs of streams have grown, as ratios to baseline servers of the same minute.

The accepted ratios are in `guard.json`. A ratio is measured again, up to three times in all, before it counts as grown,
because other programs may interfere; a change that really costs more is above the limit each time.
"""

from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path

import msgspec
import uvloop

from bench import streams
from bench.effort import QUICK
from bench.figures import Figure
from bench.subjects import Workspace

RATIOS_FILE = Path(__file__).with_name("guard.json")
TOLERANCE = 1.4
"""How much larger than accepted a ratio may be: beyond the differences between machines and between runs."""
TRIES = 3
STREAMS = 300
"""Streams of 20 deltas/s, which take a fifth of a core."""
STREAMS_S = 2.0

EFFORT = msgspec.structs.replace(QUICK, burst_s=0.4)
Measurement = Callable[[Workspace], Coroutine[None, None, float]]


class InvalidMeasurement(Exception):
    """Streamed and stored text differ."""


async def _saturation(workspace: Workspace) -> float:
    return _ratio_of(await streams.saturation(workspace, EFFORT))


async def _yielding(workspace: Workspace) -> float:
    return _ratio_of(await streams.yielding(workspace, EFFORT))


async def _sustained_streams(workspace: Workspace) -> float:
    """CPU of paced streams, in place of the number that a core sustains, whose search takes minutes."""
    ours = await streams.measure_capacity(workspace, "dragoman", STREAMS, STREAMS_S)
    baseline = await streams.measure_capacity(workspace, "window", STREAMS, STREAMS_S)
    if ours.invalid:
        raise InvalidMeasurement(ours.invalid)
    return ours.server_share / baseline.server_share


MEASUREMENTS: Mapping[str, Measurement] = {
    "saturation": _saturation,
    "yielding": _yielding,
    "sustained_streams": _sustained_streams,
}


def _ratio_of(figures: list[Figure]) -> float:
    ratio = figures[-1]
    if ratio.invalid:
        raise InvalidMeasurement(ratio.invalid)
    return ratio.value.median


def grown(accepted: Mapping[str, float], measure: Callable[[str], float], report: Callable[[str], object]) -> list[str]:
    """Measure each accepted ratio, again if it is too large.

    Args:
        accepted: the accepted ratios by row.
        measure: measures the ratio of a row.
        report: takes a line for each measurement.

    Returns:
        The rows whose ratio is too large in every try.
    """
    rows = []
    for row, ratio in accepted.items():
        limit = ratio * TOLERANCE
        for number in range(1, TRIES + 1):
            measured = measure(row)
            report(f"{row}: {measured:.2f} × baseline, accepted {ratio:.2f}, limit {limit:.2f} (try {number})")
            if measured <= limit:
                break
        else:
            rows.append(row)
    return rows


def run(workspace: Workspace) -> int:
    """Run the guard. Returns 1 if a ratio has grown."""
    accepted = msgspec.json.decode(RATIOS_FILE.read_bytes(), type=dict[str, float])
    rows = grown(accepted, lambda row: uvloop.run(MEASUREMENTS[row](workspace)), lambda line: print(line, flush=True))
    if rows:
        print(f"slower than accepted: {', '.join(rows)}: find the cause, or accept it in bench/{RATIOS_FILE.name}")
    return 1 if rows else 0
