"""Declares a protocol's handlers: one decorator gives a handler its route and its entry in the OpenAPI document.

    class SessionHandlers(Handlers):
        @endpoint("POST", "/sessions", body=PostSessions, example={"agent": "assistant"}, status=201)
        async def create(self, request: Request, principal: Principal) -> PostSessionsResponse: ...

The parameters of a handler say what it needs: `request`, `principal`, `query`, and the variables of its path. The first
paragraph of a handler's docstring is the summary in the document, the second one the description. The type
that it returns is the body of a success; what it returns is encoded as JSON, unless it is a `Response`.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from types import UnionType
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.content import Json
from dragoman.core.principal import Principal
from dragoman.protocols.kit import openapi
from dragoman.protocols.kit.body import connection_memory, json_response
from dragoman.protocols.kit.openapi import BODY_ERRORS, COMMON_ERRORS, INPUT_ERRORS, Parameter, ResponseSpec
from dragoman.protocols.kit.router import Handler, KeyScope, Route

F = TypeVar("F", bound=Callable[..., Awaitable[object]])


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler answers to, and what the document says about it beside its docstring and its type.

    Attributes:
        method: `GET` also answers `HEAD`.
        path: relative to where the protocol is mounted; as in `router.Route`, but with a slash in front.
        is_open: whether it can be called without a key.
        scope: what the caller's key must allow; as in `router.Route`.
        status: of a success with a body; without one it is 204.
        headers: of a success.
        body: the type of the request's body.
        example: an example of it.
        parameters: of the query and the head. Those of the path are added.
        returns: what a success contains; by default the summary.
        streams: what a stream of events contains, if it may answer with one.
        media_type: of a success without a type.
        other: answers besides success and errors, by status.
        errors: errors besides those that every endpoint of its kind may answer, by status.
    """

    method: openapi.Method
    path: str
    is_open: bool = False
    scope: KeyScope | None = None
    status: int = 200
    headers: Mapping[str, str] = {}
    body: Any = None
    example: Any = None
    parameters: Sequence[Parameter] = ()
    returns: str = ""
    streams: str = ""
    media_type: str = ""
    other: Mapping[int, ResponseSpec] = {}
    errors: Mapping[int, str] = {}

    def to_response(self, result: Json) -> Response:
        """Encode what the handler returned."""
        if isinstance(result, Response):
            return result
        return Response(status_code=204) if result is None else json_response(result, self.status, self.headers)


class DeclaredHandler(NamedTuple):
    """A method with its endpoint."""

    endpoint: Endpoint
    method: Callable[..., Awaitable[object]]


def endpoint(method: openapi.Method, path: str, **options: Any) -> Callable[[F], F]:  # noqa: ANN401  # fields of Endpoint
    """Declare a handler. The options are the fields of `Endpoint`."""
    return declare(Endpoint(method=method, path=path, **options))


def declare(declared: Endpoint) -> Callable[[F], F]:
    """Declare a handler. It may be declared for several paths."""

    def mark(handler: F) -> F:
        earlier = getattr(handler, "endpoints", ())  # decorators apply from the last to the first
        handler.endpoints = (declared, *earlier)  # type: ignore[attr-defined]  # functions take attributes
        return handler

    return mark


class Handlers:
    """Base of the handlers of one area, in the order in which they are declared."""

    @classmethod
    def declared(cls) -> list[DeclaredHandler]:
        """The methods that are endpoints."""
        return [
            DeclaredHandler(declared, each)
            for each in vars(cls).values()
            for declared in getattr(each, "endpoints", ())
        ]

    def routes(self) -> list[Route]:
        """The routes to these handlers."""
        return [
            Route(each.method, each.path[1:], self.bind(each, handler), each.scope, each.is_open)
            for each, handler in self.declared()
        ]

    def bind(self, declared: Endpoint, handler: Callable[..., Awaitable[object]]) -> Handler:
        """The function that answers a request with a handler."""
        needed = needed_by(handler, declared.path)

        async def respond(request: Request) -> Response:
            result = await handler(self, **{name: get(request) for name, get in needed})
            await wait_for_reader(request)
            return declared.to_response(result)

        return respond


async def wait_for_reader(request: Request) -> None:
    """Wait for a turn if the caller has not read earlier responses.

    One response of such a user is encoded in each iteration of the event loop. Otherwise a thousand would be in memory
    before the first of them is cut off.
    """
    principal: Principal | None = request.scope.get("principal")
    if principal is not None:
        responses = connection_memory(request.scope).responses
        if responses.is_slow(principal.user):
            await responses.take_turn(principal.user)


