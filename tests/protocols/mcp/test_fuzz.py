"""Nearly valid messages of both kinds of clients: the server never fails, and no answer is an internal error."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.abuse.mutation import mutated
from tests.protocols.mcp.client import FORMS, NEW, OLD, TASKS, Json, McpClient
from tests.requirements import requirement
from tests.servers import running_server

REQUESTS = 600


def messages(client: McpClient, session_id: str) -> list[Json]:
    """Valid messages, none of which waits."""
    call: Json = {"name": "rehearsal", "arguments": {"message": "hello", "session_id": session_id}}
    files = [{"mime_type": "image/png", "data": "iVBORw0KGgo=", "name": "a.png"}]
    new = {"name": "rehearsal", "arguments": {"message": "", "files": files, "options": {"style": "loud"}}}
    repeated = {**call, "requestState": "W10", "inputResponses": {"c": {"action": "accept", "content": {}}}}
    return [
        client.message("tools/call", call),
        client.message("tools/call", new),
        client.message("tools/call", repeated),
        client.message("tools/list", {"cursor": "0"}),
        client.message("resources/list", {"cursor": "x"}),
        client.message("resources/read", {"uri": f"dragoman://sessions/{session_id}"}),
        client.message("tasks/get", {"taskId": session_id}),
        client.message("tasks/update", {"taskId": session_id, "inputResponses": {}}),
        client.message("initialize", {"protocolVersion": OLD, "capabilities": FORMS}),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        {"jsonrpc": "2.0", "id": f"q-{session_id}-call", "result": {"action": "accept", "content": {"a": 1}}},
    ]


def matching_headers(client: McpClient, body: Json, raw: bytes) -> list[tuple[str, str]]:
    """The headers of the tampered message, or of the valid one where there are none."""
    try:
        headers = client.headers(json.loads(raw))
        for _, value in headers:
            value.encode("ascii")
    except (ValueError, AttributeError, TypeError, RecursionError):
        return client.headers(body)
    return headers


@requirement("mcp:transport:abuse")
@pytest.mark.parametrize("version", [OLD, NEW])
async def test_tampered_messages_are_never_5xx(tmp_path: Path, version: str) -> None:
    rng, statuses = random.Random(version), Counter[int]()
    async with running_server(tmp_path, requests_per_minute=0) as server:
        capabilities = {**FORMS, "extensions": {TASKS: {}}}
        alice = McpClient(server.connection, server.key("alice"), version=version, capabilities=capabilities)
        if version == OLD:
            await alice.initialize()
        session_id = (await alice.said("hello"))["session_id"]
        for number in range(REQUESTS):
            body = rng.choice(messages(alice, session_id))
            raw = mutated(rng, body)
            sent = matching_headers(alice, body, raw)
            stream = await alice.connection.open("POST", "/mcp", headers=sent, body=raw)
            answer = await stream.read()
            statuses[stream.status] += 1
            assert stream.status < 500, (number, raw, answer)
            assert b"-32603" not in answer, (number, raw, answer)
            if stream.headers.get("content-type") == "application/json":
                assert json.loads(answer)["jsonrpc"] == "2.0"
    assert statuses[400] > REQUESTS // 4, statuses
    assert statuses[200] > 5, statuses
