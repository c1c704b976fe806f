"""Agent API, sections 3 to 6: the events of a response, for everything an agent can do."""

import json
from typing import Any
from uuid import uuid4

import pytest

from dragoman.protocols.agentscope import translate
from tests.conversations import call, calls, script
from tests.protocols.agentscope.client import AgentScopeClient, approval, request_body, texts
from tests.protocols.agentscope.stream import Event, check, parse
from tests.protocols.agentscope.web_client import fold_events, frames_of
from tests.requirements import requirement
from tests.servers import AppServerFactory

Json = Any


def types(response: Event) -> list[str]:
    return [message["type"] for message in response["output"]]


def payload(message: Event) -> Json:
    [content] = message["content"]
    assert content["type"] == "data"
    return content["data"]


async def events_of(alice: AgentScopeClient, *messages: Json, **more: Json) -> list[Event]:
    reading = await alice.stream(request_body(*messages, **more))
    events = await reading.read_to_end()
    check(events, is_complete=more.get("stream") is False)
    return events


# --- the stream as a whole --------------------------------------------------------------------------------------------


@requirement("agentscope:stream:example", "agentscope:objects:fields", "agentscope:types:message")
async def test_the_example_stream_of_the_specification(open_app_server: AppServerFactory) -> None:
    async with open_app_server(manual_clock=True) as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        steps = script({"say": "Rain all day."}, {"usage": {"input_tokens": 12, "output_tokens": 4}})
        events = await events_of(alice, steps, session_id="s-17", id="response_7f")
    message_id = events[2]["id"]
    core_id, _, block = message_id.removeprefix("msg_").partition("_")
    assert (len(core_id), block) == (36, "0")
    response = {
        "object": "response",
        "error": None,
        "id": "response_7f",
        "created_at": 1795262400,
        "completed_at": None,
        "output": None,
        "usage": None,
        "session_id": "s-17",
        "model": "rehearsal",
    }
    message = {
        "object": "message",
        "error": None,
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "content": None,
        "code": None,
        "message": None,
        "usage": None,
        "metadata": None,
    }
    content = {"object": "content", "error": None, "type": "text", "index": 0, "msg_id": message_id}
    usage = {"input_tokens": 12, "output_tokens": 4, "total_tokens": 16}
    whole = {**content, "status": "completed", "delta": False, "text": "Rain all day."}
    done = {**message, "status": "completed", "content": [{**whole, "sequence_number": None}], "usage": usage}
    expected = [
        {**response, "status": "created"},
        {**response, "status": "in_progress"},
        {**message, "status": "created"},
        {**message, "status": "in_progress"},
        {**content, "status": "in_progress", "delta": True, "text": "Rain all day."},
        whole,
        done,
    ]
    numbered = [{**each, "sequence_number": number} for number, each in enumerate(expected)]
    end = {
        **response,
        "status": "completed",
        "completed_at": 1795262400,
        "output": [numbered[-1]],
        "usage": usage,
        "sequence_number": 7,
    }
    assert events == [*numbered, end]


@requirement(
    "agentscope:paths:process",
    "agentscope:stream:frames",
    "agentscope:stream:headers",
    "agentscope:stream:no-done",
    "agentscope:objects:sequence",
)
async def test_a_stream_is_frames_of_one_line_and_ends_after_the_terminal_response(alice: AgentScopeClient) -> None:
    stream = await alice.open("POST", "/process", request_body("Grüße\n\r\u2028🧑‍🚀"))
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert (stream.headers["cache-control"], stream.headers["x-accel-buffering"]) == ("no-cache", "no")
    body = await stream.read()
    assert body.endswith(b"}\n\n")
    assert b"\r" not in body
    assert b"[DONE]" not in body
    events = parse(body)
    assert frames_of(body) == events
    assert texts(check(events)) == "You said: Grüße\n\r\u2028🧑‍🚀"


@requirement("agentscope:stream:responses", "agentscope:status:response")
async def test_a_response_is_sent_when_created_in_progress_and_ended(alice: AgentScopeClient) -> None:
    events = await events_of(alice, "add 1 and 2")
    states = [(each["status"], each["sequence_number"]) for each in events if each["object"] == "response"]
    assert states == [("created", 0), ("in_progress", 1), ("completed", len(events) - 1)]


