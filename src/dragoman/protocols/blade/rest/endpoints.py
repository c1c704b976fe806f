"""Declares Blade's REST handlers: as in `kit.endpoints`, with a body and a session as further parameters.

    @endpoint("POST", "/sessions/{session}/rewind", access="owner")
    async def rewind(self, session: SessionView, body: CheckpointRequest) -> RewindResult: ...

`body` is the request's JSON, decoded as its type, and `session` the one that the path names, leased as `access` says.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.refusals import Invalid
from dragoman.engine.engine import Engine
from dragoman.protocols.blade.access import lease_owned, lease_readable
from dragoman.protocols.blade.errors import detail_of
from dragoman.protocols.kit import openapi
from dragoman.protocols.kit.app import principal_of
from dragoman.protocols.kit.body import json_response, read_json_body
from dragoman.protocols.kit.decoding import decode_body, parse_whole_number
from dragoman.protocols.kit.endpoints import (
    ApiDescription,
    Endpoint,
    Handlers,
    declare,
    needed_by,
    query,
    wait_for_reader,
)
from dragoman.protocols.kit.errors import ErrorResponse
from dragoman.protocols.kit.router import Handler

DEFAULT_BODY_LIMIT = 64 * 1024
SESSION = "/sessions/{session}"
PAGE_QUERY = (query("limit", "how many"), query("offset", "how many to skip"))
MAX_OFFSET = 999_999_999
PRIVATE_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


class Problem(msgspec.Struct, frozen=True):
    """The body of every error."""

    detail: str


API = ApiDescription(
    "Blade",
    Problem,
    errors={
        401: "The key is missing or unknown.",
        403: "The key may only read, or the session belongs to another user.",
        404: "The object does not exist, or belongs to another user.",
        409: "The object's state does not allow this.",
        422: "The request is invalid. `detail` begins with the field at fault.",
        429: "A limit is reached. `Retry-After` says when to try again.",
        503: "The server is shutting down, or its store is unavailable. `Retry-After` says when to try again.",
    },
    input_errors={},
    body_errors={413: "The body is too large.", 415: "The body is not declared as JSON."},
)
F = TypeVar("F", bound=Callable[..., Awaitable[object]])


class BladeEndpoint(Endpoint, frozen=True, kw_only=True):
    """What a handler answers to.

    Attributes:
        access: the session that the path names is leased for its owner alone, or for its readers; None leases none.
        body_limit: the most bytes of a body.
    """

    access: Literal["owner", "reader"] | None = None
    body_limit: int = DEFAULT_BODY_LIMIT


def endpoint(method: openapi.Method, path: str, **options: Any) -> Callable[[F], F]:  # noqa: ANN401  # fields of BladeEndpoint
    """Declare a handler. The options are the fields of `BladeEndpoint`; `body` is the type of that parameter."""

    def mark(handler: F) -> F:
        body = handler.__annotations__.get("body")
        return declare(BladeEndpoint(method=method, path=path, body=body, **options))(handler)

    return mark


class BladeHandlers(Handlers):
    """Base of the handlers of one area."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def bind(self, declared: Endpoint, handler: Callable[..., Awaitable[object]]) -> Handler:
        """The function that answers a request with a handler."""
        assert isinstance(declared, BladeEndpoint), "declared with this module's decorator"
        leased = ("session",) if declared.access is not None else ()
        needed = needed_by(handler, declared.path, besides=("body", *leased))
        decoder = None if declared.body is None else msgspec.json.Decoder(declared.body)

        async def respond(request: Request) -> Response:
            arguments: dict[str, Any] = {name: get(request) for name, get in needed}
            if decoder is not None:
                arguments["body"] = decode_body(decoder, await read_json_body(request, declared.body_limit) or b"{}")
            if declared.access is None:
                result = await handler(self, **arguments)
                await wait_for_reader(request)
                return declared.to_response(result)
            user, name = principal_of(request).user, request.path_params["session"]
            lease = lease_owned if declared.access == "owner" else lease_readable
            async with lease(self.engine, user, name) as session:
                result = await handler(self, **arguments, session=session)
                await wait_for_reader(request)
                response = declared.to_response(result)
                await session.until_durable(session.state.seq)  # what the response shows
                return response

        return respond


def write_error(error: ErrorResponse) -> Response:
    """Write an error as `{"detail": TEXT}`."""
    return json_response({"detail": detail_of(error)}, error.status, error.headers)


# --- the query --------------------------------------------------------------------------------------------------------


def parse_int(query: Mapping[str, str], name: str, default: int, *, minimum: int, maximum: int) -> int:
    """Read a whole number from the query. Raises Invalid if it is not one, or is out of bounds."""
    number = parse_whole_number(query.get(name) or str(default), minimum, maximum)
    if number is None:
        raise Invalid(f"must be a whole number from {minimum} to {maximum}", path=name)
    return number


def parse_page(query: Mapping[str, str], *, default: int, maximum: int) -> tuple[int, int]:
    """Read `offset` and `limit` from the query, the limit being `default` if absent. Raises Invalid."""
    offset = parse_int(query, "offset", 0, minimum=0, maximum=MAX_OFFSET)
    return offset, parse_int(query, "limit", default, minimum=1, maximum=maximum)
