"""Answers to calls that wait, the profile, and what any bytes at all can do."""

import json
import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.protocols.agui.run_service.rules import RuleContext, RuleViolation, check, decode_run
from dragoman.protocols.agui.run_service.wire import (
    decode_answers,
    decode_profile,
    parse_day,
    parse_event_id,
)
from dragoman.protocols.kit.errors import InvalidBody, InvalidJson
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.endpoint_streams import open_call, resume, started
from tests.protocols.agui.run_service import Frame, RunServiceClient, new_thread, problem, run_input, script
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

Json = Any
STAMP = {"call": {"name": "stamp", "input": {"text": "x"}}}
PAINT = {"name": "paint", "description": "", "parameters": {"type": "object"}}


@pytest.fixture
def alice(app_server: AppServer) -> RunServiceClient:
    return RunServiceClient(app_server.connection, app_server.key("alice"))


def text_of_frames(frames: list[Frame]) -> str:
    return "".join(frame.event["delta"] for frame in frames if frame.type == "TEXT_MESSAGE_CONTENT")


def calls(frames: list[Frame]) -> list[str]:
    return [frame.event["toolCallId"] for frame in frames if frame.type == "TOOL_CALL_START"]


# --- answers ----------------------------------------------------------------------------------------------------------


@requirement("runs:answers:accepted")
async def test_an_answer_starts_the_run_that_continues(alice: RunServiceClient) -> None:
    thread = new_thread()
    frames = await alice.play(thread, script(STAMP, {"say": "Then: {result}"}))
    outcome = frames[-1].event["outcome"]
    assert outcome["type"] == "interrupt"
    (interrupt,) = outcome["interrupts"]
    assert (interrupt["reason"], interrupt["toolCallId"]) == ("tool_call", calls(frames)[0])
    reply = await alice.post(f"/runs/{thread}/answers", {"answers": [{"callId": interrupt["id"], "granted": True}]})
    body = reply.json
    assert (reply.status, list(body)) == (202, ["taskId", "threadId", "runId", "created", "pending"])
    assert (body["threadId"], body["created"], body["pending"]) == (thread, False, [])
    assert body["taskId"] == body["runId"]
    rest = await alice.events(thread, body["runId"])
    assert [frame.type for frame in rest] == [
        "RUN_STARTED",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert text_of_frames(rest) == "Then: stamped x"


@requirement("runs:answers:accepted", "runs:events:extras")
async def test_the_result_of_an_allowed_call_comes_with_its_arguments_wherever_reading_begins(
    alice: RunServiceClient,
) -> None:
    thread = new_thread()
    paused = await alice.play(thread, script(STAMP, {"say": "Then: {result}"}))
    async with alice.watch(thread) as watch:
        await watch.until("RUN_FINISHED")
        answers = {"answers": [{"callId": calls(paused)[0], "granted": True}]}
        run = (await alice.post(f"/runs/{thread}/answers", answers)).json["runId"]
        live = (await watch.until("RUN_FINISHED", 2))[len(paused) :]
    assert live[1].event["tool_call_args"] == {"text": "x"}
    assert await alice.events(thread, run) == live
    assert await alice.events(thread, run, after=live[0].id) == live[1:]
    async with alice.watch(thread) as watch:
        assert await watch.until("RUN_FINISHED") == live
    async with alice.watch(thread, after=paused[-1].id) as watch:
        assert await watch.until("RUN_FINISHED") == live


@requirement("runs:answers:kinds")
@pytest.mark.parametrize(
    ("answer", "said", "status"),
    [
        ({"result": "half", "error": "no paint"}, "half\n\nno paint", "failure"),
        ({"result": "no paint left", "error": "no paint"}, "no paint left", "failure"),
        ({"error": "no paint"}, "no paint", "failure"),
        ({"error": ""}, "", "failure"),
    ],
)
async def test_a_front_end_tool_may_answer_with_an_error(
    alice: RunServiceClient, answer: Json, said: str, status: str
) -> None:
    thread = new_thread()
    paint = {"call": {"name": "paint", "input": {}}}
    (call_id,) = calls(await alice.play(thread, script(paint, {"say": "{result}"}), tools=[PAINT]))
    wrong = await alice.post(f"/runs/{thread}/answers", {"answers": [{"callId": call_id, "selections": ["a"]}]})
    assert wrong.status == 422
    assert "asks no question" in wrong.json["detail"]
    accepted = (await alice.post(f"/runs/{thread}/answers", {"answers": [{"callId": call_id, **answer}]})).json
    frames = await alice.events(thread, accepted["taskId"])
    assert text_of_frames(frames) == said
    messages = (await Endpoint(alice.connection, alice.key).messages(thread))[1:]
    (result,) = [each for each in messages if each["role"] == "tool"]
    assert (result["content"], result["error"]) == (said, said)


@requirement("runs:answers:kinds")
async def test_an_approval_takes_no_error_and_a_question_no_permission(alice: RunServiceClient) -> None:
    for text, answer, reason in (
        (script(STAMP), {"error": "x"}, "takes no error"),
        (script(STAMP), {"granted": True, "error": "x"}, "only one of these"),
        ("ask me", {"granted": True}, "not granted"),
    ):
        thread = new_thread()
        (call_id,) = calls(await alice.play(thread, text))
        reply = await alice.post(f"/runs/{thread}/answers", {"answers": [{"callId": call_id, **answer}]})
        assert (reply.status, reply.json["code"]) == (422, "AGENT_RUN_INPUT_INVALID")
        assert reason in reply.json["detail"]


@requirement("runs:answers:one-by-one")
async def test_answers_are_accepted_one_by_one_and_the_last_one_continues_the_run(alice: RunServiceClient) -> None:
    thread = new_thread()
    both = {"calls": [STAMP["call"], {"name": "paint", "input": {}}]}
    paused = await alice.play(thread, script(both, {"say": "{results}"}), tools=[PAINT])
    stamp, paint = calls(paused)
    first = (await alice.post(f"/runs/{thread}/answers", {"answers": [{"callId": stamp, "granted": True}]})).json
    assert (first["runId"], first["pending"]) == ("r-1", [paint])
    second = (
        await alice.post(f"/runs/{thread}/answers", {"answers": [{"callId": paint, "result": {"c": "red"}}]})
    ).json
    assert second["pending"] == []
    assert text_of_frames(await alice.events(thread, second["runId"])) == 'stamped x, {"c":"red"}'


@requirement("runs:answers:once")
async def test_an_answer_is_accepted_once(alice: RunServiceClient) -> None:
    thread = new_thread()
    (call,) = calls(await alice.play(thread, script(STAMP, {"say": "{result}"})))
    body = {"answers": [{"callId": call, "granted": False, "reason": "not today"}]}
    accepted = (await alice.post(f"/runs/{thread}/answers", body)).json
    assert text_of_frames(await alice.events(thread, accepted["runId"])) == "Tool call denied: not today"
    again = await alice.post(f"/runs/{thread}/answers", body)
    assert (again.status, again.json["code"]) == (409, "AGENT_RUN_CONFLICT")


@requirement("runs:answers:wrong")
async def test_an_answer_to_no_open_call_is_refused_and_executes_nothing(alice: RunServiceClient) -> None:
    thread = new_thread()
    (call,) = calls(await alice.play(thread, script(STAMP, {"say": "{result}"})))
    for answers in (
        [{"callId": "never-made", "granted": True}],
        [{"callId": call}],
        [{"callId": call, "granted": True, "result": "x"}],
        [{"callId": call, "selections": [0]}, {"callId": call, "granted": True}],
        [{"callId": call, "granted": True}, {"callId": call, "granted": True}],
        [],
        [{"granted": True}],
        [{"callId": call, "granted": "yes"}],
        "x",
    ):
        reply = await alice.post(f"/runs/{thread}/answers", {"answers": answers})
        assert (reply.status, reply.json["code"]) == (422, "AGENT_RUN_INPUT_INVALID"), answers
    reply = await alice.post(f"/runs/{thread}/answers", b"{")
    assert reply.json == problem(
        422,
        "AGENT_RUN_INPUT_INVALID",
        "the body is not JSON: it ends within a value",
        errors=[{"loc": [], "msg": "the body is not JSON: it ends within a value"}],
    )
    reply = await alice.post(f"/runs/{thread}/answers", {"answers": [{"callId": call, "granted": "yes"}]})
    assert reply.json == problem(
        422,
        "AGENT_RUN_INPUT_INVALID",
        "answers[0].granted: Expected `bool | null`, got `str`",
        errors=[{"loc": ["answers", 0, "granted"], "msg": "Expected `bool | null`, got `str`"}],
    )
    accepted = (await alice.post(f"/runs/{thread}/answers", {"answers": [{"callId": call, "granted": True}]})).json
    assert text_of_frames(await alice.events(thread, accepted["runId"])) == "stamped x"


@requirement("runs:answers:wrong")
async def test_answers_are_limited_by_the_servers_body_limit(open_app_server: AppServerFactory) -> None:
    async with open_app_server(body_bytes=2048) as server:
        alice, thread = RunServiceClient(server.connection, server.key("alice")), new_thread()
        await alice.play(thread)
        reply = await alice.post(f"/runs/{thread}/answers", {"answers": [{"callId": "x", "result": "y" * 3000}]})
        assert (reply.status, reply.json["code"]) == (413, "AGENT_RUN_INPUT_INVALID")


@requirement("runs:answers:busy")
async def test_answers_are_refused_while_a_run_is_active(alice: RunServiceClient) -> None:
    thread = new_thread()
    await alice.submit(run_input(thread, script({"wait_ms": 600_000})))
    reply = await alice.post(f"/runs/{thread}/answers", {"answers": [{"callId": "x", "granted": True}]})
    assert (reply.status, reply.json["code"]) == (409, "AGENT_RUN_CONFLICT")
    await alice.post(f"/runs/{thread}/cancel?runId=r-1", b"")


@requirement("runs:answers:question")
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"selections": ["production"]}, "production"),
        ({"selections": {"0": [0]}}, "staging"),
        ({"custom": "neither"}, "neither"),
        ({"result": "as you like"}, "as you like"),
    ],
    ids=["label", "index", "custom", "result"],
)
async def test_a_question_is_answered_by_a_selection_or_free_text_over_the_run_service(
    alice: RunServiceClient, answer: Json, text: str
) -> None:
    thread = new_thread()
    frames = await alice.play(thread, "ask me")
    (interrupt,) = frames[-1].event["outcome"]["interrupts"]
    assert interrupt["reason"] == "input_required"
    reply = await alice.post(f"/runs/{thread}/answers", {"answers": [{"callId": interrupt["id"], **answer}]})
    assert text_of_frames(await alice.events(thread, reply.json["runId"])) == f"You chose {text}."


