"""Agent API, sections 1 and 8: paths, authentication and error responses."""

import json
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.core import refusals
from dragoman.core.ids import CallId
from dragoman.protocols.agentscope.errors import ERROR_TABLE, TaskNotFound
from dragoman.protocols.kit.errors import REQUEST_ERRORS
from tests.asgi_client import AsgiClient
from tests.conversations import call, script
from tests.protocols.agentscope.client import (
    ABSENT,
    CODES,
    AgentScopeClient,
    data,
    output,
    pending,
    request_body,
    tool,
    user,
)
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

Json = Any

WAIT = script({"say": "one"}, {"wait_ms": 600_000})
PATHS = (
    ("POST", "/process"),
    ("POST", "/process/task"),
    ("POST", "/stop"),
    ("GET", "/process/task/x"),
    ("GET", "/process/responses/x"),
    ("GET", "/process/responses/x/events"),
    ("GET", "/process/sessions/x/events"),
)
OPEN = ("/", "/health", "/readiness", "/liveness")

WRONG_ROLE = "Invalid enum value 'robot'; expected 'assistant', 'system', 'tool' or 'user'"


# --- paths ------------------------------------------------------------------------------------------------------------


@requirement("agentscope:paths:service", "agentscope:paths:health", "agentscope:paths:probes")
async def test_public_paths_need_no_key(app_server: AppServer) -> None:
    anonymous = AgentScopeClient(app_server.connection)
    replies = {path: (await anonymous.request("GET", path)) for path in OPEN}
    assert [reply.status for reply in replies.values()] == [200] * 4
    assert replies["/"].json["service"] == "Dragoman"
    assert replies["/"].json["endpoints"]["process"] == "/process"
    assert replies["/health"].json == {"status": "healthy", "mode": "standalone", "runner": "ready"}
    assert (replies["/readiness"].json, replies["/liveness"].json) == ({"status": "ready"}, {"status": "alive"})


@requirement("agentscope:paths:probes", "agentscope:errors:draining")
async def test_a_draining_server_is_not_ready_and_refuses_requests(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        await server.connection.app.drain(0)  # type: ignore[attr-defined]  # the app under test is the server's own
        for path in ("/readiness", "/liveness"):
            reply = await alice.request("GET", path)
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert (await alice.request("GET", "/health")).json["runner"] == "not_ready"
        for path in ("/process", "/process/task"):
            reply = await alice.request("POST", path, request_body("hello"))
            assert (reply.status, reply.json["error"]["code"]) == (503, "UNAVAILABLE")
            assert reply.headers["retry-after"] == "1"


@requirement("agentscope:paths:configurable", "agentscope:paths:off")
async def test_the_path_is_a_setting_and_the_protocol_can_be_switched_off(open_app_server: AppServerFactory) -> None:
    async with open_app_server(agentscope_path="/deep/down/run") as server:
        alice = AgentScopeClient(server.connection, server.key("alice"), path="/deep/down/run")
        end = await alice.run("hello")
        assert (await alice.request("GET", f"/deep/down/run/responses/{end['id']}")).json == end
        assert (await alice.request("POST", "/deep/down/stop", {"session_id": "x"})).json["canceled"] is False
        assert (await alice.request("GET", "/")).json["endpoints"]["stop"] == "/deep/down/stop"
        assert [(await alice.request("POST", path, request_body("x"))).status for path in ("/process", "/stop")] == [
            404,
            404,
        ]
    async with open_app_server(agentscope=False) as server:
        anonymous = AgentScopeClient(server.connection)
        assert [(await anonymous.request("GET", path)).status for path in OPEN] == [404] * 4
        assert (await anonymous.request("POST", "/process", request_body("hello"))).status == 404


@requirement("agentscope:paths:configurable")
async def test_the_protocol_works_behind_a_proxy_s_prefix(app_server: AppServer) -> None:
    async def outer(scope, receive, send) -> None:  # type: ignore[no-untyped-def]  # a minimal proxy
        inner = {**scope, "root_path": "/outer", "path": scope["path"]}
        await app_server.connection.app(inner, receive, send)

    proxied = AsgiClient(outer)
    alice = AgentScopeClient(proxied, app_server.key("alice"), path="/outer/process")
    assert (await alice.run("hello"))["status"] == "completed"
    assert (await alice.request("GET", "/outer/health")).status == 200


@requirement("agentscope:paths:no-shutdown")
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/shutdown"), ("POST", "/admin/shutdown"), ("GET", "/admin/status")]
)
async def test_no_route_stops_the_process(app_server: AppServer, method: str, path: str) -> None:
    for who in ("alice", "admin"):
        assert (await AgentScopeClient(app_server.connection, app_server.key(who)).request(method, path)).status == 404


