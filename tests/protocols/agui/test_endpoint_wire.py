"""The raw wire of the standard endpoint: requests of every shape, streams to the byte. Specification, B.3 to B.8."""

import json
from contextlib import suppress
from typing import Any

import pytest
from ag_ui_validate import create_validator
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dragoman import Agent
from dragoman.protocols.agui.wire import UnsupportedVersion, decode_canonical, decode_run, decode_tolerant
from dragoman.protocols.kit.errors import InvalidBody, InvalidJson
from tests.agents.agent_harness import ScriptedModel
from tests.conversations import call, calls, script
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.requirements import requirement
from tests.servers import AppServerFactory

Json = Any
HELLO = "Hello! I am the rehearsal agent."
PAINT = {"name": "paint", "description": "", "parameters": {"type": "object"}}
IMAGE = {"type": "data", "value": "aGk=", "mimeType": "image/png"}
PLAN = {"plan": {"status": "in_progress", "steps": [{"title": "dig", "status": "pending"}]}}
CARD = {
    "version": "2.0",
    "locale": "en",
    "status": "info",
    "theme": "default",
    "root": {"type": "stack", "children": [{"type": "badge", "label": "new"}]},
}
FORK = {"fork": {"description": "dig", "script": [{"think": "where"}, {"say": "gold"}, call("add", a=1, b=2)]}}
EVERYTHING = script(
    {"think": "hm"},
    {"say": ["so ", "far "]},
    {"image": "https://example.org/a.png"},
    {"data": {"nothing": None}},
    PLAN,
    {"card": {"root": {"type": "badge", "label": "new"}}},
    {"card": {"type": "hologram"}},
    {"say": "on "},
    FORK,
    calls(("add", {"a": 1, "b": 2}), ("boom", {})),
    {"say": "{results}"},
)


def parts(*given: Json) -> Json:
    return an_input(messages=[{"id": "m", "role": "user", "content": list(given)}])


# --- streams ----------------------------------------------------------------------------------------------------------


