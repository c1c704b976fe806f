"""OpenAI's API, sections 3 and 5: the items of a response, and its events."""

import json
from typing import Any

import pytest

from tests.protocols.openai.client import TOO_LONG, OpenAiClient, approval, call, function, output, script
from tests.protocols.openai.stream import DONE, text_of
from tests.requirements import requirement

Json = Any
QUESTION = {"questions": [{"question": "Where?", "options": [{"label": "Staging"}, {"label": "Production"}]}]}


def kinds(events: list[Json]) -> list[str]:
    return [each["type"].removeprefix("response.") for each in events]


@requirement("openai:stream:text", "openai:stream:equals-json")
async def test_a_text_turn_is_streamed_and_ends_with_what_json_answers_have(alice: OpenAiClient) -> None:
    reader = await alice.stream("hello")
    streamed = await reader.end()
    assert kinds(reader.events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
        DONE,
    ]
    assert await alice.get(f"/responses/{streamed['id']}") == streamed
    answered = await alice.respond("hello")
    assert text_of(streamed) == text_of(answered) == "Hello! I am the rehearsal agent."
    assert streamed.keys() == answered.keys()


@requirement("openai:usage:sum")
async def test_the_usage_is_that_of_all_steps(alice: OpenAiClient) -> None:
    one = {"input_tokens": 9, "output_tokens": 5, "cached_tokens": 4, "reasoning_tokens": 3}
    two = {"input_tokens": 20, "output_tokens": 2, "cached_tokens": 10}
    answer = await alice.respond(script({"usage": one}, call("add", a=1, b=2), {"usage": two}, {"say": "{result}"}))
    assert answer["usage"] == {
        "input_tokens": 29,
        "input_tokens_details": {"cached_tokens": 14},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 36,
    }


@requirement("openai:items:reasoning", "openai:items:server-tools")
async def test_thinking_and_a_tool_of_the_server_have_items_of_their_own(alice: OpenAiClient) -> None:
    steps = script({"think": "Hm."}, {"call": {"name": "add", "input": {"a": 1, "b": 2}}}, {"say": "{result}"})
    reader = await alice.stream(steps)
    response = await reader.end()
    thought, called, said = response["output"]
    assert thought == {  # without `encrypted_content`, which is null in OpenAI's schema and a text in Open Responses'
        "type": "reasoning",
        "id": thought["id"],
        "status": "completed",
        "summary": [{"type": "summary_text", "text": "Hm."}],
    }
    assert called == {
        "type": "mcp_call",
        "id": called["id"],
        "server_label": "rehearsal",
        "name": "add",
        "arguments": '{"a":1,"b":2}',
        "output": "3",
        "error": None,
        "status": "completed",
        "approval_request_id": None,
    }
    assert said["content"][0]["text"] == "3"
    assert kinds(reader.events)[2:15] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
        "output_item.added",
    ]


@requirement("openai:items:server-tools")
async def test_parallel_calls_are_all_added_before_the_first_is_done(alice: OpenAiClient) -> None:
    calls = [{"name": "add", "input": {"a": n, "b": 1}} for n in range(3)]
    reader = await alice.stream(script({"calls": calls}, {"say": "{results}"}))
    response = await reader.end()
    order = [kind for kind in kinds(reader.events) if kind in ("output_item.added", "output_item.done")]
    assert order[:4] == ["output_item.added"] * 3 + ["output_item.done"]
    assert [item["output"] for item in response["output"][:3]] == ["1", "2", "3"]


@requirement("openai:items:failed")
async def test_a_failed_call_holds_the_text_of_the_failure(alice: OpenAiClient) -> None:
    failed = (await alice.respond(script({"call": {"name": "boom"}}, {"say": "on"})))["output"][0]
    assert (failed["status"], failed["output"], failed["error"]["type"]) == (
        *("failed", None),
        "mcp_tool_execution_error",
    )
    assert failed["error"]["content"].startswith("Tool execution failed: ")


@requirement("openai:items:approval")
async def test_an_approval_is_asked_for_and_granted_or_denied(alice: OpenAiClient) -> None:
    steps = script({"call": {"name": "stamp", "input": {"text": "paid"}}}, {"say": "So: {result}."})
    for approve, status, said in ((True, "completed", "stamped paid"), (False, "failed", "Tool call denied: no")):
        asked = await (await alice.stream(steps)).end()
        (request,) = asked["output"]
        assert request == {
            "type": "mcp_approval_request",
            "id": request["id"],
            "server_label": "rehearsal",
            "name": "stamp",
            "arguments": '{"text":"paid"}',
        }
        answer = approval(request, approve=approve, reason="no")
        reader = await alice.stream([{"type": "item_reference", "id": request["id"]}, answer])
        done = await reader.end()
        called = done["output"][0]
        assert (called["type"], called["status"], called["approval_request_id"]) == ("mcp_call", status, request["id"])
        assert (called["output"] or called["error"]["content"]) == said
        assert text_of(done) == f"So: {said}."
        twice = {"input": [answer], "previous_response_id": asked["id"]}
        assert (await alice.refused("POST", "/responses", twice))[1] == "no_pending_call"


@requirement("openai:items:approval", "openai:abuse:forged")
async def test_a_user_text_approves_nothing(alice: OpenAiClient) -> None:
    asked = await alice.respond(script({"call": {"name": "stamp", "input": {"text": "paid"}}}, {"say": "{result}"}))
    said = await alice.respond("approved, yes", previous_response_id=asked["id"])
    assert [item["type"] for item in said["output"]] == ["message"]


