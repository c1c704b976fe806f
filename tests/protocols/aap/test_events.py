"""Joining a session's stream: continuing a turn after a cut, replaying it later, watching all turns."""

import asyncio
from typing import Any

import pytest

from tests.protocols.aap.client import (
    AapClient,
    Session,
    StreamReader,
    assert_refusal,
    call,
    calls,
    client_tool,
    deny,
    enabled_tools,
    grant,
    result,
    script,
    user,
)
from tests.protocols.aap.stream import (
    MODES,
    STREAMS,
    Frame,
    Mode,
    check_numbers,
    check_turn,
    normalize_frames,
    parse_frames,
)
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

RICH = script(
    {"think": ["hm", " so"]},
    {"say": "Grüße 🧑‍🚀, ", "size": 2},
    calls(("add", {"a": 1, "b": 2}), ("lookup", {"q": "ü"})),
    {"say": "{results}"},
    {"step": True},
    {"say": "end", "size": 1},
)
TOOLS: dict[str, Any] = {"server_tools": enabled_tools("add", "lookup")}


def bytes_of(frames: list[Frame]) -> bytes:
    return b"".join(frame.raw for frame in frames)


def turn_id(frames: list[Frame]) -> str:
    found: str = frames[0].data["_meta"]["turnId"]
    return found


# --- continuing a turn ------------------------------------------------------------------------------------------------


