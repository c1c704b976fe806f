"""A small OpenAI-compatible server on loopback that sends the answers that a test provides."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One streamed chunk of a chat completion, as the data of an event."""
    choices = [] if delta is None and finish is None else [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    return event({"object": "chat.completion.chunk", "choices": choices, **more})


def event(data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def usage(prompt: int, completion: int) -> bytes:
    return chunk(usage={"prompt_tokens": prompt, "completion_tokens": completion})


def call_delta(index: int | None, arguments: str, **more: str) -> dict[str, Any]:
    """A delta of one call, with `id` and `name` if the server sends them."""
    function = {"arguments": arguments} | ({"name": more["name"]} if "name" in more else {})
    wire: dict[str, Any] = {"function": function}
    if index is not None:
        wire["index"] = index
    if "id" in more:
        wire |= {"id": more["id"], "type": "function"}
    return {"tool_calls": [wire]}


DONE = b"data: [DONE]\n\n"


@dataclass
class Answer:
    """The server's response to one request.

    `parts` are written one after another; an `asyncio.Event` among them is waited for. With `is_cut` the connection
    ends there, in the middle of the body.
    """

    parts: Sequence[bytes | asyncio.Event] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    is_cut: bool = False
    content_type: str = "text/event-stream"


def refusal(status: int, error: Any, **headers: str) -> Answer:
    body = error if isinstance(error, bytes) else json.dumps(error).encode()
    return Answer(parts=[body], status=status, headers=headers, content_type="application/json")


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: Any


class FakeOpenAIServer:
    """Responds with `answers` in order. The first `dropped` requests are answered by closing the connection."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.received: list[Received] = []
        self.connections = 0
        self.disconnects = asyncio.Event()
        """Set when a client closes the connection during a response."""
        self.connections_to_drop = 0
        self.port = 0
        self._arrival = asyncio.Condition()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def has_received(self, count: int) -> None:
        """Wait until that many requests have arrived."""
        async with self._arrival:
            await self._arrival.wait_for(lambda: len(self.received) >= count)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while request := await self._read(reader):
                self.received.append(request)
                async with self._arrival:
                    self._arrival.notify_all()
                if self.connections_to_drop:
                    self.connections_to_drop -= 1
                    break
                if not await self._play(self.answers.pop(0), reader, writer):
                    break
        except ConnectionError:
            self.disconnects.set()
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Received | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        except asyncio.IncompleteReadError:
            return None
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return Received(head[0].split()[1], headers, json.loads(body))

    async def _play(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        headers = {"content-type": answer.content_type, "transfer-encoding": "chunked"} | answer.headers
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {answer.status} X\r\n{lines}\r\n".encode())
        for part in answer.parts:
            if isinstance(part, asyncio.Event):
                if not await self._wait_for_event(part, reader):
                    self.disconnects.set()
                    return False
            else:
                writer.write(b"%x\r\n%b\r\n" % (len(part), part))
                await writer.drain()
        if answer.is_cut:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _wait_for_event(self, event: asyncio.Event, reader: asyncio.StreamReader) -> bool:
        """Wait for the test's event. Returns False if the client disconnects first."""
        waiting = asyncio.ensure_future(event.wait())
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.done()
        finally:
            waiting.cancel()
            leaving.cancel()
            await asyncio.gather(waiting, leaving, return_exceptions=True)


@asynccontextmanager
async def fake_openai_server() -> AsyncIterator[FakeOpenAIServer]:
    """Run the server on a free port."""
    played = FakeOpenAIServer()
    server = await asyncio.start_server(played.serve, "127.0.0.1", 0)
    async with server:
        played.port = server.sockets[0].getsockname()[1]
        yield played
