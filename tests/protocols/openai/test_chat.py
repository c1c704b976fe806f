"""Chat Completions, sections 6.1 and 6.2: requests and answers."""

import json
from typing import Any

import pytest

from tests.protocols.openai.chat_client import ChatClient, assistant, function_tool, tool_result, user
from tests.protocols.openai.client import TOO_LONG, OpenAiClient, call, script
from tests.requirements import requirement

PAINT = function_tool("paint", description="Paints.")


@pytest.fixture
def chat(alice: OpenAiClient) -> ChatClient:
    """A client of the shared server without a session key."""
    return ChatClient(alice)


def mirrored(reply: str) -> Any:
    return json.loads(reply)


@requirement("openai-chat:answer:json")
async def test_cached_and_reasoning_tokens_are_parts_of_the_usage(chat: ChatClient) -> None:
    used = {"input_tokens": 9, "output_tokens": 5, "cached_tokens": 4, "reasoning_tokens": 3}
    usage = (await chat.complete(user(script({"usage": used}, {"say": "x"}))))["usage"]
    assert (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (9, 4)
    assert (usage["completion_tokens"], usage["completion_tokens_details"]["reasoning_tokens"]) == (5, 3)


@requirement("openai-chat:answer:json")
async def test_an_answer_has_a_message_a_finish_reason_and_the_usage(chat: ChatClient) -> None:
    reply = await chat.send(user("hello"), model="rehearsal")
    assert reply.json == {
        "id": reply.json["id"],
        "object": "chat.completion",
        "created": reply.json["created"],
        "model": "rehearsal",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Hello! I am the rehearsal agent.",
                    "refusal": None,
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": 8,
            "total_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
        "service_tier": "default",
        "system_fingerprint": None,
    }
    assert reply.json["id"].startswith("chatcmpl-")
    assert isinstance(reply.json["created"], int)
    assert "x-dragoman-session" not in reply.headers


SAMPLES: dict[str, tuple[list[Any], str | None, str]] = {
    "text": ([{"say": "one"}, {"step": True}, {"say": "two"}], "one\n\ntwo", "stop"),
    "thinking": ([{"think": "hm"}, {"say": "so"}], "so", "stop"),
    "server-call": ([{"say": "Let me see."}, call("add", a=1, b=2), {"say": "{result}"}], "Let me see.\n\n3", "stop"),
    "client-call": ([call("paint", c=1), {"say": "{result}"}], None, "tool_calls"),
    "two-calls": (
        [{"say": "Both."}, {"calls": [{"name": "paint", "input": {"c": n}} for n in (1, 2)]}],
        "Both.",
        "tool_calls",
    ),
    "image": ([{"say": "Look:"}, {"image": "https://example.org/a.png"}], None, "stop"),
    "length": ([{"say": "cut"}, {"stop": "max_tokens"}], "cut", "length"),
    "refusal": ([{"say": "no"}, {"stop": "refusal"}], "no", "content_filter"),
    "question": ([{"ask": {"questions": [{"question": "Which?", "options": [{"label": "Red"}]}]}}], None, "stop"),
    "line separators": ([{"say": "a\u2028b\u0085c\r\nd"}], "a\u2028b\u0085c\r\nd", "stop"),
}


@requirement(
    "openai-chat:answer:stream",
    "openai-chat:answer:usage",
    "openai-chat:answer:steps",
    "openai-chat:answer:calls",
    "openai-chat:answer:finish",
    "openai-chat:answer:question",
)
@pytest.mark.parametrize("name", SAMPLES)
async def test_a_stream_adds_up_to_the_json_answer(chat: ChatClient, name: str) -> None:
    steps, content, finish_reason = SAMPLES[name]
    asked = user(script(*steps))
    answer = await chat.complete(asked, tools=[PAINT])
    with_usage = await (await chat.stream(asked, tools=[PAINT], stream_options={"include_usage": True})).end()
    streamed = await (await chat.stream(asked, tools=[PAINT])).end()
    assert answer["finish_reason"] == finish_reason
    if content is not None:
        assert answer["message"]["content"] == content
    for each in (answer, with_usage, streamed):
        for made in each["message"].get("tool_calls", ()):
            assert made.pop("id").startswith("call_")
    assert with_usage == answer
    assert {**streamed, "usage": answer["usage"]} == answer


@requirement("openai-chat:answer:calls", "openai-chat:answer:json")
async def test_calls_have_names_and_arguments_and_the_content_is_null_beside_them(chat: ChatClient) -> None:
    message = (await chat.complete(user(script(call("paint", c="red"))), tools=[PAINT]))["message"]
    (made,) = message["tool_calls"]
    assert message["content"] is None
    assert made["function"] == {"name": "paint", "arguments": '{"c":"red"}'}
    assert made["type"] == "function"
    assert len(made["id"]) <= 64


@requirement("openai-chat:answer:steps")
async def test_pictures_are_markdown_and_questions_are_lines_of_text(chat: ChatClient) -> None:
    assert (
        await chat.say(user(script({"say": "Look:"}, {"image": "https://example.org/a.png"})))
        == "Look:\n\n![image](https://example.org/a.png)"
    )
    assert await chat.say(user("ask me")) == "Which environment?\n- staging\n- production"


@requirement("openai-chat:answer:failed")
async def test_a_failed_run_is_not_repeated_by_clients(chat: ChatClient) -> None:
    asked = user(script({"say": "half"}, {"fail": {"code": "no_paint", "message": "There is no paint"}}))
    reply = await chat.send(asked)
    error = {"message": "There is no paint", "type": "server_error", "param": "", "code": "no_paint"}
    assert (reply.status, reply.json) == (500, {"error": error})
    assert reply.headers["x-should-retry"] == "false"
    reader = await chat.stream(asked)
    assert await reader.end() == {"error": error}
    assert reader.text() == "half"
    ai_sdk = {"user-agent": "ai/7.0.173 ai-sdk-provider-utils/5.0.81 node.js/24"}
    error["type"] = "invalid_request_error"
    reply = await chat.send(asked, headers=ai_sdk)
    assert (reply.status, reply.json) == (424, {"error": error}), "it repeats every 5xx"
    assert await (await chat.stream(asked, headers=ai_sdk)).end() == {"error": error}


@requirement("openai-chat:answer:too-long")
async def test_a_conversation_that_is_too_long_for_the_model_is_a_wrong_request(chat: ChatClient) -> None:
    asked = user(script({"say": "half"}, TOO_LONG))
    reply = await chat.send(asked)
    error = reply.json["error"]
    assert (reply.status, error["type"], error["param"]) == (400, "invalid_request_error", "messages")
    assert error["code"] == "context_length_exceeded"
    assert await (await chat.stream(asked)).end() == {"error": error}


@requirement("openai-chat:request:messages")
async def test_of_instructions_alone_the_last_is_answered(chat: ChatClient) -> None:
    first, last = (
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": script({"recall": "system"})},
    )
    assert await chat.say(first, last) == "Be brief."


@requirement("openai-chat:request:messages")
async def test_messages_of_all_roles_are_the_past_and_instructions_are_those_of_the_run(chat: ChatClient) -> None:
    made = {"id": "c1", "type": "function", "function": {"name": "paint", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "Be brief."},
        user([{"type": "text", "text": "one"}, {"type": "text", "text": "!"}]),
        assistant("two", made),
        tool_result(made, [{"type": "text", "text": "three"}]),
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        user("history"),
    ]
    assert mirrored(await chat.say(*messages, model="mirror")) == [
        ["UserMessage", "one!"],
        ["AssistantMessage", "two"],
        ["ToolMessage", "three"],
        ["AssistantMessage", "no"],
        ["UserMessage", "history"],
    ]
    messages[-1] = user(script({"recall": "system"}))
    assert await chat.say(*messages) == "Be brief.\n\nBe kind."


@requirement("openai-chat:request:messages")
async def test_pictures_and_files_reach_the_agent(chat: ChatClient) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    file = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}}
    assert mirrored(await chat.say(user([image, file]), model="mirror")) == [
        {"type": "image", "url": "data:image/png;base64,AAAA"},
        {
            "type": "file",
            "url": "data:application/pdf;base64,AAAA",
            "media": "file",
            "media_type": "application/pdf",
            "name": "a.pdf",
        },
    ]
    assert await chat.refused(user([image]), model="weather") == (400, "image_unsupported", "messages[0].content[0]")


