"""Nearly valid requests to Responses, Conversations and Chat Completions: the server never fails."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.abuse.mutation import mutated
from tests.protocols.openai.client import Json, OpenAiClient, approval, function, output
from tests.requirements import requirement
from tests.servers import running_server

REQUESTS = 500
PNG = "data:image/png;base64,iVBORw0KGgo="
COMMON: Json = {"model": "rehearsal", "temperature": 0.5, "top_p": 1, "parallel_tool_calls": True, "store": False}
RESPONSES: tuple[Json, ...] = (
    {
        **COMMON,
        "input": [
            {"role": "system", "content": "be brief"},
            {
                "role": "user",
                "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": PNG}],
            },
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "b"}],
                "phase": "final",
            },
            {"type": "function_call", "call_id": "c", "name": "paint", "arguments": "{}"},
            output("c", [{"type": "input_text", "text": "red"}]),
            {"role": "user", "content": "hello"},
        ],
        "tools": [function("paint", colour={"type": "string"})],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "paint"}]},
        "metadata": {"a": "b"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "max_output_tokens": 100,
        "max_tool_calls": 3,
    },
    {
        **COMMON,
        "input": "hello",
        "stream": True,
        "tools": [function("paint")],
        "tool_choice": {"type": "function", "name": "paint"},
        "conversation": {"id": "CONVERSATION"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}},
    },
    {**COMMON, "input": [approval({"id": "mcpr_x"}, approve=True), {"type": "item_reference", "id": "msg_x"}]},
    {**COMMON, "input": "hello", "previous_response_id": "RESPONSE", "instructions": "x"},
)
CHATS: tuple[Json, ...] = (
    {
        **COMMON,
        "messages": [
            {"role": "developer", "content": "be brief"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": PNG}}],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "paint", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "red"}]},
            {"role": "user", "content": "hello"},
        ],
        "tools": [{"type": "function", "function": {"name": "paint", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "paint"}},
        "stop": ["x"],
        "seed": 1,
        "n": 1,
        "metadata": {"dragoman_session": "fuzzed"},
    },
    {
        **COMMON,
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 10,
        "reasoning_effort": "low",
        "modalities": ["text"],
    },
)
CONVERSATIONS: tuple[Json, ...] = ({"metadata": {"a": "b"}, "items": [{"role": "user", "content": "x"}]},)


@requirement("openai:abuse:fuzz", "openai-chat:abuse:bodies")
@pytest.mark.parametrize(
    ("path", "bodies"),
    [("responses", RESPONSES), ("chat/completions", CHATS), ("conversations", CONVERSATIONS)],
    ids=["responses", "chat", "conversations"],
)
async def test_tampered_requests_never_make_the_server_fail(
    tmp_path: Path, path: str, bodies: tuple[Json, ...]
) -> None:
    rng, statuses = random.Random(path), Counter[int]()
    async with running_server(tmp_path, requests_per_minute=0) as server:
        client = OpenAiClient(server.connection, server.key("alice"))
        response = (await client.post("/responses", {"input": "hello"}))["id"].encode()
        conversation = (await client.post("/conversations", {}))["id"].encode()
        for number in range(REQUESTS):
            raw = mutated(rng, rng.choice(bodies)).replace(b"RESPONSE", response).replace(b"CONVERSATION", conversation)
            reply = await client.request("POST", f"/{path}", raw=raw)
            statuses[reply.status] += 1
            assert reply.status < 500, (number, raw, reply)
            if not reply.body.startswith((b"event", b"data")):
                assert isinstance(json.loads(reply.body), dict)
    assert min(statuses[200], statuses[400]) > REQUESTS // 20, statuses
