"""OpenAI's API, section 2: what a request may contain, and what becomes of it."""

import json
from typing import Any

import pytest

from tests.protocols.openai.client import OpenAiClient, function, output, script
from tests.protocols.openai.stream import text_of
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

Json = Any
FILE = {"media_type": "text/plain", "name": "a.txt"}
LOOK = {"type": "input_image", "image_url": "https://example.org/a.png"}


async def mirrored(alice: OpenAiClient, given: Json, **more: Json) -> Json:
    """What the agent saw."""
    return json.loads(text_of(await alice.respond(given, model="mirror", **more)))


@requirement("openai:request:refused", "openai:request:nothing-stored")
@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input": None}, "missing_required_parameter", "input"),
        ({"input": []}, "empty_input", "input"),
        ({"input": ""}, "empty_input", "input"),
        ({"input": 3}, "invalid_type", "input"),
        ({"input": [1]}, "invalid_type", "input[0]"),
        ({"input": [{"type": "shell_call"}]}, "invalid_value", "input[0].type"),
        ({"input": [{"role": "robot", "content": "x"}]}, "invalid_value", "input[0].role"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "unsupported_value",
            "input[0].content[0].file_id",
        ),
        (
            {"input": [output("c", [{"type": "input_file", "file_id": "f"}])]},
            "unsupported_value",
            "input[0].output[0].file_id",
        ),
        ({"input": [{"role": "assistant", "content": "x"}]}, "nothing_new", "input"),
        ({"model": 3}, "invalid_type", "model"),
        ({"instructions": 3}, "invalid_type", "instructions"),
        ({"previous_response_id": "resp_1"}, "previous_response_not_found", "previous_response_id"),
        ({"previous_response_id": "resp_1", "conversation": "conv_1"}, "mutually_exclusive_parameters", "conversation"),
        ({"conversation": 3}, "invalid_type", "conversation"),
        ({"stream": "yes"}, "invalid_type", "stream"),
        ({"stream_options": {"include_obfuscation": False}}, "unsupported_parameter", "stream_options"),
        ({"tools": [{"type": "web_search"}]}, "unsupported_tool", "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "missing_required_parameter", "tools[0].name"),
        ({"tools": [{"type": "function", "function": {"name": "x"}}]}, "invalid_type", "tools[0].function"),
        ({"tools": [function("a"), function("a")]}, "duplicate_tool", "tools[1].name"),
        ({"tools": [function(f"t{n}") for n in range(129)]}, "too_many_tools", "tools"),
        ({"tool_choice": {"type": "function", "name": "nix"}}, "unknown_tool", "tool_choice"),
        ({"tool_choice": {"type": "function", "name": {"a": 1}}}, "unknown_tool", "tool_choice"),
        ({"tool_choice": "sometimes"}, "invalid_value", "tool_choice"),
        ({"max_output_tokens": 0}, "integer_below_min_value", "max_output_tokens"),
        ({"temperature": 2.5}, "decimal_above_max_value", "temperature"),
        ({"top_p": -1}, "decimal_below_min_value", "top_p"),
        ({"text": {"format": {"type": "xml"}}}, "invalid_value", "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "schema": 3}}}, "invalid_schema", "text.format.schema"),
        ({"metadata": {"k": "v" * 513}}, "invalid_metadata", "metadata"),
        ({"truncation": "maybe"}, "invalid_value", "truncation"),
        ({"prompt": {"id": "p"}}, "unsupported_parameter", "prompt"),
        ({"context_management": []}, "unsupported_parameter", "context_management"),
    ],
)
async def test_a_wrong_field_is_refused_by_its_name(
    alice: OpenAiClient, fields: Json, code: str, param: str | None
) -> None:
    refused = await alice.refused("POST", "/responses", {"model": "rehearsal", "input": "hello", **fields})
    assert refused[:2] == (400, code)
    assert param is None or refused[2] == param


@requirement("openai:request:media-urls")
@pytest.mark.parametrize(
    ("part", "member"),
    [
        ({"type": "input_image", "image_url": "http://169.254.169.254/a.png"}, "image_url"),
        ({"type": "input_file", "file_url": "file:///etc/passwd"}, "file_url"),
    ],
)
async def test_images_and_files_at_other_urls_than_https_are_refused(
    alice: OpenAiClient, part: Json, member: str
) -> None:
    given = {"model": "mirror", "input": [{"role": "user", "content": [part]}]}
    refused = await alice.refused("POST", "/responses", given)
    assert refused == (400, "invalid_value", f"input[0].content[0].{member}")


