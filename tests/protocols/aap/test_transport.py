"""AAP, section 1: transport, keys, owners, browsers."""

import json

import pytest

from tests.asgi_client import AsgiClient
from tests.protocols.aap.client import (
    ABSENT,
    BASE,
    AapClient,
    Reply,
    Session,
    assert_refusal,
    assert_unchanged,
    assistant_text,
    client_tool,
    script,
    user,
)
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

ORIGIN = "https://app.example"

ENDPOINTS = (
    ("GET", "/meta"),
    ("POST", "/sessions"),
    ("GET", "/sessions"),
    ("GET", "/sessions/{id}"),
    ("DELETE", "/sessions/{id}"),
    ("GET", "/sessions/{id}/history?type=full"),
    ("POST", "/sessions/{id}/turns"),
    ("POST", "/sessions/{id}/stop"),
    ("GET", "/sessions/{id}/events"),
)
OF_A_SESSION = [endpoint for endpoint in ENDPOINTS if "{id}" in endpoint[1]]
WRITING = [endpoint for endpoint in ENDPOINTS if endpoint[0] != "GET"]


def body_for(path: str) -> dict[str, object] | None:
    """A body that the endpoint would take."""
    if path == "/sessions":
        return {"agent": {"name": "rehearsal"}}
    return {"messages": [user("hello")]} if path.endswith("/turns") else None


async def send_request(client: AapClient, method: str, path: str, session_id: str, **headers: str) -> Reply:
    body = body_for(path) if method == "POST" else None
    return await client.request(method, path.replace("{id}", session_id), body, headers=headers)


# --- base path and bodies ---------------------------------------------------------------------------------------------


@requirement("aap:transport:any-prefix")
async def test_the_api_works_below_another_prefix_and_its_location_names_it(app_server: AppServer) -> None:
    async def outer(scope, receive, send) -> None:  # type: ignore[no-untyped-def]  # a proxy in two lines
        inner = {**scope, "root_path": "/outer", "path": scope["path"]}
        await app_server.connection.app(inner, receive, send)

    client = AapClient(AsgiClient(outer), app_server.key("alice"), base=f"/outer{BASE}")
    reply = await client.post("/sessions", {"agent": {"name": "rehearsal"}})
    assert reply.status == 201
    assert reply.headers["location"].endswith(f"/outer{BASE}/sessions/{reply.json['sessionId']}")
    assert (await Session(client, reply.json["sessionId"]).run("hello")).text == "Hello! I am the rehearsal agent."


@requirement("aap:transport:any-prefix")
async def test_the_location_names_the_prefix_that_a_proxy_removes_from_paths(open_app_server: AppServerFactory) -> None:
    async with open_app_server(public_url="https://example.org/agents/") as server:
        reply = await server.aap_client("alice").post("/sessions", {"agent": {"name": "rehearsal"}})
    assert reply.headers["location"] == f"/agents{BASE}/sessions/{reply.json['sessionId']}"


@requirement("aap:transport:json-utf8")
async def test_text_of_every_script_comes_back_unchanged_escaped_or_not(aap_client: AapClient) -> None:
    text = 'Grüße, 你好, שלום, 🧑‍🚀 \u2028 \u0000 \x7f \ufeff "\\ \r\n end'
    session = await aap_client.create()
    for raw in (json.dumps({"messages": [user(text)]}), json.dumps({"messages": [user(text)]}, ensure_ascii=False)):
        reply = await aap_client.request("POST", f"{session.path}/turns", raw=raw.encode())
        assert reply.json["messages"] == [assistant_text(f"You said: {text}")]
        assert reply.headers["content-type"].lower() in ("application/json", "application/json; charset=utf-8")
    assert [message["content"] for message in await session.history() if message["role"] == "user"] == [text, text]


@requirement("aap:transport:content-type-without-body")
async def test_get_and_delete_take_a_content_type_without_a_body(aap_client: AapClient) -> None:
    session = await aap_client.create()
    lines = {"content-type": "application/json"}
    assert (await aap_client.request("GET", session.path, headers=lines)).status == 200
    assert (await aap_client.request("DELETE", session.path, headers=lines)).status == 204


# --- keys -------------------------------------------------------------------------------------------------------------


