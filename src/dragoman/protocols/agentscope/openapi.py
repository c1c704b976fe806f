"""The Agent API's routes as data, for the server's OpenAPI document. The types are those that decode and encode."""

import msgspec

from dragoman.protocols.agentscope import wire
from dragoman.protocols.agentscope.paths import endpoints
from dragoman.protocols.kit.openapi import BODY_ERRORS, Parameter, ResponseSpec, Route, RouteDescriber


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


_BODY_ERRORS = {
    **BODY_ERRORS,
    400: "The body is not JSON.",
    408: "The body did not arrive in time.",
    422: "A rule of the protocol is broken; `detail` names the field.",
}
_RUN_ERRORS = _BODY_ERRORS | {
    404: "there is no such agent",
    409: "a response of the session is running, nothing waits for this answer, or the id belongs to another request",
}
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
    at, describe = endpoints(path), RouteDescriber(tag="AgentScope Runtime", error_body=AgentScopeError)
    return (
        describe.route(
            "POST",
            at["process"],
            "Run an agent and get its response",
            (_json("the terminal response, whatever its status", wire.AgentResponse), _STREAM),
            _RUN_ERRORS,
            description="The run continues if the client disconnects; its events can be replayed.",
            body=wire.AgentRequest,
            body_example=_EXAMPLE,
        ),
        describe.route(
            "POST",
            at["stop"],
            "Cancel a running response",
            _json("whether a response was running", wire.StopResponse),
            _BODY_ERRORS,
            body=wire.StopRequest,
            body_example={"session_id": "s-17"},
        ),
        describe.route(
            "POST",
            at["task"],
            "Run an agent in the background",
            _json("the task", wire.TaskSubmitted),
            _RUN_ERRORS,
            body=wire.TaskRequest,
            body_example={**_EXAMPLE, "timeout": 60},
        ),
        describe.route("GET", at["task_status"], "Get a task", _json("its state", wire.TaskState)),
        describe.route("GET", at["response"], "Get a response", _json("its state", wire.AgentResponse)),
        describe.route(
            "GET",
            at["response_events"],
            "Replay a response's events and follow it",
            _STREAM,
            {422: "the response has no event with this number"},
            parameters=_POSITION_PARAMETERS,
        ),
        describe.route(
            "GET",
            at["session_events"],
            "Replay a session's latest response and follow it",
            _STREAM,
            other={204: ResponseSpec(description="the session has no response")},
        ),
        describe.route("GET", "/", "List the paths of the service", _json("the paths", Service), is_public=True),
        describe.route("GET", at["health"], "Get the health of the service", _STATE, is_public=True),
        describe.route(
            "GET", at["readiness"], "Get the readiness of the service", _STATE, other={503: _STATE}, is_public=True
        ),
        describe.route(
            "GET", at["liveness"], "Get the liveness of the service", _STATE, other={503: _STATE}, is_public=True
        ),
    )
