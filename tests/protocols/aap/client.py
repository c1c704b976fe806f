"""A plain AAP client for tests. It checks of every answer what holds for all of them, and hides nothing else.

`Face` is a server seen with one key, `Session` one conversation, `Turn` the answer of a turn in whatever mode.
"""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.asgi_client import Answer, Stream
from tests.conversations import call as call
from tests.conversations import calls as calls
from tests.conversations import script as script
from tests.protocols.aap.stream import (
    Call,
    Frame,
    Mode,
    check_numbers,
    check_turn,
    fold,
    merged,
    parse_frames,
)

Json = Any
Message = dict[str, Json]

BASE = "/aap/v3"

CODES: dict[str, tuple[int, set[str]]] = {
    "invalid_json": (400, set()),
    "invalid_request": (400, set()),
    "unknown_tool": (400, set()),
    "unknown_option": (400, set()),
    "invalid_option_value": (400, set()),
    "duplicate_tool_name": (400, set()),
    "agent_name_fixed": (400, set()),
    "unsupported_stream_mode": (400, {"supported"}),
    "client_tools_unsupported": (400, set()),
    "image_unsupported": (400, set()),
    "unknown_tool_call": (400, set()),
    "tool_call_resolved": (400, set()),
    "tool_results_missing": (400, {"missing"}),
    "invalid_cursor": (400, set()),
    "invalid_history_type": (400, set()),
    "limit_exceeded": (400, set()),
    "unauthorized": (401, set()),
    "forbidden": (403, set()),
    "session_not_found": (404, set()),
    "unknown_agent": (404, set()),
    "history_not_supported": (404, set()),
    "not_found": (404, set()),
    "method_not_allowed": (405, set()),
    "body_too_large": (413, {"limit"}),
    "unsupported_media_type": (415, set()),
    "turn_in_progress": (409, set()),
    "agent_not_served": (409, set()),
    "idempotency_conflict": (409, set()),
    "rate_limited": (429, set()),
    "internal": (500, set()),
    "shutting_down": (503, set()),
}
"""The codes of aap §16, their statuses, and the members that they add."""


class Connection(Protocol):
    """How requests reach a server: a bridge or a socket."""

    async def open(
        self,
        method: str,
        path: str,
        *,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes | list[bytes] = b"",
        window: int | None = None,
    ) -> Stream: ...


class Reply(Answer):
    """A whole answer; its JSON."""

    @property
    def json(self) -> Json:
        return json.loads(self.body)