@requirement("runs:answers:tools-and-time-go-on")
async def test_the_continued_run_has_the_tools_and_the_time_of_the_run_that_asked(alice: RunServiceClient) -> None:
    thread = new_thread()
    zone = {"device_timezone": "Asia/Kolkata", "client_now_iso": "2026-03-16T09:12:33Z", "client_epoch_ms": 1}
    text = script(STAMP, {"props": "time_zone"}, {"call": {"name": "paint", "input": {}}})
    props = {"agent_type": "rehearsal", "client_time": zone}
    frames = await alice.play(thread, text, tools=[PAINT], parentRunId="r-0", forwardedProps=props)
    (call,) = calls(frames)
    accepted = (await alice.post(f"/runs/{thread}/answers", {"answers": [{"callId": call, "granted": True}]})).json
    rest = await alice.events(thread, accepted["runId"])
    assert text_of_frames(rest) == "Asia/Kolkata"
    assert "parentRunId" not in rest[0].event
    assert rest[-1].event["outcome"] == {"type": "success", "pendingToolCallIds": calls(rest)}


CANCELLED = "Tool call cancelled: a new user message arrived"


@requirement("runs:tools:closed", "runs:events:ids", "runs:events:last-event-id")
async def test_a_call_that_a_new_message_closes_has_its_result_in_that_run(alice: RunServiceClient) -> None:
    thread = new_thread()
    waiting = await alice.play(thread, script(STAMP))
    async with alice.watch(thread, after=waiting[-1].id) as watcher:
        frames = await alice.play(thread, "hello", "r-2")
        live = await watcher.until("RUN_FINISHED")
    assert frames == live == await alice.events(thread, "r-2")
    assert [frame.type for frame in frames][:3] == ["RUN_STARTED", "TOOL_CALL_RESULT", "TEXT_MESSAGE_START"]
    closed = frames[1].event
    assert (closed["toolCallId"], closed["runId"], closed["content"]) == (calls(waiting)[0], "r-2", CANCELLED)
    assert (closed["tool_name"], closed["tool_call_args"], closed["status"]) == ("stamp", {"text": "x"}, "failure")
    for place, frame in enumerate(frames[:-1]):
        async with alice.watch(thread, after=frame.id) as resumed:
            assert await resumed.until("RUN_FINISHED") == frames[place + 1 :]
    async with alice.watch(thread) as newest:
        assert await newest.until("RUN_FINISHED") == frames


