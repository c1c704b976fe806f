"""Agent API, sections 1 and 8: where it is served, who may call, and how it says no."""

import json
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.core import refusals
from dragoman.core.ids import CallId
from dragoman.protocols.agentscope.errors import ANSWERS, tell
from tests.asgi_client import Bridge
from tests.conversations import call, script
from tests.protocols.agentscope.client import ABSENT, CODES, Runtime, asks, data, output, pending, tool, user
from tests.requirements import requirement
from tests.servers import House, HouseMaker

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


# --- paths ------------------------------------------------------------------------------------------------------------


@requirement("agentscope:paths:service", "agentscope:paths:health", "agentscope:paths:probes")
async def test_the_open_pages_need_no_key(house: House) -> None:
    nobody = Runtime(house.line)
    told = {path: (await nobody.ask("GET", path)) for path in OPEN}
    assert [reply.status for reply in told.values()] == [200] * 4
    assert told["/"].json["service"] == "Dragoman"
    assert told["/"].json["endpoints"]["process"] == "/process"
    assert told["/health"].json == {"status": "healthy", "mode": "standalone", "runner": "ready"}
    assert (told["/readiness"].json, told["/liveness"].json) == ({"status": "ready"}, {"status": "alive"})


@requirement("agentscope:paths:probes", "agentscope:errors:draining")
async def test_a_server_that_stops_says_so_and_takes_nothing_new(open_house: HouseMaker) -> None:
    async with open_house() as house:
        alice = Runtime(house.line, house.key("alice"))
        await house.line.app.drain(0)  # type: ignore[attr-defined]  # the app of a house is the server's
        for path in ("/readiness", "/liveness"):
            reply = await alice.ask("GET", path)
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert (await alice.ask("GET", "/health")).json["runner"] == "not_ready"
        for path in ("/process", "/process/task"):
            reply = await alice.ask("POST", path, asks("hello"))
            assert (reply.status, reply.json["error"]["code"]) == (503, "UNAVAILABLE")
            assert reply.headers["retry-after"] == "1"


@requirement("agentscope:paths:configurable", "agentscope:paths:off")
async def test_the_path_is_a_setting_and_the_protocol_can_be_switched_off(open_house: HouseMaker) -> None:
    async with open_house(agentscope_path="/deep/down/run") as house:
        alice = Runtime(house.line, house.key("alice"), path="/deep/down/run")
        end = await alice.run("hello")
        assert (await alice.ask("GET", f"/deep/down/run/responses/{end['id']}")).json == end
        assert (await alice.ask("POST", "/deep/down/stop", {"session_id": "x"})).json["canceled"] is False
        assert (await alice.ask("GET", "/")).json["endpoints"]["stop"] == "/deep/down/stop"
        assert [(await alice.ask("POST", path, asks("x"))).status for path in ("/process", "/stop")] == [404, 404]
    async with open_house(agentscope=False) as house:
        nobody = Runtime(house.line)
        assert [(await nobody.ask("GET", path)).status for path in OPEN] == [404] * 4
        assert (await nobody.ask("POST", "/process", asks("hello"))).status == 404


@requirement("agentscope:paths:configurable")
async def test_it_works_behind_a_proxy_s_prefix(house: House) -> None:
    async def outer(scope, receive, send) -> None:  # type: ignore[no-untyped-def]  # a proxy in two lines
        inner = {**scope, "root_path": "/outer", "path": scope["path"]}
        await house.line.app(inner, receive, send)

    line = Bridge(outer)
    alice = Runtime(line, house.key("alice"), path="/outer/process")
    assert (await alice.run("hello"))["status"] == "completed"
    assert (await alice.ask("GET", "/outer/health")).status == 200


@requirement("agentscope:paths:no-shutdown")
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/shutdown"), ("POST", "/admin/shutdown"), ("GET", "/admin/status")]
)
async def test_no_path_stops_the_process(house: House, method: str, path: str) -> None:
    for who in ("alice", "admin"):
        assert (await Runtime(house.line, house.key(who)).ask(method, path)).status == 404