_SOURCES: Mapping[str, Callable[[Request], object]] = {
    "request": lambda request: request,
    "principal": lambda request: request.scope["principal"],
    "query": lambda request: request.query_params,
}


def needed_by(
    handler: Callable[..., Awaitable[object]], path: str, besides: Collection[str] = ()
) -> list[tuple[str, Callable[[Request], object]]]:
    """The parameters of a handler, each with the function that gets it from a request; without those `besides`.

    Raises:
        TypeError: a parameter is none of the known ones, and no variable of the path.
    """
    names = [name for name in handler.__annotations__ if name != "return" and name not in besides]
    unknown = {*names} - _SOURCES.keys() - {*re.findall(r"{(\w+)", path)}
    if unknown:
        raise TypeError(f"{handler.__qualname__}: {path} gives no {', '.join(sorted(unknown))}")
    return [(name, _SOURCES.get(name) or partial(_path_variable, name)) for name in names]


def _path_variable(name: str, request: Request) -> object:
    return request.path_params[name]


# --- the OpenAPI document ---------------------------------------------------------------------------------------------


def query(name: str, description: str, kind: Any = str, *, is_required: bool = False) -> Parameter:  # noqa: ANN401  # a type
    """A parameter of the query."""
    return Parameter(name=name, location="query", description=description, type=kind, is_required=is_required)


def request_header(name: str, description: str) -> Parameter:
    """A header of the request."""
    return Parameter(name=name, location="header", description=description)


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every error, as `app.error_body` writes it. Some codes bring further members."""

    error: str
    code: str


LAST_EVENT_ID = request_header("Last-Event-ID", "The `id` of the last event received.")


class ApiDescription(NamedTuple):
    """What the endpoints of a protocol have in common in the document.

    Attributes:
        tag: the protocol.
        error_body: the type of an error's body.
        error_media_type: its media type.
        errors: what every endpoint may answer that asks for a key, by status.
        input_errors: what every endpoint with a body or parameters may answer besides.
        body_errors: what every endpoint with a body may answer besides.
    """

    tag: str
    error_body: Any = ErrorBody
    error_media_type: str = "application/json"
    errors: Mapping[int, str] = COMMON_ERRORS
    input_errors: Mapping[int, str] = INPUT_ERRORS
    body_errors: Mapping[int, str] = BODY_ERRORS

    def routes(self, *areas: type[Handlers]) -> list[openapi.Route]:
        """Describe the endpoints of these handlers."""
        return [self._describe(*each) for area in areas for each in area.declared()]

    def _describe(self, declared: Endpoint, handler: Callable[..., Awaitable[object]]) -> openapi.Route:
        summary, description, *_ = [*inspect.cleandoc(handler.__doc__ or "").split("\n\n"), ""]
        path, summary = declared.path.replace(":path}", "}"), " ".join(summary.split()).removesuffix(".")
        errors = dict(self.errors)
        if declared.body is not None or declared.parameters:
            errors |= self.input_errors
        if declared.body is not None:
            errors |= self.body_errors
        errors = {} if declared.is_open else {**errors, **declared.errors}
        return openapi.Route(
            method=declared.method,
            path=path,
            summary=summary,
            description=" ".join(description.split()),
            tag=self.tag,
            body=declared.body,
            body_example=declared.example,
            parameters=[
                *(
                    Parameter(name=name, location="path", description=f"The id of the {name.removesuffix('_id')}.")
                    for name in re.findall(r"{(\w+)}", path)
                ),
                *declared.parameters,
            ],
            responses={
                **_successes(declared, handler.__annotations__["return"], declared.returns or summary),
                **declared.other,
                **{
                    status: ResponseSpec(
                        description=errors[status], body=self.error_body, media_type=self.error_media_type
                    )
                    for status in sorted(errors)
                },
            },
            is_public=declared.is_open,
        )


def _successes(declared: Endpoint, result: Any, description: str) -> Mapping[int, Sequence[ResponseSpec]]:  # noqa: ANN401  # a type
    """What a handler answers that returns a result of that type."""
    if result is None:
        return {204: [ResponseSpec(description=description)]}
    alternatives = get_args(result) if isinstance(result, UnionType) else (result,)
    answers = [
        ResponseSpec(description=description, body=each)
        for each in alternatives
        if not (isinstance(each, type) and issubclass(each, Response))
    ]
    if declared.streams:
        answers.append(ResponseSpec(description=declared.streams, media_type="text/event-stream"))
    elif not answers:
        answers.append(ResponseSpec(description=description, media_type=declared.media_type))
    return {declared.status: answers}