@requirement("openai:request:model", "openai:request:refused")
async def test_an_unknown_model_and_another_than_the_sessions(alice: OpenAiClient) -> None:
    assert await alice.refused("POST", "/responses", {"model": "nix", "input": "x"}) == (
        404,
        "model_not_found",
        "model",
    )
    assert await alice.refused("POST", "/responses", {"conversation": "conv_1", "input": "x"}) == (
        *(404, "conversation_not_found"),
        "conversation",
    )
    first = await alice.respond("hello")
    body = {"model": "mirror", "input": "x", "previous_response_id": first["id"]}
    assert await alice.refused("POST", "/responses", body) == (400, "model_mismatch", "model")
    assert (await alice.post("/responses", {"input": "hello"}))["model"] == "rehearsal"
    assert (await alice.respond("parameters", model="looking-glass"))["model"] == "looking-glass"


@requirement("openai:request:parameters", "openai:request:nulls")
async def test_parameters_reach_the_model_of_their_run_only(alice: OpenAiClient) -> None:
    given = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 50,
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low"},
        "tools": [function("a")],
        "tool_choice": {"type": "function", "name": "a"},
        "made_up": 1,
        "user": None,
    }
    first = await alice.respond("parameters", model="mirror", **given)
    assert json.loads(text_of(first)) == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 50,
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
        "verbosity": "low",
        "tool_choice": {"type": "function", "function": {"name": "a"}},
    }
    assert await mirrored(alice, "parameters", previous_response_id=first["id"]) == {}


@requirement("openai:request:tool-choice", "openai:request:tools")
async def test_a_choice_of_tools_keeps_others_from_the_model(alice: OpenAiClient) -> None:
    strict = {**function("a"), "strict": True}
    assert await mirrored(alice, "tools", tools=[strict, function("b")]) == ["a, strict", "b"]
    tools = [function("a"), function("b")]
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "b"}]}
    assert await mirrored(alice, "tools", tools=tools) == ["a", "b"]
    assert await mirrored(alice, "tools", tools=tools, tool_choice="none") == []
    assert await mirrored(alice, "tools", tools=tools, tool_choice=allowed) == ["b"]


@requirement("openai:request:max-calls")
async def test_calls_beyond_the_limit_of_a_response_fail_and_the_agent_answers(alice: OpenAiClient) -> None:
    add = {"name": "add", "input": {"a": 1, "b": 2}}
    steps = script({"call": add}, {"calls": [{"name": "pick", "input": {}}, add, add]}, {"say": "done"})
    first = await alice.respond(steps, max_tool_calls=2, tools=[function("pick")])
    calls = [each for each in first["output"] if each["type"] == "mcp_call"]
    assert [(each["status"], each["output"]) for each in calls] == [
        ("completed", "3"),
        ("completed", "3"),
        ("failed", None),
    ]
    assert "the application allows 2 tool calls in this run" in calls[-1]["error"]["content"]
    (picked,) = (each for each in first["output"] if each["type"] == "function_call")
    answers = [output(picked["call_id"], "it")]
    rest = await alice.respond(answers, previous_response_id=first["id"], max_tool_calls=1)
    assert (rest["status"], text_of(rest)) == ("completed", "done")


@requirement("openai:request:instructions", "openai:request:system")
async def test_instructions_hold_for_a_run_and_system_messages_stay(alice: OpenAiClient) -> None:
    recall = script({"recall": "system"})
    said = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": recall}]
    first = await alice.respond(said, instructions="be kind")
    assert (text_of(first), first["instructions"]) == ("be brief | be kind", "be kind")
    later = [{"role": "system", "content": "in rhyme"}, {"role": "user", "content": recall}]
    second = await alice.respond(later, previous_response_id=first["id"])
    assert (text_of(second), second["instructions"]) == ("be brief | in rhyme", None)


@requirement("openai:request:system")
async def test_instructions_after_the_users_message_stay_and_alone_they_are_answered(alice: OpenAiClient) -> None:
    asked, kind = {"role": "user", "content": script({"recall": "system"})}, {"role": "developer", "content": "be kind"}
    assert text_of(await alice.respond([asked, kind])) == "be kind"
    assert text_of(await alice.respond([kind, {**asked, "role": "system"}])) == "be kind"
    call_item = {"type": "function_call", "call_id": "c1", "name": "pick", "arguments": "{}"}
    past = [{"role": "user", "content": "x"}, call_item, output("c1", "it"), kind]
    answered = await alice.respond(past)
    items = await alice.get(f"/responses/{answered['id']}/input_items?limit=1")
    assert items["data"][0]["content"] == [{"type": "input_text", "text": "be kind"}]


