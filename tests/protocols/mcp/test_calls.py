"""`tools/call` in the versions with sessions: turns, results, waiting, progress, resuming, cancelling."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.asgi_client import DEADLINE_S
from tests.conversations import call, script
from tests.protocols.mcp.client import SLOW, STAMP, CallStream, Json, McpClient, session_status
from tests.requirements import requirement
from tests.servers import AppServer, running_server, server_process


async def until_idle(server: AppServer, session_id: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await session_status(server, session_id) != "idle":  # noqa: ASYNC110  # a condition with a deadline
            await asyncio.sleep(0)


# --- turns and results ------------------------------------------------------------------------------------------------


@requirement("mcp:call:new", "mcp:call:continue", "mcp:result:content")
async def test_a_call_begins_a_conversation_and_the_next_one_continues_it(alice: McpClient) -> None:
    first = await alice.call("hello")
    structured = first["structuredContent"]
    session_id, run_id = structured["session_id"], structured["run_id"]
    assert first == {
        "content": [
            {"type": "text", "text": "Hello! I am the rehearsal agent."},
            {"type": "text", "text": f"session_id: {session_id}", "annotations": {"audience": ["assistant"]}},
        ],
        "structuredContent": {
            "session_id": session_id,
            "run_id": run_id,
            "status": "completed",
            "text": "Hello! I am the rehearsal agent.",
            "stop_reason": "end_turn",
            "usage": structured["usage"],
        },
        "isError": False,
    }
    again = await alice.said(script({"recall": "user"}), session_id=session_id)
    assert (again["session_id"], again["text"]) == (session_id, "hello")
    assert (await alice.said("hello", session_id=""))["session_id"] != session_id


@requirement("mcp:call:busy", "mcp:result:content")
async def test_a_refused_call_names_the_session_that_it_found(alice: McpClient) -> None:
    session_id = (await alice.said("hello"))["session_id"]
    running = await alice.open(SLOW, token=1, request_id="slow", session_id=session_id)
    await running.next()
    busy = await alice.call("hello", session_id=session_id)
    assert (busy["structuredContent"]["session_id"], busy["structuredContent"]["error"]["code"]) == (
        session_id,
        "session_busy",
    )
    assert busy["content"][-1]["text"] == f"session_id: {session_id}"
    wrong = await alice.said("hello", session_id=session_id, options={"style": "odd"})
    assert (wrong["session_id"], wrong["error"]["code"]) == (session_id, "invalid_arguments")
    await alice.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}})
    await running.rest()


@requirement("mcp:result:status", "mcp:result:hidden")
async def test_how_a_run_ends_is_the_status_and_nothing_internal_is_shown(alice: McpClient) -> None:
    thought = await alice.said(script({"think": "hmm"}, call("add", a=1, b=2), {"say": "{result}"}))
    assert (thought["status"], thought["text"]) == ("completed", "3")
    failed = await alice.call(script({"say": "half"}, {"fail": "internal words"}))
    structured = failed["structuredContent"]
    assert (failed["isError"], structured["status"], structured["text"]) == (True, "failed", "half")
    assert "internal words" not in json.dumps(failed)
    refusal = await alice.said(script({"say": "no"}, {"stop": "refusal"}))
    assert (refusal["status"], refusal["stop_reason"]) == ("completed", "refusal")


@requirement("mcp:call:busy", "mcp:call:wait", "mcp:call:long")
async def test_a_long_call_is_answered_in_time_and_an_empty_message_waits_for_the_rest(tmp_path: Path) -> None:
    async with running_server(tmp_path, mcp_answer_within_s=0.05) as server:
        alice = McpClient(server.connection, server.key("alice"))
        await alice.initialize()
        early = await alice.call(script({"say": "one "}, {"step": True}, {"wait_ms": 2_000}, {"say": "two"}))
        session_id = early["structuredContent"]["session_id"]
        assert (early["structuredContent"]["status"], early["structuredContent"]["text"]) == ("working", "one ")
        assert "empty message" in early["content"][1]["text"]
        busy = await alice.said("more", session_id=session_id)
        assert (busy["status"], busy["error"]["code"]) == ("failed", "session_busy")
        async with asyncio.timeout(DEADLINE_S):
            while (waited := await alice.said("", session_id=session_id))["status"] == "working":
                pass
        assert (waited["status"], waited["text"], waited["run_id"]) == (
            "completed",
            "one \n\ntwo",
            early["structuredContent"]["run_id"],
        )
        assert await alice.said("", session_id=session_id) == waited, "waiting again starts nothing"


@requirement("mcp:call:wait")
async def test_there_is_nothing_to_wait_for_in_a_session_without_a_turn(
    app_server: AppServer, alice: McpClient
) -> None:
    session = await app_server.aap_client("alice").create()
    assert "nothing was asked" in (await alice.call("", session_id=session.id))["content"][0]["text"]


# --- progress ---------------------------------------------------------------------------------------------------------


@requirement("mcp:progress:token")
async def test_progress_grows_names_tools_and_ends_with_the_result(alice: McpClient) -> None:
    stream = await alice.open(script({"say": "a"}, call("add", a=1, b=2), {"say": "b"}), token="t")
    messages = await stream.rest()
    assert "result" in messages[-1]
    progress = stream.progress()
    assert {each["progressToken"] for each in progress} == {"t"}
    numbers = [each["progress"] for each in progress]
    assert numbers == sorted(set(numbers))
    assert "add…" in [each["message"] for each in progress]
    assert all("total" not in each for each in progress)
    silent = await alice.open("hello")
    assert len(await silent.rest()) == 1


@requirement("mcp:progress:rate")
async def test_progress_is_skipped_not_queued(alice: McpClient) -> None:
    burst = script({"emit": {"count": 500, "text": "x", "every_ms": 0}})
    stream = await alice.open(burst, token=1)
    await stream.rest()
    assert 1 <= len(stream.progress()) <= 20


# --- broken streams ---------------------------------------------------------------------------------------------------


@requirement("mcp:resume:priming")
@pytest.mark.parametrize(("version", "is_primed"), [("2025-11-25", True), ("2025-06-18", False)])
async def test_a_stream_begins_with_an_id_where_clients_can_read_it(
    app_server: AppServer, version: str, is_primed: bool
) -> None:
    client = McpClient(app_server.connection, app_server.key("alice"), version=version)
    await client.initialize()
    stream = await client.open("hello")
    await stream.rest()
    assert (stream.primed is not None) is is_primed


@requirement("mcp:resume:continue", "mcp:disconnect:old")
async def test_a_broken_stream_continues_after_its_last_event(app_server: AppServer, alice_at_host: McpClient) -> None:
    stream = await alice_at_host.open(STAMP, token=5, request_id="my call")
    form = await stream.until("elicitation/create")
    await stream.stream.disconnect()
    resumed = await alice_at_host.resume(stream.ids[0])
    assert await resumed.until("elicitation/create") == form, "the form is shown again, with the same id"
    await alice_at_host.answer_form(form, "accept", decision="allow")
    messages = await resumed.rest()
    assert messages[-1]["id"] == "my call"
    assert messages[-1]["result"]["structuredContent"]["text"] == "then: stamped x"
    assert {each["progressToken"] for each in resumed.progress()} <= {5}
    late = await alice_at_host.resume(stream.ids[0])
    assert [each.get("result") for each in await late.rest()] == [messages[-1]["result"]]


@requirement("mcp:resume:unknown")
async def test_an_event_that_is_not_the_callers_cannot_be_resumed(app_server: AppServer, alice: McpClient) -> None:
    stream = await alice.open("hello")
    await stream.rest()
    bob = McpClient(app_server.connection, app_server.key("bob"))
    await bob.initialize()
    assert (await bob.resume(stream.ids[0])).stream.status == 404
    for wrong in ("nonsense", stream.ids[0][:-4], "W10", "AAAA"):
        assert (await alice.resume(wrong)).stream.status == 404
    alice.session = None
    assert (await alice.resume(stream.ids[0])).stream.status == 400


@requirement("mcp:resume:restart", "mcp:resources:read")
async def test_a_call_survives_a_server_that_is_killed(tmp_path: Path) -> None:
    counting = script({"say": "one"}, {"step": True}, {"say": "two "}, {"wait_ms": 2_000}, {"say": "three"})
    async with server_process(tmp_path) as server:
        alice = McpClient(server.connection, server.key("alice"))
        await alice.initialize()
        stream = await alice.open(counting, token=1)
        while "two " not in [each["message"] for each in stream.progress()]:  # not with the words before them
            await stream.next()
        await server.crash()
        alice.connection = server.connection
        result = await (await alice.resume(stream.ids[-1])).result()
        assert (result["structuredContent"]["status"], result["structuredContent"]["text"]) == (
            "completed",
            "one\n\ntwo three",
        )
        session_id = result["structuredContent"]["session_id"]
        assert await alice.call("", session_id=session_id) == result
        read = await alice.request("resources/read", {"uri": f"dragoman://sessions/{session_id}"})
        _, _, answers = read["contents"][0]["text"].partition("**assistant**\n\none\n\n")
        assert answers == (
            "**assistant**\n\ntwo \n\n*(cut off by a restart of the server; the next message repeats it)*\n\n"
            "**assistant**\n\ntwo three\n"
        )


@requirement("mcp:cancel:request")
async def test_cancelling_a_request_stops_its_run_and_ends_the_stream_without_a_result(
    app_server: AppServer, alice: McpClient
) -> None:
    stream = await alice.open(SLOW, token=1, request_id="slow")
    await stream.next()
    session_id = (await alice.request("resources/list"))["resources"][0]["uri"].rpartition("/")[2]
    others: tuple[Json, ...] = ("nothing", 7, None, {})
    for other in others:
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": other}}
        assert (await alice.post(cancelled)).status == 202
    assert await session_status(app_server, session_id) == "running"
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}}
    assert (await alice.post(cancelled)).status == 202
    assert not any("result" in each for each in await stream.rest())
    await until_idle(app_server, session_id)


@requirement("mcp:cancel:waiting")
async def test_cancelling_a_request_that_waits_for_a_person_closes_its_calls(
    app_server: AppServer, alice_at_host: McpClient
) -> None:
    stream = await alice_at_host.open(STAMP, request_id="asks")
    form = await stream.until("elicitation/create")
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "asks"}}
    assert (await alice_at_host.post(cancelled)).status == 202
    await stream.rest()
    await until_idle(app_server, form["id"][2:38])
    ended = await alice_at_host.said("", session_id=form["id"][2:38])
    assert (ended["status"], ended["text"]) == ("cancelled", "")


@requirement("mcp:cancel:request")
async def test_cancelling_a_wait_ends_its_stream_and_cancels_nothing_and_cancelling_an_answer_stops_the_turn(
    app_server: AppServer, alice: McpClient
) -> None:
    asks = script({"ask": {"questions": [{"question": "Go on?", "options": []}]}}, {"say": "on "}, {"wait_ms": 600_000})
    session_id = (await alice.said(asks))["session_id"]
    answering = await alice.open("yes", session_id=session_id, request_id="answer", token=1)
    await answering.next()
    waiting = await alice.open("", session_id=session_id, request_id="wait", token=2)
    await waiting.next()
    for request_id, stream in (("wait", waiting), ("answer", answering)):
        assert await session_status(app_server, session_id) == "running"
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
        assert (await alice.post(cancelled)).status == 202
        assert not any("result" in each for each in await stream.rest())
    await until_idle(app_server, session_id)


@requirement("mcp:call:twice")
async def test_the_same_request_again_joins_the_running_call_and_another_one_is_a_call_of_its_own(
    app_server: AppServer, alice: McpClient
) -> None:
    first = await alice.open(script({"wait_ms": 1000}, {"say": "done"}), request_id=77, token=1)
    await first.next()
    second = await alice.open(script({"wait_ms": 1000}, {"say": "done"}), request_id=77, token=1)
    newer = await alice.open(script({"wait_ms": 600_000}), request_id=77, token=1)
    await newer.next()
    session_id = (await alice.request("resources/list"))["resources"][0]["uri"].rpartition("/")[2]
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}
    assert (await alice.post(cancelled)).status == 202
    assert not any("result" in each for each in await newer.rest())
    await until_idle(app_server, session_id)
    result = await first.result()
    assert result["structuredContent"]["text"] == "done"
    assert await second.result() == result
    third = await alice.open("hello", request_id=77)
    assert (await third.result())["structuredContent"]["text"] == "Hello! I am the rehearsal agent."


async def open_streams(server: AppServer) -> float:
    """The open streams of the protocol in this process, as the metrics count them."""
    metrics = (await (await server.connection.open("GET", "/metrics")).read()).decode()
    (line,) = re.findall(r'^dragoman_streams_open{protocol="mcp"} (.*)$', metrics, re.MULTILINE)
    return float(line)


@requirement("mcp:errors:limits")
async def test_more_runs_than_a_user_may_have_are_refused_and_leave_nothing_behind(tmp_path: Path) -> None:
    async with running_server(tmp_path, max_runs_per_user=1, max_streams_per_user=1) as server:
        alice = McpClient(server.connection, server.key("alice"))
        await alice.initialize()
        before = await open_streams(server)
        stream = await alice.open(SLOW, token=1, request_id="slow")
        await stream.next()
        call_tool = alice.message("tools/call", {"name": "rehearsal", "arguments": {"message": "hello"}})
        refused = await alice.post(call_tool)
        assert (refused.status, json.loads(refused.body)["error"]["code"]) == (429, -32600)
        assert int(refused.headers["retry-after"]) > 0
        (only,) = (await alice.request("resources/list"))["resources"]
        waiting: CallStream = await alice.open("", session_id=only["uri"].rpartition("/")[2], token=2)
        await waiting.next()
        wait = {"message": "", "session_id": only["uri"].rpartition("/")[2]}
        refused = await alice.post(alice.message("tools/call", {"name": "rehearsal", "arguments": wait}))
        assert refused.status == 429
        again = {"name": "rehearsal", "arguments": {"message": SLOW}}
        refused = await alice.post(alice.message("tools/call", again, request_id="slow"))
        assert refused.status == 429, "joining a call is a stream, too"
        assert (await alice.resume(stream.ids[-1])).stream.status == 429
        assert await open_streams(server) - before == 2
        await waiting.stream.disconnect()
        assert await (await alice.resume(stream.ids[-1])).until("notifications/progress")