@requirement("aap:auth:every-endpoint", "aap:auth:bad-key-is-401", "aap:auth:meta-needs-key")
@pytest.mark.parametrize(
    "header",
    [
        ABSENT,
        "",
        "Bearer",
        "Bearer ",
        "Bearer sk-dragoman-unknown",
        "Basic YTpi",
        "KEY",
        "bearer  KEY KEY",
        "Token KEY",
    ],
)
async def test_every_endpoint_without_a_good_key_is_401_and_says_bearer(app_server: AppServer, header: str) -> None:
    session = await app_server.aap_client("alice").create()
    nobody = AapClient(app_server.connection)
    async with assert_unchanged(session):
        for method, path in ENDPOINTS:
            reply = await send_request(
                nobody, method, path, session.id, authorization=header.replace("KEY", app_server.key("alice"))
            )
            assert_refusal(reply, 401, "unauthorized")
            assert reply.headers["www-authenticate"].split()[0] == "Bearer"


@requirement("aap:auth:every-endpoint")
async def test_the_scheme_is_read_in_any_case(app_server: AppServer) -> None:
    client = AapClient(app_server.connection)
    reply = await client.request("GET", "/meta", headers={"authorization": f"bearer {app_server.key('alice')}"})
    assert reply.status == 200


@requirement("aap:auth:scope-is-403")
async def test_a_key_that_may_only_read_reads_and_gets_403_for_the_rest(app_server: AppServer) -> None:
    session = await app_server.aap_client("alice").create()
    reader = session.as_client(app_server.aap_client("alice_reads"))
    assert (await reader.info())["sessionId"] == session.id
    assert await reader.history() == []
    async with assert_unchanged(session):
        for method, path in WRITING:
            assert_refusal(await send_request(reader.client, method, path, session.id), 403, "forbidden")


@requirement("aap:auth:public-meta")
async def test_public_meta_opens_the_meta_page_and_nothing_else(open_app_server: AppServerFactory) -> None:
    async with open_app_server(public_meta=True) as server:
        nobody = AapClient(server.connection)
        assert (await nobody.get("/meta")).json == (await server.aap_client("alice").get("/meta")).json
        assert_refusal(await nobody.get("/sessions"), 401, "unauthorized")


@requirement("aap:auth:keyless-ignores-header")
@pytest.mark.parametrize("header", [ABSENT, "Bearer ", "Bearer x", "nonsense"])
async def test_a_server_without_keys_ignores_the_header(keyless_server: AppServer, header: str) -> None:
    client = AapClient(keyless_server.connection)
    session_id = (
        await client.post("/sessions", {"agent": {"name": "rehearsal"}}, headers={"authorization": header})
    ).json["sessionId"]
    for method, path in ENDPOINTS[:-1]:
        reply = await send_request(client, method, path, session_id, authorization=header)
        assert reply.status < 300 or method == "POST", (method, path, reply)
        if method == "DELETE":
            session_id = (await client.create()).id


# --- owners -----------------------------------------------------------------------------------------------------------


@requirement(
    "aap:tenancy:foreign-is-404", "aap:tenancy:foreign-is-unknown", "aap:session:unknown-is-404", "aap:delete:gone"
)
@pytest.mark.parametrize(("method", "path"), OF_A_SESSION)
async def test_a_foreign_a_deleted_and_an_unknown_session_get_the_same_404(
    app_server: AppServer, method: str, path: str
) -> None:
    client, other = app_server.aap_client("alice"), app_server.aap_client("bob")
    foreign, deleted = await other.create(), await client.create()
    await foreign.run("hello")
    await deleted.run("hello")
    await deleted.delete()
    unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
    async with assert_unchanged(foreign):
        replies = [await send_request(client, method, path, each) for each in (foreign.id, deleted.id, unknown)]
    for reply in replies:
        assert_refusal(reply, 404, "session_not_found")
    bodies = {
        reply.body.replace(each.encode(), b"ID")
        for reply, each in zip(replies, (foreign.id, deleted.id, unknown), strict=True)
    }
    assert len(bodies) == 1
    assert len({tuple(sorted(set(reply.headers) - {"content-length"})) for reply in replies}) == 1


@requirement("aap:tenancy:foreign-is-404", "aap:get:200", "aap:turn:200", "aap:delete:204")
async def test_every_endpoint_serves_the_owner(aap_client: AapClient) -> None:
    session = await aap_client.create()
    for method, path in OF_A_SESSION:
        if path.endswith("/events"):
            continue  # it stays open; its own tests read it
        if method != "DELETE":
            assert (await send_request(aap_client, method, path, session.id)).status == 200, (method, path)
    assert (await session.delete()).status == 204


