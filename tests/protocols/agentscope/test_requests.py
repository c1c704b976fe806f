"""Agent API, section 2: what a request may hold, and what becomes of it."""

import json
from typing import Any
from uuid import uuid4

import pytest

from dragoman.core import content as core
from dragoman.core.ids import MessageId
from dragoman.protocols.agentscope import inputs, wire
from tests.protocols.agentscope.client import AgentScopeClient, data, request_body, texts, tool, user
from tests.requirements import requirement
from tests.servers import AppServerFactory

Json = Any

REHEARSAL_GREETING = "Hello! I am the rehearsal agent."


def a_name() -> str:
    return f"s-{uuid4()}"


async def mirrored(alice: AgentScopeClient, *messages: Json, **more: Json) -> Json:
    """What the agent saw."""
    return json.loads(texts(await alice.run(*messages, model="mirror", **more)))


# --- fields -----------------------------------------------------------------------------------------------------------


@requirement("agentscope:request:input")
@pytest.mark.parametrize("body", [{}, {"input": []}, {"input": None}, {"input": "hello"}, {"input": [1]}])
async def test_an_input_is_a_list_of_messages(alice: AgentScopeClient, body: Json) -> None:
    assert await alice.assert_refused("POST", "/process", body) == "INVALID_REQUEST"


@requirement("agentscope:request:types", "agentscope:errors:form")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("session_id", 17),
        ("user_id", 17),
        ("id", 17),
        ("response_id", 17),
        ("stream", "yes"),
        ("stream", None),
        ("model", 3),
        ("temperature", "hot"),
        ("max_tokens", 1.5),
        ("seed", "x"),
        ("stop", 1),
        ("stop", [1]),
        ("tools", "all"),
        ("tools", ["all"]),
        ("heartbeat", 1),
    ],
)
async def test_a_wrong_type_is_refused_with_its_place(alice: AgentScopeClient, field: str, value: Json) -> None:
    reply = await alice.request("POST", "/process", request_body("hello", **{field: value}))
    assert (reply.status, reply.json["error"]["code"]) == (422, "INVALID_REQUEST")
    assert reply.json["detail"][0]["loc"][:2] == ["body", field]


@requirement("agentscope:request:ranges")
@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("top_p", [0.1, 1], [0, 1.01, -1]),
        ("temperature", [0, 2], [-0.1, 2.1]),
        ("frequency_penalty", [-2, 2], [-2.1, 2.1]),
        ("presence_penalty", [-2, 2], [-2.1, 2.1]),
        ("max_tokens", [1], [0, -1]),
        ("n", [1, 5], [0, 6]),
    ],
)
async def test_a_number_within_its_range_is_taken_and_one_outside_refused(
    alice: AgentScopeClient, field: str, good: list[Json], bad: list[Json]
) -> None:
    for value in good:
        assert (await alice.run("hello", **{field: value}))["status"] == "completed"
    for value in bad:
        reply = await alice.request("POST", "/process", request_body("hello", **{field: value}))
        assert (reply.status, reply.json["detail"][0]["loc"]) == (422, ["body", field])


@requirement("agentscope:request:stop")
async def test_four_stop_sequences_are_taken_and_five_refused(alice: AgentScopeClient) -> None:
    assert await mirrored(alice, "parameters", stop="x") == {"stop": "x"}
    assert await mirrored(alice, "parameters", stop=["a", "b", "c", "d"]) == {"stop": ["a", "b", "c", "d"]}
    assert (
        await alice.assert_refused("POST", "/process", request_body("hello", stop=list("abcde"))) == "INVALID_REQUEST"
    )


@requirement("agentscope:request:parameters", "agentscope:request:nulls")
async def test_generation_parameters_reach_the_agent_and_nulls_do_not(alice: AgentScopeClient) -> None:
    given = {"top_p": 0.5, "temperature": 0.25, "frequency_penalty": 1.0, "presence_penalty": -1.0, "seed": 7}
    assert await mirrored(alice, "parameters", max_tokens=9, stop=None, n=None, **given) == {**given, "max_tokens": 9}
    nothing = dict.fromkeys((*given, "max_tokens", "stop", "tools", "session_id", "user_id", "id", "response_id"))
    assert await mirrored(alice, "parameters", **nothing) == {}


@requirement("agentscope:request:extra")
async def test_undeclared_fields_reach_the_agent(alice: AgentScopeClient) -> None:
    extra = {"biz_params": {"a": [1, None]}, "trace": "t"}
    assert await mirrored(alice, "metadata", user_id="u-1", **extra) == {"user": "u-1", "forwarded": extra}
    deep: Json = []
    for _ in range(200):
        deep = [deep]
    assert await alice.assert_refused("POST", "/process", request_body("hello", biz_params=deep)) == "INVALID_REQUEST"


