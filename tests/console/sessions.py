"""Sessions for the console to show, created over another protocol."""

import json
from base64 import b64decode
from typing import Any

from tests.servers import SocketServer

Json = Any
PICTURE = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")
"""A PNG of one pixel."""


async def answer(server: SocketServer, method: str, path: str, body: Json = None, key: str = "alice") -> bytes:
    """The body of the server's response to a request with that key."""
    headers = [("authorization", f"Bearer {server.key(key)}"), ("content-type", "application/json")]
    raw = b"" if body is None else json.dumps(body).encode()
    stream = await server.connection.open(method, path, headers=headers, body=raw)
    content = await stream.read()
    assert stream.status < 300, (stream.status, content)
    return content


async def play_session(server: SocketServer, *steps: Json, session: str | None = None) -> str:
    """Run the rehearsal agent with these steps to the end, and return the session ID."""
    text = json.dumps({"script": steps})
    body = {"input": [{"role": "user", "content": [{"type": "text", "text": text}]}]}
    stream = await answer(server, "POST", "/process", body if session is None else {**body, "session_id": session})
    events = [json.loads(line.removeprefix(b"data: ")) for line in stream.splitlines() if line.startswith(b"data: ")]
    assert events[-1]["status"] == "completed", events[-1]
    return str(events[-1]["session_id"])
