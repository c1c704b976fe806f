"""The gate that each request passes before a protocol sees it: `Host`, `Origin`, keys in the URL, CORS, last resorts.

A pure ASGI wrapper. It decides on headers alone, before any routing, so that no path is without it.
"""

import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import structlog

from dragoman.core.refusals import Forbidden, Invalid, LimitReached, Refused, Unauthenticated, Unavailable
from dragoman.engine.instrumentation.metrics import REQUESTS_FAILED, REQUESTS_REFUSED

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,255})(?::(?P<port>[0-9]{1,5}))?", re.IGNORECASE)
_CUSTOM_HEADER = re.compile(rb"(?<![^, ])x-[a-z0-9-]{1,64}(?![^, ])")
"""A header of an application's own, which every page that may call may send."""
_KEY_PARAMETER_NAMES = {"access_token", "api_key", "apikey", "authorization", "x-api-key"}
_KEY_PREFIXES = ("sk-dragoman-", "sk-blade-", "Bearer ")

ALLOWED_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
ALLOWED_HEADERS = b"authorization, content-type, accept, idempotency-key, last-event-id, x-request-id"
EXPOSED_HEADERS = b"location, retry-after, www-authenticate, allow, link"
PREFLIGHT_MAX_AGE_S = b"7200"
"""How long a browser may remember a preflight; they cap it at two hours."""

log = structlog.get_logger(__name__)

REFUSAL_STATUSES: tuple[tuple[type[Refused], int, str], ...] = (
    (Unauthenticated, 401, "unauthorized"),
    (Forbidden, 403, "forbidden"),
    (LimitReached, 429, "rate_limited"),
    (Unavailable, 503, "unavailable"),
    (Invalid, 400, "invalid_request"),
    (Refused, 400, "invalid_request"),
)
"""What the server itself answers, where no protocol has been chosen yet. The first that fits."""