@requirement("agentscope:request:model", "agentscope:request:answering-agent")
@pytest.mark.parametrize(
    ("model", "agent"),
    [(None, "rehearsal"), ("rehearsal", "rehearsal"), ("mirror", "mirror"), ("looking-glass", "mirror")],
)
async def test_a_model_names_the_agent_and_the_response_says_which_one_answers(
    alice: AgentScopeClient, model: str | None, agent: str
) -> None:
    name = a_name()
    end = await alice.run("hello", model=model, session_id=name)
    assert end["model"] == agent
    assert texts(end) == ('[{"type": "text", "text": "hello"}]' if agent == "mirror" else REHEARSAL_GREETING)
    assert (await alice.run("hello", session_id=name))["model"] == agent


@requirement("agentscope:request:unknown-model", "agentscope:request:answering-agent")
@pytest.mark.parametrize("model", ["gpt-4-vision", "qwen-max", ""])
async def test_the_default_agent_answers_for_an_unknown_model_and_a_session_keeps_its_agent(
    alice: AgentScopeClient, model: str
) -> None:
    new, mirrors = a_name(), a_name()
    end = await alice.run("hello", model=model, session_id=new)
    assert (end["model"], texts(end)) == ("rehearsal", REHEARSAL_GREETING)
    assert (await alice.run("hello", model=model, session_id=new))["model"] == "rehearsal"
    await alice.run("hello", model="mirror", session_id=mirrors)
    assert (await alice.run("hello", model=model, session_id=mirrors))["model"] == "mirror"


@requirement("agentscope:request:strict-model")
async def test_a_setting_refuses_an_unknown_model(open_app_server: AppServerFactory) -> None:
    async with open_app_server(agentscope_strict_model=True) as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        name = a_name()
        body = request_body("hello", model="qwen-max", session_id=name)
        for path in ("/process", "/process/task"):
            assert await alice.assert_refused("POST", path, body) == "AGENT_NOT_FOUND"
        assert (await alice.request("GET", f"/process/sessions/{name}/events")).status == 204
        assert (await alice.run("hello", model="mirror", session_id=name))["model"] == "mirror"
        assert await alice.assert_refused("POST", "/process", body) == "AGENT_NOT_FOUND"


@requirement("agentscope:request:agent-fixed")
async def test_a_session_keeps_its_agent(alice: AgentScopeClient) -> None:
    name = a_name()
    await alice.run("hello", model="mirror", session_id=name)
    body = request_body("hello", model="rehearsal", session_id=name)
    assert await alice.assert_refused("POST", "/process", body) == "AGENT_FIXED"
    for model in ("mirror", "looking-glass", None):
        assert json.loads(texts(await alice.run("hi", model=model, session_id=name)))[0]["text"] == "hi"


@requirement("agentscope:request:id")
async def test_an_id_becomes_the_response_s_id(alice: AgentScopeClient) -> None:
    first, second = a_name(), a_name()
    assert (await alice.run("hello", id=first, response_id="other"))["id"] == first
    assert (await alice.run("hello", response_id=second))["id"] == second
    assert (await alice.run("hello"))["id"].startswith("response_")


@requirement("agentscope:request:user-id")
async def test_a_session_keeps_its_user_id(alice: AgentScopeClient) -> None:
    name = a_name()
    await alice.run("hello", session_id=name)
    await alice.run("hello", session_id=name, user_id="u-1")
    await alice.run("hello", session_id=name, user_id="u-1")
    await alice.run("hello", session_id=name)
    body = request_body("hello", session_id=name, user_id="u-2")
    assert await alice.assert_refused("POST", "/process", body) == "PERMISSION_DENIED"


@requirement("agentscope:request:lengths")
@pytest.mark.parametrize("field", ["session_id", "user_id", "id", "response_id"])
async def test_an_id_of_255_characters_is_accepted_and_one_of_256_refused(alice: AgentScopeClient, field: str) -> None:
    long = (a_name() + "x" * 255)[:255]
    assert (await alice.run("hello", **{field: long}))["status"] == "completed"
    assert (
        await alice.assert_refused("POST", "/process", request_body("hello", **{field: long + "x"}))
        == "INVALID_REQUEST"
    )
    assert await alice.assert_refused("POST", "/process", request_body(user("x", id="x" * 256))) == "INVALID_REQUEST"


# --- tools ------------------------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"hint": {"type": "string"}}, "required": ["hint"]}
OFFERED = {"name": "pick", "description": "Choose", "parameters": SCHEMA}


