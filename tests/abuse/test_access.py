"""Every endpoint that the server documents, called without the right key, and with the objects of another user.

The list of endpoints is the server's own OpenAPI document, which a test compares with the routes. A new endpoint is
called with its documented example. If it has an object in its path or its body, the name of that object has to be in
the tables below, or the tests fail.
"""

import base64
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from dragoman.protocols.kit import app as kit_app
from dragoman.protocols.kit.router import Route, Router
from tests.asgi_client import Answer, ConnectionClosed
from tests.identity.provider import AUDIENCE, running_provider
from tests.protocols.agui.run_service import RunServiceClient
from tests.protocols.mcp.client import META, McpClient
from tests.protocols.mcp.client import NEW as MCP_VERSION
from tests.servers import AppServer, running_server

Json = Any
CANARY = "canary-7d1e"
"""In everything of alice's that has a text."""
SHORT = 3
"""Ids of so few characters are numbers."""
SERVER_OBJECTS = {"agent": "rehearsal", "solution": "rehearsal", "model": "rehearsal", "user": "alice"}
"""What the variables of paths name that belongs to no user."""
UNDOCUMENTED = {
    "attachments/content": "signed links, which need no key",
    "attachments/content/{path}": "signed links, which need no key",
    ".well-known/agent-card.json": "open: the card of the default agent",
    ".well-known/oauth-protected-resource": "open: discovery",
    ".well-known/oauth-protected-resource/{rest}": "open: discovery",
    ".well-known/oauth-authorization-server": "open: discovery",
    ".well-known/oauth-authorization-server/{rest}": "open: discovery",
    ".well-known/openid-configuration": "open: discovery",
    "register": "open: always a refusal",
    "responses/input_tokens": "always a refusal",
}
"""Routes that the OpenAPI document does not have, and why."""
REVEALING = ("/ag-ui/", "/api/v1/agent/")
"""Protocols that answer 403 for what is another user's."""
UNREADABLE = {
    "/process/task/{task_id}": "only what was started there",
    "/a2a/{agent}/tasks/{task}/pushNotificationConfigs": "the server sends no notifications",
    "/a2a/{agent}/tasks/{task}/pushNotificationConfigs/{config}": "the server sends no notifications",
}
"""What its owner cannot read either."""
EMPTY = {
    "/process/sessions/{session_id}/events": "204: no run of such a session is active",
    "/ai-sdk/{agent}/{chat}/messages": "a chat without messages",
    "/ai-sdk/{agent}/{chat}/stop": "nothing was stopped",
    "/ai-sdk/{agent}/{chat}/stream": "204: no run of such a chat is active",
}
"""What answers with nothing instead of 404, whether the object exists or not."""
READING_POSTS = {
    "/ag-ui/{agent}/connect": "reads a thread",
    "/mcp/": "reads resources and lists",
    "/mcp/{agent}": "reads resources and lists",
    "/a2a/{agent}": "reads tasks",
    "/a2a/{agent}/tasks/{task}": "follows a task",
}
"""What a key that may only read may post, and why."""
MCP_META = {f"{META}protocolVersion": MCP_VERSION, f"{META}clientCapabilities": {}}


class Endpoint(NamedTuple):
    """An endpoint, as the server documents it."""

    method: str
    path: str
    is_public: bool
    body: Json
    body_fields: frozenset[str]
    query: Mapping[str, bool]
    """Whether a parameter is required, by name."""

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def variables(self) -> list[str]:
        return re.findall(r"\{(\w+)\}", self.path)

    @property
    def names_objects(self) -> bool:
        """Whether its path or its query names an object of a user."""
        return "bucket" in self.query or bool(set(self.variables) - SERVER_OBJECTS.keys())