@requirement("agentscope:clients:web", "agentscope:stream:contents", "agentscope:types:media")
async def test_a_message_can_have_every_kind_of_content(alice: AgentScopeClient) -> None:
    events = await events_of(alice, "media", model="mirror")
    [message] = events[-1]["output"]
    common_fields = ("sequence_number", "error", "object")
    contents = [{key: value for key, value in each.items() if key not in common_fields} for each in message["content"]]
    common = {"status": "completed", "delta": False, "msg_id": message["id"]}
    assert contents == [
        {**common, "index": 0, "type": "text", "text": "look"},
        {**common, "index": 1, "type": "image", "image_url": "https://example.org/a.png"},
        {**common, "index": 2, "type": "data", "data": {"k": [1]}},
        {**common, "index": 3, "type": "audio", "data": "https://example.org/a.mp3", "format": "mp3"},
        {**common, "index": 4, "type": "video", "video_url": "https://example.org/a.mp4"},
        {
            **common,
            "index": 5,
            "type": "file",
            "file_url": "https://example.org/a.pdf",
            "file_id": None,
            "filename": "a.pdf",
            "file_data": None,
        },
        {**common, "index": 6, "type": "text", "text": "done"},
    ]
    opened = [(each["index"], each["delta"]) for each in events if each["object"] == "content"]
    assert opened[2:4] == [(1, True), (1, False)]
    assert fold_events(events).messages == [message]


@requirement("agentscope:types:media")
async def test_a_single_image_is_sent_once(alice: AgentScopeClient) -> None:
    events = await events_of(alice, script({"image": "https://example.org/a.png"}))
    assert [each["status"] for each in events if each["object"] == "content"] == ["completed"]
    assert [types(events[-1]), events[-1]["output"][0]["content"][0]["type"]] == [["message"], "image"]


@requirement("agentscope:types:reasoning", "agentscope:status:message")
async def test_thinking_is_a_message_of_its_own(alice: AgentScopeClient) -> None:
    end = await alice.run(script({"think": "a"}, {"say": "b"}, {"think": "c"}, {"step": True}, {"say": "d"}))
    messages = [(each["type"], each["role"], each["content"][0]["text"]) for each in end["output"]]
    assert messages == [
        ("reasoning", "assistant", "a"),
        ("message", "assistant", "b"),
        ("reasoning", "assistant", "c"),
        ("message", "assistant", "d"),
    ]
    assert len({each["id"] for each in end["output"]}) == 4


@requirement("agentscope:types:plan")
async def test_a_plan_is_data_and_does_not_split_the_text_around_it(alice: AgentScopeClient) -> None:
    steps = {"plan": {"status": "in_progress", "steps": [{"title": "dig", "status": "pending"}]}}
    end = await alice.run(script({"say": "first"}, steps, {"say": " then"}))
    assert types(end) == ["message", "message"]
    plan = next(each for each in end["output"] if each["content"][0]["type"] == "data")
    assert payload(plan) == {"plan": {"status": "in_progress", "steps": [{"title": "dig", "status": "pending"}]}}
    assert texts(end) == "first then"


@requirement("agentscope:objects:usage", "agentscope:stream:usage")
async def test_usage_is_sent_with_each_model_step_and_summed_at_the_end(alice: AgentScopeClient) -> None:
    end = await alice.run(
        script(
            {"say": "a"},
            {"usage": {"input_tokens": 1, "output_tokens": 2}},
            call("add", a=1, b=1),
            {"say": "b"},
            {"usage": {"input_tokens": 10, "output_tokens": 20}},
        )
    )
    assert [each["usage"] and each["usage"]["total_tokens"] for each in end["output"]] == [None, 3, None, 30]
    assert end["usage"] == {"input_tokens": 11, "output_tokens": 22, "total_tokens": 33}
    assert (await alice.run("hello", model="mirror"))["usage"] == {
        "input_tokens": 0,
        "output_tokens": 0,
        "total_tokens": 0,
    }


