"""The schema of AAP v3, as data, and one conversation whose every request and response fits it.

A type maps its members to their types; an optional member ends with `?`. A value is a Python type, the name of an
entry, a list of one (a list), a dict of one with the key `str` (a map), a tuple (one of them), or a set (one of these
strings). Members that are not in the schema must be in `_meta`. Source: seeds 000 and 001, which agree.
"""

import json
from typing import Any

import pytest

from tests.protocols.aap.client import AapClient, call, calls, script
from tests.protocols.aap.stream import parse_frames
from tests.requirements import requirement

Json = Any

TEXT_OPTION = {"type": {"text"}, "name": str, "title?": str, "description?": str, "default": str}
FLAG: dict[str, Json] = {}
SCHEMA: dict[str, Json] = {
    "TextAgentOption": TEXT_OPTION,
    "SecretAgentOption": {**TEXT_OPTION, "type": {"secret"}},
    "SelectAgentOption": {**TEXT_OPTION, "type": {"select"}, "options": [str]},
    "AgentOption": ("TextAgentOption", "SecretAgentOption", "SelectAgentOption"),
    "AgentConfig": {"name": str, "tools?": ["ServerToolRef"], "options?": {str: str}},
    "HistoryFlags": {"compacted?": FLAG, "full?": FLAG},
    "StreamFlags": {"delta?": FLAG, "message?": FLAG, "none?": FLAG},
    "ApplicationFlags": {"tools?": FLAG},
    "ImageFlags": {"http?": FLAG, "data?": FLAG},
    "AgentCapabilities": {
        "history?": "HistoryFlags",
        "stream?": "StreamFlags",
        "application?": "ApplicationFlags",
        "image?": "ImageFlags",
    },
    "AgentInfo": {
        "name": str,
        "title?": str,
        "version": str,
        "description?": str,
        "tools?": ["ToolSpec"],
        "options?": ["AgentOption"],
        "capabilities?": "AgentCapabilities",
    },
    "TextContentBlock": {"type": {"text"}, "text": str},
    "ThinkingContentBlock": {"type": {"thinking"}, "thinking": str},
    "ToolUseContentBlock": {"type": {"tool_use"}, "toolCallId": str, "name": str, "input": dict},
    "ImageContentBlock": {"type": {"image"}, "url": str},
    "ContentBlock": ("TextContentBlock", "ThinkingContentBlock", "ToolUseContentBlock", "ImageContentBlock"),
    "SystemMessage": {"role": {"system"}, "content": str},
    "UserMessage": {"role": {"user"}, "content": (str, ["ContentBlock"])},
    "AssistantMessage": {"role": {"assistant"}, "content": (str, ["ContentBlock"])},
    "ToolMessage": {"role": {"tool"}, "toolCallId": str, "content": (str, ["ContentBlock"])},
    "HistoryMessage": ("SystemMessage", "UserMessage", "AssistantMessage", "ToolMessage"),
    "AgentMessage": ("AssistantMessage", "ToolMessage"),
    "ApplicationMessage": ("UserMessage", "ToolMessage", "ToolPermissionMessage"),
    "ToolPermissionMessage": {"role": {"tool_permission"}, "toolCallId": str, "granted": bool, "reason?": str},
    "PostSessionsRequest": {"agent": "AgentConfig", "messages?": ["HistoryMessage"], "tools?": ["ToolSpec"]},
    "AgentOverride": {"tools?": ["ServerToolRef"], "options?": {str: str}},
    "PostSessionTurnRequest": {
        "agent?": "AgentOverride",
        "stream?": "StreamMode",
        "messages": ["ApplicationMessage"],
        "tools?": ["ToolSpec"],
    },
    "PostSessionTurnResponse": {"stopReason": "StopReason", "messages": ["AgentMessage"]},
    "PostSessionsResponse": {"sessionId": str},
    "Histories": {"compacted?": ["HistoryMessage"], "full?": ["HistoryMessage"]},
    "GetSessionHistoryResponse": {"history": "Histories"},
    "GetSessionsResponse": {"sessions": ["SessionInfo"], "next?": str},
    "GetMetaResponse": {"version": int, "agents": ["AgentInfo"]},
    "StreamMode": {"delta", "message", "none"},
    "StopReason": {"end_turn", "tool_use", "max_tokens", "refusal", "error"},
    "SessionInfo": {"sessionId": str, "agent": "AgentConfig", "tools?": ["ToolSpec"]},
    "ToolSpec": {"name": str, "title?": str, "description": str, "parameters": dict},
    "ServerToolRef": {"name": str, "trust?": bool},
    "turn_start": {},
    "text_delta": {"delta": str},
    "thinking_delta": {"delta": str},
    "text": {"text": str},
    "thinking": {"thinking": str},
    "tool_call": {"toolCallId": str, "name": str, "input": dict},
    "tool_result": {"toolCallId": str, "content": (str, ["ContentBlock"])},
    "turn_stop": {"stopReason": "StopReason"},
}
DELTA_EVENTS = {"turn_start", "text_delta", "thinking_delta", "tool_call", "tool_result", "turn_stop"}
MESSAGE_EVENTS = {"turn_start", "text", "thinking", "tool_call", "tool_result", "turn_stop"}


