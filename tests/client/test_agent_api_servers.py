"""The Agent API of AgentScope Runtime, which reports failures in a frame that is no event."""

from typing import Any

import msgspec
import pytest

from dragoman.client import Ended, RequestRefused, Text
from dragoman.client.agentscope import AgentScopeCodec
from dragoman.client.codec import SessionHandle, UserInput
from dragoman.client.events import Event, Problem
from dragoman.client.sse import Frame

FAILURE = {"error": "cannot import name 'ToolUseBlock'"}
"""As agentscope-runtime 1.1.6 sends it when an agent raises an exception."""


def read(*events: Any) -> list[Event]:
    turn = AgentScopeCodec().turn(SessionHandle(id="s", agent=""), UserInput(text="hi"), "once")
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