# --- calls ------------------------------------------------------------------------------------------------------------


@requirement("agentscope:types:plugin-call", "agentscope:calls:growing", "agentscope:objects:role-tool")
async def test_a_server_tool_is_sent_from_its_name_to_its_result(alice: AgentScopeClient) -> None:
    events = await events_of(alice, "add 1 and 2")
    data = [each.get("data") or {} for each in events]
    steps = [
        (each["status"], each["type"], inner.get("arguments", inner.get("output")))
        for each, inner in zip(events[2:12], data[2:12], strict=True)
    ]
    assert steps == [
        ("created", "plugin_call", None),
        ("in_progress", "plugin_call", None),
        ("in_progress", "data", ""),
        ("in_progress", "data", '{"a":1,"b":2}'),
        ("completed", "data", '{"a":1,"b":2}'),
        ("completed", "plugin_call", None),
        ("created", "plugin_call_output", None),
        ("in_progress", "plugin_call_output", None),
        ("completed", "data", "3"),
        ("completed", "plugin_call_output", None),
    ]
    called, settled, said = events[-1]["output"]
    assert payload(called) == {"call_id": payload(settled)["call_id"], "name": "add", "arguments": '{"a":1,"b":2}'}
    assert payload(settled) == {"call_id": payload(called)["call_id"], "name": "add", "output": "3"}
    assert (called["role"], settled["role"], said["role"]) == ("assistant", "tool", "assistant")


@requirement("agentscope:types:mcp-call", "agentscope:types:arguments")
async def test_a_tool_of_an_mcp_server_names_its_server(alice: AgentScopeClient) -> None:
    step = {"mcp": {"server": "weather", "name": "forecast", "input": {"q": "é"}, "output": {"rain": True}}}
    called, settled = (await alice.run(script(step)))["output"]
    assert (called["type"], settled["type"]) == ("mcp_call", "mcp_call_output")
    assert payload(called) == {
        "call_id": payload(settled)["call_id"],
        "name": "forecast",
        "arguments": '{"q":"é"}',
        "server_label": "weather",
    }
    assert payload(settled)["output"] == '{"rain":true}'


@requirement("agentscope:types:component-call")
async def test_a_built_in_tool_is_a_component(alice: AgentScopeClient) -> None:
    called, settled = (await alice.run("hello", model="memory_writer"))["output"]
    assert (called["type"], settled["type"], settled["role"]) == ("component_call", "component_call_output", "tool")
    assert json.loads(payload(called)["arguments"])["content"] == "likes tea"


@requirement("agentscope:calls:several")
async def test_several_calls_are_one_message_each_and_results_follow_their_calls(alice: AgentScopeClient) -> None:
    end = await alice.run(script(calls(("add", {"a": 1, "b": 1}), ("boom", {}), ("lookup", {"q": "x"}))))
    assert types(end)[:3] == ["plugin_call"] * 3
    assert sorted(types(end)[3:]) == ["plugin_call_output"] * 3
    outputs = {payload(each)["name"]: payload(each)["output"] for each in end["output"][3:]}
    assert outputs == {"add": "2", "boom": "Tool execution failed: boom", "lookup": "looked up x"}


@requirement("agentscope:types:sub-agent")
async def test_a_sub_agent_is_its_call_its_result_and_its_waiting_calls(alice: AgentScopeClient) -> None:
    inner = [{"say": "digging"}, call("stamp", text="x"), {"say": "gold: {result}"}]
    name = f"s-{uuid4()}"
    steps = script({"fork": {"description": "dig", "script": inner}}, {"say": "found {result}"})
    first = await alice.run(steps, session_id=name)
    assert types(first) == ["plugin_call", "mcp_approval_request"]
    assert payload(first["output"][0])["name"] == "Agent"
    request = payload(first["output"][1])
    answer = {"approval_request_id": request["id"], "approve": True}
    message = {"type": "mcp_approval_response", "role": "user", "content": [{"type": "data", "data": answer}]}
    second = await alice.run(first["output"][1], message, session_id=name)
    assert types(second) == ["plugin_call", "plugin_call_output", "message"]
    assert payload(second["output"][0])["call_id"] == payload(first["output"][0])["call_id"]
    assert json.loads(payload(second["output"][0])["arguments"])["description"] == "dig"
    assert texts(second) == "found gold: stamped x"


