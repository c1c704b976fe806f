"""Reads a stream of server-sent events frame by frame."""

from collections.abc import Callable
from typing import Any

from tests.asgi_client import Stream

Json = Any


class EventReader:
    """Reads a stream of events.

    Args:
        stream: the response.
        parse: turns whole frames into events, and checks their form.
        first: the number of the first event.
    """

    def __init__(self, stream: Stream, parse: Callable[[bytes], list[Json]], *, first: int = 0) -> None:
        self.stream = stream
        self.events: list[Json] = []
        self.first = first
        self._parse = parse
        self._body = b""

    async def more(self) -> bool:
        """Read what comes next. Returns False at the end of the stream."""
        chunk = await self.stream.chunk()
        self._body += chunk or b""
        whole, mark, self._body = self._body.rpartition(b"\n\n")
        if whole:
            self.events += self._parse(whole + mark)
        assert chunk is not None or not self._body
        return chunk is not None

    async def until(self, count: int) -> None:
        """Read until there are `count` events."""
        while len(self.events) < count:
            assert await self.more(), self.events

    async def read_to_end(self) -> list[Json]:
        """Read to the end; return all events."""
        while await self.more():
            pass
        return self.events

    async def disconnect(self) -> None:
        await self.stream.disconnect()
