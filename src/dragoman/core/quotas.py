"""What is left of a caller's limits, for the headers of the answer. Pure."""

from contextvars import ContextVar
from typing import NamedTuple


class Quota(NamedTuple):
    """A limit that the current request was checked against.

    `unit` is what is counted; empty for requests. The times are None for limits on simultaneous things, such as runs.
    """

    name: str
    limit: int
    left: int
    unit: str = ""
    window_s: int | None = None
    resets_in_s: int | None = None


QUOTAS: ContextVar[dict[str, Quota] | None] = ContextVar("quotas", default=None)
"""The limits of the current request, by name; None outside of requests."""


def show_quota(quota: Quota) -> None:
    """Add a limit to the headers of the answer to the current request, or replace it."""
    if (shown := QUOTAS.get()) is not None:
        shown[quota.name] = quota
