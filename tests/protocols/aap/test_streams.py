"""AAP, section 5: the response modes, byte by byte, and their equality."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.settings import Settings
from tests.asgi_client import AsgiClient
from tests.protocols.aap.client import (
    AapClient,
    Message,
    Session,
    Turn,
    assistant_calls,
    assistant_text,
    call,
    calls,
    client_tool,
    content_of,
    deny,
    enabled_tools,
    grant,
    result,
    script,
    user,
)
from tests.protocols.aap.official_client import OfficialClient, normalize_history
from tests.protocols.aap.stream import MODES, STREAMS, Mode, check_turn, fold, merged, normalize_frames, parse_frames
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

IMAGE = "data:image/png;base64,iVBORw0KGgo="

# --- mode none --------------------------------------------------------------------------------------------------------


@requirement("aap:none:body", "aap:none:messages", "aap:calls:trusted-inline", "aap:turn:200")
async def test_mode_none_gives_all_messages_of_the_turn_in_order(aap_client: AapClient) -> None:
    session = await aap_client.create(server_tools=enabled_tools("add"))
    play = script({"think": "hm"}, {"say": "a"}, call("add", a=1, b=2), {"say": "b"}, {"step": True}, {"say": "c"})
    turn = await session.run(play)
    (add,) = turn.calls
    first = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm"}, *assistant_calls(add, text="a")["content"]],
    }
    assert (turn.stop, turn.messages) == (
        "end_turn",
        [first, result(add, "3"), assistant_text("b"), assistant_text("c")],
    )
    assert await session.history() == [user(play), *turn.messages]


@requirement(
    "aap:none:no-echo", "aap:answers:as-sent-no-echo", "aap:answers:granted-opens-none", "aap:waiting:all-answers"
)
async def test_mode_none_repeats_no_client_result_and_opens_with_what_was_granted(aap_client: AapClient) -> None:
    session = await aap_client.create(server_tools=enabled_tools("stamp", trust=False), tools=[client_tool("paint")])
    asked = await session.run(script(calls(("paint", {}), ("stamp", {"text": "x"})), {"say": "{results}"}))
    paint, stamp = asked.calls
    turn = await session.run([result(paint, "blue"), grant(stamp)])
    assert (turn.stop, turn.messages) == ("end_turn", [result(stamp, "stamped x"), assistant_text("blue, stamped x")])


# --- framing ----------------------------------------------------------------------------------------------------------


@requirement(
    "aap:sse:headers", "aap:sse:framing", "aap:sse:last-frame-closed", "aap:sse:name-not-in-data", "aap:ids:from-one"
)
@pytest.mark.parametrize("mode", STREAMS)
async def test_a_stream_is_framed_to_the_byte(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(server_tools=enabled_tools("lookup"))
    play = script({"say": 'ä\n\r\n\u2028"\\ data: x'}, call("lookup", q="événement: \n\nid: 7"), {"say": "."})
    turn = await session.run(play, mode)
    assert b"\r" not in turn.raw
    assert turn.raw.endswith(b"}\n\n")
    body = b""
    for number, frame in enumerate(turn.frames, 1):
        data = frame.raw.split(b"data: ", 1)[1].removesuffix(b"\n\n")
        assert json.loads(data) == frame.data
        body += f"id: {number}\nevent: {frame.event}\ndata: ".encode() + data + b"\n\n"
    assert turn.raw == body
    assert turn.text == 'ä\n\r\n\u2028"\\ data: x.'
    assert turn.results == {turn.calls[0].id: "looked up événement: \n\nid: 7"}


@requirement("aap:sse:data-is-object", "aap:sse:name-not-in-data", "aap:meta-field:only-there")
@pytest.mark.parametrize("mode", STREAMS)
async def test_every_event_has_its_fields_and_at_most_meta_beside_them(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(server_tools=enabled_tools("add"))
    play = script({"think": "t"}, {"say": "s"}, call("add", a=1, b=2), {"say": "{result}"})
    turn = await session.run(play, mode)  # `parse_frames` holds every event against its fields
    add = {"toolCallId": turn.calls[0].id}
    words = "{}_delta" if mode == "delta" else "{}"

    def spoken(kind: str, text: str) -> tuple[str, dict[str, str]]:
        return words.format(kind), {"delta" if mode == "delta" else kind: text}

    assert normalize_frames(turn.frames) == [
        ("turn_start", {}),
        spoken("thinking", "t"),
        spoken("text", "s"),
        ("tool_call", {**add, "name": "add", "input": {"a": 1, "b": 2}}),
        ("tool_result", {**add, "content": "3"}),
        spoken("text", "3"),
        ("turn_stop", {"stopReason": "end_turn"}),
    ]


@requirement("aap:sse:message-events", "aap:sse:delta-events")
async def test_blocks_that_follow_each_other_are_one_event_each_in_message_mode(aap_client: AapClient) -> None:
    session = await aap_client.create()
    play = script({"say": ["on", "e"]}, {"say": "two"}, {"think": "three"}, {"step": True}, {"say": "four"})
    turn = await session.run(play, "message")
    assert normalize_frames(turn.frames)[1:-1] == [
        ("text", {"text": "one"}),
        ("text", {"text": "two"}),
        ("thinking", {"thinking": "three"}),
        ("text", {"text": "four"}),
    ]
    deltas = await session.run(play, "delta")
    assert normalize_frames(deltas.frames)[1:-1] == [
        ("text_delta", {"delta": "onetwo"}),
        ("thinking_delta", {"delta": "three"}),
        ("text_delta", {"delta": "four"}),
    ]


@requirement("aap:sse:tool-call-whole", "aap:sse:results-of-server-tools", "aap:answers:as-sent-no-echo")
@pytest.mark.parametrize("mode", STREAMS)
async def test_a_client_result_is_in_no_stream_and_a_call_is_whole(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(tools=[client_tool("paint")])
    colours = {"deep": [{"null": None, "float": 1.5, "big": 12345678901, "text": "ü" * 3000}]}
    asked = await session.run(script(call("paint", **colours), {"say": "{result}"}), mode)
    (paint,) = asked.calls
    assert normalize_frames(asked.frames)[1:] == [
        ("tool_call", {"toolCallId": paint.id, "name": "paint", "input": colours}),
        ("turn_stop", {"stopReason": "tool_use"}),
    ]
    answered = await session.run([result(paint, "blue")], mode)
    assert [event for event, _ in normalize_frames(answered.frames)[1:-1]] == [
        "text_delta" if mode == "delta" else "text"
    ]


@requirement("aap:sse:unbuffered", "aap:sse:start-first")
@pytest.mark.parametrize("mode", STREAMS)
async def test_an_event_arrives_while_the_turn_has_not_continued(
    aap_client: AapClient, mode: Mode, tool_gates: Any
) -> None:
    session = await aap_client.create("gated", server_tools=enabled_tools("hold"))
    gate = f"unbuffered-{mode}"
    reading = await session.open(script({"say": "before"}, call("hold", gate=gate), {"say": "after"}), stream=mode)
    assert (await reading.next()).event == "turn_start"  # type: ignore[union-attr]  # an end would fail here too
    await reading.until("tool_call")
    await tool_gates.entered(gate)
    assert [frame.event for frame in reading.frames if frame.event.startswith("text")] != []
    assert reading.exchange.unread() == b""
    tool_gates.open(gate)
    assert normalize_frames(await reading.read_to_end())[-2:] == [
        ("text_delta", {"delta": "after"}) if mode == "delta" else ("text", {"text": "after"}),
        ("turn_stop", {"stopReason": "end_turn"}),
    ]


@requirement("aap:sse:start-first", "aap:step:assistant-before-tools")
async def test_turn_start_leaves_before_the_agent_says_anything(aap_client: AapClient) -> None:
    session = await aap_client.create()
    reading = await session.open(script({"wait_ms": 600_000}, {"say": "late"}))
    assert (await reading.until("turn_start")).without_extensions() == ("turn_start", {})
    await session.delete()


@requirement("aap:sse:heartbeat")
async def test_a_stream_without_events_gets_a_comment_line(open_app_server: AppServerFactory) -> None:
    async with open_app_server(heartbeat_s=0.1) as server:
        session = await server.aap_client("alice").create()
        reading = await session.open(script({"wait_ms": 600_000}))
        await reading.until("turn_start")
        beats = b""
        while beats.count(b":") < 3:
            beats += await reading.exchange.chunk() or b""
        assert parse_frames(beats) == []
        await session.delete()
    assert Settings().heartbeat_s == 15


@requirement("aap:sse:refusal-is-status", "aap:turn:failure", "aap:stops:error")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", ["an internal secret", {"code": "teapot", "message": "Short and stout"}])
async def test_a_failure_after_the_start_is_one_turn_stop_and_reveals_no_internals(
    aap_client: AapClient, mode: Mode, fault: Any
) -> None:
    session = await aap_client.create()
    turn = await session.run(script({"say": "half"}, {"fail": fault}), mode)
    assert (turn.stop, merged(turn.messages)) == ("error", [assistant_text("half")])
    assert b"an internal secret" not in turn.raw
    if isinstance(fault, dict):
        assert turn.error == fault
    else:
        assert set(turn.error) == {"code", "message"}
    if mode != "none":
        assert [frame.event for frame in turn.frames].count("turn_stop") == 1


@requirement("aap:sse:refusal-is-status")
@pytest.mark.parametrize("mode", MODES)
async def test_a_refusal_is_json_in_every_mode(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create()
    reply = await session.post([result("nowhere", "x")], stream=mode)
    assert (reply.status, reply.headers["content-type"].split(";")[0]) == (400, "application/json")


# --- deltas -----------------------------------------------------------------------------------------------------------


@requirement("aap:sse:no-empty-delta")
@pytest.mark.parametrize("mode", STREAMS)
async def test_empty_pieces_make_no_events(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create()
    turn = await session.run(script({"say": ["", "a", "", "b", ""]}, {"think": ["", "c"]}), mode)
    assert turn.messages == [
        {"role": "assistant", "content": [{"type": "text", "text": "ab"}, {"type": "thinking", "thinking": "c"}]}
    ]


@requirement("aap:sse:whole-characters")
@pytest.mark.parametrize("size", [1, 2, 3, 5])
async def test_no_delta_ends_inside_a_character(aap_client: AapClient, size: int) -> None:
    text = "a🧑‍🚀é你𝄞" * 40
    session = await aap_client.create()
    reading = await session.open(script({"say": text, "size": size, "every_ms": 0}))
    chunks = b""
    async for chunk in reading.exchange:
        chunk.decode()  # a chunk never ends inside a character either
        chunks += chunk
    frames = parse_frames(chunks)
    check_turn(frames, "delta")
    for frame in frames[1:-1]:
        frame.data["delta"].encode()  # no half of a surrogate pair
    assert fold(frames) == [assistant_text(text)]


@requirement("aap:sse:slow-reader", "aap:turn:disconnect-goes-on")
async def test_a_reader_that_reads_late_gets_every_delta_in_order(aap_client: AapClient) -> None:
    session = await aap_client.create()
    reading = await session.open(script({"emit": {"count": 3000, "text": "<{i}>"}}), window=1)
    watching = session.as_client(aap_client)
    other = await watching.watch("0")
    await other.until("turn_stop")  # the turn is over, and this reader has read nothing
    assert (await watching.info())["_meta"]["status"] == "idle"
    frames = await reading.read_to_end()
    check_turn(frames, "delta")
    assert fold(frames) == [assistant_text("".join(f"<{number}>" for number in range(3000)))]


@requirement("aap:turn:disconnect-goes-on")
async def test_a_request_without_a_stream_ends_with_its_client_and_the_turn_continues(
    app_server: AppServer, tool_gates: Any
) -> None:
    client = app_server.aap_client("alice")
    session = await client.create("gated", server_tools=enabled_tools("hold"))
    message = user(script(call("hold", gate="left"), {"say": "after"}))
    body = {"messages": [message], "stream": "none"}
    headers = [("authorization", f"Bearer {client.key}"), ("content-type", "application/json")]
    assert isinstance(app_server.connection, AsgiClient)
    exchange = app_server.connection.begin(
        "POST", f"/aap/v3{session.path}/turns", headers=headers, body=json.dumps(body).encode()
    )
    await tool_gates.entered("left")
    await exchange.disconnect()
    await exchange.wait_until_released()
    assert (await session.info())["_meta"]["status"] == "running"
    rest = await session.watch()
    tool_gates.open("left")
    await rest.until("turn_stop")
    assert rest.frames[-1].data["stopReason"] == "end_turn"


@requirement("aap:sse:slow-reader")
async def test_a_reader_that_never_reads_harms_nobody(app_server: AppServer) -> None:
    client = app_server.aap_client("alice")
    session = await client.create()
    reading = await session.open(script({"burst": 3000}), window=1)
    assert (await (await client.create()).run("hello")).stop == "end_turn"
    rest = await session.watch("0")
    await rest.until("turn_stop")
    assert sum(len(frame.data.get("delta", "")) for frame in rest.frames) == 3_000_000
    await reading.disconnect()


# --- equality ---------------------------------------------------------------------------------------------------------

words = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
spoken = st.builds(
    lambda kind, texts, size: {kind: texts, "size": size},
    st.sampled_from(["say", "think"]),
    st.one_of(words, st.lists(words, min_size=1, max_size=4)),
    st.integers(1, 5),
)
one_call: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.sampled_from(
    [
        ("add", {"a": 1, "b": 2}),
        ("lookup", {"q": "ö"}),
        ("boom", {}),
        ("card", {"title": "T"}),
        ("whisper", {"text": "psst"}),
        ("stamp", {"text": "s"}),
        ("paint", {"colour": None}),
        ("nothing", {}),
        ("clock", {"timezone": "Nowhere/Land"}),
        ("add", {"a": "x"}),
    ]
)
ended = st.sampled_from(
    [
        {"step": True},
        {"usage": {"input_tokens": 3, "output_tokens": 4}},
        {"say": "{result} {results} {answer}"},
        {"emit": {"count": 3, "text": "{i3}"}},
    ]
)
inline = st.builds(
    lambda output: {"tool": {"name": "inner", "input": {}, "output": output}},
    st.one_of(words, st.none(), st.lists(st.integers(), max_size=2)),
)
fork = st.builds(
    lambda steps: {"fork": {"description": "d", "script": steps}},
    st.lists(
        st.one_of(spoken, st.sampled_from([call("stamp", text="in"), call("add", a=1, b=1)])), min_size=1, max_size=3
    ),
)
steps = st.lists(
    st.one_of(
        spoken,
        spoken,
        ended,
        one_call.map(lambda pair: call(pair[0], **pair[1])),
        st.lists(one_call, min_size=2, max_size=4).map(lambda pairs: calls(*pairs)),
        inline,
        fork,
    ),
    min_size=1,
    max_size=6,
)
finals = st.sampled_from(
    [
        (),
        (),
        ({"stop": "max_tokens"},),
        ({"stop": "refusal"},),
        ({"fail": "x"},),
        ({"fail": {"code": "c", "message": "A reason."}},),
    ]
)


def answers_for(turn: Turn) -> list[Message]:
    """What the client says to the calls that wait: results for its own tools, and every second permission denied."""
    answers = []
    for place, each in enumerate(each for each in turn.calls if each.id not in turn.results):
        if each.name == "paint":
            answers.append(result(each, [{"type": "text", "text": "painted"}]))
        else:
            answers.append(grant(each) if place % 2 == 0 else deny(each, "no"))
    return answers


async def play_through(session: Session, play: str, mode: Mode) -> tuple[list[Turn], OfficialClient]:
    client, turns = OfficialClient(), []
    messages: list[Message] = [user(play)]
    while messages:
        client.send(*messages)
        turns.append(await session.run(messages, mode))
        if mode == "none":
            client.receive_answer(turns[-1].messages)
        else:
            client.receive(turns[-1].frames)
        messages = answers_for(turns[-1]) if turns[-1].stop == "tool_use" else []
        assert [call.id for call in client.pending()] == [message["toolCallId"] for message in messages]
    return turns, client


@requirement(
    "aap:modes:equal-content",
    "aap:sse:grammar",
    "aap:clients:rebuild",
    "aap:clients:answers-last-only",
    "aap:calls:unique-ids",
)
@settings(max_examples=20)
@given(body=steps, final=finals)
async def test_the_three_modes_and_history_have_the_same_content(
    aap_client: AapClient, body: list[dict[str, Any]], final: tuple[dict[str, Any], ...]
) -> None:
    play = script(*body, *final)
    contents = []
    for mode in MODES:
        session = await aap_client.create(
            server_tools=[
                *enabled_tools("add", "lookup", "boom", "card", "clock"),
                *enabled_tools("stamp", trust=False),
            ],
            tools=[client_tool("paint")],
        )
        turns, client = await play_through(session, play, mode)
        history = await session.history()
        assert normalize_history(client.history) == normalize_history(history)
        ids = [call.id for turn in turns for call in turn.calls]
        assert len(ids) == len(set(ids))
        contents.append([(turn.stop, content_of(turn)) for turn in turns])
        made = [message for turn in turns for message in turn.messages]
        if len(turns) == 1:
            assert merged(history[1:]) == merged(made)
    assert in_any_order(contents[0]) == in_any_order(contents[1]) == in_any_order(contents[2])


def in_any_order(turns: list[tuple[str, list[Message]]]) -> list[tuple[str, list[Message]]]:
    """Results of tools that ran in parallel come as they are ready, so their order among each other says nothing."""
    ordered = []
    for stop, messages in turns:
        grouped: list[Message] = []
        run: list[Message] = []
        for message in [*messages, {"role": "end"}]:
            if message["role"] == "tool":
                run.append(message)
                continue
            grouped += sorted(run, key=lambda each: str(each["toolCallId"]))
            run = []
            grouped.append(message)
        ordered.append((stop, grouped[:-1]))
    return ordered


@requirement("aap:meeting:data-is-text")
@pytest.mark.parametrize("mode", MODES)
async def test_a_data_block_of_an_answer_is_text_in_every_mode_and_in_the_history(
    aap_client: AapClient, mode: Mode
) -> None:
    session = await aap_client.create()
    play = script({"data": {"rows": [1, 2]}}, call("add", a=1, b=2), {"data": {"sum": None}})
    turn = await session.run(play, mode)
    first, *_, last = turn.messages
    assert (first["content"][0], last) == (
        {"type": "text", "text": '{"rows":[1,2]}'},
        assistant_text('{"sum":null}'),
    )
    assert merged(await session.history()) == [user(play), *turn.messages]


@requirement("aap:meeting:data-is-text")
async def test_in_deltas_a_paragraph_separates_a_data_block_from_other_text(aap_client: AapClient) -> None:
    session = await aap_client.create()
    play = script(
        {"say": "See:"}, {"data": {"a": 1}}, {"data": {"b": 2}}, {"think": "Hm."}, {"say": "Done. ", "size": 2}
    )
    turn = await session.run(play, "delta")
    deltas = [frame.data["delta"] for frame in turn.frames if frame.event == "text_delta"]
    assert "".join(deltas) == 'See:\n\n{"a":1}\n\n{"b":2}\n\nDone. '


@requirement("aap:meeting:image-in-answer")
@pytest.mark.parametrize("mode", MODES)
async def test_an_image_in_an_answer_is_in_none_and_history_and_in_no_event(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create()
    play = script({"say": "see "}, {"image": IMAGE}, {"say": "there"})
    turn = await session.run(play, mode)
    whole = {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "see "},
            {"type": "image", "url": IMAGE},
            {"type": "text", "text": "there"},
        ],
    }
    assert turn.messages == [whole if mode == "none" else assistant_text("see there")]
    assert await session.history() == [user(play), whole]
