"""How much the long tests do: a sample in every test run, everything with `make test FULL=1`."""

import os

IS_FULL = bool(os.environ.get("FULL"))


def extent(full: int, sample: int) -> int:
    """Return how many cases a long test plays: all of them, or the sample that every test run can afford."""
    return full if IS_FULL else sample
