"""Figures as a table on the terminal, as JSON, and as the generated part of `docs/performance.md`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from bench.figures import Figure
from bench.stats import Spread

HEAD = (
    "row",
    "subject",
    "metric",
    "median (range)",
    "unit",
    "× tick",
    "× window",
    "× each",
    "target",
    "verdict",
    "note",
)
BEGIN = "<!-- figures: written by `python -m bench --write-docs` -->"
END = "<!-- end of figures -->"


class Report(msgspec.Struct, frozen=True):
    """One run of the benchmark. `foreign_load` is the share of the CPU that other programs used during each row."""

    facts: dict[str, str]
    effort: str
    foreign_load: dict[str, float]
    seconds: dict[str, float]
    figures: list[Figure]


def table(report: Report) -> str:
    """The figures as a Markdown table, aligned for reading in a terminal."""
    rows = [HEAD, *(_cells(figure) for figure in report.figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def head(report: Report) -> str:
    """The machine's properties and the load by other programs."""
    lines = [f"- {name}: {value}" for name, value in report.facts.items()]
    lines.append(f"- effort: {report.effort}, {sum(report.seconds.values()):.0f} s")
    lines.append("- CPU used by other programs: " + _shares(report.foreign_load))
    return "\n".join(lines)


def write_json(report: Report, file: Path) -> None:
    """Write the report as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def write_docs(report: Report, file: Path) -> None:
    """Replace the generated part of the page.

    Raises:
        ValueError: the page lacks the markers.
    """
    before, begin_marker, rest = file.read_text().partition(BEGIN)
    _, end_marker, after = rest.partition(END)
    if not (begin_marker and end_marker):
        raise ValueError(f"{file.name} must contain the lines {BEGIN} and {END}")
    file.write_text(f"{before}{BEGIN}\n{head(report)}\n\n{table(report)}\n{END}{after}")


def failures(figures: Iterable[Figure]) -> list[Figure]:
    """The figures that missed their target or are invalid."""
    return [figure for figure in figures if figure.verdict in ("FAIL", "invalid")]


def _cells(figure: Figure) -> Sequence[str]:
    return (
        figure.row,
        figure.subject,
        figure.metric,
        _spread(figure.value),
        figure.unit,
        *(_ratio(figure.ratios, mode) for mode in ("tick", "window", "each")),
        str(figure.target) if figure.target else "",
        figure.verdict,
        "; ".join(filter(None, (figure.invalid, figure.note))),
    )


def _ratio(ratios: Mapping[str, Spread], mode: str) -> str:
    return _number(ratios[mode].median) if mode in ratios else ""


def _spread(value: Spread) -> str:
    if value.low == value.high:
        return _number(value.median)
    return f"{_number(value.median)} ({_number(value.low)}..{_number(value.high)})"


def _number(value: float) -> str:
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