@requirement("aap:tenancy:listing-is-own")
async def test_a_listing_shows_the_callers_sessions_only(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        mine, hers = await server.aap_client("alice").create(), await server.aap_client("bob").create()
        assert [each["sessionId"] for each in (await server.aap_client("alice").get("/sessions")).json["sessions"]] == [
            mine.id
        ]
        assert [each["sessionId"] for each in (await server.aap_client("bob").get("/sessions")).json["sessions"]] == [
            hers.id
        ]


@requirement("aap:turn:other-client-answers")
async def test_a_second_key_of_the_owner_may_answer_what_the_first_was_asked(app_server: AppServer) -> None:
    console = await app_server.aap_client("alice").create(tools=[client_tool("paint")])
    asked = await console.run(script({"call": {"name": "paint", "input": {}}}, {"say": "done: {result}"}))
    phone = console.as_client(app_server.aap_client("alice_phone"))
    answered = await phone.run([{"role": "tool", "toolCallId": asked.calls[0].id, "content": "blue"}])
    assert (answered.stop, answered.messages) == ("end_turn", [assistant_text("done: blue")])


# --- browsers ---------------------------------------------------------------------------------------------------------


async def preflight(server: AppServer, path: str, method: str, *headers: str) -> Reply:
    lines = {"content-type": ABSENT, "origin": ORIGIN, "access-control-request-method": method}
    if headers:
        lines["access-control-request-headers"] = ", ".join(headers)
    exchange = await AapClient(server.connection).open("OPTIONS", path, headers=lines)
    return Reply(exchange.status, exchange.headers, await exchange.read())


@requirement(
    "aap:cors:preflight-without-key", "aap:cors:preflight-allows", "aap:cors:max-age", "aap:cors:star-with-keys"
)
@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
async def test_a_preflight_is_answered_without_a_key_for_every_endpoint(
    app_server: AppServer, method: str, path: str
) -> None:
    wanted = ("authorization", "content-type", "accept", "idempotency-key", "last-event-id")
    reply = await preflight(app_server, path.replace("{id}", "x"), method, *wanted)
    assert reply.status in (200, 204)
    allowed = {name.strip().lower() for name in reply.headers["access-control-allow-headers"].split(",")}
    assert set(wanted) <= allowed
    methods = {name.strip() for name in reply.headers["access-control-allow-methods"].split(",")}
    assert methods >= {"GET", "POST", "DELETE"}
    assert int(reply.headers["access-control-max-age"]) > 0
    assert reply.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in reply.headers


@requirement("aap:cors:origin-on-every-answer", "aap:cors:star-with-keys")
async def test_every_answer_carries_the_allowed_origin_whatever_its_status(app_server: AppServer) -> None:
    client, nobody = app_server.aap_client("alice"), AapClient(app_server.connection)
    session = await client.create()
    lines = {"origin": ORIGIN}
    turn = {"messages": [user("hello")]}
    replies = [
        await client.request("GET", "/meta", headers=lines),
        await client.request("POST", "/sessions", {"agent": {"name": "rehearsal"}}, headers=lines),
        await client.request("POST", f"{session.path}/turns", turn, headers=lines),
        await client.request("POST", f"{session.path}/turns", {**turn, "stream": "delta"}, headers=lines),
        await client.request("POST", f"{session.path}/turns", raw=b"{", headers=lines),
        await nobody.request("GET", "/meta", headers=lines),
        await client.request("GET", "/sessions/x", headers=lines),
        await client.request("GET", "/nowhere", headers=lines),
        await client.request("PUT", "/meta", headers=lines),
        await client.request("POST", "/sessions", raw=b"x", headers={**lines, "content-type": "text/plain"}),
        await client.request("DELETE", session.path, headers=lines),
    ]
    assert [reply.status for reply in replies] == [200, 201, 200, 200, 400, 401, 404, 404, 405, 415, 204]
    assert [reply.headers.get("access-control-allow-origin") for reply in replies] == ["*"] * len(replies)
    assert not any("access-control-allow-credentials" in reply.headers for reply in replies)


@requirement("aap:cors:origins-setting")
async def test_configured_origins_are_allowed_and_others_are_not(open_app_server: AppServerFactory) -> None:
    async with open_app_server(cors_origins=[ORIGIN]) as server:
        client = server.aap_client("alice")
        allowed = await client.request("GET", "/meta", headers={"origin": ORIGIN})
        assert allowed.headers["access-control-allow-origin"] == ORIGIN
        assert "origin" in allowed.headers["vary"].lower()
        refused = await client.request("GET", "/meta", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in refused.headers


@requirement("aap:cors:keyless-default")
async def test_a_server_without_keys_allows_no_origin_by_default(keyless_server: AppServer) -> None:
    reply = await preflight(keyless_server, "/sessions", "POST", "content-type")
    assert reply.status == 403
    assert "access-control-allow-origin" not in reply.headers
    answer = await AapClient(keyless_server.connection).request("GET", "/meta", headers={"origin": ORIGIN})
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


@requirement("aap:cors:keyless-checks-origin-and-host")
@pytest.mark.parametrize("lines", [{"origin": "https://evil.example"}, {"origin": "null"}, {"host": "evil.example"}])
async def test_a_server_without_keys_refuses_foreign_origins_and_hosts(
    keyless_server: AppServer, lines: dict[str, str]
) -> None:
    client = AapClient(keyless_server.connection)
    session = await client.create()
    async with assert_unchanged(session):
        for method, path in ENDPOINTS:
            assert_refusal(await send_request(client, method, path, session.id, **lines), 403, "forbidden")


# --- content types, methods, paths ------------------------------------------------------------------------------------


@requirement("aap:transport:wrong-type-is-415")
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "text/json", "nonsense"]
)
async def test_a_body_of_another_content_type_is_415(aap_client: AapClient, kind: str) -> None:
    session = await aap_client.create()
    async with assert_unchanged(session):
        for path in ("/sessions", f"{session.path}/turns"):
            reply = await aap_client.post(path, body_for(path), headers={"content-type": kind})
            assert_refusal(reply, 415, "unsupported_media_type")