@requirement("aap:events:after-n", "aap:events:every-cut", "aap:events:closes", "aap:events:replay-at-any-age")
@pytest.mark.parametrize("mode", STREAMS)
async def test_after_a_cut_at_any_byte_the_rest_is_exactly_the_rest(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(**TOOLS)
    turn = await session.run(RICH, mode)
    rests: dict[int, bytes] = {}
    for cut in range(len(turn.raw) + 1):
        whole = turn.raw[:cut].rfind(b"\n\n") + 2 if b"\n\n" in turn.raw[:cut] else 0
        seen = len(parse_frames(turn.raw[:whole]))
        if seen not in rests:
            rests[seen] = (await session.events(str(seen))).body
        assert turn.raw[:whole] + rests[seen] == turn.raw
    assert list(rests) == list(range(len(turn.frames) + 1))
    assert rests[len(turn.frames)] == b""


@requirement("aap:events:live-cut", "aap:events:every-cut", "aap:suite:leave-anywhere")
@pytest.mark.parametrize("mode", STREAMS)
async def test_who_left_a_running_turn_joins_it_again_without_gap_or_repeat(aap_client: AapClient, mode: Mode) -> None:
    play = script(
        {"say": "one two three four", "size": 4, "every_ms": 1},
        call("add", a=1, b=2),
        {"say": "five", "size": 1, "every_ms": 1},
    )
    for count in range(1, 9):
        session = await aap_client.create(**TOOLS)
        first = await session.open(play, stream=mode)
        for _ in range(count):
            if await first.next() is None:
                break
        await first.disconnect()
        seen = first.frames
        second = await session.watch(seen[-1].id)
        rest = await second.read_to_end()
        check_turn([*seen, *rest], mode)
        check_numbers([*seen, *rest])
        whole = (await session.events("0")).body
        assert bytes_of([*seen, *rest]) == whole


@requirement("aap:events:live-cut")
async def test_a_reader_that_hops_from_connection_to_connection_sees_every_event_once(aap_client: AapClient) -> None:
    session = await aap_client.create(**TOOLS)
    steps: list[dict[str, Any]] = [{"say": "abcdefgh", "size": 1, "every_ms": 1}, {"step": True}]
    play = script(*steps * 4)
    reading = await session.open(play)
    frames: list[Frame] = []
    while not frames or frames[-1].event != "turn_stop":
        for _ in range(3):
            frame = await reading.next()
            if frame is None:
                break
            frames.append(frame)
        await reading.disconnect()
        reading = await session.watch(frames[-1].id)
    assert await reading.read_to_end() == []
    check_turn(frames, "delta")
    check_numbers(frames)
    assert normalize_frames(frames)[1:-1] == [("text_delta", {"delta": "abcdefgh" * 4})]
    assert bytes_of(frames) == (await session.events("0")).body


@requirement("aap:events:live-cut", "aap:events:closes")
async def test_a_hundred_readers_that_join_anywhere_all_see_the_same_end(
    aap_client: AapClient, tool_gates: Any
) -> None:
    session = await aap_client.create("gated", server_tools=enabled_tools("hold"))
    reading = await session.open(script({"say": "before"}, call("hold", gate="hundred"), {"say": "after"}))
    await tool_gates.entered("hundred")
    await reading.until("tool_call")
    positions = [number % (len(reading.frames) + 1) for number in range(100)]
    joined = [await session.watch(str(position)) for position in positions]
    tool_gates.open("hundred")
    rests = await asyncio.gather(*(each.read_to_end() for each in joined))
    await reading.read_to_end()
    assert rests == [reading.frames[position:] for position in positions]


@requirement("aap:events:mode")
@pytest.mark.parametrize("mode", MODES)
async def test_a_turn_continues_in_its_own_mode_unless_another_is_asked_for(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(**TOOLS)
    turn = await session.run(RICH, mode)
    by_default = parse_frames((await session.events("0")).body)
    check_turn(by_default, "delta" if mode == "none" else mode)
    if mode != "none":
        assert bytes_of(by_default) == turn.raw
    for other in STREAMS:
        frames = parse_frames((await session.events("0", f"?stream={other}")).body)
        check_turn(frames, other)
        check_numbers(frames)
        half = len(frames) // 2
        assert (await session.events(str(half), f"?stream={other}")).body == bytes_of(frames[half:])


@requirement("aap:events:mode")
@pytest.mark.parametrize("mode", ["none", "", "x", "Delta"])
async def test_another_mode_of_the_events_route_is_refused(aap_client: AapClient, mode: str) -> None:
    session = await aap_client.create()
    await session.run("hello")
    assert_refusal(await session.events("0", f"?stream={mode}"), 400, "invalid_request")


@requirement("aap:events:mode", "aap:undeclared:stream-mode")
async def test_a_mode_that_the_agent_does_not_declare_is_refused_here_too(aap_client: AapClient) -> None:
    session = await aap_client.create("only-delta")
    await session.run("hello", "delta")
    assert_refusal(await session.events("0", "?stream=message"), 400, "unsupported_stream_mode", supported=["delta"])


@requirement("aap:events:turn", "aap:events:replay-at-any-age")
async def test_an_older_turn_is_named_and_replayed_to_the_byte(aap_client: AapClient) -> None:
    session = await aap_client.create(server_tools=enabled_tools("stamp", trust=False), tools=[client_tool("paint")])
    asked = await session.run(
        script({"say": "well "}, calls(("stamp", {"text": "x"}), ("paint", {})), {"say": "{results}"}), "delta"
    )
    turns = [
        asked,
        await session.run([deny(asked.calls[0], "no"), result(asked.calls[1], "blue")], "message"),
        await session.run(script({"say": "half"}, {"fail": "x"}), "delta"),
        await session.run("hello", "message"),
    ]
    for turn in turns:
        named = f"?turn={turn_id(turn.frames)}"
        assert (await session.events("0", named)).body == turn.raw
        assert (await session.events("2", named)).body == bytes_of(turn.frames[2:])
        assert (await session.events(str(len(turn.frames)), named)).body == b""
    assert_refusal(await session.events("0", "?turn=01890a5d-ac96-774b-bcce-b302099a8057"), 400, "invalid_cursor")


@requirement("aap:events:bad-position")
@pytest.mark.parametrize(
    "position",
    [
        "-1",
        "x",
        "1.5",
        "1e1",
        " 1 x",
        "+1",
        "0x1",
        "1/2/3",
        "/1",
        "1/",
        "٣",
        "99999999999999999999999",
        "01890a5d-ac96-774b-bcce-b302099a8057/1",
    ],
)
async def test_a_position_that_is_none_of_ours_is_refused(aap_client: AapClient, position: str) -> None:
    session = await aap_client.create()
    await session.run("hello", "delta")
    raw = position.encode().decode("latin-1")
    assert_refusal(await session.events(raw), 400, "invalid_cursor")


@requirement("aap:events:bad-position")
async def test_a_position_in_the_future_is_refused_running_or_ended(aap_client: AapClient) -> None:
    session = await aap_client.create()
    assert_refusal(await session.events("1"), 400, "invalid_cursor")
    turn = await session.run("hello", "delta")
    count = len(turn.frames)
    refused = await session.events(str(count + 1))
    assert_refusal(refused, 400, "invalid_cursor")
    assert refused.json["error"].endswith(f"has {count} events so far, got the ID {count + 1}")
    reading = await session.open(script({"say": "x"}, {"wait_ms": 600_000}))
    await reading.until("text_delta")
    assert_refusal(await session.events("3"), 400, "invalid_cursor")
    assert_refusal(await session.events(f"{turn_id(reading.frames)}/3"), 400, "invalid_cursor")
    await session.delete()


@requirement("aap:events:bad-position", "aap:tenancy:foreign-is-404")
async def test_a_position_of_another_session_is_refused(app_server: AppServer) -> None:
    mine, hers = await app_server.aap_client("alice").create(), await app_server.aap_client("bob").create()
    foreign = [
        turn_id((await each.run("hello", "delta")).frames)
        for each in (hers, await app_server.aap_client("alice").create())
    ]
    for each in foreign:
        assert_refusal(await mine.events(f"{each}/1"), 400, "invalid_cursor")
        assert_refusal(await mine.events("1", f"?turn={each}"), 400, "invalid_cursor")


# --- watching ---------------------------------------------------------------------------------------------------------


async def turn_of(watching: StreamReader) -> list[Frame]:
    """The next whole turn that a watcher sees."""
    first = len(watching.frames)
    await watching.until("turn_stop")
    return watching.frames[first:]


def watched_events(turn: list[Frame]) -> list[tuple[str, dict[str, Any]]]:
    """The events of a watched turn, once its ids are found to be right."""
    assert [frame.id for frame in turn] == [f"{turn_id(turn)}/{number}" for number in range(1, len(turn) + 1)]
    return [(frame.event, frame.data) for frame in turn]


@requirement("aap:events:watch", "aap:events:watch-ids")
async def test_a_watcher_sees_every_later_turn_live_whoever_began_it(app_server: AppServer, tool_gates: Any) -> None:
    session = await app_server.aap_client("alice").create(
        "gated", server_tools=enabled_tools("hold"), tools=[client_tool("paint")]
    )
    phone = session.as_client(app_server.aap_client("alice_phone"))
    await session.run("an older turn", "delta")
    watching = await phone.watch()
    play = script({"say": "a"}, call("hold", gate="watched"), call("paint"), {"say": "b {result}"})
    reading = await session.open(play)
    await tool_gates.entered("watched")
    await watching.until("tool_call")  # live: the turn is held, and the watcher has its call
    tool_gates.open("watched")
    await watching.until("turn_stop")
    await reading.read_to_end()
    assert watched_events(watching.frames) == [(frame.event, frame.data) for frame in reading.frames]
    answered = await phone.run([result(reading.frames[-2].data["toolCallId"], "blue")], "delta")
    assert watched_events(await turn_of(watching)) == [(frame.event, frame.data) for frame in answered.frames]
    await session.run("hello")  # mode none is watched as deltas
    assert normalize_frames(await turn_of(watching))[1:-1] == [("text_delta", {"delta": "Hello!"})]
    await watching.disconnect()


@requirement("aap:events:watch")
@pytest.mark.parametrize("mode", STREAMS)
async def test_a_watcher_may_choose_the_mode(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(**TOOLS)
    watching = await session.watch(query=f"?stream={mode}")
    for asked in MODES:
        await session.run(RICH, asked)
        seen = await turn_of(watching)
        check_turn(seen, mode)
        watched_events(seen)
    await watching.disconnect()


@requirement("aap:events:watch-running", "aap:events:watch-ids")
async def test_a_watcher_that_joins_a_running_turn_gets_it_from_its_start(
    aap_client: AapClient, tool_gates: Any
) -> None:
    session = await aap_client.create("gated", server_tools=enabled_tools("hold"))
    reading = await session.open(script({"say": "before"}, call("hold", gate="joined"), {"say": "after"}))
    await tool_gates.entered("joined")
    watching = await session.watch()
    await watching.until("tool_call")
    tool_gates.open("joined")
    await watching.until("turn_stop")
    await reading.read_to_end()
    assert watched_events(watching.frames) == [(frame.event, frame.data) for frame in reading.frames]
    await watching.disconnect()


@requirement("aap:events:watch-ids")
async def test_a_watch_continues_from_any_of_its_ids_over_finished_turns(aap_client: AapClient) -> None:
    session = await aap_client.create(**TOOLS)
    watching = await session.watch()
    for text in ("hello", RICH, "again"):
        await session.run(text, "delta")
    await session.run(script({"say": "half"}, {"fail": "x"}), "delta")
    seen: list[Frame] = []
    for _ in range(4):
        seen += await turn_of(watching)
    await watching.disconnect()
    for place, frame in enumerate(seen, 1):
        again = await session.watch(frame.id)
        rest = [await again.next() for _ in seen[place:]]
        assert rest == seen[place:]
        await again.disconnect()


@requirement("aap:events:watch-ids", "aap:events:watch")
async def test_a_continued_watch_continues_with_later_turns(aap_client: AapClient) -> None:
    session = await aap_client.create()
    watching = await session.watch()
    await session.run("one", "delta")
    first = await turn_of(watching)
    await watching.disconnect()
    await session.run("two", "delta")
    again = await session.watch(first[1].id)
    await session.run("three", "delta")
    rest = [await again.next() for _ in range(len(first) - 2)]
    assert rest == first[2:]
    assert [normalize_frames(await turn_of(again))[1][1]["delta"] for _ in range(2)] == [
        "You said: two",
        "You said: three",
    ]
    await again.disconnect()


@requirement("aap:events:deleted")
async def test_a_watch_ends_when_its_session_is_deleted(aap_client: AapClient) -> None:
    idle, busy = await aap_client.create(), await aap_client.create()
    watching_idle, watching_busy = await idle.watch(), await busy.watch()
    reading = await busy.open(script({"say": "x"}, {"wait_ms": 600_000}))
    await watching_busy.until("text_delta")
    await idle.delete()
    await busy.delete()
    assert await watching_idle.read_to_end() == []
    assert [frame.event for frame in await watching_busy.read_to_end()] == ["turn_stop"]
    await reading.read_to_end()


@requirement("aap:sse:heartbeat")
async def test_a_watch_without_events_gets_comment_lines(open_app_server: AppServerFactory) -> None:
    async with open_app_server(heartbeat_s=0.1) as server:
        watching = await (await server.aap_client("alice").create()).watch()
        beats = b""
        while beats.count(b":") < 3:
            beats += await watching.exchange.chunk() or b""
        assert parse_frames(beats) == []
        await watching.disconnect()


@requirement("aap:events:restart", "aap:events:replay-at-any-age", "aap:events:watch-ids")
async def test_positions_and_replays_hold_over_a_restart(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        session = await server.aap_client("alice").create(
            server_tools=[*enabled_tools("add", "lookup"), *enabled_tools("stamp", trust=False)]
        )
        rich = await session.run(RICH, "delta")
        asked = await session.run(script(call("stamp", text="x"), {"say": "{result}"}), "message")
        await server.restart()
        session = Session(server.aap_client("alice"), session.id)
        named = f"?turn={turn_id(rich.frames)}"
        for place in range(len(rich.frames) + 1):
            assert (await session.events(str(place), named)).body == bytes_of(rich.frames[place:])
        assert (await session.events("0")).body == asked.raw
        watching = await session.watch(f"{turn_id(rich.frames)}/{len(rich.frames)}")
        assert [(frame.event, frame.data) for frame in await turn_of(watching)] == [
            (frame.event, frame.data) for frame in asked.frames
        ]
        answered = await session.run([grant(asked.calls[0])], "message")
        assert watched_events(await turn_of(watching)) == [(frame.event, frame.data) for frame in answered.frames]
        await watching.disconnect()


@requirement("aap:tenancy:foreign-is-404", "aap:session:unknown-is-404")
async def test_the_events_of_another_owners_session_are_404(app_server: AppServer) -> None:
    session = await app_server.aap_client("bob").create()
    await session.post([user("hello")])
    for after in (None, "0", "x"):
        assert_refusal(await session.as_client(app_server.aap_client("alice")).events(after), 404, "session_not_found")