@requirement("agentscope:tools:function", "agentscope:tools:flat")
@pytest.mark.parametrize(
    "value",
    [
        {"type": "function", "function": OFFERED},
        {"type": None, "function": OFFERED},
        {"function": OFFERED},
        {"type": "function", **OFFERED},
        OFFERED,
    ],
)
async def test_a_tool_is_offered_for_one_run_only(alice: AgentScopeClient, value: Json) -> None:
    name = a_name()
    assert await mirrored(alice, "tools", tools=[value], session_id=name) == [OFFERED]
    assert await mirrored(alice, "tools", session_id=name) == []


@requirement("agentscope:tools:parameters", "agentscope:tools:function")
async def test_required_may_be_null_and_a_description_may_be_empty(alice: AgentScopeClient) -> None:
    given = {"name": "pick", "description": "", "parameters": {"type": "object", "properties": {}, "required": None}}
    assert await mirrored(alice, "tools", tools=[{"type": "function", "function": given}]) == [given]


@requirement("agentscope:tools:any-object")
@pytest.mark.parametrize("nested", [True, False])
async def test_empty_parameters_accept_any_object(alice: AgentScopeClient, nested: bool) -> None:
    given = {"name": "pick", "description": "Choose", "parameters": {}}
    value = {"type": "function", "function": given} if nested else given
    offered = {**given, "parameters": {"type": "object", "properties": {}}}
    assert await mirrored(alice, "tools", tools=[value]) == [offered]


@requirement("agentscope:tools:other-type", "agentscope:tools:name", "agentscope:tools:parameters")
@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"type": "retrieval", "function": OFFERED}, ["type"]),
        ({"type": "function"}, ["name"]),
        ({"type": "function", "function": {**OFFERED, "name": ""}}, ["function", "name"]),
        ({"type": "function", "function": {**OFFERED, "name": 1}}, ["function", "name"]),
        ({**OFFERED, "parameters": {"properties": {}}}, ["parameters", "type"]),
        ({**OFFERED, "parameters": None}, ["parameters"]),
        ({"type": "function", "function": {"name": "x"}}, ["function", "parameters"]),
        ({**OFFERED, "parameters": {"type": "string"}}, ["parameters", "type"]),
        ({**OFFERED, "parameters": {**SCHEMA, "properties": []}}, ["parameters", "properties"]),
        ({**OFFERED, "parameters": {**SCHEMA, "required": "hint"}}, ["parameters", "required"]),
        ({**OFFERED, "parameters": {**SCHEMA, "required": [1]}}, ["parameters", "required", 0]),
    ],
)
async def test_an_invalid_tool_is_refused_with_its_path(alice: AgentScopeClient, value: Json, place: list[str]) -> None:
    reply = await alice.request("POST", "/process", request_body("hello", tools=[tool("fine"), value]))
    assert (reply.status, reply.json["detail"][0]["loc"]) == (422, ["body", "tools", 1, *place])


@requirement("agentscope:tools:name")
async def test_two_tools_with_the_same_name_are_refused(alice: AgentScopeClient) -> None:
    assert (
        await alice.assert_refused("POST", "/process", request_body("hello", tools=[tool("a"), tool("a")]))
        == "INVALID_REQUEST"
    )


# --- messages ---------------------------------------------------------------------------------------------------------


@requirement("agentscope:input:contents", "agentscope:input:extra-fields")
async def test_every_content_reaches_the_agent(alice: AgentScopeClient) -> None:
    contents = [
        {"type": "text", "text": "a", "status": "created", "object": "content", "index": 0},
        {"type": "image", "image_url": "https://example.org/a.png"},
        {"type": "image", "image_url": "http://example.org/a.png"},
        {"type": "data", "data": {"k": 1}},
        {"type": "audio", "data": "AAAA", "format": "mp3"},
        {"type": "audio", "data": "https://example.org/a.wav"},
        {"type": "video", "video_url": "https://example.org/a.mp4"},
        {"type": "file", "file_url": "https://example.org/a.pdf", "file_name": "a.pdf", "file_size": 3},
        {"type": "file", "file_data": "AAAA", "filename": "b.bin"},
        {"type": "refusal", "refusal": "no"},
    ]
    echoed = await mirrored(alice, {"role": "user", "content": contents, "strange": True})
    assert echoed == [
        {"type": "text", "text": "a"},
        {"type": "image", "url": "https://example.org/a.png"},
        {"type": "image", "url": "http://example.org/a.png"},
        {"type": "data", "data": {"k": 1}},
        {
            "type": "file",
            "url": "data:audio/mp3;base64,AAAA",
            "media": "audio",
            "media_type": "audio/mp3",
            "name": None,
        },
        {
            "type": "file",
            "url": "https://example.org/a.wav",
            "media": "audio",
            "media_type": "audio/wav",
            "name": None,
        },
        {"type": "file", "url": "https://example.org/a.mp4", "media": "video", "media_type": None, "name": None},
        {"type": "file", "url": "https://example.org/a.pdf", "media": "file", "media_type": None, "name": "a.pdf"},
        {
            "type": "file",
            "url": "data:application/octet-stream;base64,AAAA",
            "media": "file",
            "media_type": None,
            "name": "b.bin",
        },
        {"type": "text", "text": "no"},
    ]


