"""The examples of the run service's contract, sent as they are written, and the messages of its rules.

All requests name the same thread, so each test has a server of its own. Source: seed 002.
"""

import re
from copy import deepcopy
from datetime import date
from typing import Any

import pytest

from tests.protocols.agui.run_service import PNG, RunServiceClient, run_input, script
from tests.requirements import requirement
from tests.servers import AppServerFactory

Json = Any

THREAD = "550e8400-e29b-41d4-a716-446655440000"


def a_request(run: str, content: Json, tools: Json = (), **props: Json) -> dict[str, Json]:
    """What the four examples have in common."""
    return {
        "threadId": THREAD,
        "runId": run,
        "state": {},
        "messages": [{"id": "msg-001", "role": "user", "content": content}],
        "tools": list(tools),
        "context": [],
        "forwardedProps": {"agent_type": "worker", **props},
    }


TEXT = a_request("run-001", "帮我查一下北京今天的天气")
IMAGE_URL = "https://storage.example.com/agent-inputs/user-123/image.png?signature=xxx"
WITH_IMAGE = a_request(
    "run-002",
    [
        {"type": "text", "text": "这张图片里的内容是什么?"},
        {"type": "binary", "mimeType": "image/png", "url": IMAGE_URL},
    ],
)
WITH_TOOLS = a_request(
    "run-003",
    "北京天气怎么样?",
    [
        {
            "name": "get_weather",
            "description": "获取指定城市的天气信息",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "城市名称"}},
                "required": ["city"],
            },
        }
    ],
)
CLIENT_TIME = {
    "device_timezone": "America/Los_Angeles",
    "client_now_iso": "2026-03-16T09:12:33-07:00",
    "client_epoch_ms": 1773658353000,
}
WITH_TIME = a_request("run-004", "帮我明天早上9点创建一个日历", client_time=CLIENT_TIME)
GET_WEATHER = {
    "name": "get_weather",
    "description": "Get current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "City name"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["location"],
    },
}
CARD = {
    "version": "2.0",
    "locale": "zh-CN",
    "status": "success",
    "theme": "default",
    "root": {
        "type": "stack",
        "appearance": "card",
        "children": [
            {"type": "text", "content": "日程已创建", "role": "title"},
            {"type": "badge", "label": "SUCCESS", "status": "success"},
            {"type": "text", "content": "您的会议日程创建成功", "role": "body"},
        ],
    },
}


@requirement("runs:specification:requests", "runs:submit:accepted")
async def test_the_requests_are_accepted_one_after_the_other(open_app_server: AppServerFactory) -> None:
    async with open_app_server(agents=()) as server:
        alice = RunServiceClient(server.connection, server.key("alice"))
        with_image = deepcopy(WITH_IMAGE)
        with_image["messages"][0]["content"][1]["url"] = (await alice.upload(PNG)).json["url"]
        for request, is_new in ((TEXT, True), (with_image, False), (WITH_TOOLS, False), (WITH_TIME, False)):
            accepted = await alice.submit(request)
            assert accepted.keys() == {"taskId", "threadId", "runId", "created"}
            assert (accepted["threadId"], accepted["runId"]) == (THREAD, request["runId"])
            assert accepted["created"] is is_new
            events = await alice.events(THREAD, request["runId"])
            assert events[-1].type == "RUN_FINISHED"
            answers = [each.event["answer"] for each in events if each.type == "TEXT_MESSAGE_END"]
            content = request["messages"][0]["content"]
            assert answers == [f"You said: {content if isinstance(content, str) else content[0]['text']}"]


@requirement("runs:specification:requests")
async def test_the_image_of_the_example_needs_a_link_that_this_server_signed(
    open_app_server: AppServerFactory,
) -> None:
    async with open_app_server(agents=()) as server:
        alice = RunServiceClient(server.connection, server.key("alice"))
        refused = await alice.post("/runs", WITH_IMAGE)
        assert (refused.status, refused.json["detail"]) == (422, "binary content url is not a valid signed URL")
        assert (await alice.get(f"/history?threadId={THREAD}")).status == 404


@requirement("runs:specification:requests", "runs:tools:neither-register-nor-filter")
async def test_a_tool_of_the_example_is_called_and_answered(open_app_server: AppServerFactory) -> None:
    async with open_app_server(agents=()) as server:
        alice = RunServiceClient(server.connection, server.key("alice"))
        play = script({"call": {"name": "get_weather", "input": {"location": "Ulm"}}}, {"say": "{result}"})
        events = await alice.play(THREAD, play, tools=[GET_WEATHER])
        (call,) = (each.event["toolCallId"] for each in events if each.type == "TOOL_CALL_START")
        answered = await alice.post(f"/runs/{THREAD}/answers", {"answers": [{"callId": call, "result": "sunny"}]})
        events = await alice.events(THREAD, answered.json["runId"])
        assert [each.event["answer"] for each in events if each.type == "TEXT_MESSAGE_END"] == ["sunny"]


