"""The event stream of a thread: what it says, where it begins, and that no cut loses or repeats anything."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from dragoman import AgentError, Run, agent, tool
from dragoman.protocols.agui.run_service.wire import EventId, parse_event_id
from tests.extent import extent
from tests.protocols.agui.run_service import Frame, RunServiceClient, new_thread, parse, problem, run_input, script
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

Json = Any
FIRST_ID = "0-0"
LONG = script({"say": "one"}, {"wait_ms": 600_000}, {"say": "two"})


@pytest.fixture
def alice(app_server: AppServer) -> RunServiceClient:
    return RunServiceClient(app_server.connection, app_server.key("alice"))


def normalize_frames(frames: list[Frame]) -> list[Json]:
    """Events without what differs from run to run: times and ids of ours, which stand as their order."""
    names: dict[str, str] = {}

    def named(name: str, value: Json) -> Json:
        if name in ("messageId", "parentMessageId", "toolCallId", "tool_call_id"):
            return names.setdefault(value, f"id-{len(names) + 1}")
        return value

    return [
        {name: named(name, value) for name, value in frame.event.items() if name not in ("timestamp", "threadId")}
        for frame in frames
    ]


def text_of_frames(frames: list[Frame]) -> str:
    return "".join(frame.event["delta"] for frame in frames if frame.type == "TEXT_MESSAGE_CONTENT")


# --- what it says -----------------------------------------------------------------------------------------------------


@requirement("runs:events:whole", "runs:events:extras", "runs:events:no-figures")
async def test_a_run_with_a_call_has_all_events_with_the_fields_of_this_service(alice: RunServiceClient) -> None:
    frames = await alice.play(
        new_thread(),
        script(
            {"say": "Let me see. "}, {"call": {"name": "add", "input": {"a": 1, "b": 2}}}, {"say": "It is {result}."}
        ),
    )
    own = {"runId": "r-1"}
    call = {"toolCallId": "id-2", "messageId": "id-1"}
    assert normalize_frames(frames) == [
        {"type": "RUN_STARTED", "runId": "r-1", "protocolVersion": "1.0"},
        {"type": "TEXT_MESSAGE_START", "messageId": "id-1", "role": "assistant", **own},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "id-1", "delta": "Let me see. ", **own},
        {
            "type": "TEXT_MESSAGE_END",
            "messageId": "id-1",
            "role": "assistant",
            "status": "success",
            "answer": "Let me see. ",
            "key_points": [],
            **own,
        },
        {"type": "TOOL_CALL_START", "toolCallName": "add", "parentMessageId": "id-1", **call, **own},
        {
            "type": "TOOL_CALL_ARGS",
            "delta": '{"a":1,"b":2}',
            "toolCallName": "add",
            "args": {"a": 1, "b": 2},
            **call,
            **own,
        },
        {"type": "TOOL_CALL_END", "toolCallName": "add", **call, **own},
        {
            "type": "TOOL_CALL_RESULT",
            "messageId": "id-3",
            "toolCallId": "id-2",
            "role": "tool",
            "content": "3",
            "tool_name": "add",
            "tool_call_id": "id-2",
            "tool_call_args": {"a": 1, "b": 2},
            "status": "success",
            "result": "3",
            **own,
        },
        {"type": "TEXT_MESSAGE_START", "messageId": "id-4", "role": "assistant", **own},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "id-4", "delta": "It is 3.", **own},
        {
            "type": "TEXT_MESSAGE_END",
            "messageId": "id-4",
            "role": "assistant",
            "status": "success",
            "answer": "It is 3.",
            "key_points": [],
            **own,
        },
        {"type": "RUN_FINISHED", "runId": "r-1", "outcome": {"type": "success"}},
    ]


@requirement("runs:events:extras")
async def test_a_failed_call_has_an_error(alice: RunServiceClient) -> None:
    frames = await alice.play(new_thread(), script({"call": {"name": "boom", "input": {}}}))
    result = next(frame.event for frame in frames if frame.type == "TOOL_CALL_RESULT")
    message = "Tool execution failed: boom"
    assert (result["status"], result["result"], result["error"]) == ("failure", message, message)


@requirement("runs:events:error")
async def test_a_run_that_fails_ends_with_an_error_without_internals(alice: RunServiceClient) -> None:
    frames = await alice.play(new_thread(), script({"say": "half"}, {"fail": "secret details"}))
    end = {name: value for name, value in frames[-1].event.items() if name not in ("timestamp", "threadId")}
    assert end == {
        "type": "RUN_ERROR",
        "message": "runtime execution failed",
        "code": "agent_error",
        "runId": "r-1",
    }
    assert frames[-2].event["status"] == "failed"
    assert "secret" not in str([frame.event for frame in frames])
    own = await alice.play(new_thread(), script({"fail": {"code": "no_stock", "message": "There is none left"}}))
    assert (own[-1].event["code"], own[-1].event["message"]) == ("no_stock", "There is none left")


@requirement("runs:events:cancelled")
async def test_a_cancelled_run_closes_what_it_opened(alice: RunServiceClient) -> None:
    thread = new_thread()
    await alice.submit(run_input(thread, LONG))
    async with alice.watch(thread, "?runId=r-1") as watch:
        await watch.until("TEXT_MESSAGE_CONTENT")
        await alice.post(f"/runs/{thread}/cancel?runId=r-1", b"")
        frames = await watch.read_to_end()
    assert [frame.type for frame in frames[-2:]] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert (frames[-2].event["status"], frames[-2].event["answer"]) == ("partial_success", "one")
    assert frames[-1].event["outcome"] == {"type": "cancelled"}


@requirement("runs:events:left-out")
async def test_plans_images_and_sub_agents_are_left_out_and_reasoning_is_sent(alice: RunServiceClient) -> None:
    steps = (
        {"think": "hm"},
        {"plan": {"status": "draft", "steps": [{"title": "dig", "status": "pending"}]}},
        {"image": "https://example.org/x.png"},
        {"data": {"a": 1}},
        {"say": "so"},
        {"fork": {"description": "d", "script": [{"say": "gold"}]}},
        {"say": "{result}"},
    )
    frames = await alice.play(new_thread(), script(*steps))
    assert [frame.type for frame in frames] == [
        "RUN_STARTED",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert text_of_frames(frames) == "sogold"


@tool
def look() -> str:
    """Look."""
    return "seen"


@agent(tools=[look])
async def worker(run: Run) -> AsyncIterator[str]:
    """Works in stages, and needs no model."""
    run.stage("router")
    yield "I look. "
    await run.call(look)
    run.stage("worker")
    yield "I work."
    if run.text == "fail":
        raise AgentError("tired", "The worker is tired")


@requirement("runs:events:stages")
async def test_an_agent_with_stages_sends_steps_and_the_stage_of_each_event(
    open_app_server: AppServerFactory,
) -> None:
    async with open_app_server(agents=(worker,), rehearsal=False) as server:
        alice, thread = RunServiceClient(server.connection, server.key("alice")), new_thread()
        own = {"agent_type": "worker"}
        frames = await alice.play(thread, forwardedProps=own)
        steps = [(frame.type, frame.event.get("stepName"), frame.event.get("stage")) for frame in frames]
        assert steps == [
            ("RUN_STARTED", None, None),
            ("STEP_STARTED", "router", None),
            ("TEXT_MESSAGE_START", None, "router"),
            ("TEXT_MESSAGE_CONTENT", None, "router"),
            ("TEXT_MESSAGE_END", None, "router"),
            ("TOOL_CALL_START", None, "router"),
            ("TOOL_CALL_ARGS", None, "router"),
            ("TOOL_CALL_END", None, "router"),
            ("TOOL_CALL_RESULT", None, "router"),
            ("STEP_FINISHED", "router", None),
            ("STEP_STARTED", "worker", None),
            ("TEXT_MESSAGE_START", None, "worker"),
            ("TEXT_MESSAGE_CONTENT", None, "worker"),
            ("TEXT_MESSAGE_END", None, "worker"),
            ("STEP_FINISHED", "worker", None),
            ("RUN_FINISHED", None, None),
        ]
        step = {name: value for name, value in frames[1].event.items() if name != "timestamp"}
        assert step == {"type": "STEP_STARTED", "stepName": "router", "threadId": thread, "runId": "r-1"}
        failed = await alice.play(thread, "fail", "r-2", forwardedProps=own)
        assert failed[-1].type == "RUN_ERROR"
        assert "stage" not in failed[-1].event
        plain = await alice.play(thread, "hello", "r-3", forwardedProps=own)
        assert [frame.type for frame in plain].count("STEP_STARTED") == 2


@requirement("runs:events:no-figures")
async def test_a_failed_run_has_no_token_counts(alice: RunServiceClient) -> None:
    used = {"usage": {"input_tokens": 5, "output_tokens": 6}}
    frames = await alice.play(new_thread(), script({"say": "a"}, used, {"step": True}, {"fail": "x"}))
    assert "usage" not in frames[-1].event


@requirement("runs:events:parent")
async def test_the_parent_run_id_is_returned(alice: RunServiceClient) -> None:
    frames = await alice.play(new_thread(), parentRunId="r-0")
    assert frames[0].event["parentRunId"] == "r-0"


# --- ids and positions ------------------------------------------------------------------------------------------------


@requirement("runs:events:ids")
async def test_ids_grow_along_the_thread_and_repeat_in_every_replay(alice: RunServiceClient) -> None:
    thread = new_thread()
    first = await alice.play(thread, script({"say": ["a", "b"]}, {"call": {"name": "add", "input": {"a": 1, "b": 1}}}))
    second = await alice.play(thread, "hello", "r-2")
    ids = [parse_event_id(frame.id) for frame in first + second]
    assert None not in ids
    assert ids == sorted(set(ids))  # type: ignore[type-var]  # none is None
    assert await alice.events(thread, "r-1") == first
    async with alice.watch(thread, after=FIRST_ID) as watch:
        assert await watch.until("RUN_FINISHED", 2) == first + second


@requirement("runs:events:start")
async def test_without_a_position_the_stream_begins_with_the_newest_run(
    alice: RunServiceClient,
) -> None:
    thread = new_thread()
    await alice.play(thread, "one", "r-1")
    second = await alice.play(thread, "two", "r-2")
    async with alice.watch(thread) as watch:
        assert await watch.until("RUN_FINISHED") == second
        await alice.submit(run_input(thread, "three", "r-3"))
        assert (await watch.until("RUN_FINISHED", 2))[len(second) :] == await alice.events(thread, "r-3")


@requirement("runs:events:never-issued")
async def test_an_id_that_was_never_issued_is_a_valid_position(alice: RunServiceClient) -> None:
    thread = new_thread()
    frames = await alice.play(thread)
    assert await alice.events(thread, "r-1", FIRST_ID) == frames
    between = [frame for frame in frames if parse_event_id(frame.id) > EventId(3, 999)]  # type: ignore[operator]
    assert await alice.events(thread, "r-1", "3-999") == between
    async with alice.watch(thread, after="9" * 5000 + "-0") as watch:
        await alice.play(thread, "hello", "r-2")
        assert watch.frames == []
    future = EventId(parse_event_id(frames[-1].id).seq + 1, 0)  # type: ignore[union-attr]
    async with alice.watch(thread, after=str(future)) as watch:
        assert (await watch.until("RUN_FINISHED"))[0].type == "TEXT_MESSAGE_START"


@requirement("runs:events:last-event-id")
@pytest.mark.parametrize("value", ["", "x", "1", "1-", "-1", "1-0 ", "1:0", "1-0-0", "٣-0", "1.0-0"])
async def test_a_malformed_position_is_422(alice: RunServiceClient, value: str) -> None:
    thread = new_thread()
    await alice.play(thread)
    path = f"/runs/{thread}/events"
    expected = problem(422, "AGENT_INVALID_LAST_EVENT_ID", "Last-Event-ID must be the id of an event, such as 12-0")
    if value.isascii():
        assert (await alice.request("GET", path, last_event_id=value)).json == expected
    reply = await alice.get(f"{path}?Last-Event-ID={'%D9%A3-0' if not value.isascii() else value.replace(' ', '%20')}")
    assert reply.json == expected


@requirement("runs:events:last-event-id")
async def test_the_header_wins_over_the_query(alice: RunServiceClient) -> None:
    thread = new_thread()
    frames = await alice.play(thread)
    last = frames[-2].id
    stream = await alice.open(thread, f"?runId=r-1&Last-Event-ID={FIRST_ID}", last)
    assert parse(await stream.read()) == frames[-1:]
    stream = await alice.open(thread, f"?runId=r-1&Last-Event-ID={last}")
    assert parse(await stream.read()) == frames[-1:]


@requirement("runs:events:idle-limit")
@pytest.mark.parametrize("value", ["0", "3601", "-1", "1.5", "x", "", "+1", "99999"])
async def test_an_idle_limit_out_of_its_range_is_422(alice: RunServiceClient, value: str) -> None:
    thread = new_thread()
    await alice.play(thread)
    reply = await alice.get(f"/runs/{thread}/events?idle_limit={value.replace('+', '%2B')}")
    expected = problem(422, "AGENT_RUN_INPUT_INVALID", "idle_limit must be an integer from 1 to 3600")
    assert (reply.status, reply.json) == (422, expected)


@requirement("runs:events:idle-limit", "runs:events:keep-alive")
async def test_a_stream_sends_keep_alives_and_ends_after_the_idle_limit(
    open_app_server: AppServerFactory,
) -> None:
    async with open_app_server(heartbeat_s=0.1) as server:
        alice, thread = RunServiceClient(server.connection, server.key("alice")), new_thread()
        await alice.submit(run_input(thread, LONG))
        async with alice.watch(thread, "?idle_limit=1") as watch:
            await watch.read_to_end()
        assert [frame.type for frame in watch.frames] == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]
        assert watch.raw.count(b": keep-alive\n\n") > 1


@requirement("runs:events:run-filter")
async def test_with_a_run_id_the_stream_has_that_run_alone_and_ends_with_it(alice: RunServiceClient) -> None:
    thread = new_thread()
    await alice.submit(run_input(thread, "one", "r-1"))
    task = (await alice.submit(run_input(thread, "two", "r-2")))["taskId"]
    await alice.submit(run_input(thread, "three", "r-3"))
    frames = await alice.events(thread, "r-2")
    assert {frame.event["runId"] for frame in frames} == {"r-2"}
    assert frames[-1].type == "RUN_FINISHED"
    assert await alice.events(thread, task) == frames
    unknown = await alice.get(f"/runs/{thread}/events?runId=r-9")
    assert (unknown.status, unknown.json) == (404, problem(404, "AGENT_RUN_NOT_FOUND", "this thread has no such run"))
    for wrong in ("", "r" * 129):
        reply = await alice.get(f"/runs/{thread}/events?runId={wrong}")
        assert (reply.status, reply.json["code"]) == (422, "AGENT_INVALID_RUN_ID")


@requirement("runs:events:limit")
async def test_more_than_eight_streams_of_a_user_are_too_many(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        alice, bob = (RunServiceClient(server.connection, server.key(name)) for name in ("alice", "bob"))
        thread, other = new_thread(), new_thread()
        await alice.play(thread)
        await bob.play(other)
        streams = [await alice.open(thread) for _ in range(8)]
        reply = await alice.get(f"/runs/{thread}/events")
        assert (reply.status, reply.json["code"]) == (429, "AGENT_SSE_CONNECTION_LIMIT")
        assert int(reply.headers["retry-after"]) > 0
        assert await bob.events(other, "r-1")
        assert (await alice.request("DELETE", f"/sessions/{thread}")).status == 204  # its streams end
        for stream in streams:
            await stream.read()
        await alice.play(thread, run="r-2")


@requirement("runs:events:revoked")
async def test_a_stream_ends_when_its_key_is_revoked_and_the_run_continues(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        phone, thread = RunServiceClient(server.connection, server.key("alice_phone")), new_thread()
        await phone.submit(run_input(thread, LONG))
        async with phone.watch(thread) as watch:
            await watch.until("TEXT_MESSAGE_CONTENT")
            app: Any = server.connection.app
            await app.keys.revoke("alice_phone")
            assert [frame.type for frame in await watch.read_to_end()][-1] == "TEXT_MESSAGE_CONTENT"
        alice = RunServiceClient(server.connection, server.key("alice"))
        assert (await alice.post(f"/runs/{thread}/cancel?runId=r-1", b"")).json["accepted"] is True


@requirement("runs:events:slow-reader")
async def test_a_reader_that_does_not_read_neither_slows_the_run_nor_loses_anything(alice: RunServiceClient) -> None:
    thread = new_thread()
    text = script({"emit": {"count": 10_000, "text": "x{i} "}})
    await alice.submit(run_input(thread, text))
    path = f"{alice.base}/runs/{thread}/events?runId=r-1"
    slow = await alice.connection.open("GET", path, headers=alice.headers({}), window=1)
    whole = await alice.events(thread, "r-1")
    assert parse(await slow.read()) == whole
    assert text_of_frames(whole) == "".join(f"x{place} " for place in range(10_000))


# --- cuts -------------------------------------------------------------------------------------------------------------

EVERYTHING = (
    script(
        {"say": "Grüße 🧑‍🚀 ", "size": 3},
        {"call": {"name": "add", "input": {"a": 1, "b": 2}}},
        {"say": ["x"] * 40, "every_ms": 1},
    ),
    script({"think": "hm, hm", "size": 2}, {"say": "y" * 9000}, {"step": True}, {"say": "z"}),
    script({"calls": [{"name": "add", "input": {"a": 1, "b": n}} for n in range(4)]}, {"say": "{results}"}),
    script({"say": "half"}, {"fail": "x"}),
    script({"call": {"name": "stamp", "input": {"text": "x"}}}),
    script(
        {"fork": {"description": "d", "script": [{"say": "gold " * 20}]}},
        {"say": "{result}"},
        {"card": {"type": "badge", "label": "b"}},
    ),
    script({"call": {"name": "lookup", "input": {"q": "long " * 1500}}}),
)


def cuts(raw: bytes, count: int, chance: random.Random) -> Iterator[tuple[str | None, bytes]]:
    """Random cuts of a stream's bytes: the id of the last whole event before, and the whole events after."""
    for _ in range(count):
        whole = raw[: raw.rindex(b"\n\n", 0, max(chance.randrange(len(raw)), raw.index(b"\n\n") + 2)) + 2]
        frames = parse(whole)
        yield (frames[-1].id if frames else None), raw[len(whole) :]


