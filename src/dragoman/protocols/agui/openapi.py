"""The routes of the standard endpoint for the OpenAPI document. The types are those that decode and encode."""

from typing import Any

import msgspec

from dragoman.protocols.agui import wire
from dragoman.protocols.agui.capabilities import AgentCapabilities
from dragoman.protocols.kit.openapi import Method, Parameter, ResponseSpec, Route


class AgUiError(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an error."""

    error: str
    code: str


class StopResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there was a run to stop."""

    stopped: bool


_AGENT = Parameter(name="agent", location="path", description="The agent's name.")
_THREAD = Parameter(name="thread", location="path", description="The thread's id, as its client chose it.")
_STREAM = ResponseSpec(
    description="Server-sent events, from `RUN_STARTED` to `RUN_FINISHED` or `RUN_ERROR`.",
    media_type="text/event-stream",
)
_ERRORS = {
    401: "The API key is missing or unknown.",
    403: "The key lacks the scope, or the thread is another user's.",
    404: "There is no such agent or thread.",
    429: "A limit is reached; see `Retry-After`.",
    503: "The server is stopping or cannot use its store; see `Retry-After`.",
}
_THREAD_ERRORS = {409: "The thread has another agent, or the run id was used with another request."}
_BODY_ERRORS = {
    **_THREAD_ERRORS,
    400: "The request is invalid; `code` says how.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
}


def _route(
    method: Method,
    path: str,
    summary: str,
    success: ResponseSpec,
    errors: dict[int, str],
    **fields: Any,  # noqa: ANN401  # further fields of `Route`
) -> Route:
    failures = {
        status: ResponseSpec(description=text, body=AgUiError) for status, text in sorted((_ERRORS | errors).items())
    }
    return Route(method=method, path=path, summary=summary, tag="AG-UI", responses={200: success, **failures}, **fields)


ROUTES = (
    _route(
        "POST",
        "/{agent}",
        "Run the agent and stream the run",
        _STREAM,
        _BODY_ERRORS,
        description="The only route that official clients need. Disconnecting stops the run unless another reader "
        "follows it.",
        body=wire.RunInput,
        body_example={
            "threadId": "a-thread",
            "runId": "a-run",
            "protocolVersion": "1.0",
            "messages": [{"id": "m1", "role": "user", "content": "Hello!"}],
        },
        parameters=(
            _AGENT,
            Parameter(
                name="X-Run-On-Disconnect",
                location="header",
                description="`continue`: the run continues when the client disconnects; `connect` joins it again.",
            ),
        ),
    ),
    _route(
        "POST",
        "/{agent}/connect",
        "Return to a thread: its messages, and the rest of its active run",
        _STREAM,
        _BODY_ERRORS,
        description="An addition to the protocol. Starts nothing.",
        body=wire.RunInput,
        body_example={"threadId": "a-thread", "runId": "another-run", "protocolVersion": "1.0", "messages": []},
        parameters=(_AGENT,),
    ),
    _route(
        "GET",
        "/{agent}/capabilities",
        "Show what the agent declares",
        ResponseSpec(description="The agent's capabilities.", body=AgentCapabilities),
        {},
        parameters=(_AGENT,),
    ),
    _route(
        "POST",
        "/{agent}/stop/{thread}",
        "Stop a thread's run",
        ResponseSpec(description="Whether there was a run to stop.", body=StopResponse),
        _BODY_ERRORS,
        body=wire.StopInput,
        body_example={},
        parameters=(_AGENT, _THREAD),
    ),
    _route(
        "GET",
        "/{agent}/threads/{thread}/events",
        "Stream the events of all runs of a thread, past and future",
        _STREAM,
        {**_THREAD_ERRORS, 400: "The position is not one of this thread."},
        description="An addition to the protocol: a plain log of events that includes what the application sent.",
        parameters=(
            _AGENT,
            _THREAD,
            Parameter(name="Last-Event-ID", location="header", description="The `id` of the last event received."),
        ),
    ),
)
