"""Small statistics: quantiles, medians with their ranges, and how late a paced stream is. Pure."""

from collections.abc import Sequence
from math import ceil
from statistics import median

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """The median of several rounds and the range they lay in."""

    median: float
    low: float
    high: float


def spread(rounds: Sequence[float]) -> Spread:
    """The median and the range of `rounds`, which must not be empty."""
    return Spread(median(rounds), min(rounds), max(rounds))


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of `values` does not exceed; the nearest rank, so always one that was seen."""
    ordered = sorted(values)
    rank = ceil(share * len(ordered) - 1e-9)  # 0.07 * 100 is a little more than 7
    return ordered[max(1, rank) - 1]


def lateness(arrivals: Sequence[float], period_s: float) -> list[float]:
    """How long after its ideal time each delta of one stream arrived, in seconds.

    The ideal times are `period_s` apart; the schedule is laid so that the delta that came earliest, measured against
    it, is exactly on time. A server that falls behind, and an agent that drifts, therefore both show as lateness.
    """
    shifted = [arrived - index * period_s for index, arrived in enumerate(arrivals)]
    on_time = min(shifted)
    return [moment - on_time for moment in shifted]


def drift(arrivals: Sequence[float], period_s: float) -> float:
    """How much longer than `period_s` a stream's period was on average, in seconds.

    The ends are taken as medians of a tenth of the stream each, so that one late delta is no drift.
    """
    shifted = [arrived - index * period_s for index, arrived in enumerate(arrivals)]
    tenth = max(1, len(shifted) // 10)
    steps = max(1, len(shifted) - tenth)
    return (median(shifted[-tenth:]) - median(shifted[:tenth])) / steps