@requirement("runs:events:cuts", "runs:events:restart")
async def test_a_stream_cut_anywhere_resumes_with_exactly_the_rest_across_restarts(
    open_app_server: AppServerFactory,
) -> None:
    chance = random.Random(2)
    async with open_app_server() as server:
        alice, thread = RunServiceClient(server.connection, server.key("alice")), new_thread()
        for place, text in enumerate(EVERYTHING):
            await alice.play(thread, text, f"r-{place}")
        async with alice.watch(thread, after=FIRST_ID) as watch:
            ends = sum("fail" in text for text in EVERYTHING)
            await watch.until("RUN_FINISHED", len(EVERYTHING) - ends)
            raw = watch.raw
        count = len(parse(raw))
        assert count > 50
        for place, (last, rest) in enumerate(cuts(raw, extent(1000, 250), chance)):
            if place % 40 == 39:
                await server.restart()
                alice = RunServiceClient(server.connection, server.key("alice"))
            async with alice.watch(thread, after=last or FIRST_ID) as watch:
                prefix = b": keep-alive\n\n"
                while len(watch.raw) < len(prefix + rest):
                    chunk = await watch.stream.chunk()
                    assert chunk is not None
                    watch.raw += chunk
                assert watch.raw == prefix + rest, (place, last)


