"""Responses of other servers: what they leave out, and what Dragoman does not send."""

from typing import Any

import msgspec

from dragoman.client import (
    ClientCall,
    Ended,
    Image,
    Message,
    Notice,
    Permission,
    Restarted,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.client.codec import SessionConfig, SessionHandle, UserInput
from dragoman.client.events import Event, Problem, Usage
from dragoman.client.openai import OpenAiCodec, seed_items
from dragoman.client.openai_items import CANCELLED, pending_in, to_messages
from dragoman.client.sse import Frame

Json = Any
MESSAGE = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}
CALL = {"type": "function_call", "id": "f", "call_id": "c", "name": "look", "arguments": '{"at":1}'}
ENDED = {"id": "r", "object": "response", "status": "completed", "output": [MESSAGE, CALL]}


def read(*events: Json, handle: SessionHandle | None = None) -> list[Event]:
    """The client's events for a stream."""
    turn = OpenAiCodec().turn(handle or SessionHandle(id="s", agent="m"), UserInput(text="hi"), "once")
    frames = [Frame("", msgspec.json.encode(each), "") for each in events]
    return [event for frame in frames for event in turn.feed(frame)]


def test_deltas_without_indexes_and_a_whole_response_give_each_text_once() -> None:
    """Like llama.cpp, which names items by their ids alone."""
    found = read(
        {"type": "response.created", "response": {"id": "r", "status": "in_progress"}},
        {"type": "response.output_text.delta", "item_id": "m", "delta": "Hel"},
        {"type": "response.output_text.delta", "item_id": "m", "delta": "lo"},
        {"type": "response.output_text.done", "item_id": "m", "text": "Hello"},
        {"type": "response.something_new", "item_id": "m"},
        {"type": "response.completed", "response": {**ENDED, "usage": {"input_tokens": 3, "output_tokens": 2}}},
    )
    call = ClientCall(call_id="c", name="look", arguments={"at": 1})
    assert found == [
        Text(text="Hel"),
        Text(text="lo"),
        ToolCall(id="c", name="look", arguments={"at": 1}),
        Ended(reason="tool_use", run_id="r", usage=Usage(3, 2), pending=(call,)),
    ]


def test_a_response_that_is_not_streamed_gives_the_same_events() -> None:
    turn = OpenAiCodec().turn(SessionHandle(id="s", agent="m"), UserInput(text="hi"), "once")
    found = turn.feed_body(msgspec.json.encode(ENDED))
    assert [type(each) for each in found] == [Text, ToolCall, Ended]
    assert turn.is_over


def test_reasoning_that_is_streamed_in_one_form_is_not_repeated_in_another() -> None:
    item = {"type": "reasoning", "id": "t", "summary": [{"type": "summary_text", "text": "short"}]}
    assert read(
        {"type": "response.reasoning_text.delta", "item_id": "t", "content_index": 0, "delta": "Hm."},
        {"type": "response.output_item.done", "item": item},
    ) == [Thinking(text="Hm.")]
    assert read({"type": "response.output_item.done", "item": item}) == [Thinking(text="short")]


def test_tools_of_the_server_are_calls_notices_and_images() -> None:
    searched = {"type": "web_search_call", "id": "w", "status": "completed"}
    assert read(
        {"type": "response.output_item.done", "item": searched},
        {"type": "response.output_item.done", "item": {"type": "image_generation_call", "id": "i", "result": "aGk="}},
        {"type": "response.output_item.done", "item": {"type": "mcp_call", "id": "x", "name": "add", "output": "3"}},
    ) == [
        Notice(kind="web_search_call", content=searched),
        Image(url="data:image/png;base64,aGk="),
        ToolCall(id="x", name="add", arguments={}),
        ToolResult(call_id="x", name="add", text="3"),
    ]


def test_an_error_ends_the_turn_in_each_of_its_forms() -> None:
    problem = Problem("overloaded", "later")
    for event in (
        {"type": "error", "code": "overloaded", "message": "later"},
        {"type": "error", "error": {"code": "overloaded", "message": "later"}},
        {"error": {"code": "overloaded", "message": "later"}},
        {"type": "response.failed", "response": {"status": "failed", "error": msgspec.to_builtins(problem)}},
    ):
        (ended,) = read(event)
        assert isinstance(ended, Ended)
        assert (ended.reason, ended.problem) == ("error", problem)


def test_what_a_crash_cut_off_is_known_by_the_first_item_that_is_repeated() -> None:
    def said(index: int, text: str) -> Json:
        return {"type": "response.output_text.delta", "item_id": f"m{index}", "output_index": index, "delta": text}

    item = {"type": "message", "id": "m1", "status": "incomplete", "content": []}
    done = {"type": "response.output_item.done", "output_index": 1, "item": item}
    found = read(said(0, "First. "), said(1, "Once upon "), {**done, "repeated_from": 1})
    assert found[-1] == Restarted(text="Once upon ")
    assert read(said(0, "First. "), said(1, "Once upon "), done)[-1] == Text(text="Once upon ")


def test_a_server_without_conversations_is_sent_everything_again() -> None:
    handle = SessionHandle(id="s", agent="m")
    codec = OpenAiCodec()
    turn = codec.turn(handle, UserInput(text="hi"), "once")
    turn.feed_body(msgspec.json.encode(ENDED))
    body = msgspec.json.decode(codec.turn(handle, UserInput(text="never mind"), "twice").request.body or b"")
    assert (body["store"], "conversation" in body, "background" in body, "tools" in body) == (
        False,
        False,
        False,
        False,
    )
    assert [each["type"] for each in body["input"]] == [
        *("message", "message", "function_call", "function_call_output", "message")
    ]
    assert body["input"][3]["output"] == CANCELLED
    assert [each.role for each in to_messages(handle.messages)] == ["user", "assistant"]


def test_a_history_becomes_items_without_reasoning_and_without_what_a_crash_cut_off() -> None:
    history = (
        Message(role="user", blocks=(Text(text="look"), Image(url="https://x/y.png"))),
        Message(role="assistant", blocks=(Text(text="I lo"),), cut=True),
        Message(
            role="assistant",
            blocks=(Thinking(text="Hm"), Text(text="I look"), ToolCall(id="c", name="look", arguments={})),
        ),
        Message(role="tool", blocks=(ToolResult(call_id="c", name="look", text="a tree"),)),
    )
    items = seed_items(SessionConfig(agent="", history=history))
    assert [each["type"] for each in items] == ["message", "message", "function_call", "function_call_output"]
    found = to_messages(items)
    assert [(each.role, each.text) for each in found] == [
        ("user", "look"),
        ("assistant", "I look"),
        ("tool", "a tree"),
    ]


def test_what_waits_is_found_in_the_newest_items() -> None:
    asked: Json = {"type": "mcp_approval_request", "id": "mcpr", "name": "stamp", "arguments": "{}"}
    assert pending_in([CALL, asked]) == (
        ClientCall(call_id="c", name="look", arguments={"at": 1}),
        Permission(call_id="mcpr", name="stamp", arguments={}),
    )
    answers: list[Json] = [
        {"type": "function_call_output", "call_id": "c", "output": "a tree"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr", "approve": True},
    ]
    assert pending_in([CALL, asked, *answers]) == ()