@requirement("agentscope:paths:wrong-method")
async def test_a_known_path_with_another_method_is_405(alice: Runtime) -> None:
    for method, path in (*PATHS, *(("GET", path) for path in OPEN)):
        for wrong in {"GET", "POST", "PUT", "DELETE", "PATCH"} - {method}:
            reply = await alice.ask(wrong, path)
            assert (reply.status, reply.headers["allow"]) == (405, method)
            assert reply.json["error"]["code"] == "METHOD_NOT_ALLOWED"


@requirement("agentscope:paths:unknown")
@pytest.mark.parametrize(
    "path",
    ["/process/x", "/process/task/", "/process/responses", "/process/responses/", "/process/sessions/x", "/process//"],
)
async def test_an_unknown_path_below_ours_is_404_in_our_form(alice: Runtime, path: str) -> None:
    reply = await alice.ask("GET", path)
    assert reply.status in (404, 405)
    assert reply.json["error"].keys() == {"code", "message"}


@requirement("agentscope:described")
async def test_every_route_is_described(house: House) -> None:
    document = (await Runtime(house.line).ask("GET", "/openapi.json")).json
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
async def test_a_key_is_asked_for_before_anything_else(house: House, header: str) -> None:
    nobody = Runtime(house.line)
    for method, path in (*PATHS, ("PUT", "/process"), ("GET", "/process/nowhere")):
        how = {"headers": {"authorization": header, "content-type": "text/html"}}
        reply = await nobody.ask(method, path, **how)
        assert (reply.status, reply.json["error"]["code"]) == (401, "UNAUTHORIZED")
        assert reply.headers["www-authenticate"] == "Bearer"


@requirement("agentscope:auth:scope")
async def test_a_key_that_may_only_read_starts_and_stops_nothing(house: House, alice: Runtime) -> None:
    reader = Runtime(house.line, house.key("alice_reads"))
    for method, path in PATHS:
        if method == "POST":
            assert await reader.refused(method, path, asks("hello")) == "PERMISSION_DENIED"
    end = await alice.run("hello")
    assert (await reader.ask("GET", f"/process/responses/{end['id']}")).json == end


@requirement("agentscope:auth:cors")
async def test_pages_of_any_origin_may_call_with_a_key_but_never_with_cookies(house: House) -> None:
    reply = await Runtime(house.line, house.key("alice")).ask(
        "POST", "/process", {"input": 1}, headers={"origin": "https://app.example"}
    )
    assert reply.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in reply.headers


@requirement("agentscope:errors:rate")
async def test_too_many_runs_and_streams_at_once_are_429(open_house: HouseMaker) -> None:
    async with open_house(max_runs_per_user=1, max_streams_per_user=1) as house:
        alice = Runtime(house.line, house.key("alice"))
        running = await alice.stream(asks(WAIT))
        await running.until_said("one")
        reply = await alice.ask("POST", "/process", asks("hello"))
        assert (reply.status, reply.json["error"]["code"]) == (429, "RATE_LIMIT_EXCEEDED")
        assert int(reply.headers["retry-after"]) > 0
        response_id = running.events[0]["id"]
        watching = await alice.replay(response_id)
        assert await alice.refused("GET", f"/process/responses/{response_id}/events") == "RATE_LIMIT_EXCEEDED"
        assert await alice.stop(response_id=response_id)
        assert await watching.end() == await running.end()
        assert (await alice.run("hello"))["status"] == "completed"
        assert (await (await alice.replay(response_id)).end())["status"] == "canceled"


@requirement("agentscope:errors:rate", "agentscope:once:attach")
async def test_who_sends_a_request_again_is_one_more_reader(open_house: HouseMaker) -> None:
    async with open_house(max_streams_per_user=1) as house:
        alice = Runtime(house.line, house.key("alice"))
        body = asks(WAIT, id="r-1")
        running = await alice.stream(body)
        again = await alice.stream(body)
        await again.until_said("one")
        for is_stream in (True, False):
            assert await alice.refused("POST", "/process", {**body, "stream": is_stream}) == "RATE_LIMIT_EXCEEDED"
        assert await alice.stop(response_id="r-1")
        assert await again.end() == await running.end()
        for _ in range(3):
            reply = await alice.ask("POST", "/process", {**body, "stream": False}, headers={"accept": "*/*"})
            assert reply.json == running.events[-1]


