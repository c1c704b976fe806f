"""A server that is stopped and started again on the same data, between and inside turns."""

import pytest

from tests.protocols.aap.agents import ToolGates
from tests.protocols.aap.client import (
    Session,
    assert_refusal,
    assistant_text,
    call,
    calls,
    client_tool,
    enabled_tools,
    grant,
    result,
    script,
    user,
)
from tests.protocols.aap.official_client import OfficialClient
from tests.protocols.aap.stream import STREAMS, Frame, Mode, check_numbers, check_turn, fold, merged, parse_frames
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

INTERRUPTED = "Tool call interrupted: the server restarted"


async def again(server: AppServer, session: Session) -> Session:
    """The session, after a restart."""
    await server.restart()
    return session.as_client(server.aap_client("alice"))


@requirement("aap:suite:conversations", "aap:history:full", "aap:overrides:last")
async def test_sessions_histories_settings_and_listings_hold_over_a_restart(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        session = await server.aap_client("alice").create(
            server_tools=enabled_tools("add"), options={"style": "loud", "token": "12345"}, tools=[client_tool("paint")]
        )
        await session.run(script(call("add", a=1, b=2), {"say": "{result}"}), "delta")
        info, history = await session.info(), await session.history()
        listing = (await server.aap_client("alice").get("/sessions")).json
        session = await again(server, session)
        assert (await session.info(), await session.history()) == (info, history)
        assert (await server.aap_client("alice").get("/sessions")).json == listing
        assert (await session.run(script({"option": "token"}, {"option": "style"}))).text == "set(5)loud"
        assert (await session.history())[: len(history)] == history


@requirement("aap:suite:conversations", "aap:waiting:all-answers", "aap:turn:restart", "aap:meta-field:pending")
async def test_waiting_calls_are_answered_after_a_restart(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        session = await server.aap_client("alice").create(
            server_tools=[*enabled_tools("add"), *enabled_tools("stamp", trust=False)], tools=[client_tool("paint")]
        )
        asked = await session.run(
            script(calls(("paint", {}), ("add", {"a": 1, "b": 2}), ("stamp", {"text": "x"})), {"say": "{results}"}),
            "message",
        )
        paint, _, stamp = asked.calls
        before = await session.info()
        session = await again(server, session)
        assert await session.info() == before
        assert_refusal(await session.post([result(paint, "blue")]), 400, "tool_results_missing", missing=[stamp.id])
        turn = await session.run([result(paint, "blue"), grant(stamp)])
        assert turn.messages == [result(stamp, "stamped x"), assistant_text("blue, 3, stamped x")]
        session = await again(server, session)
        assert_refusal(await session.post([result(paint, "blue"), grant(stamp)]), 400, "tool_call_resolved")


@requirement("aap:suite:conversations", "aap:meeting:question-by-text")
async def test_a_question_is_answered_after_a_restart(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        session = await server.aap_client("alice").create()
        asked = await session.run("ask me")
        session = await again(server, session)
        assert (await session.run([result(asked.calls[0], "staging")])).text == "You chose staging."


@requirement("aap:idempotency:restart", "aap:idempotency:turn", "aap:idempotency:create")
async def test_idempotency_keys_hold_over_a_restart(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        make, turn = {"idempotency-key": "make"}, {"idempotency-key": "turn"}
        body = {"agent": {"name": "rehearsal"}}
        first = await server.aap_client("alice").post("/sessions", body, headers=make)
        session = Session(server.aap_client("alice"), first.json["sessionId"])
        ran = await session.run("hello", "delta", headers=turn)
        session = await again(server, session)
        assert (await server.aap_client("alice").post("/sessions", body, headers=make)).body == first.body
        assert (await session.run("hello", "delta", headers=turn)).raw == ran.raw
        assert_refusal(await session.post([user("other")], headers=turn), 409, "idempotency_conflict")
        assert await session.history() == [user("hello"), assistant_text("Hello! I am the rehearsal agent.")]


@requirement("aap:delete:gone", "aap:delete:nothing-stored-after")
async def test_a_deleted_session_stays_deleted(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        session = await server.aap_client("alice").create()
        reading = await session.open(script({"say": "x"}, {"wait_ms": 600_000}))
        await reading.until("text_delta")
        await session.delete()
        await reading.read_to_end()
        session = await again(server, session)
        assert_refusal(await server.aap_client("alice").get(session.path), 404, "session_not_found")
        assert (await server.aap_client("alice").get("/sessions")).json == {"sessions": []}


@requirement("aap:turn:restart", "aap:texts:interrupted", "aap:events:restart")
@pytest.mark.parametrize("mode", STREAMS)
async def test_a_turn_cut_by_a_restart_continues_and_its_started_tool_is_not_run_again(
    open_app_server: AppServerFactory, mode: Mode
) -> None:
    async with open_app_server(drain_s=0) as server:
        session = await server.aap_client("alice").create(server_tools=enabled_tools("slow", "add"))
        play = script(
            {"say": "so "},
            call("slow", seconds=600, tag="cut"),
            call("add", a=1, b=2),
            {"say": "{result} "},
            {"starts": "cut"},
        )
        reading = await session.open(play, stream=mode)
        await reading.until("tool_call")
        await started(session, server)
        session = await again(server, session)
        rest = await (await session.watch(reading.frames[-1].id)).read_to_end()
        frames = [*reading.frames, *rest]
        check_turn(frames, mode)
        check_numbers(frames)
        slow, add = (frame.data["toolCallId"] for frame in frames if frame.event == "tool_call")
        assert fold(frames)[1:] == [result(slow, INTERRUPTED), fold(frames)[2], result(add, "3"), assistant_text("3 1")]
        assert merged(await session.history())[1:] == fold(frames)


async def started(session: Session, server: AppServer) -> None:
    """Wait until the slow tool of the session has been started."""
    counting = await server.aap_client("alice").create()
    while (await counting.run(script({"starts": "cut"}))).text == "0":
        pass


@requirement("aap:turn:restart", "aap:suite:leave-anywhere", "aap:events:restart", "aap:sse:grammar")
@pytest.mark.parametrize("mode", STREAMS)
async def test_a_restart_at_every_event_of_a_turn_leaves_one_whole_turn(
    open_app_server: AppServerFactory, mode: Mode
) -> None:
    mixed = calls(("paint", {}), ("stamp", {"text": "x"}), ("add", {"a": 1, "b": 2}))
    play = script({"think": "hm"}, {"say": "so "}, call("add", a=1, b=1), {"say": "then "}, mixed, {"say": "{results}"})
    async with open_app_server() as server:
        for count in range(12):
            session = await server.aap_client("alice").create(
                server_tools=[*enabled_tools("add"), *enabled_tools("stamp", trust=False)], tools=[client_tool("paint")]
            )
            reading = await session.open(play, stream=mode)
            for _ in range(count):
                if await reading.next() is None:
                    break
            seen = reading.frames
            session = await again(server, session)
            rest = await (await session.watch(str(len(seen)))).read_to_end()
            frames = [*seen, *rest]
            check_turn(frames, mode)
            check_numbers(frames)
            assert frames[-1].data["stopReason"] == "tool_use"
            assert merged(await session.history())[1:] == fold(frames)
            open_calls = (await session.info())["_meta"]["pending"]
            assert [each["name"] for each in open_calls] == ["paint", "stamp"]
            paint, stamp = (each["toolCallId"] for each in open_calls)
            done = await session.run([result(paint, "blue"), grant(stamp)], mode)
            assert done.text == "blue, stamped x, 3"


@requirement("aap:turn:restart", "aap:turn:restart-cut", "aap:history:full")
async def test_text_cut_by_a_restart_is_kept_as_it_was_seen_and_its_step_is_played_again(
    open_app_server: AppServerFactory, tool_gates: ToolGates
) -> None:
    async with open_app_server(drain_s=0) as server:
        session = await server.aap_client("alice").create("gated")
        reading = await session.open("say two and hold")
        text = ""
        while text != "one two ":
            text += (await reading.until("text_delta")).data["delta"]
        session = await again(server, session)
        tool_gates.open("text")
        rest = await (await session.watch(reading.frames[-1].id)).read_to_end()
        streams: dict[Mode, list[Frame]] = {
            "delta": [*reading.frames, *rest],
            "message": parse_frames((await session.events("0", "?stream=message")).body),
        }
        first, cut, repeated = map(assistant_text, ("one ", "two ", "two three"))
        for mode, frames in streams.items():
            check_turn(frames, mode)
            check_numbers(frames)
            (place,) = (index for index, frame in enumerate(frames) if frame.event == "message_cut")
            assert frames[place].data == {"content": cut["content"]}
            assert (fold(frames[:place]), fold(frames[place:])) == (merged([first, cut]), [repeated])
            client = OfficialClient()
            client.receive(frames)
            texts = [block["text"] for message in client.history for block in message["content"]]
            assert texts == (["one two ", "two three"] if mode == "delta" else ["one ", "two ", "two three"])
        history = (await server.aap_client("alice").get(f"{session.path}/history?type=full")).json["history"]["full"]
        assert history[1:] == [first, {**cut, "_meta": {"interrupted": True, "cut": True}}, repeated]


@requirement("aap:turn:restart", "aap:suite:conversations")
async def test_a_conversation_holds_with_a_restart_before_every_turn(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        session = await server.aap_client("alice").create(server_tools=enabled_tools("add"))
        for place in range(5):
            assert (await session.run(f"add {place} and 1", "delta")).text == f"The sum is {place + 1}."
            session = await again(server, session)
        assert (await session.run(script({"recall": "user"}))).text == " | ".join(
            f"add {place} and 1" for place in range(5)
        )
        assert (await session.info())["_meta"]["status"] == "idle"


@requirement("aap:auth:every-endpoint")
async def test_keys_hold_over_a_restart(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        key = server.key("alice")
        await server.restart()
        assert server.key("alice") == key
        assert (await server.aap_client("alice").get("/sessions")).status == 200