@requirement("runs:events:run-filter", "runs:status:get", "runs:cancel:accepted")
async def test_a_run_that_answers_over_the_standard_endpoint_is_found_by_its_id(alice: RunServiceClient) -> None:
    thread, endpoint = new_thread(), Endpoint(alice.connection, alice.key)
    (call_id,) = calls(await alice.play(thread, script(STAMP, {"say": "Then: {result}"})))
    answer = resume(call_id, {"approved": True})
    await endpoint.run(an_input(thread=thread, messages=[], resume=[answer], runId="r-2"))
    assert text_of_frames(await alice.events(thread, "r-2")) == "Then: stamped x"
    assert (await alice.get(f"/runs/{thread}?runId=r-2")).json["status"] == "completed"
    assert (await alice.request("POST", f"/runs/{thread}/cancel?runId=r-2")).json["accepted"] is False
    assert (await alice.get(f"/runs/{thread}?runId=r-3")).status == 404


@requirement("runs:events:run-filter", "runs:status:get", "runs:cancel:accepted")
async def test_an_id_that_two_runs_of_the_standard_endpoint_have_means_the_newest(alice: RunServiceClient) -> None:
    """As with CopilotKit, which answers with the id of the run that asked."""
    thread, endpoint = new_thread(), Endpoint(alice.connection, alice.key)
    body = an_input(script(STAMP, {"say": "Then: {result}"}, {"wait_ms": 600_000}), thread=thread, runId="r-1")
    call_id = await open_call(endpoint, body)
    assert (await alice.get(f"/runs/{thread}?runId=r-1")).json["status"] == "waiting"
    answering = await started(endpoint, {**body, "resume": [resume(call_id, {"approved": True})]})
    assert (await alice.get(f"/runs/{thread}?runId=r-1")).json["status"] == "running"
    assert (await alice.request("POST", f"/runs/{thread}/cancel?runId=r-1")).json["accepted"] is True
    await answering.read_to_end()
    assert text_of_frames(await alice.events(thread, "r-1")) == "Then: stamped x"
    assert (await alice.get(f"/runs/{thread}?runId=r-1")).json["status"] == "cancelled"