@requirement("agentscope:errors:rate")
async def test_a_refused_request_counts_as_no_run(open_house: HouseMaker) -> None:
    async with open_house(max_runs_per_user=1) as house:
        alice = Runtime(house.line, house.key("alice"))
        await alice.run("hello", session_id="s-1")
        for _ in range(2):
            late = asks(output("nothing", "x"), session_id="s-1")
            assert await alice.refused("POST", "/process", late) == "NOTHING_PENDING"
        assert (await alice.run("hello", session_id="s-1"))["status"] == "completed"


# --- bodies -----------------------------------------------------------------------------------------------------------


@requirement("agentscope:request:invalid-json")
@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff", b'{"input": [}', b'{"n": 1, }', b"[" * 100_000, b'{"input":[{"x":"\xff"}]}']
)
async def test_what_is_no_json_is_400(alice: Runtime, raw: bytes) -> None:
    for path in ("/process", "/process/task", "/stop"):
        assert await alice.refused("POST", path, raw=raw) == "INVALID_JSON"


@requirement("agentscope:request:types")
@pytest.mark.parametrize("raw", [b"[]", b"1", b'"x"', b"null", b"true"])
async def test_json_that_is_no_object_is_422(alice: Runtime, raw: bytes) -> None:
    for path in ("/process", "/process/task", "/stop"):
        assert await alice.refused("POST", path, raw=raw) == "INVALID_REQUEST"


@requirement("agentscope:request:media-type")
async def test_a_body_is_declared_as_json_or_not_at_all(alice: Runtime) -> None:
    for declared, status in (
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/json; charset=utf-8", 200),
        (ABSENT, 200),
    ):
        reply = await alice.ask("POST", "/process", asks("hello"), headers={"content-type": declared})
        assert reply.status == status


@requirement("agentscope:request:size")
async def test_a_body_over_the_limit_is_413(open_house: HouseMaker) -> None:
    async with open_house(body_bytes=2000) as house:
        alice = Runtime(house.line, house.key("alice"))
        assert (await alice.run("x" * 1000))["status"] == "completed"
        assert await alice.refused("POST", "/process", asks("x" * 2000)) == "BODY_TOO_LARGE"


@requirement("agentscope:errors:form")
async def test_a_refusal_names_each_place_as_fastapi_does(alice: Runtime) -> None:
    reply = await alice.ask("POST", "/process", asks(user("hello"), {"role": "robot", "content": "x"}))
    assert (reply.status, reply.json) == (
        422,
        {
            "error": {"code": "INVALID_REQUEST", "message": "input[1].role: Invalid enum value 'robot'"},
            "detail": [{"loc": ["body", "input", 1, "role"], "msg": "Invalid enum value 'robot'"}],
        },
    )
    reply = await alice.ask("POST", "/process", asks({"role": "user", "content": [{"type": "image"}]}))
    assert reply.json["detail"][0]["loc"] == ["body", "input", 0, "content", 0]


@requirement("agentscope:errors:form")
async def test_what_the_core_refuses_is_named_by_its_place_in_the_body(alice: Runtime) -> None:
    deep: Json = []
    for _ in range(200):
        deep = [deep]
    long = user("x" * 2_000_000)
    assistant = {"role": "assistant", "content": "hello"}
    nested = data("message", "user", {"a": deep})
    name = f"s-{uuid4()}"
    waits = pending(await alice.run("ask me", session_id=name))["AskUserQuestion"]
    other = output(waits, '{"selections": ["moon"]}')
    call = data("function_call", "assistant", {"call_id": "c", "name": "pick", "arguments": "{}"})
    for body, place in (
        (asks("hello", assistant, long), [2]),
        (asks(long, assistant, "hello"), [0]),
        (asks("hello", assistant, call, call, "hello"), [1]),
        (asks("hello", output("c", "x"), assistant, "hello"), [1]),
        (asks("hello", assistant, nested), [2, "content", 0, "data"]),
        (asks(assistant, "hello", long, session_id=name), [2]),
        (asks({"type": "error"}, other, session_id=name), [1]),
    ):
        reply = await alice.ask("POST", "/process", body)
        assert (reply.status, reply.json["error"]["code"]) == (422, "INVALID_REQUEST")
        assert [each["loc"] for each in reply.json["detail"]] == [["body", "input", *place]]
    for shape, place in ((tool("no good name"), [0, "function"]), (tool("no good name")["function"], [0])):
        reply = await alice.ask("POST", "/process", asks("hello", tools=[shape]))
        assert reply.json["detail"][0]["loc"] == ["body", "tools", *place, "name"]


