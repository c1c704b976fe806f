"""The routes of the standard endpoint for the OpenAPI document. The types are those that decode and encode."""

import msgspec

from dragoman.protocols.agui import wire
from dragoman.protocols.agui.capabilities import AgentCapabilities
from dragoman.protocols.kit.openapi import BODY_ERRORS, Parameter, ResponseSpec, RouteDescriber


class AgUiError(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an error."""

    error: str
    code: str


class StopResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there was a run to stop."""

    stopped: bool


_STREAM = ResponseSpec(
    description="Server-sent events, from `RUN_STARTED` to `RUN_FINISHED` or `RUN_ERROR`.",
    media_type="text/event-stream",
)
_THREAD_ERRORS = {409: "The thread has another agent, or the run id was used with another request."}
_BODY_ERRORS = {**_THREAD_ERRORS, **BODY_ERRORS}
_AGUI = RouteDescriber(tag="AG-UI", error_body=AgUiError)

ROUTES = (
    _AGUI.route(
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
            Parameter(
                name="X-Run-On-Disconnect",
                location="header",
                description="`continue`: the run continues when the client disconnects; `connect` joins it again.",
            ),
        ),
    ),
    _AGUI.route(
        "POST",
        "/{agent}/connect",
        "Return to a thread: its messages, and the rest of its active run",
        _STREAM,
        _BODY_ERRORS,
        description="An addition to the protocol. Starts nothing.",
        body=wire.RunInput,
        body_example={"threadId": "a-thread", "runId": "another-run", "protocolVersion": "1.0", "messages": []},
    ),
    _AGUI.route(
        "GET",
        "/{agent}/capabilities",
        "Show what the agent declares",
        ResponseSpec(description="The agent's capabilities.", body=AgentCapabilities),
        {},
    ),
    _AGUI.route(
        "POST",
        "/{agent}/stop/{thread}",
        "Stop a thread's run",
        ResponseSpec(description="Whether there was a run to stop.", body=StopResponse),
        _BODY_ERRORS,
        body=wire.StopInput,
        body_example={},
    ),
    _AGUI.route(
        "GET",
        "/{agent}/threads/{thread}/events",
        "Stream the events of all runs of a thread, past and future",
        _STREAM,
        {**_THREAD_ERRORS, 400: "The position is not one of this thread."},
        description="An addition to the protocol: a plain log of events that includes what the application sent.",
        parameters=(
            Parameter(name="Last-Event-ID", location="header", description="The `id` of the last event received."),
        ),
    ),
)
