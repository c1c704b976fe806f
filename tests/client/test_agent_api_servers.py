"""The Agent API of AgentScope Runtime, which reports failures in a frame that is no event."""

from typing import Any

import msgspec
import pytest

from dragoman.client import ClientCall, Ended, RequestRefused, Text, ToolCall
from dragoman.client.agentscope import AgentScopeCodec
from dragoman.client.codec import SessionHandle, UserInput
from dragoman.client.events import Event, Problem
from dragoman.client.sse import Frame
from dragoman.core.tools import ToolSpec

FAILURE = {"error": "cannot import name 'ToolUseBlock'"}
"""As agentscope-runtime 1.1.6 sends it when an agent raises an exception."""


def read(*events: Any, handle: SessionHandle | None = None) -> list[Event]:
    turn = AgentScopeCodec().turn(handle or SessionHandle(id="s", agent=""), UserInput(text="hi"), "once")
    return [event for each in events for event in turn.feed(Frame("", msgspec.json.encode(each), ""))]


def test_a_failure_ends_the_response_with_what_was_said_before_it() -> None:
    found = read(
        {"sequence_number": 0, "object": "response", "status": "created", "id": "response_1"},
        {"sequence_number": 1, "object": "message", "status": "in_progress", "id": "m", "type": "message"},
        {
            "sequence_number": 2,
            "object": "content",
            "type": "text",
            "msg_id": "m",
            "index": 0,
            "delta": True,
            "text": "Let me ",
        },
        FAILURE,
    )
    problem = Problem("", "cannot import name 'ToolUseBlock'")
    assert found == [Text(text="Let me "), Ended(reason="error", run_id="response_1", problem=problem)]


def test_a_failure_before_the_response_is_a_refusal() -> None:
    with pytest.raises(RequestRefused, match="cannot import name"):
        read(FAILURE)


def data(call: str, **payload: str) -> Any:
    return {"object": "content", "status": "completed", "type": "data", "data": {"call_id": call, **payload}}


def test_parallel_calls_of_the_published_runtime_are_all_there() -> None:
    """Its messages hold several calls or, from LangGraph, none: these come before, in contents of no message."""
    rome, oslo = ({"name": "look", "arguments": f'{{"at":"{each}"}}'} for each in ("Rome", "Oslo"))
    for events in (
        (data("c1", **rome), data("c2", **oslo), {"object": "message", "status": "completed", "type": "plugin_call"}),
        (
            {
                "object": "message",
                "status": "completed",
                "type": "plugin_call",
                "content": [data("c1", **rome), data("c2", **oslo)],
            },
        ),
    ):
        assert read(*events) == [
            ToolCall(id="c1", name="look", arguments={"at": "Rome"}),
            ToolCall(id="c2", name="look", arguments={"at": "Oslo"}),
        ]


def test_a_call_of_a_client_tool_waits_whatever_the_runtime_calls_it() -> None:
    handle = SessionHandle(id="s", agent="", tools=(ToolSpec(name="paint", description="", parameters={}),))
    call = data("c", name="paint", arguments="{}")
    message = {"object": "message", "status": "completed", "type": "plugin_call", "content": [call]}
    ended = read(message, {"object": "response", "status": "completed", "id": "r"}, handle=handle)[-1]
    assert ended == Ended(reason="tool_use", run_id="r", pending=(ClientCall(call_id="c", name="paint", arguments={}),))
