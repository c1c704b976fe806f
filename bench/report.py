"""Figures as a table on the terminal, as JSON, and as the generated part of `docs/performance.md`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from bench.figures import Figure
from bench.stats import Spread

HEAD = ("row", "subject", "what", "median (range)", "unit", "× tick", "× window", "× each", "target", "verdict", "note")
BEGIN = "<!-- figures: written by `python -m bench --write-docs` -->"
END = "<!-- end of figures -->"


class Report(msgspec.Struct, frozen=True):
    """One run of the benchmark. `others` is the share of the machine that other programs used while each row ran."""

    facts: dict[str, str]
    effort: str
    others: dict[str, float]
    seconds: dict[str, float]
    figures: list[Figure]


def table(report: Report) -> str:
    """The figures as a Markdown table, which also reads well on a terminal."""
    rows = [HEAD, *(_cells(figure) for figure in report.figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def head(report: Report) -> str:
    """The machine's facts and what disturbed the run."""
    lines = [f"- {name}: {value}" for name, value in report.facts.items()]
    lines.append(f"- effort: {report.effort}, {sum(report.seconds.values()):.0f} s")
    lines.append("- other programs used of the machine: " + _shares(report.others))
    return "\n".join(lines)


def write_json(report: Report, file: Path) -> None:
    """Keep the figures for programs."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def write_docs(report: Report, file: Path) -> None:
    """Replace the generated part of the page.

    Raises:
        ValueError: the page lacks its marks.
    """
    before, mark, rest = file.read_text().partition(BEGIN)
    _, end_mark, after = rest.partition(END)
    if not (mark and end_mark):
        raise ValueError(f"{file.name} needs the lines {BEGIN} and {END}")
    file.write_text(f"{before}{BEGIN}\n{head(report)}\n\n{table(report)}\n{END}{after}")


def failures(figures: Iterable[Figure]) -> list[Figure]:
    """What missed its target or does not count."""
    return [figure for figure in figures if figure.verdict in ("FAIL", "void")]


def _cells(figure: Figure) -> Sequence[str]:
    return (
        figure.row,
        figure.subject,
        figure.what,
        _spread(figure.value),
        figure.unit,
        *(_ratio(figure.ratios, mode) for mode in ("tick", "window", "each")),
        str(figure.target) if figure.target else "",
        figure.verdict,
        "; ".join(filter(None, (figure.void, figure.note))),
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
