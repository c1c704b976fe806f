"""How sessions are indexed and searched: bounds of the work, the same for every database. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, NamedTuple, Protocol, TypeVar

COMMIT_SESSIONS = 32
COMMIT_CHARS = 16 * 1024
"""Bounds of what one transaction indexes: a few milliseconds."""
SEPARATOR = "\x1f"
"""Stands between texts, so that no search matches across two of them."""
MAX_SEARCH_TRIGRAMS = 32
"""Trigrams of a query that are looked up; the texts that have them are compared with all of it."""

COMPARED_AT_A_TIME = 200
"""A search first compares this many sessions one by one, the newest first. If few of them match, it uses the index; if
many do, it continues to compare, because an index is slow for frequent words."""
COMPARED_SESSIONS = 1000
"""Sessions that are compared even if there are enough matches for a page, so that most users get an exact total."""
COMPARED_CANDIDATES = 2000
"""Number of texts with all trigrams of a query that a search compares at most."""
COMPARED_WITHOUT_INDEX = 20_000
"""Number of sessions that a search compares at most if its text is too short for the index."""
MIN_SHARE_OF_MATCHES = 0.05
"""With fewer matches than that among the newest sessions, a search uses the index."""
SessionT = TypeVar("SessionT")


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


class Matches(NamedTuple, Generic[SessionT]):
    """The newest matching sessions in order, and what remains to be done."""

    sessions: list[SessionT]
    is_complete: bool
    """There are no others."""
    needs_index: bool
    """There are too few of them to find a page by comparing sessions one by one."""


def newest_matches(
    sessions: Iterable[tuple[SessionT, bool]],
    needed: int,
    *,
    has_index: bool,
    is_abandoned: Callable[[], bool] = lambda: False,
) -> Matches[SessionT]:
    """Find the matches among the newest sessions.

    Args:
        sessions: all sessions of a user in order, each with whether it matches, which is computed as it is read.
        needed: number of matches after which the search may stop.
        has_index: the index can find the text.
        is_abandoned: whether nobody waits for the search any more.
    """
    matches: list[SessionT] = []
    rest = iter(sessions)
    compared = 0
    while True:
        portion = list(islice(rest, COMPARED_AT_A_TIME))
        matches += (session for session, is_match in portion if is_match)
        compared += len(portion)
        if len(portion) < COMPARED_AT_A_TIME:
            return Matches(matches, is_complete=True, needs_index=False)
        if has_index and len(matches) < compared * MIN_SHARE_OF_MATCHES:
            return Matches(matches, is_complete=False, needs_index=True)
        has_enough = len(matches) > needed and compared >= COMPARED_SESSIONS
        if has_enough or is_abandoned() or (not has_index and compared >= COMPARED_WITHOUT_INDEX):
            return Matches(matches, is_complete=False, needs_index=False)
