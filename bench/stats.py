"""Statistics: quantiles, medians with ranges, and the lateness of paced streams. Pure."""

from collections.abc import Sequence
from math import ceil
from statistics import median

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """The median and the range of several rounds."""

    median: float
    low: float
    high: float


def spread(rounds: Sequence[float]) -> Spread:
    """The median and the range of `rounds`, which must not be empty."""
    return Spread(median(rounds), min(rounds), max(rounds))


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of `values` does not exceed. Nearest rank, so it is always one of the values."""
    ordered = sorted(values)
    rank = ceil(share * len(ordered) - 1e-9)  # 0.07 * 100 is slightly more than 7
    return ordered[max(1, rank) - 1]


def lateness(arrivals: Sequence[float], period_s: float) -> list[float]:
    """The delay of each delta of a stream after its ideal time, in seconds.

    The ideal times are `period_s` apart, and the schedule is shifted so that the relatively earliest delta is exactly
    on time. Lateness therefore includes both a server that falls behind and an agent that drifts.
    """
    shifted = [arrived - index * period_s for index, arrived in enumerate(arrivals)]
    on_time = min(shifted)
    return [moment - on_time for moment in shifted]


def drift(arrivals: Sequence[float], period_s: float) -> float:
    """The difference between a stream's average period and `period_s`, in seconds.

    Beginning and end are medians of a tenth of the stream each, so that a single late delta does not count as drift.
    """
    shifted = [arrived - index * period_s for index, arrived in enumerate(arrivals)]
    tenth = max(1, len(shifted) // 10)
    steps = max(1, len(shifted) - tenth)
    return (median(shifted[-tenth:]) - median(shifted[:tenth])) / steps
