"""The client's codecs against the server's: what one encodes the other decodes, wherever the stream was cut."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client import (
    Allow,
    Choice,
    ClientCall,
    Deny,
    Ended,
    Image,
    Permission,
    Question,
    Reply,
    Restarted,
    Result,
    Text,
    Thinking,
)
from dragoman.client.aap import AapCodec
from dragoman.client.agentscope import AgentScopeCodec
from dragoman.client.agui import AguiCodec
from dragoman.client.blade import BladeCodec, answer_payload, message_payload
from dragoman.client.codec import SessionConfig, SessionHandle, Turn, UserInput
from dragoman.client.errors import InvalidResponse
from dragoman.client.events import Event, Option, QuestionItem, ToolCall, ToolResult
from dragoman.client.openai import OpenAiCodec
from dragoman.client.socketio_packets import decode_packet
from dragoman.client.sse import Frame, FrameReader
from dragoman.core.content import Image as CoreImage
from dragoman.core.content import Text as CoreText
from dragoman.core.events import BlockClosed, CallOpened, CallSettled, LoggedEvent, RunStarted, RunStopped
from dragoman.core.ids import CallId
from dragoman.core.inputs import Decision
from dragoman.core.inputs import Result as CoreResult
from dragoman.core.inputs import UserInput as CoreUserInput
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.stream import Piece, Record
from dragoman.core.tools import ToolSpec
from dragoman.protocols.aap import translate as aap
from dragoman.protocols.aap import wire as aap_wire
from dragoman.protocols.agentscope import wire as agentscope_wire
from dragoman.protocols.agentscope.translate import ResponseEvents
from dragoman.protocols.agui.streams import RunEncoder
from dragoman.protocols.agui.translate import Translator
from dragoman.protocols.agui.wire import decode_run
from dragoman.protocols.blade.wire import chat as blade_wire
from dragoman.protocols.kit.decoding import convert_value
from dragoman.protocols.openai import inputs as openai_inputs
from dragoman.protocols.openai.requests import decode_request
from dragoman.protocols.openai.translate import ResponseEvents as OpenAiEvents
from tests.protocols.agentscope.test_translate import REASONS, RUN, SESSION, STEPS, records_of

Json = Any

# --- streams ----------------------------------------------------------------------------------------------------------


def aap_bytes(mode: Any) -> Callable[[Sequence[Record], Turn], bytes]:
    def encode(records: Sequence[Record], turn: Turn) -> bytes:
        skip = int(turn.request.headers.get("Last-Event-ID", "0"))
        return b"".join(map(aap.TurnFrames(RUN, mode, skip=skip).feed, records))

    return encode


def agui_bytes(records: Sequence[Record], turn: Turn) -> bytes:
    """The server answers a repeated request from the start."""
    return b"".join(map(RunEncoder(Translator(RUN, thread_id=SESSION), "1.0").feed, records))


def agentscope_bytes(records: Sequence[Record], turn: Turn) -> bytes:
    _, _, after = turn.request.path.partition("?after=")
    return b"".join(map(ResponseEvents(RUN, SESSION, "scribe", skip=int(after) + 1 if after else 0).feed, records))


IN_BACKGROUND = RunStarted(run_id=RUN, protocol="openai", metadata=RunMetadata(protocol={"background": True}))


def openai_bytes(records: Sequence[Record], turn: Turn) -> bytes:
    first, *others = records
    started = msgspec.structs.replace(first, event=IN_BACKGROUND)
    _, _, after = turn.request.path.partition("&starting_after=")
    return b"".join(map(OpenAiEvents(RUN, SESSION, "a", skip=int(after) + 1 if after else 0).feed, (started, *others)))


HANDLE = SessionHandle(id=SESSION, agent="a")
SERVERS: dict[str, tuple[Any, Callable[[Sequence[Record], Turn], bytes]]] = {
    "aap delta": (AapCodec(), aap_bytes("delta")),
    "aap message": (AapCodec(), aap_bytes("message")),
    "ag-ui": (AguiCodec(), agui_bytes),
    "agentscope": (AgentScopeCodec(), agentscope_bytes),
    "openai": (OpenAiCodec(), openai_bytes),
}


def joined(events: Iterable[Event]) -> list[Event]:
    """Join adjacent text events: where they were split does not matter."""
    merged: list[Event] = []
    for event in events:
        last = merged[-1] if merged else None
        if isinstance(event, Text | Thinking) and type(event) is type(last):
            assert isinstance(last, Text | Thinking)
            merged[-1] = type(event)(text=last.text + event.text)
        else:
            merged.append(event)
    return merged


def expected_events(records: Sequence[Record], *, images: bool) -> list[Event]:
    """The client's events for a run's records, without `Ended`."""
    events: list[Event] = []
    for record in records:
        match record:
            case Piece(kind="text", text=text):
                events.append(Text(text=text))
            case Piece(text=text):
                events.append(Thinking(text=text))
            case LoggedEvent(event=BlockClosed(block=CoreImage(url=url))) if images:
                events.append(Image(url=url))
            case LoggedEvent(event=CallOpened(call=call)):
                events.append(ToolCall(id=call.call_id, name=call.name, arguments=call.input))
            case LoggedEvent(event=CallSettled(result=result)):
                assert isinstance(result.content, str)
                events.append(ToolResult(call_id=result.call_id, name="add", text=result.content))
    return joined(events)


def with_call_numbers(events: Sequence[Event]) -> list[Event]:
    """Number the calls instead of their ids, which OpenAI's API derives from the log."""
    ids = [each.id for each in events if isinstance(each, ToolCall)]
    return [
        msgspec.structs.replace(each, id=str(ids.index(each.id)))
        if isinstance(each, ToolCall)
        else msgspec.structs.replace(each, call_id=str(ids.index(each.call_id)))
        if isinstance(each, ToolResult)
        else each
        for each in events
    ]


