"""How much the long tests do: a sample in every test run, everything with `make test FULL=1`."""

import os
from collections.abc import Sequence
from typing import TypeVar

IS_FULL = bool(os.environ.get("FULL"))
_CaseT = TypeVar("_CaseT")


def extent(full: int, sample: int) -> int:
    """Return how many cases a long test plays: all of them, or the sample that every test run can afford."""
    return full if IS_FULL else sample


def sampled(cases: Sequence[_CaseT], every: int) -> Sequence[_CaseT]:
    """Return the cases that are played: all of them, or one in so many, the first among them."""
    return cases if IS_FULL else cases[::every]
