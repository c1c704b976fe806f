"""A plain client of the run service for tests. Every event of every stream is validated against AG-UI's own models."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from tests.asgi_client import Stream
from tests.protocols.aap.client import Connection
from tests.protocols.agui.endpoint import check_event

Json = Any
Event = dict[str, Json]
BASE = "/api/v1/agent"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@dataclass(frozen=True)
class Frame:
    """An event as it came."""

    id: str
    event: Event

    @property
    def type(self) -> str:
        name: str = self.event["type"]
        return name


@dataclass(frozen=True)
class Reply:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        return json.loads(self.body)


def problem(status: int, code: str, detail: str, **more: Json) -> dict[str, Json]:
    """The whole body of an error."""
    titles = {
        400: "Bad Request",
        401: "Unauthorized",
        403: "Forbidden",
        404: "Not Found",
        405: "Method Not Allowed",
        409: "Conflict",
        413: "Content Too Large",
        415: "Unsupported Media Type",
        422: "Unprocessable Content",
        429: "Too Many Requests",
        502: "Bad Gateway",
    }
    return {"type": "about:blank", "title": titles[status], "status": status, "detail": detail, "code": code, **more}


def run_input(thread: str, text: Json = "hello", run: str = "r-1", **fields: Json) -> dict[str, Json]:
    """A run's body."""
    return {
        "threadId": thread,
        "runId": run,
        "messages": [{"id": "m-1", "role": "user", "content": text}],
        "forwardedProps": {"agent_type": "rehearsal"},
        **fields,
    }


def script(*steps: dict[str, Json]) -> str:
    """The message that makes the rehearsal agent play these steps."""
    return json.dumps({"script": steps})


def new_thread() -> str:
    return str(uuid4())


def parse(raw: bytes) -> list[Frame]:
    """The frames of a stream so far, each checked; comments and what is not whole yet are left out."""
    assert b"\r" not in raw
    frames = []
    for block in raw.split(b"\n\n")[:-1]:
        lines = block.decode().split("\n")
        if lines == [": keep-alive"]:
            continue
        fields = dict(line.split(": ", 1) for line in lines)
        assert list(fields) == ["id", "event", "data"], lines
        event = json.loads(fields["data"])
        assert fields["event"] == event["type"]
        check_event({name: value for name, value in event.items() if name not in ("ui_schema", "args")})
        frames.append(Frame(fields["id"], event))
    return frames


class StreamReader:
    """A stream that is being read."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.raw = b""

    @property
    def frames(self) -> list[Frame]:
        """The frames received so far."""
        return parse(self.raw)

    async def until(self, type: str, count: int = 1) -> list[Frame]:  # noqa: A002  # the event's own word
        """Read until so many events of that type have come."""
        while sum(frame.type == type for frame in self.frames) < count:
            chunk = await self.stream.chunk()
            assert chunk is not None, f"the stream ended before {type}: {self.raw.decode()}"
            self.raw += chunk
        return self.frames

    async def read_to_end(self) -> list[Frame]:
        """Read to the end."""
        self.raw += await self.stream.read()
        return self.frames


class RunServiceClient:
    """The service as the holder of one key sees it."""

    def __init__(self, line: Connection, key: str | None, *, base: str = BASE) -> None:
        self.connection = line
        self.key = key
        self.base = base

    def headers(self, more: dict[str, str]) -> Iterable[tuple[str, str]]:
        values = {} if self.key is None else {"authorization": f"Bearer {self.key}"}
        return list((values | more).items())

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        """Any request; header names with `_` for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        stream = await self.connection.open(method, self.base + path, headers=self.headers(named), body=body)
        reply = Reply(stream.status, stream.headers, await stream.read())
        if reply.status >= 400:
            assert reply.headers["content-type"] == "application/problem+json", reply
            assert {"type", "title", "status", "detail", "code"} <= reply.json.keys()
            assert reply.json["status"] == reply.status
        return reply

    async def post(self, path: str, body: Json) -> Reply:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.request("POST", path, raw, content_type="application/json")

    async def get(self, path: str) -> Reply:
        return await self.request("GET", path)

    async def submit(self, body: Json) -> dict[str, Json]:
        """Submit a run that is accepted."""
        reply = await self.post("/runs", body)
        assert reply.status == 202, reply
        accepted: dict[str, Json] = reply.json
        return accepted

    async def play(self, thread: str, text: Json = "hello", run: str = "r-1", **fields: Json) -> list[Frame]:
        """A run to its end."""
        await self.submit(run_input(thread, text, run, **fields))
        return await self.events(thread, run)

    async def events(self, thread: str, run: str, after: str | None = None) -> list[Frame]:
        """The events of one run to its end, from a position on."""
        return parse(await self.raw_events(thread, run, after))

    async def raw_events(self, thread: str, run: str, after: str | None = None) -> bytes:
        stream = await self.open(thread, f"?runId={run}", after)
        return await stream.read()

    async def open(self, thread: str, query: str = "", after: str | None = None) -> Stream:
        more = {} if after is None else {"last-event-id": after}
        path = f"{self.base}/runs/{thread}/events{query}"
        stream = await self.connection.open("GET", path, headers=self.headers(more))
        assert stream.status == 200, await stream.read()
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-cache"
        assert stream.headers["x-accel-buffering"] == "no"
        return stream

    @asynccontextmanager
    async def watch(self, thread: str, query: str = "", after: str | None = None) -> AsyncIterator[StreamReader]:
        """A stream that is left at the end."""
        stream = await self.open(thread, query, after)
        try:
            yield StreamReader(stream)
        finally:
            await stream.disconnect()

    async def history(self, thread: str | None = None, before: str | None = None) -> dict[str, Json]:
        values = {"threadId": thread, "before": before}
        query = "&".join(f"{name}={value}" for name, value in values.items() if value is not None)
        reply = await self.get(f"/history?{query}")
        assert reply.status == 200, reply
        day: dict[str, Json] = reply.json
        assert list(day) == ["scope", "threadId", "day", "hasMore", "messages"]
        assert day["scope"] == "history_day"
        return day

    async def upload(self, content: bytes = PNG, kind: str = "image/png", **fields: str) -> Reply:
        return await self.send_form("/attachments", content, kind, **fields)

    async def send_form(self, path: str, content: bytes, kind: str, **fields: str) -> Reply:
        parts = [
            f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()
        ]
        head = f'Content-Disposition: form-data; name="file"; filename="a.bin"\r\nContent-Type: {kind}\r\n\r\n'
        parts.append(head.encode() + content)
        body = b"".join(b"--xYx\r\n" + part + b"\r\n" for part in parts) + b"--xYx--\r\n"
        return await self.request("POST", path, body, content_type="multipart/form-data; boundary=xYx")
