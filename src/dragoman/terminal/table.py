"""Formats tables as lines of text. Pure."""

from collections.abc import Iterator, Sequence


def format_table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table. Columns are as wide as their longest text, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