@requirement("runs:specification:history", "runs:history:fields")
async def test_the_history_has_the_members_of_the_example(open_app_server: AppServerFactory) -> None:
    async with open_app_server(agents=()) as server:
        alice = RunServiceClient(server.connection, server.key("alice"))
        link = (await alice.upload(PNG)).json["url"]
        play = script({"say": "好的,我来帮您创建日程。"}, {"card": CARD["root"]})
        content = [{"type": "text", "text": play}, {"type": "binary", "mimeType": "image/png", "url": link}]
        await alice.play(THREAD, content, forwardedProps={"agent_type": "worker"})
        reply = (await alice.get(f"/history?threadId={THREAD}")).json
        assert reply.keys() == {"scope", "threadId", "day", "hasMore", "messages"}
        assert (reply["scope"], reply["threadId"], reply["hasMore"]) == ("history_day", THREAD, False)
        assert date.fromisoformat(reply["day"]).isoformat() == reply["day"]
        user, assistant = reply["messages"]
        assert user.keys() == {"id", "seq", "role", "content", "attachments", "timestamp"}
        assert (user["seq"], user["role"], user["content"]) == (1, "user", play)
        (attachment,) = user["attachments"]
        assert attachment.keys() == {"mimeType", "url"}
        assert attachment["mimeType"] == "image/png"
        assert assistant.keys() == {"id", "seq", "role", "content", "ui_schema", "timestamp"}
        assert (assistant["seq"], assistant["role"]) == (2, "assistant")
        assert assistant["content"] == "好的,我来帮您创建日程。"
        schema = assistant["ui_schema"]
        assert (schema["version"], schema["root"]) == ("2.0", CARD["root"])
        for message in reply["messages"]:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", message["timestamp"])


@requirement("runs:specification:history")
async def test_a_whole_card_of_the_example_is_shown_unchanged(open_app_server: AppServerFactory) -> None:
    async with open_app_server(agents=()) as server:
        alice = RunServiceClient(server.connection, server.key("alice"))
        await alice.play(THREAD, script({"say": "x"}, {"card": CARD}))
        assert (await alice.get(f"/history?threadId={THREAD}")).json["messages"][1]["ui_schema"] == CARD


def image(**changes: Json) -> Json:
    part = {"type": "binary", "mimeType": "image/png", "url": IMAGE_URL, **changes}
    return [{"type": "text", "text": "x"}, {name: value for name, value in part.items() if value is not None}]


USER = {"id": "m", "role": "user", "content": "x"}
RULES: tuple[tuple[dict[str, Json], str], ...] = (
    ({"state": "x" * 262_144}, "RunAgentInput payload exceeds size limit"),
    ({"threadId": "thread"}, "threadId must be a valid UUID"),
    ({"runId": "r" * 129}, "runId exceeds length limit"),
    (
        {"messages": [USER, *({"id": str(each), "role": "system", "content": ""} for each in range(200))]},
        "RunAgentInput.messages exceeds limit",
    ),
    ({"messages": [{**USER, "content": "x" * 10_001}]}, "RunAgentInput user message text exceeds limit"),
    ({"forwardedProps": {}}, "invalid RunAgentInput.forwardedProps"),
    ({"forwardedProps": {"agent_type": "worker", "other": 1}}, "invalid RunAgentInput.forwardedProps"),
    ({"forwardedProps": {"agent_type": "memory"}}, "invalid RunAgentInput.forwardedProps"),
    ({"messages": [USER, {**USER, "id": "n"}]}, "RunAgentInput.messages must contain exactly one user message"),
    (
        {"messages": [{"id": "s", "role": "system", "content": "x"}, USER]},
        "RunAgentInput.messages[0].role must be user",
    ),
    ({"messages": [{**USER, "content": image(mimeType="text/plain")}]}, "binary content requires image mimeType"),
    ({"messages": [{**USER, "content": image(url=None)}]}, "binary content requires url"),
    ({"messages": [{**USER, "content": image(data="AAAA")}]}, "binary content data is not allowed"),
    *(
        (
            {"forwardedProps": {"agent_type": "worker", "client_time": {**CLIENT_TIME, name: value}}},
            f"invalid client_time.{name}",
        )
        for name, value in (
            ("device_timezone", "Mars/Olympus"),
            ("client_now_iso", "2026-03-16T09:12:33"),
            ("client_epoch_ms", 1.5),
        )
    ),
)


@requirement("runs:specification:rules", "runs:rules:messages")
@pytest.mark.parametrize(("changes", "message"), RULES, ids=map(str, range(len(RULES))))
async def test_a_broken_rule_is_refused_with_its_message(endpoint: Any, changes: dict[str, Json], message: str) -> None:
    alice = RunServiceClient(endpoint.connection, endpoint.key)
    body = run_input(THREAD, "x")
    refused = await alice.post("/runs", {**body, "state": {}, "tools": [], "context": [], **changes})
    assert (refused.status, refused.json["detail"]) == (422, message)


@requirement("runs:specification:rules")
async def test_too_many_attachments_are_refused(open_app_server: AppServerFactory) -> None:
    async with open_app_server(agents=()) as server:
        alice = RunServiceClient(server.connection, server.key("alice"))
        link = (await alice.upload(PNG)).json["url"]
        four = [{"type": "binary", "mimeType": "image/png", "url": link}] * 4
        refused = await alice.post("/runs", run_input(THREAD, [{"type": "text", "text": "x"}, *four]))
        assert (refused.status, refused.json["detail"]) == (422, "Too many attachments")


@requirement("runs:specification:requests", "runs:aliases:every-depth")
async def test_the_examples_are_accepted_in_snake_case(open_app_server: AppServerFactory) -> None:
    async with open_app_server(agents=()) as server:
        alice = RunServiceClient(server.connection, server.key("alice"))
        names = {"threadId": "thread_id", "runId": "run_id", "forwardedProps": "forwarded_props"}
        body = {names.get(name, name): value for name, value in WITH_TIME.items()}
        assert (await alice.submit(body))["runId"] == "run-004"