@requirement("agentscope:input:content-type")
@pytest.mark.parametrize("content", [{"type": "hologram"}, {"text": "a"}, {"type": 3}, "text"])
async def test_a_content_of_unknown_type_is_refused(alice: AgentScopeClient, content: Json) -> None:
    reply = await alice.request("POST", "/process", request_body({"role": "user", "content": [content]}))
    assert (reply.status, reply.json["detail"][0]["loc"][:4]) == (422, ["body", "input", 0, "content"])


@requirement("agentscope:input:contents")
@pytest.mark.parametrize(
    "content",
    [
        {"type": "image"},
        {"type": "image", "image_url": "ftp://example.org/a.png"},
        {"type": "image", "image_url": "https://"},
        {"type": "video", "video_url": "https://"},
        {"type": "file", "file_url": "file:///etc/passwd"},
        {"type": "file", "file_data": "no base64!"},
        {"type": "audio", "data": "ftp://example.org/a.wav"},
        {"type": "audio"},
        {"type": "video"},
        {"type": "file", "file_id": "f-1"},
    ],
)
async def test_a_content_without_a_value_or_with_a_wrong_url_is_refused(alice: AgentScopeClient, content: Json) -> None:
    assert (
        await alice.assert_refused("POST", "/process", request_body({"role": "user", "content": [content]}))
        == "INVALID_REQUEST"
    )


@requirement("agentscope:input:string")
async def test_a_string_is_one_text(alice: AgentScopeClient) -> None:
    assert await mirrored(alice, {"role": "user", "content": "just text"}) == "just text"


@requirement("agentscope:input:no-content", "agentscope:input:ignored")
async def test_only_errors_and_heartbeats_may_have_no_content_and_are_ignored(alice: AgentScopeClient) -> None:
    for message in ({"role": "user"}, {"role": "user", "content": None}, {"role": "user", "content": []}):
        assert await alice.assert_refused("POST", "/process", request_body(message)) == "INVALID_REQUEST"
    quiet = [{"type": "error", "role": "assistant", "message": "oh"}, {"type": "heartbeat", "role": None}]
    assert await mirrored(alice, user("hi"), *quiet) == [{"type": "text", "text": "hi"}]
    assert await alice.assert_refused("POST", "/process", request_body(*quiet)) == "INVALID_REQUEST"


@requirement("agentscope:input:ignored")
@pytest.mark.parametrize("kind", ["reasoning", "plugin_call", "mcp_call", "mcp_list_tools", "mcp_approval_request"])
@pytest.mark.parametrize("role", ["assistant", "user", None])
async def test_an_agent_s_message_type_is_never_read_as_the_user_s_message(
    alice: AgentScopeClient, kind: str, role: str | None
) -> None:
    name = a_name()
    await alice.run("hello", model="mirror", session_id=name)
    forged = {**data(kind, "user", {"call_id": "c", "id": "c", "name": "stamp", "arguments": "{}"}), "role": role}
    echoed = await mirrored(alice, forged, user("history"), session_id=name)
    assert [text for kind, text in echoed if kind == "UserMessage"] == ["hello", "history"]


@requirement("agentscope:input:unknown-type")
async def test_a_message_of_an_unknown_type_reaches_the_agent(alice: AgentScopeClient) -> None:
    echoed = await mirrored(alice, data("a2ui_action", "user", {"clicked": "ok"}))
    assert echoed == [{"type": "data", "data": {"clicked": "ok"}}]


# --- the history ------------------------------------------------------------------------------------------------------


@requirement("agentscope:history:kept")
async def test_only_new_messages_have_to_be_sent(alice: AgentScopeClient) -> None:
    name = a_name()
    await alice.run("one", model="mirror", session_id=name)
    echoed = await mirrored(alice, "history", session_id=name)
    assert [text for kind, text in echoed if kind == "UserMessage"] == ["one", "history"]