@requirement("openai:items:question")
@pytest.mark.parametrize(("text", "answer"), [("production", "Production"), ("nowhere", "nowhere")])
async def test_a_question_is_text_and_the_next_text_answers_it(alice: OpenAiClient, text: str, answer: str) -> None:
    asked = await (await alice.stream(script({"ask": QUESTION}, {"say": "To {answer}."}))).end()
    assert text_of(asked) == "Where?\n- Staging\n- Production"
    assert text_of(await alice.respond(text, previous_response_id=asked["id"])) == f"To {answer}."


@requirement("openai:items:question-declared")
async def test_a_declared_question_is_a_call_with_an_output(alice: OpenAiClient) -> None:
    tools = [function("AskUserQuestion")]
    asked = await alice.respond(script({"ask": QUESTION}, {"say": "To {answer}."}), tools=tools)
    (question,) = asked["output"]
    assert (question["type"], json.loads(question["arguments"])) == ("function_call", QUESTION)
    chosen = output(question["call_id"], '{"selections": {"0": ["Staging"]}}')
    assert text_of(await alice.respond([chosen], previous_response_id=asked["id"])) == "To Staging."


@requirement("openai:items:question-declared")
async def test_a_question_that_is_declared_without_parameters_is_no_tool_for_the_model(alice: OpenAiClient) -> None:
    declared = {"type": "function", "name": "AskUserQuestion"}
    for tool, offered in ((declared, []), (function("AskUserQuestion"), ["AskUserQuestion"])):
        assert json.loads(text_of(await alice.respond("tools", model="mirror", tools=[tool]))) == offered


@requirement("openai:items:media")
async def test_pictures_are_markdown_parts_and_data_is_left_out(alice: OpenAiClient) -> None:
    response = await (await alice.stream("media", model="mirror")).end()
    (message,) = response["output"]
    assert [part["text"] for part in message["content"]] == [
        "look",
        "![image](https://example.org/a.png)",
        "[a.pdf](https://example.org/a.pdf)",
    ]


@requirement("openai:items:sub-agent")
async def test_of_a_sub_agent_its_call_is_shown_and_calls_that_wait(alice: OpenAiClient) -> None:
    inner = [{"say": "inside"}, call("stamp", text="paid"), {"say": "stamped it"}]
    steps = script({"fork": {"description": "work", "script": inner}}, {"say": "Got: {result}"})
    asked = await (await alice.stream(steps)).end()
    assert [(item["type"], item.get("status")) for item in asked["output"]] == [
        ("mcp_call", "incomplete"),
        ("mcp_approval_request", None),
    ]
    answer = approval(asked["output"][1], approve=True)
    done = await (await alice.stream([answer], previous_response_id=asked["id"])).end()
    assert [(item["type"], item.get("name")) for item in done["output"]] == [("mcp_call", "Agent"), ("message", None)]
    assert "inside" not in text_of(done)


@requirement("openai:stream:ends")
@pytest.mark.parametrize(
    ("step", "status", "event", "details", "code"),
    [
        ({"stop": "max_tokens"}, "incomplete", "response.incomplete", {"reason": "max_output_tokens"}, None),
        ({"stop": "refusal"}, "incomplete", "response.incomplete", {"reason": "content_filter"}, None),
        ({"fail": {"code": "teapot", "message": "no coffee"}}, "failed", "response.failed", None, "teapot"),
        ({"fail": "no coffee"}, "failed", "response.failed", None, None),
    ],
)
async def test_each_end_has_its_status_and_event(
    alice: OpenAiClient, step: Json, status: str, event: str, details: Json, code: str | None
) -> None:
    reader = await alice.stream(script({"say": "so far"}, step))
    response = await reader.end()
    assert (response["status"], reader.events[-2]["type"]) == (status, event)
    assert response["incomplete_details"] == details
    assert (response["error"] is not None) == (status == "failed")
    assert code is None or response["error"]["code"] == code
    assert text_of(response) == "so far"


@requirement("openai:stream:too-long")
async def test_input_that_is_too_long_for_the_model_is_refused_unless_something_was_done(alice: OpenAiClient) -> None:
    body = {"model": "rehearsal", "input": script(TOO_LONG)}
    assert await alice.refused("POST", "/responses", body) == (400, "context_length_exceeded", "input")
    streamed = await (await alice.stream(script(TOO_LONG))).end()
    later = await alice.respond(script(call("add", a=1, b=2), TOO_LONG))
    for response in (streamed, later):
        assert (response["status"], response["error"]["code"]) == ("failed", "context_length_exceeded")
    assert [item["type"] for item in later["output"]] == ["mcp_call"]


@requirement("openai:stream:replay")
async def test_a_stream_continues_after_any_event(alice: OpenAiClient) -> None:
    reader = await alice.stream(script({"think": "Hm."}, call("add", a=1, b=2), {"say": "three", "size": 1}))
    response = await reader.end()
    last = len(reader.events) - 2
    for after in (0, 1, 7, last - 1):
        rest = await alice.replay(response["id"], after)
        assert await rest.end() == response
        assert rest.events == reader.events[after + 1 :]
    beyond = await alice.replay(response["id"], last)
    assert await beyond.read_to_end() == [{"type": DONE}]
    for wrong in ("-1", "x", "", "1" + "0" * 30):
        path = f"/responses/{response['id']}?stream=true&starting_after={wrong}"
        assert await alice.refused("GET", path) == (400, "invalid_value", "starting_after")
