"""SecurityMiddleware: which requests pass, what it answers itself, and which headers it adds."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.asgi.security import (
    Message,
    Receive,
    SecurityMiddleware,
    Send,
    contains_api_key,
    host_name,
    is_same_origin,
    status_and_code,
)
from dragoman.core.refusals import Forbidden, LimitReached, Refused, ShuttingDown, Unauthenticated, all_refusals
from dragoman.engine.instrumentation.metrics import REQUESTS_FAILED

PAGE = "https://app.example"


@dataclass
class MiddlewareResponse:
    """The response that the middleware sent."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    is_complete: bool = False

    @property
    def named(self) -> dict[str, str]:
        return dict(self.headers)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def inner(scope: Message, receive: Receive, send: Send) -> None:
    """An app that answers 200 to everything."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-app", b"yes")]})
    await send({"type": "http.response.body", "body": b"passed"})


async def send_request(
    middleware: SecurityMiddleware, *headers: tuple[str, str], method: str = "GET", path: str = "/x", **scope: Any
) -> MiddlewareResponse:
    """Send a request with exactly these headers."""
    response = MiddlewareResponse()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            assert not response.status
            response.status = message["status"]
            response.headers = [(name.decode(), value.decode()) for name, value in message["headers"]]
        else:
            response.body += message.get("body", b"")
            response.is_complete = not message.get("more_body", False)

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    path, _, query = path.partition("?")
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    request = {"type": "http", "http_version": "1.1", "method": method, "path": path, "query_string": query.encode()}
    await middleware({**request, "headers": raw, **scope}, receive, send)
    return response


LOCAL_HOST = ("host", "127.0.0.1:8000")

# --- Host -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (LOCAL_HOST, LOCAL_HOST),
        (LOCAL_HOST, ("host", "evil.example")),
        (("host", "x/?"),),
        (("host", "evil.example/path"),),
        (("host", "user@evil.example"),),
        (("host", "a b"),),
        (("host", "127.0.0.1:8000, evil.example"),),
        (("host", "127.0.0.1:99999"),),
        (("host", "127.0.0.1:"),),
        (("host", "[::1"),),
        (("host", "h\u00f6st"),),
        (("host", "x" * 300),),
    ],
)
@pytest.mark.parametrize("path", ["/x", "/", "/aap/v3/meta", "//", "/%2e%2e"])
async def test_a_request_without_exactly_one_valid_host_is_400_before_routing(
    headers: tuple[tuple[str, str], ...], path: str
) -> None:
    response = await send_request(SecurityMiddleware(inner), *headers, path=path)
    assert (response.status, response.json["code"]) == (400, "invalid_request")
    assert "x-app" not in response.named


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "API.example.com:443", "[::1]:8000", "my_host", ""])
async def test_with_keys_any_well_formed_host_passes(host: str) -> None:
    assert (await send_request(SecurityMiddleware(inner), ("host", host))).body == b"passed"


async def test_http_1_0_may_omit_host() -> None:
    assert (await send_request(SecurityMiddleware(inner), http_version="1.0")).body == b"passed"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "0.0.0.0:8000", "192.0.2.1", "127.0.0.x"])
async def test_without_keys_a_foreign_host_is_403(host: str) -> None:
    """Otherwise an attacker's name that resolves to this machine would make the attacker's page same-origin."""
    response = await send_request(SecurityMiddleware(inner, is_keyless=True), ("host", host))
    assert (response.status, response.json["code"]) == (403, "forbidden")


@pytest.mark.parametrize("host", ["127.0.0.1", "LOCALHOST:1", "[::1]:8000", "127.9.9.9", "dev.example:8000"])
async def test_without_keys_loopback_and_configured_hosts_pass(host: str) -> None:
    assert (
        await send_request(SecurityMiddleware(inner, is_keyless=True, hosts=["dev.example"]), ("host", host))
    ).body == b"passed"


# --- Origin -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", [PAGE, "null", "http://localhost:3000", "http://127.0.0.1:8001", "127.0.0.1:8000"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
async def test_without_keys_a_foreign_page_is_403_whatever_the_method(origin: str, method: str) -> None:
    response = await send_request(
        SecurityMiddleware(inner, is_keyless=True), LOCAL_HOST, ("origin", origin), method=method
    )
    assert (response.status, response.json["code"]) == (403, "forbidden")
    assert "access-control-allow-origin" not in response.named


async def test_without_keys_same_origin_and_configured_pages_pass() -> None:
    middleware = SecurityMiddleware(inner, is_keyless=True, origins=[PAGE])
    own = await send_request(middleware, LOCAL_HOST, ("origin", "http://127.0.0.1:8000"))
    assert (own.body, own.named.get("access-control-allow-origin")) == (b"passed", None)
    configured = await send_request(middleware, LOCAL_HOST, ("origin", PAGE))
    assert (configured.body, configured.named["access-control-allow-origin"]) == (b"passed", PAGE)


async def test_without_keys_a_star_in_cors_origins_allows_no_page() -> None:
    response = await send_request(
        SecurityMiddleware(inner, is_keyless=True, origins=["*"]), LOCAL_HOST, ("origin", PAGE)
    )
    assert response.status == 403


# --- undeclared bodies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [("content-length", "2"), ("transfer-encoding", "chunked")])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_without_keys_a_body_without_a_content_type_is_415(body: tuple[str, str], method: str) -> None:
    """A web page may post one to any server without a preflight."""
    response = await send_request(SecurityMiddleware(inner, is_keyless=True), LOCAL_HOST, body, method=method)
    assert (response.status, response.json["code"]) == (415, "unsupported_media_type")
    declared = (LOCAL_HOST, body, ("content-type", "application/json"))
    assert (await send_request(SecurityMiddleware(inner, is_keyless=True), *declared, method=method)).status == 200
    assert (await send_request(SecurityMiddleware(inner), LOCAL_HOST, body, method=method)).status == 200


async def test_without_keys_a_request_without_a_body_needs_no_content_type() -> None:
    middleware = SecurityMiddleware(inner, is_keyless=True)
    assert (await send_request(middleware, LOCAL_HOST, method="POST")).status == 200
    assert (await send_request(middleware, LOCAL_HOST, ("content-length", "0"), method="POST")).status == 200


# --- CORS -------------------------------------------------------------------------------------------------------------


async def failing(scope: Message, receive: Receive, send: Send) -> None:
    raise RuntimeError("canary-1c9b")


async def refusing(scope: Message, receive: Receive, send: Send) -> None:
    raise ShuttingDown("the server is stopping")


@pytest.mark.parametrize("app", [inner, failing, refusing])
@pytest.mark.parametrize(
    "headers", [(LOCAL_HOST,), (LOCAL_HOST, ("origin", PAGE)), (LOCAL_HOST, LOCAL_HOST, ("origin", PAGE))]
)
async def test_with_keys_every_response_allows_any_origin_and_never_credentials(
    app: Any, headers: tuple[tuple[str, str], ...]
) -> None:
    response = await send_request(SecurityMiddleware(app), *headers)
    assert response.named["access-control-allow-origin"] == "*"
    assert "retry-after" in response.named["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in response.named
    assert "server" not in response.named


async def test_configured_origins_are_answered_by_name_and_others_not_at_all() -> None:
    middleware = SecurityMiddleware(inner, origins=[PAGE])
    allowed, other = (
        await send_request(middleware, LOCAL_HOST, ("origin", PAGE)),
        await send_request(middleware, LOCAL_HOST, ("origin", "https://evil.example")),
    )
    assert (allowed.named["access-control-allow-origin"], allowed.named["vary"]) == (PAGE, "origin")
    assert other.status == 200, "with keys the key decides; the page merely cannot read the response"
    assert ("access-control-allow-origin" in other.named, other.named["vary"]) == (False, "origin")


async def test_a_preflight_is_answered_for_every_path_without_asking_the_app() -> None:
    preflight = (LOCAL_HOST, ("origin", PAGE), ("access-control-request-method", "POST"))
    response = await send_request(SecurityMiddleware(failing), *preflight, method="OPTIONS", path="/nowhere")
    assert (response.status, response.body, response.is_complete) == (204, b"", True)
    named = response.named
    assert {"GET", "POST", "DELETE", "PATCH"} <= set(named["access-control-allow-methods"].split(", "))
    assert {"authorization", "content-type", "idempotency-key"} <= set(
        named["access-control-allow-headers"].split(", ")
    )
    assert int(named["access-control-max-age"]) > 0


async def test_an_options_request_that_is_no_preflight_reaches_the_app() -> None:
    assert (await send_request(SecurityMiddleware(inner), LOCAL_HOST, method="OPTIONS")).body == b"passed"


# --- keys in the URL --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "access_token=x",
        "API_KEY=",
        "a=b&apikey=x",
        "authorization=Bearer%20x",
        "whatever=sk-dragoman-abc",
        "a=b&q=%73k-dragoman-abc",
        "q=Bearer+abc",
    ],
)
async def test_a_key_in_the_query_string_is_400_and_not_repeated(query: str) -> None:
    response = await send_request(SecurityMiddleware(inner), LOCAL_HOST, path=f"/x?{query}")
    assert (response.status, response.json["code"]) == (400, "invalid_request")
    assert b"abc" not in response.body


@pytest.mark.parametrize("query", ["after=abc", "type=full", "", "q=what+is+a+key", "%ff=%ff", "key", "sk-dragoman-x"])
def test_a_query_without_a_key_passes(query: str) -> None:
    assert not contains_api_key(query)


# --- failures and refusals ------------------------------------------------------------------------------------------


async def test_a_failure_is_500_with_a_reference_and_without_details() -> None:
    failed = REQUESTS_FAILED.labels(protocol="server")
    before = failed.value
    response = await send_request(SecurityMiddleware(failing), LOCAL_HOST)
    assert (response.status, response.json["code"], response.is_complete) == (500, "internal", True)
    assert response.json["reference"] in response.json["error"]
    assert b"canary" not in response.body
    assert failed.value == before + 1


async def test_a_failure_halfway_through_a_response_is_raised() -> None:
    async def breaking(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await send_request(SecurityMiddleware(breaking), LOCAL_HOST)


@pytest.mark.parametrize(
    ("refused", "status", "header"),
    [
        (Unauthenticated("no"), 401, ("www-authenticate", "Bearer")),
        (Forbidden("no"), 403, ("content-type", "application/json")),
        (LimitReached("no", retry_after_s=7), 429, ("retry-after", "7")),
        (ShuttingDown("no"), 503, ("retry-after", "1")),
    ],
)
async def test_a_refusal_outside_of_any_protocol_has_its_status(
    refused: Refused, status: int, header: tuple[str, str]
) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        raise refused

    response = await send_request(SecurityMiddleware(app), LOCAL_HOST)
    assert (response.status, response.json["error"]) == (status, "no")
    assert header in response.headers


def test_every_refusal_has_an_answer() -> None:
    assert {status_and_code(kind.__new__(kind))[0] for kind in all_refusals()} <= {400, 401, 403, 404, 429, 503}


async def test_a_websocket_from_a_foreign_page_is_closed_before_it_opens() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/socket.io/", "query_string": b"", "http_version": "1.1"}
    headers = [(b"host", b"127.0.0.1"), (b"origin", PAGE.encode())]
    await SecurityMiddleware(inner, is_keyless=True)({**scope, "headers": headers}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


@given(st.text(max_size=40))
def test_host_name_accepts_only_host_characters(host: str) -> None:
    name = host_name(host)
    assert name is None or all(each.isalnum() or each in "._-[]:" for each in name)
    assert is_same_origin(f"http://{host}", host)


class ReportingValue(bytes):
    """A header's value that notes when it is freed."""

    freed: list[bytes]

    def __del__(self) -> None:
        self.freed.append(bytes(self))


async def test_an_open_response_can_release_the_headers_of_its_request() -> None:
    freed: list[bytes] = []

    async def stream(scope: Message, receive: Receive, send: Send) -> None:
        scope["headers"].clear()
        scope.pop("indexed_headers")
        assert freed == [b"secret"]
        await inner(scope, receive, send)

    def headers() -> list[tuple[bytes, bytes]]:
        value = ReportingValue(b"secret")
        value.freed = freed
        return [(b"host", b"127.0.0.1"), (b"authorization", value)]

    response = MiddlewareResponse()

    async def send(message: Message) -> None:
        response.status = message.get("status", response.status)

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers()}
    await SecurityMiddleware(stream)(scope, receive, send)
    assert response.status == 200