@requirement("ag-ui-b:wire:frames", "ag-ui-b:wire:no-nulls", "ag-ui-b:wire:integer-times", "ag-ui-b:wire:headers")
async def test_the_events_of_a_run_are_complete_ordered_and_valid(endpoint: Endpoint) -> None:
    """The rules themselves are in `Reply.frames`: LF, no nulls, integer times, the models of `ag-ui-protocol`."""
    reply = await endpoint.run(an_input(EVERYTHING))
    events = [
        f"{each['type']} {'sub' if 'subagentRunId' in each else ''}".strip()
        for each in reply.events
        if not each["type"].endswith("_CONTENT")
    ]
    assert events == [
        "RUN_STARTED",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "CUSTOM",
        "CUSTOM",
        "ACTIVITY_SNAPSHOT",
        "CUSTOM",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "SUBAGENT_STARTED sub",
        "REASONING_START sub",
        "REASONING_MESSAGE_START sub",
        "REASONING_MESSAGE_END sub",
        "REASONING_END sub",
        "TEXT_MESSAGE_START sub",
        "TEXT_MESSAGE_END sub",
        "TOOL_CALL_START sub",
        "TOOL_CALL_ARGS sub",
        "TOOL_CALL_END sub",
        "TOOL_CALL_RESULT sub",
        "SUBAGENT_FINISHED sub",
        "TOOL_CALL_RESULT",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    custom = [(each["name"], each["value"]) for each in reply.events if each["type"] == "CUSTOM"]
    message_id = next(each["messageId"] for each in reply.events if each["type"] == "TEXT_MESSAGE_START")
    assert custom == [
        ("dragoman.block", {"messageId": message_id, "index": 2, "type": "image", "url": "https://example.org/a.png"}),
        ("dragoman.block", {"messageId": message_id, "index": 3, "type": "data", "data": {"nothing": None}}),
        ("dragoman.ui_schema", CARD),
    ]
    (plan,) = [each for each in reply.events if each["type"] == "ACTIVITY_SNAPSHOT"]
    assert (plan["activityType"], plan["content"]) == ("PLAN", PLAN["plan"])


@requirement("ag-ui-b:wire:ids")
async def test_ids_grow_and_a_replay_is_identical(endpoint: Endpoint) -> None:
    body = an_input(EVERYTHING)
    first, again = await endpoint.run(body), await endpoint.run(body)
    assert first.body == again.body
    ids = [tuple(map(int, (frame.id or "").split("-"))) for frame in first.frames]
    assert ids == sorted(set(ids))


@requirement("ag-ui-b:events:end")
@pytest.mark.parametrize(
    ("steps", "end"),
    [
        ([{"say": "x"}], {"outcome": {"type": "success"}}),
        (
            [{"say": "x"}, {"stop": "max_tokens"}],
            {"outcome": {"type": "success"}, "metadata": {"dragoman": {"stopReason": "max_tokens"}}},
        ),
        (
            [{"say": "x"}, {"stop": "refusal"}],
            {"outcome": {"type": "success"}, "metadata": {"dragoman": {"stopReason": "refusal"}}},
        ),
        ([{"fail": "internal"}], {"code": "agent_error", "message": "The agent failed"}),
        ([{"fail": {"code": "sold_out", "message": "All gone"}}], {"code": "sold_out", "message": "All gone"}),
        ([call("add", a=1, b=1)] * 26, {"code": "max_steps", "message": "the run reached its limit of 25 steps"}),
    ],
)
async def test_each_stop_reason_has_its_own_last_event(endpoint: Endpoint, steps: Json, end: Json) -> None:
    *_, last = (await endpoint.run(an_input(script(*steps)))).events
    end_event = {name: value for name, value in last.items() if name not in ("timestamp", "threadId", "runId", "usage")}
    assert end_event == {"type": "RUN_ERROR" if "code" in end else "RUN_FINISHED", **end}


@requirement("ag-ui-b:events:usage")
async def test_the_end_of_a_run_reports_known_token_counts(endpoint: Endpoint) -> None:
    usage = {"usage": {"input_tokens": 5, "output_tokens": 0, "cached_tokens": 4}}
    *_, last = (await endpoint.run(an_input(script({"say": "x"}, usage)))).events
    assert last["usage"] == [{"inputTokens": 5, "totalTokens": 5, "cachedInputTokens": 4}]


@requirement("ag-ui-b:validate")
@pytest.mark.parametrize(
    "text",
    ["hello", "think", "add 1 and 2", EVERYTHING, script(call("stamp", text="x")), script({"fail": "x"}), "count"],
)
async def test_a_third_party_validator_finds_no_error(endpoint: Endpoint, text: str) -> None:
    body = an_input(text, state={"count": 3})
    target = Endpoint(endpoint.connection, endpoint.key, agent="counting" if text == "count" else "rehearsal")
    run = await target.run(body)
    for events in (run.events, (await target.hydrate(body["threadId"])).events):
        validator = create_validator()
        for event in events:
            validator.feed(event)
        validator.finalize()
        report = validator.report()
        assert [each for each in report.diagnostics if each.severity == "error"] == []
        assert report.internal_errors == []


@requirement("ag-ui-b:wire:frame-size")
async def test_no_event_exceeds_the_frame_limit_of_clients(endpoint: Endpoint) -> None:
    """1.0 clients refuse a frame of more than 10 MiB."""
    image = {"type": "image", "source": {"type": "data", "value": "A" * 5 * 2**20, "mimeType": "image/png"}}
    thread = "large"
    for number in range(3):
        text_part = {"type": "text", "text": "hello"}
        await endpoint.run(
            an_input(thread=thread, messages=[{"id": str(number), "role": "user", "content": [text_part, image]}])
        )
    reply = await endpoint.hydrate(thread)
    assert len(reply.body) < 10 * 2**20
    kinds = [part["type"] for each in reply.events[1]["messages"] if each["role"] == "user" for part in each["content"]]
    assert kinds == ["text", "text", "text", "text", "text", "image"]
    again = await endpoint.run(an_input(thread=thread, messages=reply.events[1]["messages"]))
    assert again.types == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]