def problem(value: Json, kind: Json, path: str = "$") -> str:
    """What is wrong with a value; empty if it fits the type."""
    match kind:
        case str():
            return problem(value, SCHEMA[kind], path)
        case type():
            return "" if type(value) is kind else f"{path}: {value!r} is no {kind.__name__}"
        case set():
            return "" if value in kind else f"{path}: {value!r} is none of {sorted(kind)}"
        case tuple():
            problems = [problem(value, each, path) for each in kind]
            return "" if "" in problems else " or ".join(problems)
        case [each]:
            if type(value) is not list:
                return f"{path}: {value!r} is no list"
            return next(filter(None, (problem(item, each, f"{path}[{at}]") for at, item in enumerate(value))), "")
        case {**members} if str in members:
            return next(filter(None, (problem(item, members[str], f"{path}.{at}") for at, item in value.items())), "")
    return object_problem(value, kind, path)


def object_problem(value: Json, members: dict[str, Json], path: str) -> str:
    if type(value) is not dict:
        return f"{path}: {value!r} is no object"
    known = {name.removesuffix("?") for name in members} | {"_meta"}
    missing = [name for name in members if not name.endswith("?") and name not in value]
    if missing or not value.keys() <= known:
        return f"{path}: missing {missing}, unknown {sorted(value.keys() - known)}"
    own = ((name.removesuffix("?"), kind) for name, kind in members.items())
    return next(filter(None, (problem(value[name], kind, f"{path}.{name}") for name, kind in own if name in value)), "")


class CheckedClient:
    """Sends requests that fit the schema, and checks that the responses do."""

    def __init__(self, client: AapClient) -> None:
        self._client = client

    async def get(self, path: str, kind: str) -> Json:
        response = (await self._client.get(path)).json
        assert problem(response, kind) == ""
        return response

    async def post(self, path: str, body: Json, request: str, kind: str) -> Json:
        assert problem(body, request) == ""
        response = (await self._client.post(path, body)).json
        assert problem(response, kind) == ""
        return response

    async def stream(self, path: str, body: Json) -> list[tuple[str, Json]]:
        assert problem(body, "PostSessionTurnRequest") == ""
        frames = parse_frames((await self._client.post(path, body)).body)
        events = DELTA_EVENTS if body["stream"] == "delta" else MESSAGE_EVENTS
        for frame in frames:
            assert frame.event in events
            assert problem(frame.data, frame.event) == ""
        return [(frame.event, frame.data) for frame in frames]


