"""A protocol over HTTP as an ASGI application: every request passes here, and every failure is answered here."""

import uuid
from collections.abc import Callable, Iterable

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dragoman.core.audit import ACTOR, Actor
from dragoman.core.principal import HOPS, HOPS_HEADER, Principal, parse_hops
from dragoman.core.quotas import QUOTAS, Quota
from dragoman.core.refusals import Refused, Unavailable
from dragoman.engine.instrumentation.metrics import REQUESTS_FAILED, REQUESTS_REFUSED
from dragoman.protocols.kit.access import AccessControl
from dragoman.protocols.kit.body import header, json_response, release_body
from dragoman.protocols.kit.errors import (
    ErrorResponse,
    ErrorTable,
    InternalError,
    MethodNotAllowed,
    RequestError,
    UnknownPath,
    rate_limit_headers,
)
from dragoman.protocols.kit.router import KeyScope, Route, Router

_HOPS_HEADER = HOPS_HEADER.encode()

log = structlog.get_logger(__name__)


def address_of(scope: Scope) -> str:
    """Return the peer's address, as far as the server knows it."""
    client = scope.get("client")
    return client[0] if client else ""


def bearer_credentials(scope: Scope) -> str | None:
    """Return the `Authorization` header."""
    return header(scope, b"authorization")


def error_body(error: ErrorResponse) -> Response:
    """Write an error as `{"error": message, "code": code}` with its facts."""
    body = {"error": error.message, "code": error.code, **error.facts}
    return json_response(body, error.status, error.headers)


def principal_of(request: Request) -> Principal:
    """Return who sends a request. Only for routes that are not open."""
    principal: Principal = request.scope["principal"]
    return principal


def enter_request(principal: Principal, scope: Scope) -> None:
    """Have everything that the current task does, and the tasks that it starts, be done in the name of a caller."""
    ACTOR.set(actor_of(principal, scope))
    if (hops := header(scope, _HOPS_HEADER)) is not None:
        HOPS.set(parse_hops(hops))


def actor_of(principal: Principal, scope: Scope) -> Actor:
    """Who sends a request."""
    return Actor(principal.user, principal.key_id, address_of(scope), header(scope, b"x-request-id") or "")


def counted_error(protocol: str, errors: ErrorTable, error: Exception, **facts: str) -> ErrorResponse:
    """Return a protocol's answer to a failure, and count it. A fault of ours is logged, with a reference and facts."""
    if isinstance(error, MemoryError):
        error = Unavailable("there is no memory for this request now")
    if not isinstance(error, Refused | RequestError):
        reference = uuid.uuid4().hex[:12]
        log.error("request failed", protocol=protocol, reference=reference, exc_info=error, **facts)
        error = InternalError(reference)
    response = errors.to_response(error)
    if response.status >= 500 and isinstance(error, InternalError):
        REQUESTS_FAILED.labels(protocol=protocol).inc()
    else:
        REQUESTS_REFUSED.labels(protocol=protocol, code=response.code).inc()
    return response


class ProtocolApp:
    """Authenticates, checks the key's scope, dispatches, counts, and writes errors in the protocol's own shape.

    Args:
        name: the protocol's label in metrics.
        routes: what it answers.
        errors: its answers to failures, complete.
        access: identifies the caller, and limits the memory of bodies and responses.
        credentials: finds the `Authorization` value of a request.
        write_error: writes an error in the protocol's shape.
    """

    def __init__(
        self,
        name: str,
        routes: Iterable[Route],
        errors: ErrorTable,
        access: AccessControl,
        *,
        credentials: Callable[[Scope], str | None] = bearer_credentials,
        write_error: Callable[[ErrorResponse], Response] = error_body,
    ) -> None:
        self._name = name
        self._router = Router(routes)
        self._errors = errors
        self._authenticate = access.authenticate
        self._memory = access.memory
        self._credentials = credentials
        self._write_error = write_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        scope["connection_memory"] = self._memory
        quotas: dict[str, Quota] = {}
        QUOTAS.set(quotas)
        try:
            response = await self._respond(scope, receive)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  # the root of a request: every failure is answered
            response = self._write_error(counted_error(self._name, self._errors, error))
        finally:
            release_body(scope)
        if quotas:
            response.raw_headers.extend(rate_limit_headers(quotas.values()))
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        """Dispatch a request. Without a valid key nothing is revealed about paths and methods that need one."""
        path: str = scope["path"]
        method: str = scope["method"]
        wanted = "GET" if method == "HEAD" else method
        match = self._router.find(path[len(scope.get("root_path", "")) :], wanted)
        route = None if match is None else match.routes.get(wanted)
        required: KeyScope
        if route is not None:
            is_open, required = route.is_open, route.required_scope
        else:
            is_open = match is not None and all(each.is_open for each in match.routes.values())
            required = "read"  # any key may learn that there is nothing
        if not is_open:
            await self._authorize(scope, required)
        if match is None:
            raise UnknownPath
        if route is None:
            raise MethodNotAllowed(tuple(match.routes))
        scope["path_params"] = match.variables
        return await route.handler(Request(scope, receive))

    async def _authorize(self, scope: Scope, required: KeyScope) -> None:
        principal = await self._authenticate(self._credentials(scope), address_of(scope))
        principal.require(required)
        scope["principal"] = principal
        enter_request(principal, scope)