@requirement("agentscope:history:resent")
async def test_a_resent_history_is_not_added_again(alice: AgentScopeClient) -> None:
    name = a_name()
    first = await alice.run("one", model="mirror", session_id=name)
    error = {"type": "error", "role": "assistant", "content": [], "id": "error"}
    sent = [user("one"), *first["output"], error, user("history")]
    echoed = await mirrored(alice, *sent, session_id=name)
    assert [text for kind, text in echoed if kind == "UserMessage"] == ["one", "history"]
    known = user("two", id="m-2")
    await alice.run(known, model="mirror", session_id=name)
    echoed = await mirrored(alice, known, user("history", id="m-3"), session_id=name)
    assert [text for kind, text in echoed if kind == "UserMessage"] == ["one", "history", "two", "history"]


@requirement("agentscope:history:resent")
async def test_a_history_that_is_resent_without_ids_is_added_again(alice: AgentScopeClient) -> None:
    name = a_name()
    first = await alice.run("one", model="mirror", session_id=name)
    without_ids = [{key: value for key, value in each.items() if key != "id"} for each in first["output"]]
    echoed = await mirrored(alice, user("one"), *without_ids, user("history"), session_id=name)
    assert [text for kind, text in echoed if kind == "UserMessage"] == ["one", "one", "history"]


@requirement("agentscope:history:resent")
def test_a_message_with_files_of_another_protocol_is_the_same_when_it_is_resent() -> None:
    """It is resent as it was shown: images have no names here, and files no media types."""
    paper = "data:application/pdf;base64,JVBERi0="
    blocks = (core.Image("https://a.example/a.png", "a.png"), core.image_or_file(paper, "application/pdf", "a.pdf"))
    stored = core.UserMessage(id=MessageId("m"), content=blocks)
    shown = (wire.ImageIn(image_url="https://a.example/a.png"), wire.FileIn(file_url=paper, filename="a.pdf"))
    assert inputs.is_same_message(wire.MessageIn(role="user", content=shown), stored)
    assert not inputs.is_same_message(wire.MessageIn(role="user", content=shown[:1]), stored)


@requirement("agentscope:history:edited")
async def test_a_known_id_with_different_text_is_a_new_message(alice: AgentScopeClient) -> None:
    name = a_name()
    await alice.run(user("one", id="m-1"), model="mirror", session_id=name)
    echoed = await mirrored(alice, user("history", id="m-1"), session_id=name)
    assert [text for kind, text in echoed if kind == "UserMessage"] == ["one", "history"]


@requirement("agentscope:history:nothing-new")
async def test_a_request_with_nothing_new_is_refused(alice: AgentScopeClient) -> None:
    name, known = a_name(), user("one", id="m-1")
    first = await alice.run(known, session_id=name)
    assert await alice.assert_refused("POST", "/process", request_body(known, session_id=name)) == "INVALID_REQUEST"
    body = request_body(known, *first["output"], session_id=name)
    assert await alice.assert_refused("POST", "/process", body) == "INVALID_REQUEST"


@requirement("agentscope:history:seeds")
async def test_a_new_session_can_start_with_a_history(alice: AgentScopeClient) -> None:
    call = data("function_call", "assistant", {"call_id": "c-1", "name": "pick", "arguments": '{"hint":"x"}'})
    output = data("function_call_output", "tool", {"call_id": "c-1", "output": "green"})
    reasoning = {"type": "reasoning", "role": "assistant", "content": [{"type": "text", "text": "hm"}]}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "green it is"}]}
    system = {"role": "system", "content": "be brief"}
    echoed = await mirrored(alice, system, user("one"), reasoning, call, output, answer, user("history"))
    assert echoed == [
        ["SystemMessage", "be brief"],
        ["UserMessage", "one"],
        ["AssistantMessage", ""],
        ["ToolMessage", "green"],
        ["AssistantMessage", "green it is"],
        ["UserMessage", "history"],
    ]


@requirement("agentscope:history:seeds")
async def test_an_inconsistent_history_is_refused(alice: AgentScopeClient) -> None:
    output = data("plugin_call_output", "tool", {"call_id": "nowhere", "output": "green"})
    answer = {"role": "assistant", "content": "green it is"}
    assert await alice.assert_refused("POST", "/process", request_body(output, answer, "hello")) == "INVALID_REQUEST"
    broken = data("plugin_call", "assistant", {"call_id": "c", "name": "x", "arguments": "{"})
    assert await alice.assert_refused("POST", "/process", request_body(broken, "hello")) == "INVALID_REQUEST"
    assert (
        await alice.assert_refused("POST", "/process", request_body({"role": "assistant", "content": "hi"}))
        == "INVALID_REQUEST"
    )
