"""Declares Blade's REST handlers: one decorator gives a handler its path, its input and its entry in OpenAPI.

    @endpoint("POST", "/sessions/{session}/rewind", access="owner")
    async def rewind(self, live: SessionView, body: CheckpointRequest) -> RewindResult: ...

A handler's parameters say what it needs: `principal`, `query`, `request`, `body` (JSON, decoded as its type), `live`
(the session that the path names, leased as `access` says) and the variables of the path. Its docstring and the type
that it returns go into the OpenAPI document.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.content import Json, JsonObject
from dragoman.engine.engine import Engine
from dragoman.protocols.blade.access import lease_owned, lease_readable
from dragoman.protocols.blade.errors import detail_of
from dragoman.protocols.kit import openapi
from dragoman.protocols.kit.app import principal_of
from dragoman.protocols.kit.body import json_response, read_json_body
from dragoman.protocols.kit.decoding import decode_body
from dragoman.protocols.kit.errors import ErrorResponse
from dragoman.protocols.kit.router import Handler, Route

DEFAULT_BODY_LIMIT = 64 * 1024
SESSION = "/sessions/{session}"
PAGE_QUERY = {"limit": "how many", "offset": "how many to skip"}
PRIVATE_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}

F = TypeVar("F", bound=Callable[..., Awaitable[object]])


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler answers to. An open one asks for no key."""

    method: openapi.Method
    path: str
    access: Literal["owner", "reader"] | None = None
    status: int = 200
    headers: Mapping[str, str] = {}
    body_limit: int = DEFAULT_BODY_LIMIT
    example: JsonObject | None = None
    query: Mapping[str, str] = {}
    media_type: str = "application/json"
    is_open: bool = False


def endpoint(method: openapi.Method, path: str, **options: Any) -> Callable[[F], F]:  # noqa: ANN401  # fields of Endpoint
    """Declare a handler. The options are the fields of `Endpoint`."""
    declared = Endpoint(method=method, path=path, **options)

    def mark(handler: F) -> F:
        handler.endpoint = declared  # type: ignore[attr-defined]  # functions take attributes
        return handler

    return mark


class Handlers:
    """Base of the handlers of one area, in the order in which they are declared."""

    engine: Engine

    @classmethod
    def declared(cls) -> list[tuple[Endpoint, Callable[..., Awaitable[object]]]]:
        """Return the endpoints with their handlers."""
        return [(each.endpoint, each) for each in vars(cls).values() if hasattr(each, "endpoint")]

    def routes(self) -> list[Route]:
        """Return the routes to these handlers."""
        return [
            Route(declared.method, declared.path[1:], self._bind(declared, handler), is_open=declared.is_open)
            for declared, handler in self.declared()
        ]

    def _bind(self, declared: Endpoint, handler: Callable[..., Awaitable[object]]) -> Handler:
        types = handler.__annotations__
        decoder = msgspec.json.Decoder(types["body"]) if "body" in types else None

        async def respond(request: Request) -> Response:
            arguments: dict[str, Any] = {
                name: value for name, value in request.path_params.items() if name != "session"
            }
            if "principal" in types:
                arguments["principal"] = principal_of(request)
            if "query" in types:
                arguments["query"] = request.query_params
            if "request" in types:
                arguments["request"] = request
            if decoder is not None:
                arguments["body"] = decode_body(decoder, await read_json_body(request, declared.body_limit) or b"{}")
            if declared.access is None:
                return _to_response(declared, await handler(self, **arguments))
            user, session = principal_of(request).user, request.path_params["session"]
            if declared.access == "owner":
                lease = await lease_owned(self.engine, user, session)
            else:
                lease = lease_readable(self.engine, user, session)
            async with lease as live:
                response = _to_response(declared, await handler(self, live=live, **arguments))
                await live.until_durable(live.state.seq)  # what the response shows
                return response

        return respond


def _to_response(declared: Endpoint, result: Json) -> Response:
    if isinstance(result, Response):
        return result
    if result is None:
        return Response(status_code=204)
    return json_response(result, declared.status, declared.headers)


def write_error(error: ErrorResponse) -> Response:
    """Write an error as `{"detail": TEXT}`."""
    return json_response({"detail": detail_of(error)}, error.status, error.headers)