@requirement("openai-chat:request:parameters")
async def test_parameters_reach_the_model_and_the_newer_name_wins(chat: ChatClient) -> None:
    given = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 5,
        "max_completion_tokens": 7,
        "stop": ["a"],
        "seed": 3,
        "reasoning_effort": "low",
        "verbosity": "high",
        "presence_penalty": 1,
        "parallel_tool_calls": False,
        "tool_choice": {"type": "function", "function": {"name": "paint"}},
        "logprobs": True,
        "logit_bias": {"1": 2},
        "user": "u-1",
        "n": 1,
    }
    expected = {key: value for key, value in given.items() if key not in ("max_completion_tokens", "logprobs")}
    del expected["logit_bias"], expected["user"], expected["n"]
    answer = await chat.say(user("parameters"), model="mirror", tools=[PAINT], **given)
    assert mirrored(answer) == {**expected, "max_tokens": 7}
    assert mirrored(await chat.say(user("tools"), model="looking-glass", tools=[PAINT])) == ["paint"]
    assert mirrored(await chat.say(user("tools"), model="mirror", tools=[PAINT], tool_choice="none")) == []


@requirement("openai-chat:request:parameters")
async def test_an_answer_that_does_not_fit_its_format_is_a_failed_run(chat: ChatClient) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "number", "schema": schema, "strict": True}}
    assert await chat.say(user(script({"say": '{"n": 3}'})), response_format=wanted) == '{"n": 3}'
    reply = await chat.send(user("hello"), response_format=wanted)
    assert (reply.status, reply.headers["x-should-retry"]) == (500, "false")
    assert reply.json["error"]["code"] == "invalid_output", "as in Responses"


