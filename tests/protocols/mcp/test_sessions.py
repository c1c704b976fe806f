"""The versions with sessions: `initialize`, envelopes, paths, keys and errors."""

import itertools
import json
from datetime import timedelta
from pathlib import Path

import pytest

from dragoman.core.refusals import all_refusals
from dragoman.protocols.kit.errors import REQUEST_ERRORS
from dragoman.protocols.mcp.errors import ERRORS
from tests.protocols.mcp.client import NEW, OLD, McpClient
from tests.requirements import requirement
from tests.servers import AppServer, running_server


def ping(**more: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": "ping", **more}


@requirement("mcp:old:initialize")
@pytest.mark.parametrize(
    ("wished", "agreed"), [(OLD, OLD), ("2025-06-18", "2025-06-18"), ("2025-03-26", "2025-03-26"), ("2024-11-05", OLD)]
)
async def test_initialize_agrees_on_a_version_and_begins_a_session(
    app_server: AppServer, wished: str, agreed: str
) -> None:
    client = McpClient(app_server.connection, app_server.key("alice"), version=wished)
    result = await client.initialize()
    assert result["protocolVersion"] == agreed
    assert result["capabilities"] == {"tools": {"listChanged": False}, "resources": {}}
    assert result["serverInfo"]["name"] == "dragoman"
    assert result["instructions"].count(". ") == 1
    client.version = agreed
    assert await client.request("ping") == {}
    assert (await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202


@requirement("mcp:old:session-is-signed")
async def test_a_session_is_its_owners_and_holds_for_thirty_days_and_over_restarts(tmp_path: Path) -> None:
    async with running_server(tmp_path, manual_clock=True) as server:
        alice = McpClient(server.connection, server.key("alice"))
        await alice.initialize()
        bob = McpClient(server.connection, server.key("bob"))
        bob.session = alice.session
        assert (await bob.post(ping())).status == 404
        assert alice.session is not None
        for wrong in ("", "nonsense", alice.session[:-2], "A" * len(alice.session)):
            assert (await alice.post(ping(), mcp_session_id=wrong)).status == 404
        alice.session, kept = None, alice.session
        assert (await alice.post(ping())).status == 400
        await server.restart()
        alice.connection, alice.session = server.connection, kept
        server.clock.advance(days=30)
        assert (await alice.post(ping())).status == 200
        server.clock.advance(seconds=timedelta(seconds=1).total_seconds())
        assert (await alice.post(ping())).status == 404


@requirement("mcp:transport:envelope", "mcp:transport:abuse")
@pytest.mark.parametrize(
    ("body", "code", "request_id"),
    [
        (b"", -32700, None),
        (b"{", -32700, None),
        (b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 100_000, -32700, None),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600, None),
        (b'{"id": 1, "method": "ping"}', -32600, 1),
        (b'{"jsonrpc": "1.0", "id": "a", "method": "ping"}', -32600, "a"),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": "%b", "method": "ping"}' % (b"x" * 10_240), -32600, None),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600, 1),
    ],
)
async def test_what_is_no_message_is_a_bad_request_with_the_id_that_could_be_read(
    alice: McpClient, body: bytes, code: int, request_id: int | str | None
) -> None:
    answer = await alice.post(body)
    assert answer.status == 400
    error = json.loads(answer.body)
    assert (error["jsonrpc"], error["error"]["code"], error["id"]) == ("2.0", code, request_id)


@requirement("mcp:transport:abuse")
async def test_odd_texts_are_messages_like_others(alice: McpClient) -> None:
    body = json.dumps(alice.message("tools/call", {"name": "rehearsal", "arguments": {"message": "MARK"}}))
    for mark in ("\\ud800", "\\u0000", '", "message": "twice'):
        answer = await alice.post(body.replace("MARK", mark).encode())
        assert answer.status == 200, answer.body
    assert (await alice.post(b'{"a": "' + b"x" * (17 * 1024 * 1024))).status == 413


@requirement("mcp:transport:media-types")
async def test_media_types_are_checked(alice: McpClient) -> None:
    assert (await alice.post(ping(), content_type="text/plain")).status == 415
    assert (await alice.post(ping(), accept="text/html")).status == 406
    assert (await alice.post(ping(), accept="*/*")).status == 200
    call = alice.message("tools/call", {"name": "rehearsal", "arguments": {"message": "hello"}})
    answer = await alice.post(call, accept="application/json")
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.body)["result"]["structuredContent"]["status"] == "completed"


@requirement("mcp:transport:methods")
async def test_other_http_methods_are_refused(app_server: AppServer, alice: McpClient) -> None:
    reader = McpClient(app_server.connection, app_server.key("alice_reads"))
    await reader.initialize()
    for client, method in itertools.product((alice, reader), ("GET", "DELETE")):  # clients end a session with DELETE
        stream = await client.connection.open(method, "/mcp", headers=client.headers({}))
        assert stream.status == 405
        await stream.read()
    assert (await alice.connection.open("GET", "/mcp/", headers=alice.headers({}))).headers["allow"] == "POST"


@requirement("mcp:transport:version")
async def test_an_unknown_version_is_refused_with_those_that_are_served(alice: McpClient) -> None:
    answer = await alice.post(ping(), mcp_protocol_version="2099-01-01")
    assert answer.status == 400
    assert json.loads(answer.body)["error"] == {
        "code": -32022,
        "message": "Unsupported protocol version",
        "data": {"supported": [NEW, OLD, "2025-06-18", "2025-03-26"], "requested": "2099-01-01"},
    }


