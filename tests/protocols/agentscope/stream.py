"""Checks what must hold for every stream of this protocol (agentscope-runtime §4, §6)."""

import json
from collections.abc import Sequence
from typing import Any

from tests.protocols.agentscope import official_client
from tests.protocols.agentscope.web_client import fold_events

Json = Any
Event = dict[str, Json]

TERMINAL = {"completed", "failed", "canceled"}
KEYS = {
    "response": {"id", "created_at", "completed_at", "output", "usage", "session_id", "model"},
    "message": {"id", "type", "role", "content", "code", "message", "usage", "metadata"},
    "text": {"text"},
    "image": {"image_url"},
    "data": {"data"},
    "audio": {"data", "format"},
    "video": {"video_url"},
    "file": {"file_url", "file_id", "filename", "file_data"},
}
COMMON = {"sequence_number", "object", "status", "error"}
OF_CONTENT = COMMON | {"type", "index", "delta", "msg_id"}


def parse(body: bytes) -> list[Event]:
    """The events of a stream. Each must be in a frame of exactly the form that both clients read (§6.1)."""
    events = []
    for frame in body.decode().removesuffix("\n\n").split("\n\n"):
        if frame in (": keep-alive", ": ping"):
            continue
        assert frame.splitlines() == frame.split("\n"), "clients split at every Unicode line separator"
        first, _, second = frame.partition("\n")
        if first.startswith("id: "):
            assert second.startswith("data: ")
            assert "\n" not in second
            event = json.loads(second.removeprefix("data: "))
            assert first == f"id: {event['sequence_number']}"
        else:
            event = json.loads(first.removeprefix("data: "))
            assert event["type"] == "heartbeat"
        events.append(event)
    return events


def check(events: Sequence[Event], *, first: int = 0, is_complete: bool = False) -> Event:
    """Check a response to its end; return its terminal event.

    Args:
        events: the events from number `first` on.
        first: the number of the first event. If it is not 0, the rules that need the beginning are not checked.
        is_complete: the request disabled deltas.
    """
    events = [event for event in events if event.get("type") != "heartbeat"]
    assert [event["sequence_number"] for event in events] == list(range(first, first + len(events)))
    for event in events:
        check_form(event)
        assert json.loads(json.dumps(official_client.read(event))) == event, (
            "the published client reads the event without loss"
        )
    end = events[-1]
    assert end["object"] == "response"
    check_end(end)
    if first == 0:
        assert [each["status"] for each in events if each["object"] == "response"] == [
            "created",
            "in_progress",
            end["status"],
        ]
        assert [each["object"] for each in events[:2]] == ["response", "response"]
        assert {
            (each["id"], each["session_id"], each["created_at"]) for each in events if each["object"] == "response"
        } == {(end["id"], end["session_id"], end["created_at"])}
        check_order(events)
        check_messages(events, is_complete=is_complete)
        terminals = [each for each in events if each["object"] == "message" and each["status"] in TERMINAL]
        order = [each["id"] for each in events if each["object"] == "message" and each["status"] == "created"]
        assert end["output"] == sorted(terminals, key=lambda each: order.index(each["id"]))
        if not is_complete:
            assert fold_events(events).messages == end["output"], "the web client shows the terminal output"
    return end


def check_form(event: Event) -> None:
    """Check that every declared field is present, possibly null, and no other (§3)."""
    kind = event["object"]
    if kind == "content":
        assert event.keys() == OF_CONTENT | KEYS[event["type"]]
    else:
        assert event.keys() == COMMON | KEYS[kind]


def check_end(end: Event) -> None:
    """Check that a terminal response is complete, however it ended (§6.4, §6.5)."""
    assert end["status"] in TERMINAL
    assert end["completed_at"] >= end["created_at"]
    assert (end["error"] is None) == (end["status"] != "failed")
    usage = end["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    for message in end["output"]:
        assert message["status"] in TERMINAL
        for index, content in enumerate(message["content"]):
            fields = (content["index"], content["msg_id"], content["delta"], content["sequence_number"])
            assert fields == (index, message["id"], False, None)
            assert content["status"] in TERMINAL


def check_order(events: Sequence[Event]) -> None:
    """Check that a message begins before its contents and ends after them, once, and outputs come after their calls."""
    state: dict[str, str] = {}
    called: set[str] = set()
    for event in events:
        if event["object"] == "message":
            name, status = event["id"], event["status"]
            expected = {None: {"created"}, "created": {"in_progress"}, "in_progress": TERMINAL}
            assert status in expected[state.get(name)], (name, state.get(name), status)
            state[name] = status
            if status in TERMINAL and event["type"].endswith("_call"):
                called.add(event["content"][0]["data"]["call_id"])
            elif status in TERMINAL and event["type"].endswith("_output"):
                assert event["content"][0]["data"]["call_id"] in called
        elif event["object"] == "content":
            assert state[event["msg_id"]] == "in_progress"
    assert set(state.values()) <= TERMINAL


def check_messages(events: Sequence[Event], *, is_complete: bool) -> None:
    """Check that contents of one message come one after the other, and each ends with its whole value (§4, §6.3)."""
    for message in (each for each in events if each["object"] == "message" and each["status"] in TERMINAL):
        contents = [each for each in events if each["object"] == "content" and each["msg_id"] == message["id"]]
        checked = []
        for index, final in enumerate(message["content"]):
            of_slot = [each for each in contents if each["index"] == index]
            checked += of_slot
            *before, last = of_slot
            assert {**last, "sequence_number": None} == final
            assert all(each["status"] == "in_progress" for each in before)
            if index and not is_complete:
                assert before[0]["delta"], "otherwise the web client replaces the previous content"
            if final["type"] == "text" and not is_complete:
                assert "".join(each["text"] for each in before) == final["text"]
                assert all(each["delta"] for each in before)
            if is_complete:
                assert before == []
        assert checked == contents
