"""The Agent API's routes as data, for the server's OpenAPI document. The types are those that decode and encode."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dragoman.protocols.agentscope import wire
from dragoman.protocols.agentscope.paths import PUBLIC_PATHS, endpoints
from dragoman.protocols.kit.openapi import Method, Parameter, ResponseSpec, Route

TAG = "AgentScope Runtime"


class Detail(msgspec.Struct, frozen=True):
    """A wrong field."""

    loc: list[str | int]
    msg: str


class AgentScopeError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of every error."""

    error: wire.Error
    detail: list[Detail] | None = None


class Service(msgspec.Struct, frozen=True):
    """The service and its paths."""

    service: str
    mode: str
    endpoints: dict[str, str]


_ERRORS = {
    401: "the key is missing or unknown",
    403: "the key lacks the scope, or the session belongs to another user",
    429: "too many requests; `Retry-After` says when to try again",
    503: "the server is starting or stopping, or its store is not writable; `Retry-After` says when to try again",
}
_BODY_ERRORS = {
    400: "the body is not JSON",
    408: "the body did not arrive in time",
    413: "the body is too large",
    415: "the body is not declared as JSON",
    422: "a rule of the protocol is broken; `detail` names the field",
}
_RUN_ERRORS = _BODY_ERRORS | {
    404: "there is no such agent",
    409: "a response of the session is running, nothing waits for this answer, or the id belongs to another request",
}
_NOT_FOUND = {404: "it does not exist, or belongs to another user"}
_STREAM = ResponseSpec(
    description="server-sent events without names: responses, messages and contents, to the terminal response",
    media_type="text/event-stream",
)
_POSITION_PARAMETERS = (
    Parameter(name="after", location="query", description="number of the last event received; -1: none", type=int),
    Parameter(name="Last-Event-ID", location="header", description="the same, if `after` is not given"),
)


def _json(description: str, body: type) -> ResponseSpec:
    return ResponseSpec(description=description, body=body)


_STATE = _json("its state", dict[str, str])
_EXAMPLE = {"input": [{"role": "user", "type": "message", "content": [{"type": "text", "text": "Hello!"}]}]}


def routes(path: str) -> tuple[Route, ...]:
    """The routes. `path` is the configured one."""
    at = endpoints(path)
    return (
        _route(
            "POST",
            at["process"],
            "Run an agent and get its response",
            (_json("the terminal response, whatever its status", wire.AgentResponse), _STREAM),
            _RUN_ERRORS,
            description="The run continues if the client disconnects; its events can be replayed.",
            body=wire.AgentRequest,
            body_example=_EXAMPLE,
        ),
        _route(
            "POST",
            at["stop"],
            "Cancel a running response",
            _json("whether a response was running", wire.StopResponse),
            _BODY_ERRORS,
            body=wire.StopRequest,
            body_example={"session_id": "s-17"},
        ),
        _route(
            "POST",
            at["task"],
            "Run an agent in the background",
            _json("the task", wire.TaskSubmitted),
            _RUN_ERRORS,
            body=wire.TaskRequest,
            body_example={**_EXAMPLE, "timeout": 60},
        ),
        _route("GET", at["task_status"], "Get a task", _json("its state", wire.TaskState), _NOT_FOUND),
        _route("GET", at["response"], "Get a response", _json("its state", wire.AgentResponse), _NOT_FOUND),
        _route(
            "GET",
            at["response_events"],
            "Replay a response's events and follow it",
            _STREAM,
            {**_NOT_FOUND, 422: "the response has no event with this number"},
            parameters=_POSITION_PARAMETERS,
        ),
        _route(
            "GET",
            at["session_events"],
            "Replay a session's latest response and follow it",
            _STREAM,
            other={204: ResponseSpec(description="the session has no response")},
        ),
        _route("GET", "/", "List the paths of the service", _json("the paths", Service)),
        _route("GET", at["health"], "Get the health of the service", _STATE),
        _route("GET", at["readiness"], "Get the readiness of the service", _STATE, other={503: _STATE}),
        _route("GET", at["liveness"], "Get the liveness of the service", _STATE, other={503: _STATE}),
    )


def _route(
    method: Method,
    path: str,
    summary: str,
    success: ResponseSpec | Sequence[ResponseSpec],
    errors: Mapping[int, str] = {},
    *,
    other: Mapping[int, ResponseSpec] = {},
    parameters: Sequence[Parameter] = (),
    **more: Any,  # noqa: ANN401  # the remaining fields of a route
) -> Route:
    is_public = path in PUBLIC_PATHS
    variables = re.findall(r"{(\w+)}", path)
    failures = {} if is_public else {**_ERRORS, **errors}
    return Route(
        method=method,
        path=path,
        summary=summary,
        tag=TAG,
        parameters=[*(Parameter(name=each, location="path", description="its id") for each in variables), *parameters],
        responses={
            200: success,
            **other,
            **{status: _json(failures[status], AgentScopeError) for status in sorted(failures)},
        },
        is_public=is_public,
        **more,
    )
