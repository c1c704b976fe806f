"""AAP, sections 16 and 17: errors of the server, `_meta`, idempotency keys."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from dragoman.core.refusals import all_refusals
from dragoman.protocols.aap.errors import ERRORS
from dragoman.protocols.kit.errors import REQUEST_ERRORS
from tests.protocols.aap.agents import Faulty
from tests.protocols.aap.client import (
    AapClient,
    assert_refusal,
    assert_unchanged,
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
from tests.protocols.aap.stream import MODES, STREAMS, Mode
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

# --- what is ours -----------------------------------------------------------------------------------------------------


@requirement("aap:meta-field:turn-start", "aap:meta-field:turn-stop", "aap:meta-field:only-there")
@pytest.mark.parametrize("mode", STREAMS)
async def test_the_first_event_names_the_turn_and_the_last_counts_its_tokens(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(server_tools=enabled_tools("add"))
    used = {"usage": {"input_tokens": 11, "output_tokens": 7}}
    play = script(used, call("add", a=1, b=2), used, {"say": "done"})
    turns = [await session.run(play, mode) for _ in range(2)]
    named = [turn.frames[0].data["_meta"]["turnId"] for turn in turns]
    assert len(set(named)) == 2
    for turn in turns:
        assert set(turn.frames[0].data) == {"_meta"}
        assert set(turn.meta) == {"usage"}
        assert sorted(turn.meta["usage"].values()) == [14, 22]
        assert not any("_meta" in frame.data for frame in turn.frames[1:-1])


@requirement("aap:meta-field:turn-stop", "aap:meta-field:turn-start")
async def test_mode_none_reports_the_same_in_the_meta_of_its_body(aap_client: AapClient) -> None:
    session = await aap_client.create()
    turn = await session.run(script({"usage": {"input_tokens": 11, "output_tokens": 7}}, {"say": "x"}))
    assert sorted(turn.meta["usage"].values()) == [7, 11]
    failed = await session.run(script({"fail": {"code": "teapot", "message": "Short and stout"}}))
    assert failed.meta["error"] == {"code": "teapot", "message": "Short and stout"}


@requirement("aap:meta-field:session")
async def test_a_sessions_meta_has_times_and_a_status_that_follow_its_life(
    aap_client: AapClient, tool_gates: Any
) -> None:
    session = await aap_client.create("gated", server_tools=enabled_tools("hold"), tools=[client_tool("paint")])
    born = (await session.info())["_meta"]
    assert (born["status"], born.get("title")) == ("idle", None)
    created, updated = (datetime.fromisoformat(born[name]) for name in ("createdAt", "updatedAt"))
    assert created.utcoffset() == timedelta(0)
    assert created <= updated
    words = script(call("hold", gate="meta"), call("paint"))
    reading = await session.open(words)
    await tool_gates.entered("meta")
    assert (await session.info())["_meta"]["status"] == "running"
    tool_gates.open("meta")
    await reading.read_to_end()
    later = (await session.info())["_meta"]
    assert (later["status"], later["createdAt"], later["title"]) == ("waiting", born["createdAt"], "hold")
    assert datetime.fromisoformat(later["updatedAt"]) >= updated


@requirement("aap:meta-field:creation")
async def test_a_session_is_created_with_a_title_and_labels(aap_client: AapClient) -> None:
    body = {"agent": {"name": "plain"}, "_meta": {"title": " Sums ", "labels": {"team": "blue"}, "other": 1}}
    made = await aap_client.post("/sessions", body)
    meta = (await aap_client.get(f"/sessions/{made.json['sessionId']}")).json["_meta"]
    assert (meta["title"], meta["labels"]) == ("Sums", {"team": "blue"})
    for wrong, path in (
        ({"title": "x" * 1001}, "_meta.title"),
        ({"labels": {"team": 7}}, "_meta.labels"),
        ({"tools": "some"}, "_meta.tools"),
        ({"labels": {str(index): "" for index in range(65)}}, "_meta.labels"),
    ):
        refused = await aap_client.post("/sessions", {"agent": {"name": "plain"}, "_meta": wrong})
        assert (refused.status, refused.json["code"]) == (400, "invalid_request")
        assert refused.json["path"].startswith(path), refused.json


@requirement("aap:meta-field:creation")
async def test_a_session_created_for_all_tools_asks_only_where_a_tool_needs_approval(aap_client: AapClient) -> None:
    body = {"agent": {"name": "rehearsal", "tools": [{"name": "stamp", "trust": True}]}, "_meta": {"tools": "all"}}
    made = await aap_client.post("/sessions", body)
    info = (await aap_client.get(f"/sessions/{made.json['sessionId']}")).json
    trust = {each["name"]: each.get("trust", False) for each in info["agent"]["tools"]}
    assert (trust["add"], trust["stamp"]) == (True, False)
    turn = {
        "messages": [{"role": "user", "content": script(calls(("add", {"a": 1, "b": 1}), ("stamp", {"text": "x"})))}]
    }
    stopped = (await aap_client.post(f"/sessions/{made.json['sessionId']}/turns", turn)).json
    assert stopped["stopReason"] == "tool_use"
    info = (await aap_client.get(f"/sessions/{made.json['sessionId']}")).json
    assert [each["name"] for each in info["_meta"]["pending"]] == ["stamp"]


@requirement("aap:meta-field:pending")
async def test_a_sessions_meta_lists_exactly_the_open_calls_with_their_kinds(aap_client: AapClient) -> None:
    session = await aap_client.create(
        server_tools=[*enabled_tools("add"), *enabled_tools("stamp", trust=False)], tools=[client_tool("paint")]
    )
    assert (await session.info())["_meta"].get("pending", []) == []
    step = calls(("stamp", {"text": "x"}), ("add", {"a": 1, "b": 1}), ("paint", {"c": 1}))
    asked = await session.run(script(step, {"say": "ok"}))
    stamp, _, paint = asked.calls
    pending = (await session.info())["_meta"]["pending"]
    assert [(each["toolCallId"], each["kind"], each["name"], each["input"]) for each in pending] == [
        (stamp.id, "permission", "stamp", {"text": "x"}),
        (paint.id, "client", "paint", {"c": 1}),
    ]
    await session.run([grant(stamp), result(paint, "y")])
    assert (await session.info())["_meta"].get("pending", []) == []


@requirement("aap:ids:from-one")
@pytest.mark.parametrize("mode", STREAMS)
async def test_every_turn_counts_its_events_from_one(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(server_tools=enabled_tools("add"))
    for _ in range(3):
        turn = await session.run(script({"say": "a"}, call("add", a=1, b=2), {"say": "b"}), mode)
        assert [frame.id for frame in turn.frames] == [str(number) for number in range(1, len(turn.frames) + 1)]


# --- idempotency ------------------------------------------------------------------------------------------------------


@requirement("aap:idempotency:create")
async def test_a_repeated_creation_gives_the_first_answer_and_no_second_session(
    open_app_server: AppServerFactory,
) -> None:
    async with open_app_server() as server:
        client, headers = server.aap_client("alice"), {"idempotency-key": "make-1"}
        body = {"agent": {"name": "rehearsal"}, "messages": [user("x")]}
        replies = [await client.post("/sessions", body, headers=headers) for _ in range(3)]
        assert {(reply.status, reply.body, reply.headers["location"]) for reply in replies} == {
            (201, replies[0].body, replies[0].headers["location"])
        }
        assert len((await client.get("/sessions")).json["sessions"]) == 1
        assert_refusal(
            await client.post("/sessions", {"agent": {"name": "rehearsal"}}, headers=headers),
            409,
            "idempotency_conflict",
        )
        assert len((await client.get("/sessions")).json["sessions"]) == 1


@requirement("aap:idempotency:create", "aap:idempotency:parallel")
async def test_fifty_creations_at_once_make_one_session(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        client, headers = server.aap_client("alice"), {"idempotency-key": "make-50"}
        body = {"agent": {"name": "rehearsal"}}
        replies = await asyncio.gather(*(client.post("/sessions", body, headers=headers) for _ in range(50)))
        assert {(reply.status, reply.body) for reply in replies} == {(201, replies[0].body)}
        assert len((await client.get("/sessions")).json["sessions"]) == 1


@requirement("aap:idempotency:turn", "aap:idempotency:stream")
@pytest.mark.parametrize("mode", MODES)
async def test_a_repeated_turn_gives_the_first_answer_to_the_byte_and_runs_once(
    aap_client: AapClient, mode: Mode
) -> None:
    session = await aap_client.create(server_tools=enabled_tools("add", "slow"))
    play = script({"say": "so"}, call("slow", seconds=0, tag=f"once-{mode}"), {"starts": f"once-{mode}"})
    headers = {"idempotency-key": f"turn-{session.id}"}
    first = await session.run(play, mode, headers=headers)
    await session.run("hello")  # what happened since changes nothing
    again = await session.run(play, mode, headers=headers)
    assert again.raw == first.raw
    assert first.text == "so1"
    assert [message["role"] for message in await session.history()] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]


@requirement("aap:idempotency:turn")
async def test_a_repeated_answer_gives_the_first_answer_and_not_a_refusal(aap_client: AapClient) -> None:
    session = await aap_client.create(tools=[client_tool("paint")])
    asked = await session.run(script(call("paint"), {"say": "{result}"}))
    headers = {"idempotency-key": f"answer-{session.id}"}
    answers = [result(asked.calls[0], "blue")]
    assert (await session.run(answers, headers=headers)).raw == (await session.run(answers, headers=headers)).raw
    assert_refusal(await session.post(answers), 400, "tool_call_resolved")


@requirement("aap:idempotency:parallel", "aap:idempotency:stream")
@pytest.mark.parametrize("mode", MODES)
async def test_fifty_duplicates_at_once_run_one_turn_and_all_get_its_answer(
    app_server: AppServer, mode: Mode, tool_gates: Any
) -> None:
    session = await app_server.aap_client("alice").create("gated", server_tools=enabled_tools("hold"))
    gate = f"fifty-{mode}"
    play = script({"say": "a"}, call("hold", gate=gate), {"say": "b"})
    headers = {"idempotency-key": gate}
    begun = app_server.connection.requests_started
    asking = [asyncio.create_task(session.run(play, mode, headers=headers)) for _ in range(50)]
    await tool_gates.entered(gate)
    await app_server.connection.requests_received(begun + 50)
    tool_gates.open(gate)
    turns = [await each for each in asking]
    assert {turn.raw for turn in turns} == {turns[0].raw}
    assert turns[0].text == "ab"
    assert [message["role"] for message in await session.history()] == ["user", "assistant", "tool", "assistant"]


@requirement("aap:idempotency:other-body", "aap:order:refusal-changes-nothing")
@pytest.mark.parametrize("mode", MODES)
async def test_the_same_key_with_another_body_is_409(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create()
    headers = {"idempotency-key": f"other-{session.id}"}
    await session.run("hello", mode, headers=headers)
    async with assert_unchanged(session):
        assert_refusal(await session.post([user("hello!")], headers=headers, stream=mode), 409, "idempotency_conflict")
        assert_refusal(
            await session.post([user("hello")], headers=headers, stream=mode, agent={"options": {"style": "loud"}}),
            409,
            "idempotency_conflict",
        )


@requirement("aap:idempotency:other-request")
async def test_a_key_that_another_request_used_never_gives_that_ones_answer(aap_client: AapClient) -> None:
    first, second = await aap_client.create(), await aap_client.create()
    headers = {"idempotency-key": f"other-{first.id}"}
    await first.run("hello", headers=headers)
    async with assert_unchanged(first, second):
        assert_refusal(await second.post([user("hello")], headers=headers), 409, "idempotency_conflict")
        assert_refusal(
            await aap_client.post("/sessions", {"agent": {"name": "rehearsal"}}, headers=headers),
            409,
            "idempotency_conflict",
        )
    await first.delete()
    assert_refusal(await first.post([user("hello")], headers=headers), 404, "session_not_found")


@requirement("aap:idempotency:by-owner")
async def test_two_owners_may_use_the_same_key(app_server: AppServer) -> None:
    headers = {"idempotency-key": "shared"}
    body = {"agent": {"name": "rehearsal"}}
    mine, hers = [
        await app_server.aap_client(name).post("/sessions", body, headers=headers) for name in ("alice", "bob")
    ]
    assert (mine.status, hers.status) == (201, 201)
    assert mine.json != hers.json


@requirement("aap:idempotency:refused")
async def test_a_refused_request_leaves_its_key_free(aap_client: AapClient, tool_gates: Any) -> None:
    session = await aap_client.create("gated", server_tools=enabled_tools("hold"))
    headers = {"idempotency-key": f"refused-{session.id}"}
    assert_refusal(await session.post([result("nowhere", "x")], headers=headers), 400, "unknown_tool_call")
    reading = await session.open(script(call("hold", gate="refused")))
    await tool_gates.entered("refused")
    assert_refusal(await session.post([user("busy")], headers=headers), 409, "turn_in_progress")
    tool_gates.open("refused")
    await reading.read_to_end()
    assert (await session.run("hello", headers=headers)).messages == [assistant_text("Hello!")]


@requirement("aap:idempotency:a-day")
async def test_a_key_is_remembered_for_24_hours(open_app_server: AppServerFactory) -> None:
    async with open_app_server(manual_clock=True) as server:
        headers, body = {"idempotency-key": "daily"}, {"agent": {"name": "rehearsal"}}
        first = await server.aap_client("alice").post("/sessions", body, headers=headers)
        server.clock.advance(days=2)  # as the clock of another server may say
        assert (await server.aap_client("alice").post("/sessions", body, headers=headers)).json == first.json
        server.clock.advance(hours=24)
        assert (await server.aap_client("alice").post("/sessions", body, headers=headers)).json == first.json


# --- faults of the server ---------------------------------------------------------------------------------------------


@requirement("aap:errors:table")
def test_every_refusal_of_the_core_has_its_answer_and_every_code_one_status() -> None:
    assert {*all_refusals(), *REQUEST_ERRORS} <= set(ERRORS.rows)
    assert len({(answer.code, answer.status) for answer in ERRORS.rows.values()}) == len(
        {answer.code for answer in ERRORS.rows.values()}
    )


@requirement("aap:errors:shutting-down")
async def test_a_server_that_stops_refuses_new_turns_with_503(
    open_app_server: AppServerFactory, tool_gates: Any
) -> None:
    async with open_app_server(drain_s=10) as server:
        client = server.aap_client("alice")
        session, other = await client.create("gated", server_tools=enabled_tools("hold")), await client.create()
        reading = await session.open(script(call("hold", gate="draining"), {"say": "through"}))
        await tool_gates.entered("draining")
        stopping = asyncio.create_task(server.stop())
        reply = await other.post([user("hello")])
        while reply.status == 200:  # until the order to stop has arrived
            reply = await other.post([user("hello")])
        assert_refusal(reply, 503, "shutting_down")
        assert int(reply.headers["retry-after"]) > 0
        tool_gates.open("draining")
        assert (await reading.read_to_end())[-1].data["stopReason"] == "end_turn"
        await stopping


@requirement("aap:errors:internal")
async def test_a_fault_of_ours_is_500_with_a_reference_and_no_details(open_app_server: AppServerFactory) -> None:
    faulty = Faulty("faulty")
    async with open_app_server(agents=[faulty]) as server:
        client = server.aap_client("alice")
        assert (await client.get("/meta")).status == 200
        faulty.is_broken = True
        reply = await client.get("/meta")
        body = reply.json
        assert (reply.status, body["code"]) == (500, "internal")
        assert set(body) == {"error", "code", "reference"}
        assert "fire" not in str(body)


@requirement("aap:errors:rate-limited")
async def test_too_many_requests_are_429_and_say_when_to_come_back(open_app_server: AppServerFactory) -> None:
    async with open_app_server(max_runs_per_user=2) as server:
        client, other = server.aap_client("alice"), server.aap_client("bob")
        readings = [await (await client.create()).open(script({"wait_ms": 600_000})) for _ in range(2)]
        for reading in readings:
            await reading.until("turn_start")
        session = await client.create()
        async with assert_unchanged(session):
            reply = await session.post([user("hello")])
            assert_refusal(reply, 429, "rate_limited")
            assert int(reply.headers["retry-after"]) > 0
        assert (await (await other.create()).run("hello")).stop == "end_turn"


@requirement("aap:errors:rate-limited")
async def test_a_stream_whose_reader_left_is_given_back(open_app_server: AppServerFactory) -> None:
    async with open_app_server(heartbeat_s=0.1, max_streams_per_user=1) as server:
        session = await server.aap_client("alice").create()
        target, lines = f"/aap/v3{session.path}/events", [("authorization", f"Bearer {server.key('alice')}")]
        first = await server.connection.open("GET", target, headers=lines)
        assert first.status == 200
        assert_refusal(await session.events(), 429, "rate_limited")
        await first.disconnect()
        await first.wait_until_released()
        second = await session.watch()
        await second.disconnect()