@requirement("agentscope:types:sub-agent", "agentscope:approval:granted")
async def test_a_sub_agent_s_call_is_repeated_however_long_it_ran_before_the_request(alice: AgentScopeClient) -> None:
    """The log is searched backwards from the answer, page by page, for the call."""
    busy = calls(*[("add", {"a": 1, "b": 1})] * 100)
    inner = [busy] * 4 + [call("stamp", text="x"), {"say": "gold"}]
    name = f"s-{uuid4()}"
    first = await alice.run(script({"fork": {"description": "dig", "script": inner}}), session_id=name)
    answer = approval(payload(first["output"][1])["id"], approve=True)
    end = await alice.run(answer, session_id=name)
    assert types(end) == ["plugin_call", "plugin_call_output"]
    assert payload(end["output"][0]) == payload(first["output"][0])


# --- ends -------------------------------------------------------------------------------------------------------------


@requirement("agentscope:status:length", "agentscope:status:refusal")
@pytest.mark.parametrize(("reason", "expected"), [("max_tokens", "length"), ("refusal", "content_filter")])
async def test_a_truncated_answer_is_completed_and_its_last_message_says_why(
    alice: AgentScopeClient, reason: str, expected: str
) -> None:
    end = await alice.run(script({"say": "a"}, {"step": True}, {"say": "b"}, {"stop": reason}))
    assert end["status"] == "completed"
    assert [each["metadata"] for each in end["output"]] == [None, {"finish_reason": expected}]


@requirement("agentscope:errors:run", "agentscope:status:content", "agentscope:stream:output")
async def test_a_failed_run_keeps_its_text_and_reveals_no_internals(alice: AgentScopeClient) -> None:
    steps = script({"say": "whole"}, {"step": True}, {"say": "half"}, {"fail": "secret text"})
    body = (await alice.request("POST", "/process", request_body(steps))).body
    assert b"secret" not in body
    end = check(parse(body))
    assert (end["status"], end["error"]) == (
        "failed",
        {"code": "AGENT_UNKNOWN_ERROR", "message": "Unknown agent error: The agent failed"},
    )
    assert [(each["status"], each["content"][0]["status"]) for each in end["output"]] == [
        ("completed", "completed"),
        ("failed", "failed"),
    ]
    assert texts(end) == "wholehalf"