REFUSALS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no model": ({"model": None}, "missing_required_parameter", "model"),
    "no messages": ({"messages": None}, "missing_required_parameter", "messages"),
    "empty": ({"messages": []}, "empty_input", "messages"),
    "not a list": ({"messages": "hi"}, "invalid_type", "messages"),
    "not an object": ({"messages": ["hi"]}, "invalid_type", "messages[0]"),
    "calls are no list": (
        {"messages": [{"role": "assistant", "content": "x", "tool_calls": 1}, {"role": "user", "content": "x"}]},
        "invalid_type",
        "messages[0].tool_calls",
    ),
    "role": ({"messages": [{"role": "function", "content": "x"}]}, "invalid_value", "messages[0].role"),
    "no content": (
        {"messages": [{"role": "system", "content": "x"}, {"role": "user"}]},
        "missing_required_parameter",
        "messages[1].content",
    ),
    "no instructions": (
        {"messages": [user("x"), {"role": "system"}]},
        "missing_required_parameter",
        "messages[1].content",
    ),
    "audio": (
        {"messages": [user([{"type": "text", "text": "x"}, {"type": "input_audio", "input_audio": {}}])]},
        "unsupported_value",
        "messages[0].content[1]",
    ),
    "an image over http": (
        {"messages": [user([{"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}])]},
        "invalid_value",
        "messages[0].content[0].image_url",
    ),
    "an image without an object": (
        {"messages": [user([{"type": "image_url", "image_url": "https://example.org/a.png"}])]},
        "invalid_type",
        "messages[0].content[0].image_url",
    ),
    "an uploaded file": (
        {"messages": [user([{"type": "file", "file": {"file_id": "f"}}])]},
        "unsupported_value",
        "messages[0].content[0].file_id",
    ),
    "a result without its call": (
        {"messages": [user("x"), {"role": "tool", "tool_call_id": "c", "content": "y"}]},
        "no_pending_call",
        "messages[1].tool_call_id",
    ),
    "an answer at the end": ({"messages": [assistant("x")]}, "nothing_new", "messages"),
    "n": ({"n": 2}, "unsupported_value", "n"),
    "functions": ({"functions": []}, "unsupported_parameter", "functions"),
    "modalities": ({"modalities": ["text", "audio"]}, "unsupported_parameter", "modalities"),
    "tool name": ({"tools": [function_tool("a b")]}, "invalid_value", "tools[0].function.name"),
    "tool twice": ({"tools": [PAINT, PAINT]}, "duplicate_tool", "tools[1].function.name"),
    "tool type": ({"tools": [{"type": "custom", "custom": {}}]}, "unsupported_tool", "tools[0].type"),
    "tool choice": (
        {"tools": [PAINT], "tool_choice": {"type": "function", "function": {"name": "x"}}},
        "unknown_tool",
        "tool_choice",
    ),
    "format": ({"response_format": {"type": "xml"}}, "invalid_value", "response_format.type"),
    "schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": 1}}},
        "invalid_schema",
        "response_format.json_schema.schema",
    ),
    "temperature": ({"temperature": 3}, "decimal_above_max_value", "temperature"),
    "limit": ({"max_tokens": 0}, "integer_below_min_value", "max_tokens"),
    "stop": ({"stop": ["a"] * 5}, "array_above_max_length", "stop"),
    "stream options": ({"stream_options": {}}, "unsupported_parameter", "stream_options"),
}


