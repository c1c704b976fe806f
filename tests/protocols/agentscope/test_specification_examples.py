"""The examples of the Agent API's specification, sent as they are written.

Source: seed 004, the examples of a stream and of the usage. An event may have more members than in the examples.
"""

from typing import Any

import pytest

from tests.protocols.agentscope.client import AgentScopeClient, script
from tests.protocols.agentscope.stream import check, parse
from tests.requirements import requirement

Json = Any

QUERY = {
    "input": [{"role": "user", "content": [{"type": "text", "text": "描述这张图片"}], "type": "message"}],
    "stream": True,
    "model": "gpt-4-vision",
}
DELTA = {"status": "in_progress", "type": "text", "index": 0, "delta": True, "object": "content"}
HELLO_STREAM: list[Json] = [
    {"status": "created", "object": "response"},
    {"status": "created", "object": "message", "type": "message"},
    DELTA,
    {"status": "completed", "type": "text", "index": 0, "delta": False, "text": "Hello, world!", "object": "content"},
    {"status": "completed", "object": "message"},
    {"status": "completed", "object": "response"},
]
"""With one delta for all. In the example, the message has the type `assistant`, which the enumeration of types lacks.
Responses and messages also have a state `in_progress`."""
STATES = {"created", "in_progress", "completed", "canceled", "failed", "rejected", "unknown"}
TYPES = {
    "message",
    "reasoning",  # of the published package; the page leaves it out
    "function_call",
    "function_call_output",
    "plugin_call",
    "plugin_call_output",
    "component_call",
    "component_call_output",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_call",
    "mcp_approval_response",
    "heartbeat",
    "error",
}


@requirement("agentscope:specification:query")
async def test_the_users_query_is_answered(alice: AgentScopeClient) -> None:
    reply = await alice.request("POST", "/process", QUERY)
    assert (reply.status, reply.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    events = parse(reply.body)
    end = check(events)
    assert (end["object"], end["status"], end["error"]) == ("response", "completed", None)
    (message,) = end["output"]
    assert (message["object"], message["type"], message["role"]) == ("message", "message", "assistant")
    assert message["content"][0]["text"] == "You said: 描述这张图片"


@requirement("agentscope:specification:stream")
async def test_a_text_is_streamed_as_the_example_shows(alice: AgentScopeClient) -> None:
    play = script({"say": "Hello, world!", "size": 5, "every_ms": 20})
    query = {**QUERY, "model": "rehearsal", "input": [{"role": "user", "content": [text(play)], "type": "message"}]}
    events = parse((await alice.request("POST", "/process", query)).body)
    check(events)
    deltas = [each for each in events if each.get("delta")]
    assert len(deltas) > 1
    assert "".join(each["text"] for each in deltas) == "Hello, world!"
    assert [{name: each[name] for name in DELTA} for each in deltas] == [DELTA] * len(deltas)
    shown = [each for each in events if each["status"] != "in_progress" or each is deltas[0]]
    assert [{name: each[name] for name in example} for each, example in zip(shown, HELLO_STREAM, strict=True)] == (
        HELLO_STREAM
    )
    message = next(each for each in shown if each["object"] == "message")
    assert {each["msg_id"] for each in shown if each["object"] == "content"} == {message["id"]}
    assert message["id"].startswith("msg_")
    assert shown[0]["id"].startswith("response_")
    assert [each["sequence_number"] for each in events] == list(range(len(events)))


@requirement("agentscope:specification:stream")
async def test_every_state_and_type_is_one_of_the_enumerations(alice: AgentScopeClient) -> None:
    play = script({"think": "hm"}, {"call": {"name": "add", "input": {"a": 1, "b": 2}}}, {"say": "{result}"})
    query = {**QUERY, "model": "rehearsal", "input": [{"role": "user", "content": [text(play)], "type": "message"}]}
    for each in parse((await alice.request("POST", "/process", query)).body):
        assert each["status"] in STATES
        if each["object"] == "message":
            assert each["type"] in TYPES
            assert each["role"] in ("assistant", "user", "system", "tool")


@requirement("agentscope:specification:request")
@pytest.mark.parametrize(
    "fields",
    [
        {"top_p": 0.5, "temperature": 0.5, "frequency_penalty": 0.5, "presence_penalty": 0.5, "max_tokens": 100},
        {"stop": "END", "n": 1, "seed": 7},
        {"stop": ["END", "STOP"], "n": 5},
        {"tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}]},
        {
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "f",
                        "description": "d",
                        "parameters": {"type": "object", "properties": {"c": {"type": "string"}}, "required": ["c"]},
                    },
                }
            ]
        },
        dict.fromkeys(("model", "top_p", "temperature", "max_tokens", "stop", "seed", "tools", "session_id"), None),
        {"session_id": "a-conversation", "response_id": "response_of_the_specification"},
    ],
    ids=["sampling", "one stop", "several stops", "any parameters", "parameters", "nulls", "ids"],
)
async def test_every_field_of_a_request_is_accepted(alice: AgentScopeClient, fields: dict[str, Json]) -> None:
    reply = await alice.request("POST", "/process", {**QUERY, "model": "rehearsal", **fields})
    assert reply.status == 200, reply
    assert check(parse(reply.body))["status"] == "completed"


@requirement("agentscope:specification:request")
@pytest.mark.parametrize("n", [0, 6])
async def test_a_number_of_answers_outside_its_range_is_refused(alice: AgentScopeClient, n: int) -> None:
    assert await alice.assert_refused("POST", "/process", {**QUERY, "n": n}) == "INVALID_REQUEST"


@requirement("agentscope:specification:query")
async def test_a_response_has_the_fields_of_its_model(alice: AgentScopeClient) -> None:
    end = check(parse((await alice.request("POST", "/process", {**QUERY, "session_id": "fields"})).body))
    names = {"sequence_number", "id", "object", "created_at", "completed_at", "error", "output", "usage", "session_id"}
    assert names <= end.keys()
    assert isinstance(end["created_at"], int)
    assert end["completed_at"] >= end["created_at"]
    assert end["session_id"] == "fields"
    message = {"id", "object", "type", "status", "role", "content", "code", "message"}
    assert message <= end["output"][0].keys()


def text(content: str) -> Json:
    return {"type": "text", "text": content}
