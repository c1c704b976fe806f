"""The gate: what it lets through, what it answers itself, and what it adds to every answer."""

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
    """What came out of the gate."""

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
    await send({"type": "http.response.body", "body": b"let in"})


async def send_request(
    middleware: SecurityMiddleware, *headers: tuple[str, str], method: str = "GET", path: str = "/x", **scope: Any
) -> MiddlewareResponse:
    """Send a request with exactly these headers."""
    answered = MiddlewareResponse()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            assert not answered.status
            answered.status = message["status"]
            answered.headers = [(name.decode(), value.decode()) for name, value in message["headers"]]
        else:
            answered.body += message.get("body", b"")
            answered.is_complete = not message.get("more_body", False)

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    path, _, query = path.partition("?")
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    request = {"type": "http", "http_version": "1.1", "method": method, "path": path, "query_string": query.encode()}
    await middleware({**request, "headers": raw, **scope}, receive, send)
    return answered


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
async def test_a_request_without_one_good_host_is_400_before_routing(
    headers: tuple[tuple[str, str], ...], path: str
) -> None:
    answered = await send_request(SecurityMiddleware(inner), *headers, path=path)
    assert (answered.status, answered.json["code"]) == (400, "invalid_request")
    assert "x-app" not in answered.named


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "API.example.com:443", "[::1]:8000", "my_host", ""])
async def test_with_keys_any_well_formed_host_is_let_in(host: str) -> None:
    assert (await send_request(SecurityMiddleware(inner), ("host", host))).body == b"let in"


async def test_http_1_0_may_come_without_a_host() -> None:
    assert (await send_request(SecurityMiddleware(inner), http_version="1.0")).body == b"let in"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "0.0.0.0:8000", "192.0.2.1", "127.0.0.x"])
async def test_without_keys_a_foreign_host_is_403(host: str) -> None:
    """A name of the attacker's that points to this machine would make a foreign page the server's own."""
    answered = await send_request(SecurityMiddleware(inner, is_keyless=True), ("host", host))
    assert (answered.status, answered.json["code"]) == (403, "forbidden")


@pytest.mark.parametrize("host", ["127.0.0.1", "LOCALHOST:1", "[::1]:8000", "127.9.9.9", "dev.example:8000"])
async def test_without_keys_loopback_and_configured_hosts_are_let_in(host: str) -> None:
    assert (
        await send_request(SecurityMiddleware(inner, is_keyless=True, hosts=["dev.example"]), ("host", host))
    ).body == b"let in"


# --- Origin -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", [PAGE, "null", "http://localhost:3000", "http://127.0.0.1:8001", "127.0.0.1:8000"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
async def test_without_keys_a_foreign_page_is_403_whatever_it_asks(origin: str, method: str) -> None:
    answered = await send_request(
        SecurityMiddleware(inner, is_keyless=True), LOCAL_HOST, ("origin", origin), method=method
    )
    assert (answered.status, answered.json["code"]) == (403, "forbidden")
    assert "access-control-allow-origin" not in answered.named


async def test_without_keys_the_servers_own_pages_and_configured_ones_are_let_in() -> None:
    gate = SecurityMiddleware(inner, is_keyless=True, origins=[PAGE])
    own = await send_request(gate, LOCAL_HOST, ("origin", "http://127.0.0.1:8000"))
    assert (own.body, own.named.get("access-control-allow-origin")) == (b"let in", None)
    configured = await send_request(gate, LOCAL_HOST, ("origin", PAGE))
    assert (configured.body, configured.named["access-control-allow-origin"]) == (b"let in", PAGE)


async def test_without_keys_a_star_among_the_origins_lets_nobody_in() -> None:
    answered = await send_request(
        SecurityMiddleware(inner, is_keyless=True, origins=["*"]), LOCAL_HOST, ("origin", PAGE)
    )
    assert answered.status == 403


# --- CORS -------------------------------------------------------------------------------------------------------------


async def failing(scope: Message, receive: Receive, send: Send) -> None:
    raise RuntimeError("canary-1c9b")


async def refusing(scope: Message, receive: Receive, send: Send) -> None:
    raise ShuttingDown("the server is stopping")


