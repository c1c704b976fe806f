"""Nearly valid requests of chats: the server never fails."""

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.abuse.mutation import mutated
from tests.conversations import call, script
from tests.protocols.aisdk.client import Json, Pages, user
from tests.requirements import requirement
from tests.servers import running_server

REQUESTS = 400
PNG = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw0KGgo=", "filename": "a.png"}


def bodies_of(chat: str, call_id: str) -> list[Json]:
    """Valid requests of a chat in which a call waits for approval."""
    approval = {"id": call_id, "approved": False, "reason": "no"}
    part = {"type": "tool-stamp", "toolCallId": call_id, "state": "approval-responded", "input": {"text": "x"}}
    answer = {"id": "a1", "role": "assistant", "parts": [{"type": "step-start"}, {**part, "approval": approval}]}
    output = {"type": "tool-paint", "toolCallId": "c", "state": "output-available", "input": {}, "output": {"a": 1}}
    with_file = {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "hello"}, PNG], "metadata": {"a": 1}}
    return [
        {"id": chat, "messages": [user("hello", "u1"), answer], "trigger": "submit-message", "messageId": "a1"},
        {"id": chat, "messages": [with_file], "tools": {"paint": {"parameters": {"type": "object"}}}, "body": {"a": 1}},
        {"id": chat, "message": {"id": "a2", "role": "assistant", "parts": [output]}},
        {"id": chat, "messages": [user("hello", "u1")], "trigger": "regenerate-message", "messageId": "u1"},
        {"messages": [user("hello", "u1")], "system": "x", "tools": [{"name": "paint", "inputSchema": {}}]},
    ]


@requirement("ai-sdk:request:limits")
@pytest.mark.parametrize("version", ["5", "6", "7"])
async def test_tampered_requests_never_make_the_server_fail(tmp_path: Path, version: str) -> None:
    rng, statuses = random.Random(version), Counter[int]()
    async with running_server(tmp_path, requests_per_minute=0) as server:
        pages = Pages(server.connection, server.key("alice"))
        asked = await pages.post("fuzzed", user(script(call("stamp", text="x")), "u1"))
        call_id = next(each["toolCallId"] for each in asked.chunks if each["type"] == "tool-input-start")
        for number in range(REQUESTS):
            raw = mutated(rng, rng.choice(bodies_of("fuzzed", call_id)))
            reply = await pages.request("POST", "", raw, {"x-ai-sdk-version": version})
            statuses[reply.status] += 1
            assert reply.status < 500, (number, raw, reply)
            assert b"The server failed" not in reply.body, (number, raw, reply)
            assert (await pages.request("GET", "/fuzzed/messages")).status == 200
    assert min(statuses[200], statuses[400]) > REQUESTS // 20, statuses