@requirement("mcp:errors:methods")
async def test_unknown_methods_and_wrong_parameters_are_errors_of_the_request(alice: McpClient) -> None:
    for method in ("prompts/list", "logging/setLevel", "completion/complete", "resources/subscribe", "tasks/get"):
        assert await alice.error(method) == (200, -32601)
    assert await alice.error("tools/call", {"name": "nobody", "arguments": {}}) == (200, -32602)
    assert await alice.error("tools/list", {"cursor": "nonsense"}) == (200, -32602)
    answer = await alice.post({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": [1]})
    assert (answer.status, json.loads(answer.body)["id"], json.loads(answer.body)["error"]["code"]) == (200, 7, -32602)
    assert (await alice.post({"jsonrpc": "2.0", "method": "notifications/anything"})).status == 202
    token = {"_meta": {"progressToken": {}}, "name": "rehearsal", "arguments": {"message": "hello"}}
    assert await alice.error("tools/call", token) == (400, -32600)
    assert await alice.error("tools/call", {**token, "_meta": {"progressToken": "x" * 1025}}) == (400, -32600)


@requirement("mcp:auth:keys")
async def test_without_a_key_nothing_is_answered_and_a_reading_key_cannot_call(app_server: AppServer) -> None:
    nobody = McpClient(app_server.connection, None)
    answer = await nobody.post(ping())
    assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer realm="dragoman"')
    assert json.loads(answer.body)["error"]["code"] == -32600
    reader = McpClient(app_server.connection, app_server.key("alice_reads"))
    await reader.initialize()
    assert len((await reader.request("tools/list"))["tools"]) == 2
    answer = await reader.post(reader.message("tools/call", {"name": "rehearsal", "arguments": {"message": "hi"}}))
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (403, -32600)
    assert answer.headers["www-authenticate"] == 'Bearer realm="dragoman", error="insufficient_scope", scope="use"'


@requirement("mcp:auth:discovery")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/.well-known/oauth-protected-resource"),
        ("GET", "/.well-known/oauth-protected-resource/mcp"),
        ("GET", "/.well-known/oauth-authorization-server"),
        ("GET", "/.well-known/openid-configuration"),
        ("POST", "/register"),
    ],
)
async def test_there_is_no_authorization_server_and_hosts_learn_it_in_json(
    app_server: AppServer, method: str, path: str
) -> None:
    answer = await app_server.connection.request(method, path, headers=[("accept", "text/html")], body=b"")
    assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
    json.loads(answer.body)


@requirement("mcp:transport:cors")
async def test_a_web_page_may_send_and_read_the_headers_of_the_protocol(app_server: AppServer) -> None:
    asked = "mcp-session-id, mcp-protocol-version, mcp-method, mcp-name, last-event-id, mcp-param-x"
    headers = [
        ("origin", "https://inspector.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", asked),
    ]
    preflight = await app_server.connection.request("OPTIONS", "/mcp", headers=headers)
    allowed = preflight.headers["access-control-allow-headers"].split(", ")
    assert set(asked.split(", ")) <= set(allowed)
    answer = await app_server.connection.request("GET", "/mcp", headers=headers[:1])
    assert "mcp-session-id" in answer.headers["access-control-expose-headers"].split(", ")


@requirement("mcp:auth:keyless")
async def test_without_keys_foreign_pages_and_hosts_are_refused(tmp_path: Path) -> None:
    async with running_server(tmp_path, auth=False) as server:
        client = McpClient(server.connection, None)
        await client.initialize()
        assert (await client.post(ping())).status == 200
        assert (await client.post(ping(), origin="https://evil.example")).status == 403
        assert (await client.post(ping(), host="evil.example")).status == 403


@requirement("mcp:tools:list", "mcp:tools:one-agent")
async def test_each_agent_is_a_tool_and_has_a_path_of_its_own(app_server: AppServer, alice: McpClient) -> None:
    tools = (await alice.request("tools/list"))["tools"]
    assert [each["name"] for each in tools] == ["rehearsal", "rehearsal-bare"]
    rehearsal, bare = tools
    assert rehearsal["title"] == "Rehearsal"
    assert rehearsal["description"].startswith(
        "Does what your message tells it to, without a model.\n\nContinue a conversation"
    )
    assert set(rehearsal["inputSchema"]["properties"]) == {"message", "session_id", "files", "options"}
    assert "token" not in rehearsal["inputSchema"]["properties"]["options"]["properties"], "it is a secret"
    assert rehearsal["inputSchema"]["required"] == ["message"]
    assert set(bare["inputSchema"]["properties"]) == {"message", "session_id", "files"}
    assert rehearsal["outputSchema"]["required"] == ["session_id", "status", "text"]
    assert rehearsal["annotations"] == {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": True,
    }
    own = McpClient(app_server.connection, app_server.key("alice"), path="/mcp/rehearsal-bare")
    await own.initialize()
    assert (await own.request("tools/list"))["tools"] == [bare]
    assert await own.error("tools/call", {"name": "rehearsal", "arguments": {"message": "hello"}}) == (200, -32602)
    nobody = McpClient(app_server.connection, app_server.key("alice"), path="/mcp/nobody")
    assert (await nobody.post(ping(method="initialize"))).status == 404


@requirement("mcp:errors:methods")
def test_every_refusal_has_an_answer() -> None:
    for kind in (*all_refusals(), *REQUEST_ERRORS):
        row = next(ERRORS.rows[each] for each in kind.__mro__ if each in ERRORS.rows)
        assert int(row.code) <= -32000, kind
