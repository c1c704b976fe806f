"""A plain client of OpenAI's API for tests. It checks in every answer what is true of all of them."""

import json
from typing import Any

from tests.asgi_client import Stream
from tests.conversations import call as call
from tests.conversations import script as script
from tests.event_reader import EventReader
from tests.protocols.aap.client import Connection, Reply
from tests.protocols.openai.stream import DONE, check, parse

Json = Any

LONG = script({"say": "begun"}, {"wait_ms": 60_000})
TOO_LONG = {"fail": {"code": "context_too_long", "message": "The conversation is too long for the model"}}
"""The step of a script that fails as a model does whose context window is full."""
STATUS_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    409: "conflict_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}


def function(name: str, **properties: Json) -> Json:
    """A tool of the application."""
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": properties}}


def output(call_id: str, text: Json) -> Json:
    """What such a tool returned."""
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def approval(request: Json, *, approve: bool, reason: str | None = None) -> Json:
    """A decision about a call."""
    answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}
    return answer | ({} if reason is None else {"reason": reason})


class StreamReader(EventReader):
    """Reads a stream of events."""

    def __init__(self, stream: Stream, *, first: int = 0) -> None:
        super().__init__(stream, parse, first=first)

    async def wait_for_text(self, text: str) -> None:
        """Read until the agent's whole text is `text`."""
        while "".join(each["delta"] for each in self.events if each["type"] == "response.output_text.delta") != text:
            assert await self.more(), self.events

    async def end(self) -> Json:
        """Read to the end and check all events; return the terminal response."""
        return check(await self.read_to_end(), first=self.first, is_whole=self.first == 0)

    @property
    def is_done(self) -> bool:
        return bool(self.events) and self.events[-1]["type"] == DONE


class OpenAiClient:
    """A client with one key. Without a key it sends no `Authorization`."""

    def __init__(self, connection: Connection, key: str | None = None, *, path: str = "/v1") -> None:
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
        """Send a request; return when the response has begun."""
        lines = {"content-type": "application/json"}
        if self.key is not None:
            lines["authorization"] = f"Bearer {self.key}"
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        return await self.connection.open(
            method, self.path + path, headers=list((lines | (headers or {})).items()), body=content
        )

    async def request(self, method: str, path: str, body: Json = None, **how: Any) -> Reply:
        """Send a request and read the whole response."""
        stream = await self.open(method, path, body, **how)
        reply = Reply(stream.status, stream.headers, await stream.read())
        assert reply.headers["x-request-id"].startswith("req_")
        return reply

    async def get(self, path: str, body: Json = None, *, method: str = "GET", **how: Any) -> Json:
        """Send a request that must succeed."""
        reply = await self.request(method, path, body, **how)
        assert reply.status == 200, reply.json
        assert reply.headers["openai-processing-ms"].isdigit()
        return reply.json

    async def post(self, path: str, body: Json = None) -> Json:
        return await self.get(path, body, method="POST")

    async def delete(self, path: str) -> Json:
        return await self.get(path, method="DELETE")

    async def refused(self, method: str, path: str, body: Json = None, **how: Any) -> tuple[int, str, str]:
        """Send a request that must be refused; return the status, the code and the field at fault."""
        reply = await self.request(method, path, body, **how)
        assert reply.json.keys() == {"error"}, reply.json
        error = reply.json["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert all(isinstance(each, str) for each in error.values())
        assert error["type"] == STATUS_TYPES.get(reply.status, "invalid_request_error")
        assert reply.headers["content-type"] == "application/json"
        return reply.status, error["code"], error["param"]

    async def respond(self, given: Json, **more: Json) -> Json:
        """Run to the end; return the response."""
        return await self.post("/responses", {"model": "rehearsal", "input": given, **more})

    async def stream(self, given: Json, **more: Json) -> StreamReader:
        """Start a response and stream it."""
        body = {"model": "rehearsal", "input": given, "stream": True, **more}
        return await self.follow("POST", "/responses", body)

    async def follow(self, method: str, path: str, body: Json = None, *, first: int = 0, **how: Any) -> StreamReader:
        stream = await self.open(method, path, body, **how)
        assert stream.status == 200, await stream.read()
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-cache"
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.headers["x-request-id"].startswith("req_")
        return StreamReader(stream, first=first)

    async def replay(self, response_id: str, after: int | None = None) -> StreamReader:
        """Replay a response."""
        query = "" if after is None else f"&starting_after={after}"
        first = 0 if after is None else after + 1
        return await self.follow("GET", f"/responses/{response_id}?stream=true{query}", first=first)