@requirement("ag-ui-b:wire:frame-size")
async def test_an_answer_too_long_for_an_event_is_cut(endpoint: Endpoint) -> None:
    body = an_input(script({"burst": 9_000}))
    assert (await endpoint.run(body)).types[-1] == "RUN_FINISHED"
    _, answer = await endpoint.messages(body["threadId"])
    assert answer["content"].endswith(f" [cut: {9_000_000 - 2**20} more characters]")
    await endpoint.run(an_input("hello", thread=body["threadId"]))
    contents = [each["content"] for each in await endpoint.messages(body["threadId"])]
    assert contents == [body["messages"][0]["content"], answer["content"], "hello", HELLO]


# --- requests ---------------------------------------------------------------------------------------------------------


@requirement("ag-ui-b:input:minimal")
async def test_a_minimal_request_is_served(endpoint: Endpoint) -> None:
    body = {"threadId": "least", "runId": "least", "messages": [{"id": "1", "role": "user", "content": "hello"}]}
    assert (await endpoint.run(body)).text == HELLO


@requirement("ag-ui-b:input:unknown")
@pytest.mark.parametrize(
    "more",
    [
        {"newfangled": {"deep": [1]}},
        {"state": None, "forwardedProps": None, "context": None, "tools": None, "resume": None},
        {"forwardedProps": {"anything": [1], "client_time": {"device_timezone": "Europe/Berlin"}}},
        {"protocolVersion": "1.7"},
        {"protocolVersion": "latest"},
        {"context": [{"description": "where", "value": "here", "extra": 1}]},
        {"tools": [{**PAINT, "metadata": {"a": 1}}]},
    ],
)
async def test_unknown_members_are_ignored(endpoint: Endpoint, more: Json) -> None:
    reply = await endpoint.run(an_input("hello") | more)
    assert reply.text == HELLO
    assert reply.events[0]["protocolVersion"] == "1.0"


@requirement("ag-ui-b:input:snake-case")
async def test_snake_case_is_read_as_camel_case(endpoint: Endpoint) -> None:
    body = {
        "thread_id": "snake",
        "run_id": "snake",
        "protocol_version": "1.0",
        "forwarded_props": {},
        "messages": [
            {"id": "1", "role": "user", "content": "before"},
            {
                "id": "2",
                "role": "assistant",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"id": "3", "role": "tool", "tool_call_id": "c", "content": "done"},
            {"id": "4", "role": "user", "content": "hello"},
        ],
    }
    assert (await endpoint.run(body)).text == HELLO
    assert [each["role"] for each in await endpoint.messages("snake")] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]


@requirement("ag-ui-b:input:snake-case")
@pytest.mark.parametrize("name", ["thread_id", "thread_\\u0069d", "thread\\u005fid", "thread__id"])
@pytest.mark.parametrize("size", [0, 200_000])
def test_a_name_in_snake_case_is_found_among_texts_with_underscores(name: str, size: int) -> None:
    text = 'an_id: {"thread_id": "x"}, C:\\a_b\\' + "_" * size
    message = json.dumps([{"id": "1", "role": "user", "content": text}])
    decoded = decode_run(b'{"%b": "t_1", "runId": "r_1", "messages": %b}' % (name.encode(), message.encode()))
    assert (decoded.run.thread_id, decoded.run.messages[0].content, decoded.dropped) == ("t_1", text, ())


Members = dict[str, st.SearchStrategy[Json]]
ANY: st.SearchStrategy[Json] = st.recursive(st.none() | st.booleans() | st.text(max_size=4), st.lists)


def shaped(always: Members, sometimes: Members) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(always, optional=sometimes)


