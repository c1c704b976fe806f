"""Blade's REST endpoints as data, for the server's OpenAPI document."""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response

from dragoman.protocols.blade.rest import archives, keys, memories, replays, schedules, server, sessions, sharing, turns
from dragoman.protocols.blade.rest.endpoints import Endpoint
from dragoman.protocols.kit.openapi import Parameter, ResponseSpec, Route

AREAS = (
    *(server.ServerHandlers, sessions.SessionHandlers, turns.TurnHandlers, replays.ReplayHandlers),
    *(memories.MemoryHandlers, keys.KeyHandlers, schedules.ScheduleHandlers),
    *(sharing.ShareHandlers, archives.ArchiveHandlers),
)


class Problem(msgspec.Struct, frozen=True):
    """The body of every error."""

    detail: str


_COMMON_ERRORS = {
    401: "The key is missing or unknown.",
    404: "The object does not exist, or belongs to another user.",
    422: "The request is invalid. `detail` begins with the field at fault.",
    429: "A limit is reached. `Retry-After` says when to try again.",
    503: "The server is shutting down, or its store is unavailable. `Retry-After` says when to try again.",
}
_WRITE_ERRORS = {
    403: "The key may only read, or the session belongs to another user.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
}
_STATE_ERRORS = {409: "The object's state does not allow this."}


def describe(declared: Endpoint, handler: Callable[..., Awaitable[object]]) -> Route:
    """Describe an endpoint, with the errors that its kind may answer."""
    errors = {
        **_COMMON_ERRORS,
        **(_WRITE_ERRORS if declared.method != "GET" else {}),
        **(_STATE_ERRORS if declared.path.startswith("/scheduled") else {}),
    }
    summary = (handler.__doc__ or "").partition("\n")[0].removesuffix(".")
    variables = [part[1:-1] for part in declared.path.split("/") if part.startswith("{")]
    result = handler.__annotations__["return"]
    status, body = (204, None) if result is None else (declared.status, None if result is Response else result)
    return Route(
        method=declared.method,
        path=declared.path,
        summary=summary,
        tag="Blade",
        body=handler.__annotations__.get("body"),
        body_example=declared.example,
        parameters=[
            *(Parameter(name=name, location="path", description=f"the {name}'s id") for name in variables),
            *(Parameter(name=name, location="query", description=about) for name, about in declared.query.items()),
        ],
        responses={
            status: ResponseSpec(description=summary, body=body, media_type=declared.media_type),
            **{code: ResponseSpec(description=text, body=Problem) for code, text in sorted(errors.items())},
        },
        is_public=declared.is_open,
    )


ROUTES = tuple(describe(*each) for area in AREAS for each in area.declared())
