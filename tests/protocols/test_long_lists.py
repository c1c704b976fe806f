"""A list that is longer than any request's is refused before its entries are translated: that would stop the server."""

import json
from pathlib import Path
from typing import Any

from tests.asgi_client import Stream
from tests.requirements import requirement
from tests.servers import running_server

MANY = 10_001
USER = {"id": "m", "role": "user", "content": "a"}
TEXT = {"type": "text", "text": "a"}
CALL = {"name": "rehearsal", "arguments": {"message": "a", "options": {str(number): "" for number in range(MANY)}}}
REQUESTS: dict[str, Any] = {
    "/ag-ui/rehearsal": {"threadId": "t", "runId": "r", "messages": [USER] * MANY},
    "/process": {"input": [{"role": "user", "content": [TEXT]}] * MANY},
    "/mcp": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL},
}


@requirement("ag-ui-b:transport:http-errors", "agentscope:errors:form", "mcp:transport:abuse")
async def test_a_list_that_is_too_long_is_refused_with_its_length(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        headers = [
            ("authorization", f"Bearer {server.key('alice')}"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ]

        async def post(path: str, body: Any) -> Stream:
            return await server.connection.open("POST", path, headers=headers, body=json.dumps(body).encode())

        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        begun = await post("/mcp", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        headers.append(("mcp-session-id", begun.headers["mcp-session-id"]))
        for path, body in REQUESTS.items():
            answer = (await (await post(path, body)).read()).decode()
            assert f"got {MANY}" in answer, path