SOURCES = shaped(
    {"type": st.sampled_from(["url", "data", "teleport"]), "value": st.just("aGk=")},
    {"mimeType": st.just("a/b"), "mime_type": st.just("c/d")},
)
PARTS = shaped(
    {"type": st.sampled_from(["text", "image", "binary", "hologram"]), "text": st.just("t"), "source": SOURCES},
    {"mimeType": st.just("a/b"), "url": st.just("u"), "extra": ANY},
)
MESSAGES = shaped(
    {
        "id": st.just("m"),
        "role": st.sampled_from(["user", "user", "assistant", "tool", "system", "oracle"]),
        "content": st.just("hello") | st.lists(PARTS, max_size=2),
        "toolCallId": st.just("c"),
    },
    {"name": st.none() | st.just("n"), "toolCalls": st.none() | st.just([]), "error": st.none(), "extra": ANY},
)
REQUESTS = shaped(
    {"threadId": st.just("t"), "runId": st.just("r"), "messages": st.lists(MESSAGES, max_size=2)},
    {
        "protocolVersion": st.none() | st.just("1.0"),
        "parentRunId": st.none() | st.just("p"),
        "parent_run_id": st.just("q"),
        "state": ANY,
        "forwardedProps": ANY,
        "tools": st.none() | st.just([PAINT]),
        "resume": st.just([{"interruptId": "c", "status": "resolved", "payload": None}]),
        "extra": ANY,
    },
)

A_TEXT: Json = {"type": "text", "text": "t", "source": {"type": "teleport", "value": "x"}}
TEXT_WITH_A_SOURCE: Json = {
    "threadId": "t",
    "runId": "r",
    "messages": [{"id": "m", "role": "user", "content": [A_TEXT]}],
}


@requirement("ag-ui-b:input:unknown", "ag-ui-b:input:snake-case")
@settings(max_examples=150, deadline=None)
@given(REQUESTS)
@example(TEXT_WITH_A_SOURCE)
def test_the_fast_decoder_agrees_with_the_tolerant_one(request: Json) -> None:
    body = json.dumps(request).encode()
    once = decode_canonical(body)
    assert once is None or once == decode_tolerant(body)