def with_unique_positions(records: Iterable[Record]) -> list[Record]:
    """Give every piece a position of its own, as in the log."""
    positioned: list[Record] = []
    after = pieces = 0
    for record in records:
        if isinstance(record, Piece):
            pieces += 1
            positioned.append(msgspec.structs.replace(record, after=after, place=pieces))
        else:
            after, pieces = record.seq, 0
            positioned.append(record)
    return positioned


@pytest.mark.parametrize("server", SERVERS)
@given(steps=STEPS, reason=REASONS, data=st.data())
def test_a_run_is_decoded_as_it_was_encoded_wherever_its_stream_was_cut(
    server: str, steps: Any, reason: str, data: st.DataObject
) -> None:
    codec, encode = SERVERS[server]
    records = with_unique_positions(records_of(steps, reason))
    turn: Turn = codec.turn(msgspec.structs.replace(HANDLE, messages=[], tool_names={}), UserInput(text="go"), "once")
    events: list[Event] = []
    for _ in range(data.draw(st.integers(0, 3))):
        if not turn.is_over:
            events += read(turn, encode(records, turn), data)
    if not turn.is_over:
        assert turn.can_resume
        events += read(turn, encode(records, turn), None)
    assert turn.is_over
    *before, end = events
    answer, before = Reply(events=tuple(events)).text, [each for each in before if not isinstance(each, Restarted)]
    interrupted = ("cut", "interrupted") if server == "ag-ui" else ("cut",)
    assert answer == "".join(
        text
        for blocks, _, status in steps
        if status not in interrupted
        for kind, texts in blocks
        if kind == "text"
        for text in texts
    )
    expected = expected_events(records, images=not server.startswith("aap"))
    assert with_call_numbers(joined(before)) == with_call_numbers(expected)
    stop = next(each.event for each in records if isinstance(each, LoggedEvent) and isinstance(each.event, RunStopped))
    assert isinstance(end, Ended)
    # Nothing is pending here. AAP expresses "cancelled" by an error code; the Agent API has "length" for messages only.
    not_expressible = [("agentscope", "max_tokens"), ("aap", "cancelled"), (server.split()[0], "tool_use")]
    assert end.reason == stop.reason or (server.split()[0], reason) in not_expressible


def test_a_whole_answer_over_aap_tells_what_was_cut_off() -> None:
    said = aap_wire.AssistantMessage((aap_wire.TextBlock("Once "),), aap_wire.MessageMeta(interrupted=True))
    again = aap_wire.AssistantMessage((aap_wire.TextBlock("Once upon a time"),))
    turn = AapCodec().turn(msgspec.structs.replace(HANDLE), UserInput(text="go"), "once")
    response = aap_wire.TurnResponse(stop_reason="end_turn", messages=(said, again))
    events = turn.feed_body(msgspec.json.encode(response))
    assert list(events[:3]) == [Text(text="Once "), Restarted(text="Once "), Text(text="Once upon a time")]


def read(turn: Turn, body: bytes, data: st.DataObject | None) -> list[Event]:
    """Decode a stream in chunks of any size, cut at a random position if `data` is given."""
    end = len(body) if data is None else data.draw(st.integers(0, len(body)))
    middle = end if data is None else data.draw(st.integers(0, end))
    reader, events = FrameReader(), list[Event]()
    for chunk in (body[:middle], body[middle:end]):
        for frame in reader.feed(chunk) if chunk else ():
            events += turn.feed(frame)
    return events