@requirement("runs:tools:closed", "runs:submit:queue")
async def test_a_queued_run_that_closes_a_call_has_its_result(alice: RunServiceClient) -> None:
    thread = new_thread()
    await alice.submit(run_input(thread, script({"say": "one"}, {"wait_ms": 100}, STAMP)))
    await alice.submit(run_input(thread, "hello", "r-2"))
    frames = await alice.events(thread, "r-2")
    assert [frame.type for frame in frames][:3] == ["RUN_STARTED", "TOOL_CALL_RESULT", "TEXT_MESSAGE_START"]
    (call_id,) = calls(await alice.events(thread, "r-1"))
    assert (frames[1].event["toolCallId"], frames[1].event["tool_call_args"]) == (call_id, {"text": "x"})
    assert frames == await alice.events(thread, "r-2")


@requirement("runs:tools:closed")
async def test_a_call_of_a_sub_agent_that_a_new_message_closes_has_its_result(alice: RunServiceClient) -> None:
    thread = new_thread()
    waiting = await alice.play(thread, script({"fork": {"description": "pay", "script": [STAMP]}}))
    frames = await alice.play(thread, "hello", "r-2")
    results = {frame.event["toolCallId"] for frame in frames if frame.type == "TOOL_CALL_RESULT"}
    assert results == set(calls(waiting))


# --- the profile ------------------------------------------------------------------------------------------------------


