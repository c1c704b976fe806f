"""Requests for tests of the standard endpoint, and a reader of streams, event by event."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from tests.conversations import call, script
from tests.protocols.agui.endpoint import Endpoint, Event, Reply, parse

Json = Any
HELLO = "Hello! I am the rehearsal agent."
HANG = {"wait_ms": 600_000}
LONG = script({"say": "so far "}, HANG)
STAMP = script(call("stamp", text="x"), {"say": "Then: {result}"})
PAINT = {"name": "paint", "description": "", "parameters": {"type": "object"}}


def user(text: Json, message_id: str | None = None) -> Json:
    return {"id": message_id or str(uuid4()), "role": "user", "content": text}


def resume(call_id: str, payload: Json = None) -> Json:
    """An entry that resolves with a payload, or cancels without one."""
    if payload is None:
        return {"interruptId": call_id, "status": "cancelled"}
    return {"interruptId": call_id, "status": "resolved", "payload": payload}


def error_of(reply: Reply) -> tuple[list[str], str]:
    """The event types and the error code of a stream that only has an error."""
    return reply.types, reply.events[0]["code"]


async def open_call(endpoint: Endpoint, body: Json) -> str:
    """Run until a call waits; its id."""
    events = (await endpoint.run(body)).events
    return next(str(event["toolCallId"]) for event in events if event["type"] == "TOOL_CALL_START")


class StreamReader:
    """A stream that is read event by event."""

    def __init__(self, exchange: Any) -> None:
        assert exchange.status == 200
        self.exchange = exchange
        self.events: list[Event] = []
        self.ids: list[str | None] = []
        self._rest = b""
        self._ready: list[Any] = []

    async def next(self) -> Event | None:
        while not self._ready:
            piece = await self.exchange.chunk()
            if piece is None:
                assert self._rest == b""
                return None
            self._rest += piece
            end = self._rest.rfind(b"\n\n") + 2
            if end >= 2:
                self._ready, self._rest = parse(self._rest[:end]), self._rest[end:]
        frame = self._ready.pop(0)
        self.events.append(frame.event)
        self.ids.append(frame.id)
        return self.events[-1]

    async def until(self, kind: str) -> Event:
        while (event := await self.next()) is not None:
            if event["type"] == kind:
                return event
        raise AssertionError(f"the stream ended before {kind}: {[each['type'] for each in self.events]}")

    async def read_to_end(self) -> list[Event]:
        first = len(self.events)
        while await self.next() is not None:
            pass
        return self.events[first:]


async def started(endpoint: Endpoint, body: Json, **headers: str) -> StreamReader:
    """Start a run and read up to its first text."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    reading = StreamReader(await endpoint.open("POST", endpoint.agent, body, headers=named))
    await reading.until("TEXT_MESSAGE_CONTENT")
    return reading


@asynccontextmanager
async def running(endpoint: Endpoint, body: Json, **headers: str) -> AsyncIterator[StreamReader]:
    """An active run in the middle of a text, stopped at the end."""
    reading = await started(endpoint, body, **headers)
    try:
        yield reading
    finally:
        await endpoint.request("POST", f"{endpoint.agent}/stop/{body['threadId']}")


async def last_stop(endpoint: Endpoint, thread: str) -> Event:
    """Wait on the events route for the end of the newest run."""
    reading = StreamReader(await endpoint.open("GET", f"rehearsal/threads/{thread}/events"))
    while True:
        event = await reading.next()
        assert event is not None
        if event["type"] in ("RUN_FINISHED", "RUN_ERROR"):
            await reading.exchange.disconnect()
            return event
