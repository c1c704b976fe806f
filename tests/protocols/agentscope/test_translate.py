"""The translator of runs, on hand-records records that only a crash or an unusual agent would cause."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.content import Call, Image, Text, Thinking, ToolMessage, Usage
from dragoman.core.events import (
    BlockClosed,
    CallOpened,
    CallParked,
    CallSettled,
    Event,
    LoggedEvent,
    MessageClosed,
    MessageOpened,
    RunResumed,
    RunStarted,
    RunStopped,
)
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, RunId, SessionId
from dragoman.core.refusals import SessionNotFound
from dragoman.core.stream import Piece, Record
from dragoman.protocols.agentscope import wire
from dragoman.protocols.agentscope.errors import RUN_ERROR_CODES
from dragoman.protocols.agentscope.translate import ResponseEvents
from dragoman.protocols.kit.errors import InvalidBody, InvalidJson
from tests.protocols.agentscope import stream
from tests.requirements import requirement

Json = Any

AT = datetime(2026, 11, 21, tzinfo=UTC)
RUN, SESSION = RunId("r"), SessionId("s")
STARTED = RunStarted(run_id=RUN, protocol="aap")


def logged(*events: Event | Piece) -> list[Record]:
    """The records of a run with these events."""
    return [
        event if isinstance(event, Piece) else LoggedEvent(seq, AT, RUN, event)
        for seq, event in enumerate((STARTED, *events), start=1)
    ]


def piece(message: str, index: int, text: str, kind: Any = "text", loop: LoopId = ROOT) -> Piece:
    return Piece(1, 1, MessageId(message), index, kind, text, loop)


def closed(message: str, index: int, block: Text | Thinking | Image) -> BlockClosed:
    return BlockClosed(message_id=MessageId(message), index=index, block=block)


def ended(message: str, status: Any = "completed") -> MessageClosed:
    return MessageClosed(message_id=MessageId(message), status=status)


def called(call_id: str, kind: Any = "inline", **more: Json) -> CallOpened:
    call = Call(CallId(call_id), "stamp", {"text": "x"})
    return CallOpened(message_id=MessageId("m"), index=0, call=call, kind=kind, **more)


def settled(call_id: str, content: Any = "ok") -> CallSettled:
    result = ToolMessage(id=MessageId(f"of-{call_id}"), call_id=CallId(call_id), name="stamp", content=content)
    return CallSettled(outcome="done", result=result)


def stopped(reason: Any = "end_turn", code: str | None = None, message: str | None = None) -> RunStopped:
    return RunStopped(run_id=RUN, reason=reason, code=code, message=message, usage=Usage())


def translated_events(records: list[Record], **how: Any) -> list[stream.Event]:
    """The events of records, checked like every stream."""
    events = ResponseEvents(RUN, SESSION, "scribe", **how)
    found = stream.parse(b"".join(map(events.feed, records)))
    stream.check(found)
    return found


# --- crashes ----------------------------------------------------------------------------------------------------------


@requirement("agentscope:durable:kill", "agentscope:status:message")
def test_a_message_that_a_crash_cut_off_ends_as_failed_with_what_was_sent() -> None:
    events = translated_events(
        logged(
            MessageOpened(message_id=MessageId("a")),
            piece("a", 0, "half a "),
            closed("a", 0, Text("half a ")),
            ended("a", "cut"),
            RunResumed(run_id=RUN, attempt=2),
            MessageOpened(message_id=MessageId("b")),
            piece("b", 0, "half a loaf"),
            closed("b", 0, Text("half a loaf")),
            ended("b"),
            stopped(),
        )
    )
    cut, whole = events[-1]["output"]
    assert (cut["status"], cut["content"][0]["status"], cut["metadata"]) == ("failed", "failed", {"interrupted": True})
    assert (cut["code"], cut["message"]) == ("INTERRUPTED", "The server restarted")
    assert cut["error"] == {"code": "INTERRUPTED", "message": "The server restarted"}
    assert (whole["status"], whole["metadata"], events[-1]["status"]) == ("completed", None, "completed")


@requirement("agentscope:errors:run-codes")
def test_a_run_that_its_agent_cannot_resume_has_failed() -> None:
    end = translated_events(logged(stopped("interrupted", "interrupted", "The server restarted while it answered")))[-1]
    assert (end["status"], end["output"]) == ("failed", [])
    assert end["error"] == {"code": "INTERRUPTED", "message": "The server restarted while it answered"}


@requirement("agentscope:approval:request")
def test_a_call_that_a_crash_parked_asks_for_approval_again() -> None:
    events = translated_events(logged(called("c"), ended("m"), CallParked(call_id=CallId("c")), stopped("tool_use")))
    called_message, request = events[-1]["output"]
    assert (called_message["type"], request["type"]) == ("plugin_call", "mcp_approval_request")
    assert request["content"][0]["data"] == {
        "id": "c",
        "name": "stamp",
        "arguments": '{"text":"x"}',
        "server_label": "agent",
        "repeat": True,
        "message": "The server restarted while stamp ran, so it may have run already. Run it again?",
    }


@requirement("agentscope:errors:run-codes")
@pytest.mark.parametrize(
    ("code", "expected"), [*RUN_ERROR_CODES.items(), ("TEAPOT", "TEAPOT"), (None, "AGENT_UNKNOWN_ERROR")]
)
def test_the_core_s_error_codes_are_mapped_to_the_package_s(code: str | None, expected: str) -> None:
    reason = "max_steps" if code == "max_steps" else "error"
    error = translated_events(logged(stopped(reason, code, "why")))[-1]["error"]
    prefix = "Unknown agent error: " if expected == "AGENT_UNKNOWN_ERROR" else ""
    assert error == {"code": expected, "message": f"{prefix}why"}


# --- calls ------------------------------------------------------------------------------------------------------------


@requirement("agentscope:approval:granted", "agentscope:types:mcp-call")
def test_the_result_of_an_earlier_call_follows_the_call() -> None:
    earlier = {CallId("c"): called("c", "permission", server="weather")}
    events = translated_events(logged(settled("c"), stopped()), earlier=earlier)
    call, result = events[-1]["output"]
    assert call["content"][0]["data"] == {
        "call_id": "c",
        "name": "stamp",
        "arguments": '{"text":"x"}',
        "server_label": "weather",
    }
    assert (call["type"], result["type"]) == ("mcp_call", "mcp_call_output")


@requirement("agentscope:types:arguments")
@pytest.mark.parametrize(
    ("content", "output"),
    [
        ("words", "words"),
        ((Text("a"), Text("b")), "ab"),
        ((Text("a"), Image("https://x/y")), '[{"type":"text","text":"a"},{"type":"image","url":"https://x/y"}]'),
    ],
)
def test_an_output_is_text_or_json_if_it_has_other_blocks(content: Any, output: str) -> None:
    events = translated_events(logged(called("c"), ended("m"), settled("c", content), stopped()))
    assert events[-1]["output"][1]["content"][0]["data"]["output"] == output


@requirement("agentscope:types:sub-agent")
def test_the_text_of_a_sub_agent_is_not_sent() -> None:
    loop = LoopId("fork:c")
    inside = CallOpened(message_id=MessageId("n"), index=0, call=Call(CallId("d"), "add", {}), kind="inline", loop=loop)
    records = logged(
        called("c", "fork"), ended("m"), piece("n", 0, "secret", loop=loop), inside, settled("c"), stopped()
    )
    assert [each["type"] for each in translated_events(records)[-1]["output"]] == ["plugin_call", "plugin_call_output"]


@requirement("agentscope:stream:output")
def test_a_stream_whose_session_is_deleted_ends_well_formed() -> None:
    events = ResponseEvents(RUN, SESSION, "scribe")
    assert events.close(SessionNotFound()) == b""
    body = b"".join(map(events.feed, logged(piece("a", 0, "ha"), piece("a", 0, "lf"))))
    body += events.close(SessionNotFound())
    end = stream.check(stream.parse(body))
    assert (end["status"], end["error"]["code"]) == ("failed", "SESSION_DELETED")
    assert end["output"][0]["content"][0]["text"] == "half"
    assert events.close(RuntimeError()) == b""


@requirement("agentscope:replay:live")
def test_the_text_of_another_run_is_not_sent_while_this_one_is_queued() -> None:
    other = RunStarted(run_id=RunId("other"), protocol="aap")
    before: list[Record] = [LoggedEvent(1, AT, RunId("other"), other), piece("x", 0, "not ours")]
    events = ResponseEvents(RUN, SESSION, "scribe")
    assert b"".join(map(events.feed, before)) == b""
    records = logged(piece("a", 0, "ours"), closed("a", 0, Text("ours")), ended("a"), stopped())
    found = stream.parse(b"".join(map(events.feed, records)))
    assert stream.check(found)["output"][0]["content"][0]["text"] == "ours"


# --- any run and any bytes --------------------------------------------------------------------------------------------

BLOCKS = st.lists(
    st.tuples(st.sampled_from(["text", "thinking", "image"]), st.lists(st.text(min_size=1), min_size=1, max_size=3)),
    max_size=4,
)
STEPS = st.lists(
    st.tuples(BLOCKS, st.integers(0, 2), st.sampled_from(["completed", "interrupted", "failed", "cut"])), max_size=4
)

REASONS = st.sampled_from(["end_turn", "tool_use", "max_tokens", "cancelled", "error"])


def records_of(steps: Any, reason: str) -> list[Record]:
    """The records of a run with these steps."""
    records: list[Event | Piece] = []
    for number, (blocks, calls, status) in enumerate(steps):
        name = f"m{number}"
        records.append(MessageOpened(message_id=MessageId(name)))
        for index, (kind, texts) in enumerate(blocks):
            if kind == "image":
                records.append(closed(name, index, Image("https://x/y")))
                continue
            records += [piece(name, index, text, kind) for text in texts]
            records.append(closed(name, index, Text("".join(texts)) if kind == "text" else Thinking("".join(texts))))
        ids = [f"{name}-{place}" for place in range(calls if status == "completed" else 0)]
        for place, call_id in enumerate(ids):
            call = Call(CallId(call_id), "add", {})
            opened = CallOpened(message_id=MessageId(name), index=len(blocks) + place, call=call, kind="inline")
            records.append(opened)
        records.append(ended(name, status))
        records += [settled(call_id) for call_id in ids]
    return logged(*records, stopped(reason, "x", "x"))


@requirement("agentscope:stream:output", "agentscope:replay:any-cut", "agentscope:clients:web")
@given(steps=STEPS, reason=REASONS, data=st.data())
def test_every_run_is_well_formed_and_the_same_from_any_position(steps: Any, reason: str, data: st.DataObject) -> None:
    records = records_of(steps, reason)
    whole = b"".join(map(ResponseEvents(RUN, SESSION, "scribe").feed, records))
    events = stream.parse(whole)
    stream.check(events)
    skip = data.draw(st.integers(0, len(events)))
    rest = b"".join(map(ResponseEvents(RUN, SESSION, "scribe", skip=skip).feed, records))
    assert whole.endswith(rest)
    assert (stream.parse(rest) if rest else []) == events[skip:]


@requirement("agentscope:request:any-bytes")
@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(body: bytes) -> None:
    for decode in (wire.decode_request, wire.decode_task, wire.decode_stop):
        with suppress(InvalidJson, InvalidBody):
            assert decode(body) is not None