PAINT = {"name": "paint", "title": "Paint", "description": "", "parameters": {"type": "object"}}
SEEDS: list[Json] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi"},
    {"role": "user", "content": [{"type": "text", "text": "And?"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "tool_use", "toolCallId": "c-1", "name": "paint", "input": {}},
        ],
    },
    {"role": "tool", "toolCallId": "c-1", "content": [{"type": "text", "text": "painted"}]},
]
CREATION: Json = {
    "agent": {
        "name": "rehearsal",
        "tools": [{"name": "add", "trust": True}, {"name": "stamp"}],
        "options": {"style": "loud", "token": "12345"},
    },
    "messages": SEEDS,
    "tools": [PAINT],
}
PLAY = script(
    {"think": "hm"},
    {"say": "So: "},
    call("add", a=1, b=2),
    calls(("paint", {}), ("stamp", {"text": "x"})),
    {"say": "{results}"},
)


@requirement("aap:schema:responses")
@pytest.mark.parametrize("mode", ["delta", "message"])
async def test_every_request_and_response_of_a_conversation_fits_the_schema(aap_client: AapClient, mode: str) -> None:
    client = CheckedClient(aap_client)
    meta = await client.get("/meta", "GetMetaResponse")
    assert meta["version"] == 3
    created = await client.post("/sessions", CREATION, "PostSessionsRequest", "PostSessionsResponse")
    path = f"/sessions/{created['sessionId']}"

    asked = {"stream": mode, "messages": [{"role": "user", "content": PLAY}]}
    events = await client.stream(f"{path}/turns", asked)
    ids = {data["name"]: data["toolCallId"] for event, data in events if event == "tool_call"}
    assert (events[-1][1]["stopReason"], set(ids)) == ("tool_use", {"add", "paint", "stamp"})

    answers = [
        {"role": "tool", "toolCallId": ids["paint"], "content": "blue"},
        {"role": "tool_permission", "toolCallId": ids["stamp"], "granted": False, "reason": "no"},
    ]
    changes = {"agent": {"options": {"style": "plain"}, "tools": [{"name": "add"}]}, "tools": []}
    answered = await client.post(
        f"{path}/turns", {"messages": answers, **changes}, "PostSessionTurnRequest", "PostSessionTurnResponse"
    )
    assert (answered["stopReason"], len(answered["messages"])) == ("end_turn", 2)

    for kind in ("full", "compacted"):
        history = await client.get(f"{path}/history?type={kind}", "GetSessionHistoryResponse")
        assert list(history["history"]) == [kind]
        assert history["history"][kind][: len(SEEDS)] == [seed_as_shown(each) for each in SEEDS]
    info = await client.get(path, "SessionInfo")
    assert info["agent"]["options"] == {"style": "plain", "token": "***"}
    assert info["agent"]["tools"] == [{"name": "add"}]
    assert "tools" not in info
    listed = await client.get("/sessions", "GetSessionsResponse")
    assert info["sessionId"] in [each["sessionId"] for each in listed["sessions"]]
    assert (await aap_client.request("DELETE", path)).status == 204


def seed_as_shown(seed: Json) -> Json:
    """The content of assistant messages is always shown as a list."""
    if seed["role"] == "assistant" and isinstance(seed["content"], str):
        return {**seed, "content": [{"type": "text", "text": seed["content"]}]}
    return seed


@requirement("aap:schema:responses")
def test_the_schema_finds_what_does_not_fit() -> None:
    assert problem({"stopReason": "end_turn", "messages": [], "_meta": {}}, "PostSessionTurnResponse") == ""
    for wrong in (
        {"stopReason": "done", "messages": []},
        {"stopReason": "end_turn"},
        {"stopReason": "end_turn", "messages": [], "more": 1},
        {"stopReason": "end_turn", "messages": [{"role": "assistant", "content": [{"type": "text"}]}]},
    ):
        assert problem(json.loads(json.dumps(wrong)), "PostSessionTurnResponse")