class AapClient:
    """A server as the holder of one key sees it. Without a key no `Authorization` is sent."""

    def __init__(self, connection: Connection, key: str | None = None, *, base: str = BASE) -> None:
        self.connection = connection
        self.key = key
        self.base = base

    async def open(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        raw: bytes | list[bytes] | None = None,
        headers: dict[str, str] | None = None,
        window: int | None = None,
    ) -> Stream:
        """Send a request; come back when its answer has begun. A header of None leaves out the usual one."""
        lines = {"content-type": "application/json"}
        if self.key is not None:
            lines["authorization"] = f"Bearer {self.key}"
        lines |= headers or {}
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        sent = [(name, value) for name, value in lines.items() if value != ABSENT]
        return await self.connection.open(method, self.base + path, headers=sent, body=content, window=window)

    async def request(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        raw: bytes | list[bytes] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """Send a request and take its whole answer, checked."""
        exchange = await self.open(method, path, body, raw=raw, headers=headers)
        return check_reply(Reply(exchange.status, exchange.headers, await exchange.read()))

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.request("GET", path, headers=headers)

    async def post(self, path: str, body: Json, *, headers: dict[str, str] | None = None) -> Reply:
        return await self.request("POST", path, body, headers=headers)

    async def create(
        self, agent: str = "rehearsal", /, *, headers: dict[str, str] | None = None, **fields: Json
    ) -> "Session":
        """Make a session of an agent. `tools` are the client's; `server_tools`, `options` belong to the agent."""
        config: dict[str, Json] = {"name": agent}
        if "server_tools" in fields:
            config["tools"] = fields.pop("server_tools")
        if "options" in fields:
            config["options"] = fields.pop("options")
        reply = await self.post("/sessions", {"agent": config, **fields}, headers=headers)
        assert reply.status == 201, reply
        return Session(self, reply.json["sessionId"])


ABSENT = "\0"
"""As a header's value: the header is not sent."""


@dataclass
class Turn:
    """A turn that was accepted, in whatever mode."""

    mode: Mode
    raw: bytes
    messages: list[Message]
    stop: str
    frames: list[Frame] = field(default_factory=list)
    meta: dict[str, Json] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All text of all its assistant messages."""
        blocks = [block for message in self.messages if message["role"] == "assistant" for block in message["content"]]
        return "".join(block["text"] for block in blocks if block["type"] == "text")

    @property
    def calls(self) -> list[Call]:
        """The calls that it showed, in order."""
        blocks = [block for message in self.messages if message["role"] == "assistant" for block in message["content"]]
        return [
            Call(block["toolCallId"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"
        ]

    @property
    def results(self) -> dict[str, Json]:
        """The results that it showed, by call id."""
        return {message["toolCallId"]: message["content"] for message in self.messages if message["role"] == "tool"}

    @property
    def error(self) -> Json:
        """Code and message of its failure, if it had one."""
        return self.meta.get("error")


class Session:
    """One conversation."""

    def __init__(self, client: AapClient, session_id: str) -> None:
        self.client = client
        self.id = session_id
        self.path = f"/sessions/{session_id}"

    def as_client(self, client: AapClient) -> "Session":
        """The same session with another key, or through another line."""
        return Session(client, self.id)

    async def info(self) -> dict[str, Json]:
        reply = await self.client.get(self.path)
        assert reply.status == 200, reply
        info: dict[str, Json] = reply.json
        return info

    async def history(self, kind: str = "full") -> list[Message]:
        reply = await self.client.get(f"{self.path}/history?type={kind}")
        assert reply.status == 200, reply
        assert set(reply.json) == {"history"}
        assert set(reply.json["history"]) == {kind}
        messages: list[Message] = reply.json["history"][kind]
        return [{name: value for name, value in message.items() if name != "_meta"} for message in messages]

    async def state(self) -> list[bytes]:
        """Everything that a client can see of it, to the byte."""
        paths = [self.path, f"{self.path}/history?type=full", f"{self.path}/history?type=compacted", "/sessions"]
        return [(await self.client.get(path)).body for path in paths]

    async def delete(self) -> Reply:
        return await self.client.request("DELETE", self.path)

    async def post(self, messages: Json, *, headers: dict[str, str] | None = None, **fields: Json) -> Reply:
        """Ask for a turn and take whatever comes."""
        return await self.client.post(f"{self.path}/turns", {"messages": messages, **fields}, headers=headers)

    async def open(
        self,
        messages: Json,
        *,
        headers: dict[str, str] | None = None,
        window: int | None = None,
        **fields: Json,
    ) -> "StreamReader":
        """Ask for a streamed turn and read it event by event."""
        asked = messages_of(messages)
        body = {"messages": asked, "stream": "delta", **fields}
        exchange = await self.client.open("POST", f"{self.path}/turns", body, headers=headers, window=window)
        assert exchange.status == 200, (exchange.status, await exchange.read())
        check_stream_headers(exchange.headers)
        return StreamReader(exchange)

    async def run(
        self,
        messages: Json,
        mode: Mode = "none",
        *,
        headers: dict[str, str] | None = None,
        **fields: Json,
    ) -> Turn:
        """Ask for a turn, which must be accepted, and take its whole answer, checked.

        Args:
            messages: a list of messages, or the content of one user message.
            mode: none is asked for by saying nothing about it.
        """
        asked = messages_of(messages)
        body = {"messages": asked, **({} if mode == "none" else {"stream": mode}), **fields}
        reply = await self.client.post(f"{self.path}/turns", body, headers=headers)
        assert reply.status == 200, reply
        return turn_of(reply, mode, permitted=sum(message["role"] == "tool_permission" for message in asked))

    async def events(self, after: str | None = None, query: str = "") -> Reply:
        """The events route, to its end."""
        headers = {} if after is None else {"last-event-id": after}
        return await self.client.request("GET", f"{self.path}/events{query}", headers=headers)

    async def watch(self, after: str | None = None, query: str = "") -> "StreamReader":
        """The events route, read event by event."""
        headers = {} if after is None else {"last-event-id": after}
        exchange = await self.client.open("GET", f"{self.path}/events{query}", headers=headers)
        assert exchange.status == 200, (exchange.status, await exchange.read())
        check_stream_headers(exchange.headers)
        return StreamReader(exchange)


class StreamReader:
    """A stream that is read frame by frame."""

    def __init__(self, exchange: Stream) -> None:
        self.exchange = exchange
        self.frames: list[Frame] = []
        self._rest = b""
        self._ready: list[Frame] = []

    async def next(self) -> Frame | None:
        """The next event; None at the end of the stream."""
        while not self._ready:
            piece = await self.exchange.chunk()
            if piece is None:
                assert self._rest == b"", f"the stream ended inside a frame: {self._rest!r}"
                return None
            self._rest += piece
            end = self._rest.rfind(b"\n\n") + 2
            if end >= 2:
                self._ready = parse_frames(self._rest[:end])
                self._rest = self._rest[end:]
        self.frames.append(self._ready.pop(0))
        return self.frames[-1]

    async def until(self, event: str) -> Frame:
        """Read on to the next event of that name."""
        while (frame := await self.next()) is not None:
            if frame.event == event:
                return frame
        raise AssertionError(f"the stream ended before {event}: {[each.event for each in self.frames]}")

    async def read_to_end(self) -> list[Frame]:
        """Read to the end."""
        first = len(self.frames)
        while await self.next() is not None:
            pass
        return self.frames[first:]

    async def disconnect(self) -> None:
        await self.exchange.disconnect()


def user(content: Json) -> Message:
    return {"role": "user", "content": content}


def result(call: Call | str, content: Json) -> Message:
    return {"role": "tool", "toolCallId": call if isinstance(call, str) else call.id, "content": content}


def grant(call: Call | str, reason: str | None = None) -> Message:
    message = {"role": "tool_permission", "toolCallId": call if isinstance(call, str) else call.id, "granted": True}
    return message if reason is None else {**message, "reason": reason}


def deny(call: Call | str, reason: str | None = None) -> Message:
    return {**grant(call, reason), "granted": False}


def client_tool(name: str, **fields: Json) -> dict[str, Json]:
    return {"name": name, "description": "", "parameters": {"type": "object"}, **fields}


def enabled_tools(*names: str, trust: bool = True) -> list[dict[str, Json]]:
    """References that turn server tools on."""
    return [{"name": name, "trust": trust} for name in names]


def assistant_text(*texts: str) -> Message:
    """An assistant message of text blocks."""
    return {"role": "assistant", "content": [{"type": "text", "text": text} for text in texts]}


def assistant_calls(*calls: Call, text: str | None = None) -> Message:
    """An assistant message that ends with calls."""
    blocks = [] if text is None else [{"type": "text", "text": text}]
    uses = [{"type": "tool_use", "toolCallId": each.id, "name": each.name, "input": each.input} for each in calls]
    return {"role": "assistant", "content": [*blocks, *uses]}


def messages_of(messages: Json) -> list[Message]:
    """A list of messages as it is; anything else is a user message's text."""
    return messages if isinstance(messages, list) else [user(messages)]


def turn_of(reply: Reply, mode: Mode, *, permitted: int = 0) -> Turn:
    """Read the answer of an accepted turn, and hold it against all that is said of its mode."""
    if mode == "none":
        assert reply.headers["content-type"].split(";")[0] == "application/json"
        body = reply.json
        assert set(body) - {"_meta"} == {"stopReason", "messages"}, body
        messages = [{name: value for name, value in each.items() if name != "_meta"} for each in body["messages"]]
        return Turn(mode, reply.body, messages, body["stopReason"], meta=body.get("_meta", {}))
    check_stream_headers(reply.headers)
    frames = parse_frames(reply.body)
    check_turn(frames, mode, permitted=permitted)
    check_numbers(frames)
    meta = frames[-1].data.get("_meta", {})
    return Turn(mode, reply.body, fold(frames), frames[-1].data["stopReason"], frames, meta)


def content_of(turn: Turn) -> list[Message]:
    """A turn's messages in the form that all modes share, call ids replaced by their places."""
    return anonymous(merged(turn.messages))


def anonymous(messages: Iterable[Message]) -> list[Message]:
    """Messages with call ids replaced by `call-1`, `call-2` …, in the order of the calls."""
    names: dict[str, str] = {}

    def renamed(value: Json) -> Json:
        if isinstance(value, list):
            return [renamed(each) for each in value]
        if isinstance(value, dict):
            if "toolCallId" in value:
                name = names.setdefault(value["toolCallId"], f"call-{len(names) + 1}")
                return {**{key: renamed(each) for key, each in value.items()}, "toolCallId": name}
            return {key: renamed(each) for key, each in value.items()}
        return value

    return [renamed(message) for message in messages]


def check_reply(reply: Reply) -> Reply:
    """Check what holds for every answer: content type, error body, and no field of the protocol is null."""
    if reply.status == 204:
        assert reply.body == b""
        return reply
    kind = reply.headers["content-type"].split(";")[0]
    if kind == "text/event-stream":
        for frame in parse_frames(reply.body):
            check_no_null(frame.data)
        return reply
    assert kind == "application/json", reply
    check_no_null(reply.json)
    if reply.status >= 400:
        check_error(reply)
    return reply


def check_error(reply: Reply) -> None:
    """An error's body: one readable sentence, a known code under its status, the keys that belong to the code."""
    body = reply.json
    assert isinstance(body["error"], str), body
    assert len(body["error"]) > 5, body
    assert "\n" not in body["error"], body
    assert "Traceback" not in body["error"], body
    status, extra = CODES[body["code"]]
    assert reply.status == status, reply
    assert extra <= set(body), body


def check_stream_headers(headers: dict[str, str]) -> None:
    """A stream is announced as one that nobody may keep or gather."""
    assert headers["content-type"].split(";")[0] == "text/event-stream"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert "content-length" not in headers
    assert "content-encoding" not in headers


OPAQUE = {"input", "parameters", "content"}
"""Fields whose inside belongs to tools and clients, null included."""


def check_no_null(value: Json) -> None:
    """No field is null where the protocol names the fields."""
    if isinstance(value, dict):
        for name, each in value.items():
            assert each is not None, f"{name} is null in {value}"
            if name not in OPAQUE:
                check_no_null(each)
    elif isinstance(value, list):
        for each in value:
            check_no_null(each)


def assert_refusal(reply: Reply, status: int, code: str, *, has_path: bool = True, **extra: Json) -> None:
    """The answer is this refusal, whole: nothing beside sentence, code and these keys.

    Args:
        has_path: an invalid request names the field, unless there is none because the body is no object.
    """
    assert reply.status == status, reply
    body = reply.json
    assert body["code"] == code, reply
    if code == "invalid_request" and has_path:
        assert isinstance(body["path"], str), body
        assert body["path"], body
    known = {"error", "code", "path"} | ({"limit"} if code == "limit_exceeded" else set())
    assert {name: value for name, value in body.items() if name not in known} == extra, body


@asynccontextmanager
async def assert_unchanged(*sessions: Session) -> AsyncIterator[None]:
    """Check that the block changes no byte of the sessions."""
    before = [await session.state() for session in sessions]
    yield
    assert [await session.state() for session in sessions] == before