class Objects(NamedTuple):
    """One object of each kind: by the names that paths, bodies and queries have for it."""

    by_name: Mapping[str, str]
    attachment_path: str

    def value(self, endpoint: Endpoint, name: str) -> str:
        if name == "task" and endpoint.path.startswith("/api/"):
            name = "scheduled_task"
        if endpoint.path == "/keys/{key}":
            return self.by_name["key"].removeprefix("key_")
        return {**SERVER_OBJECTS, **self.by_name}[name]

    def mask(self, body: bytes) -> bytes:
        """An answer without the names of these objects."""
        for value in sorted(self.by_name.values(), key=len, reverse=True):
            pattern = value if len(value) > SHORT else f"(?<=memory ){value}"
            body = re.sub(rb"\b%s\b" % pattern.encode(), b"X", body)
        return body

    def unknown(self) -> "Objects":
        """Names of the same form, which belong to nobody."""
        return Objects({name: _unknown(value) for name, value in self.by_name.items()}, _unknown(self.attachment_path))


class Request(NamedTuple):
    """A request to an endpoint."""

    endpoint: Endpoint
    target: str
    body: Json = None
    headers: tuple[tuple[str, str], ...] = ()


def _unknown(value: str) -> str:
    if len(value) <= SHORT:
        return "999"
    *_, last = re.finditer(r"[0-9A-Za-z]{8,}", value)
    return f"{value[: last.end() - 6]}abcdef{value[last.end() :]}"


def _fields(document: Json, schema: Json) -> Iterator[str]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    yield from schema.get("properties", ())
    for each in schema.get("anyOf", ()):
        yield from _fields(document, each)


def endpoints_of(document: Json) -> list[Endpoint]:
    found = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            media: Json = next(iter(operation.get("requestBody", {"content": {}})["content"].values()), {})
            schema = media.get("schema", {})
            found.append(
                Endpoint(
                    method.upper(),
                    path,
                    operation.get("security") == [],
                    json.loads(
                        json.dumps(media.get("example", {} if media else None)).replace("assistant", "rehearsal")
                    ),
                    frozenset(_fields(document, schema)),
                    {
                        each["name"]: each.get("required", False)
                        for each in operation.get("parameters", ())
                        if each["in"] == "query"
                    },
                )
            )
    return found


def _bodies(endpoint: Endpoint, objects: Objects) -> Iterator[Json]:
    """The documented example, and for each object that a body may name, the example with this object."""
    yield endpoint.body
    if endpoint.body is None:
        return
    session, run = objects.by_name["session"], objects.by_name["task"]
    values = {**objects.by_name, "threadId": session}
    names = ("threadId", "session_id", "response_id", "conversation", "previous_response_id")
    changes: list[Json] = [{name: values[name]} for name in names if name in endpoint.body_fields]
    if "ids" in endpoint.body_fields:
        changes.append({"ids": [int(objects.by_name["memory"])]})
    if endpoint.path == "/ai-sdk/{agent}":
        changes.append({"id": session})
    if endpoint.path.startswith("/a2a"):
        for member, value in (("contextId", session), ("taskId", run)):
            message = {
                "messageId": f"m-{endpoint.path}-{member}-{value}",
                "role": "ROLE_USER",
                "parts": [{"text": "hello"}],
                member: value,
            }
            changes.append({"params": {"message": message}} if "jsonrpc" in endpoint.body else {"message": message})
        if "jsonrpc" in endpoint.body:
            methods = ("GetTask", "CancelTask", "SubscribeToTask")
            changes += [{"method": method, "params": {"id": run}} for method in methods]
    if endpoint.path.startswith("/mcp"):
        uri, arguments = {"uri": f"dragoman://sessions/{session}"}, {"message": "hello", "session_id": session}
        changes += [
            {"method": "resources/read", "params": {**uri, "_meta": MCP_META}},
            {"method": "tools/call", "params": {"name": "rehearsal", "arguments": arguments, "_meta": MCP_META}},
            {"method": "resources/list", "params": {"_meta": MCP_META}},
        ]
    for change in changes:
        yield {**endpoint.body, **change}


