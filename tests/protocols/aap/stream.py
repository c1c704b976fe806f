"""AAP streams, read as strictly as the protocol writes them: bytes to frames, and frames against the grammar.

Nothing here is lenient: a byte that the framing does not explain, or an event where the grammar has no place for it,
fails the test that read the stream.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

Json = Any
Mode = Literal["delta", "message", "none"]
MODES: tuple[Mode, ...] = ("delta", "message", "none")
STREAMS: tuple[Mode, ...] = ("delta", "message")

FRAME = re.compile(rb"(?:id: ([^\s]+)\n)?event: ([a-z_]+)\ndata: (\{[^\r\n]*\})\n\n")
COMMENT = re.compile(rb":[^\r\n]*\n\n?")

FIELDS: dict[str, set[str]] = {
    "turn_start": set(),
    "text_delta": {"delta"},
    "thinking_delta": {"delta"},
    "text": {"text"},
    "thinking": {"thinking"},
    "tool_call": {"toolCallId", "name", "input"},
    "tool_result": {"toolCallId", "content"},
    "message_cut": {"content"},
    "turn_stop": {"stopReason"},
}
STOP_REASONS = {"end_turn", "tool_use", "max_tokens", "refusal", "error"}
IN_MODE: dict[str, set[str]] = {
    "delta": {"text_delta", "thinking_delta"},
    "message": {"text", "thinking"},
}


class Frame(NamedTuple):
    """One event as it was framed. `raw` is its bytes, blank line included."""

    id: str | None
    event: str
    data: dict[str, Json]
    raw: bytes

    def without_extensions(self) -> tuple[str, dict[str, Json]]:
        """The event as a client sees it that knows nothing of our additions."""
        return self.event, {name: value for name, value in self.data.items() if name != "_meta"}


class Call(NamedTuple):
    """A tool call as the client received it."""

    id: str
    name: str
    input: dict[str, Json]


def parse_frames(body: bytes) -> list[Frame]:
    """Cut a whole stream into frames. Every byte must belong to a frame or to a comment."""
    frames, position = [], 0
    while position < len(body):
        if comment := COMMENT.match(body, position):
            position = comment.end()
            continue
        found = FRAME.match(body, position)
        assert found is not None, f"no frame at byte {position}: {body[position : position + 120]!r}"
        position = found.end()
        event, data = found[2].decode(), json.loads(found[3])
        assert event in FIELDS, f"unknown event {event}"
        assert set(data) - {"_meta"} == FIELDS[event], f"{event} has the fields {sorted(data)}"
        frames.append(Frame(found[1].decode() if found[1] else None, event, data, found[0]))
    return frames


def check_turn(frames: Sequence[Frame], mode: Mode, *, permitted: int = 0) -> None:
    """Hold one turn's stream against the grammar.

    Args:
        permitted: how many permission messages the request had; so many results come before anything else.

    Source: aap §5.2.
    """
    events = [frame.event for frame in frames]
    assert events[:1] == ["turn_start"], events
    assert events[-1:] == ["turn_stop"], events
    inner = frames[1:-1]
    stop = frames[-1].data["stopReason"]
    assert stop in STOP_REASONS, stop
    assert [frame.event for frame in inner[:permitted]] == ["tool_result"] * permitted, events
    seen: set[str] = {frame.data["toolCallId"] for frame in inner[:permitted]}
    assert len(seen) == permitted, "a permission was settled twice"
    open_calls: list[str] = []  # of the step, without a result so far
    had_result = had_call = text_after_call = False
    for frame in inner[permitted:]:
        if frame.event == "message_cut":  # our extension: the step is repeated
            assert not had_call, "a message with calls was cut off"
            continue
        if frame.event == "tool_result":
            assert frame.data["toolCallId"] in open_calls, f"a result of no call of this step: {frame.data}"
            open_calls.remove(frame.data["toolCallId"])
            had_result = True
            continue
        assert frame.event == "tool_call" or frame.event in IN_MODE[mode], f"{frame.event} in mode {mode}"
        if had_result:  # the next step begins
            assert open_calls == [], f"a step began while {open_calls} had no result"
            had_result = had_call = text_after_call = False
        if frame.event == "tool_call":
            assert frame.data["toolCallId"] not in seen, "a call's id came twice"
            assert isinstance(frame.data["input"], dict)
            seen.add(frame.data["toolCallId"])
            open_calls.append(frame.data["toolCallId"])
            had_call = True
        else:
            text_after_call = text_after_call or had_call
            assert mode == "message" or frame.data["delta"], "an empty delta"
    if stop == "tool_use":
        assert open_calls, "the turn stopped for the client, and no call is open"
        assert not text_after_call, "text after the calls of a turn that stopped for the client"
    elif stop != "error":
        assert open_calls == [], f"the turn stopped with {stop} while {open_calls} had no result"


def check_numbers(frames: Iterable[Frame], *, start: int = 1) -> None:
    """The `id:` lines count the events of a turn."""
    numbers = [frame.id for frame in frames]
    assert numbers == [str(start + place) for place in range(len(numbers))], numbers


def normalize_frames(frames: Iterable[Frame]) -> list[tuple[str, dict[str, Json]]]:
    """The events without our additions, adjacent deltas of one kind joined: how text was cut says nothing."""
    events: list[tuple[str, dict[str, Json]]] = []
    for frame in frames:
        event, fields = frame.without_extensions()
        if event.endswith("_delta") and events and events[-1][0] == event:
            events[-1] = (event, {"delta": events[-1][1]["delta"] + fields["delta"]})
        else:
            events.append((event, fields))
    return events


def fold(frames: Iterable[Frame]) -> list[dict[str, Json]]:
    """The messages that a turn's events amount to, in the order of the events.

    Two steps with no result between them look like one message, and two text blocks in a row, sent as deltas, like one.
    """
    messages: list[dict[str, Json]] = []
    for frame in frames:
        if frame.event in ("turn_start", "message_cut", "turn_stop"):
            continue
        if frame.event == "tool_result":
            messages.append({"role": "tool", **dict(frame.without_extensions()[1])})
            continue
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": []})
        messages[-1]["content"].append(block_of(frame))
    return merged(messages)


def block_of(frame: Frame) -> dict[str, Json]:
    """The content block that an event stands for or adds to."""
    match frame.event:
        case "text_delta":
            return {"type": "text", "text": frame.data["delta"]}
        case "thinking_delta":
            return {"type": "thinking", "thinking": frame.data["delta"]}
        case "tool_call":
            return {"type": "tool_use", **frame.without_extensions()[1]}
        case kind:
            return {"type": kind, **frame.without_extensions()[1]}


def merged(messages: Iterable[dict[str, Json]]) -> list[dict[str, Json]]:
    """Messages in the form that all modes have in common: adjacent parts of one message are joined."""
    result: list[dict[str, Json]] = []
    for message in messages:
        kept = {name: value for name, value in message.items() if name != "_meta"}
        if kept["role"] != "assistant":
            result.append(kept)
            continue
        if not result or result[-1]["role"] != "assistant":
            result.append({"role": "assistant", "content": []})
        content: list[dict[str, Json]] = result[-1]["content"]
        for block in blocks_of(kept["content"]):
            kind = block["type"]
            if kind in ("text", "thinking") and content and content[-1]["type"] == kind:
                content[-1] = {"type": kind, kind: content[-1][kind] + block[kind]}
            else:
                content.append(block)
    return result


def blocks_of(content: str | list[dict[str, Json]]) -> list[dict[str, Json]]:
    """A message's content as blocks."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
