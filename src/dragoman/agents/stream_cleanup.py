"""Close a model's stream when it is abandoned early."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

from dragoman.ports.models import ModelEvent

CLOSE_TIMEOUT_S = 5.0
"""Time limit for closing a model's stream."""


@asynccontextmanager
async def closing(stream: AsyncGenerator[ModelEvent, None]) -> AsyncIterator[AsyncGenerator[ModelEvent, None]]:
    """Close the stream on leaving the block, so that the model stops working at once.

    It is closed in the same task, because a stream may own resources of that task, and with a time limit, because
    stopping a run must not hang.
    """
    try:
        yield stream
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await stream.aclose()
