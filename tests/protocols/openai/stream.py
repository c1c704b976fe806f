"""Parses the event streams of OpenAI's API, and checks in each what is true of all of them."""

import json
from typing import Any

Json = Any
Event = dict[str, Json]

ENDS = {"response.completed", "response.incomplete", "response.failed"}
DONE = "[DONE]"


def parse(body: bytes) -> list[Event]:
    """Parse whole frames: named events without ids, whose names are their types; `[DONE]` is the last."""
    events: list[Event] = []
    frames = body.decode().split("\n\n")
    assert frames.pop() == "", "the last frame is cut off"
    for frame in frames:
        if frame.startswith(":"):
            continue
        lines = frame.split("\n")
        if lines == [f"data: {DONE}"]:
            events.append({"type": DONE})
            continue
        name, data = lines
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def check(events: list[Event], *, first: int = 0, is_whole: bool = True) -> Json:
    """Check a stream that ended, from its event number `first` on; return the terminal response."""
    assert events[-1] == {"type": DONE}
    events = events[:-1]
    assert [each["sequence_number"] for each in events] == list(range(first, first + len(events)))
    assert all(each.get("error") is None for each in events), "official clients raise on this member"
    assert [each["type"] for each in events if each["type"] in ENDS] == [events[-1]["type"]]
    response = events[-1]["response"]
    if not is_whole:
        return response
    assert [each["type"] for each in events[:2]] == ["response.created", "response.in_progress"]
    for each in events[:2]:
        assert (each["response"]["status"], each["response"]["output"]) == ("in_progress", [])
        assert each["response"].keys() == response.keys()
    added = [each for each in events if each["type"] == "response.output_item.added"]
    assert [each["output_index"] for each in added] == list(range(len(added)))
    done = {each["output_index"]: each["item"] for each in events if each["type"] == "response.output_item.done"}
    assert [_in_output(done[index], response["status"]) for index in range(len(added))] == response["output"]
    for each in added:
        item = done[each["output_index"]]
        assert (each["item"]["id"], each["item"].get("call_id")) == (item["id"], item.get("call_id"))
        assert each["item"].keys() == item.keys()
        _check_deltas([event for event in events if event.get("item_id") == item["id"]], item)
    return response


def _in_output(item: Json, status: str) -> Json:
    """An item as the response shows it: without its text if a crash cut it off, because a later item repeats it."""
    parts = {"message": "content", "reasoning": "summary"}.get(item["type"])
    is_cut = parts is not None and (item["status"], status) == ("incomplete", "completed")
    return {**item, parts: []} if is_cut else item


def _check_deltas(events: list[Event], item: Json) -> None:
    """The deltas of an item add up to its content when it is done."""
    parts: dict[int, str] = {}
    arguments = ""
    for event in events:
        match event["type"].removeprefix("response."):
            case "output_text.delta" | "reasoning_summary_text.delta":
                index = _part_index(event)
                parts[index] = parts.get(index, "") + event["delta"]
            case "output_text.done" | "reasoning_summary_text.done":
                assert parts[_part_index(event)] == event["text"]
            case "function_call_arguments.delta" | "mcp_call_arguments.delta":
                arguments += event["delta"]
    assert list(parts.values()) == [part["text"] for part in item.get("content", item.get("summary", ()))]
    if item["type"] in ("function_call", "mcp_call"):
        assert arguments == item["arguments"]


def _part_index(event: Event) -> int:
    index: int = event["content_index"] if "content_index" in event else event["summary_index"]
    return index


def text_of(response: Json) -> str:
    """What the agent said."""
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])
