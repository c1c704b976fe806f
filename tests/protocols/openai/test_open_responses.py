"""OpenAI's API, section 9: what the compliance suite of Open Responses sends, to an agent that reads plain English."""

import json
from typing import Any

import pytest

from tests.protocols.openai.client import OpenAiClient, function, output
from tests.protocols.openai.stream import text_of
from tests.requirements import requirement

Json = Any
TOOL = function("get_weather", location={"type": "string"})
WEATHER = [{"type": "message", "role": "user", "content": "What's the weather like in San Francisco?"}]
PNG = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERi0xLjQKJSVFT0YK"


def message(role: str, content: Json, **more: Json) -> Json:
    return {"type": "message", "role": role, "content": content, **more}


@requirement("openai:open-responses")
@pytest.mark.parametrize(
    "given",
    [
        pytest.param([message("user", "Say hello in exactly 3 words.")], id="basic-response"),
        pytest.param([message("system", "You are a pirate."), message("user", "Say hello.")], id="system-prompt"),
        pytest.param(
            [
                message("assistant", "I should answer with the saved number.", phase="commentary"),
                message("assistant", "The number is four.", phase="final_answer"),
                message("user", "Say hello."),
            ],
            id="assistant-phase",
        ),
        pytest.param(
            [message("user", [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": PNG}])],
            id="image-input",
        ),
        pytest.param(
            [
                message(
                    "user",
                    [
                        {"type": "input_text", "text": "Read."},
                        {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
                    ],
                )
            ],
            id="file-input",
        ),
        pytest.param(
            [message("user", "I am Alice."), message("assistant", "Hello Alice!"), message("user", "Who am I?")],
            id="multi-turn",
        ),
    ],
)
async def test_messages_of_every_kind_are_answered_with_a_message(alice: OpenAiClient, given: Json) -> None:
    response = await alice.respond(given, model="forecast")
    content = given[-1]["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    assert response["status"] == "completed"
    assert response["output"] == [
        {
            "type": "message",
            "id": response["output"][0]["id"],
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": f"You said: {text}", "annotations": [], "logprobs": []}],
        }
    ]


@requirement("openai:open-responses")
@pytest.mark.parametrize("choice", ["auto", {"type": "function", "name": "get_weather"}], ids=["auto", "named"])
async def test_a_tool_is_called_after_a_thought_and_its_output_continues(alice: OpenAiClient, choice: Json) -> None:
    reader = await alice.stream(WEATHER, model="forecast", tools=[TOOL], tool_choice=choice)
    asked = await reader.end()
    thought, called = asked["output"]
    assert thought.keys() == {"type", "id", "status", "summary"}
    assert called == {
        "type": "function_call",
        "id": called["id"],
        "call_id": called["call_id"],
        "name": "get_weather",
        "arguments": '{"location":"San Francisco, CA"}',
        "status": "completed",
    }
    answer = [output(called["call_id"], "sunny")]
    answered = await alice.respond(
        answer, model="forecast", tools=[TOOL], tool_choice=choice, previous_response_id=asked["id"]
    )
    assert (answered["status"], text_of(answered)) == ("completed", "The tool says: sunny")


@requirement("openai:open-responses", "openai:compact:continues")
async def test_a_compacted_conversation_is_the_beginning_of_another(alice: OpenAiClient) -> None:
    """`compact-response`, `compact-missing-model`, and `websocket-compact-new-chain` over HTTP."""
    said = [message("user", "We launch on Tuesday."), message("assistant", "Understood.")]
    compacted = await alice.post("/responses/compact", {"model": "forecast", "prompt_cache_key": "k", "input": said})
    first, summary = compacted["output"]
    assert compacted == {
        "id": compacted["id"],
        "object": "response.compaction",
        "created_at": compacted["created_at"],
        "output": [first, summary],
        "usage": compacted["usage"],
    }
    assert first == {
        "type": "message",
        "id": first["id"],
        "status": "completed",
        "role": "user",
        "content": [{"type": "input_text", "text": "We launch on Tuesday."}],
    }
    assert summary == {"type": "compaction", "id": summary["id"], "encrypted_content": summary["encrypted_content"]}
    assert compacted["usage"].keys() == {
        *("input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details", "total_tokens")
    }
    continued = [*compacted["output"], message("user", "history")]
    response = await alice.respond(continued, model="mirror", store=False, tools=[])
    assert json.loads(text_of(response)) == [
        ["UserMessage", "We launch on Tuesday."],
        ["SystemMessage", summary["encrypted_content"]],
        ["UserMessage", "history"],
    ]
    refused = await alice.refused("POST", "/responses/compact", {"input": said})
    assert refused == (400, "missing_required_parameter", "model")
