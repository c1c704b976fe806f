"""The Agent API's routes as data, for the server's OpenAPI document. The types are those that decode and encode."""

from typing import Any

import msgspec

from dragoman.protocols.agentscope import wire
from dragoman.protocols.agentscope.paths import stop_path
from dragoman.protocols.kit.openapi import Answer, Parameter, Route

TAG = "AgentScope Runtime"


class Detail(msgspec.Struct, frozen=True):
    """A field that is wrong."""

    loc: list[str | int]
    msg: str


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
_OF_BODIES = {
    400: "the body is no JSON",
    408: "the body did not arrive in time",
    413: "the body is too large",
    415: "the body is not declared as JSON",
    422: "a rule of the protocol is broken; `detail` names the field",
}
_OF_RUNS = {
    404: "no such agent",
    409: "a response of the session is running, or nothing waits for this answer, or the id belongs to another request",
}
_GONE = {404: "there is no such thing, or it is another user's"}
_STREAM = Answer(
    description="server-sent events without names: responses, messages and contents, to the terminal response",
    media_type="text/event-stream",
)
_AFTER = (
    Parameter(name="after", place="query", description="number of the last event seen; -1: none", type=int),
    Parameter(name="Last-Event-ID", place="header", description="the same, where `after` is not given"),
)
_STATE = Answer(description="its state", body=dict[str, str])


def _answers(success: dict[int, Any], *more: dict[int, str]) -> dict[int, Any]:
    told = {status: text for each in (_ERRORS, *more) for status, text in each.items()}
    errors = {status: Answer(description=text, body=Refusal) for status, text in told.items()}
    return success | dict(sorted(errors.items()))


def _named(name: str, description: str) -> Parameter:
    return Parameter(name=name, place="path", description=description)


_EXAMPLE = {"input": [{"role": "user", "type": "message", "content": [{"type": "text", "text": "Hello!"}]}]}


def routes(path: str) -> tuple[Route, ...]:
    """The routes, with `path` as the one where runs begin."""
    whole = Answer(description="the terminal response, whatever its status", body=wire.AgentResponse)
    return (
        Route(
            method="POST",
            path=path,
            summary="Run an agent and get its response",
            description="The run goes on when the client leaves; its events can be read again.",
            tag=TAG,
            body=wire.AgentRequest,
            body_example=_EXAMPLE,
            answers=_answers({200: (whole, _STREAM)}, _OF_BODIES, _OF_RUNS),
        ),
        Route(
            method="POST",
            path=stop_path(path),
            summary="Cancel a running response",
            tag=TAG,
            body=wire.StopRequest,
            body_example={"session_id": "s-17"},
            answers=_answers(
                {200: Answer(description="whether there was one", body=wire.Stopped)},
                _OF_BODIES,
            ),
        ),
        Route(
            method="POST",
            path=f"{path}/task",
            summary="Run an agent in the background",
            tag=TAG,
            body=wire.TaskRequest,
            body_example={**_EXAMPLE, "timeout": 60},
            answers=_answers({200: Answer(description="the task", body=wire.TaskSubmitted)}, _OF_BODIES, _OF_RUNS),
        ),
        Route(
            method="GET",
            path=f"{path}/task/{{task_id}}",
            summary="How a background task stands",
            tag=TAG,
            parameters=(_named("task_id", "the task"),),
            answers=_answers({200: Answer(description="its state", body=wire.TaskState)}, _GONE),
        ),
        Route(
            method="GET",
            path=f"{path}/responses/{{response_id}}",
            summary="How a response stands",
            tag=TAG,
            parameters=(_named("response_id", "the response"),),
            answers=_answers({200: Answer(description="the response", body=wire.AgentResponse)}, _GONE),
        ),
        Route(
            method="GET",
            path=f"{path}/responses/{{response_id}}/events",
            summary="Read a response's events again, and follow it",
            tag=TAG,
            parameters=(_named("response_id", "the response"), *_AFTER),
            answers=_answers({200: _STREAM}, _GONE, {422: "the position is none of this response's"}),
        ),
        Route(
            method="GET",
            path=f"{path}/sessions/{{session_id}}/events",
            summary="The newest response of a session, from its first event",
            tag=TAG,
            parameters=(_named("session_id", "the session"),),
            answers=_answers({200: _STREAM, 204: Answer(description="there is none")}),
        ),
        Route(
            method="GET",
            path="/",
            summary="What is served where",
            tag=TAG,
            is_open=True,
            answers={200: Answer(description="the paths", body=Service)},
        ),
        Route(
            method="GET",
            path="/health",
            summary="Whether the service is well",
            tag=TAG,
            is_open=True,
            answers={200: Answer(description="its state", body=Health)},
        ),
        *(
            Route(
                method="GET",
                path=each,
                summary=f"The {each[1:]} of the service",
                tag=TAG,
                is_open=True,
                answers={200: _STATE, 503: _STATE},
            )
            for each in ("/readiness", "/liveness")
        ),
    )
