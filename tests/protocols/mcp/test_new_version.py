"""The version 2026-07-28: requests that stand on their own, routing headers, forms in results, streams that cancel."""

import asyncio
import json
from base64 import b64encode
from pathlib import Path
from uuid import uuid4

import pytest

from tests.asgi_client import DEADLINE_S
from tests.conversations import calls, script
from tests.protocols.mcp.client import FORMS, META, NEW, SLOW, STAMP, TASKS, Json, McpClient, session_status
from tests.requirements import requirement
from tests.servers import AppServer, running_server


@pytest.fixture
def alice(app_server: AppServer) -> McpClient:
    """A client of alice's without forms."""
    return McpClient(app_server.connection, app_server.key("alice"), version=NEW)


@pytest.fixture
def alice_at_host(app_server: AppServer) -> McpClient:
    """The same at a host that shows forms."""
    return McpClient(app_server.connection, app_server.key("alice"), version=NEW, capabilities=FORMS)


def answers(asked: Json, action: str, **content: Json) -> Json:
    """What a client sends with the repeated call: the same answer to every form."""
    answer = {"action": action, **({"content": content} if content else {})}
    return {
        "requestState": asked["requestState"],
        "inputResponses": dict.fromkeys(asked["inputRequests"], answer),
    }


async def until_status(server: AppServer, session_id: str, status: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await session_status(server, session_id) != status:  # noqa: ASYNC110  # a condition with a deadline
            await asyncio.sleep(0)


async def newest_session(client: McpClient) -> str:
    uri: str = (await client.request("resources/list"))["resources"][0]["uri"]
    return uri.rpartition("/")[2]


@requirement("mcp:new:discover", "mcp:new:results")
async def test_results_say_what_they_are_and_how_long_they_hold(alice: McpClient) -> None:
    discovered = await alice.request("server/discover")
    server = discovered.pop("_meta")[f"{META}serverInfo"]
    assert server["name"] == "dragoman"
    assert discovered.pop("instructions")
    assert discovered == {
        "resultType": "complete",
        "supportedVersions": [NEW, "2025-11-25", "2025-06-18", "2025-03-26"],
        "capabilities": {"tools": {"listChanged": False}, "resources": {}, "extensions": {TASKS: {}}},
        "ttlMs": 3_600_000,
        "cacheScope": "private",
    }
    listed = await alice.request("tools/list")
    assert (listed["resultType"], listed["ttlMs"], listed["cacheScope"]) == ("complete", 60_000, "private")
    stream = await alice.open("hello", token=1)
    result = await stream.result()
    assert (result["resultType"], result["_meta"]) == ("complete", {f"{META}serverInfo": server})
    assert (stream.ids, "mcp-session-id" in stream.stream.headers) == ([], False)
    refused = await alice.call("hello", session_id="default")
    assert (refused["resultType"], refused["isError"]) == ("complete", True)


@requirement("mcp:new:headers")
@pytest.mark.parametrize(
    "headers",
    [
        {"mcp_method": "tools/call"},
        {"mcp_protocol_version": "2025-11-25"},
        {"mcp_method": ""},
    ],
)
async def test_headers_that_disagree_with_the_body_are_refused(alice: McpClient, headers: dict[str, str]) -> None:
    answer = await alice.post(alice.message("tools/list"), **headers)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, -32020)


@requirement("mcp:new:headers")
async def test_the_name_of_a_tool_is_in_a_header_too(alice: McpClient) -> None:
    message = alice.message("tools/call", {"name": "rehearsal", "arguments": {"message": "hello"}})
    encoded = f"=?base64?{b64encode(b'rehearsal').decode()}?="
    assert (await alice.post(message, mcp_name=encoded)).status == 200
    for wrong in ("rehearsal-bare", "=?base64?!?=", "=?base64?cmVoZWFyc2Fs", ""):
        answer = await alice.post(message, mcp_name=wrong)
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, -32020)
    twice = [*alice.headers(message), ("mcp-name", "rehearsal")]
    stream = await alice.connection.open("POST", "/mcp", headers=twice, body=json.dumps(message).encode())
    assert (stream.status, json.loads(await stream.read())["error"]["code"]) == (400, -32020)


@requirement("mcp:new:meta", "mcp:new:statuses")
async def test_statuses_follow_the_codes(alice: McpClient) -> None:
    message = alice.message("tools/list")
    for missing in ("protocolVersion", "clientCapabilities"):
        meta = {key: value for key, value in message["params"]["_meta"].items() if missing not in key}
        answer = await alice.post({**message, "params": {"_meta": meta}})
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, -32602)
    for method in ("initialize", "ping", "prompts/list", "subscriptions/listen"):
        assert await alice.error(method) == (404, -32601)
    assert await alice.error("tools/call", {"name": "nobody", "arguments": {}}) == (400, -32602)
    assert await alice.error("resources/read", {"uri": f"dragoman://sessions/{uuid4()}"}) == (400, -32602)
    assert (await alice.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}})).status == 202
    assert (await alice.post({"jsonrpc": "2.0", "id": 1, "result": {}})).status == 400


