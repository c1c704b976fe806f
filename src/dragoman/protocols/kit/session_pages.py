"""Pages of an owner's sessions: newest first, with a cursor to the next page, and nothing that is not durable."""

from collections.abc import Callable
from typing import TypeVar

from dragoman.core.ids import UserId
from dragoman.core.page_cursor import page_cursor, parse_page_cursor
from dragoman.core.session import SessionState
from dragoman.engine.engine import Engine

T = TypeVar("T")


async def session_page(
    engine: Engine, owner: UserId, after: str | None, limit: int, show: Callable[[SessionState], T]
) -> tuple[tuple[T, ...], str | None]:
    """Return the sessions of a page as `show` makes them, and the cursor of the next page; None on the last one.

    Raises:
        InvalidCursor: `after` is not the cursor of a page.
    """
    states = await engine.page(owner, None if after is None else parse_page_cursor(after), limit + 1)
    page = states[:limit]
    last = page[-1] if len(states) > limit else None
    items, marks = tuple(map(show, page)), [(state.session_id, state.seq) for state in page]  # states change later
    await engine.until_durable(marks)
    return items, None if last is None else page_cursor(last.created_at, last.session_id)
