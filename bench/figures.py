"""What a row gives: figures with their spread, their ratio to the limit rows, and a verdict. Pure."""

from typing import Literal

import msgspec

from bench.stats import Spread

Verdict = Literal["pass", "FAIL", "void", "-"]


class Target(msgspec.Struct, frozen=True):
    """What the figure has to reach. `note` says where it is weaker or stronger than it looks."""

    bound: float
    at_least: bool = False
    note: str = ""

    def is_met_by(self, value: float) -> bool:
        """Whether a value reaches the target."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}{' ' + self.note if self.note else ''}"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table.

    `ratios` are the figure over that of each limit row, taken round by round in the same run. `void` says why a figure
    does not count: what was streamed and what is stored differ, or the load generator itself was the bottleneck.
    """

    row: str
    subject: str
    what: str
    unit: str
    value: Spread
    ratios: dict[str, Spread] = {}
    target: Target | None = None
    void: str = ""
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """`-` where nothing is demanded; a figure that does not count has not passed."""
        if self.void:
            return "void"
        if self.target is None:
            return "-"
        return "pass" if self.target.is_met_by(self.value.median) else "FAIL"
