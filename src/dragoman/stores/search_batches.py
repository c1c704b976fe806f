"""How sessions are indexed for searches: bounds of the work, the same for every database. Pure."""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

COMMIT_SESSIONS = 32
COMMIT_CHARS = 16 * 1024
"""Bounds of what one transaction indexes: a few milliseconds."""
SEPARATOR = "\x1f"
"""Stands between texts, so that no search matches across two of them."""
MAX_SEARCH_TRIGRAMS = 32
"""Trigrams of a query that are looked up; the texts that have them are compared with all of it."""


class HasText(Protocol):
    """Texts of a session to index."""

    @property
    def text(self) -> str:
        """The texts, joined."""


AdditionT = TypeVar("AdditionT", bound=HasText)


def commits(batch: Sequence[AdditionT]) -> Iterator[list[AdditionT]]:
    """Divide a batch into transactions."""
    part: list[AdditionT] = []
    chars = 0
    for each in batch:
        part.append(each)
        chars += len(each.text)
        if chars >= COMMIT_CHARS or len(part) == COMMIT_SESSIONS:
            yield part
            part, chars = [], 0
    if part:
        yield part


def distinct_trigrams(text: str) -> list[str]:
    """The trigrams of a text, in order of their first occurrence."""
    return [*dict.fromkeys(text[start : start + 3] for start in range(len(text) - 2))]