@requirement("runs:profile:settings")
async def test_a_profile_survives_restarts(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        alice = RunServiceClient(server.connection, server.key("alice"))

        async def patch(**settings_: Json) -> Json:
            reply = await alice.request(
                "PATCH", "/profile", json.dumps({"settings": settings_}).encode(), content_type="application/json"
            )
            assert reply.status == 200, reply
            return reply.json

        assert (await alice.get("/profile")).json == {
            "userId": "alice",
            "settings": {"timezone": None, "locale": None},
        }
        await patch(timezone="Europe/Berlin")
        both = {"userId": "alice", "settings": {"timezone": "Europe/Berlin", "locale": "de-DE"}}
        assert await patch(locale="de-DE") == both
        await server.restart()
        alice = RunServiceClient(server.connection, server.key("alice_phone"))
        assert (await alice.get("/profile")).json == both
        bob = RunServiceClient(server.connection, server.key("bob"))
        assert (await bob.get("/profile")).json["settings"] == {"timezone": None, "locale": None}
        assert (await patch(timezone=None))["settings"] == {"timezone": None, "locale": "de-DE"}
        reader = RunServiceClient(server.connection, server.key("alice_reads"))
        denied = await reader.request("PATCH", "/profile", b'{"settings":{}}', content_type="application/json")
        assert denied.status == 403


@requirement("runs:profile:wrong")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"settings":{"timezone":"Mars/Olympus"}}',
        b'{"settings":{"timezone":1}}',
        b'{"settings":{"locale":"de_DE"}}',
        b'{"settings":{"locale":""}}',
    ],
)
async def test_an_invalid_time_zone_or_language_is_422(alice: RunServiceClient, body: bytes) -> None:
    reply = await alice.request("PATCH", "/profile", body, content_type="application/json")
    assert (reply.status, reply.json["code"]) == (422, "AGENT_RUN_INPUT_INVALID")


# --- any bytes --------------------------------------------------------------------------------------------------------

WORLD = RuleContext(is_agent=lambda name: True, is_link=lambda url: True)
NAMES = st.sampled_from(
    [
        *("threadId", "thread_id", "runId", "messages", "tools", "context", "forwardedProps", "state", "role", "id"),
        *("content", "type", "text", "url", "mimeType", "source", "value", "agent_type", "client_time", "toolCalls"),
        *("function", "name", "arguments", "answers", "callId", "settings", "timezone"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["user", "text"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=20,
)


@requirement("runs:fuzz:decode")
@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=500, deadline=None)
def test_any_bytes_decode_as_a_run_or_break_a_rule(raw: bytes) -> None:
    with suppress(RuleViolation):
        check(decode_run(raw), WORLD)
    for decode in (decode_answers, decode_profile):
        with suppress(InvalidJson, InvalidBody):
            decode(raw)
    text = raw.decode("utf-8", "replace")
    parse_day(text)
    parse_event_id(text)


def mutated(raw: bytes, chance: random.Random) -> bytes:
    """A body that is a little wrong."""
    place = chance.randrange(len(raw) + 1)
    return chance.choice(
        (
            raw[:place] + bytes([chance.randrange(256)]) + raw[place + 1 :],
            raw[:place],
            raw[:place] + raw[place + 1 :],
            raw[:place] + chance.choice((b"null", b"[]", b"{}", b"1e999", b'"\\ud800"', b"\x00")) + raw[place:],
        )
    )


@requirement("runs:fuzz:no-500")
async def test_slightly_wrong_bodies_are_answered_with_4xx_or_accepted(alice: RunServiceClient) -> None:
    chance, thread = random.Random(4), new_thread()
    run = json.dumps(run_input(thread, [{"type": "text", "text": "hi"}], tools=[PAINT], state={"a": [1]})).encode()
    for path, raw in (
        ("/runs", run),
        (f"/runs/{thread}/answers", b'{"answers":[{"callId":"x","granted":true,"reason":"y"}]}'),
        ("/attachments", b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n--x--'),
        ("/transcribe", b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n--x--'),
    ):
        kind = "application/json" if raw.startswith(b"{") else "multipart/form-data; boundary=x"
        for _ in range(150):
            reply = await alice.request("POST", path, mutated(raw, chance), content_type=kind)
            assert reply.status == 202 or 400 <= reply.status < 500, reply


@requirement("runs:fuzz:no-500")
async def test_unusual_queries_and_paths_are_answered_with_4xx(alice: RunServiceClient) -> None:
    thread = new_thread()
    await alice.play(thread)
    for path in (
        "/history?threadId=%00",
        "/history?threadId=%ff%fe",
        "/history?before=%00",
        f"/runs/{thread}/events?runId=%00",
        f"/runs/{thread}/events?idle_limit=%D9%A3",
        f"/runs/{thread}%00/events",
        f"/runs/{thread}//events",
        "/runs//events",
        "/sessions/",
        "/attachments/content",
        "/attachments/content/",
        "/attachments/content/%00?expires=1&signature=",
        "/attachments/signed-url?bucket=%00&path=%00",
        "/%2e%2e/%2e%2e",
    ):
        reply = await alice.get(path)
        assert 400 <= reply.status < 500, (path, reply)
