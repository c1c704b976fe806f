"""Encoding requests to OpenAI-compatible servers."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.content import Data, File, Image, Message, SystemMessage, Text, Thinking
from dragoman.core.ids import MessageId
from dragoman.models.openai_wire import Dialect, request_body, wire_messages
from dragoman.ports.models import ModelRequest
from tests.models.request_builders import ADD, a_request, assistant, call, result, user

PLAIN = Dialect()
PICTURE = "data:image/png;base64,iVBORw0KGgo="


def system(text: str) -> SystemMessage:
    return SystemMessage(id=MessageId("s"), content=text)


def sent(request: ModelRequest, dialect: Dialect = PLAIN) -> Any:
    return json.loads(request_body("gpt-x", request, dialect))


def test_a_choice_of_tools_is_sent_only_with_tools() -> None:
    parameters = {"tool_choice": "required", "parallel_tool_calls": False}
    assert sent(a_request("Hi", tools=[ADD], parameters=parameters))["tool_choice"] == "required"
    assert not sent(a_request("Hi", parameters=parameters)).keys() & parameters.keys()


def test_a_strict_tool_is_sent_as_such() -> None:
    tools = [msgspec.structs.replace(ADD, strict=strict) for strict in (None, True, False)]
    functions = [each["function"] for each in sent(a_request("Hi", tools=tools))["tools"]]
    assert [each.get("strict") for each in functions] == [None, True, False]


def test_a_request_is_complete() -> None:
    request = a_request(
        "Add 1 and 2.",
        assistant(Thinking("Hm."), Text("I add."), call("c1", a=1, b=2)),
        result("c1", "3"),
        instructions="Be brief.",
        tools=[ADD],
        max_tokens=9,
        parameters={"temperature": 0.5},
    )
    assert sent(request) == {
        "model": "gpt-x",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Add 1 and 2."},
            {
                "role": "assistant",
                "content": "I add.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "3"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "add", "description": "Add two integers.", "parameters": ADD.parameters},
            }
        ],
        "max_tokens": 9,
        "temperature": 0.5,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_dialect_names_the_token_limit_and_provides_defaults() -> None:
    dialect = Dialect(limit_name="max_completion_tokens", defaults={"temperature": 0, "max_tokens": 100, "seed": 1})
    body = sent(a_request("Hi", max_tokens=5, parameters={"temperature": 1}), dialect)
    assert {name: body.get(name) for name in ("max_completion_tokens", "max_tokens", "temperature", "seed")} == {
        "max_completion_tokens": 5,
        "max_tokens": None,
        "temperature": 1,
        "seed": 1,
    }


def test_parameters_cannot_disable_streaming_or_replace_the_conversation() -> None:
    body = sent(a_request("Hi", parameters={"stream": False, "messages": [], "model": "dearer"}))
    assert (body["stream"], body["model"], len(body["messages"])) == (True, "gpt-x", 1)


def test_the_schema_of_an_answer_is_sent_unless_there_are_tools() -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    body = sent(a_request("Hi", output_schema=schema))
    assert body["response_format"] == {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    assert "response_format" not in sent(a_request("Hi", output_schema=schema, tools=[ADD]))
    assert "response_format" in sent(a_request("Hi", output_schema=schema, tools=[ADD]), Dialect(tools=False))


def test_leading_system_messages_join_the_instructions_and_later_ones_remain() -> None:
    messages: list[Message] = [system("Seed."), user("Hi"), system("Note."), user("Ho")]
    assert wire_messages("Be brief.", messages, PLAIN) == [
        {"role": "system", "content": "Be brief.\n\nSeed."},
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": "Note."},
        {"role": "user", "content": "Ho"},
    ]


def test_a_dialects_instructions_are_used_only_if_there_are_no_others() -> None:
    dialect = Dialect(instructions="Default.")
    assert wire_messages("", [user("Hi")], dialect)[0] == {"role": "system", "content": "Default."}
    assert wire_messages("Mine.", [user("Hi")], dialect)[0] == {"role": "system", "content": "Mine."}


def test_user_blocks_become_parts() -> None:
    content = (Text("See:"), Image("https://example.org/a.png"), Image(PICTURE), Data({"n": 1}))
    assert wire_messages("", [user(content, name="ann")], PLAIN) == [
        {
            "role": "user",
            "name": "ann",
            "content": [
                {"type": "text", "text": "See:"},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                {"type": "image_url", "image_url": {"url": PICTURE}},
                {"type": "text", "text": '{"n":1}'},
            ],
        }
    ]


def test_only_text_blocks_become_a_string_and_invalid_names_are_not_sent() -> None:
    assert wire_messages("", [user((Text("a"), Text("b")), name="Ann B.")], PLAIN) == [
        {"role": "user", "content": "ab"}
    ]


def test_files_become_parts_if_the_server_supports_them() -> None:
    content = (
        File("data:application/pdf;base64,JVBERg==", media_type="application/pdf", name="a.pdf"),
        File("data:audio/wav;base64,UklGRg==", media="audio"),
    )
    assert wire_messages("", [user(content)], Dialect(files=True))[0]["content"] == [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    ]


def test_a_note_replaces_content_that_the_server_does_not_support() -> None:
    content = (
        Image(PICTURE),
        File("https://example.org/v.mp4", media="video", media_type="video/mp4", name="v.mp4"),
        File("data:application/pdf;base64,JVBERg==", media_type="application/pdf", name="a.pdf"),
    )
    assert wire_messages("", [user(content)], Dialect(images=False))[0]["content"] == [
        {"type": "text", "text": "[an image that you cannot see]"},
        {"type": "text", "text": "[video v.mp4 (video/mp4), at https://example.org/v.mp4: not shown]"},
        {"type": "text", "text": "[file a.pdf (application/pdf): not shown]"},
    ]


def test_images_of_results_follow_after_all_results_of_the_step() -> None:
    """`tool` messages accept only text, and nothing may come between the results of one step."""
    messages: list[Message] = [
        user("Look."),
        assistant(call("c1", "shot"), call("c2", "shot")),
        result("c1", (Text("Done."), Image(PICTURE)), name="shot"),
        result("c2", (Image("https://example.org/b.png"),), name="shot"),
        assistant("Nice."),
    ]
    assert wire_messages("", messages, PLAIN)[2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "Done."},
        {"role": "tool", "tool_call_id": "c2", "content": "[see the next message]"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "From the tool shot:"},
                {"type": "image_url", "image_url": {"url": PICTURE}},
                {"type": "text", "text": "From the tool shot:"},
                {"type": "image_url", "image_url": {"url": "https://example.org/b.png"}},
            ],
        },
        {"role": "assistant", "content": "Nice."},
    ]


def test_images_of_the_last_result_are_sent() -> None:
    messages: list[Message] = [user("Look."), assistant(call("c1")), result("c1", (Image(PICTURE),))]
    assert [message["role"] for message in wire_messages("", messages, PLAIN)] == ["user", "assistant", "tool", "user"]


def test_unpaired_calls_and_results_are_not_sent() -> None:
    messages: list[Message] = [
        result("lost", "1"),
        user("Hi"),
        assistant(Text("One."), call("c1"), call("c2")),
        result("c2", "2"),
        result("other", "3"),
        user("Go on."),
        assistant(call("c3")),
        user("Well?"),
    ]
    assert [
        (message["role"], message["content"], [each["id"] for each in message.get("tool_calls", ())])
        for message in wire_messages("", messages, PLAIN)
    ] == [
        ("user", "Hi", []),
        ("assistant", "One.", ["c2"]),
        ("tool", "2", []),
        ("user", "Go on.", []),
        ("user", "Well?", []),
    ]


def test_results_directly_follow_their_step_in_the_order_of_the_calls() -> None:
    messages: list[Message] = [
        assistant(call("c1"), call("c2")),
        result("c2", "2"),
        user("And?"),
        result("c1", "1"),
        result("c1", "x"),
    ]
    assert [message["content"] for message in wire_messages("", messages, PLAIN)] == [None, "1", "2", "And?"]


def test_of_two_calls_with_one_id_the_first_counts() -> None:
    messages: list[Message] = [assistant(call("c1", a=1), call("c1", a=2)), result("c1", "1")]
    wire = wire_messages("", messages, PLAIN)
    assert [each["function"]["arguments"] for each in wire[0]["tool_calls"]] == ['{"a":1}']
    assert len(wire) == 2


def test_an_id_that_is_too_long_is_replaced_in_call_and_result() -> None:
    wire = wire_messages("", [assistant(call("c" * 300)), result("c" * 300, "1")], PLAIN)
    assert wire[0]["tool_calls"][0]["id"] == wire[1]["tool_call_id"]
    assert len(wire[1]["tool_call_id"]) <= 40


def test_a_step_with_only_thinking_is_not_sent() -> None:
    assert wire_messages("", [user("Hi"), assistant(Thinking("Hm.")), user("Ho")], PLAIN) == [
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": "Ho"},
    ]


def test_a_lone_surrogate_can_be_sent() -> None:
    """The output of a tool may contain lone surrogates, which UTF-8 cannot encode."""
    body = sent(a_request("a\ud800b", assistant(call("c1", text="\udfff")), result("c1", "x\ud801")))
    assert [message["content"] for message in body["messages"]] == ["a?b", None, "x?"]


messages_in_any_order = st.lists(
    st.one_of(
        st.just(user("u")),
        st.just(system("s")),
        st.lists(st.sampled_from("abc").map(call), max_size=3).map(lambda calls: assistant(Text("t"), *calls)),
        st.lists(st.sampled_from("abc").map(call), max_size=3).map(lambda calls: assistant(*calls)),
        st.sampled_from("abcd").map(lambda call_id: result(call_id, "r")),
    ),
    max_size=12,
)


@given(messages_in_any_order)
def test_calls_and_results_are_paired_for_any_history(history: list[Message]) -> None:
    open_calls: list[str] = []
    for message in wire_messages("", history, PLAIN):
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_calls.pop(0)
        else:
            assert not open_calls
            open_calls = [each["id"] for each in message.get("tool_calls", ())]
            assert len(set(open_calls)) == len(open_calls)
    assert not open_calls
