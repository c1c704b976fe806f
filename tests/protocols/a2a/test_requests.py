"""Cards, versions, envelopes and errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.asgi_client import Answer
from tests.protocols.a2a.client import A2aClient, error_of, message
from tests.protocols.aap.client import Connection
from tests.requirements import requirement
from tests.servers import AppServer, running_server

Json = Any
ANSWERS = "urn:dragoman:a2a:answers:1"


async def fetch(connection: Connection, path: str, **headers: str) -> Answer:
    sent = [(name.replace("_", "-"), value) for name, value in headers.items()]
    stream = await connection.open("GET", path, headers=[("host", "agents.example"), *sent])
    return Answer(stream.status, stream.headers, await stream.read())


@requirement("a2a:card:members", "a2a:card:places", "a2a:card:cached")
async def test_a_card_says_how_its_agent_is_called_in_both_versions(app_server: AppServer) -> None:
    found = await fetch(app_server.connection, "/a2a/rehearsal-bare/.well-known/agent-card.json")
    card = json.loads(found.body)
    url = "http://agents.example/a2a/rehearsal-bare"
    assert card.pop("description") == card["skills"][0].pop("description")
    assert card.pop("version")
    assert card["capabilities"]["extensions"][0].pop("description")
    assert card["skills"][0].pop("name")
    assert card == {
        "name": "rehearsal-bare",
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ],
        "capabilities": {
            "streaming": True,
            "pushNotifications": False,
            "extendedAgentCard": False,
            "extensions": [{"uri": ANSWERS, "required": False}],
        },
        "securitySchemes": {
            "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}, "type": "http", "scheme": "bearer"}
        },
        "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
        "security": [{"bearer": []}],
        "defaultInputModes": ["text/plain", "application/json", "application/pdf"],
        "defaultOutputModes": ["text/plain", "application/json", "image/png", "image/jpeg"],
        "skills": [{"id": "rehearsal-bare", "tags": ["agent"]}],
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
    }
    root = await fetch(app_server.connection, "/.well-known/agent-card.json")
    assert json.loads(root.body)["url"] == "http://agents.example/a2a/rehearsal"
    assert "image/png" in json.loads(root.body)["defaultInputModes"]
    again = await fetch(app_server.connection, "/.well-known/agent-card.json", if_none_match=root.headers["etag"])
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", root.headers["etag"])
    assert root.headers["cache-control"] == "private, max-age=300"
    assert "Host" in root.headers["vary"], "another Host gets another address"
    missing = await fetch(app_server.connection, "/a2a/nobody/.well-known/agent-card.json")
    error = {"code": 404, "status": "NOT_FOUND", "message": "there is no such agent"}
    assert (missing.status, json.loads(missing.body)) == (404, {"error": error}), "it names no others"


@requirement("a2a:card:public")
async def test_cards_need_a_key_if_a_setting_says_so(tmp_path: Path) -> None:
    async with running_server(tmp_path, a2a_public_cards=False, public_url="https://agents.example.org/") as server:
        for path in ("/.well-known/agent-card.json", "/a2a/rehearsal/.well-known/agent-card.json"):
            assert (await fetch(server.connection, path)).status == 401
            found = await fetch(server.connection, path, authorization=f"Bearer {server.key('alice_reads')}")
            assert json.loads(found.body)["url"] == "https://agents.example.org/a2a/rehearsal"
            assert found.headers["cache-control"] == "max-age=300"


@requirement("a2a:version:choice")
@pytest.mark.parametrize(
    ("dialect", "version", "method", "code"),
    [
        ("rpc", "1.0", "GetTask", -32001),
        ("rpc", "1", "GetTask", -32001),
        ("rpc", "1.7.2", "GetTask", -32001),
        ("rpc", "1.0", "tasks/get", -32601),
        ("rpc", "0.3", "GetTask", -32601),
        ("rpc", "2.0", "GetTask", -32009),
        ("rpc", "one", "GetTask", -32009),
        ("rpc", "", "GetTask", -32009),
        ("rpc", "", "tasks/get", -32001),
        ("rpc", "0.3", "tasks/get", -32001),
        ("rpc", "0.3.0", "tasks/get", -32001),
        ("http", "1.0", "GetTask", 404),
        ("http", "0.3", "GetTask", 400),
        ("http", "", "GetTask", 400),
    ],
)
async def test_the_version_decides_which_names_are_spoken(
    app_server: AppServer, dialect: Any, version: str, method: str, code: int
) -> None:
    alice = A2aClient(app_server.connection, app_server.key("alice"), dialect=dialect)
    answer = await alice.request(method, {"id": "nope"}, **{"a2a-version": version})
    assert error_of(answer)[0] == code
    if code == -32601:
        found = json.loads(answer.body)["error"]["message"]
        assert found.endswith({"GetTask": "calls it tasks/get", "tasks/get": "calls it GetTask"}[method])
    if code in (-32009, 400):
        assert "A2A-Version: 1.0" in json.loads(answer.body)["error"]["message"]


@requirement("a2a:rpc:envelope", "a2a:rpc:methods")
@pytest.mark.parametrize(
    ("body", "code", "request_id"),
    [
        (b"{", -32700, None),
        (b'"\xff"', -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"[]", -32600, None),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "GetTask"}]', -32600, None),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "GetTask"}', -32600, 1),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "GetTask"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": "a", "method": 7}', -32600, "a"),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "Nothing"}', -32601, 1),
        (b'{"jsonrpc": "2.0", "id": "a", "method": "GetTask", "params": []}', -32602, "a"),
        (b'{"jsonrpc": "2.0", "id": null, "method": "GetTask", "params": {}}', -32602, None),
    ],
)
async def test_a_wrong_envelope_is_an_error_with_the_id_that_could_be_read(
    alice: A2aClient, body: bytes, code: int, request_id: Json
) -> None:
    stream = await alice.open_raw("POST", "", body, {})
    answer = json.loads(await stream.read())
    assert (stream.status, answer["error"]["code"], answer["id"]) == (200, code, request_id)


@requirement("a2a:rpc:notification")
async def test_a_request_without_an_id_is_executed_and_not_answered(alice: A2aClient) -> None:
    sent = message("hello", contextId="notified")
    body = {"jsonrpc": "2.0", "method": "SendMessage", "params": {"message": sent}}
    stream = await alice.open_raw("POST", "", json.dumps(body).encode(), {})
    assert (stream.status, await stream.read()) == (204, b"")
    assert (await alice.list(contextId="notified"))["totalSize"] == 1


@requirement("a2a:http:paths", "a2a:errors:unsupported")
async def test_errors_of_both_bindings_name_the_reason_or_the_field(app_server: AppServer, alice: A2aClient) -> None:
    http = A2aClient(app_server.connection, app_server.key("alice"), dialect="http")
    refused = await http.request("GetTask", {"id": "nope"})
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "TASK_NOT_FOUND",
        "domain": "a2a-protocol.org",
        "metadata": {},
    }
    error = {"code": 404, "status": "NOT_FOUND", "message": "there is no such task", "details": [info]}
    assert (refused.status, json.loads(refused.body)) == (404, {"error": error})
    refused = await alice.request("GetTask", {"id": "nope"})
    error = {"code": -32001, "message": "there is no such task", "data": [info]}
    assert (refused.status, json.loads(refused.body)["error"]) == (200, error)
    task = await http.send("hello")
    for method in ("CreateTaskPushNotificationConfig", "GetExtendedAgentCard"):
        reason = "UNSUPPORTED_OPERATION" if method.startswith("Get") else "PUSH_NOTIFICATION_NOT_SUPPORTED"
        assert await http.error(method, {"id": task["id"]}) == (400, reason)
        assert (await alice.error(method, {"id": task["id"]}))[1] == reason
    many = {"message": {**message(""), "parts": [{"text": ""}] * 1001}}
    assert await alice.error("SendMessage", many) == (-32602, "message.parts")
    old = A2aClient(app_server.connection, app_server.key("alice"), dialect="old")
    assert (await old.error("GetExtendedAgentCard", {}))[0] == -32007
    for verb, path, status in (
        ("POST", "/tasks/x:explode", 404),
        ("DELETE", "/tasks", 405),
        ("GET", "/nothing/here", 404),
        ("POST", "/v1/message:send", 404),
    ):
        stream = await http.open_raw(verb, path, b"{}", {})
        assert (stream.status, json.loads(await stream.read())["error"]["code"]) == (status, status)
    stream = await http.open_raw("POST", "/message:send", b"{}", {"content-type": "text/plain"})
    assert stream.status == 415
    stream = await http.open_raw(
        "POST",
        "/message:send",
        json.dumps({"message": message("hi")}).encode(),
        {"content-type": "application/a2a+json", "a2a-extensions": f"urn:other, {ANSWERS}"},
    )
    assert (stream.status, stream.headers["content-type"]) == (200, "application/a2a+json")


@requirement("a2a:extensions:echo")
async def test_the_extension_for_answers_is_named_if_the_client_asks_for_it(alice: A2aClient) -> None:
    params = {"message": message("hello")}
    named = await alice.request("SendMessage", params, **{"a2a-extensions": f"urn:other, {ANSWERS}"})
    assert named.headers["a2a-extensions"] == ANSWERS
    assert "a2a-extensions" not in (await alice.request("SendMessage", params)).headers


@requirement("a2a:http:cors")
async def test_web_pages_may_send_and_read_the_protocols_headers(app_server: AppServer) -> None:
    asked = "authorization, a2a-version, a2a-extensions, last-event-id"
    headers = [
        ("origin", "https://page.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", asked),
    ]
    stream = await app_server.connection.open("OPTIONS", "/a2a/rehearsal", headers=headers)
    allowed = stream.headers["access-control-allow-headers"].split(", ")
    assert (stream.status, set(asked.split(", ")) <= set(allowed)) == (204, True)
    assert "a2a-extensions" in stream.headers["access-control-expose-headers"].split(", ")