@requirement("agentscope:errors:run", "agentscope:stream:output")
async def test_a_bug_in_the_server_ends_the_stream_well_formed(
    alice: AgentScopeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(result: object) -> str:
        raise ZeroDivisionError("secret text")

    monkeypatch.setattr(translate, "_output_of", fails)
    running = await alice.stream(request_body(script({"say": "a"}, call("add", a=1, b=2), {"say": "b"})))
    end = await running.end()
    assert (end["status"], end["error"]) == ("failed", {"code": "INTERNAL_ERROR", "message": "The server failed"})
    assert [each["type"] for each in end["output"]] == ["message", "plugin_call"]
    monkeypatch.undo()
    whole = await (await alice.replay(end["id"])).end()
    assert (whole["status"], texts(whole)) == ("completed", "ab")


@requirement("agentscope:errors:agent-code")
async def test_an_agent_s_own_error_is_passed_through(alice: AgentScopeClient) -> None:
    end = await alice.run(script({"fail": {"code": "OUT_OF_TEA", "message": "There is none left"}}))
    assert (end["status"], end["output"]) == ("failed", [])
    assert end["error"] == {"code": "OUT_OF_TEA", "message": "There is none left"}


@requirement("agentscope:status:timeout")
async def test_a_run_past_its_deadline_fails_with_timeout(open_app_server: AppServerFactory) -> None:
    async with open_app_server(run_timeout_s=1) as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        end = await alice.run(script({"say": "a"}, {"wait_ms": 600_000}))
    assert (end["status"], end["error"]["code"], texts(end)) == ("failed", "TIMEOUT", "a")


@requirement("agentscope:objects:created-at", "agentscope:objects:completed-at")
async def test_times_are_those_of_the_run_and_not_of_the_server_start(open_app_server: AppServerFactory) -> None:
    async with open_app_server(manual_clock=True) as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        first = await alice.run("hello")
        server.clock.advance(hours=1)
        second = await alice.run(script({"fail": "x"}))
    assert second["created_at"] == first["created_at"] + 3600
    assert (first["completed_at"], second["completed_at"]) == (first["created_at"], second["created_at"])


# --- without deltas ---------------------------------------------------------------------------------------------------


@requirement("agentscope:whole:events")
@pytest.mark.parametrize("accept", ["text/event-stream", "application/json, text/event-stream", "Text/Event-Stream"])
async def test_without_deltas_a_client_that_accepts_a_stream_gets_one(alice: AgentScopeClient, accept: str) -> None:
    reply = await alice.request("POST", "/process", request_body("hello", stream=False), headers={"accept": accept})
    assert check(parse(reply.body), is_complete=True)["status"] == "completed"


@requirement("agentscope:whole:events")
async def test_without_deltas_each_content_is_sent_once(alice: AgentScopeClient) -> None:
    steps = script({"think": "t"}, {"say": ["a", "b"]}, {"data": {"k": 1}}, call("add", a=1, b=1), {"say": "c"})
    events = await events_of(alice, steps, stream=False)
    contents = [each for each in events if each["object"] == "content"]
    assert [each["status"] for each in contents] == ["completed"] * len(contents)
    streamed = await alice.run(steps)
    plain = [[each["type"], [(c["type"], c.get("text")) for c in each["content"]]] for each in events[-1]["output"]]
    assert plain == [
        [each["type"], [(c["type"], c.get("text")) for c in each["content"]]] for each in streamed["output"]
    ]


@requirement("agentscope:whole:json", "agentscope:whole:json-failed")
@pytest.mark.parametrize(("text", "status"), [("hello", "completed"), (script({"say": "a"}, {"fail": "x"}), "failed")])
@pytest.mark.parametrize("accept", ["application/json", "*/*", "\0"])
async def test_without_a_stream_the_body_is_the_terminal_response(
    alice: AgentScopeClient, text: str, status: str, accept: str
) -> None:
    reply = await alice.request("POST", "/process", request_body(text, stream=False), headers={"accept": accept})
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    replayed = (await (await alice.replay(reply.json["id"])).read_to_end())[-1]
    assert (reply.json["status"], reply.json) == (status, replayed)


@requirement("agentscope:whole:streams-anyway")
async def test_a_streaming_request_is_streamed_whatever_accept_says(alice: AgentScopeClient) -> None:
    reply = await alice.request("POST", "/process", request_body("hello"), headers={"accept": "application/json"})
    assert check(parse(reply.body))["status"] == "completed"


# --- keep-alive -------------------------------------------------------------------------------------------------------


@requirement("agentscope:stream:keep-alive", "agentscope:stream:heartbeat")
@pytest.mark.parametrize("wants", [False, True])
async def test_a_silent_stream_sends_comments_or_heartbeats_if_requested(
    open_app_server: AppServerFactory, wants: bool
) -> None:
    async with open_app_server(heartbeat_s=0.1) as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        body = request_body(script({"say": "a"}, {"wait_ms": 350}, {"say": "b"}), heartbeat=wants)
        raw = await (await alice.open("POST", "/process", body)).read()
    assert (b": keep-alive\n\n" in raw) is not wants
    events = parse(raw)
    heartbeats = [each for each in events if each.get("type") == "heartbeat"]
    assert bool(heartbeats) is wants
    for heartbeat in heartbeats:
        before = events[events.index(heartbeat) - 1]
        assert (heartbeat["object"], heartbeat["status"], heartbeat["role"]) == ("message", "in_progress", None)
        assert heartbeat["sequence_number"] == before["sequence_number"]
    assert texts(check(events)) == "ab"
    assert fold_events(events).messages == events[-1]["output"]
