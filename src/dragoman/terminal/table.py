"""A table in lines of text. Pure."""

from collections.abc import Iterator, Sequence


def format_table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table: columns as wide as their longest text, two spaces between them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
