"""The routes of the run service for the OpenAPI document. The types are those that decode and encode."""

from typing import Any

import msgspec

from dragoman.protocols.agui.run_service import wire
from dragoman.protocols.agui.run_service.errors import MEDIA_TYPE
from dragoman.protocols.kit.openapi import Method, Parameter, ResponseSpec, Route


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an error (RFC 9457). `detail` is the message; `code` is for programs."""

    type: str
    title: str
    status: int
    detail: str
    code: str


def _query(name: str, description: str, *, is_required: bool = False, kind: Any = str) -> Parameter:  # noqa: ANN401  # a type
    return Parameter(name=name, location="query", description=description, is_required=is_required, type=kind)


_THREAD = Parameter(name="thread_id", location="path", description="The thread, a UUID.")
_LAST_EVENT_ID = Parameter(name="Last-Event-ID", location="header", description="The `id` of the last event received.")
_OBJECT_PATH = _query("path", "The path that the upload returned.", is_required=True)
_ERRORS = {
    401: "The API key is missing or unknown.",
    403: "The thread is another user's, or the key lacks the scope.",
    422: "The request is invalid; `detail` and `code` say how.",
    429: "A limit is reached; see `Retry-After`.",
    503: "The server is stopping or cannot use its store; see `Retry-After`.",
}
_NO_THREAD = {404: "There is no such thread."}
_NO_RUN = {404: "There is no such thread or run."}
_NOT_JSON = {415: "The body is not declared as JSON."}


def _route(
    method: Method,
    path: str,
    summary: str,
    success: tuple[int, str, Any],
    errors: dict[int, str] | None = None,
    *,
    success_media_type: str = "application/json",
    **fields: Any,  # noqa: ANN401  # further fields of `Route`
) -> Route:
    """A route. `success` is the status of success, its description and the type of its body."""
    status, text, body = success
    responses = {status: ResponseSpec(description=text, body=body, media_type=success_media_type)}
    for status, text in sorted((_ERRORS | (errors or {})).items()):
        responses[status] = ResponseSpec(description=text, body=Problem, media_type=MEDIA_TYPE)
    return Route(method=method, path=path, summary=summary, tag="AG-UI run service", responses=responses, **fields)


ROUTES = (
    _route(
        "POST",
        "/runs",
        "Submit a run",
        (202, "The run was accepted, by this or an earlier request.", wire.TaskAccepted),
        {409: "The runId was used with another body.", **_NOT_JSON},
        description="The agent works in the background. The message is durable when the response is sent.",
        body=wire.RunAgentInput,
        body_example={
            "threadId": "550e8400-e29b-41d4-a716-446655440000",
            "runId": "run-001",
            "messages": [{"id": "msg-001", "role": "user", "content": "Hello!"}],
            "forwardedProps": {"agent_type": "worker"},
        },
    ),
    _route(
        "GET",
        "/runs/{thread_id}/events",
        "Follow a thread's events",
        (200, "AG-UI events.", None),
        _NO_RUN,
        success_media_type="text/event-stream",
        parameters=(
            _THREAD,
            _LAST_EVENT_ID,
            _query("idle_limit", "Seconds of silence after which the stream ends; 300 by default.", kind=int),
            _query("runId", "A run, by its client's id."),
        ),
    ),
    _route(
        "POST",
        "/runs/{thread_id}/cancel",
        "Stop a run",
        (202, "Whether the run will stop.", wire.CancelResponse),
        _NO_RUN,
        parameters=(_THREAD, _query("runId", "A run, by its client's id.", is_required=True)),
    ),
    _route(
        "POST",
        "/runs/{thread_id}/answers",
        "Answer calls that wait",
        (202, "The answers were accepted.", wire.AnswersAccepted),
        {
            **_NO_THREAD,
            409: "A run is active, or the call already has its result.",
            413: "The body is too large.",
            **_NOT_JSON,
        },
        description="Each answer is accepted once. With the last one, the agent continues.",
        parameters=(_THREAD,),
        body=wire.Answers,
        body_example={"answers": [{"callId": "0198a1b2-0000-7000-8000-000000000001", "granted": True}]},
    ),
    _route(
        "GET",
        "/history",
        "Read one day of a thread",
        (200, "The newest day with messages.", wire.History),
        _NO_THREAD,
        parameters=(
            _query("threadId", "The thread; by default the newest."),
            _query("before", "Only days before this one, YYYY-MM-DD."),
        ),
    ),
    _route(
        "DELETE",
        "/sessions/{thread_id}",
        "Delete a thread and everything in it",
        (204, "The thread is gone.", None),
        parameters=(_THREAD,),
    ),
    _route(
        "POST",
        "/attachments",
        "Upload an image",
        (201, "The stored image.", wire.StoredObject),
        {413: "The file is too large.", 415: "The file is not an image, or not of its declared type."},
        description="A form with one file in the field `file`, and optionally `threadId` and `runId`.",
    ),
    _route(
        "GET",
        "/attachments",
        "List your images, newest first",
        (200, "The stored images.", wire.StoredObjectPage),
        description="At most 500. An addition to the protocol.",
    ),
    _route(
        "DELETE",
        "/attachments",
        "Delete an image",
        (204, "The image is gone.", None),
        description="Messages with the image show nothing in its place. An addition to the protocol.",
        parameters=(_OBJECT_PATH,),
    ),
    _route(
        "GET",
        "/attachments/signed-url",
        "Make a new link to an image",
        (200, "The link.", wire.SignedUrl),
        parameters=(_query("bucket", "The bucket that the upload returned.", is_required=True), _OBJECT_PATH),
    ),
    _route(
        "POST",
        "/transcribe",
        "Transcribe a recording",
        (200, "The text of the recording.", wire.Transcript),
        {400: "The recording cannot be read.", 502: "There is no transcription backend, or it failed."},
        description="A form with one WAV file in the field `file`.",
    ),
    _route("GET", "/profile", "Show your settings for all agents", (200, "The profile.", wire.ProfileResponse)),
    _route(
        "PATCH",
        "/profile",
        "Set your time zone or locale",
        (200, "The profile.", wire.ProfileResponse),
        _NOT_JSON,
        body=wire.ProfileChange,
        body_example={"settings": {"timezone": "Europe/Berlin", "locale": "de"}},
    ),
)