@requirement("openai:request:echo")
async def test_a_response_has_every_field_and_repeats_its_request(alice: OpenAiClient) -> None:
    plain = await alice.respond("hello")
    given = {
        "instructions": "be kind",
        "tools": [function("a")],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_output_tokens": 50,
        "max_tool_calls": 2,
        "temperature": 0,
        "top_p": 0.5,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "reasoning": {"effort": "low", "summary": None},
        "metadata": {"k": "line\nbreak"},
        "safety_identifier": "s",
        "prompt_cache_key": "p",
        "truncation": "auto",
    }
    full = await alice.respond("hello", **given)
    assert plain.keys() == full.keys()
    echoed = {**given, "tools": [{**function("a"), "description": None, "strict": None}]}
    assert {name: full[name] for name in given} == echoed
    varying = {"id", "created_at", "completed_at", "output", "usage"}
    assert {name: value for name, value in plain.items() if name not in varying} == {
        "object": "response",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "rehearsal",
        "instructions": None,
        "previous_response_id": None,
        "conversation": None,
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "temperature": 1,
        "top_p": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "top_logprobs": 0,
        "text": {"format": {"type": "text"}},
        "reasoning": {"effort": None, "summary": None},
        "truncation": "disabled",
        "service_tier": "default",
        "store": True,
        "background": False,
        "metadata": {},
        "safety_identifier": None,
        "prompt_cache_key": None,
    }
    assert plain["usage"].keys() == {
        *("input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details", "total_tokens")
    }
    assert all(isinstance(plain[name], int) for name in ("created_at", "completed_at"))


@requirement("openai:request:content")
async def test_content_reaches_the_agent_in_whatever_parts_it_comes(alice: OpenAiClient) -> None:
    parts = [{"type": "text", "text": "look"}, LOOK, {"type": "input_file", "file_data": "aGk=", "filename": "a.txt"}]
    assert await mirrored(alice, [{"role": "user", "content": parts}]) == [
        {"type": "text", "text": "look"},
        {"type": "image", "url": "https://example.org/a.png"},
        {
            "type": "file",
            "url": "data:text/plain;base64,aGk=",
            "media": "file",
            "media_type": "text/plain",
            "name": "a.txt",
        },
    ]
    bare = {"model": "rehearsal-bare", "input": [{"role": "user", "content": [LOOK]}]}
    assert await alice.refused("POST", "/responses", bare) == (400, "image_unsupported", "input[0].content[0]")


@requirement("openai:output:schema")
async def test_an_answer_that_has_to_match_a_schema_is_repeated_or_fails(alice: OpenAiClient) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer", "pattern": "^1"}}, "required": ["x"]}
    wanted = {"format": {"type": "json_schema", "name": "p", "schema": schema}}
    fits = await alice.respond(script({"say": '{"x": 1}'}), text=wanted)
    assert (fits["status"], text_of(fits), fits["text"]) == ("completed", '{"x": 1}', wanted)
    for kind in ("json_object", "json_schema"):  # without a schema: any object
        wrong = await alice.respond(script({"say": "no"}), text={"format": {"type": kind}})
        assert (wrong["status"], wrong["error"]["code"]) == ("failed", "invalid_output")


@requirement("openai:output:schema", "openai:request:refused", "openai:abuse:sizes")
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1/secret"},
        {"$ref": "#/nowhere"},
        {"type": "anything"},
        {"properties": {"a": {"required": 3}}},
        {"pattern": "^a", "items": [{"type": "string"}]},
    ],
    ids=["foreign reference", "dangling reference", "unknown type", "not a list", "tuple of an old draft"],
)
async def test_a_schema_that_nothing_can_be_checked_against_is_refused_before_the_agent_runs(
    alice: OpenAiClient, schema: Json
) -> None:
    body = {"input": "hello", "text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}}
    assert await alice.refused("POST", "/responses", body) == (400, "invalid_schema", "text.format.schema")


@requirement("openai:paths:off")
async def test_the_protocol_is_a_setting(open_app_server: AppServerFactory) -> None:
    async with open_app_server(openai_path="/openai/v1") as server:
        client = OpenAiClient(server.connection, server.key("alice"), path="/openai/v1")
        assert (await client.get("/models"))["object"] == "list"
    async with open_app_server(openai=False) as server:
        stream = await server.connection.open("GET", "/v1/models", headers=[], body=b"")
        assert stream.status == 404


@requirement("openai:auth:cors")
async def test_browsers_may_send_the_headers_of_official_clients(app_server: AppServer) -> None:
    wanted = "authorization,content-type,user-agent,x-stainless-lang,openai-organization,x-dragoman-session"
    headers = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", wanted),
    ]
    preflight = await app_server.connection.open("OPTIONS", "/v1/responses", headers=headers, body=b"")
    allowed = preflight.headers["access-control-allow-headers"].replace(" ", "").split(",")
    assert set(wanted.split(",")) <= set(allowed)
    exposed = preflight.headers["access-control-expose-headers"].split(", ")
    assert {"x-request-id", "retry-after", "x-should-retry"} <= set(exposed), "what the JavaScript client reads"