@requirement("openai-chat:request:refused")
async def test_what_is_wrong_is_named_by_its_place_in_the_body(chat: ChatClient) -> None:
    found = {}
    for name, (more, _, _) in REFUSALS.items():
        body = {"model": "rehearsal", "messages": [user("hello")], **more}
        found[name] = await chat.http.refused("POST", "/chat/completions", body)
    assert found == {name: (400, code, place) for name, (_, code, place) in REFUSALS.items()}
    assert await chat.refused(user("hello"), model="nobody") == (404, "model_not_found", "model")


MANY = json.dumps([user("x")] * 20_000)
BODIES = {
    "not JSON": (b"{", 400, "invalid_json"),
    "not an object": (b"[]", 400, "invalid_json"),
    "not UTF-8": (b'{"model": "\xff"}', 400, "invalid_json"),
    "a number that does not exist": (
        b'{"model": "rehearsal", "messages": [], "temperature": NaN}',
        400,
        "invalid_json",
    ),
    "deep": (b'{"model": "rehearsal", "messages": ' + b"[" * 100_000, 400, "invalid_json"),
    "deep arguments": (
        b'{"model": "rehearsal", "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function",'
        b' "function": {"name": "x", "parameters": ' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}}]}",
        400,
        "invalid_value",
    ),
    "many messages": (f'{{"model": "rehearsal", "messages": {MANY}}}'.encode(), 400, "too_many_items"),
    "large": (b'{"model": "' + b"x" * (17 * 1024 * 1024) + b'"}', 413, "request_too_large"),
}


@requirement("openai-chat:abuse:bodies")
@pytest.mark.parametrize("name", BODIES)
async def test_hostile_bodies_are_refused(chat: ChatClient, name: str) -> None:
    body, status, code = BODIES[name]
    refusal = await chat.http.refused("POST", "/chat/completions", raw=body)
    assert refusal[:2] == (status, code)


@requirement("openai-chat:abuse:bodies")
async def test_strange_characters_come_back_as_they_are_and_make_no_events(chat: ChatClient) -> None:
    text = "a\u0000b\r\n\ndata: {}\n\n\u2028c"
    assert await chat.say(user(text)) == f"You said: {text}"
    assert (await (await chat.stream(user(text))).end())["message"]["content"] == f"You said: {text}"
    lone = b'{"model": "rehearsal", "messages": [{"role": "user", "content": "\\ud800"}]}'
    reply = await chat.http.request("POST", "/chat/completions", raw=lone)
    assert reply.json["choices"][0]["message"]["content"] == "You said: \ufffd"
    assert await chat.refused(user("x"), model="a\nb") == (404, "model_not_found", "model")