@requirement("agentscope:paths:wrong-method")
async def test_a_known_path_with_another_method_is_405(alice: AgentScopeClient) -> None:
    for method, path in (*PATHS, *(("GET", path) for path in OPEN)):
        for wrong in {"GET", "POST", "PUT", "DELETE", "PATCH"} - {method}:
            reply = await alice.request(wrong, path)
            assert (reply.status, reply.headers["allow"]) == (405, method)
            assert reply.json["error"]["code"] == "METHOD_NOT_ALLOWED"


@requirement("agentscope:paths:unknown")
@pytest.mark.parametrize(
    "path",
    ["/process/x", "/process/task/", "/process/responses", "/process/responses/", "/process/sessions/x", "/process//"],
)
async def test_an_unknown_path_below_the_configured_one_is_404_in_the_protocol_s_form(
    alice: AgentScopeClient, path: str
) -> None:
    reply = await alice.request("GET", path)
    assert reply.status in (404, 405)
    assert reply.json["error"].keys() == {"code", "message"}


@requirement("agentscope:described")
async def test_every_route_is_in_the_openapi_document(app_server: AppServer) -> None:
    document = (await AgentScopeClient(app_server.connection).request("GET", "/openapi.json")).json
    ours = {
        (method, path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if operation["tags"] == ["AgentScope Runtime"]
    }
    assert ours == {
        ("post", "/process"),
        ("post", "/process/task"),
        ("post", "/stop"),
        ("get", "/process/task/{task_id}"),
        ("get", "/process/responses/{response_id}"),
        ("get", "/process/responses/{response_id}/events"),
        ("get", "/process/sessions/{session_id}/events"),
        *(("get", path) for path in OPEN),
    }


# --- keys -------------------------------------------------------------------------------------------------------------


@requirement("agentscope:auth:bearer", "agentscope:errors:order")
@pytest.mark.parametrize("header", [ABSENT, "", "Bearer", "Bearer sk-dragoman-wrong", "Basic YTpi"])
async def test_the_key_is_checked_first(app_server: AppServer, header: str) -> None:
    anonymous = AgentScopeClient(app_server.connection)
    for method, path in (*PATHS, ("PUT", "/process"), ("GET", "/process/nowhere")):
        how = {"headers": {"authorization": header, "content-type": "text/html"}}
        reply = await anonymous.request(method, path, **how)
        assert (reply.status, reply.json["error"]["code"]) == (401, "UNAUTHORIZED")
        assert reply.headers["www-authenticate"] == "Bearer"


@requirement("agentscope:auth:scope")
async def test_a_read_only_key_can_neither_start_nor_stop_runs(app_server: AppServer, alice: AgentScopeClient) -> None:
    reader = AgentScopeClient(app_server.connection, app_server.key("alice_reads"))
    for method, path in PATHS:
        if method == "POST":
            assert await reader.assert_refused(method, path, request_body("hello")) == "PERMISSION_DENIED"
    end = await alice.run("hello")
    assert (await reader.request("GET", f"/process/responses/{end['id']}")).json == end


@requirement("agentscope:auth:cors")
async def test_any_origin_is_allowed_with_a_key_but_never_with_cookies(app_server: AppServer) -> None:
    reply = await AgentScopeClient(app_server.connection, app_server.key("alice")).request(
        "POST", "/process", {"input": 1}, headers={"origin": "https://app.example"}
    )
    assert reply.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in reply.headers


@requirement("agentscope:errors:rate")
async def test_too_many_concurrent_runs_or_streams_are_429(open_app_server: AppServerFactory) -> None:
    async with open_app_server(max_runs_per_user=1, max_streams_per_user=1) as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        running = await alice.stream(request_body(WAIT))
        await running.wait_for_text("one")
        reply = await alice.request("POST", "/process", request_body("hello"))
        assert (reply.status, reply.json["error"]["code"]) == (429, "RATE_LIMIT_EXCEEDED")
        assert int(reply.headers["retry-after"]) > 0
        response_id = running.events[0]["id"]
        watching = await alice.replay(response_id)
        assert await alice.assert_refused("GET", f"/process/responses/{response_id}/events") == "RATE_LIMIT_EXCEEDED"
        assert await alice.stop(response_id=response_id)
        assert await watching.end() == await running.end()
        assert (await alice.run("hello"))["status"] == "completed"
        assert (await (await alice.replay(response_id)).end())["status"] == "canceled"


@requirement("agentscope:errors:rate", "agentscope:once:attach")
async def test_a_repeated_request_counts_as_one_more_stream(open_app_server: AppServerFactory) -> None:
    async with open_app_server(max_streams_per_user=1) as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        body = request_body(WAIT, id="r-1")
        running = await alice.stream(body)
        again = await alice.stream(body)
        await again.wait_for_text("one")
        for is_stream in (True, False):
            assert (
                await alice.assert_refused("POST", "/process", {**body, "stream": is_stream}) == "RATE_LIMIT_EXCEEDED"
            )
        assert await alice.stop(response_id="r-1")
        assert await again.end() == await running.end()
        for _ in range(3):
            reply = await alice.request("POST", "/process", {**body, "stream": False}, headers={"accept": "*/*"})
            assert reply.json == running.events[-1]


@requirement("agentscope:errors:rate")
async def test_a_refused_request_does_not_count_as_a_run(open_app_server: AppServerFactory) -> None:
    async with open_app_server(max_runs_per_user=1) as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        await alice.run("hello", session_id="s-1")
        for _ in range(2):
            late = request_body(output("nothing", "x"), session_id="s-1")
            assert await alice.assert_refused("POST", "/process", late) == "NOTHING_PENDING"
        assert (await alice.run("hello", session_id="s-1"))["status"] == "completed"


# --- bodies -----------------------------------------------------------------------------------------------------------


@requirement("agentscope:request:invalid-json")
@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff", b'{"input": [}', b'{"n": 1, }', b"[" * 100_000, b'{"input":[{"x":"\xff"}]}']
)
async def test_a_body_that_is_not_json_is_400(alice: AgentScopeClient, raw: bytes) -> None:
    for path in ("/process", "/process/task", "/stop"):
        assert await alice.assert_refused("POST", path, raw=raw) == "INVALID_JSON"


@requirement("agentscope:request:types")
@pytest.mark.parametrize("raw", [b"[]", b"1", b'"x"', b"null", b"true"])
async def test_json_that_is_not_an_object_is_422(alice: AgentScopeClient, raw: bytes) -> None:
    for path in ("/process", "/process/task", "/stop"):
        assert await alice.assert_refused("POST", path, raw=raw) == "INVALID_REQUEST"


@requirement("agentscope:request:media-type")
async def test_a_body_declared_as_another_type_than_json_is_415(alice: AgentScopeClient) -> None:
    for declared, status in (
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/json; charset=utf-8", 200),
        (ABSENT, 200),
    ):
        reply = await alice.request("POST", "/process", request_body("hello"), headers={"content-type": declared})
        assert reply.status == status


@requirement("agentscope:request:size")
async def test_a_body_over_the_limit_is_413(open_app_server: AppServerFactory) -> None:
    async with open_app_server(body_bytes=2000) as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        assert (await alice.run("x" * 1000))["status"] == "completed"
        assert await alice.assert_refused("POST", "/process", request_body("x" * 2000)) == "BODY_TOO_LARGE"


@requirement("agentscope:errors:form")
async def test_a_refusal_names_the_field_as_fastapi_does(alice: AgentScopeClient) -> None:
    reply = await alice.request("POST", "/process", request_body(user("hello"), {"role": "robot", "content": "x"}))
    assert (reply.status, reply.json) == (
        422,
        {
            "error": {
                "code": "INVALID_REQUEST",
                "message": f"input[1].role: {WRONG_ROLE}",
            },
            "detail": [
                {
                    "loc": ["body", "input", 1, "role"],
                    "msg": WRONG_ROLE,
                }
            ],
        },
    )
    reply = await alice.request("POST", "/process", request_body({"role": "user", "content": [{"type": "image"}]}))
    assert reply.json["detail"][0]["loc"] == ["body", "input", 0, "content", 0]


@requirement("agentscope:errors:form")
async def test_a_refusal_of_the_core_names_the_field_of_the_body(alice: AgentScopeClient) -> None:
    deep: Json = []
    for _ in range(200):
        deep = [deep]
    long = user("x" * 2_000_000)
    assistant = {"role": "assistant", "content": "hello"}
    nested = data("message", "user", {"a": deep})
    name = f"s-{uuid4()}"
    call_id = pending(await alice.run("ask me", session_id=name))["AskUserQuestion"]
    other = output(call_id, '{"selections": ["moon"]}')
    call = data("function_call", "assistant", {"call_id": "c", "name": "pick", "arguments": "{}"})
    for body, place in (
        (request_body("hello", assistant, long), [2]),
        (request_body(long, assistant, "hello"), [0]),
        (request_body("hello", assistant, call, call, "hello"), [1]),
        (request_body("hello", output("c", "x"), assistant, "hello"), [1]),
        (request_body("hello", assistant, nested), [2, "content", 0, "data"]),
        (request_body(assistant, "hello", long, session_id=name), [2]),
        (request_body({"type": "error"}, other, session_id=name), [1]),
    ):
        reply = await alice.request("POST", "/process", body)
        assert (reply.status, reply.json["error"]["code"]) == (422, "INVALID_REQUEST")
        assert [each["loc"] for each in reply.json["detail"]] == [["body", "input", *place]]
    for shape, place in ((tool("no good name"), [0, "function"]), (tool("no good name")["function"], [0])):
        reply = await alice.request("POST", "/process", request_body("hello", tools=[shape]))
        assert reply.json["detail"][0]["loc"] == ["body", "tools", *place, "name"]


@requirement("agentscope:errors:order")
async def test_the_checks_have_an_order(open_app_server: AppServerFactory) -> None:
    """Each request is wrong in all ways that are still left; the first of them is the answer."""
    async with open_app_server(agentscope_strict_model=True) as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        name, used = f"s-{uuid4()}", f"r-{uuid4()}"
        await alice.run("hello", id=used, session_id=name, user_id="u-1")
        running = await alice.stream(request_body(WAIT, session_id=name))
        await running.wait_for_text("one")
        late = output("nothing", "x")
        body = request_body(late, n=9, model="unknown", id=used, session_id=name, user_id="u-2")
        text = {"headers": {"content-type": "text/plain"}}
        assert await alice.assert_refused("POST", "/process", raw=b"{", **text) == "UNSUPPORTED_MEDIA_TYPE"
        assert await alice.assert_refused("POST", "/process", raw=b'{"n": 9, ') == "INVALID_JSON"
        assert await alice.assert_refused("POST", "/process", body) == "INVALID_REQUEST"
        body |= {"n": 1}
        assert await alice.assert_refused("POST", "/process", body) == "AGENT_NOT_FOUND"
        body |= {"model": "mirror"}
        assert await alice.assert_refused("POST", "/process", body) == "RESPONSE_EXISTS"
        body |= {"id": None}
        assert await alice.assert_refused("POST", "/process", body) == "PERMISSION_DENIED"
        body |= {"user_id": "u-1"}
        assert await alice.assert_refused("POST", "/process", body) == "AGENT_FIXED"
        body |= {"model": "rehearsal"}
        assert await alice.assert_refused("POST", "/process", body) == "SESSION_BUSY"
        assert await alice.stop(session_id=name)
        assert await alice.assert_refused("POST", "/process", body) == "NOTHING_PENDING"


@requirement("agentscope:errors:table")
def test_every_refusal_of_the_core_has_a_response() -> None:
    assert set(ERROR_TABLE.rows) == {*refusals.all_refusals(), *REQUEST_ERRORS, TaskNotFound}
    for kind, answer in ERROR_TABLE.rows.items():
        assert CODES.get(answer.code, answer.status) == answer.status, kind
    assert ERROR_TABLE.to_response(refusals.UnknownCall(CallId("c"))).status == 409


# --- any bytes --------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("input", "stream", "model", "n", "tools", "session_id", "id", "stop", "user_id", "timeout", "role", "type")
STRINGS = (
    "user",
    "assistant",
    "tool",
    "message",
    "function_call_output",
    "mcp_approval_response",
    "text",
    "data",
    "hello",
)
VALUES = st.sampled_from(STRINGS) | JSON
CONTENT = st.fixed_dictionaries({}, optional=dict.fromkeys(("type", "text", "data", "image_url", "delta"), VALUES))
MESSAGE = st.fixed_dictionaries(
    {},
    optional={"role": VALUES, "type": VALUES, "id": VALUES, "content": VALUES | st.lists(CONTENT | JSON, max_size=3)},
)
BODY = st.fixed_dictionaries(
    {"input": st.lists(MESSAGE | JSON, max_size=3) | JSON}, optional=dict.fromkeys(FIELDS[1:], VALUES)
)


@requirement("agentscope:request:any-bytes")
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(body=BODY.map(lambda each: json.dumps(each).encode()) | st.binary(max_size=200), path=st.sampled_from(PATHS[:3]))
async def test_any_body_gets_a_response_or_a_refusal(app_server: AppServer, body: bytes, path: tuple[str, str]) -> None:
    alice = AgentScopeClient(app_server.connection, app_server.key("alice"))
    reply = await alice.request(*path, raw=body)
    assert reply.status < 500, (body, reply.body)
    if reply.status != 200:
        assert reply.json["error"]["code"] in CODES


@requirement("agentscope:request:any-bytes")
@pytest.mark.parametrize("text", ["\ud800", "\x00", "\u2028", "a" * 100_000])
async def test_unusual_characters_break_nothing(alice: AgentScopeClient, text: str) -> None:
    raw = json.dumps(request_body(text, session_id=f"s-{uuid4()}")).encode()
    reply = await alice.request("POST", "/process", raw=raw)
    assert reply.status in (200, 400, 422)
    odd = json.dumps(request_body(script(call("nowhere")), session_id=text[:200] + str(uuid4()))).encode()
    assert (await alice.request("POST", "/process", raw=odd)).status in (200, 400, 422)