class SecurityMiddleware:
    """Lets requests through, or answers them."""

    def __init__(
        self,
        app: App,
        *,
        origins: Iterable[str] = (),
        hosts: Iterable[str] = (),
        is_keyless: bool = False,
    ) -> None:
        """Put the gate before an app.

        Args:
            app: what gets the requests.
            origins: web pages that may call. None: any, but without keys none but the server's own.
            hosts: names besides loopback ones that `Host` may hold on a server without keys.
            is_keyless: the server has no keys, so that only `Host` and `Origin` keep a foreign page out.
        """
        self._app = app
        self._origins = frozenset(origin.lower() for origin in origins)
        self._allows_any_origin = not is_keyless and (not self._origins or "*" in self._origins)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._is_keyless = is_keyless

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle a request. See ASGI."""
        kind = scope["type"]
        if kind == "lifespan":
            await self._app(scope, receive, send)
            return
        host, origin, preflight_for, named = b"", b"", b"", b""
        hosts = 0
        for name, value in scope["headers"]:
            if name == b"host":
                host, hosts = value, hosts + 1
            elif name == b"origin":
                origin = value
            elif name == b"access-control-request-method":
                preflight_for = value
            elif name == b"access-control-request-headers":
                named = value
        sending = _ResponseSender(send, self._cors_headers(origin))
        try:
            self._check(scope, host.decode("latin-1"), hosts, origin.decode("latin-1"))
            if kind == "http" and preflight_for and origin and scope["method"] == "OPTIONS":
                await sending.send_response(204, self._preflight_headers(origin, named), b"")
                return
            await self._app(scope, receive, sending if kind == "http" else send)
        except Refused as refused:
            REQUESTS_REFUSED.labels(protocol="server", code=status_and_code(refused)[1]).inc()
            await (sending.send_refusal(refused) if kind == "http" else send({"type": "websocket.close", "code": 1008}))
        except Exception as error:  # the last edge: whatever no protocol answered
            reference = uuid.uuid4().hex[:12]
            REQUESTS_FAILED.labels(protocol="server").inc()
            log.error("request failed", path=scope["path"], reference=reference, exc_info=error)
            if sending.has_begun or kind != "http":
                raise  # the server cuts the connection: half an answer must not look whole
            body = {"error": f"the server failed; reference {reference}", "code": "internal", "reference": reference}
            await sending.send_response(500, [(b"content-type", b"application/json")], msgspec.json.encode(body))

    def _check(self, scope: Message, host: str, hosts: int, origin: str) -> None:
        if hosts != 1 and not (hosts == 0 and scope.get("http_version") == "1.0"):
            raise Invalid(f"a request has one Host header, this one has {hosts}")
        name = host_name(host)
        if name is None:
            raise Invalid(f"Host is NAME or NAME:PORT, got {host!r:.80}")
        if b"=" in scope["query_string"] and contains_api_key(scope["query_string"].decode("latin-1")):
            raise Invalid("a key does not belong into a URL, where logs keep it: send Authorization: Bearer KEY")
        if not self._is_keyless:
            return
        if not (is_loopback_name(name) or name in self._hosts):
            raise Forbidden(f"without keys this server answers to loopback names only, not to {name!r:.80}")
        if origin and origin.lower() not in self._origins and not is_same_origin(origin, host):
            raise Forbidden(f"without keys this server takes no requests of pages from {origin!r:.80}")

    def _cors_headers(self, origin: bytes) -> Headers:
        """The headers that every answer carries."""
        if self._allows_any_origin:
            return [
                (b"access-control-allow-origin", b"*"),
                (b"access-control-expose-headers", EXPOSED_HEADERS),
            ]
        if not self._origins:
            return []
        if origin and origin.decode("latin-1").lower() in self._origins:
            return [
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", EXPOSED_HEADERS),
                (b"vary", b"origin"),
            ]
        return [(b"vary", b"origin")]

    def _preflight_headers(self, origin: bytes, requested_headers: bytes) -> Headers:
        if not (self._allows_any_origin or origin.decode("latin-1").lower() in self._origins):
            return []
        return [
            (b"access-control-allow-methods", ALLOWED_METHODS),
            (
                b"access-control-allow-headers",
                b", ".join((ALLOWED_HEADERS, *_CUSTOM_HEADER.findall(requested_headers.lower()))),
            ),
            (b"access-control-max-age", PREFLIGHT_MAX_AGE_S),
        ]


class _ResponseSender:
    """`send` that adds headers to the answer's beginning."""

    __slots__ = ("_headers", "_send", "has_begun")

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self._headers = headers
        self.has_begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = [*message.get("headers", ()), *self._headers, (b"x-content-type-options", b"nosniff")]
            message = {**message, "headers": headers}
        await self._send(message)

    async def send_refusal(self, refused: Refused) -> None:
        """Answer a refusal."""
        status, headers, body = status_and_code(refused)[0], *to_response(refused)
        await self.send_response(status, headers, body)

    async def send_response(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer at once."""
        headers = [*headers, (b"content-length", str(len(body)).encode())] if status != 204 else headers
        await self({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def status_and_code(refused: Refused) -> tuple[int, str]:
    """The status and the code of a refusal by the server itself."""
    return next((status, code) for kind, status, code in REFUSAL_STATUSES if isinstance(refused, kind))


def to_response(refused: Refused) -> tuple[Headers, bytes]:
    """The headers and the body of a refusal by the server itself."""
    headers: Headers = [(b"content-type", b"application/json")]
    if isinstance(refused, Unauthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(refused, LimitReached | Unavailable):
        headers.append((b"retry-after", str(refused.retry_after_s).encode()))
    return headers, msgspec.json.encode({"error": str(refused), "code": status_and_code(refused)[1]})


@lru_cache(256)
def host_name(host: str) -> str | None:
    """The name in a `Host` header, in lower case; None when it is none."""
    if not host:
        return ""
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > 65535:
        return None
    return found["name"].lower()


@lru_cache(256)
def is_loopback_name(name: str) -> bool:
    """Whether a name can only mean this machine, whatever a name server says."""
    if name in ("", "localhost", "[::1]"):
        return True
    parts = name.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdigit() and int(part) < 256 for part in parts)


def is_same_origin(origin: str, host: str) -> bool:
    """Whether a page comes from this server itself."""
    scheme, _, rest = origin.lower().partition("://")
    return scheme in ("http", "https") and rest == host.lower()


def contains_api_key(query: str) -> bool:
    """Whether somebody has put a key into a URL."""
    return any(
        name.lower() in _KEY_PARAMETER_NAMES or value.startswith(_KEY_PREFIXES)
        for name, value in parse_qsl(query, keep_blank_values=True, errors="replace")
    )