@requirement("ag-ui-b:input:parts")
@pytest.mark.parametrize(
    ("part", "expected_parts"),
    [
        ({"type": "hologram", "voxels": "…"}, None),
        ({"type": "image", "source": {"type": "file", "value": "file-1", "provider": "openai"}}, None),
        ({"type": "image", "source": {"type": "teleport", "value": "x"}}, None),
        ({"type": "image", "source": {"type": "url", "value": "ftp://example.org/x"}}, None),
        (
            {"type": "image", "source": {"type": "url", "value": "https://example.org/x.png"}},
            {"type": "image", "source": {"type": "url", "value": "https://example.org/x.png"}},
        ),
        (
            {"type": "image", "id": "p1", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
            {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
        ),
        (
            {"type": "binary", "mimeType": "image/png", "data": "aGk="},
            {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
        ),
        (
            {"type": "binary", "mime_type": "audio/wav", "url": "https://example.org/x.wav", "filename": "x"},
            {"type": "audio", "source": {"type": "url", "value": "https://example.org/x.wav", "mimeType": "audio/wav"}},
        ),
        ({"type": "binary", "mimeType": "application/pdf", "id": "file-7"}, None),
    ],
)
async def test_content_parts_that_cannot_be_used_are_dropped(
    endpoint: Endpoint, part: Json, expected_parts: Json
) -> None:
    body = parts({"type": "text", "text": "hello"}, part)
    assert (await endpoint.run(body)).text == HELLO
    stored = (await endpoint.messages(body["threadId"]))[0]
    assert stored["content"] == [
        {"type": "text", "text": "hello"},
        *([] if expected_parts is None else [expected_parts]),
    ]


@requirement("ag-ui-b:input:unknown")
async def test_messages_with_unknown_roles_are_dropped(endpoint: Endpoint) -> None:
    strange = {"id": "s", "role": "oracle", "prophecy": True}
    body = an_input(messages=[strange, {"id": "m", "role": "user", "content": "hello"}])
    assert (await endpoint.run(body)).text == HELLO
    assert [each["role"] for each in await endpoint.messages(body["threadId"])] == ["user", "assistant"]


MALFORMED: list[tuple[bytes, str, str | None]] = [
    (b"", "invalid_json", None),
    (b"{", "invalid_json", None),
    (b"\xff\xfe", "invalid_json", None),
    (b"[" * 100_000, "invalid_json", None),
    (b"[]", "invalid_request", None),
    (b"{}", "invalid_request", "threadId"),
    (json.dumps({"threadId": "t", "messages": []}).encode(), "invalid_request", "runId"),
    (json.dumps({"threadId": "t", "runId": "r"}).encode(), "invalid_request", "messages"),
]
WRONG: list[tuple[Json, str]] = [
    ({"threadId": ""}, "threadId"),
    ({"threadId": 7}, "threadId"),
    ({"threadId": "t" * 257}, "threadId"),
    ({"runId": ""}, "runId"),
    ({"messages": {}}, "messages"),
    ({"messages": [7]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": "x"}]}, "messages[0].id"),
    ({"messages": [{"id": "1", "role": "user", "content": 7}]}, "messages[0].content"),
    ({"messages": [{"id": "1", "role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"id": "1", "role": "tool", "content": "x"}]}, "messages[0].toolCallId"),
    ({"tools": [{"description": "x"}]}, "tools[0].name"),
    ({"context": [{"value": "x"}]}, "context[0].description"),
    ({"resume": [{"interruptId": "x", "status": "maybe"}]}, "resume[0].status"),
    ({"protocolVersion": 1}, "protocolVersion"),
    ({"parentRunId": 1}, "parentRunId"),
]


@requirement("ag-ui-b:input:malformed")
@pytest.mark.parametrize(("raw", "code", "path"), MALFORMED)
async def test_a_malformed_request_is_refused_with_the_path_of_the_fault(
    endpoint: Endpoint, raw: bytes, code: str, path: str | None
) -> None:
    reply = await endpoint.request("POST", "rehearsal", raw=raw)
    assert (reply.status, reply.json["code"], reply.json.get("path") or None) == (400, code, path)


@requirement("ag-ui-b:input:malformed")
@pytest.mark.parametrize(("wrong", "path"), WRONG)
async def test_a_known_field_of_a_wrong_type_is_refused_with_its_path(
    endpoint: Endpoint, wrong: Json, path: str
) -> None:
    reply = await endpoint.run(an_input("hello") | wrong)
    assert (reply.status, reply.json["code"], reply.json["path"]) == (400, "invalid_request", path)


@requirement("ag-ui-b:input:version")
@pytest.mark.parametrize("version", ["0.9", "2.0", "10.1"])
async def test_another_major_version_is_refused(endpoint: Endpoint, version: str) -> None:
    reply = await endpoint.run(an_input("hello", version=version))
    assert (reply.status, reply.json["code"]) == (400, "unsupported_version")


@requirement("ag-ui-b:input:any-bytes")
@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    ["threadId", "run_id", "runId", "messages", "id", "role", "content", "type", "tools", "user"]
                ),
                inner,
                max_size=6,
            )
        ),
        max_leaves=20,
    ).map(lambda value: json.dumps(value).encode())
)
@settings(max_examples=150)
def test_any_bytes_decode_or_are_refused(body: bytes) -> None:
    with suppress(InvalidJson, InvalidBody, UnsupportedVersion):
        decode_run(body)


# --- clients of 0.x ---------------------------------------------------------------------------------------------------


@requirement("ag-ui-b:downgrade:pending")
async def test_a_0x_client_gets_no_outcome_while_calls_are_pending(endpoint: Endpoint) -> None:
    *_, last = (await endpoint.run(an_input(script(call("paint")), version=None, tools=[PAINT]))).events
    assert (last["type"], "outcome" in last) == ("RUN_FINISHED", False)


@requirement("ag-ui-b:downgrade:parts")
async def test_a_0x_client_gets_results_as_text(endpoint: Endpoint) -> None:
    gallery = Endpoint(endpoint.connection, endpoint.key, agent="gallery")
    for version, content in (
        ("1.0", [{"type": "text", "text": "look: "}, {"type": "image", "source": IMAGE}]),
        (None, "look: "),
    ):
        reply = await gallery.run(an_input("show", version=version))
        (result,) = [each for each in reply.events if each["type"] == "TOOL_CALL_RESULT"]
        assert result["content"] == content


@requirement("ag-ui-b:downgrade:subagents")
async def test_a_setting_hides_sub_agents_from_clients_that_fail_on_them(open_app_server: AppServerFactory) -> None:
    async with open_app_server(ag_ui_min_client="0.0.58") as server:
        endpoint = Endpoint(server.connection, server.key("alice"))
        body = an_input(EVERYTHING, version=None)
        reply = await endpoint.run(body)
        assert not any("SUBAGENT" in each["type"] or "subagentRunId" in each for each in reply.events)
        snapshot = (await endpoint.run({**body, "runId": "later", "messages": []})).events[1]
        assert not any("subagentRunId" in each for each in snapshot["messages"])
        assert reply.types[-1] == "RUN_FINISHED"


# --- what the agent knows ---------------------------------------------------------------------------------------------


@requirement("ag-ui-b:input:props")
async def test_an_agent_sees_the_state_context_and_props_of_the_request(endpoint: Endpoint) -> None:
    noting = Endpoint(endpoint.connection, endpoint.key, agent="noting")
    context = [{"description": "where", "value": "here"}]
    props = {"client_time": {"device_timezone": "Asia/Tokyo"}, "theme": "dark"}
    body = an_input("x", state={"zoom": 3}, context=context, forwardedProps=props, parentRunId="before")
    assert json.loads((await noting.run(body)).text) == {
        "client_time": {"device_timezone": "Asia/Tokyo"},
        "context": context,
        "forwarded": props,
        "protocol": {"parent_run_id": "before"},
        "state": {"zoom": 3},
    }


@requirement("ag-ui-b:input:time")
@pytest.mark.parametrize(
    ("client_time", "zone"),
    [
        ({"device_timezone": "Asia/Tokyo", "more": 1}, "Asia/Tokyo"),
        ({"device_timezone": "Mars/Olympus"}, "UTC"),
        ({"device_timezone": "localtime"}, "UTC"),
        ({"device_timezone": 5}, "UTC"),
        ({}, "UTC"),
        ("Asia/Tokyo", "UTC"),
    ],
)
async def test_an_invalid_device_time_zone_counts_as_absent(endpoint: Endpoint, client_time: Json, zone: str) -> None:
    body = an_input(script({"props": "time_zone"}), forwardedProps={"client_time": client_time})
    assert (await endpoint.run(body)).text == zone


@requirement("ag-ui-b:input:context")
async def test_the_model_gets_the_context_of_the_application(open_app_server: AppServerFactory) -> None:
    model = ScriptedModel("Fine.", "Fine.")
    async with open_app_server(agents=[Agent("briefed", model=model, instructions="Be brief.")]) as server:
        briefed = Endpoint(server.connection, server.key("alice"), agent="briefed")
        context = [{"description": "page", "value": "orders"}, {"description": "locale", "value": "de"}]
        await briefed.run(an_input("hi", context=context))
        await briefed.run(an_input("hi"))
    situation = "What the application says about the user's situation:\n- page: orders\n- locale: de"
    assert [each.instructions for each in model.requests] == [f"Be brief.\n\n{situation}", "Be brief."]
