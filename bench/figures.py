"""The results of a row: figures with their spread, their ratio to the baseline servers, and a verdict. Pure."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from bench.stats import Spread, spread

Verdict = Literal["pass", "FAIL", "invalid", "-"]


class Target(msgspec.Struct, frozen=True):
    """The bound that a figure must meet. `note` explains it where necessary."""

    bound: float
    at_least: bool = False
    note: str = ""

    def is_met_by(self, value: float) -> bool:
        """Whether a value meets the target."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}{' ' + self.note if self.note else ''}"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table.

    `ratios` relate the figure to each baseline server, round by round in the same run. `invalid` says why the figure
    must be ignored: streamed and stored text differ, or the row failed.
    """

    row: str
    subject: str
    metric: str
    unit: str
    value: Spread
    ratios: dict[str, Spread] = {}
    target: Target | None = None
    invalid: str = ""
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """`-` if there is no target."""
        if self.invalid:
            return "invalid"
        if self.target is None:
            return "-"
        return "pass" if self.target.is_met_by(self.value.median) else "FAIL"


def single_round(
    row: str, subject: str, size: str, lines: Iterable[tuple[str, str, float, Target | None, str]], *, invalid: str
) -> list[Figure]:
    """Figures that were measured in one round.

    Args:
        row: the row.
        subject: what was measured.
        size: of the round, such as `1,000 readers`.
        lines: metric, unit, value, target and note of each.
        invalid: as in `Figure`.
    """
    return [
        Figure(
            row=row,
            subject=subject,
            metric=f"{metric}, {size}",
            unit=unit,
            value=spread([value]),
            target=target,
            invalid=invalid,
            note=note,
        )
        for metric, unit, value, target, note in lines
    ]