@pytest.mark.parametrize("app", [inner, failing, refusing])
@pytest.mark.parametrize(
    "headers", [(LOCAL_HOST,), (LOCAL_HOST, ("origin", PAGE)), (LOCAL_HOST, LOCAL_HOST, ("origin", PAGE))]
)
async def test_with_keys_every_answer_carries_the_star_and_never_credentials(
    app: Any, headers: tuple[tuple[str, str], ...]
) -> None:
    answered = await send_request(SecurityMiddleware(app), *headers)
    assert answered.named["access-control-allow-origin"] == "*"
    assert "retry-after" in answered.named["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in answered.named
    assert "server" not in answered.named


async def test_configured_origins_are_answered_by_name_and_others_not_at_all() -> None:
    gate = SecurityMiddleware(inner, origins=[PAGE])
    allowed, other = (
        await send_request(gate, LOCAL_HOST, ("origin", PAGE)),
        await send_request(gate, LOCAL_HOST, ("origin", "https://evil.example")),
    )
    assert (allowed.named["access-control-allow-origin"], allowed.named["vary"]) == (PAGE, "origin")
    assert other.status == 200, "with keys the key decides; the page just cannot read the answer"
    assert ("access-control-allow-origin" in other.named, other.named["vary"]) == (False, "origin")


async def test_a_preflight_is_answered_for_every_path_without_asking_the_app() -> None:
    asked = (LOCAL_HOST, ("origin", PAGE), ("access-control-request-method", "POST"))
    answered = await send_request(SecurityMiddleware(failing), *asked, method="OPTIONS", path="/nowhere")
    assert (answered.status, answered.body, answered.is_complete) == (204, b"", True)
    named = answered.named
    assert {"GET", "POST", "DELETE", "PATCH"} <= set(named["access-control-allow-methods"].split(", "))
    assert {"authorization", "content-type", "idempotency-key"} <= set(
        named["access-control-allow-headers"].split(", ")
    )
    assert int(named["access-control-max-age"]) > 0


async def test_options_that_is_no_preflight_is_the_apps_affair() -> None:
    assert (await send_request(SecurityMiddleware(inner), LOCAL_HOST, method="OPTIONS")).body == b"let in"


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
    answered = await send_request(SecurityMiddleware(inner), LOCAL_HOST, path=f"/x?{query}")
    assert (answered.status, answered.json["code"]) == (400, "invalid_request")
    assert b"abc" not in answered.body


@pytest.mark.parametrize("query", ["after=abc", "type=full", "", "q=what+is+a+key", "%ff=%ff", "key", "sk-dragoman-x"])
def test_an_innocent_query_is_none(query: str) -> None:
    assert not contains_api_key(query)


# --- the last edge ----------------------------------------------------------------------------------------------------


async def test_a_failure_is_500_with_a_reference_and_without_details() -> None:
    failed = REQUESTS_FAILED.labels(protocol="server")
    before = failed.value
    answered = await send_request(SecurityMiddleware(failing), LOCAL_HOST)
    assert (answered.status, answered.json["code"], answered.is_complete) == (500, "internal", True)
    assert answered.json["reference"] in answered.json["error"]
    assert b"canary" not in answered.body
    assert failed.value == before + 1


async def test_a_failure_inside_an_answer_is_no_whole_answer() -> None:
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
async def test_a_refusal_of_the_servers_own_pages_has_its_status(
    refused: Refused, status: int, header: tuple[str, str]
) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        raise refused

    answered = await send_request(SecurityMiddleware(app), LOCAL_HOST)
    assert (answered.status, answered.json["error"]) == (status, "no")
    assert header in answered.headers


def test_every_refusal_has_an_answer() -> None:
    assert {status_and_code(kind.__new__(kind))[0] for kind in all_refusals()} <= {400, 401, 403, 429, 503}


async def test_a_socket_from_a_foreign_page_is_closed_before_it_opens() -> None:
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
def test_whatever_the_host_is_it_has_a_name_or_none(host: str) -> None:
    name = host_name(host)
    assert name is None or all(each.isalnum() or each in "._-[]:" for each in name)
    assert is_same_origin(f"http://{host}", host)