def requests_of(endpoint: Endpoint, objects: Objects) -> Iterator[Request]:
    """Valid requests to an endpoint: for each object that it takes, one that names this object."""
    path = endpoint.path
    for name in endpoint.variables:
        path = path.replace(f"{{{name}}}", objects.value(endpoint, name))
    session, run = objects.by_name["session"], objects.by_name["task"]
    queries = {"threadId": session, "contextId": session, "runId": run, "bucket": "dragoman", "type": "full"}
    queries["path"] = objects.attachment_path
    required = {name: queries[name] for name, is_required in endpoint.query.items() if is_required}
    optional = [{}, *({name: queries[name]} for name in ("threadId", "contextId", "runId") if name in endpoint.query)]
    endings = (":cancel", ":subscribe") if endpoint.name == "POST /a2a/{agent}/tasks/{task}" else ("",)
    for query in optional:
        text = urlencode({**required, **query})
        for body in _bodies(endpoint, objects):
            for ending in endings:
                yield Request(endpoint, f"{path}{ending}?{text}" if text else f"{path}{ending}", body)
    if endpoint.path == "/v1/chat/completions":
        yield Request(endpoint, path, endpoint.body, (("x-dragoman-session", session),))


async def send(server: AppServer, request: Request, authorization: str | None) -> Answer:
    """Send a request, and read the answer; of an event stream, its start."""
    headers = list(request.headers)
    if authorization is not None:
        headers.append(("authorization", authorization))
    body = b""
    if request.body is not None:
        body = json.dumps(request.body).encode()
        if not request.endpoint.path.startswith("/mcp"):
            headers.append(("content-type", "application/json"))
    if request.endpoint.path.startswith("/a2a"):
        headers.append(("a2a-version", "1.0"))
    if request.endpoint.path.startswith("/mcp"):
        headers += McpClient(server.connection, None, version=MCP_VERSION).headers(request.body)
    stream = await server.connection.open(request.endpoint.method, request.target, headers=headers, body=body)
    if request.endpoint.method == "GET" and "event-stream" in stream.headers.get("content-type", ""):
        await stream.disconnect()
        return Answer(stream.status, stream.headers, b"")
    with suppress(ConnectionClosed):
        return Answer(stream.status, stream.headers, await stream.read())
    return Answer(stream.status, stream.headers, b"")


def is_refusal(answer: Answer) -> bool:
    """Whether an answer is an error, also of JSON-RPC."""
    return answer.status >= 400 or b'"error":{' in answer.body or b'"isError":true' in answer.body


class World(NamedTuple):
    """A server with objects of alice's, and its endpoints."""

    server: AppServer
    endpoints: list[Endpoint]
    routes: list[Route]
    alice: Objects
    refused_credentials: Mapping[str, str | None]

    async def as_user(self, request: Request, user: str) -> Answer:
        return await send(self.server, request, f"Bearer {self.server.key(user)}")

    async def state(self) -> dict[str, tuple[int, bytes]]:
        """Everything of alice's, as she reads it over every protocol."""
        found = {}
        for endpoint in self.endpoints:
            if endpoint.method == "GET" and not endpoint.is_public:
                for request in requests_of(endpoint, self.alice):
                    answer = await self.as_user(request, "alice")
                    if endpoint.path.endswith("/export"):  # an archive with the time
                        answer = Answer(answer.status, answer.headers, b"")
                    body = re.sub(rb'"(last_used_at|url|expiresAt)": ?("[^"]*"|null)', b"", answer.body)
                    found[f"{request.endpoint.path} {request.target}"] = (answer.status, body)
        return found


