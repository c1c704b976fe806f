"""A plain client of the standard endpoint for tests: what leaves the server, to the byte, and checked as a stream.

Every event of every answer is parsed by the models of `ag-ui-protocol` and checked against the raw rules: LF only, one
object for each frame, no nulls, integer timestamps.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ag_ui.core import Event as Model
from pydantic import TypeAdapter

from tests.asgi_client import Stream
from tests.protocols.aap.client import Connection

Json = Any
Event = dict[str, Json]
Headers = dict[str, str]
BASE = "/ag-ui"
AGENT = "rehearsal"

_MODEL: TypeAdapter[Model] = TypeAdapter(Model)


@dataclass(frozen=True)
class Frame:
    """An event as it came, with its id, where it has one."""

    id: str | None
    event: Event


@dataclass(frozen=True)
class Reply:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def frames(self) -> list[Frame]:
        """The frames of a stream, each checked."""
        assert self.status == 200, self
        check_headers(self.headers)
        return parse(self.body)

    @property
    def events(self) -> list[Event]:
        return [frame.event for frame in self.frames]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def text(self) -> str:
        return "".join(event["delta"] for event in self.events if event["type"] == "TEXT_MESSAGE_CONTENT")


def check_headers(headers: dict[str, str]) -> None:
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"


def parse(raw: bytes) -> list[Frame]:
    """The frames of a whole stream; comments are left out."""
    assert b"\r" not in raw
    assert raw == b"" or raw.endswith(b"\n\n")
    frames = []
    for block in raw.decode().split("\n\n")[:-1]:
        lines = block.split("\n")
        if all(line.startswith(":") for line in lines):
            continue
        names = [line.partition(": ")[0] for line in lines]
        assert names in (["id", "data"], ["data"]), lines
        own = lines[0].removeprefix("id: ") if names[0] == "id" else None
        event = json.loads(lines[-1].removeprefix("data: "))
        check_event(event)
        frames.append(Frame(own, event))
    return frames


def check_event(event: Event) -> None:
    """The rules for every event, whatever its type."""
    _MODEL.validate_python(event)
    assert "timestamp" not in event or type(event["timestamp"]) is int, event
    if event["type"] not in ("CUSTOM", "STATE_SNAPSHOT"):
        assert_no_nulls(event)


def assert_no_nulls(value: Json) -> None:
    assert value is not None
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        assert_no_nulls(each)


class Endpoint:
    """The endpoint as the holder of one key sees it."""

    def __init__(self, line: Connection, key: str | None, *, agent: str = AGENT, base: str = BASE) -> None:
        self.connection = line
        self.key = key
        self.agent = agent
        self.base = base

    def headers(self, more: Headers) -> Iterable[tuple[str, str]]:
        lines = {"content-type": "application/json"}
        if self.key is not None:
            lines["authorization"] = f"Bearer {self.key}"
        return [(name, value) for name, value in (lines | more).items() if value]

    async def open(
        self, method: str, path: str, body: Json = None, *, raw: bytes | None = None, headers: Headers | None = None
    ) -> Stream:
        """Send a request; come back when its answer has begun. An empty header leaves out the usual one."""
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        sent = self.headers(headers or {})
        return await self.connection.open(method, f"{self.base}/{path}", headers=sent, body=content)

    async def request(
        self, method: str, path: str, body: Json = None, *, raw: bytes | None = None, headers: Headers | None = None
    ) -> Reply:
        """Send a request and take its whole answer."""
        stream = await self.open(method, path, body, raw=raw, headers=headers)
        return Reply(stream.status, stream.headers, await stream.read())

    async def run(self, body: Json, *, headers: Headers | None = None) -> Reply:
        return await self.request("POST", self.agent, body, headers=headers)

    async def connect(self, body: Json) -> Reply:
        return await self.request("POST", f"{self.agent}/connect", body)

    async def hydrate(self, thread: str, **fields: Json) -> Reply:
        """Come back to a thread without saying anything."""
        return await self.run(an_input(thread=thread, messages=[], **fields))

    async def messages(self, thread: str) -> list[Json]:
        """The thread's messages as a client gets them that comes back."""
        (snapshot,) = [each for each in (await self.hydrate(thread)).events if each["type"] == "MESSAGES_SNAPSHOT"]
        messages: list[Json] = snapshot["messages"]
        return messages


_count = iter(range(1, 10**9))


def an_input(text: Json = None, *, thread: str | None = None, version: str | None = "1.0", **fields: Json) -> Json:
    """A run's input. Without a thread it is a new one; without messages the user says `text`."""
    number = next(_count)
    return {
        "threadId": thread or f"thread {number}",
        "runId": f"run {number}",
        "messages": [{"id": f"message {number}", "role": "user", "content": text}],
        **({} if version is None else {"protocolVersion": version}),
        **fields,
    }
