"""Sessions that the console is to show, played beforehand over another door."""

import json
from base64 import b64decode
from typing import Any

from tests.servers import SocketServer

Json = Any
PICTURE = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")
"""One pixel."""


async def answer(server: SocketServer, method: str, path: str, body: Json = None, key: str = "alice") -> bytes:
    """An answer of the server, as the holder of a key gets it."""
    headers = [("authorization", f"Bearer {server.key(key)}"), ("content-type", "application/json")]
    raw = b"" if body is None else json.dumps(body).encode()
    stream = await server.connection.open(method, path, headers=headers, body=raw)
    content = await stream.read()
    assert stream.status < 300, (stream.status, content)
    return content


async def play_session(server: SocketServer, *steps: Json, session: str | None = None) -> str:
    """Let the rehearsal agent play these steps to their end; the session's id."""
    text = json.dumps({"script": steps})
    body = {"input": [{"role": "user", "content": [{"type": "text", "text": text}]}]}
    told = await answer(server, "POST", "/process", body if session is None else {**body, "session_id": session})
    events = [json.loads(line.removeprefix(b"data: ")) for line in told.splitlines() if line.startswith(b"data: ")]
    assert events[-1]["status"] == "completed", events[-1]
    return str(events[-1]["session_id"])