class RecordedRouter(Router):
    """A router that keeps its routes for the test."""

    routes: list[Route]

    def __init__(self, routes: Any) -> None:
        routes = list(routes)
        RecordedRouter.routes.extend(routes)
        super().__init__(routes)


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A server, on which alice has something of everything."""
    RecordedRouter.routes = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(kit_app, "Router", RecordedRouter)
        async with (
            running_provider() as provider,
            running_server(
                tmp_path_factory.mktemp("access"),
                oidc_issuer=provider.url,
                oidc_audience=[AUDIENCE],
                public_metrics=False,
            ) as server,
        ):
            document = json.loads((await server.connection.request("GET", "/openapi.json")).body)
            alice = await alices_objects(server)
            revoked = server.key("alice_phone")
            key_id = next(
                each["id"] for each in await _json(server, "GET", "/api/user/api-keys") if each["name"] == "alice_phone"
            )
            await _json(server, "DELETE", f"/api/user/api-keys/{key_id}")
            refused = {
                "no key": None,
                "a wrong key": "Bearer sk-dragoman-wrong",
                "a revoked key": f"Bearer {revoked}",
                "another scheme": f"Basic {server.key('alice')}",
                "an expired token": f"Bearer {provider.token(sub='alice', exp=1000)}",
            }
            yield World(server, endpoints_of(document), RecordedRouter.routes, alice, refused)


async def _json(server: AppServer, method: str, path: str, body: Json = None) -> Json:
    endpoint = Endpoint(method, path, False, body, frozenset(), {})
    answer = await send(server, Request(endpoint, path, body), f"Bearer {server.key('alice')}")
    assert answer.status < 300, (path, answer)
    return json.loads(answer.body) if answer.body else None


async def alices_objects(server: AppServer) -> Objects:
    """Something of everything."""
    image = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(64 * 1024)).decode()
    seen = {"type": "image", "url": f"data:image/png;base64,{image}"}
    session = await server.aap_client("alice").create()
    await session.run([{"role": "user", "content": [{"type": "text", "text": CANARY}, seen]}])
    turns = await _json(server, "GET", f"/api/sessions/{session.id}/messages")
    [attachment] = [each["attachment"] for each in turns[0]["blocks"] if "attachment" in each]
    response = await _json(server, "POST", "/v1/responses", {"model": "rehearsal", "input": CANARY})
    items = [{"role": "user", "content": CANARY}]
    conversation = await _json(server, "POST", "/v1/conversations", {"items": items})
    item = (await _json(server, "GET", f"/v1/conversations/{conversation['id']}/items"))["data"][0]
    memory = await _json(server, "POST", "/api/memories", {"content": CANARY})
    task = await _json(server, "POST", "/api/scheduled-tasks", {"title": CANARY, "prompt": CANARY, "cron": "0 9 * * *"})
    share = await _json(server, "POST", f"/api/sessions/{session.id}/share", {"ttl_seconds": 3600})
    keys = await _json(server, "GET", "/api/user/api-keys")
    uploaded = (await RunServiceClient(server.connection, server.key("alice")).upload()).json
    run = turns[0]["chat_run_id"].removeprefix("chat_")
    return Objects(
        {
            **dict.fromkeys(("session", "thread", "thread_id", "chat", "session_id"), session.id),
            **dict.fromkeys(("task", "task_id"), run),
            "response_id": f"response_{run}",
            "run": f"chat_{run}",
            "turn": turns[1]["turn_id"],
            "attachment": attachment["url"].rpartition("/")[2],
            "scheduled_task": task["id"],
            "token": share["id"],
            "memory": str(memory["id"]),
            "key": next(each["id"] for each in keys if each["name"] == "alice_reads"),
            "config": "any",
            "response": response["id"],
            "previous_response_id": response["id"],
            "conversation": conversation["id"],
            "item": item["id"],
        },
        uploaded["path"],
    )


async def test_the_openapi_document_has_every_route(world: World) -> None:
    documented = {(each.method, each.path.strip("/")) for each in world.endpoints}
    for route in world.routes:
        path = route.path.replace(":path}", "}").strip("/")
        is_documented = any(
            method == route.method and (known == path or known.endswith(f"/{path}")) for method, known in documented
        )
        assert is_documented or path in UNDOCUMENTED, (route.method, path)


async def test_the_owner_can_read_each_object(world: World) -> None:
    """Else the next tests would prove nothing."""
    for endpoint in world.endpoints:
        if endpoint.method == "GET" and endpoint.names_objects and not endpoint.is_public:
            for request in requests_of(endpoint, world.alice):
                answer = await world.as_user(request, "alice")
                assert answer.status in (200, 204) or endpoint.path in UNREADABLE, (request, answer)


async def test_without_a_valid_key_every_endpoint_is_a_401_that_reveals_nothing(world: World) -> None:
    for endpoint in world.endpoints:
        if endpoint.is_public:
            continue
        for name, authorization in world.refused_credentials.items():
            answers = [
                await send(world.server, next(requests_of(endpoint, objects)), authorization)
                for objects in (world.alice, world.alice.unknown())
            ]
            assert {each.status for each in answers} == {401}, (endpoint.name, name, answers)
            assert answers[0].body == answers[1].body, (endpoint.name, name)


async def first_message(server: AppServer, path: str, authorization: str | None) -> str:
    """What the server says first to a WebSocket."""
    sent: list[str] = []
    received = iter(({"type": "websocket.connect"},))

    async def receive() -> Json:
        return next(received, {"type": "websocket.disconnect", "code": 1001})

    async def send(message: Json) -> None:
        sent.append(message["type"])

    headers = [(b"host", b"127.0.0.1:8000"), *([(b"authorization", authorization.encode())] if authorization else [])]
    scope = {"type": "websocket", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": ""}
    extensions: Json = {"websocket.http.response": {}}
    app = server.connection.app
    await app({**scope, "headers": headers, "client": ("127.0.0.1", 1), "extensions": extensions}, receive, send)
    return sent[0]


async def test_a_websocket_opens_only_where_it_is_documented_and_with_a_valid_key(world: World) -> None:
    """Except at `/socket.io/`, where the key comes with the first packet."""
    paths = {next(requests_of(endpoint, world.alice)).target.partition("?")[0] for endpoint in world.endpoints}
    valid, opened = f"Bearer {world.server.key('alice')}", set()
    for path in paths:
        if await first_message(world.server, path, valid) == "websocket.accept":
            opened.add(path)
        for name, authorization in world.refused_credentials.items():
            assert await first_message(world.server, path, authorization) != "websocket.accept", (path, name)
    assert opened == {"/v1/responses"}


async def test_another_user_sees_and_changes_nothing_and_cannot_tell_what_exists(world: World) -> None:
    """Objects in paths come first: a request may create a session of bob's under the name that is alice's id."""
    unknown, before = world.alice.unknown(), await world.state()
    for endpoint in sorted(world.endpoints, key=lambda each: not each.names_objects):
        if endpoint.is_public:
            continue
        for request, guess in zip(requests_of(endpoint, world.alice), requests_of(endpoint, unknown), strict=True):
            answer, guessed = await world.as_user(request, "bob"), await world.as_user(guess, "bob")
            assert answer.status < 500, (request, answer)
            assert CANARY.encode() not in answer.body, (request, answer)
            if endpoint.names_objects and endpoint.path not in EMPTY:
                assert answer.status >= 400, (request, answer)
            if endpoint.path.startswith(REVEALING):
                continue
            assert answer.status == guessed.status, (request, answer, guessed)
            if is_refusal(answer) or endpoint.path in EMPTY:
                assert world.alice.mask(answer.body) == unknown.mask(guessed.body), request
    assert await world.state() == before


async def test_a_key_that_may_only_read_changes_nothing(world: World) -> None:
    before = await world.state()
    for endpoint in world.endpoints:
        if endpoint.method != "GET":
            for request in requests_of(endpoint, world.alice):
                answer = await world.as_user(request, "alice_reads")
                assert answer.status < 500, (request, answer)
                assert answer.status == 403 or endpoint.path in READING_POSTS, (request, answer)
    assert await world.state() == before


async def test_what_is_for_admins_is_refused_to_others(world: World) -> None:
    paths = {route.path.replace(":path}", "}") for route in world.routes if route.required_scope == "admin"}
    endpoints = [endpoint for endpoint in world.endpoints if endpoint.path.strip("/") in paths]
    changes = {"PATCH /keys/{key}", "PATCH /users/{user}"}
    assert {"GET /metrics", "GET /audit", "GET /keys", *changes} <= {each.name for each in endpoints}
    for endpoint in endpoints:
        for request in requests_of(endpoint, world.alice):
            assert (await world.as_user(request, "alice")).status == 403, request
            assert (await world.as_user(request, "admin")).status == 200, request
