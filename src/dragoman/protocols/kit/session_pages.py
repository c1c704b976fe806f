"""Pages of an owner's sessions: newest first, with a cursor to the next page, and nothing that is not durable."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from dragoman.core.ids import UserId
from dragoman.core.page_cursor import page_cursor, parse_page_cursor
from dragoman.core.session import SessionState
from dragoman.engine.engine import Engine
from dragoman.protocols.kit.decoding import parse_query_number
from dragoman.protocols.kit.endpoints import query as query_parameter

DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 50, 200
PAGE_QUERY = (
    query_parameter("after", "The `next` of the page before."),
    query_parameter("limit", f"1 to {MAX_PAGE_SIZE}; {DEFAULT_PAGE_SIZE} by default.", int),
)
"""The parameters of `requested_page` in the OpenAPI document."""

T = TypeVar("T")


async def requested_page(
    engine: Engine, owner: UserId, query: Mapping[str, str], show: Callable[[SessionState], T]
) -> tuple[tuple[T, ...], str | None]:
    """Return the page that a query asks for, as `session_page` does. Raises Invalid or InvalidCursor."""
    limit = parse_query_number(query, "limit", DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
    return await session_page(engine, owner, query.get("after"), limit, show)


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
