"""The standard endpoint's routes as data, for the OpenAPI document. The types are those that decode and encode."""

from typing import Any

import msgspec

from dragoman.protocols.agui import wire
from dragoman.protocols.agui.capabilities import AgentCapabilities
from dragoman.protocols.kit.openapi import Parameter, ResponseSpec, Route


class AgUiError(msgspec.Struct, frozen=True, kw_only=True):
    """Every error's body."""

    error: str
    code: str


class StopResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there was a run to stop."""

    stopped: bool


_TAG = "AG-UI"
_AGENT = Parameter(name="agent", location="path", description="the agent's name")
_THREAD = Parameter(name="thread", location="path", description="the thread's id, as its client chose it")
_STREAM = ResponseSpec(
    description="server-sent events from `RUN_STARTED` to `RUN_FINISHED` or `RUN_ERROR`", media_type="text/event-stream"
)
_ERRORS = {
    401: "no key, or none that is known",
    403: "the key lacks the scope, or the thread is another user's",
    404: "no such agent, or no such thread",
    429: "too much for now; `Retry-After` says when to come again",
    503: "the server stops, or its store takes no writes; `Retry-After`",
}
_THREAD_ERRORS = {409: "the thread is another agent's, or the run id was used with another request"}
_BODY_ERRORS = {
    400: "the request is wrong; `code` says how",
    413: "the body is too large",
    415: "the body is not declared as JSON",
}


def _answers(success: ResponseSpec, *more: dict[int, str]) -> dict[int, Any]:
    told = {status: text for each in (_ERRORS, *more) for status, text in each.items()}
    return {
        200: success,
        **{status: ResponseSpec(description=text, body=AgUiError) for status, text in sorted(told.items())},
    }


ROUTES = (
    Route(
        method="POST",
        path="/{agent}",
        summary="Run the agent, and stream the run",
        description="The one route that official clients need. Leaving cancels the run, unless somebody else watches.",
        tag=_TAG,
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
                description="`continue`: the run goes on when the client leaves, and `connect` joins it again",
            ),
        ),
        responses=_answers(_STREAM, _BODY_ERRORS, _THREAD_ERRORS),
    ),
    Route(
        method="POST",
        path="/{agent}/connect",
        summary="Come back to a thread: its messages, and the live rest of its run",
        description="An addition of ours. Starts nothing.",
        tag=_TAG,
        body=wire.RunInput,
        body_example={"threadId": "a-thread", "runId": "another-run", "protocolVersion": "1.0", "messages": []},
        parameters=(_AGENT,),
        responses=_answers(_STREAM, _BODY_ERRORS, _THREAD_ERRORS),
    ),
    Route(
        method="GET",
        path="/{agent}/capabilities",
        summary="What the agent declares",
        tag=_TAG,
        parameters=(_AGENT,),
        responses=_answers(ResponseSpec(description="AgentCapabilities", body=AgentCapabilities)),
    ),
    Route(
        method="POST",
        path="/{agent}/stop/{thread}",
        summary="Stop a thread's run",
        tag=_TAG,
        body=wire.StopInput,
        body_example={},
        parameters=(_AGENT, _THREAD),
        responses=_answers(ResponseSpec(description="done", body=StopResponse), _BODY_ERRORS, _THREAD_ERRORS),
    ),
    Route(
        method="GET",
        path="/{agent}/threads/{thread}/events",
        summary="Everything that a thread's runs told, and what they tell from now on",
        description="An addition of ours: a plain log of events, with what the application sent.",
        tag=_TAG,
        parameters=(
            _AGENT,
            _THREAD,
            Parameter(name="Last-Event-ID", location="header", description="the `id` of the last event that was seen"),
        ),
        responses=_answers(_STREAM, {400: "the position is none of this thread's"}, _THREAD_ERRORS),
    ),
)
