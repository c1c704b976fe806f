"""A model's stream, and what it takes to leave it early."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

from dragoman.ports.models import ModelEvent

CLOSE_TIMEOUT_S = 5.0
"""For a model's stream that is left early."""


@asynccontextmanager
async def closing(stream: AsyncGenerator[ModelEvent, None]) -> AsyncIterator[AsyncGenerator[ModelEvent, None]]:
    """The stream, closed at once when it is left: that ends the model's work.

    In the same task, because streams may hold what belongs to a task; and within bounds, because a stop must not hang.
    """
    try:
        yield stream
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await stream.aclose()
