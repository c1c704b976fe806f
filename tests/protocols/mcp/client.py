"""A plain client of MCP for tests: it writes JSON-RPC by hand, in the versions with sessions and in the new one."""

import itertools
import json
from typing import Any

from tests.asgi_client import Answer, Stream
from tests.conversations import call, script
from tests.protocols.aap.client import Connection
from tests.servers import AppServer

Json = Any

NEW = "2026-07-28"
OLD = "2025-11-25"
META = "io.modelcontextprotocol/"
TASKS = f"{META}tasks"
FORMS: Json = {"elicitation": {}}
STAMP = script(call("stamp", text="x"), {"say": "then: {result}"})
SLOW = script({"say": "one "}, {"wait_ms": 600_000}, {"say": "two"})


async def session_status(server: AppServer, session_id: str) -> str:
    """The status of a session of alice's, as AAP shows it."""
    reply = await server.aap_client("alice").get(f"/sessions/{session_id}")
    return str(reply.json["_meta"]["status"])


class CallStream:
    """The stream of a call. Keeps its messages and the ids of its events."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.messages: list[Json] = []
        self.ids: list[str] = []
        self.primed: str | None = None
        self._body = b""

    async def next(self) -> Json | None:
        """Read the next message; None at the end of the stream."""
        while True:
            while b"\n\n" in self._body:
                frame, _, self._body = self._body.partition(b"\n\n")
                fields = dict(line.split(": ", 1) for line in frame.decode().split("\n") if not line.startswith(":"))
                if "id" in fields:
                    self.ids.append(fields["id"])
                if fields.get("data"):
                    self.messages.append(json.loads(fields["data"]))
                    return self.messages[-1]
                self.primed = fields.get("retry", self.primed)
            chunk = await self.stream.chunk()
            if chunk is None:
                return None
            self._body += chunk

    async def until(self, method: str) -> Json:
        """Read until a request or a notification of that method."""
        while (message := await self.next()) is not None:
            if message.get("method") == method:
                return message
        raise AssertionError(f"the stream ended without {method}: {self.messages}")

    async def rest(self) -> list[Json]:
        """Read to the end."""
        while await self.next() is not None:
            pass
        return self.messages

    async def result(self) -> Json:
        """Read to the end, which is the result."""
        return (await self.rest())[-1]["result"]

    def progress(self) -> list[Json]:
        return [each["params"] for each in self.messages if each.get("method") == "notifications/progress"]


class McpClient:
    """One MCP session, or a client of the new version."""

    def __init__(
        self,
        connection: Connection,
        key: str | None,
        *,
        version: str = OLD,
        capabilities: Json = None,
        path: str = "/mcp",
    ) -> None:
        self.connection = connection
        self.key = key
        self.version = version
        self.capabilities = capabilities or {}
        self.path = path
        self.session: str | None = None
        self._ids = itertools.count(1)

    # --- messages -------------------------------------------------------------------------------------------------

    async def initialize(self) -> Json:
        params = {"protocolVersion": self.version, "capabilities": self.capabilities, "clientInfo": {"name": "test"}}
        answer = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert answer.status == 200, answer.body
        self.session = answer.headers["mcp-session-id"]
        return json.loads(answer.body)["result"]

    def message(self, method: str, params: Json = None, *, request_id: Json = None) -> Json:
        params = dict(params or {})
        if self.version == NEW:
            meta = {f"{META}protocolVersion": NEW, f"{META}clientCapabilities": self.capabilities}
            params["_meta"] = {**meta, **params.get("_meta", {})}
        return {
            "jsonrpc": "2.0",
            "id": next(self._ids) if request_id is None else request_id,
            "method": method,
            "params": params,
        }

    async def request(self, method: str, params: Json = None) -> Json:
        """Send a request; returns its result."""
        answer = await self.post(self.message(method, params))
        body = json.loads(answer.body)
        assert (answer.status, body.get("error")) == (200, None), body
        return body["result"]

    async def error(self, method: str, params: Json = None) -> tuple[int, int]:
        """Send a request that fails; returns the HTTP status and the code."""
        answer = await self.post(self.message(method, params))
        return answer.status, json.loads(answer.body)["error"]["code"]

    # --- calls ----------------------------------------------------------------------------------------------------

    async def open(
        self, message: str, *, token: Json = None, request_id: Json = None, more: Json = None, **arguments: Json
    ) -> CallStream:
        """Send a message to the rehearsal agent; returns the stream of the answer."""
        params: Json = {"name": "rehearsal", "arguments": {"message": message, **arguments}, **(more or {})}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        body = self.message("tools/call", params, request_id=request_id)
        stream = await self.connection.open(
            "POST", self.path, headers=self.headers(body), body=json.dumps(body).encode()
        )
        assert stream.status == 200, await stream.read()
        return CallStream(stream)

    async def call(self, message: str, **arguments: Json) -> Json:
        """Send a message to the rehearsal agent; returns the result."""
        stream = await self.open(message, **arguments)
        if stream.stream.headers["content-type"] == "application/json":
            return json.loads(await stream.stream.read())["result"]
        return await stream.result()

    async def said(self, message: str, **arguments: Json) -> Json:
        """Send a message; returns what programs read of the result."""
        return (await self.call(message, **arguments))["structuredContent"]

    async def answer_form(self, form: Json, action: str, **content: Json) -> int:
        """Answer a form; returns the HTTP status."""
        result = {"action": action, **({"content": content} if content else {})}
        return (await self.post({"jsonrpc": "2.0", "id": form["id"], "result": result})).status

    async def resume(self, event_id: str) -> CallStream:
        headers = [("accept", "text/event-stream"), ("last-event-id", event_id), *self._identity()]
        return CallStream(await self.connection.open("GET", self.path, headers=headers))

    # --- HTTP -----------------------------------------------------------------------------------------------------

    def _identity(self) -> list[tuple[str, str]]:
        headers = [("mcp-protocol-version", self.version)] if self.session or self.version == NEW else []
        if self.key is not None:
            headers.append(("authorization", f"Bearer {self.key}"))
        if self.session is not None:
            headers.append(("mcp-session-id", self.session))
        return headers

    def headers(self, body: Json) -> list[tuple[str, str]]:
        headers = [("accept", "application/json, text/event-stream"), ("content-type", "application/json")]
        if self.version == NEW and isinstance(body, dict) and "method" in body:
            headers.append(("mcp-method", body["method"]))
            params = body.get("params") or {}
            named = params.get("name") or params.get("uri") or params.get("taskId")
            if named:
                headers.append(("mcp-name", named))
        return [*headers, *self._identity()]

    async def post(self, body: Json, **headers: str) -> Answer:
        """Post a body, with headers that replace those of the client."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        replaced = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = [each for each in self.headers(body) if each[0] not in replaced] + list(replaced.items())
        stream = await self.connection.open("POST", self.path, headers=sent, body=raw)
        return Answer(stream.status, stream.headers, await stream.read())