@given(st.lists(st.tuples(st.sampled_from(["", "a", "7"]), st.text(max_size=5), st.sampled_from(["\n", "\r\n", "\r"]))))
def test_frames_are_split_the_same_whatever_the_line_endings_and_chunks(frames: Any) -> None:
    body, expected = "", []
    for name, text, end in frames:
        lines = text.replace("\r", "").split("\n")
        body += (f"id: {name}{end}" if name else "") + "".join(f"data: {each}{end}" for each in lines) + end
        expected.append(Frame("", "\n".join(lines).encode(), name))
    reader = FrameReader()
    assert [frame for byte in body.encode() for frame in reader.feed(bytes([byte]))] == expected


# --- requests ---------------------------------------------------------------------------------------------------------

PENDING = (
    ClientCall(call_id="c1", name="paint", arguments={}),
    Permission(call_id="c2", name="stamp", arguments={}),
    Permission(call_id="c3", name="stamp", arguments={}),
    Question(call_id="c4", questions=(QuestionItem(question="?", options=(Option("a"), Option("b"))),)),
)
ANSWERS = (
    Result(call_id="c1", text="red"),
    Allow(call_id="c2"),
    Deny(call_id="c3", reason="no"),
    Choice(call_id="c4", selections={0: ("b",)}, custom={1: "own"}),
)
CHOSEN = {"selections": {"0": ["b"]}, "custom": {"1": "own"}}
IMAGE = "data:image/png;base64,aGk="


def handle_with_pending_calls() -> SessionHandle:
    return SessionHandle(
        id="0199f2a0-0000-7000-8000-000000000001",
        agent="a",
        pending=PENDING,
        tools=(ToolSpec(name="paint", description="Paint it", parameters={"type": "object"}),),
    )


def test_the_aap_server_decodes_the_clients_messages_and_answers() -> None:
    codec = AapCodec()
    decoded = aap_wire.decode_turn(
        codec.turn(handle_with_pending_calls(), UserInput(text="look", images=(IMAGE,)), "once").request.body or b""
    )
    [message] = aap.submit_from(decoded, "a").messages
    assert message == CoreUserInput(content=(CoreText("look"), CoreImage(IMAGE)))
    turn = codec.turn(handle_with_pending_calls(), ANSWERS, "once")
    assert turn.request.headers["Idempotency-Key"] == "once"
    answers = aap.submit_from(aap_wire.decode_turn(turn.request.body or b""), "a").answers
    *others, choice = answers
    assert others == [
        CoreResult(call_id=CallId("c1"), content="red"),
        Decision(call_id=CallId("c2"), granted=True),
        Decision(call_id=CallId("c3"), granted=False, reason="no"),
    ]
    assert isinstance(choice, CoreResult)
    assert isinstance(choice.content, str)
    assert msgspec.json.decode(choice.content) == CHOSEN


def test_the_ag_ui_server_decodes_the_clients_messages_and_answers() -> None:
    codec = AguiCodec()
    decoded, dropped = decode_run(
        codec.turn(handle_with_pending_calls(), UserInput(text="look", images=(IMAGE,)), "once").request.body or b""
    )
    assert (decoded.run_id, decoded.protocol_version, dropped) == ("once", "1.0", ())
    assert [(each.name, each.description) for each in decoded.tools] == [("paint", "Paint it")]
    assert list(msgspec.to_builtins(decoded.messages[0].content)) == [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
    ]
    assert [(each.interrupt_id, each.status) for each in decoded.resume] == [
        ("c2", "cancelled"),
        ("c3", "cancelled"),
        ("c4", "cancelled"),
    ]
    answers = decode_run(codec.turn(handle_with_pending_calls(), ANSWERS, "once").request.body or b"").run
    [result] = msgspec.to_builtins(answers.messages)
    assert (result["role"], result["toolCallId"], result["content"]) == ("tool", "c1", "red")
    assert [(each.interrupt_id, each.status, each.payload) for each in answers.resume] == [
        ("c2", "resolved", {"approved": True}),
        ("c3", "resolved", {"approved": False, "reason": "no"}),
        ("c4", "resolved", CHOSEN),
    ]


