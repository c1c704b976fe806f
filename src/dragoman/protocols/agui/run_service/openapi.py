"""The routes of the run service for the OpenAPI document. The types are those that decode and encode."""

from typing import Any

import msgspec

from dragoman.protocols.agui.run_service import wire
from dragoman.protocols.agui.run_service.errors import MEDIA_TYPE
from dragoman.protocols.kit.openapi import COMMON_ERRORS, Parameter, ResponseSpec, RouteDescriber


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an error (RFC 9457). `detail` is the message; `code` is for programs."""

    type: str
    title: str
    status: int
    detail: str
    code: str


def _query(name: str, description: str, *, is_required: bool = False, kind: Any = str) -> Parameter:  # noqa: ANN401  # a type
    return Parameter(name=name, location="query", description=description, is_required=is_required, type=kind)


_LAST_EVENT_ID = Parameter(name="Last-Event-ID", location="header", description="The `id` of the last event received.")
_PROFILE = ResponseSpec(description="The profile.", body=wire.ProfileResponse)
_OBJECT_PATH = _query("path", "The path that the upload returned.", is_required=True)
_NOT_JSON = {415: "The body is not declared as JSON."}


_RUNS = RouteDescriber(
    tag="AG-UI run service",
    error_body=Problem,
    error_media_type=MEDIA_TYPE,
    errors={**COMMON_ERRORS, 422: "The request is invalid; `detail` and `code` say why."},
)


ROUTES = (
    _RUNS.route(
        "POST",
        "/runs",
        "Submit a run",
        ResponseSpec(description="The run was accepted, by this or an earlier request.", body=wire.TaskAccepted),
        {409: "The runId was used with another body.", **_NOT_JSON},
        status=202,
        description="The agent works in the background. The message is durable when the response is sent.",
        body=wire.RunAgentInput,
        body_example={
            "threadId": "550e8400-e29b-41d4-a716-446655440000",
            "runId": "run-001",
            "messages": [{"id": "msg-001", "role": "user", "content": "Hello!"}],
            "forwardedProps": {"agent_type": "worker"},
        },
    ),
    _RUNS.route(
        "GET",
        "/runs/{thread_id}/events",
        "Follow a thread's events",
        ResponseSpec(description="AG-UI events.", media_type="text/event-stream"),
        parameters=(
            _LAST_EVENT_ID,
            _query("idle_limit", "Seconds of silence after which the stream ends; 300 by default.", kind=int),
            _query("runId", "A run, by its client's id."),
        ),
    ),
    _RUNS.route(
        "POST",
        "/runs/{thread_id}/cancel",
        "Stop a run",
        ResponseSpec(description="Whether the run will stop.", body=wire.CancelResponse),
        status=202,
        parameters=(_query("runId", "A run, by its client's id.", is_required=True),),
    ),
    _RUNS.route(
        "POST",
        "/runs/{thread_id}/answers",
        "Answer calls that wait",
        ResponseSpec(description="The answers were accepted.", body=wire.AnswersAccepted),
        {
            409: "A run is active, or the call already has its result.",
            413: "The body is too large.",
            **_NOT_JSON,
        },
        status=202,
        description="Each answer is accepted once. With the last one, the agent continues.",
        body=wire.Answers,
        body_example={"answers": [{"callId": "0198a1b2-0000-7000-8000-000000000001", "granted": True}]},
    ),
    _RUNS.route(
        "GET",
        "/history",
        "Read one day of a thread",
        ResponseSpec(description="The newest day with messages.", body=wire.History),
        parameters=(
            _query("threadId", "The thread; by default the newest."),
            _query("before", "Only days before this one, YYYY-MM-DD."),
        ),
    ),
    _RUNS.route(
        "DELETE",
        "/sessions/{thread_id}",
        "Delete a thread and everything in it",
        ResponseSpec(description="The thread is gone."),
        status=204,
    ),
    _RUNS.route(
        "POST",
        "/attachments",
        "Upload an image",
        ResponseSpec(description="The stored image.", body=wire.StoredObject),
        {413: "The file is too large.", 415: "The file is not an image, or not of its declared type."},
        status=201,
        description="A form with one file in the field `file`, and optionally `threadId` and `runId`.",
    ),
    _RUNS.route(
        "GET",
        "/attachments",
        "List your images, newest first",
        ResponseSpec(description="The stored images.", body=wire.StoredObjectPage),
        description="At most 500. An addition to the protocol.",
    ),
    _RUNS.route(
        "DELETE",
        "/attachments",
        "Delete an image",
        ResponseSpec(description="The image is gone."),
        status=204,
        description="Messages with the image show nothing in its place. An addition to the protocol.",
        parameters=(_OBJECT_PATH,),
    ),
    _RUNS.route(
        "GET",
        "/attachments/signed-url",
        "Make a new link to an image",
        ResponseSpec(description="The link.", body=wire.SignedUrl),
        parameters=(_query("bucket", "The bucket that the upload returned.", is_required=True), _OBJECT_PATH),
    ),
    _RUNS.route(
        "POST",
        "/transcribe",
        "Transcribe a recording",
        ResponseSpec(description="The text of the recording.", body=wire.Transcript),
        {400: "The recording cannot be read.", 502: "There is no transcription backend, or it failed."},
        description="A form with one WAV file in the field `file`.",
    ),
    _RUNS.route(
        "GET",
        "/profile",
        "Show your settings for all agents",
        ResponseSpec(description="The profile.", body=wire.ProfileResponse),
    ),
    _RUNS.route(
        "PATCH",
        "/profile",
        "Set your time zone or locale",
        _PROFILE,
        _NOT_JSON,
        body=wire.ProfileChange,
        body_example={"settings": {"timezone": "Europe/Berlin", "locale": "de"}},
    ),
)