@requirement("agentscope:errors:order")
async def test_the_checks_have_an_order(alice: Runtime) -> None:
    """Each request is wrong in all ways that are still left; the first of them is the answer."""
    name, used = f"s-{uuid4()}", f"r-{uuid4()}"
    await alice.run("hello", id=used, session_id=name, user_id="u-1")
    running = await alice.stream(asks(WAIT, session_id=name))
    await running.until_said("one")
    late = output("nothing", "x")
    body = asks(late, n=9, model="nobody", id=used, session_id=name, user_id="u-2")
    text = {"headers": {"content-type": "text/plain"}}
    assert await alice.refused("POST", "/process", raw=b"{", **text) == "UNSUPPORTED_MEDIA_TYPE"
    assert await alice.refused("POST", "/process", raw=b'{"n": 9, ') == "INVALID_JSON"
    assert await alice.refused("POST", "/process", body) == "INVALID_REQUEST"
    body |= {"n": 1}
    assert await alice.refused("POST", "/process", body) == "AGENT_NOT_FOUND"
    body |= {"model": "mirror"}
    assert await alice.refused("POST", "/process", body) == "RESPONSE_EXISTS"
    body |= {"id": None}
    assert await alice.refused("POST", "/process", body) == "PERMISSION_DENIED"
    body |= {"user_id": "u-1"}
    assert await alice.refused("POST", "/process", body) == "AGENT_FIXED"
    body |= {"model": "rehearsal"}
    assert await alice.refused("POST", "/process", body) == "SESSION_BUSY"
    assert await alice.stop(session_id=name)
    assert await alice.refused("POST", "/process", body) == "NOTHING_PENDING"


@requirement("agentscope:errors:table")
def test_every_refusal_of_the_core_has_an_answer() -> None:
    assert set(ANSWERS) == set(refusals.all_refusals())
    for kind, answer in ANSWERS.items():
        assert CODES.get(answer.code, answer.status) == answer.status, kind
    assert tell(refusals.UnknownCall(CallId("c"))).status == 409


# --- any bytes --------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("input", "stream", "model", "n", "tools", "session_id", "id", "stop", "user_id", "timeout", "role", "type")
WORDS = (
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
VALUES = st.sampled_from(WORDS) | JSON
CONTENT = st.fixed_dictionaries({}, optional=dict.fromkeys(("type", "text", "data", "image_url", "delta"), VALUES))
MESSAGE = st.fixed_dictionaries(
    {},
    optional={"role": VALUES, "type": VALUES, "id": VALUES, "content": VALUES | st.lists(CONTENT | JSON, max_size=3)},
)
BODY = st.fixed_dictionaries(
    {"input": st.lists(MESSAGE | JSON, max_size=3) | JSON}, optional=dict.fromkeys(FIELDS[1:], VALUES)
)


@requirement("agentscope:request:any-bytes")
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(body=BODY.map(lambda each: json.dumps(each).encode()) | st.binary(max_size=200), path=st.sampled_from(PATHS[:3]))
async def test_any_body_is_a_response_or_a_refusal(house: House, body: bytes, path: tuple[str, str]) -> None:
    alice = Runtime(house.line, house.key("alice"))
    reply = await alice.ask(*path, raw=body)
    assert reply.status < 500, (body, reply.body)
    if reply.status != 200:
        assert reply.json["error"]["code"] in CODES


@requirement("agentscope:request:any-bytes")
@pytest.mark.parametrize("text", ["\ud800", "\x00", "\u2028", "a" * 100_000])
async def test_odd_characters_break_nothing(alice: Runtime, text: str) -> None:
    raw = json.dumps(asks(text, session_id=f"s-{uuid4()}")).encode()
    reply = await alice.ask("POST", "/process", raw=raw)
    assert reply.status in (200, 400, 422)
    odd = json.dumps(asks(script(call("nowhere")), session_id=text[:200] + str(uuid4()))).encode()
    assert (await alice.ask("POST", "/process", raw=odd)).status in (200, 400, 422)
