"""Checks that every request passes before any routing: `Host`, `Origin`, API keys in the URL, CORS.

Pure ASGI middleware that decides on the request line and the headers alone. It also answers errors that no protocol
answered.
"""

import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import structlog

from dragoman.core.refusals import Forbidden, Invalid, LimitReached, NotFound, Refused, Unauthenticated, Unavailable
from dragoman.engine.instrumentation.metrics import REQUESTS_FAILED, REQUESTS_REFUSED
from dragoman.engine.services.authentication import is_token
from dragoman.protocols.kit.body import first_headers
from dragoman.protocols.kit.errors import headers_of

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,255})(?::(?P<port>[0-9]{1,5}))?", re.IGNORECASE)
_CUSTOM_HEADER = re.compile(rb"(?<![^, ])(?:x|mcp|openai|a2a)-[a-z0-9-]{1,64}(?![^, ])")
"""An application's own header, or one of MCP, A2A or OpenAI's clients. Every page that may call may also send it."""
_KEY_PARAMETER_NAMES = {"access_token", "api_key", "apikey", "authorization", "x-api-key"}
_LOGIN_PARAMETER_NAMES = {"code", "state"}
"""What an identity provider adds to the console's address; some use JWTs as codes, which are valid once."""
_KEY_PREFIXES = ("sk-dragoman-", "sk-blade-", "Bearer ")

ALLOWED_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
ALLOWED_HEADERS = b"authorization, content-type, accept, idempotency-key, last-event-id, user-agent, x-request-id"
"""The providers of the AI SDK set `User-Agent`, and some browsers send what a page sets, such as Firefox."""
EXPOSED_HEADERS = (
    b"location, retry-after, ratelimit, ratelimit-policy, www-authenticate, allow, link, mcp-session-id,"
    b" a2a-extensions, x-request-id, x-dragoman-session, x-dragoman-run, x-dragoman-error, x-dragoman-more,"
    b" x-dragoman-next, x-workflow-run-id, x-workflow-stream-tail-index, x-should-retry, openai-processing-ms"
)
_EXPOSED = (b"access-control-expose-headers", EXPOSED_HEADERS)
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_HEADERS_FOR_ANY_ORIGIN: Headers = [(b"access-control-allow-origin", b"*"), _EXPOSED, _NO_SNIFFING]
PREFLIGHT_MAX_AGE_S = b"7200"
"""How long a browser may remember a preflight; they cap it at two hours."""

log = structlog.get_logger(__name__)


class UndeclaredBody(Exception):
    """A request body has no `Content-Type`, on a server without keys.

    A web page may post such a body to any server, without the preflight that JSON needs.
    """


REFUSAL_STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (UndeclaredBody, 415, "unsupported_media_type"),
    (Unauthenticated, 401, "unauthorized"),
    (Forbidden, 403, "forbidden"),
    (LimitReached, 429, "rate_limited"),
    (Unavailable, 503, "unavailable"),
    (NotFound, 404, "not_found"),
    (Invalid, 400, "invalid_request"),
    (Refused, 400, "invalid_request"),
)
"""The answers to refusals outside of any protocol. The first matching type applies."""