@requirement("openai:abuse:sizes")
@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"[]", 400, "invalid_json"),
        (b'{"input": NaN}', 400, "invalid_json"),
        (b"\xff", 400, "invalid_json"),
        (b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "invalid_json"),
        (b'{"input": [' + b",".join([b'{"role":"user","content":"x"}'] * 20_000) + b"]}", 400, "too_many_items"),
        (b'{"input": [' + b",".join([b'{"role":"user","content":"x"}'] * 100_000) + b"]}", 400, "limit_exceeded"),
        (b'{"input": [{"role":"user","content":[' + b",".join([b"0"] * 100_000) + b"]}]}", 400, "limit_exceeded"),
        (b'{"input": "' + b"x" * (16 * 1024 * 1024) + b'"}', 413, "request_too_large"),
    ],
    ids=["cut", "list", "nan", "utf-8", "deep", "many items", "many values", "many parts", "17 MiB"],
)
async def test_malformed_and_large_bodies_are_refused(alice: OpenAiClient, raw: bytes, status: int, code: str) -> None:
    assert (await alice.refused("POST", "/responses", raw=raw))[:2] == (status, code)


@requirement("openai:abuse:sizes", "openai:request:refused")
async def test_a_body_of_another_type_and_odd_characters(alice: OpenAiClient) -> None:
    text_body = {"content-type": "text/plain"}
    refused = await alice.refused("POST", "/responses", {"input": "x"}, headers=text_body)
    assert refused == (415, "unsupported_media_type", "")
    odd = await alice.post(
        "/responses", {"model": "mirror", "input": "a\u2028b\udc00c", "metadata": {"a\nb": "c\r\nd"}}
    )
    assert json.loads(text_of(odd)) == "a\u2028b\ufffdc"
    assert odd["metadata"] == {"a\nb": "c\r\nd"}


@requirement("openai:request:tools")
async def test_a_client_tool_is_called_by_the_client_in_its_run_only(alice: OpenAiClient) -> None:
    asked = await alice.respond("Weather in Paris?", model="weather", tools=[function("get_weather")])
    (call,) = asked["output"]
    assert (call["type"], call["name"], json.loads(call["arguments"])) == (
        *("function_call", "get_weather"),
        {"location": "Paris"},
    )
    answered = await alice.respond([output(call["call_id"], "sun")], model="weather", previous_response_id=asked["id"])
    assert text_of(answered) == "The tool says sun."
    parts = [{"type": "input_text", "text": "r"}, {"type": "input_text", "text": "ain"}]
    again = await alice.respond("Again?", model="weather", tools=[function("get_weather")])
    said = await alice.respond([output(again["output"][0]["call_id"], parts)], model="weather")
    assert text_of(said) == "The tool says rain."


@requirement("openai:request:refused", "openai:request:nothing-stored")
async def test_an_error_in_the_past_of_a_new_conversation_names_the_item_that_has_it(alice: OpenAiClient) -> None:
    long = {"role": "user", "content": "x" * 1_100_000}
    called = [{"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}, output("c", "3")]
    answer = {"role": "assistant", "content": "I add."}
    past = [{"role": "user", "content": "hello"}, answer, *called, long, {"role": "user", "content": "now"}]
    whole = {"model": "rehearsal", "input": past}
    assert (await alice.refused("POST", "/responses", whole))[1:] == ("limit_exceeded", "input[4]")
    bare = {"model": "rehearsal-bare", "input": [{"role": "user", "content": [LOOK]}, *past[:2], past[-1]]}
    assert (await alice.refused("POST", "/responses", bare))[1:] == ("image_unsupported", "input[0].content[0]")
    items = {"items": past}
    assert (await alice.refused("POST", "/conversations", items))[1:] == ("limit_exceeded", "items[4]")
    path = f"/conversations/{(await alice.post('/conversations', {}))['id']}/items"
    assert (await alice.refused("POST", path, items))[1:] == ("limit_exceeded", "items[4]")
    tool_call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    messages = [past[0], {**answer, "tool_calls": [tool_call]}, {"role": "tool", "tool_call_id": "c", "content": "3"}]
    chat = {"model": "rehearsal", "messages": [*messages, long, past[-1]]}
    assert (await alice.refused("POST", "/chat/completions", chat))[1:] == ("limit_exceeded", "messages[3]")
