"""The Agent API's routes as data, for the server's OpenAPI document. The types are those that decode and encode."""

from typing import Any

import msgspec

from dragoman.protocols.agentscope import wire
from dragoman.protocols.agentscope.paths import stop_path
from dragoman.protocols.kit.openapi import Parameter, ResponseSpec, Route

TAG = "AgentScope Runtime"


class Detail(msgspec.Struct, frozen=True):
    """A field that is wrong."""

    loc: list[str | int]
    msg: str


class AgentScopeError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every error's body."""

    error: wire.Error
    detail: list[Detail] | None = None


class Health(msgspec.Struct, frozen=True):
    """The answer of `GET /health`."""

    status: str
    mode: str
    runner: str


class Service(msgspec.Struct, frozen=True):
    """What is served where."""

    service: str
    mode: str
    endpoints: dict[str, str]


_ERRORS = {
    401: "no key, or none that is known",
    403: "the key lacks the scope, or the session is another user's",
    429: "too much for now; `Retry-After` says when to come again",
    503: "the server starts or stops, or its store takes no writes; `Retry-After`",
}
_BODY_ERRORS = {
    400: "the body is no JSON",
    408: "the body did not arrive in time",
    413: "the body is too large",
    415: "the body is not declared as JSON",
    422: "a rule of the protocol is broken; `detail` names the field",
}
_RUN_ERRORS = {
    404: "no such agent",
    409: "a response of the session is running, or nothing waits for this answer, or the id belongs to another request",
}
_NOT_FOUND = {404: "there is no such thing, or it is another user's"}
_STREAM = ResponseSpec(
    description="server-sent events without names: responses, messages and contents, to the terminal response",
    media_type="text/event-stream",
)
_POSITION_PARAMETERS = (
    Parameter(name="after", location="query", description="number of the last event seen; -1: none", type=int),
    Parameter(name="Last-Event-ID", location="header", description="the same, where `after` is not given"),
)
_STATE = ResponseSpec(description="its state", body=dict[str, str])


def _answers(success: dict[int, Any], *more: dict[int, str]) -> dict[int, Any]:
    told = {status: text for each in (_ERRORS, *more) for status, text in each.items()}
    errors = {status: ResponseSpec(description=text, body=AgentScopeError) for status, text in told.items()}
    return success | dict(sorted(errors.items()))


def _path_parameter(name: str, description: str) -> Parameter:
    return Parameter(name=name, location="path", description=description)


_EXAMPLE = {"input": [{"role": "user", "type": "message", "content": [{"type": "text", "text": "Hello!"}]}]}


def routes(path: str) -> tuple[Route, ...]:
    """The routes, with `path` as the one where runs begin."""
    whole = ResponseSpec(description="the terminal response, whatever its status", body=wire.AgentResponse)
    return (
        Route(
            method="POST",
            path=path,
            summary="Run an agent and get its response",
            description="The run goes on when the client leaves; its events can be read again.",
            tag=TAG,
            body=wire.AgentRequest,
            body_example=_EXAMPLE,
            responses=_answers({200: (whole, _STREAM)}, _BODY_ERRORS, _RUN_ERRORS),
        ),
        Route(
            method="POST",
            path=stop_path(path),
            summary="Cancel a running response",
            tag=TAG,
            body=wire.StopRequest,
            body_example={"session_id": "s-17"},
            responses=_answers(
                {200: ResponseSpec(description="whether there was one", body=wire.StopResponse)},
                _BODY_ERRORS,
            ),
        ),
        Route(
            method="POST",
            path=f"{path}/task",
            summary="Run an agent in the background",
            tag=TAG,
            body=wire.TaskRequest,
            body_example={**_EXAMPLE, "timeout": 60},
            responses=_answers(
                {200: ResponseSpec(description="the task", body=wire.TaskSubmitted)}, _BODY_ERRORS, _RUN_ERRORS
            ),
        ),
        Route(
            method="GET",
            path=f"{path}/task/{{task_id}}",
            summary="How a background task stands",
            tag=TAG,
            parameters=(_path_parameter("task_id", "the task"),),
            responses=_answers({200: ResponseSpec(description="its state", body=wire.TaskState)}, _NOT_FOUND),
        ),
        Route(
            method="GET",
            path=f"{path}/responses/{{response_id}}",
            summary="How a response stands",
            tag=TAG,
            parameters=(_path_parameter("response_id", "the response"),),
            responses=_answers({200: ResponseSpec(description="the response", body=wire.AgentResponse)}, _NOT_FOUND),
        ),
        Route(
            method="GET",
            path=f"{path}/responses/{{response_id}}/events",
            summary="Read a response's events again, and follow it",
            tag=TAG,
            parameters=(_path_parameter("response_id", "the response"), *_POSITION_PARAMETERS),
            responses=_answers({200: _STREAM}, _NOT_FOUND, {422: "the position is none of this response's"}),
        ),
        Route(
            method="GET",
            path=f"{path}/sessions/{{session_id}}/events",
            summary="The newest response of a session, from its first event",
            tag=TAG,
            parameters=(_path_parameter("session_id", "the session"),),
            responses=_answers({200: _STREAM, 204: ResponseSpec(description="there is none")}),
        ),
        Route(
            method="GET",
            path="/",
            summary="What is served where",
            tag=TAG,
            is_public=True,
            responses={200: ResponseSpec(description="the paths", body=Service)},
        ),
        Route(
            method="GET",
            path="/health",
            summary="Whether the service is well",
            tag=TAG,
            is_public=True,
            responses={200: ResponseSpec(description="its state", body=Health)},
        ),
        *(
            Route(
                method="GET",
                path=each,
                summary=f"The {each[1:]} of the service",
                tag=TAG,
                is_public=True,
                responses={200: _STATE, 503: _STATE},
            )
            for each in ("/readiness", "/liveness")
        ),
    )