@requirement("runs:events:cuts", "runs:events:restart")
async def test_a_run_read_in_parts_across_restarts_is_read_exactly_once(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        alice, thread = RunServiceClient(server.connection, server.key("alice")), new_thread()
        steps = [{"say": f"{place} " * 5, "size": 2, "every_ms": 2} for place in range(10)]
        text = script(*[each for step in steps for each in (step, {"step": True})])
        await alice.submit(run_input(thread, text))
        frames: list[Frame] = []
        while not frames or frames[-1].type != "RUN_FINISHED":
            async with alice.watch(thread, "?runId=r-1", frames[-1].id if frames else None) as watch:
                for _ in range(3):
                    chunk = await watch.stream.chunk()
                    if chunk is None:
                        break
                    watch.raw += chunk
                frames += watch.frames
            if len(frames) % 4 == 0:
                await server.restart()
                alice = RunServiceClient(server.connection, server.key("alice"))
        assert frames == await alice.events(thread, "r-1")
        whole = text_of_frames(frames)
        for place in range(10):
            assert f"{place} " * 5 in whole


@requirement("runs:events:live-is-replay")
async def test_the_live_stream_and_every_replay_are_the_same(alice: RunServiceClient) -> None:
    thread = new_thread()
    await alice.play(thread)
    async with alice.watch(thread, after=FIRST_ID) as live:
        for place, text in enumerate(EVERYTHING):
            await alice.submit(run_input(thread, text, f"e-{place}"))
        ends = sum("fail" in text for text in EVERYTHING)
        frames = await live.until("RUN_FINISHED", 1 + len(EVERYTHING) - ends)
    replays = await asyncio.gather(*[alice.events(thread, f"e-{place}") for place in range(len(EVERYTHING))])
    first = await alice.events(thread, "r-1")
    assert frames == [*first, *[frame for replay in replays for frame in replay]]
