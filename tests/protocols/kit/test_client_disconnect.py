"""What a door's stream does for a client that has left: nothing, from the next words on."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from dragoman.protocols.kit.http import PUSH_EXTENSION, Chunk, EventStream, LiveSource

DEADLINE_S = 20.0


class DisconnectedPipe:
    """A pipe whose client has left, and the reader of its stream."""

    push: object = None

    def is_ready(self) -> bool:
        return False


async def test_a_stream_whose_client_left_ends_with_the_next_words() -> None:
    """Else every word wakes it in vain until it is looked after: as much work as for a client that reads."""
    asked = 0
    is_closed = False
    sent: list[bytes] = []

    async def more() -> Chunk:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return Chunk(b"word ")

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    def close() -> None:
        nonlocal is_closed
        is_closed = True

    def take(records: Sequence[object]) -> Chunk:
        raise AssertionError("nothing is pushed to who is not there")

    live = LiveSource(cast("Any", DisconnectedPipe()), take)
    scope = {"type": "http", "method": "GET", "headers": [], "extensions": {PUSH_EXTENSION: DisconnectedPipe()}}
    async with asyncio.timeout(DEADLINE_S):
        await EventStream(Chunk(b"first "), more, close, live)(scope, cast("Any", receive), cast("Any", send))
    assert (sent, asked, is_closed) == ([b"", b"first "], 0, True)