def test_names_are_quoted_as_one_path_segment_each_over_ag_ui() -> None:
    codec, handle = AguiCodec(), SessionHandle(id="a/b?c", agent="my agent#1")
    requests = [
        codec.stop(handle).request,
        codec.resume(handle).request,
        codec.turn(handle, UserInput(text="go"), "once").request,
    ]
    assert [each.path for each in requests] == [
        "/ag-ui/my%20agent%231/stop/a%2Fb%3Fc",
        "/ag-ui/my%20agent%231/connect",
        "/ag-ui/my%20agent%231",
    ]


def test_the_agent_api_server_decodes_the_clients_messages_and_answers() -> None:
    codec = AgentScopeCodec()
    handle = handle_with_pending_calls()
    decoded = agentscope_wire.decode_request(
        codec.turn(handle, UserInput(text="look", images=(IMAGE,)), "once").request.body or b""
    )
    request = decoded.request
    assert (request.client_response_id, request.session_id, request.model) == ("resp_once", handle.id, "a")
    assert [(each.name, each.description) for each in decoded.tools.values()] == [("paint", "Paint it")]
    assert request.input[0].content == (agentscope_wire.TextIn(text="look"), agentscope_wire.ImageIn(image_url=IMAGE))
    answers = agentscope_wire.decode_request(codec.turn(handle, ANSWERS, "once").request.body or b"").request.input
    items = [(each.type, msgspec.to_builtins(each.content)[0]["data"]) for each in answers]
    *others, (kind, choice) = items
    assert others == [
        ("function_call_output", {"call_id": "c1", "output": "red"}),
        ("mcp_approval_response", {"approval_request_id": "c2", "approve": True}),
        ("mcp_approval_response", {"approval_request_id": "c3", "approve": False, "reason": "no"}),
    ]
    assert (kind, msgspec.json.decode(choice["output"])) == ("function_call_output", CHOSEN)


def test_the_openai_server_decodes_the_clients_messages_and_answers() -> None:
    codec, handle = OpenAiCodec(), handle_with_pending_calls()
    codec.agents().decode(b'{"data":[{"id":"a","owned_by":"dragoman"}]}')
    handle.server_keeps_history = True
    parsed = decode_request(codec.turn(handle, UserInput(text="look", images=(IMAGE,)), "once").request.body or b"")
    assert (parsed.fields.model, parsed.fields.conversation) == ("a", "conv_0199f2a0000070008000000000000001")
    submit = openai_inputs.submit_from(parsed.fields, openai_inputs.new_input(parsed.items))
    assert [each.name for each in submit.client_tools or ()] == ["paint"]
    assert submit.messages == (CoreUserInput(content=(CoreText("look"), CoreImage(IMAGE))),)
    turn = codec.turn(handle, ANSWERS, "once")
    assert turn.request.headers["Idempotency-Key"] == "once"
    *others, choice = openai_inputs.new_input(decode_request(turn.request.body or b"").items).answers
    assert others == [
        CoreResult(call_id=CallId("c1"), content="red"),
        Decision(call_id=CallId("c2"), granted=True),
        Decision(call_id=CallId("c3"), granted=False, reason="no"),
    ]
    assert isinstance(choice, CoreResult)
    assert isinstance(choice.content, str)
    assert msgspec.json.decode(choice.content) == CHOSEN


def test_the_blade_server_decodes_the_clients_messages_and_answers() -> None:
    handle = handle_with_pending_calls()
    decoded = convert_value(message_payload(handle, UserInput(text="look", images=(IMAGE,))), blade_wire.ChatSend)
    assert decoded == blade_wire.ChatSend(
        session_id=f"sess_{handle.id}",
        message=(blade_wire.TextPart("look"), blade_wire.ImagePart(blade_wire.ImageUrl(IMAGE))),
    )
    answers = [convert_value(answer_payload(handle, each), blade_wire.ChatSend) for each in ANSWERS[1:]]
    assert [each.askuser_answer for each in answers] == [
        blade_wire.AskUserAnswer("c2", {"0": [0]}),
        blade_wire.AskUserAnswer("c3", {"0": [2]}, {"0": "no"}),
        blade_wire.AskUserAnswer("c4", {"0": [1]}, {"1": "own"}),
    ]


def test_a_new_session_without_an_id_is_an_invalid_response_over_blade() -> None:
    with pytest.raises(InvalidResponse, match="expected a new session"):
        BladeCodec().create(SessionConfig(agent="x")).decode(b'{"hello":"world"}')


@pytest.mark.parametrize("packet", ['42²["event"]', '43²["reply"]', "42", "43[]"])
def test_what_is_no_packet_of_socketio_is_an_invalid_response(packet: str) -> None:
    with pytest.raises(InvalidResponse, match=r"Socket\.IO"):
        decode_packet(packet)
