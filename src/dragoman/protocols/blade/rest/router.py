"""Blade over REST: what every request passes, whoever answers it. Knows no object of the protocol's.

Each area brings its table of routes; `App` finds the one that is asked for, says who calls, and tells what failed.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dragoman.core.refusals import Refused
from dragoman.engine.instrumentation.metrics import REQUESTS_FAILED, REQUESTS_REFUSED
from dragoman.protocols.blade import errors
from dragoman.protocols.blade.errors import ErrorResponse
from dragoman.protocols.kit.http import (
    Authenticate,
    BodyTooLarge,
    BodyTooSlow,
    UnsupportedMediaType,
    address_of,
    json_response,
    read_body,
    require_json,
)

Handler = Callable[[Request], Awaitable[Response]]

log = structlog.get_logger(__name__)


class Route(NamedTuple):
    """What answers to a method and a path such as `sessions/{id}/share/{token}`; `{…}` stands for one part.

    A part that is written out wins over one that is not. An open route asks for no key.
    """

    method: str
    path: str
    handler: Handler
    is_open: bool = False


class _PathNode:
    """A place in the tree of paths."""

    __slots__ = ("methods", "name", "parts", "variable")

    def __init__(self) -> None:
        self.parts: dict[str, _PathNode] = {}
        self.variable: _PathNode | None = None
        self.name = ""
        self.methods: dict[str, Route] = {}

    def add(self, route: Route) -> None:
        """Put a route at its place."""
        node = self
        for part in route.path.split("/"):
            if part.startswith("{"):
                node.variable = node.variable or _PathNode()
                node = node.variable
                node.name = part[1:-1]
            else:
                node = node.parts.setdefault(part, _PathNode())
        node.methods[route.method] = route

    def find(self, parts: Sequence[str]) -> tuple["_PathNode", dict[str, str]] | None:
        """The place of a path, and what its variable parts hold."""
        if not parts:
            return (self, {}) if self.methods else None
        node = self.parts.get(parts[0])
        found = None if node is None else node.find(parts[1:])
        if found is not None or self.variable is None or not parts[0]:
            return found
        found = self.variable.find(parts[1:])
        return None if found is None else (found[0], {self.variable.name: parts[0], **found[1]})


class App:
    """The REST half of the protocol as an ASGI application, to be mounted anywhere."""

    def __init__(self, routes: Sequence[Route], authenticate: Authenticate) -> None:
        self._authenticate = authenticate
        self._tree = _PathNode()
        for route in routes:
            self._tree.add(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        try:
            response = await self._dispatch(scope, receive)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  # a request's root: every failure gets its answer
            told = to_error_response(error)
            if told.status == 500:
                REQUESTS_FAILED.labels(protocol="blade").inc()
            else:
                REQUESTS_REFUSED.labels(protocol="blade", code=str(told.status)).inc()
            response = json_response(told.body, told.status, told.headers)
        await response(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive) -> Response:
        path: str = scope["path"]
        parts = path[len(scope.get("root_path", "")) :].strip("/").split("/")
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        request = Request(scope, receive)
        found = self._tree.find(parts)
        route = None if found is None else found[0].methods.get(method)
        if route is None or not route.is_open:
            principal = self._authenticate(request.headers.get("authorization"), address_of(scope))
            principal.require("read" if method == "GET" else "use")
            scope["principal"] = principal
        if found is None:
            return json_response({"detail": "Not Found"}, 404)
        if route is None:
            return json_response({"detail": "Method Not Allowed"}, 405, {"Allow": ", ".join(found[0].methods)})
        scope["path_params"] = found[1]
        return await route.handler(request)


async def json_body(request: Request, limit: int) -> bytes:
    """A JSON body of at most `limit` bytes. Raises UnsupportedMediaType, BodyTooLarge, BodyTooSlow."""
    require_json(request)
    return await read_body(request, limit)


def to_error_response(error: Exception) -> ErrorResponse:
    """What is said of a failure."""
    closes: Mapping[str, str] = {"Connection": "close"}
    match error:
        case Refused():
            return errors.to_response(error)
        case BodyTooLarge():
            return ErrorResponse(413, str(error), closes)
        case BodyTooSlow():
            return ErrorResponse(408, str(error), closes)
        case UnsupportedMediaType():
            return ErrorResponse(415, str(error))
        case _:
            log.error("request failed", exc_info=error)
            return ErrorResponse(500, "Internal Server Error")
