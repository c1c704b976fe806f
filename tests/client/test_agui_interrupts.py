"""Interrupts of other AG-UI servers that only a custom event reports."""

from typing import Any

import msgspec
import pytest

from dragoman.client import Choice, Question
from dragoman.client.agui import AguiCodec
from dragoman.client.codec import SessionHandle, UserInput
from dragoman.client.sse import Frame

OF_CREWAI = {
    "id": "request-1",
    "reason": "crewai:human_feedback",
    "message": "Good?",
    "responseSchema": {"type": "string", "enum": ["good", "bad"]},
}


@pytest.mark.parametrize(
    ("value", "raw", "answer", "resumed"),
    [
        (OF_CREWAI, None, Choice.of("bad"), {"resume": [{"interruptId": "request-1", "payload": "bad"}]}),
        ("Why?", {"id": "i-1"}, Choice.of(custom="so"), {"command": {"resume": "so"}}),
        ('{"question": "Age?"}', None, Choice.of(custom="42"), {"command": {"resume": "42"}}),
        ('{"id": 7, "reason": "too much"}', None, Choice.of(custom="no"), {"command": {"resume": "no"}}),
        (
            "Age?",
            {"id": "i-1", "response_schema": {"type": "integer"}},
            Choice.of(custom="42"),
            {"command": {"resume": 42}},
        ),
    ],
)
def test_an_interrupt_in_an_event_is_answered_as_its_server_reads_it(
    value: object, raw: object, answer: Choice, resumed: dict[str, Any]
) -> None:
    codec, handle = AguiCodec("/agent"), SessionHandle(id="s", agent="")
    turn = codec.turn(handle, UserInput(text="go"), "first")
    for event in (
        {"type": "RUN_STARTED", "threadId": "s", "runId": "first"},
        {"type": "CUSTOM", "name": "on_interrupt", "value": value, "rawEvent": raw},
        {"type": "RUN_FINISHED", "threadId": "s", "runId": "first"},
    ):
        turn.feed(Frame("", msgspec.json.encode(event), ""))
    (question,) = turn.pending
    assert isinstance(question, Question)
    given = msgspec.structs.replace(answer, call_id=question.call_id)
    body = msgspec.json.decode(codec.turn(handle, (given,), "second").request.body or b"")
    entries = [{name: each[name] for name in ("interruptId", "payload")} for each in body.get("resume", [])]
    command = body["forwardedProps"].get("command")
    assert ({"resume": entries} if entries else {"command": command}) == resumed
