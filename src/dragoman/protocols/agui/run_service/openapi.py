"""The run service's routes as data, for the server's OpenAPI document. The types are those that decode and encode."""

from typing import Any

import msgspec

from dragoman.protocols.agui.run_service import wire
from dragoman.protocols.agui.run_service.errors import MEDIA_TYPE
from dragoman.protocols.kit.openapi import Parameter, ResponseSpec, Route

TAG = "AG-UI run service"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Every error's body (RFC 9457). `detail` is the sentence, `code` is for programs."""

    type: str
    title: str
    status: int
    detail: str
    code: str


_THREAD = Parameter(name="thread_id", location="path", description="the thread, a UUID")
_RUN = Parameter(name="runId", location="query", description="a run, as its client named it")
_ERRORS = {
    401: "no key, or none that is known",
    403: "the thread is another user's, or the key lacks the scope",
    422: "the request is wrong; `detail` and `code` say how",
    429: "too much for now; `Retry-After` says when to come again",
    503: "the server stops, or its store takes no writes; `Retry-After`",
}
_NOT_FOUND = {404: "there is no such thread"}
_MEDIA_TYPE_ERRORS = {415: "the body is not declared as JSON"}


def _answers(success: dict[int, ResponseSpec], *more: dict[int, str]) -> dict[int, Any]:
    told = {status: text for each in (_ERRORS, *more) for status, text in each.items()}
    errors = {
        status: ResponseSpec(description=text, body=Problem, media_type=MEDIA_TYPE)
        for status, text in sorted(told.items())
    }
    return success | errors


ROUTES = (
    Route(
        method="POST",
        path="/runs",
        summary="Submit a run",
        description="The work happens in the background. The message is durable when this answers.",
        tag=TAG,
        body=wire.RunAgentInput,
        body_example={
            "threadId": "550e8400-e29b-41d4-a716-446655440000",
            "runId": "run-001",
            "messages": [{"id": "msg-001", "role": "user", "content": "Hello!"}],
            "forwardedProps": {"agent_type": "worker"},
        },
        responses=_answers(
            {202: ResponseSpec(description="taken, or taken before", body=wire.TaskAccepted)},
            {409: "the runId was used with another body"},
            _MEDIA_TYPE_ERRORS,
        ),
    ),
    Route(
        method="GET",
        path="/runs/{thread_id}/events",
        summary="Follow a thread's events",
        tag=TAG,
        parameters=(
            _THREAD,
            Parameter(name="Last-Event-ID", location="header", description="the `id` of the last event that was seen"),
            Parameter(
                name="idle_limit", location="query", description="seconds of silence to the end; else 300", type=int
            ),
            _RUN,
        ),
        responses=_answers(
            {200: ResponseSpec(description="AG-UI events", media_type="text/event-stream")},
            {404: "there is no such thread or run"},
        ),
    ),
    Route(
        method="POST",
        path="/runs/{thread_id}/cancel",
        summary="Stop a run",
        tag=TAG,
        parameters=(_THREAD, msgspec.structs.replace(_RUN, is_required=True)),
        responses=_answers(
            {202: ResponseSpec(description="whether it will stop", body=wire.CancelResponse)},
            {404: "there is no such thread or run"},
        ),
    ),
    Route(
        method="POST",
        path="/runs/{thread_id}/answers",
        summary="Answer calls that wait",
        description="Each is taken once; with the last the agent goes on.",
        tag=TAG,
        parameters=(_THREAD,),
        body=wire.Answers,
        body_example={"answers": [{"callId": "0198a1b2-0000-7000-8000-000000000001", "granted": True}]},
        responses=_answers(
            {202: ResponseSpec(description="taken", body=wire.AnswersAccepted)},
            _NOT_FOUND,
            {409: "a run is active, or the call has its result already", 413: "the body is too large"},
            _MEDIA_TYPE_ERRORS,
        ),
    ),
    Route(
        method="GET",
        path="/history",
        summary="One day of a thread",
        tag=TAG,
        parameters=(
            Parameter(name="threadId", location="query", description="the thread; else the newest one"),
            Parameter(name="before", location="query", description="only days before this one, YYYY-MM-DD"),
        ),
        responses=_answers(
            {200: ResponseSpec(description="the newest day with messages", body=wire.History)}, _NOT_FOUND
        ),
    ),
    Route(
        method="DELETE",
        path="/sessions/{thread_id}",
        summary="Delete a thread and everything of it",
        tag=TAG,
        parameters=(_THREAD,),
        responses=_answers({204: ResponseSpec(description="it is gone")}),
    ),
    Route(
        method="POST",
        path="/attachments",
        summary="Upload a picture",
        description="A form with one file in the field `file`, and perhaps `threadId` and `runId`.",
        tag=TAG,
        responses=_answers(
            {201: ResponseSpec(description="where it is", body=wire.StoredObject)},
            {413: "the file is too large", 415: "the file is not what it is declared to be, or no picture"},
        ),
    ),
    Route(
        method="GET",
        path="/attachments",
        summary="The pictures that you uploaded, the newest first",
        description="At most 500. An addition of ours.",
        tag=TAG,
        responses=_answers({200: ResponseSpec(description="where they are", body=wire.StoredObjectPage)}),
    ),
    Route(
        method="DELETE",
        path="/attachments",
        summary="Delete a picture",
        description="Messages that show it show nothing in its place. An addition of ours.",
        tag=TAG,
        parameters=(Parameter(name="path", location="query", description="as the upload told it", is_required=True),),
        responses=_answers({204: ResponseSpec(description="it is gone")}),
    ),
    Route(
        method="GET",
        path="/attachments/signed-url",
        summary="A fresh link to an uploaded picture",
        tag=TAG,
        parameters=(
            Parameter(name="bucket", location="query", description="as the upload told it", is_required=True),
            Parameter(name="path", location="query", description="as the upload told it", is_required=True),
        ),
        responses=_answers({200: ResponseSpec(description="the link", body=wire.SignedUrl)}),
    ),
    Route(
        method="POST",
        path="/transcribe",
        summary="Make text of a recording",
        description="A form with one WAV file in the field `file`.",
        tag=TAG,
        responses=_answers(
            {200: ResponseSpec(description="what is said", body=wire.Transcript)},
            {400: "no recording that can be read", 502: "there is no transcription backend, or it failed"},
        ),
    ),
    Route(
        method="GET",
        path="/profile",
        summary="What the caller has set for all agents",
        tag=TAG,
        responses=_answers({200: ResponseSpec(description="the profile", body=wire.ProfileResponse)}),
    ),
    Route(
        method="PATCH",
        path="/profile",
        summary="Set a time zone or a locale",
        tag=TAG,
        body=wire.ProfileChange,
        body_example={"settings": {"timezone": "Europe/Berlin", "locale": "de"}},
        responses=_answers(
            {200: ResponseSpec(description="the profile", body=wire.ProfileResponse)}, _MEDIA_TYPE_ERRORS
        ),
    ),
)