@requirement("aap:transport:type-parameters", "aap:transport:no-type-is-json")
@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON;charset=UTF-8", ABSENT])
async def test_parameters_of_the_content_type_and_its_absence_are_fine(aap_client: AapClient, kind: str) -> None:
    session = await aap_client.create()
    assert (await session.run("hello", headers={"content-type": kind})).messages == [
        assistant_text("Hello! I am the rehearsal agent.")
    ]


@requirement("aap:transport:wrong-method-is-405")
@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/meta", {"GET"}),
        ("/sessions", {"GET", "POST"}),
        ("/sessions/{id}", {"GET", "DELETE"}),
        ("/sessions/{id}/history", {"GET"}),
        ("/sessions/{id}/turns", {"POST"}),
        ("/sessions/{id}/events", {"GET"}),
        ("/sessions/{id}/stop", {"POST"}),
    ],
)
async def test_a_wrong_method_is_405_and_names_the_right_ones(
    aap_client: AapClient, path: str, known: set[str]
) -> None:
    session = await aap_client.create()
    async with assert_unchanged(session):
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - known:
            reply = await aap_client.request(
                method, path.replace("{id}", session.id), {} if method in ("PUT", "PATCH") else None
            )
            assert_refusal(reply, 405, "method_not_allowed")
            allowed = {name.strip() for name in reply.headers["allow"].split(",")}
            assert allowed - {"HEAD", "OPTIONS"} == known


@requirement("aap:transport:unknown-path-is-404")
@pytest.mark.parametrize(
    "path", ["", "/", "/nowhere", "/sessions/{id}/nowhere", "/sessions/{id}/history/full", "/META"]
)
async def test_an_unknown_path_is_404_with_an_error_body(aap_client: AapClient, path: str) -> None:
    session = await aap_client.create()
    assert_refusal(await aap_client.get(path.replace("{id}", session.id)), 404, "not_found")


@requirement("aap:transport:trailing-slash")
async def test_a_trailing_slash_changes_nothing(aap_client: AapClient) -> None:
    session = await aap_client.create()
    for path in ("/meta", "/sessions", session.path, f"{session.path}/history"):
        query = "?type=full" if path.endswith("/history") else ""
        assert (await aap_client.get(f"{path}/{query}")).json == (await aap_client.get(f"{path}{query}")).json
    assert (await aap_client.post(f"{session.path}/turns/", {"messages": [user("hello")]})).json["messages"] == [
        assistant_text("Hello! I am the rehearsal agent.")
    ]
    assert (await aap_client.post("/sessions/", {"agent": {"name": "rehearsal"}})).status == 201
    assert (await aap_client.request("DELETE", f"{session.path}/")).status == 204
