"""Ordered ranges of a log's events, such as those that a branch hides. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter

Ranges = Sequence[tuple[int, int]]
"""First and last event of each range, both included. They do not overlap, and the oldest comes first."""

_first = itemgetter(0)


def range_with(ranges: Ranges, seq: int) -> tuple[int, int] | None:
    """The range that contains an event."""
    place = bisect_right(ranges, seq, key=_first) - 1
    return ranges[place] if place >= 0 and seq <= ranges[place][1] else None


def contains(ranges: Ranges, seq: int) -> bool:
    """Whether one of the ranges contains an event."""
    return bool(ranges) and range_with(ranges, seq) is not None


def newest_outside(ranges: Ranges, seqs: Sequence[int], end: int) -> int:
    """The place of the newest of the first `end` of these events that is in none of the ranges; -1 if there is none.

    The events are in their order.
    """
    place = end - 1
    while place >= 0 and (hiding := range_with(ranges, seqs[place])) is not None:
        place = bisect_left(seqs, hiding[0]) - 1
    return place