@requirement("mcp:new:forms")
async def test_a_question_is_answered_by_the_repeated_call(alice_at_host: McpClient) -> None:
    asked = await alice_at_host.call("ask me")
    assert asked["resultType"] == "input_required"
    ((call_id, form),) = asked["inputRequests"].items()
    assert (form["method"], form["params"]["mode"]) == ("elicitation/create", "form")
    again = await alice_at_host.call("ask me", more=answers(asked, "accept"))
    assert list(again["inputRequests"]) == [call_id], "a form without an answer is shown once more"
    assert again["requestState"] != asked["requestState"]
    closed = await alice_at_host.call("ask me", more=answers(again, "accept"))
    assert closed["structuredContent"]["status"] == "input_required"
    retry = answers(asked, "accept", answer_0="production")
    chosen = await alice_at_host.call("ask me", more=retry)
    assert chosen["structuredContent"]["text"] == "You chose production."
    assert await alice_at_host.call("ask me", more=retry) == chosen, "the answer counts once"


@requirement("mcp:new:forms")
async def test_approvals_are_asked_for_together_and_keys_that_are_not_open_are_ignored(
    alice_at_host: McpClient,
) -> None:
    two = script(calls(("stamp", {"text": "a"}), ("stamp", {"text": "b"})), {"say": "{results}"})
    asked = await alice_at_host.call(two)
    first, second = asked["inputRequests"]
    allow, deny = ({"action": "accept", "content": {"decision": each}} for each in ("allow", "deny"))
    one = {"requestState": asked["requestState"], "inputResponses": {first: allow, "unknown": allow}}
    rest = await alice_at_host.call(two, more=one)
    assert list(rest["inputRequests"]) == [second]
    done = {"requestState": rest["requestState"], "inputResponses": {first: deny, second: deny}}
    result = (await alice_at_host.call(two, more=done))["structuredContent"]
    assert result["text"] == "stamped a, Tool call denied"


@requirement("mcp:new:forged")
async def test_forged_answers_and_states_run_nothing(app_server: AppServer, alice_at_host: McpClient) -> None:
    asked = await alice_at_host.call(STAMP)
    session_id = await newest_session(alice_at_host)
    bob = McpClient(app_server.connection, app_server.key("bob"), version=NEW, capabilities=FORMS)
    allow = answers(asked, "accept", decision="allow")
    params: Json = {"name": "rehearsal", "arguments": {"message": STAMP}, **allow}
    assert await bob.error("tools/call", params) == (400, -32602)
    for wrong in ("", "nonsense", asked["requestState"][:-4], 7, "W10"):
        assert await alice_at_host.error("tools/call", {**params, "requestState": wrong}) == (400, -32602)
    other = {**params, "arguments": {"message": "other"}}
    assert await alice_at_host.error("tools/call", other) == (400, -32602)
    wrong_shapes: tuple[Json, ...] = ([], {next(iter(asked["inputRequests"])): {"content": {"decision": "allow"}}})
    for wrong_responses in wrong_shapes:
        wrong_params = {**params, "inputResponses": wrong_responses}
        assert await alice_at_host.error("tools/call", wrong_params) == (400, -32602)
    assert await session_status(app_server, session_id) == "waiting"
    shouted = await alice_at_host.call(STAMP, more=answers(asked, "accept", decision="ALLOW"))
    assert shouted["structuredContent"]["status"] == "input_required"
    assert await session_status(app_server, session_id) == "waiting"
    allowed = await alice_at_host.call(STAMP, more=allow)
    assert allowed["structuredContent"]["text"] == "then: stamped x"


@requirement("mcp:forms:absent")
async def test_without_forms_a_call_that_waits_is_a_result(alice: McpClient) -> None:
    result = await alice.call(STAMP)
    assert (result["resultType"], result["structuredContent"]["status"]) == ("complete", "input_required")


@requirement("mcp:new:disconnect")
async def test_a_stream_that_is_closed_before_its_result_cancels_the_run(
    app_server: AppServer, alice: McpClient
) -> None:
    stream = await alice.open(SLOW, token=1)
    await stream.next()
    session_id = await newest_session(alice)
    watcher = await alice.open("", session_id=session_id, token=2)
    await watcher.next()
    await stream.stream.disconnect()
    assert await session_status(app_server, session_id) == "running", "somebody else reads it"
    await watcher.stream.disconnect()
    second = await alice.open("", session_id=session_id, token=3)
    await second.next()
    await second.stream.disconnect()
    assert await session_status(app_server, session_id) == "running", "a wait cancels nothing"

    alone = await alice.open(SLOW, token=1)
    await alone.next()
    other = await newest_session(alice)
    await alone.stream.disconnect()
    await until_status(app_server, other, "idle")


@requirement("mcp:new:disconnect")
async def test_runs_can_be_kept_when_clients_leave(tmp_path: Path) -> None:
    async with running_server(tmp_path, mcp_disconnect="continue") as server:
        alice = McpClient(server.connection, server.key("alice"), version=NEW)
        stream = await alice.open(script({"say": "one "}, {"wait_ms": 100}, {"say": "two"}), token=1)
        await stream.next()
        session_id = await newest_session(alice)
        await stream.stream.disconnect()
        assert (await alice.said("", session_id=session_id))["text"] == "one two"
