"""A plain client of the Agent API for tests. It checks in every answer what must hold for all of them."""

import asyncio
import json
from typing import Any

from tests.asgi_client import DEADLINE_S, Stream
from tests.conversations import call as call
from tests.conversations import script as script
from tests.event_reader import EventReader
from tests.protocols.aap.client import Connection, Reply
from tests.protocols.agentscope.stream import Event, check, parse

Json = Any

ABSENT = "\0"
CODES: dict[str, int] = {
    "INVALID_JSON": 400,
    "UNAUTHORIZED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "AGENT_NOT_FOUND": 404,
    "RESPONSE_NOT_FOUND": 404,
    "TASK_NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "BODY_TOO_LARGE": 413,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "SESSION_BUSY": 409,
    "RESPONSE_EXISTS": 409,
    "NOTHING_PENDING": 409,
    "AGENT_FIXED": 409,
    "AGENT_NOT_SERVED": 409,
    "INVALID_REQUEST": 422,
    "RATE_LIMIT_EXCEEDED": 429,
    "UNAVAILABLE": 503,
}
"""The status of each error code: those of agentscope-runtime §8, and extensions."""


def user(text: str, **more: Json) -> Json:
    """A user message."""
    return {"role": "user", "type": "message", "content": [{"type": "text", "text": text}], **more}


def request_body(*messages: Json, **more: Json) -> Json:
    """The body of a request. A string stands for a user message."""
    return {"input": [user(each) if isinstance(each, str) else each for each in messages], **more}


def data(kind: str, role: str, payload: Json) -> Json:
    """A message with one data content."""
    return {"type": kind, "role": role, "content": [{"type": "data", "data": payload}]}


def output(call_id: str, text: Json) -> Json:
    """The output of a client tool."""
    return data("function_call_output", "tool", {"call_id": call_id, "output": text})


def approval(call_id: str, *, approve: bool, reason: str | None = None) -> Json:
    """The user's decision about a call, as the web client sends it."""
    payload = {"approval_request_id": call_id, "id": call_id, "approve": approve}
    return data("mcp_approval_response", "user", payload | ({"reason": reason} if reason else {}))


def tool(name: str, **properties: Json) -> Json:
    """A client tool."""
    parameters = {"type": "object", "properties": properties or {"c": {}}, "required": None}
    return {"type": "function", "function": {"name": name, "description": f"a tool {name}", "parameters": parameters}}


def texts(response: Event) -> str:
    """What the agent said to the user."""
    return "".join(
        content["text"]
        for message in response["output"]
        if message["type"] == "message"
        for content in message["content"]
        if content["type"] == "text"
    )


def pending(response: Event) -> dict[str, str]:
    """The ids of the calls that wait for the client, by the names of their tools."""
    calls = {}
    for message in response["output"]:
        payload = message["content"][0].get("data") or {} if message["content"] else {}
        if message["type"] == "function_call":
            calls[payload["name"]] = payload["call_id"]
        elif message["type"] == "mcp_approval_request":
            calls[payload["name"]] = payload["id"]
    return calls


class StreamReader(EventReader):
    """Reads a stream of events."""

    def __init__(self, stream: Stream, *, first: int = 0) -> None:
        super().__init__(stream, parse, first=first)

    async def wait_for_text(self, text: str) -> None:
        """Read until the agent's whole text is `text`."""
        while "".join(each["text"] for each in self.events if each.get("delta")) != text:
            assert await self.more(), self.events

    async def end(self, **how: Any) -> Event:
        """Read to the end and check all events; return the terminal response."""
        return check(await self.read_to_end(), first=self.first, **how)


class AgentScopeClient:
    """A client with one key. Without a key it sends no `Authorization`."""

    def __init__(self, connection: Connection, key: str | None = None, *, path: str = "/process") -> None:
        self.connection = connection
        self.key = key
        self.path = path

    async def open(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Stream:
        """Send a request; return when the response has begun. A header whose value is `ABSENT` is not sent."""
        lines = {"content-type": "application/json", "accept": "text/event-stream"}
        if self.key is not None:
            lines["authorization"] = f"Bearer {self.key}"
        lines |= headers or {}
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        sent = [(name, value) for name, value in lines.items() if value != ABSENT]
        return await self.connection.open(method, path, headers=sent, body=content)

    async def request(self, method: str, path: str, body: Json = None, **how: Any) -> Reply:
        """Send a request and read the whole response."""
        stream = await self.open(method, path, body, **how)
        return Reply(stream.status, stream.headers, await stream.read())

    async def assert_refused(self, method: str, path: str, body: Json = None, **how: Any) -> str:
        """Send a request that must be refused in the documented form; return the error code."""
        reply = await self.request(method, path, body, **how)
        refusal = reply.json
        assert refusal.keys() in ({"error"}, {"error", "detail"})
        assert refusal["error"].keys() == {"code", "message"}
        assert reply.headers["content-type"] == "application/json"
        code: str = refusal["error"]["code"]
        assert CODES[code] == reply.status, refusal
        for detail in refusal.get("detail", ()):
            assert detail.keys() == {"loc", "msg"}
        return code

    async def stream(self, body: Json) -> StreamReader:
        """Start a response and stream it."""
        return await self.follow("POST", self.path, body)

    async def follow(self, method: str, path: str, body: Json = None, *, first: int = 0, **how: Any) -> StreamReader:
        stream = await self.open(method, path, body, **how)
        assert stream.status == 200, await stream.read()
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-cache"
        assert stream.headers["x-accel-buffering"] == "no"
        return StreamReader(stream, first=first)

    async def run(self, *messages: Json, **more: Json) -> Event:
        """Run to the end; return the terminal response."""
        body = request_body(*messages, **more)
        return await (await self.stream(body)).end(is_complete=body.get("stream") is False)

    async def replay(self, response_id: str, after: int | None = None) -> StreamReader:
        """Replay a response."""
        query = "" if after is None else f"?after={after}"
        return await self.follow("GET", f"{self.path}/responses/{response_id}/events{query}", first=(after or -1) + 1)

    async def wait_until_started(self, response_id: str) -> None:
        """Wait until a response with that id exists."""
        path = f"{self.path}/responses/{response_id}"
        async with asyncio.timeout(DEADLINE_S):
            while (await self.request("GET", path)).status != 200:
                pass

    async def stop(self, **what: Json) -> bool:
        reply = await self.request("POST", "/stop", {"input": [], **what})
        assert (reply.status, reply.json["status"]) == (200, "ok")
        canceled: bool = reply.json["canceled"]
        return canceled