class SecurityMiddleware:
    """Passes a request on to the app, or refuses it.

    Host is one well-formed name ─► no API key in the URL ─► without keys: Host and Origin are ours, the body is
    declared ─► CORS preflight is answered here ─► app

    Args:
        app: gets the requests that pass.
        origins: web pages that may call. Empty: any page; on a server without keys only the server's own.
        hosts: names that `Host` may contain on a server without keys, in addition to loopback names.
        is_keyless: the server has no keys, so only these checks keep foreign web pages out.
    """

    def __init__(
        self,
        app: App,
        *,
        origins: Iterable[str] = (),
        hosts: Iterable[str] = (),
        is_keyless: bool = False,
    ) -> None:
        self._app = app
        self._origins = frozenset(origin.lower() for origin in origins)
        self._allows_any_origin = not is_keyless and (not self._origins or "*" in self._origins)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._is_keyless = is_keyless

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle an ASGI request.

        A stream drops the headers of its request to save memory. This call lasts as long as the stream, so none of its
        variables holds them.
        """
        kind = scope["type"]
        if kind == "lifespan":
            await self._app(scope, receive, send)
            return
        sender = _ResponseSender(send, self._added_headers(scope))
        try:
            self._check(scope)
            if scope.get("method") == "OPTIONS" and _is_preflight(scope):
                await sender.send_response(204, self._preflight_headers(scope), b"")
                return
            await self._app(scope, receive, sender if kind == "http" else send)
        except (Refused, UndeclaredBody) as refused:
            REQUESTS_REFUSED.labels(protocol="server", code=status_and_code(refused)[1]).inc()
            await (sender.send_refusal(refused) if kind == "http" else send({"type": "websocket.close", "code": 1008}))
        except Exception as error:  # the outer edge: what no protocol answered
            reference = uuid.uuid4().hex[:12]
            REQUESTS_FAILED.labels(protocol="server").inc()
            log.error("request failed", path=scope["path"], reference=reference, exc_info=error)
            if sender.has_begun or kind != "http":
                raise  # the server cuts the connection: half a response must not look whole
            body = {"error": f"the server failed; reference {reference}", "code": "internal", "reference": reference}
            await sender.send_response(500, [(b"content-type", b"application/json")], msgspec.json.encode(body))

    def _check(self, scope: Message) -> None:
        headers = first_headers(scope)
        if len(headers) < len(scope["headers"]) or b"host" not in headers:
            hosts = [name for name, _ in scope["headers"]].count(b"host")
            if hosts != 1 and not (hosts == 0 and scope.get("http_version") == "1.0"):
                raise Invalid(f"expected one Host header, got {hosts}")
        host = headers.get(b"host", b"").decode("latin-1")
        name = host_name(host)
        if name is None:
            raise Invalid(f"Host: expected NAME or NAME:PORT, got {host!r:.80}")
        if b"=" in scope["query_string"] and contains_api_key(scope["query_string"].decode("latin-1")):
            raise Invalid("API keys are not accepted in URLs, because URLs are logged: send Authorization: Bearer KEY")
        if not self._is_keyless:
            return
        if not (is_loopback_name(name) or name in self._hosts):
            raise Forbidden(f"API keys are off, so Host must be a loopback name or in allowed_hosts, got {name!r:.80}")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and origin.lower() not in self._origins and not is_same_origin(origin, host):
            raise Forbidden(f"API keys are off, so web pages from {origin!r:.80} may not call this server")
        has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        if has_body and not headers.get(b"content-type"):
            raise UndeclaredBody("API keys are off, so a request with a body needs a Content-Type")

    def _added_headers(self, scope: Message) -> Headers:
        """What is added to the headers of every response."""
        if self._allows_any_origin:
            return _HEADERS_FOR_ANY_ORIGIN
        if not self._origins:
            return [_NO_SNIFFING]
        origin = first_headers(scope).get(b"origin")
        if origin and origin.decode("latin-1").lower() in self._origins:
            return [(b"access-control-allow-origin", origin), _EXPOSED, (b"vary", b"origin"), _NO_SNIFFING]
        return [(b"vary", b"origin"), _NO_SNIFFING]

    def _preflight_headers(self, scope: Message) -> Headers:
        headers = first_headers(scope)
        if not (self._allows_any_origin or headers[b"origin"].decode("latin-1").lower() in self._origins):
            return []
        requested = headers.get(b"access-control-request-headers", b"").lower()
        return [
            (b"access-control-allow-methods", ALLOWED_METHODS),
            (
                b"access-control-allow-headers",
                b", ".join((ALLOWED_HEADERS, *_CUSTOM_HEADER.findall(requested))),
            ),
            (b"access-control-max-age", PREFLIGHT_MAX_AGE_S),
        ]


def _is_preflight(scope: Message) -> bool:
    headers = first_headers(scope)
    return bool(headers.get(b"origin")) and b"access-control-request-method" in headers


class _ResponseSender:
    """An ASGI `send` that adds headers to the start of the response."""

    __slots__ = ("_headers", "_send", "has_begun")

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self._headers = headers
        self.has_begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
        await self._send(message)

    async def send_refusal(self, refused: Exception) -> None:
        """Send the answer to a refusal."""
        status, headers, body = status_and_code(refused)[0], *to_response(refused)
        await self.send_response(status, headers, body)

    async def send_response(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole response."""
        headers = [*headers, (b"content-length", str(len(body)).encode())] if status != 204 else headers
        await self({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def status_and_code(refused: Exception) -> tuple[int, str]:
    """The HTTP status and the error code for a refusal outside of any protocol."""
    return next((status, code) for kind, status, code in REFUSAL_STATUSES if isinstance(refused, kind))


def to_response(refused: Exception) -> tuple[Headers, bytes]:
    """The headers and the body for a refusal outside of any protocol."""
    headers: Headers = [(b"content-type", b"application/json")]
    if isinstance(refused, Refused):
        headers += [(name.lower().encode(), value.encode()) for name, value in headers_of(refused).items()]
    return headers, msgspec.json.encode({"error": str(refused), "code": status_and_code(refused)[1]})


@lru_cache(256)
def host_name(host: str) -> str | None:
    """The host name in a `Host` header, in lower case; None if the header is malformed."""
    if not host:
        return ""
    match = _HOST.fullmatch(host)
    if match is None or int(match["port"] or 0) > 65535:
        return None
    return match["name"].lower()


@lru_cache(256)
def is_loopback_name(name: str) -> bool:
    """Whether a host name always means this machine, whatever DNS says."""
    if name in ("", "localhost", "[::1]"):
        return True
    parts = name.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdigit() and int(part) < 256 for part in parts)


def is_same_origin(origin: str, host: str) -> bool:
    """Whether `Origin` names the host in `Host`, which means that the page came from this server."""
    scheme, _, rest = origin.lower().partition("://")
    return scheme in ("http", "https") and rest == host.lower()


def contains_api_key(query: str) -> bool:
    """Whether a query string contains an API key or a token."""
    return any(
        name.lower() in _KEY_PARAMETER_NAMES
        or value.startswith(_KEY_PREFIXES)
        or (is_token(value) and name not in _LOGIN_PARAMETER_NAMES)
        for name, value in parse_qsl(query, keep_blank_values=True, errors="replace")
    )
